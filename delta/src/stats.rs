//! Statistics of a file that is being written, as the log wants them.
//!
//! Bounds are exact: timestamps to the microsecond, decimals with all their digits. Long strings
//! are cut so that the bound stays a bound. A float column that holds a NaN has no bounds, since
//! JSON has no NaN and NaN is greater than any number. Rule: Delta protocol, "Per-file Statistics".

use std::collections::HashMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion_functions_aggregate_common::min_max::{max_batch, min_batch};

/// Characters of a string bound that are kept.
const STRING_CHARS: usize = 64;
/// How many columns have statistics when the table does not say.
const DEFAULT_COLUMNS: usize = 32;

/// Which of `columns` get statistics, by the table's properties `delta.dataSkippingStatsColumns`
/// and `delta.dataSkippingNumIndexedCols`.
pub fn indexed_columns(columns: &[String], properties: &HashMap<String, String>) -> Vec<String> {
    if let Some(list) = properties.get("delta.dataSkippingStatsColumns") {
        let wanted: Vec<String> = list
            .split(',')
            .map(|c| c.trim().trim_matches('`').to_lowercase())
            .collect();
        return columns
            .iter()
            .filter(|c| wanted.contains(&c.to_lowercase()))
            .cloned()
            .collect();
    }
    let limit = match properties
        .get("delta.dataSkippingNumIndexedCols")
        .map(|v| v.parse::<i64>())
    {
        Some(Ok(-1)) => usize::MAX,
        Some(Ok(n)) => usize::try_from(n).unwrap_or(DEFAULT_COLUMNS),
        _ => DEFAULT_COLUMNS,
    };
    columns.iter().take(limit).cloned().collect()
}

struct ColumnStats {
    name: String,
    index: usize,
    bounded: bool,
    min: Option<ScalarValue>,
    max: Option<ScalarValue>,
    nulls: u64,
    has_nan: bool,
}

/// Gathers the statistics of one file while its batches go by.
pub struct StatsCollector {
    rows: u64,
    columns: Vec<ColumnStats>,
}

impl StatsCollector {
    /// For the columns of `schema` whose names are in `indexed`; nested ones are left out.
    pub fn new(schema: &datafusion::arrow::datatypes::Schema, indexed: &[String]) -> Self {
        let columns = schema
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, f)| indexed.contains(f.name()) && !f.data_type().is_nested())
            .map(|(index, f)| ColumnStats {
                name: f.name().clone(),
                index,
                bounded: !matches!(f.data_type(), DataType::Boolean | DataType::Binary),
                min: None,
                max: None,
                nulls: 0,
                has_nan: false,
            })
            .collect();
        Self { rows: 0, columns }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        self.rows += batch.num_rows() as u64;
        for column in &mut self.columns {
            let values = batch.column(column.index);
            column.nulls += values.null_count() as u64;
            if !column.bounded || values.null_count() == values.len() {
                continue;
            }
            column.has_nan = column.has_nan || has_nan(values);
            if column.has_nan {
                continue;
            }
            merge(
                &mut column.min,
                min_batch(values)?,
                std::cmp::Ordering::Less,
            );
            merge(
                &mut column.max,
                max_batch(values)?,
                std::cmp::Ordering::Greater,
            );
        }
        Ok(())
    }

    /// The JSON text of the `stats` of an add action.
    pub fn finish(self) -> String {
        let (mut mins, mut maxs, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
        for column in &self.columns {
            let key = json_string(&column.name);
            nulls.push(format!("{key}:{}", column.nulls));
            if column.has_nan {
                continue;
            }
            if let Some(text) = column.min.as_ref().and_then(|v| bound_text(v, false)) {
                mins.push(format!("{key}:{text}"));
            }
            if let Some(text) = column.max.as_ref().and_then(|v| bound_text(v, true)) {
                maxs.push(format!("{key}:{text}"));
            }
        }
        format!(
            r#"{{"numRecords":{},"minValues":{{{}}},"maxValues":{{{}}},"nullCount":{{{}}}}}"#,
            self.rows,
            mins.join(","),
            maxs.join(","),
            nulls.join(",")
        )
    }
}

fn merge(kept: &mut Option<ScalarValue>, new: ScalarValue, wanted: std::cmp::Ordering) {
    if new.is_null() {
        return;
    }
    let replace = match kept.as_ref() {
        None => true,
        Some(old) => new.partial_cmp(old) == Some(wanted),
    };
    if replace {
        *kept = Some(new);
    }
}

fn has_nan(values: &ArrayRef) -> bool {
    match values.data_type() {
        DataType::Float32 => values
            .as_primitive::<Float32Type>()
            .iter()
            .flatten()
            .any(f32::is_nan),
        DataType::Float64 => values
            .as_primitive::<Float64Type>()
            .iter()
            .flatten()
            .any(f64::is_nan),
        _ => false,
    }
}

fn json_string(text: &str) -> String {
    serde_json::Value::String(text.to_string()).to_string()
}

/// A bound as JSON, or `None` when it can't be said.
fn bound_text(value: &ScalarValue, upper: bool) -> Option<String> {
    Some(match value {
        ScalarValue::Int8(Some(v)) => v.to_string(),
        ScalarValue::Int16(Some(v)) => v.to_string(),
        ScalarValue::Int32(Some(v)) => v.to_string(),
        ScalarValue::Int64(Some(v)) => v.to_string(),
        ScalarValue::Float32(Some(v)) if v.is_finite() => {
            serde_json::Number::from_f64(f64::from(*v))?.to_string()
        }
        ScalarValue::Float64(Some(v)) if v.is_finite() => {
            serde_json::Number::from_f64(*v)?.to_string()
        }
        ScalarValue::Decimal128(Some(v), _, scale) => decimal_text(*v, *scale),
        ScalarValue::Date32(Some(days)) => {
            let date = chrono::NaiveDate::from_ymd_opt(1970, 1, 1)?
                .checked_add_signed(chrono::TimeDelta::days(i64::from(*days)))?;
            json_string(&date.format("%Y-%m-%d").to_string())
        }
        ScalarValue::TimestampMicrosecond(Some(us), zone) => {
            let time = chrono::DateTime::from_timestamp_micros(*us)?;
            let zone = if zone.is_some() { "Z" } else { "" };
            json_string(&format!("{}{zone}", time.format("%Y-%m-%dT%H:%M:%S%.6f")))
        }
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            json_string(&string_bound(text, upper)?)
        }
        _ => return None,
    })
}

/// A prefix is a lower bound; an upper one needs a last character that is greater.
fn string_bound(text: &str, upper: bool) -> Option<String> {
    if text.chars().count() <= STRING_CHARS {
        return Some(text.to_string());
    }
    let mut kept: Vec<char> = text.chars().take(STRING_CHARS).collect();
    if !upper {
        return Some(kept.into_iter().collect());
    }
    while let Some(last) = kept.pop() {
        // The next scalar value; the gap of the surrogates is stepped over.
        let next = match u32::from(last) + 1 {
            0xD800 => char::from_u32(0xE000),
            code => char::from_u32(code),
        };
        if let Some(next) = next {
            kept.push(next);
            return Some(kept.into_iter().collect());
        }
    }
    None
}

fn decimal_text(value: i128, scale: i8) -> String {
    let Ok(scale) = usize::try_from(scale) else {
        return format!("{value}{}", "0".repeat(scale.unsigned_abs() as usize));
    };
    if scale == 0 {
        return value.to_string();
    }
    let digits = value.unsigned_abs().to_string();
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{}{whole}.{fraction}", if value < 0 { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray,
        TimestampMicrosecondArray,
    };

    use super::*;

    fn stats(columns: Vec<(&str, ArrayRef)>) -> serde_json::Value {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let names: Vec<String> = batch
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let mut collector = StatsCollector::new(&batch.schema(), &names);
        // Two halves, so that merging is part of what is tested.
        let half = batch.num_rows() / 2;
        collector.update(&batch.slice(0, half)).unwrap();
        collector
            .update(&batch.slice(half, batch.num_rows() - half))
            .unwrap();
        serde_json::from_str(&collector.finish()).unwrap()
    }

    #[test]
    fn bounds_are_exact() {
        let big = 123_456_789_012_345_678_901_234_567_890_120_001i128;
        let s = stats(vec![
            (
                "i",
                Arc::new(Int64Array::from(vec![
                    Some(3),
                    None,
                    Some(i64::MAX),
                    Some(-1),
                ])),
            ),
            (
                "t",
                Arc::new(
                    TimestampMicrosecondArray::from(vec![1_773_100_799_807_126, -1, 5, 6])
                        .with_timezone("UTC"),
                ),
            ),
            ("d", Arc::new(Date32Array::from(vec![-1, 0, 20_000, 7]))),
            (
                "m",
                Arc::new(
                    Decimal128Array::from(vec![5, big, -big, 0])
                        .with_precision_and_scale(38, 4)
                        .unwrap(),
                ),
            ),
        ]);
        assert_eq!(s["numRecords"], 4);
        assert_eq!(s["nullCount"]["i"], 1);
        assert_eq!(s["minValues"]["i"], -1);
        assert_eq!(s["maxValues"]["i"], i64::MAX);
        assert_eq!(s["minValues"]["t"], "1969-12-31T23:59:59.999999Z");
        assert_eq!(s["maxValues"]["t"], "2026-03-09T23:59:59.807126Z");
        assert_eq!(s["minValues"]["d"], "1969-12-31");
        assert_eq!(
            decimal_text(big, 4),
            "12345678901234567890123456789012.0001"
        );
        assert_eq!(decimal_text(-5, 3), "-0.005");
    }

    #[test]
    fn a_nan_takes_the_bounds_away() {
        let s = stats(vec![(
            "x",
            Arc::new(Float64Array::from(vec![1.0, f64::NAN, 50.0, 2.0])),
        )]);
        assert!(s["maxValues"].get("x").is_none() && s["minValues"].get("x").is_none());
        assert_eq!(s["nullCount"]["x"], 0);
    }

    #[test]
    fn a_cut_string_stays_a_bound() {
        let long = "z".repeat(100);
        let top = char::MAX.to_string().repeat(100);
        assert!(string_bound(&long, false).unwrap() < long);
        assert!(string_bound(&long, true).unwrap() > long);
        assert_eq!(string_bound(&top, true), None);
        let s = stats(vec![("s", Arc::new(StringArray::from(vec!["b", "a"])))]);
        assert_eq!(
            (s["minValues"]["s"].as_str(), s["maxValues"]["s"].as_str()),
            (Some("a"), Some("b"))
        );
    }
}
