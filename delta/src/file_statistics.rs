//! The `stats` of a file in the log, of which only the wanted columns are looked at.
//!
//! A table has many files and many columns, and a predicate asks for one or two of them; the others
//! are passed over without a copy. What a bound means is decided in [`crate::prune`].

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Statistics of one file for a list of columns, as JSON texts in the list's order.
#[derive(Debug, Default)]
pub(crate) struct FileStatistics<'a> {
    pub num_records: Option<u64>,
    pub min_values: Vec<Option<&'a RawValue>>,
    pub max_values: Vec<Option<&'a RawValue>>,
    pub null_count: Vec<Option<&'a RawValue>>,
}

impl<'a> FileStatistics<'a> {
    /// `None` when the text is no such statistics.
    pub(crate) fn of(text: &'a str, columns: &[&str]) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let found = Whole(columns).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(found)
    }
}

/// `numRecords` of a file's statistics.
pub fn record_count(stats: Option<&str>) -> Option<u64> {
    FileStatistics::of(stats?, &[])?.num_records
}

const PARTS: [&str; 4] = ["numRecords", "minValues", "maxValues", "nullCount"];

struct Whole<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = FileStatistics<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = FileStatistics<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("statistics of a file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let none = vec![None; self.0.len()];
        let mut found = FileStatistics {
            num_records: None,
            min_values: none.clone(),
            max_values: none.clone(),
            null_count: none,
        };
        while let Some(part) = map.next_key_seed(Name(&PARTS))? {
            match part {
                Some(0) => found.num_records = map.next_value()?,
                Some(1) => found.min_values = map.next_value_seed(Columns(self.0))?,
                Some(2) => found.max_values = map.next_value_seed(Columns(self.0))?,
                Some(3) => found.null_count = map.next_value_seed(Columns(self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// The values of the wanted names of an object.
struct Columns<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Columns<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by column")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.0.len()];
        while let Some(column) = map.next_key_seed(Name(self.0))? {
            match column.and_then(|at| found.get_mut(at)) {
                Some(value) => *value = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// A key: which of the names it is.
struct Name<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| *wanted == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"numRecords":7,"minValues":{"a":1,"a b\"c":{"x":[2]}},"maxValues":{"a":"z"},"nullCount":{"b":3},"tightBounds":true}"#;

    #[test]
    fn wanted_columns_are_found_whatever_their_names() {
        let found = FileStatistics::of(TEXT, &["a b\"c", "a", "gone"]).unwrap();
        let texts = |values: &[Option<&RawValue>]| -> Vec<Option<String>> {
            values
                .iter()
                .map(|value| value.map(|raw| raw.get().to_string()))
                .collect()
        };
        assert_eq!(found.num_records, Some(7));
        let mins = [Some(r#"{"x":[2]}"#.to_string()), Some("1".into()), None];
        assert_eq!(texts(&found.min_values), mins);
        assert_eq!(texts(&found.max_values), [None, Some("\"z\"".into()), None]);
        assert_eq!(texts(&found.null_count), [None, None, None]);
    }

    #[test]
    fn what_is_no_statistics_says_nothing() {
        for text in ["", "{", "[]", "null", "{} {}", r#"{"numRecords":"7"}"#] {
            assert!(FileStatistics::of(text, &["a"]).is_none(), "{text}");
        }
        assert_eq!(record_count(Some("{}")), None);
        assert_eq!(record_count(Some(TEXT)), Some(7));
    }
}
