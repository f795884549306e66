//! Half-open ranges on a line of whole numbers: which values of a column are meant.

use serde::{Deserialize, Serialize};

/// Ranges in order, none empty, with a gap between any two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(i64, i64)>", into = "Vec<(i64, i64)>")]
pub struct Ranges(Vec<(i64, i64)>);

impl From<Vec<(i64, i64)>> for Ranges {
    fn from(parts: Vec<(i64, i64)>) -> Self {
        let mut ranges = Self::default();
        for (from, to) in parts {
            ranges.add(from, to);
        }
        ranges
    }
}

impl From<Ranges> for Vec<(i64, i64)> {
    fn from(ranges: Ranges) -> Self {
        ranges.0
    }
}

impl Ranges {
    /// From `from` on, up to what comes before `to`; nothing when that is no range.
    pub fn of(from: i64, to: i64) -> Self {
        let mut ranges = Self::default();
        ranges.add(from, to);
        ranges
    }

    pub fn add(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        // Those that touch the new one become part of it.
        let first = self.0.partition_point(|r| r.1 < from);
        let after = self.0.partition_point(|r| r.0 <= to);
        let joined = match self.0.get(first..after) {
            Some([]) | None => (from, to),
            Some(touched) => (touched[0].0.min(from), touched[touched.len() - 1].1.max(to)),
        };
        self.0.splice(first..after.max(first), [joined]);
    }

    pub fn remove(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|r| r.1 <= from);
        let after = self.0.partition_point(|r| r.0 < to);
        if first >= after {
            return;
        }
        let before = (self.0[first].0, from);
        let behind = (to, self.0[after - 1].1);
        let kept: Vec<(i64, i64)> = [before, behind].into_iter().filter(|r| r.0 < r.1).collect();
        self.0.splice(first..after, kept);
    }

    /// The parts that lie between two values.
    #[must_use]
    pub fn within(&self, from: i64, to: i64) -> Self {
        let first = self.0.partition_point(|r| r.1 <= from);
        let parts = self.0[first..].iter().take_while(|r| r.0 < to);
        Self(
            parts
                .map(|r| (r.0.max(from), r.1.min(to)))
                .filter(|r| r.0 < r.1)
                .collect(),
        )
    }

    /// The parts that are in none of `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = self.clone();
        for (from, to) in &others.0 {
            left.remove(*from, *to);
        }
        left
    }

    pub fn iter(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the first ones until no more than `most` are left.
    pub fn keep_last(&mut self, most: usize) {
        let more = self.0.len().saturating_sub(most);
        self.0.drain(..more);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn values(ranges: &Ranges) -> BTreeSet<i64> {
        ranges.iter().flat_map(|(from, to)| from..to).collect()
    }

    fn changes() -> impl Strategy<Value = Vec<(bool, i64, i64)>> {
        proptest::collection::vec((any::<bool>(), -20..20i64, -20..20i64), 0..30)
    }

    proptest! {
        #[test]
        fn they_hold_the_values_of_a_set(changes in changes(), from in -25..25i64, to in -25..25i64) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (adds, from, to) in changes {
                if adds {
                    ranges.add(from, to);
                    set.extend(from..to);
                } else {
                    ranges.remove(from, to);
                    set.retain(|v| !(from..to).contains(v));
                }
                prop_assert_eq!(values(&ranges), set.clone());
                for pair in ranges.0.windows(2) {
                    prop_assert!(pair[0].1 < pair[1].0, "{:?}", ranges);
                }
            }
            let inside: BTreeSet<i64> = set.iter().copied().filter(|v| (from..to).contains(v)).collect();
            prop_assert_eq!(values(&ranges.within(from, to)), inside.clone());
            let outside: BTreeSet<i64> = set.difference(&inside).copied().collect();
            prop_assert_eq!(values(&ranges.without(&Ranges::of(from, to))), outside);
        }
    }

    #[test]
    fn what_was_written_in_any_order_is_read_in_order() {
        let read: Ranges = serde_json::from_str("[[5,7],[1,3],[3,4],[9,9]]").unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "[[1,4],[5,7]]");
    }
}
