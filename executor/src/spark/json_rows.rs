//! `from_json` and `to_json`: values of any type out of JSON texts and into them.
//!
//! A document that is not well formed makes a row of nulls, a value that does not fit its column a
//! null, as in Spark's permissive mode.

use std::sync::Arc;

use datafusion::arrow::array::Date32Array;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, MapArray, StringArray,
    StructArray, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use super::cast::{format_decimal, format_float, parse_decimal, zone_of};
use super::encode::{bytes_of, from_base64, to_base64};
use super::json::{self, Json};
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::time::{self, MICROS_PER_SECOND, Zone};
use super::{ddl, types};

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "from_json",
        params: Params::Fixed {
            least: 3,
            all: &[Param::Text, Param::Text, Param::Text],
        },
        returns: Returns::Custom(|_, literals| {
            let schema = literals
                .get(1)
                .copied()
                .flatten()
                .and_then(|value| value.try_as_str().flatten());
            match schema.and_then(ddl::parse) {
                Some(found @ (DataType::Struct(_) | DataType::List(_) | DataType::Map(..))) => {
                    Ok(found)
                }
                _ => plan_err!(
                    "INVALID_SCHEMA: the schema of from_json is a string literal such as 'a INT, b ARRAY<STRING>'"
                ),
            }
        }),
        evaluate: from_json,
    },
    Definition {
        name: "to_json",
        params: Params::Custom(|given| match given {
            [
                DataType::Struct(_) | DataType::List(_) | DataType::Map(..),
                _,
            ] => Ok(vec![given[0].clone(), DataType::Utf8]),
            _ => plan_err!("DATATYPE_MISMATCH: to_json takes a STRUCT, an ARRAY or a MAP"),
        }),
        returns: Returns::Of(Param::Text),
        evaluate: to_json,
    },
];

fn from_json(call: &Call) -> Result<ArrayRef> {
    let documents = call.text(0)?;
    let zone = zone_of(&call.args[2])?;
    let parsed: Vec<Option<Json>> = documents
        .iter()
        .map(|document| {
            let document = document.filter(|text| !text.trim().is_empty())?;
            // What is no document is a row of nulls.
            let found = json::parse_lenient(document);
            match call.return_type {
                DataType::Struct(_) => match found {
                    Some(object @ Json::Object(_)) => Some(object),
                    _ => Some(Json::Object(vec![])),
                },
                // One object is an array of one.
                DataType::List(field) if matches!(field.data_type(), DataType::Struct(_)) => {
                    match found {
                        Some(object @ Json::Object(_)) => Some(Json::Array(vec![object])),
                        other => other,
                    }
                }
                _ => found,
            }
        })
        .collect();
    let values: Vec<Option<&Json>> = parsed.iter().map(Option::as_ref).collect();
    build(&values, call.return_type, zone)
}

/// One column of JSON values.
fn build(values: &[Option<&Json>], to: &DataType, zone: Zone) -> Result<ArrayRef> {
    fn whole<T: TryFrom<i64>>(value: &Json) -> Option<T> {
        match value {
            Json::Number(text) => T::try_from(text.parse::<i64>().ok()?).ok(),
            _ => None,
        }
    }
    fn double(value: &Json) -> Option<f64> {
        match value {
            Json::Number(text) => text.parse().ok(),
            Json::Text(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" | "+Infinity" | "INF" | "+INF" => Some(f64::INFINITY),
                "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        }
    }
    let each = || values.iter().copied();
    Ok(match to {
        DataType::Boolean => {
            let values = each().map(|v| match v? {
                Json::Boolean(value) => Some(*value),
                _ => None,
            });
            Arc::new(values.collect::<BooleanArray>())
        }
        DataType::Int8 => Arc::new(each().map(|v| whole(v?)).collect::<Int8Array>()),
        DataType::Int16 => Arc::new(each().map(|v| whole(v?)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(each().map(|v| whole(v?)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(each().map(|v| whole(v?)).collect::<Int64Array>()),
        DataType::Float32 => {
            let values = each().map(|v| match v? {
                Json::Number(text) => text.parse::<f32>().ok(),
                other => double(other).map(|value| value as f32),
            });
            Arc::new(values.collect::<Float32Array>())
        }
        DataType::Float64 => Arc::new(each().map(|v| double(v?)).collect::<Float64Array>()),
        DataType::Decimal128(precision, scale) => {
            let values = each().map(|v| match v? {
                Json::Number(text) | Json::Text(text) => {
                    parse_decimal(text)?.rescaled(*precision, *scale)
                }
                _ => None,
            });
            let values: Decimal128Array = values.collect();
            Arc::new(values.with_precision_and_scale(*precision, *scale)?)
        }
        DataType::Utf8 => Arc::new(each().map(|v| v?.plain()).collect::<StringArray>()),
        DataType::Binary => {
            let mut bytes = BinaryBuilder::new();
            for value in each() {
                bytes.append_option(match value {
                    Some(Json::Text(text)) => from_base64(text),
                    _ => None,
                });
            }
            Arc::new(bytes.finish())
        }
        DataType::Date32 => {
            let values = each().map(|v| match v? {
                Json::Text(text) => i32::try_from(time::parse_date(text)?).ok(),
                _ => None,
            });
            Arc::new(values.collect::<Date32Array>())
        }
        DataType::Timestamp(_, of_zone) => {
            let zoned = of_zone.is_some();
            let values = each().map(|v| match v? {
                Json::Text(text) if zoned => time::parse_timestamp(text)?.instant(zone),
                Json::Text(text) => time::parse_timestamp(text)?.local(),
                Json::Number(text) if zoned => {
                    text.parse::<i64>().ok()?.checked_mul(MICROS_PER_SECOND)
                }
                _ => None,
            });
            let values: TimestampMicrosecondArray = values.collect();
            match zoned {
                true => Arc::new(values.with_timezone("UTC")),
                false => Arc::new(values),
            }
        }
        DataType::List(field) => {
            let (mut items, mut offsets, mut valid) = (vec![], vec![0_i32], vec![]);
            for value in values {
                if let Some(Json::Array(found)) = value {
                    items.extend(found.iter().map(Some));
                    valid.push(true);
                } else {
                    valid.push(false);
                }
                offsets.push(items.len() as i32);
            }
            let built = build(&items, field.data_type(), zone)?;
            // One element that does not fit makes the whole array null.
            for (row, valid) in valid.iter_mut().enumerate() {
                let slots = offsets[row] as usize..offsets[row + 1] as usize;
                *valid &= !slots.into_iter().any(|at| unfit(items[at], &built, at));
            }
            Arc::new(ListArray::try_new(
                Arc::clone(field),
                OffsetBuffer::new(offsets.into()),
                built,
                Some(NullBuffer::from(valid)),
            )?)
        }
        DataType::Struct(fields) => {
            let valid: Vec<bool> = each().map(|v| matches!(v, Some(Json::Object(_)))).collect();
            let columns = fields
                .iter()
                .map(|field| {
                    let inner: Vec<Option<&Json>> =
                        each().map(|v| v?.last_field(field.name())).collect();
                    build(&inner, field.data_type(), zone)
                })
                .collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                Some(NullBuffer::from(valid)),
                values.len(),
            )?)
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return plan_err!("a map was planned");
            };
            if fields[0].data_type() != &DataType::Utf8 {
                return plan_err!(
                    "INVALID_JSON_SCHEMA_MAP_TYPE: the keys of a map in JSON are STRING"
                );
            }
            let (mut keys, mut items) = (vec![], vec![]);
            let (mut offsets, mut valid) = (vec![0_i32], vec![]);
            for value in values {
                if let Some(Json::Object(found)) = value {
                    for (key, item) in found {
                        keys.push(key.as_str());
                        items.push(Some(item));
                    }
                    valid.push(true);
                } else {
                    valid.push(false);
                }
                offsets.push(keys.len() as i32);
            }
            let built = build(&items, fields[1].data_type(), zone)?;
            for (row, valid) in valid.iter_mut().enumerate() {
                let slots = offsets[row] as usize..offsets[row + 1] as usize;
                *valid &= !slots.into_iter().any(|at| unfit(items[at], &built, at));
            }
            let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(keys)), built];
            Arc::new(MapArray::try_new(
                Arc::clone(entries),
                OffsetBuffer::new(offsets.into()),
                StructArray::try_new(fields.clone(), columns, None)?,
                Some(NullBuffer::from(valid)),
                false,
            )?)
        }
        DataType::Null => new_null_array(to, values.len()),
        other => {
            return exec_err!("from_json to {} is not available", types::name(other));
        }
    })
}

/// Whether a value was there that has become null.
fn unfit(value: Option<&Json>, built: &ArrayRef, at: usize) -> bool {
    built.is_null(at) && !matches!(value, None | Some(Json::Null))
}

fn to_json(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[1])?;
    let value = &call.args[0];
    let texts = (0..call.rows).map(|row| match value.is_valid(row) {
        true => Ok(Some(to_value(value, row, zone)?.to_text())),
        false => Ok(None),
    });
    Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
}

/// A value as JSON; fields of structs that are null are left out.
fn to_value(array: &ArrayRef, row: usize, zone: Zone) -> Result<Json> {
    if array.is_null(row) {
        return Ok(Json::Null);
    }
    let float = |value: f64, text: String| match value.is_finite() {
        true => Json::Number(text),
        false => Json::Text(text),
    };
    Ok(match array.data_type() {
        DataType::Null => Json::Null,
        DataType::Boolean => Json::Boolean(array.as_boolean().value(row)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Json::Number(ScalarValue::try_from_array(array, row)?.to_string())
        }
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            float(value.into(), format_float(value, value.abs().into()))
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            float(value, format_float(value, value.abs()))
        }
        DataType::Decimal128(_, scale) => Json::Exact(format_decimal(
            array.as_primitive::<Decimal128Type>().value(row),
            *scale,
        )),
        DataType::Utf8 => Json::Text(array.as_string::<i32>().value(row).to_string()),
        DataType::Binary => Json::Text(to_base64(bytes_of(array, row).unwrap_or_default())),
        DataType::Date32 => Json::Text(time::format_date(
            array.as_primitive::<Date32Type>().value(row).into(),
        )),
        DataType::Timestamp(_, of_zone) => {
            let value = array.as_primitive::<TimestampMicrosecondType>().value(row);
            Json::Text(iso(value, of_zone.is_some().then_some(zone)))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|row| to_value(&items, row, zone));
            Json::Array(items.collect::<Result<_>>()?)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut found = vec![];
            for (field, column) in fields.iter().zip(columns) {
                if column.is_valid(row) && column.data_type() != &DataType::Null {
                    found.push((field.name().clone(), to_value(column, row, zone)?));
                }
            }
            Json::Object(found)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, items) = (entries.column(0), entries.column(1));
            let mut found = vec![];
            for at in 0..entries.len() {
                let key = match to_value(keys, at, zone)? {
                    Json::Text(text) => text,
                    other => other.to_text(),
                };
                found.push((key, to_value(items, at, zone)?));
            }
            Json::Object(found)
        }
        other => return exec_err!("to_json of {} is not available", types::name(other)),
    })
}

/// A time to the millisecond, with the distance from UTC if it is an instant.
fn iso(value: i64, zone: Option<Zone>) -> String {
    let local = zone.and_then(|zone| zone.to_local(value)).unwrap_or(value);
    let whole = local.div_euclid(MICROS_PER_SECOND) * MICROS_PER_SECOND;
    let millis = local.rem_euclid(MICROS_PER_SECOND) / 1000;
    let text = time::format_local(whole).replacen(' ', "T", 1);
    let offset = match zone {
        None => String::new(),
        Some(_) => {
            let seconds = (local - value) / MICROS_PER_SECOND;
            let minutes = seconds.abs() / 60;
            match seconds {
                0 => "Z".to_string(),
                _ if seconds % 60 != 0 => format!(
                    "{}{:02}:{:02}:{:02}",
                    if seconds < 0 { '-' } else { '+' },
                    minutes / 60,
                    minutes % 60,
                    seconds.abs() % 60
                ),
                _ => format!(
                    "{}{:02}:{:02}",
                    if seconds < 0 { '-' } else { '+' },
                    minutes / 60,
                    minutes % 60
                ),
            }
        }
    };
    format!("{text}.{millis:03}{offset}")
}
