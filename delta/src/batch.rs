//! A batch of a table's files, with what their statistics say of a column read out once.
//!
//! Sound before sharp: bounds of other writers are widened where they are known to be cut
//! (timestamps to milliseconds, decimals through a double), and a float column never has an upper
//! bound, since NaN is greater than every number and no writer's statistics know of it. What a
//! predicate makes of it is decided in [`crate::prune`].

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::arrow::array::{ArrayRef, UInt64Array, new_empty_array};
use datafusion::arrow::compute::kernels::cast_utils::{Parser, parse_decimal};
use datafusion::arrow::datatypes::{DataType, Date32Type, Decimal128Type, TimeUnit};
use datafusion::common::ScalarValue;

use crate::file_statistics::{FileStatistics, record_count};
use crate::partition;
use crate::table::DataFile;

/// Files of one table at one version, which never change. Files may be shared with other batches.
#[derive(Debug, Default)]
pub struct FileBatch {
    files: Vec<Arc<DataFile>>,
    rows: OnceLock<UInt64Array>,
    read: Mutex<HashMap<ColumnKey, Result<Arc<ColumnBounds>, String>>>,
}

impl FileBatch {
    pub fn new(files: impl IntoIterator<Item = DataFile>) -> Self {
        Self::of(files.into_iter().map(Arc::new).collect())
    }

    pub(crate) fn of(files: Vec<Arc<DataFile>>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// The files; those that are shared are copied.
    pub fn into_files(self) -> impl Iterator<Item = DataFile> {
        self.files.into_iter().map(Arc::unwrap_or_clone)
    }

    /// Rows of each file, deleted ones among them; null where the statistics do not tell.
    pub(crate) fn rows(&self) -> &UInt64Array {
        self.rows.get_or_init(|| {
            let counted = self.iter().map(|f| record_count(f.stats.as_deref()));
            counted.collect()
        })
    }

    /// What the log says of columns in each file, in their order. An error, in words, stands for a
    /// column with a partition value that is none of its type.
    pub(crate) fn bounds(&self, columns: &[ColumnKey]) -> Vec<Result<Arc<ColumnBounds>, String>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |column: &&ColumnKey| !read.contains_key(*column);
        let (by_folder, by_statistics): (Vec<&ColumnKey>, Vec<&ColumnKey>) = columns
            .iter()
            .filter(is_new)
            .partition(|column| column.is_partition);
        let statistics = by_statistics.iter().copied().zip(
            // Each text is parsed once for all of them.
            self.statistics(&by_statistics),
        );
        let values = by_folder
            .into_iter()
            .map(|column| (column, self.partition_values(column)));
        for (column, found) in statistics.chain(values) {
            read.insert(column.clone(), found.map(Arc::new));
        }
        let known = |column| read.get(column).cloned();
        let missing = || Err("it was not read".to_string());
        columns
            .iter()
            .map(|c| known(c).unwrap_or_else(missing))
            .collect()
    }

    fn partition_values(&self, column: &ColumnKey) -> Result<ColumnBounds, String> {
        let mut values = Vec::with_capacity(self.len());
        for file in self.iter() {
            let text = file.partition_values.get(&column.physical_name);
            let text = text.and_then(Option::as_deref);
            values.push(partition::value(text, &column.data_type)?);
        }
        // Only a file whose value is null has to be looked into for the count of its rows.
        let null_counts = self.iter().zip(&values).map(|(file, value)| {
            let rows = || record_count(file.stats.as_deref());
            if value.is_null() { rows() } else { Some(0) }
        });
        let null_counts = null_counts.collect();
        let values = array(values, &column.data_type)?;
        Ok(ColumnBounds {
            min: values.clone(),
            max: values,
            null_counts,
        })
    }

    fn statistics(&self, columns: &[&ColumnKey]) -> Vec<Result<ColumnBounds, String>> {
        if columns.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = columns.iter().map(|c| c.physical_name.as_str()).collect();
        let parsed: Vec<Option<FileStatistics<'_>>> = self
            .iter()
            .map(|f| FileStatistics::of(f.stats.as_deref()?, &names))
            .collect();
        self.rows
            .get_or_init(|| parsed.iter().map(|s| s.as_ref()?.num_records).collect());
        let column = |(at, column): (usize, &&ColumnKey)| {
            let data_type = &column.data_type;
            let null = ScalarValue::try_from(data_type).map_err(|e| e.to_string())?;
            let side = |side: Side| {
                let bounds = parsed.iter().map(|stats| {
                    let stats = stats.as_ref()?;
                    let raw = match side {
                        Side::Min => stats.min_values[at]?,
                        Side::Max => stats.max_values[at]?,
                    };
                    Some(bound(raw.get(), data_type, side))
                });
                let bounds = bounds.map(|b| b.unwrap_or_else(|| null.clone()));
                array(bounds, data_type)
            };
            let nulls = parsed
                .iter()
                .map(|stats| stats.as_ref()?.null_count[at]?.get().parse::<u64>().ok());
            Ok(ColumnBounds {
                min: side(Side::Min)?,
                max: side(Side::Max)?,
                null_counts: nulls.collect(),
            })
        };
        columns.iter().enumerate().map(column).collect()
    }
}

fn array(
    values: impl IntoIterator<Item = ScalarValue>,
    data_type: &DataType,
) -> Result<ArrayRef, String> {
    let mut values = values.into_iter().peekable();
    match values.peek() {
        None => Ok(new_empty_array(data_type)),
        Some(_) => ScalarValue::iter_to_array(values).map_err(|e| e.to_string()),
    }
}

impl Deref for FileBatch {
    type Target = [Arc<DataFile>];

    fn deref(&self) -> &Self::Target {
        &self.files
    }
}

/// A column as a predicate asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ColumnKey {
    /// Its name in the log.
    pub physical_name: String,
    /// The type that its values are wanted in.
    pub data_type: DataType,
    pub is_partition: bool,
}

/// One element for each file of a batch.
#[derive(Debug)]
pub(crate) struct ColumnBounds {
    /// No value of the file is below; null where nothing is known.
    pub min: ArrayRef,
    /// No value of the file is above; null where nothing is known.
    pub max: ArrayRef,
    pub null_counts: UInt64Array,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Min,
    Max,
}

/// A bound from the log, widened where its writer may have cut it; null when it can't be trusted.
fn bound(raw: &str, data_type: &DataType, side: Side) -> ScalarValue {
    let null = || ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null);
    if raw == "null" {
        return null();
    }
    let text = || serde_json::from_str::<String>(raw).ok();
    let parsed = match data_type {
        DataType::Float32 | DataType::Float64 => {
            let number = match side {
                // NaN would be above it, and the statistics do not say whether there is one.
                Side::Max => return null(),
                Side::Min => raw.parse::<f64>().ok(),
            };
            // Both zeros are one value, and -0.0 is the lower one to arrow.
            let number = number.map(|v| if v == 0.0 { -0.0 } else { v });
            return match (number, data_type) {
                (Some(v), DataType::Float64) => ScalarValue::Float64(Some(v)),
                (Some(v), _) => ScalarValue::Float32(Some((v as f32).next_down())),
                (None, _) => null(),
            };
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = text().and_then(|t| timestamp_bound(&t, side));
            micros.map(|v| ScalarValue::TimestampMicrosecond(Some(v), zone.clone()))
        }
        DataType::Decimal128(precision, scale) => decimal_bound(raw, *precision, *scale)
            .map(|v| ScalarValue::Decimal128(Some(v), *precision, *scale)),
        DataType::Utf8 => text().map(|t| ScalarValue::Utf8(Some(t))),
        DataType::Utf8View => text().map(|t| ScalarValue::Utf8View(Some(t))),
        DataType::Date32 => text()
            .and_then(|t| Date32Type::parse(&t))
            .map(|days| ScalarValue::Date32(Some(days))),
        DataType::Boolean => raw.parse().ok().map(|v| ScalarValue::Boolean(Some(v))),
        DataType::Int8 => raw.parse().ok().map(|v| ScalarValue::Int8(Some(v))),
        DataType::Int16 => raw.parse().ok().map(|v| ScalarValue::Int16(Some(v))),
        DataType::Int32 => raw.parse().ok().map(|v| ScalarValue::Int32(Some(v))),
        DataType::Int64 => raw.parse().ok().map(|v| ScalarValue::Int64(Some(v))),
        _ => None,
    };
    parsed.unwrap_or_else(null)
}

/// Microseconds since the epoch. A text with no more than three digits of a second may have been
/// cut to milliseconds, towards either side for times before 1970.
fn timestamp_bound(text: &str, side: Side) -> Option<i64> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        .map(|t| t.naive_utc())
        .or_else(|_| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
        .ok()?;
    let micros = time.and_utc().timestamp_micros();
    let digits = text.split_once('.').map_or(0, |(_, rest)| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    Some(match side {
        _ if digits > 3 => micros,
        Side::Min => micros.saturating_sub(999),
        Side::Max => micros.saturating_add(999),
    })
}

/// An exact decimal. Writers that go through a double print up to 17 digits, of which only 15 can
/// be relied on; more digits than that were never a double.
fn decimal_bound(raw: &str, precision: u8, scale: i8) -> Option<i128> {
    let digits = raw.bytes().filter(u8::is_ascii_digit).count();
    if raw.contains(['e', 'E']) || digits == 16 || digits == 17 {
        return None;
    }
    parse_decimal::<Decimal128Type>(raw.trim_matches('"'), precision, scale).ok()
}
