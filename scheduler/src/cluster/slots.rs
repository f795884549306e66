//! How many slots of executors are free, as they tell when they ask for tasks, and at the least every few
//! seconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::ExecutorInfo;

/// See the module's description. Clones are handles of the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots(Arc<Mutex<BTreeMap<String, usize>>>);

impl Slots {
    /// An executor has asked with so many free ones, and got so many tasks.
    pub(crate) fn told(&self, executor: &str, free: usize, tasks: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(executor.to_string(), free.saturating_sub(tasks));
    }

    /// Free and busy ones of the executors that are there. Others are forgotten.
    pub(crate) fn count(&self, executors: &[ExecutorInfo]) -> (usize, usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|id, _| executors.iter().any(|e| e.id == *id));
        let (mut free, mut busy) = (0, 0);
        for executor in executors {
            let told = all.get(&executor.id).copied().unwrap_or(executor.slots);
            let told = told.min(executor.slots);
            free += told;
            busy += executor.slots - told;
        }
        (free, busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executor(id: &str, slots: usize) -> ExecutorInfo {
        ExecutorInfo {
            id: id.into(),
            address: String::new(),
            slots,
        }
    }

    #[test]
    fn what_was_told_last_counts() {
        let slots = Slots::default();
        let both = [executor("a", 4), executor("b", 2)];
        assert_eq!(slots.count(&both), (6, 0));
        slots.told("a", 4, 3);
        slots.told("b", 0, 0);
        slots.told("gone", 8, 0);
        assert_eq!(slots.count(&both), (1, 5));
        slots.told("a", 2, 0);
        assert_eq!(slots.count(&both), (2, 4));
        assert_eq!(slots.count(&both[1..]), (0, 2));
        // It has come back since, and has not told yet.
        assert_eq!(slots.count(&both), (4, 2));
    }
}
