//! Spark's types on top of Arrow's: their names, and which type two unlike values meet in.

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};

/// The greatest precision of a decimal.
pub(super) const MAX_PRECISION: u8 = 38;

/// TIMESTAMP: an instant.
pub(super) fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// TIMESTAMP_NTZ: a local time without a zone.
pub(super) fn local_time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// Text of any layout as plain text, instants of any unit or zone as TIMESTAMP; others unchanged.
pub(super) fn plain_text(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Timestamp(_, Some(_)) => instant(),
        DataType::Timestamp(_, None) => local_time(),
        DataType::Dictionary(_, value) => plain_text(value),
        other => other.clone(),
    }
}

/// ARRAY of a type.
pub(super) fn list_of(element: &DataType) -> DataType {
    DataType::List(Field::new_list_field(element.clone(), true).into())
}

/// MAP of two types.
pub(super) fn map_of(key: &DataType, value: &DataType) -> DataType {
    let fields = vec![
        Field::new("key", key.clone(), false),
        Field::new("value", value.clone(), true),
    ];
    let entries = Field::new("entries", DataType::Struct(fields.into()), false);
    DataType::Map(entries.into(), false)
}

/// The types of a map's keys and values.
pub(super) fn map_entry(map: &DataType) -> Option<(DataType, DataType)> {
    let DataType::Map(entries, _) = map else {
        return None;
    };
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => {
            Some((fields[0].data_type().clone(), fields[1].data_type().clone()))
        }
        _ => None,
    }
}

pub(super) fn is_integer(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64
    )
}

pub(super) fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

pub(super) fn is_number(data_type: &DataType) -> bool {
    is_integer(data_type) || is_float(data_type) || matches!(data_type, DataType::Decimal128(..))
}

pub(super) fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

/// Whether a value of the type is one thing, and has a text.
pub(super) fn is_atomic(data_type: &DataType) -> bool {
    is_number(data_type)
        || is_time(data_type)
        || matches!(
            data_type,
            DataType::Utf8 | DataType::Boolean | DataType::Binary | DataType::Null
        )
}

/// Spark's name of a type.
pub(super) fn name(data_type: &DataType) -> String {
    match plain_text(data_type) {
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Utf8 => "STRING".into(),
        DataType::Binary => "BINARY".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP_NTZ".into(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::List(field) => format!("ARRAY<{}>", name(field.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), name(field.data_type())))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        DataType::Map(..) => match map_entry(data_type) {
            Some((key, value)) => format!("MAP<{}, {}>", name(&key), name(&value)),
            None => data_type.to_string(),
        },
        DataType::Null => "VOID".into(),
        DataType::Duration(_) => "INTERVAL DAY TO SECOND".into(),
        DataType::Interval(_) => "INTERVAL YEAR TO MONTH".into(),
        other => other.to_string(),
    }
}

/// The type of a simple name such as `decimal(10,2)` or `array<int>`.
pub(super) fn parse(name: &str) -> Option<DataType> {
    super::ddl::parse_type(name)
}

/// The type that one word names.
pub(super) fn scalar(name: &str) -> Option<DataType> {
    Some(match name {
        "tinyint" => DataType::Int8,
        "smallint" => DataType::Int16,
        "int" => DataType::Int32,
        "bigint" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => instant(),
        "timestamp_ntz" => local_time(),
        "void" => DataType::Null,
        _ => return None,
    })
}

/// The name that `typeof` gives.
pub(super) fn simple_string(data_type: &DataType) -> String {
    match data_type {
        DataType::List(field) => format!("array<{}>", simple_string(field.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}:{}", field.name(), simple_string(field.data_type())))
                .collect();
            format!("struct<{}>", fields.join(","))
        }
        DataType::Map(..) => match map_entry(data_type) {
            Some((key, value)) => format!("map<{},{}>", simple_string(&key), simple_string(&value)),
            None => data_type.to_string(),
        },
        other => name(other).to_lowercase(),
    }
}

/// The same with the names of fields quoted, as `parse` reads it.
pub(super) fn simple_name(data_type: &DataType) -> String {
    match data_type {
        DataType::List(field) => format!("array<{}>", simple_name(field.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| {
                    let name = field.name().replace('`', "``");
                    format!("`{name}`:{}", simple_name(field.data_type()))
                })
                .collect();
            format!("struct<{}>", fields.join(","))
        }
        DataType::Map(..) => match map_entry(data_type) {
            Some((key, value)) => format!("map<{},{}>", simple_name(&key), simple_name(&value)),
            None => data_type.to_string(),
        },
        other => name(other).to_lowercase(),
    }
}

/// The decimal that holds every value of an integer type.
pub(super) fn as_decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Int8 => Some((3, 0)),
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((20, 0)),
        DataType::Decimal128(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

/// A decimal type cut to what fits: digits before the point go before those behind it, of which
/// up to six are kept.
pub(super) fn adjusted_decimal(precision: i32, scale: i32) -> DataType {
    let most = i32::from(MAX_PRECISION);
    if precision <= most {
        return DataType::Decimal128(precision as u8, scale as i8);
    }
    let whole = precision - scale;
    let scale = (most - whole).max(scale.min(6));
    DataType::Decimal128(MAX_PRECISION, scale as i8)
}

/// The decimal that values of both meet in. Beyond the greatest precision digits behind the point
/// give way to those before it.
pub(super) fn wider_decimal(left: (u8, i8), right: (u8, i8)) -> DataType {
    let scale = i32::from(left.1.max(right.1));
    let whole =
        (i32::from(left.0) - i32::from(left.1)).max(i32::from(right.0) - i32::from(right.1));
    let most = i32::from(MAX_PRECISION);
    let precision = (whole + scale).min(most);
    let scale = scale.min((most - whole).max(0));
    DataType::Decimal128(precision as u8, scale as i8)
}

/// The type that values of two types meet in without regard to text: for set operations, CASE and
/// the like also `common` is asked.
fn wider(left: &DataType, right: &DataType) -> Option<DataType> {
    if left == right {
        return Some(left.clone());
    }
    match (left, right) {
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (left, right) if is_integer(left) && is_integer(right) => {
            Some(if as_decimal(left) > as_decimal(right) {
                left.clone()
            } else {
                right.clone()
            })
        }
        (left, right) if is_number(left) && is_number(right) => {
            match (as_decimal(left), as_decimal(right)) {
                (Some(left), Some(right)) => Some(wider_decimal(left, right)),
                (None, None) => Some(DataType::Float64),
                // A float next to an exact number is not exact any more: both become DOUBLE.
                _ => Some(DataType::Float64),
            }
        }
        (DataType::Date32, time @ DataType::Timestamp(..))
        | (time @ DataType::Timestamp(..), DataType::Date32) => Some(time.clone()),
        (DataType::Timestamp(..), DataType::Timestamp(..)) => Some(instant()),
        _ => None,
    }
}

/// The type in which values of two types are compared or joined in one column, by the rules of
/// ANSI mode; `None` if there is none.
pub(super) fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    let (left, right) = (plain_text(left), plain_text(right));
    if let Some(found) = wider(&left, &right) {
        return Some(found);
    }
    match (&left, &right) {
        (DataType::List(one), DataType::List(other)) => {
            return Some(list_of(&common(one.data_type(), other.data_type())?));
        }
        (DataType::Map(..), DataType::Map(..)) => {
            let (one, other) = (map_entry(&left)?, map_entry(&right)?);
            return Some(map_of(
                &common(&one.0, &other.0)?,
                &common(&one.1, &other.1)?,
            ));
        }
        (DataType::Struct(one), DataType::Struct(other)) if one.len() == other.len() => {
            let fields: Option<Vec<Field>> = one
                .iter()
                .zip(other)
                .map(|(one, other)| {
                    let data_type = common(one.data_type(), other.data_type())?;
                    let same = one.name() == other.name();
                    same.then(|| Field::new(one.name(), data_type, true))
                })
                .collect();
            return Some(DataType::Struct(fields?.into()));
        }
        _ => {}
    }
    match (&left, &right) {
        (DataType::Utf8, other) | (other, DataType::Utf8) => match other {
            integer if is_integer(integer) => Some(DataType::Int64),
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => {
                Some(DataType::Float64)
            }
            DataType::Date32 | DataType::Timestamp(..) | DataType::Boolean | DataType::Binary => {
                Some(other.clone())
            }
            _ => None,
        },
        _ => None,
    }
}
