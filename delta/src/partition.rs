//! Partition values: as text in the log, as typed values, and as folder names.
//!
//! Rules: Delta protocol, "Partition Value Serialization" (an empty string means null) and "Add
//! File and Remove File" (paths in the log are URIs). Folder names are for people only, readers
//! take the value from the log; every byte that could be read differently by anybody is escaped.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use datafusion::common::ScalarValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// What a URI path keeps; `%` is not among it, so that a folder named `a%2Fb` becomes `a%252Fb`.
const URI_KEPT: &AsciiSet = &KEPT.remove(b'/').remove(b'=');

/// The folder name used for null by every writer of hive-style folders.
pub const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// `column=value`, escaped so that it is one path segment on every store.
pub fn folder(column: &str, value: Option<&str>) -> String {
    let value = match value {
        None => NULL_FOLDER.to_string(),
        Some(value) => utf8_percent_encode(value, KEPT).to_string(),
    };
    format!("{}={value}", utf8_percent_encode(column, KEPT))
}

/// The path of an object as the log wants it: a URI, encoded once.
pub fn path_in_log(path: &str) -> String {
    utf8_percent_encode(path, URI_KEPT).to_string()
}

/// Text of row `row` of a partition column; `None` for null.
///
/// # Errors
/// A type that can't partition a table, and the empty string: to the protocol it is null, so a row
/// that is written with it could never be found again.
pub fn value_text(column: &ArrayRef, row: usize) -> Result<Option<String>, String> {
    if column.is_null(row) {
        return Ok(None);
    }
    let one = column.slice(row, 1);
    let text = match one.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let value = one
                .as_primitive::<datafusion::arrow::datatypes::TimestampMicrosecondType>()
                .value(0);
            timestamp_text(value, zone.is_some())?
        }
        DataType::Boolean => one.as_boolean().value(0).to_string(),
        DataType::Binary => {
            // The protocol writes binary as text with one character per byte.
            one.as_binary::<i32>()
                .value(0)
                .iter()
                .map(|b| char::from(*b))
                .collect()
        }
        data_type if data_type.is_nested() => {
            return Err(format!(
                "a column of type {data_type} cannot partition a table"
            ));
        }
        _ => {
            let text = cast(&one, &DataType::Utf8).map_err(|e| e.to_string())?;
            text.as_string::<i32>().value(0).to_string()
        }
    };
    if text.is_empty() {
        return Err(
            "the empty string can't be a partition value: a Delta table reads it as null".into(),
        );
    }
    Ok(Some(text))
}

fn timestamp_text(micros: i64, zoned: bool) -> Result<String, String> {
    let time = chrono::DateTime::from_timestamp_micros(micros)
        .ok_or_else(|| format!("timestamp {micros} µs is out of range"))?;
    Ok(if zoned {
        time.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    } else {
        time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
    })
}

/// The typed value of a partition value in the log.
pub fn value(text: Option<&str>, data_type: &DataType) -> Result<ScalarValue, String> {
    let Some(text) = text.filter(|t| !t.is_empty()) else {
        return ScalarValue::try_from(data_type).map_err(|e| e.to_string());
    };
    match data_type {
        DataType::Binary => Ok(ScalarValue::Binary(Some(
            text.chars().map(|c| c as u32 as u8).collect(),
        ))),
        DataType::Utf8 => Ok(ScalarValue::Utf8(Some(text.to_string()))),
        // The most usual ones by themselves: a table may have very many files.
        DataType::Date32 if let Some(days) = Date32Type::parse(text) => {
            Ok(ScalarValue::Date32(Some(days)))
        }
        _ => {
            let value = ScalarValue::try_from_string(text.to_string(), data_type)
                .map_err(|e| format!("partition value `{text}` is no {data_type}: {e}"))?;
            Ok(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        BinaryArray, Date32Array, StringArray, TimestampMicrosecondArray,
    };

    use super::*;

    #[test]
    fn every_reserved_byte_of_a_folder_is_escaped_and_escaped_again_in_the_log() {
        for (value, name, log) in [
            ("a b", "p=a%20b", "p=a%2520b"),
            ("a/b", "p=a%2Fb", "p=a%252Fb"),
            ("a%2Fb", "p=a%252Fb", "p=a%25252Fb"),
            ("50%", "p=50%25", "p=50%2525"),
            ("x=y", "p=x%3Dy", "p=x%253Dy"),
            ("k:v", "p=k%3Av", "p=k%253Av"),
            ("é", "p=%C3%A9", "p=%25C3%25A9"),
            (".", "p=.", "p=."),
        ] {
            assert_eq!(folder("p", Some(value)), name);
            assert_eq!(path_in_log(name), log);
        }
        assert_eq!(folder("p", None), "p=__HIVE_DEFAULT_PARTITION__");
    }

    #[test]
    fn values_survive_the_way_through_the_log() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![Some("a/b"), None, Some("é")])),
            Arc::new(Date32Array::from(vec![Some(20_000), None, Some(-1)])),
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(1), None, Some(-1)]).with_timezone("UTC"),
            ),
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(1_000_001),
                None,
                Some(0),
            ])),
            Arc::new(BinaryArray::from(vec![
                Some(&[0u8, 255][..]),
                None,
                Some(&[1u8][..]),
            ])),
        ];
        for column in columns {
            for row in 0..3 {
                let text = value_text(&column, row).unwrap();
                let back = value(text.as_deref(), column.data_type()).unwrap();
                assert_eq!(
                    back,
                    ScalarValue::try_from_array(&column, row).unwrap(),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn an_empty_string_is_refused_since_it_would_come_back_as_null() {
        let column: ArrayRef = Arc::new(StringArray::from(vec!["", "a"]));
        assert!(value_text(&column, 0).unwrap_err().contains("empty string"));
        assert_eq!(value_text(&column, 1).unwrap().as_deref(), Some("a"));
        assert!(value(Some(""), &DataType::Utf8).unwrap().is_null());
    }
}
