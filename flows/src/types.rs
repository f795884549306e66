//! The type names of pipeline SQL as arrow types, in the form in which Delta stores them.

use std::sync::Arc;

use datafusion_common::arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use sqlparser::ast::{self, ArrayElemTypeDef, ExactNumberInfo};

/// The arrow type that a column declared with `data_type` has.
///
/// # Errors
/// The name of a type that such columns can't have.
pub fn arrow_type(data_type: &ast::DataType) -> Result<DataType, String> {
    use ast::DataType as T;
    Ok(match data_type {
        T::TinyInt(None) => DataType::Int8,
        T::SmallInt(None) => DataType::Int16,
        T::Int(None) | T::Integer(None) => DataType::Int32,
        T::BigInt(None) => DataType::Int64,
        T::Float(ExactNumberInfo::None) | T::Real | T::Float4 => DataType::Float32,
        T::Double(ExactNumberInfo::None) => DataType::Float64,
        T::Boolean => DataType::Boolean,
        T::String(None) | T::Text => DataType::Utf8,
        T::Varchar(_) | T::Char(_) => {
            return Err(format!(
                "{data_type} is not available, since its length would not be kept; use STRING"
            ));
        }
        T::Binary(None) => DataType::Binary,
        T::Date => DataType::Date32,
        T::Timestamp(None, _) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        T::TimestampNtz(None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        T::Decimal(info) | T::Dec(info) | T::Numeric(info) => decimal(info)?,
        T::Array(ArrayElemTypeDef::AngleBracket(element)) => {
            DataType::List(Arc::new(Field::new("element", arrow_type(element)?, true)))
        }
        T::Map(key, value) => {
            let entries = Fields::from(vec![
                Field::new("key", arrow_type(key)?, false),
                Field::new("value", arrow_type(value)?, true),
            ]);
            DataType::Map(
                Arc::new(Field::new("key_value", DataType::Struct(entries), false)),
                false,
            )
        }
        T::Struct(fields, _) => {
            let fields = fields
                .iter()
                .map(|f| {
                    let name = f.field_name.as_ref().ok_or("a struct field needs a name")?;
                    Ok(Field::new(
                        name.value.clone(),
                        arrow_type(&f.field_type)?,
                        true,
                    ))
                })
                .collect::<Result<Fields, String>>()?;
            DataType::Struct(fields)
        }
        T::Custom(name, arguments) if arguments.is_empty() => {
            match name.to_string().to_uppercase().as_str() {
                "BYTE" => DataType::Int8,
                "SHORT" => DataType::Int16,
                "LONG" => DataType::Int64,
                "TIMESTAMP_NTZ" => DataType::Timestamp(TimeUnit::Microsecond, None),
                "TIMESTAMP_LTZ" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
                _ => return Err(format!("there is no type {name}")),
            }
        }
        other => return Err(format!("type {other} is not supported")),
    })
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType, String> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(p) => (*p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p @ 1..=38), Ok(s)) if s >= 0 && i64::from(p) >= scale => {
            Ok(DataType::Decimal128(p, s))
        }
        _ => Err(format!(
            "DECIMAL({precision},{scale}) is out of range; a decimal has 1 to 38 digits"
        )),
    }
}

/// The type's name in pipeline SQL.
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "STRING".into(),
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => "BINARY".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP_NTZ".into(),
        DataType::Decimal128(p, s) => format!("DECIMAL({p},{s})"),
        DataType::Null => "VOID".into(),
        DataType::List(f) => format!("ARRAY<{}>", sql_name(f.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|f| format!("{}: {}", f.name(), sql_name(f.data_type())))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                format!(
                    "MAP<{}, {}>",
                    sql_name(kv[0].data_type()),
                    sql_name(kv[1].data_type())
                )
            }
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// How values of one type stand to a column of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The same type.
    Same,
    /// Every value of `from` is one of `to`.
    Widens,
    /// Every value of `to` is one of `from`, so some values of `from` may not fit.
    Narrows,
    /// Numbers of another kind, or types that can't be told apart safely.
    Differs,
}

/// Compares the type of a query's column with that of the table's.
pub fn fit(from: &DataType, to: &DataType) -> Fit {
    if same(from, to) {
        Fit::Same
    } else if widens(from, to) {
        Fit::Widens
    } else if widens(to, from) {
        Fit::Narrows
    } else {
        Fit::Differs
    }
}

fn same(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Struct(x), DataType::Struct(y)) => {
            x.len() == y.len()
                && x.iter().zip(y.iter()).all(|(f, g)| {
                    f.name().eq_ignore_ascii_case(g.name()) && same(f.data_type(), g.data_type())
                })
        }
        (DataType::List(f), DataType::List(g)) | (DataType::Map(f, _), DataType::Map(g, _)) => {
            match (f.data_type(), g.data_type()) {
                // Key and value of a map may have any names.
                (DataType::Struct(x), DataType::Struct(y))
                    if matches!(a, DataType::Map(..)) && x.len() == y.len() =>
                {
                    x.iter()
                        .zip(y.iter())
                        .all(|(f, g)| same(f.data_type(), g.data_type()))
                }
                (f, g) => same(f, g),
            }
        }
        _ => a == b,
    }
}

fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let digits = |t: &DataType| match t {
        T::Int8 => Some(3),
        T::Int16 => Some(5),
        T::Int32 => Some(10),
        T::Int64 => Some(19),
        _ => None,
    };
    match (from, to) {
        (T::Null, _) => true,
        (T::Float32, T::Float64) => true,
        (T::Date32, T::Timestamp(_, None)) => true,
        (T::Decimal128(p, s), T::Decimal128(q, t)) => {
            t >= s && i16::from(*q) - i16::from(*t) >= i16::from(*p) - i16::from(*s)
        }
        (from, T::Decimal128(q, t)) => {
            digits(from).is_some_and(|d| i16::from(*q) - i16::from(*t) >= d)
        }
        (from, to) => match (digits(from), digits(to)) {
            (Some(a), Some(b)) => a < b,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_loses_nothing_and_narrowing_is_its_other_side() {
        use DataType as T;
        for (from, to, wanted) in [
            (T::Int32, T::Int64, Fit::Widens),
            (T::Int64, T::Int32, Fit::Narrows),
            (T::Float32, T::Float64, Fit::Widens),
            (T::Int64, T::Float64, Fit::Differs),
            (T::Utf8, T::Int32, Fit::Differs),
            (
                T::Date32,
                T::Timestamp(TimeUnit::Microsecond, None),
                Fit::Widens,
            ),
            (T::Decimal128(10, 3), T::Decimal128(5, 2), Fit::Narrows),
            (T::Decimal128(10, 2), T::Decimal128(12, 4), Fit::Widens),
            (T::Decimal128(10, 2), T::Decimal128(11, 4), Fit::Differs),
            (T::Int32, T::Decimal128(12, 2), Fit::Widens),
            (T::Null, T::Utf8, Fit::Widens),
        ] {
            assert_eq!(fit(&from, &to), wanted, "{from} to {to}");
        }
    }
}
