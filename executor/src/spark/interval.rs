//! Intervals as values: spans of days and time as durations, spans of months as Arrow's year-month
//! intervals. They live between times in an expression; no table holds them.
//!
//! Operators over them are planned as ordinary arithmetic and become calls of the functions here
//! when the types are known, for most of them need the session's time zone.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, DurationMicrosecondArray, Float64Array,
    Int64Array, IntervalYearMonthArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, DurationMicrosecondType, Float64Type, IntervalUnit,
    IntervalYearMonthType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_err, plan_err};

use super::cast::zone_of;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::time::{self, MICROS_PER_DAY, MICROS_PER_SECOND, Zone};
use super::types;

/// A span of days and time.
pub(super) const DURATION: DataType = DataType::Duration(TimeUnit::Microsecond);
/// A span of months.
pub(super) const MONTHS: DataType = DataType::Interval(IntervalUnit::YearMonth);

fn as_given(given: &[DataType]) -> Result<Vec<DataType>> {
    Ok(given.to_vec())
}

pub(super) static FUNCTIONS: &[Definition] = &[
    // Days and microseconds.
    Definition {
        name: "spark_interval",
        params: Params::Custom(|given| Ok(vec![DataType::Int64; given.len()])),
        returns: Returns::Custom(|_, _| Ok(DURATION)),
        evaluate: literal,
    },
    Definition {
        name: "spark_month_interval",
        params: Params::Custom(|given| Ok(vec![DataType::Int64; given.len()])),
        returns: Returns::Custom(|_, _| Ok(MONTHS)),
        evaluate: |call| {
            let months = call.typed::<Int64Array>(0)?.iter();
            let months = months.map(|m| m.and_then(|m| i32::try_from(m).ok()));
            Ok(Arc::new(months.collect::<IntervalYearMonthArray>()))
        },
    },
    Definition {
        name: "make_dt_interval",
        params: Params::Custom(|given| {
            let mut wanted = vec![DataType::Int32; given.len().min(3)];
            wanted.extend(given.iter().skip(3).map(|_| DataType::Decimal128(18, 6)));
            Ok(wanted)
        }),
        returns: Returns::Custom(|_, _| Ok(DURATION)),
        evaluate: make_duration,
    },
    Definition {
        name: "make_ym_interval",
        params: Params::Custom(|given| Ok(vec![DataType::Int32; given.len()])),
        returns: Returns::Custom(|_, _| Ok(MONTHS)),
        evaluate: make_months,
    },
    Definition {
        name: "spark_time_between",
        params: Params::Custom(as_given),
        returns: Returns::Custom(|_, _| Ok(DURATION)),
        evaluate: between,
    },
    Definition {
        name: "spark_time_moved",
        params: Params::Custom(as_given),
        returns: Returns::Of(Param::Any),
        evaluate: moved,
    },
    Definition {
        name: "spark_interval_sum",
        params: Params::Custom(as_given),
        returns: Returns::Of(Param::Any),
        evaluate: sum,
    },
    Definition {
        name: "spark_interval_times",
        params: Params::Custom(as_given),
        returns: Returns::Of(Param::Any),
        evaluate: times,
    },
    Definition {
        name: "spark_interval_part",
        params: Params::Custom(as_given),
        returns: Returns::Custom(|_, literals| {
            let unit = literals.get(1).copied().flatten();
            Ok(match unit.and_then(|unit| unit.try_as_str().flatten()) {
                Some("second") => DataType::Decimal128(8, 6),
                Some("day" | "year") => DataType::Int32,
                _ => DataType::Int8,
            })
        }),
        evaluate: part,
    },
];

/// Whether a type is one of the two.
pub(super) fn is_interval(data_type: &DataType) -> bool {
    data_type == &DURATION || data_type == &MONTHS
}

/// How an operator over times and intervals is computed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub function: &'static str,
    pub result: DataType,
    /// The operands change places.
    pub swapped: bool,
    /// The second operand counts with the other sign, or divides.
    pub inverse: bool,
    /// What the operands are converted to.
    pub operands: [DataType; 2],
}

/// The plan of `left op right`, where one of them is a time or an interval; `None` if neither is
/// or there is no such operation.
pub(super) fn operation(symbol: &str, left: &DataType, right: &DataType) -> Option<Plan> {
    let (left, right) = (types::plain_text(left), types::plain_text(right));
    let plan = |function, result: &DataType, operands: [&DataType; 2]| Plan {
        function,
        result: result.clone(),
        swapped: false,
        inverse: false,
        operands: operands.map(Clone::clone),
    };
    let inverse = |plan: Plan| Plan {
        inverse: true,
        ..plan
    };
    let swapped = |plan: Plan| Plan {
        swapped: true,
        ..plan
    };
    let number = |t: &DataType| types::is_number(t);
    let scale = |span: &DataType| plan("spark_interval_times", span, [span, &DataType::Float64]);
    let whole = |span: &DataType| plan("spark_interval_times", span, [span, &DataType::Int64]);
    let by = |span: &DataType, factor: &DataType| match types::is_integer(factor) {
        true => whole(span),
        false => scale(span),
    };
    Some(match (symbol, &left, &right) {
        ("-", DataType::Date32 | DataType::Null, DataType::Date32) => {
            plan("spark_time_between", &DURATION, [&right, &right])
        }
        ("-", one, other) if types::is_time(one) && types::is_time(other) => {
            let common = types::common(one, other)?;
            plan("spark_time_between", &DURATION, [&common, &common])
        }
        ("+" | "-", time @ DataType::Timestamp(..), span) if is_interval(span) => {
            let found = plan("spark_time_moved", time, [time, span]);
            if symbol == "-" { inverse(found) } else { found }
        }
        ("+" | "-", DataType::Date32, span) if span == &MONTHS => {
            let found = plan("spark_time_moved", &left, [&left, span]);
            if symbol == "-" { inverse(found) } else { found }
        }
        ("+", span, time) if is_interval(span) && types::is_time(time) => {
            swapped(operation("+", time, span)?)
        }
        ("+" | "-", one, other) if is_interval(one) && one == other => {
            let found = plan("spark_interval_sum", one, [one, other]);
            if symbol == "-" { inverse(found) } else { found }
        }
        ("*", span, factor) if is_interval(span) && number(factor) => by(span, factor),
        ("*", factor, span) if is_interval(span) && number(factor) => swapped(by(span, factor)),
        ("/", span, factor) if is_interval(span) && number(factor) => inverse(by(span, factor)),
        _ => return None,
    })
}

fn overflow<T>() -> Result<T> {
    exec_err!("INTERVAL_ARITHMETIC_OVERFLOW: overflow: the interval or time is beyond its range")
}

fn literal(call: &Call) -> Result<ArrayRef> {
    let part = |index: usize| call.typed::<Int64Array>(index);
    let (days, micros) = (part(0)?, part(1)?);
    let spans = (0..call.rows).map(|row| {
        let span = days.value(row).checked_mul(MICROS_PER_DAY);
        match span.and_then(|span| span.checked_add(micros.value(row))) {
            Some(span) => Ok(Some(span)),
            None => overflow(),
        }
    });
    Ok(Arc::new(
        spans.collect::<Result<DurationMicrosecondArray>>()?,
    ))
}

fn make_duration(call: &Call) -> Result<ArrayRef> {
    let units = [
        MICROS_PER_DAY,
        3_600 * MICROS_PER_SECOND,
        60 * MICROS_PER_SECOND,
        1,
    ];
    let columns = call
        .args
        .iter()
        .map(|array| match array.data_type() {
            // Seconds to the microsecond.
            DataType::Decimal128(..) => {
                let values = array.as_primitive::<datafusion::arrow::datatypes::Decimal128Type>();
                let whole = values.iter().map(|v| v.and_then(|v| i64::try_from(v).ok()));
                Ok(whole.collect::<Int64Array>())
            }
            _ => Ok(arrow_cast(array, &DataType::Int64)?
                .as_primitive::<datafusion::arrow::datatypes::Int64Type>()
                .clone()),
        })
        .collect::<Result<Vec<_>>>()?;
    let spans = (0..call.rows).map(|row| {
        let mut span = 0_i64;
        for (column, unit) in columns.iter().zip(units) {
            if column.is_null(row) {
                return Ok(None);
            }
            let added = column.value(row).checked_mul(unit);
            span = match added.and_then(|added| span.checked_add(added)) {
                Some(span) => span,
                None => return overflow(),
            };
        }
        Ok(Some(span))
    });
    Ok(Arc::new(
        spans.collect::<Result<DurationMicrosecondArray>>()?,
    ))
}

fn make_months(call: &Call) -> Result<ArrayRef> {
    let columns = call
        .args
        .iter()
        .map(|array| array.as_primitive::<datafusion::arrow::datatypes::Int32Type>())
        .collect::<Vec<_>>();
    let spans = (0..call.rows).map(|row| {
        let mut months = 0_i32;
        for (column, unit) in columns.iter().zip([12, 1]) {
            if column.is_null(row) {
                return Ok(None);
            }
            let added = column.value(row).checked_mul(unit);
            months = match added.and_then(|added| months.checked_add(added)) {
                Some(months) => months,
                None => return overflow(),
            };
        }
        Ok(Some(months))
    });
    Ok(Arc::new(spans.collect::<Result<IntervalYearMonthArray>>()?))
}

/// `(end, start, sign, zone)`: between instants local times count.
fn between(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[3])?;
    if let Ok(ends) = call.typed::<Date32Array>(0) {
        let starts = call.typed::<Date32Array>(1)?;
        let spans = ends
            .iter()
            .zip(starts.iter())
            .map(|(end, start)| Some((i64::from(end?) - i64::from(start?)) * MICROS_PER_DAY));
        return Ok(Arc::new(spans.collect::<DurationMicrosecondArray>()));
    }
    let ends = call.typed::<TimestampMicrosecondArray>(0)?;
    let starts = call.typed::<TimestampMicrosecondArray>(1)?;
    let zone = match ends.data_type() {
        DataType::Timestamp(_, Some(_)) => zone,
        _ => Zone::Fixed(0),
    };
    let spans = ends.iter().zip(starts.iter()).map(|pair| match pair {
        (Some(end), Some(start)) => {
            let (end, start) = (zone.to_local(end), zone.to_local(start));
            match end
                .zip(start)
                .and_then(|(end, start)| end.checked_sub(start))
            {
                Some(span) => Ok(Some(span)),
                None => overflow(),
            }
        }
        _ => Ok(None),
    });
    Ok(Arc::new(
        spans.collect::<Result<DurationMicrosecondArray>>()?,
    ))
}

/// The sign that the third argument says.
fn sign(call: &Call) -> Result<i64> {
    let signs = call.typed::<Int64Array>(2)?;
    Ok(if signs.is_empty() { 1 } else { signs.value(0) })
}

/// `(time, interval, sign, zone)`: whole days and months move by the calendar.
fn moved(call: &Call) -> Result<ArrayRef> {
    let sign = sign(call)?;
    let spans: Vec<Option<(i64, i64)>> = match call.args[1].data_type() {
        DataType::Duration(_) => {
            let spans = call.args[1].as_primitive::<DurationMicrosecondType>();
            spans
                .iter()
                .map(|span| span.map(|span| (0, span)))
                .collect()
        }
        _ => {
            let spans = call.args[1].as_primitive::<IntervalYearMonthType>();
            spans
                .iter()
                .map(|span| span.map(|span| (span.into(), 0)))
                .collect()
        }
    };
    if let Some(dates) = call.args[0].as_primitive_opt::<Date32Type>() {
        let result = dates.iter().zip(spans).map(|pair| match pair {
            (Some(date), Some((months, _))) => {
                let moved = time::add_months(date.into(), months * sign);
                match moved.and_then(|date| i32::try_from(date).ok()) {
                    Some(date) => Ok(Some(date)),
                    None => overflow(),
                }
            }
            _ => Ok(None),
        });
        return Ok(Arc::new(result.collect::<Result<Date32Array>>()?));
    }
    let zoned = matches!(call.return_type, DataType::Timestamp(_, Some(_)));
    let zone = match zoned {
        true => zone_of(&call.args[3])?,
        false => Zone::Fixed(0),
    };
    let shift = |instant: i64, months: i64, micros: i64| -> Option<i64> {
        let (days, micros) = (micros / MICROS_PER_DAY, micros % MICROS_PER_DAY);
        let moved = match (months, days) {
            (0, 0) => instant,
            _ => {
                let local = zone.to_local(instant)?;
                let date = time::add_months(local.div_euclid(MICROS_PER_DAY), months)?;
                let date = date.checked_add(days)?.checked_mul(MICROS_PER_DAY)?;
                zone.to_instant(date.checked_add(local.rem_euclid(MICROS_PER_DAY))?)?
            }
        };
        moved.checked_add(micros)
    };
    let times = call.args[0].as_primitive::<TimestampMicrosecondType>();
    let result = times.iter().zip(spans).map(|pair| match pair {
        (Some(instant), Some((months, micros))) => {
            match shift(instant, months * sign, micros * sign) {
                Some(moved) => Ok(Some(moved)),
                None => overflow(),
            }
        }
        _ => Ok(None),
    });
    let result = result.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(match zoned {
        true => Arc::new(result.with_timezone("UTC")),
        false => Arc::new(result),
    })
}

/// An interval's number, whichever kind it is.
fn numbers(array: &ArrayRef) -> Vec<Option<i64>> {
    match array.as_primitive_opt::<DurationMicrosecondType>() {
        Some(spans) => spans.iter().collect(),
        None => array
            .as_primitive::<IntervalYearMonthType>()
            .iter()
            .map(|span| span.map(i64::from))
            .collect(),
    }
}

fn spans(values: impl Iterator<Item = Result<Option<i64>>>, to: &DataType) -> Result<ArrayRef> {
    if to == &DURATION {
        return Ok(Arc::new(
            values.collect::<Result<DurationMicrosecondArray>>()?,
        ));
    }
    let months = values.map(|value| match value? {
        None => Ok(None),
        Some(value) => match i32::try_from(value) {
            Ok(months) => Ok(Some(months)),
            Err(_) => overflow(),
        },
    });
    Ok(Arc::new(
        months.collect::<Result<IntervalYearMonthArray>>()?,
    ))
}

fn sum(call: &Call) -> Result<ArrayRef> {
    let sign = sign(call)?;
    let pairs = numbers(&call.args[0])
        .into_iter()
        .zip(numbers(&call.args[1]));
    let values = pairs.map(|pair| match pair {
        (Some(left), Some(right)) => {
            match right
                .checked_mul(sign)
                .and_then(|right| left.checked_add(right))
            {
                Some(sum) => Ok(Some(sum)),
                None => overflow(),
            }
        }
        _ => Ok(None),
    });
    spans(values, call.return_type)
}

/// `(interval, number, sign)`: a negative sign divides; halves are rounded away from zero.
fn times(call: &Call) -> Result<ArrayRef> {
    let divides = sign(call)? < 0;
    let factors = arrow_cast(&call.args[1], &DataType::Float64)?;
    let factors: &Float64Array = factors.as_primitive::<Float64Type>();
    let whole = match call.args[1].data_type() {
        DataType::Int64 => Some(call.typed::<Int64Array>(1)?),
        _ => None,
    };
    let values = numbers(&call.args[0]).into_iter().enumerate();
    let values = values.map(|(row, value)| {
        let Some(value) = value.filter(|_| factors.is_valid(row)) else {
            return Ok(None);
        };
        let factor = factors.value(row);
        if divides && factor == 0.0 {
            return exec_err!("INTERVAL_DIVIDED_BY_ZERO: division by zero of an interval");
        }
        let made = match (whole, divides) {
            (Some(whole), false) => value.checked_mul(whole.value(row)),
            (Some(whole), true) => {
                let by = i128::from(whole.value(row));
                let doubled = 2 * i128::from(value);
                let half = if (doubled < 0) == (by < 0) { by } else { -by };
                i64::try_from((doubled + half) / (2 * by)).ok()
            }
            (None, _) => {
                let made = match divides {
                    true => value as f64 / factor,
                    false => value as f64 * factor,
                };
                let rounded = made.round();
                (rounded.abs() < 9.2e18).then_some(rounded as i64)
            }
        };
        match made {
            Some(made) => Ok(Some(made)),
            None => overflow(),
        }
    });
    spans(values, call.return_type)
}

/// One field of an interval.
fn part(call: &Call) -> Result<ArrayRef> {
    let units = call.text(1)?;
    let unit = if units.is_empty() { "" } else { units.value(0) };
    let values = numbers(&call.args[0]);
    if unit == "second" {
        let seconds = values
            .into_iter()
            .map(|value| value.map(|value| i128::from(value % (60 * MICROS_PER_SECOND))));
        let seconds: Decimal128Array = seconds.collect();
        return Ok(Arc::new(seconds.with_precision_and_scale(8, 6)?));
    }
    let (by, modulus) = match unit {
        "day" => (MICROS_PER_DAY, i64::MAX),
        "hour" => (3_600 * MICROS_PER_SECOND, 24),
        "minute" => (60 * MICROS_PER_SECOND, 60),
        "year" => (12, i64::MAX),
        "month" => (1, 12),
        _ => return plan_err!("an interval has no {unit}"),
    };
    let parts = values
        .into_iter()
        .map(|value| value.map(|value| value / by % modulus));
    let parts: ArrayRef = Arc::new(parts.collect::<Int64Array>());
    Ok(arrow_cast(&parts, call.return_type)?)
}
