//! Casts by Spark's ANSI rules: `spark_cast(value, 'type', zone)` fails on a value that does not
//! fit, `spark_try_cast` gives null for it.
//!
//! A cast that cannot fail and means the same in Arrow is left to Arrow by `native`, so that the
//! optimizer can see through it.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray, StringArray,
    StringBuilder, new_null_array,
};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, i256,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, plan_err};

use super::cast_nested;
use super::operand;
use super::scalar::{Call, Definition, Params, Returns};
use super::short::{self, Rescale};
use super::short_float;
use super::time::{self, MICROS_PER_DAY, MICROS_PER_SECOND, Zone};
use super::types::{self, instant, local_time};

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "spark_cast",
        params: Params::Custom(coerce),
        returns: Returns::Custom(target),
        evaluate: |call| evaluate(call, Failure::Error),
    },
    Definition {
        name: "spark_try_cast",
        params: Params::Custom(coerce),
        returns: Returns::Custom(target),
        evaluate: |call| evaluate(call, Failure::Null),
    },
];

/// What becomes of a value that can not be cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Error,
    Null,
}

/// Whether Arrow's cast means the same as Spark's and can not fail.
pub(super) fn native(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, Null};
    let plain = types::plain_text(from);
    if plain == *to {
        // Instants of another unit may be cut; those of microseconds only change their zone.
        return !matches!(from, DataType::Timestamp(unit, _) if *unit != datafusion::arrow::datatypes::TimeUnit::Microsecond);
    }
    match (&plain, to) {
        (Null, _) => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (Int8 | Int16 | Int32 | Int64, Float32 | Float64) | (Float32, Float64) => true,
        (Boolean, Int8 | Int16 | Int32 | Int64) => true,
        (Int8 | Int16 | Int32 | Int64, Decimal128(precision, scale)) => types::as_decimal(&plain)
            .is_some_and(|(digits, _)| i32::from(*precision) - i32::from(*scale) >= digits.into()),
        (Decimal128(from_precision, from_scale), Decimal128(precision, scale)) => {
            let whole = i32::from(*from_precision) - i32::from(*from_scale);
            scale >= from_scale && i32::from(*precision) - i32::from(*scale) >= whole
        }
        _ => false,
    }
}

/// Whether Spark has a cast from one type to the other.
pub(super) fn exists(from: &DataType, to: &DataType) -> bool {
    let from = types::plain_text(from);
    if from == *to || from == DataType::Null {
        return true;
    }
    let numeric = |t: &DataType| types::is_number(t);
    match (&from, to) {
        (DataType::Utf8, to) => types::is_atomic(to),
        (from, DataType::Utf8) => types::is_atomic(from) || cast_nested::exists(from, to),
        (from, to) if numeric(from) && numeric(to) => true,
        (DataType::Boolean, to) if numeric(to) => true,
        (from, DataType::Boolean) if numeric(from) => true,
        (from, to) if types::is_time(from) && types::is_time(to) => true,
        (DataType::Timestamp(_, Some(_)), to) if numeric(to) => true,
        (from, DataType::Timestamp(_, Some(_))) if numeric(from) => true,
        (from, to) => cast_nested::exists(from, to),
    }
}

fn coerce(given: &[DataType]) -> Result<Vec<DataType>> {
    Ok(given.iter().map(types::plain_text).collect())
}

fn target(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let name = literals
        .get(1)
        .copied()
        .flatten()
        .and_then(|value| value.try_as_str().flatten());
    let Some(to) = name.and_then(types::parse) else {
        return plan_err!("a cast to a type that is not known");
    };
    match types.first() {
        Some(from) if !exists(from, &to) => plan_err!(
            "DATATYPE_MISMATCH: cannot cast {} to {}",
            types::name(from),
            types::name(&to)
        ),
        _ => Ok(to),
    }
}

fn evaluate(call: &Call, failure: Failure) -> Result<ArrayRef> {
    let [value, _, rest @ ..] = call.args else {
        return exec_err!("a cast without a type");
    };
    let zone = match rest.first() {
        Some(zone) => zone_of(zone)?,
        None => Zone::Fixed(0),
    };
    cast(
        value,
        call.return_type,
        Target {
            zone,
            failure,
            column: call.name(0),
        },
    )
}

/// The zone that a constant argument names.
pub(super) fn zone_of(argument: &ArrayRef) -> Result<Zone> {
    match argument
        .as_string_opt::<i32>()
        .filter(|names| !names.is_empty() && names.is_valid(0))
    {
        Some(names) => Zone::parse(names.value(0)),
        None => Ok(Zone::Fixed(0)),
    }
}

/// Where and how a cast is done.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub zone: Zone,
    pub failure: Failure,
    /// What the value is called, for messages.
    pub column: &'a str,
}

/// Casts an array.
pub(super) fn cast(value: &ArrayRef, to: &DataType, target: Target) -> Result<ArrayRef> {
    let from = value.data_type();
    if from == to {
        return Ok(Arc::clone(value));
    }
    if from == &DataType::Null {
        return Ok(new_null_array(to, value.len()));
    }
    if native(from, to) {
        return Ok(arrow_cast(value, to)?);
    }
    let cells = Cells { value, to, target };
    match from {
        DataType::Utf8 => cells.text_values(),
        DataType::Boolean => cells.boolean_values(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            cells.integer_values()
        }
        DataType::Float32 | DataType::Float64 => cells.float_values(),
        DataType::Decimal128(_, scale) => cells.decimal_values(*scale),
        DataType::Date32 => cells.date_values(),
        DataType::Timestamp(_, Some(_)) => cells.instant_values(),
        DataType::Timestamp(_, None) => cells.local_values(),
        DataType::Binary if to == &DataType::Utf8 => Ok(arrow_cast(value, to)?),
        DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => {
            cast_nested::cast(value, to, target)
        }
        _ => cells.unsupported(),
    }
}

struct Cells<'a> {
    value: &'a ArrayRef,
    to: &'a DataType,
    target: Target<'a>,
}

impl Cells<'_> {
    fn unsupported(&self) -> Result<ArrayRef> {
        exec_err!(
            "cannot cast {} to {}",
            types::name(self.value.data_type()),
            types::name(self.to)
        )
    }

    fn failed(&self, shown: &str) -> DataFusionError {
        let code = match self.value.data_type() {
            DataType::Utf8 => "CAST_INVALID_INPUT",
            _ => "CAST_OVERFLOW",
        };
        let column = match self.target.column {
            "" | "lit" => String::new(),
            name => format!(" (the value of {name})"),
        };
        let to = types::name(self.to);
        DataFusionError::Execution(format!("{code}: cannot cast '{shown}' to {to}{column}"))
    }

    /// Builds the result value by value; a `None` of `convert` is a value that does not fit.
    fn map<T: ArrowPrimitiveType, V>(
        &self,
        values: impl Iterator<Item = Option<V>>,
        convert: impl Fn(&V) -> Option<T::Native>,
        show: impl Fn(&V) -> String,
    ) -> Result<PrimitiveArray<T>> {
        values
            .map(|value| match value {
                None => Ok(None),
                Some(value) => match convert(&value) {
                    None if self.target.failure == Failure::Error => {
                        Err(self.failed(&show(&value)))
                    }
                    converted => Ok(converted),
                },
            })
            .collect()
    }

    /// The same for an array of numbers.
    fn each<F: ArrowPrimitiveType, T: ArrowPrimitiveType>(
        &self,
        values: &PrimitiveArray<F>,
        convert: impl Fn(F::Native) -> Option<T::Native>,
        show: impl Fn(F::Native) -> String,
    ) -> Result<PrimitiveArray<T>> {
        match self.target.failure {
            Failure::Null => Ok(values.unary_opt(convert)),
            Failure::Error => values
                .try_unary(|value| convert(value).ok_or(value))
                .map_err(|value| self.failed(&show(value))),
        }
    }

    /// To an integer type by way of a BIGINT; `None` if there is no such type.
    fn whole_numbers<F: ArrowPrimitiveType>(
        &self,
        values: &PrimitiveArray<F>,
        convert: impl Fn(F::Native) -> Option<i64>,
        show: impl Fn(F::Native) -> String,
    ) -> Result<Option<ArrayRef>> {
        macro_rules! to {
            ($type:ty) => {{
                let narrow = |value| convert(value).and_then(|whole| whole.try_into().ok());
                Arc::new(self.each::<F, $type>(values, narrow, show)?)
            }};
        }
        Ok(Some(match self.to {
            DataType::Int8 => to!(Int8Type),
            DataType::Int16 => to!(Int16Type),
            DataType::Int32 => to!(Int32Type),
            DataType::Int64 => to!(Int64Type),
            _ => return Ok(None),
        }))
    }

    /// The same, to any type that is held as a number.
    fn numbers<V>(
        &self,
        values: impl Iterator<Item = Option<V>>,
        convert: &dyn Fn(&V) -> Option<Exact>,
        show: impl Fn(&V) -> String,
    ) -> Result<ArrayRef> {
        fn narrow<T: TryFrom<i128>>(exact: Exact) -> Option<T> {
            exact.truncated().and_then(|value| T::try_from(value).ok())
        }
        Ok(match self.to {
            DataType::Int8 => {
                Arc::new(self.map::<Int8Type, V>(values, |v| convert(v).and_then(narrow), show)?)
            }
            DataType::Int16 => {
                Arc::new(self.map::<Int16Type, V>(values, |v| convert(v).and_then(narrow), show)?)
            }
            DataType::Int32 => {
                Arc::new(self.map::<Int32Type, V>(values, |v| convert(v).and_then(narrow), show)?)
            }
            DataType::Int64 => {
                Arc::new(self.map::<Int64Type, V>(values, |v| convert(v).and_then(narrow), show)?)
            }
            DataType::Decimal128(precision, scale) => {
                let array = self.map::<Decimal128Type, V>(
                    values,
                    |value| convert(value).and_then(|exact| exact.rescaled(*precision, *scale)),
                    show,
                )?;
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            _ => return self.unsupported(),
        })
    }

    fn instants(&self, array: PrimitiveArray<TimestampMicrosecondType>) -> ArrayRef {
        match self.to {
            DataType::Timestamp(_, Some(_)) => Arc::new(array.with_timezone("UTC")),
            _ => Arc::new(array),
        }
    }

    /// Texts that are written one behind the other.
    fn strings<V>(
        &self,
        values: impl Iterator<Item = Option<V>>,
        write: impl Fn(V, &mut StringBuilder) -> std::fmt::Result,
    ) -> Result<ArrayRef> {
        let mut builder = StringBuilder::with_capacity(self.value.len(), self.value.len() * 8);
        for value in values {
            match value {
                Some(value) => {
                    if write(value, &mut builder).is_err() {
                        return self.unsupported();
                    }
                    builder.append_value("");
                }
                None => builder.append_null(),
            }
        }
        Ok(Arc::new(builder.finish()))
    }

    fn text_values(&self) -> Result<ArrayRef> {
        let text = self.value.as_string::<i32>();
        let show = |value: &&str| value.to_string();
        let zone = self.target.zone;
        Ok(match self.to {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                self.text_to_integers(text)?
            }
            DataType::Decimal128(..) => {
                self.numbers(text.iter(), &|value: &&str| parse_decimal(value), show)?
            }
            DataType::Float64 => {
                Arc::new(self.map::<Float64Type, _>(text.iter(), |v| parse_float(v), show)?)
            }
            DataType::Float32 => {
                let convert = |value: &&str| match parse_float(value) {
                    Some(double) if double.is_finite() => time::trim(value)
                        .trim_end_matches(['d', 'D', 'f', 'F'])
                        .parse::<f32>()
                        .ok(),
                    other => other.map(|double| double as f32),
                };
                Arc::new(self.map::<Float32Type, _>(text.iter(), convert, show)?)
            }
            DataType::Date32 => Arc::new(self.map::<Date32Type, _>(
                text.iter(),
                |value| time::parse_date(value).map(|days| days as i32),
                show,
            )?),
            DataType::Timestamp(_, Some(_)) => self.instants(self.map(
                text.iter(),
                |value: &&str| time::parse_timestamp(value).and_then(|stamp| stamp.instant(zone)),
                show,
            )?),
            DataType::Timestamp(_, None) => self.instants(self.map(
                text.iter(),
                |value: &&str| time::parse_timestamp(value).and_then(|stamp| stamp.local()),
                show,
            )?),
            DataType::Boolean => {
                let parsed = text.iter().map(|value| match value {
                    None => Ok(None),
                    Some(value) => match parse_boolean(value) {
                        None if self.target.failure == Failure::Error => Err(self.failed(value)),
                        parsed => Ok(parsed),
                    },
                });
                Arc::new(parsed.collect::<Result<BooleanArray>>()?)
            }
            DataType::Binary => arrow_cast(self.value, self.to)?,
            _ => return self.unsupported(),
        })
    }

    fn text_to_integers(&self, text: &StringArray) -> Result<ArrayRef> {
        macro_rules! to {
            ($type:ty) => {{
                let convert = |value: &str| parse_integer(value)?.try_into().ok();
                match texts_at_once::<$type>(text, convert) {
                    Some(all) => Arc::new(all),
                    None => Arc::new(self.map::<$type, _>(
                        text.iter(),
                        |value: &&str| convert(value),
                        |value| value.to_string(),
                    )?),
                }
            }};
        }
        Ok(match self.to {
            DataType::Int8 => to!(Int8Type),
            DataType::Int16 => to!(Int16Type),
            DataType::Int32 => to!(Int32Type),
            _ => to!(Int64Type),
        })
    }

    fn boolean_values(&self) -> Result<ArrayRef> {
        let values = self.value.as_boolean();
        match self.to {
            DataType::Utf8 => self.strings(values.iter(), |value, out| write!(out, "{value}")),
            DataType::Float32 | DataType::Float64 => Ok(arrow_cast(
                &arrow_cast(self.value, &DataType::Int8)?,
                self.to,
            )?),
            _ => self.numbers(
                values.iter(),
                &|value: &bool| {
                    Some(Exact {
                        unscaled: i256::from_i128((*value).into()),
                        scale: 0,
                    })
                },
                |value| value.to_string(),
            ),
        }
    }

    fn integer_values(&self) -> Result<ArrayRef> {
        let wide = arrow_cast(self.value, &DataType::Int64)?;
        let values = wide.as_primitive::<Int64Type>();
        macro_rules! at_once {
            ($type:ty) => {{
                type Narrow = <$type as ArrowPrimitiveType>::Native;
                let narrow = |value: i64| value as Narrow;
                operand::all_within::<$type>(values, Narrow::BITS - 1, narrow)
                    .map(|made| Arc::new(made) as ArrayRef)
            }};
        }
        let all = match self.to {
            DataType::Int8 => at_once!(Int8Type),
            DataType::Int16 => at_once!(Int16Type),
            DataType::Int32 => at_once!(Int32Type),
            _ => None,
        };
        if let Some(all) = all {
            return Ok(all);
        }
        if let Some(whole) = self.whole_numbers(values, Some, |value| value.to_string())? {
            return Ok(whole);
        }
        Ok(match self.to {
            DataType::Utf8 => arrow_cast(self.value, self.to)?,
            DataType::Boolean => Arc::new(BooleanArray::from_unary(values, |v| v != 0)),
            DataType::Timestamp(_, Some(_)) => {
                self.instants(values.unary(|v| v.saturating_mul(MICROS_PER_SECOND)))
            }
            DataType::Decimal128(precision, scale) => {
                self.rescaled(values, 0, (*precision, *scale), |value| value.to_string())?
            }
            _ => return self.unsupported(),
        })
    }

    /// Exact numbers of one scale as decimals.
    fn rescaled<F: ArrowPrimitiveType>(
        &self,
        values: &PrimitiveArray<F>,
        from: i8,
        (precision, scale): (u8, i8),
        show: impl Fn(F::Native) -> String,
    ) -> Result<ArrayRef>
    where
        F::Native: Into<i128>,
    {
        let quick = Rescale::new(from.into(), precision, scale);
        let convert = |value: F::Native| {
            let value: i128 = value.into();
            quick.and_then(|quick| quick.apply(value)).or_else(|| {
                let exact = Exact {
                    unscaled: i256::from_i128(value),
                    scale: from.into(),
                };
                exact.rescaled(precision, scale)
            })
        };
        let array = self.each::<F, Decimal128Type>(values, convert, show)?;
        Ok(Arc::new(array.with_precision_and_scale(precision, scale)?))
    }

    fn float_values(&self) -> Result<ArrayRef> {
        let single = self.value.data_type() == &DataType::Float32;
        let wide = arrow_cast(self.value, &DataType::Float64)?;
        let values = wide.as_primitive::<Float64Type>();
        let show = move |value: f64| match single {
            true => format_float(value as f32, (value as f32).abs().into()),
            false => format_float(value, value.abs()),
        };
        if let Some(whole) = self.whole_numbers(values, truncated, show)? {
            return Ok(whole);
        }
        Ok(match self.to {
            DataType::Utf8 => {
                return self.strings(values.iter(), |value, out| out.write_str(&show(value)));
            }
            DataType::Boolean => Arc::new(BooleanArray::from_unary(values, |v| v != 0.0)),
            DataType::Float32 => arrow_cast(self.value, self.to)?,
            DataType::Timestamp(_, Some(_)) => self.instants(self.each(
                values,
                |value: f64| {
                    let micros = value * MICROS_PER_SECOND as f64;
                    (micros.is_finite() && micros.abs() < 9.2e18).then_some(micros as i64)
                },
                show,
            )?),
            DataType::Decimal128(precision, scale) => {
                let array = match self.short_decimals(values, single, (*precision, *scale)) {
                    Some(array) => array,
                    // What is no number has no decimal; that is no error.
                    None => self.map::<Decimal128Type, f64>(
                        values.iter().map(|value| value.filter(|v| v.is_finite())),
                        |value| parse_decimal(&format!("{value:e}"))?.rescaled(*precision, *scale),
                        |value| show(*value),
                    )?,
                };
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            _ => return self.unsupported(),
        })
    }

    /// Doubles as decimals; `None` if there is one that is none.
    fn short_decimals(
        &self,
        values: &PrimitiveArray<Float64Type>,
        single: bool,
        (precision, scale): (u8, i8),
    ) -> Option<PrimitiveArray<Decimal128Type>> {
        if single {
            return None;
        }
        let short = short_float::Scale::new(scale.into())?;
        // A BIGINT has 19 digits at most.
        let limit = 10_i128.pow(u32::from(precision).min(19));
        let by_digits = |value: f64| {
            let finite = value.is_finite().then_some(value)?;
            parse_decimal(&format!("{finite:e}"))?.rescaled(precision, scale)
        };
        let mut made = Vec::with_capacity(values.len());
        for (row, value) in values.values().iter().enumerate() {
            let found = match short.unscaled(*value) {
                Some(unscaled) => Some(i128::from(unscaled)).filter(|found| found.abs() < limit),
                None => by_digits(*value),
            };
            made.push(match found {
                Some(found) => found,
                None if values.is_null(row) => 0,
                None => return None,
            });
        }
        Some(PrimitiveArray::new(made.into(), values.nulls().cloned()))
    }

    fn decimal_values(&self, scale: i8) -> Result<ArrayRef> {
        let values = self.value.as_primitive::<Decimal128Type>();
        let exact = |value: i128| Exact {
            unscaled: i256::from_i128(value),
            scale: scale.into(),
        };
        let show = |value: i128| format_decimal(value, scale);
        let divisor = power_of_ten(scale.into()).and_then(i256::to_i128);
        let truncated = |value: i128| match divisor {
            Some(divisor) => short::quotient(value, divisor)?.try_into().ok(),
            None => exact(value).truncated()?.try_into().ok(),
        };
        if let Some(whole) = self.whole_numbers(values, truncated, show)? {
            return Ok(whole);
        }
        let double = |value: i128| match short_float::of_decimal(value, scale.into()) {
            Some(double) => Some(double),
            None => format_decimal(value, scale).parse().ok(),
        };
        Ok(match self.to {
            DataType::Utf8 => {
                return self.strings(values.iter(), |value, out| {
                    out.write_str(&format_decimal(value, scale))
                });
            }
            DataType::Boolean => Arc::new(BooleanArray::from_unary(values, |v| v != 0)),
            DataType::Float64 => Arc::new(self.each::<_, Float64Type>(values, double, show)?),
            DataType::Float32 => Arc::new(self.each::<_, Float32Type>(
                values,
                |value| format_decimal(value, scale).parse().ok(),
                show,
            )?),
            DataType::Timestamp(_, Some(_)) => self.instants(self.each(
                values,
                |value| {
                    let micros = exact(value).scaled(6)?;
                    i64::try_from(micros.truncated()?).ok()
                },
                show,
            )?),
            DataType::Decimal128(precision, to_scale) => {
                self.rescaled(values, scale, (*precision, *to_scale), show)?
            }
            _ => return self.unsupported(),
        })
    }

    fn date_values(&self) -> Result<ArrayRef> {
        let values = self.value.as_primitive::<Date32Type>();
        let zone = self.target.zone;
        let show = |days: i32| time::format_date(days.into());
        let midnight = |days: i32| i64::from(days).checked_mul(MICROS_PER_DAY);
        Ok(match self.to {
            DataType::Utf8 => {
                return self.strings(values.iter(), |days, out| {
                    out.write_str(&time::format_date(days.into()))
                });
            }
            to if *to == instant() => self.instants(self.each(
                values,
                |days| midnight(days).and_then(|local| zone.to_instant(local)),
                show,
            )?),
            to if *to == local_time() => self.instants(self.each(values, midnight, show)?),
            _ => return self.unsupported(),
        })
    }

    fn instant_values(&self) -> Result<ArrayRef> {
        let micros = arrow_cast(self.value, &instant())?;
        let values = micros.as_primitive::<TimestampMicrosecondType>();
        let zone = self.target.zone;
        let show = |micros: i64| time::format_local(zone.to_local(micros).unwrap_or(micros));
        let seconds = |micros: i64| Some(micros.div_euclid(MICROS_PER_SECOND));
        if let Some(whole) = self.whole_numbers(values, seconds, show)? {
            return Ok(whole);
        }
        let double = |micros: i64| micros as f64 / MICROS_PER_SECOND as f64;
        Ok(match self.to {
            DataType::Utf8 => {
                return self.strings(values.iter(), |micros, out| out.write_str(&show(micros)));
            }
            DataType::Date32 => Arc::new(self.each::<_, Date32Type>(
                values,
                |micros| date_of(zone.to_local(micros)?),
                show,
            )?),
            to if *to == local_time() => {
                self.instants(self.each(values, |micros| zone.to_local(micros), show)?)
            }
            DataType::Float64 => Arc::new(values.unary::<_, Float64Type>(double)),
            DataType::Float32 => {
                Arc::new(values.unary::<_, Float32Type>(|micros| double(micros) as f32))
            }
            DataType::Decimal128(precision, scale) => {
                self.rescaled(values, 6, (*precision, *scale), show)?
            }
            _ => return self.unsupported(),
        })
    }

    fn local_values(&self) -> Result<ArrayRef> {
        let micros = arrow_cast(self.value, &local_time())?;
        let values = micros.as_primitive::<TimestampMicrosecondType>();
        let zone = self.target.zone;
        Ok(match self.to {
            DataType::Utf8 => {
                return self.strings(values.iter(), |micros, out| {
                    out.write_str(&time::format_local(micros))
                });
            }
            DataType::Date32 => {
                Arc::new(self.each::<_, Date32Type>(values, date_of, time::format_local)?)
            }
            to if *to == instant() => self.instants(self.each(
                values,
                |micros| zone.to_instant(micros),
                time::format_local,
            )?),
            _ => return self.unsupported(),
        })
    }
}

fn date_of(local: i64) -> Option<i32> {
    i32::try_from(local.div_euclid(MICROS_PER_DAY)).ok()
}

/// An exact number: an integer and how many of its digits stand behind the point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    pub unscaled: i256,
    pub scale: i32,
}

impl Exact {
    /// The value without its fraction.
    pub(super) fn truncated(self) -> Option<i128> {
        if self.scale <= 0 {
            return self
                .unscaled
                .checked_mul(power_of_ten(-self.scale)?)?
                .to_i128();
        }
        match power_of_ten(self.scale) {
            Some(divisor) => self.unscaled.checked_div(divisor)?.to_i128(),
            None => Some(0),
        }
    }

    /// The value with another number of digits behind the point, rounded half up.
    pub(super) fn scaled(self, scale: i32) -> Option<Self> {
        if scale == self.scale {
            return Some(self);
        }
        let unscaled = if scale >= self.scale {
            self.unscaled
                .checked_mul(power_of_ten(scale - self.scale)?)?
        } else {
            match power_of_ten(self.scale - scale) {
                Some(divisor) => divide_half_up(self.unscaled, divisor)?,
                None => i256::ZERO,
            }
        };
        Some(Self { unscaled, scale })
    }

    /// The unscaled value of a decimal type; `None` if it does not fit.
    pub(super) fn rescaled(self, precision: u8, scale: i8) -> Option<i128> {
        let unscaled = self.scaled(scale.into())?.unscaled;
        let limit = power_of_ten(precision.into())?;
        (unscaled.wrapping_abs() < limit)
            .then(|| unscaled.to_i128())
            .flatten()
    }
}

/// 10^0 to 10^76. Every decimal of every row needs some of them, so they are computed once.
static POWERS_OF_TEN: LazyLock<[i256; 77]> = LazyLock::new(|| {
    let mut power = i256::ONE;
    std::array::from_fn(|exponent| {
        if exponent > 0 {
            power = power.wrapping_mul(i256::from_i128(10));
        }
        power
    })
});

/// Ten to a power, up to 10^76.
pub(super) fn power_of_ten(exponent: i32) -> Option<i256> {
    POWERS_OF_TEN.get(usize::try_from(exponent).ok()?).copied()
}

/// Division that rounds halves away from zero.
pub(super) fn divide_half_up(dividend: i256, divisor: i256) -> Option<i256> {
    // Most decimals are short, and 256 bits are slow to divide.
    if let (Some(short), Some(by)) = (dividend.to_i128(), divisor.to_i128())
        && by != 0
        && let (Some(quotient), Some(rest)) = (short.checked_div(by), short.checked_rem(by))
    {
        let up = rest != 0 && by.unsigned_abs() - rest.unsigned_abs() <= rest.unsigned_abs();
        let away = if (short < 0) != (by < 0) { -1 } else { 1 };
        return i256::from_i128(quotient).checked_add(i256::from_i128(if up { away } else { 0 }));
    }
    let quotient = dividend.checked_div(divisor)?;
    let remainder = dividend.checked_rem(divisor)?.wrapping_abs();
    let up = divisor.wrapping_abs().wrapping_sub(remainder) <= remainder;
    if !up || remainder == i256::ZERO {
        return Some(quotient);
    }
    let negative = (dividend < i256::ZERO) != (divisor < i256::ZERO);
    let one = if negative { i256::MINUS_ONE } else { i256::ONE };
    quotient.checked_add(one)
}

/// Division that rounds halves to the even neighbour.
pub(super) fn divide_half_even(dividend: i128, divisor: i256) -> Option<i128> {
    let divisor = divisor.to_i128().filter(|divisor| *divisor > 0)?;
    let (quotient, rest) = (dividend.div_euclid(divisor), dividend.rem_euclid(divisor));
    let up = match (rest * 2).cmp(&divisor) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => quotient % 2 != 0,
        std::cmp::Ordering::Less => false,
    };
    Some(quotient + i128::from(up))
}

/// The values of all texts; `None` if one has none.
fn texts_at_once<T: ArrowPrimitiveType>(
    texts: &StringArray,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Option<PrimitiveArray<T>> {
    let mut made = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        made.push(match parse(texts.value(row)) {
            Some(value) => value,
            None if texts.is_null(row) => T::Native::default(),
            None => return None,
        });
    }
    Some(PrimitiveArray::new(made.into(), texts.nulls().cloned()))
}

fn parse_integer(text: &str) -> Option<i64> {
    if let Some(number) = digits(text.as_bytes()) {
        return Some(number);
    }
    let text = time::trim(text);
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // Eighteen digits are below every limit.
    if digits.len() > 18 {
        let plain = digits.iter().all(u8::is_ascii_digit);
        return plain.then(|| text.parse().ok()).flatten();
    }
    if digits.is_empty() {
        return None;
    }
    let number = self::digits(digits)?;
    Some(if negative { -number } else { number })
}

/// The number of up to eighteen digits.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    })
}

/// A number with a point and an exponent, of as many digits as are needed to round it.
pub(super) fn parse_decimal(text: &str) -> Option<Exact> {
    let text = time::trim(text);
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (
            &text[..at],
            text[at + 1..]
                .strip_prefix('+')
                .unwrap_or(&text[at + 1..])
                .parse::<i32>()
                .ok()?,
        ),
        None => (text, 0),
    };
    let (negative, unsigned) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    // No decimal type looks at more digits than these.
    let kept = digits.len().min(76);
    let scale = scale.checked_sub(i32::try_from(digits.len() - kept).ok()?)?;
    let unscaled = if kept == 0 {
        i256::ZERO
    } else {
        i256::from_string(&digits[..kept])?
    };
    Some(Exact {
        unscaled: if negative {
            unscaled.wrapping_neg()
        } else {
            unscaled
        },
        scale: if kept == 0 { 0 } else { scale },
    })
}

fn parse_float(text: &str) -> Option<f64> {
    let text = time::trim(text);
    let number = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let valid = number
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    if valid {
        return number.parse().ok();
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" if text.starts_with('-') => Some(f64::NEG_INFINITY),
        "inf" | "infinity" => Some(f64::INFINITY),
        "nan" => (unsigned.len() == text.len()).then_some(f64::NAN),
        _ => None,
    }
}

fn parse_boolean(text: &str) -> Option<bool> {
    match time::trim(text).to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Without the fraction; `None` also for NaN.
fn truncated(value: f64) -> Option<i64> {
    // The bounds are powers of two, so they are exact.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    let whole = value.trunc();
    (-BEYOND..BEYOND).contains(&whole).then_some(whole as i64)
}

/// The plain text of a decimal.
pub(super) fn format_decimal(unscaled: i128, scale: i8) -> String {
    let scale = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// The text of a float: plain between 0.001 and 10 million, else with an exponent.
pub(super) fn format_float<F: std::fmt::Display + std::fmt::LowerExp>(
    value: F,
    magnitude: f64,
) -> String {
    if magnitude.is_nan() {
        return "NaN".into();
    }
    if magnitude.is_infinite() {
        let negative = value.to_string().starts_with('-');
        return if negative {
            "-Infinity".into()
        } else {
            "Infinity".into()
        };
    }
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        let text = value.to_string();
        return if text.contains('.') {
            text
        } else {
            text + ".0"
        };
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}E{exponent}")
}

/// The values of a decimal array.
pub(super) fn decimals(array: &ArrayRef) -> Result<&Decimal128Array> {
    match array.as_primitive_opt::<Decimal128Type>() {
        Some(values) => Ok(values),
        None => exec_err!("a decimal was planned, not {}", array.data_type()),
    }
}
