//! Functions of dates and timestamps.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Date32Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::compute::binary;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int32Type, Int64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, exec_err, plan_err};

use super::arithmetic::{Integer, unpack};
use super::cast::{Failure, decimals, zone_of};
use super::operand::{Operand, Pair};
use super::pattern::Pattern;
use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::time::{self, MICROS_PER_DAY, MICROS_PER_SECOND, Zone, civil, from_civil};
use super::{interval, types};

/// A date so many days later or earlier: all rows at once, and one by one if a row has no such date.
macro_rules! moved_date {
    ($name:literal, $at_once:expr, $checked:expr) => {
        Definition {
            name: $name,
            params: Params::Two(&[Param::Date, Param::Int]),
            returns: Returns::Of(Param::Date),
            evaluate: |call| {
                let pair = days(call);
                match pair.all_or_none::<Date32Type, _>($at_once) {
                    Some(moved) => Ok(moved.into_ref()),
                    None => moved(&pair, $checked),
                }
            },
        }
    };
}

pub(super) static FUNCTIONS: &[Definition] = &[
    function!("year", [Date], Int, |call| of_date(call, |days| civil(
        days
    )
    .0)),
    function!("quarter", [Date], Int, |call| of_date(call, |days| {
        i64::from(civil(days).1.div_ceil(3))
    })),
    function!("month", [Date], Int, |call| of_date(call, |days| civil(
        days
    )
    .1
    .into())),
    function!("day", [Date], Int, |call| of_date(call, |days| civil(days)
        .2
        .into())),
    function!("dayofweek", [Date], Int, |call| of_date(call, |days| (days
        + 4)
    .rem_euclid(7)
        + 1)),
    function!("weekday", [Date], Int, |call| of_date(call, |days| (days
        + 3)
    .rem_euclid(7))),
    function!("dayofyear", [Date], Int, |call| of_date(call, day_of_year)),
    function!("weekofyear", [Date], Int, |call| of_date(call, iso_week)),
    function!("hour", [Instant, Text], Int, |call| of_time(
        call,
        3_600 * MICROS_PER_SECOND,
        24
    )),
    function!("minute", [Instant, Text], Int, |call| of_time(
        call,
        60 * MICROS_PER_SECOND,
        60
    )),
    function!("second", [Instant, Text], Int, |call| of_time(
        call,
        MICROS_PER_SECOND,
        60
    )),
    moved_date!("date_add", Integer::sum, i64::checked_add),
    moved_date!("date_sub", Integer::difference, i64::checked_sub),
    function!("add_months", [Date, Int], Date, |call| move_date(
        call,
        time::add_months
    )),
    function!("datediff", [Date, Date], Int, datediff),
    function!("last_day", [Date], Date, |call| map_date(call, last_day)),
    function!("next_day", [Date, Text], Date, next_day),
    function!("trunc", [Date, Text], Date, trunc),
    function!("date_trunc", [Text, Instant, Text], Instant, date_trunc),
    function!("make_date", [Int, Int, Int], Date, make_date),
    Definition {
        name: "unix_date",
        params: Params::Custom(|given| match given {
            [DataType::Date32 | DataType::Null] => Ok(vec![DataType::Date32]),
            _ => plan_err!("DATATYPE_MISMATCH: unix_date takes a DATE"),
        }),
        returns: Returns::Of(Param::Int),
        evaluate: |call| of_date(call, |days| days),
    },
    function!("date_from_unix_date", [Int], Date, |call| Ok(call
        .typed::<Int32Array>(0)?
        .iter()
        .collect::<Date32Array>()
        .into_ref())),
    function!("unix_seconds", [Instant], Long, |call| of_instant(
        call,
        MICROS_PER_SECOND
    )),
    function!("unix_millis", [Instant], Long, |call| of_instant(
        call, 1000
    )),
    function!("unix_micros", [Instant], Long, |call| of_instant(call, 1)),
    Definition {
        name: "timestamp_seconds",
        params: Params::Custom(|given| match given {
            [DataType::Decimal128(_, scale)] if *scale <= 6 => Ok(given.to_vec()),
            [DataType::Float32 | DataType::Float64] => Ok(vec![DataType::Float64]),
            [DataType::Null | DataType::Utf8] => Ok(vec![DataType::Int64]),
            [integer] if types::is_integer(integer) => Ok(vec![DataType::Int64]),
            _ => plan_err!("DATATYPE_MISMATCH: timestamp_seconds takes a number of seconds"),
        }),
        returns: Returns::Of(Param::Instant),
        evaluate: timestamp_seconds,
    },
    function!("timestamp_millis", [Long], Instant, |call| to_instant(
        call, 1000
    )),
    function!("timestamp_micros", [Long], Instant, |call| to_instant(
        call, 1
    )),
    function!("from_utc_timestamp", [Instant, Text], Instant, |call| {
        shift_zone(call, Zone::to_local)
    }),
    function!("to_utc_timestamp", [Instant, Text], Instant, |call| {
        shift_zone(call, Zone::to_instant)
    }),
    function!("date_format", [Instant, Text, Text], Text, date_format),
    function!("to_date", [Text, Text], Date, to_date),
    function!("to_timestamp", [Text, Text, Text], Instant, to_timestamp),
    Definition {
        name: "unix_timestamp",
        params: Params::Custom(unix_timestamp_params),
        returns: Returns::Of(Param::Long),
        evaluate: unix_timestamp,
    },
    function!("from_unixtime", [Long, Text, Text], Text, from_unixtime),
    function!(
        "months_between",
        [Instant, Instant, Boolean, Text],
        Double,
        months_between
    ),
    Definition {
        name: "spark_add_interval",
        params: Params::Custom(interval_params),
        returns: Returns::Custom(|types, _| Ok(types.first().cloned().unwrap_or(DataType::Null))),
        evaluate: add_interval,
    },
];

trait IntoRef {
    fn into_ref(self) -> ArrayRef;
}

impl<A: Array + 'static> IntoRef for A {
    fn into_ref(self) -> ArrayRef {
        Arc::new(self)
    }
}

fn of_date(call: &Call, part: impl Fn(i64) -> i64) -> Result<ArrayRef> {
    let dates = call.typed::<Date32Array>(0)?;
    Ok(dates
        .unary::<_, Int32Type>(|date| part(date.into()) as i32)
        .into_ref())
}

fn map_date(call: &Call, convert: impl Fn(i64) -> Option<i64>) -> Result<ArrayRef> {
    let dates = call.typed::<Date32Array>(0)?;
    let convert = |date: i32| convert(date.into()).and_then(|date| i32::try_from(date).ok());
    Ok(dates.unary_opt::<_, Date32Type>(convert).into_ref())
}

fn of_time(call: &Call, unit: i64, modulus: i64) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[1])?;
    let instants = call.typed::<TimestampMicrosecondArray>(0)?;
    let part = |instant: i64| {
        let local = zone.to_local(instant)?;
        Some((local.rem_euclid(MICROS_PER_DAY) / unit % modulus) as i32)
    };
    if let Zone::Fixed(0) = zone {
        // The same without what may fail.
        let of_day = |instant: i64| (instant.rem_euclid(MICROS_PER_DAY) / unit % modulus) as i32;
        return Ok(instants.unary::<_, Int32Type>(of_day).into_ref());
    }
    Ok(instants.unary_opt::<_, Int32Type>(part).into_ref())
}

fn of_instant(call: &Call, unit: i64) -> Result<ArrayRef> {
    let instants = call.typed::<TimestampMicrosecondArray>(0)?;
    Ok(instants
        .unary::<_, Int64Type>(|instant| instant.div_euclid(unit))
        .into_ref())
}

fn to_instant(call: &Call, unit: i64) -> Result<ArrayRef> {
    let values = call.typed::<Int64Array>(0)?;
    let instants = values.iter().map(|value| match value {
        None => Ok(None),
        Some(value) => match value.checked_mul(unit) {
            Some(instant) => Ok(Some(instant)),
            None => {
                exec_err!("ARITHMETIC_OVERFLOW: overflow: {value} is beyond the range of TIMESTAMP")
            }
        },
    });
    instant_array(instants)
}

fn timestamp_seconds(call: &Call) -> Result<ArrayRef> {
    let value = &call.args[0];
    match value.data_type() {
        DataType::Int64 => to_instant(call, MICROS_PER_SECOND),
        DataType::Decimal128(_, scale) => {
            let unit = 10_i128.pow((6 - *scale).max(0) as u32);
            instant_array(decimals(value)?.iter().map(|value| match value {
                None => Ok(None),
                Some(value) => match value.checked_mul(unit).and_then(|v| i64::try_from(v).ok()) {
                    Some(instant) => Ok(Some(instant)),
                    None => exec_err!("ARITHMETIC_OVERFLOW: overflow in timestamp_seconds"),
                },
            }))
        }
        _ => {
            let values = call.typed::<Float64Array>(0)?.iter();
            let instants = values.map(|value| {
                Ok(value
                    .filter(|value| value.is_finite())
                    .map(|value| (value * MICROS_PER_SECOND as f64) as i64))
            });
            instant_array(instants)
        }
    }
}

fn instant_array(instants: impl Iterator<Item = Result<Option<i64>>>) -> Result<ArrayRef> {
    Ok(instants
        .collect::<Result<TimestampMicrosecondArray>>()?
        .with_timezone("UTC")
        .into_ref())
}

fn day_of_year(days: i64) -> i64 {
    let (year, ..) = civil(days);
    days - from_civil(year, 1, 1).unwrap_or(days) + 1
}

fn iso_week(days: i64) -> i64 {
    // The week belongs to the year that its Thursday is in.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    (day_of_year(thursday) - 1) / 7 + 1
}

fn last_day(days: i64) -> Option<i64> {
    let (year, month, _) = civil(days);
    from_civil(year, month, time::days_in_month(year, month))
}

/// A date and a number of days.
fn days(call: &Call) -> Pair<Date32Type, Int32Type> {
    Pair {
        left: Operand::new(&call.args[0], call.is_constant(0)),
        right: Operand::new(&call.args[1], call.is_constant(1)),
    }
}

fn move_date(call: &Call, step: impl Fn(i64, i64) -> Option<i64>) -> Result<ArrayRef> {
    moved(&days(call), step)
}

fn moved(
    pair: &Pair<Date32Type, Int32Type>,
    step: impl Fn(i64, i64) -> Option<i64>,
) -> Result<ArrayRef> {
    let result = pair.each::<Date32Type>(Failure::Error, |date, steps| {
        step(date.into(), steps.into())
            .and_then(|date| i32::try_from(date).ok())
            .ok_or_else(|| {
                ArrowError::ComputeError(format!(
                    "ARITHMETIC_OVERFLOW: overflow: a date {steps} on from {} has no number",
                    time::format_date(date.into())
                ))
            })
    });
    Ok(result.map_err(unpack)?.into_ref())
}

fn datediff(call: &Call) -> Result<ArrayRef> {
    let ends = call.typed::<Date32Array>(0)?;
    let starts = call.typed::<Date32Array>(1)?;
    let days: Int32Array = binary(ends, starts, i32::wrapping_sub)?;
    Ok(days.into_ref())
}

fn next_day(call: &Call) -> Result<ArrayRef> {
    let dates = call.typed::<Date32Array>(0)?;
    let names = call.text(1)?;
    let result = dates.iter().zip(names.iter()).map(|pair| {
        let (Some(date), Some(name)) = pair else {
            return Ok(None);
        };
        let weekday = match name.trim().to_uppercase().as_str() {
            "MO" | "MON" | "MONDAY" => 0,
            "TU" | "TUE" | "TUESDAY" => 1,
            "WE" | "WED" | "WEDNESDAY" => 2,
            "TH" | "THU" | "THURSDAY" => 3,
            "FR" | "FRI" | "FRIDAY" => 4,
            "SA" | "SAT" | "SATURDAY" => 5,
            "SU" | "SUN" | "SUNDAY" => 6,
            _ => return exec_err!("ILLEGAL_DAY_OF_WEEK: there is no day of the week '{name}'"),
        };
        let today = (date + 3).rem_euclid(7);
        Ok(Some(date + 1 + (weekday - today - 1).rem_euclid(7)))
    });
    Ok(result.collect::<Result<Date32Array>>()?.into_ref())
}

/// What a date or an instant is cut to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
}

impl Unit {
    fn find(name: &str) -> Option<Self> {
        const NAMES: [(&str, Unit); 15] = [
            ("YEAR", Unit::Year),
            ("YYYY", Unit::Year),
            ("YY", Unit::Year),
            ("QUARTER", Unit::Quarter),
            ("MONTH", Unit::Month),
            ("MM", Unit::Month),
            ("MON", Unit::Month),
            ("WEEK", Unit::Week),
            ("DAY", Unit::Day),
            ("DD", Unit::Day),
            ("HOUR", Unit::Hour),
            ("MINUTE", Unit::Minute),
            ("SECOND", Unit::Second),
            ("MILLISECOND", Unit::Millisecond),
            ("MICROSECOND", Unit::Microsecond),
        ];
        NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, unit)| *unit)
    }

    /// A date cut to a unit of at least a week.
    fn cut_date(self, days: i64) -> Option<i64> {
        if self == Self::Week {
            return Some(days - (days + 3).rem_euclid(7));
        }
        let (year, month, day) = civil(days);
        match self {
            Self::Year => from_civil(year, 1, 1),
            Self::Quarter => from_civil(year, (month - 1) / 3 * 3 + 1, 1),
            Self::Month => Some(days - i64::from(day) + 1),
            _ => None,
        }
    }

    fn cut_instant(self, instant: i64, zone: Zone) -> Option<i64> {
        let step = match self {
            Self::Microsecond => return Some(instant),
            Self::Millisecond => return Some(instant - instant.rem_euclid(1000)),
            Self::Second => return Some(instant - instant.rem_euclid(MICROS_PER_SECOND)),
            Self::Minute => 60 * MICROS_PER_SECOND,
            Self::Hour => 3600 * MICROS_PER_SECOND,
            _ => MICROS_PER_DAY,
        };
        let local = zone.to_local(instant)?;
        match self {
            // Below a day the distance stays the same; a day begins at its own midnight.
            Self::Minute | Self::Hour => Some(instant - local.rem_euclid(step)),
            Self::Day => zone.to_instant(local - local.rem_euclid(step)),
            _ => {
                let days = self.cut_date(local.div_euclid(MICROS_PER_DAY))?;
                zone.to_instant(days.checked_mul(MICROS_PER_DAY)?)
            }
        }
    }
}

/// The unit that is named for all rows, if it is one for all.
fn constant_unit(call: &Call, index: usize) -> Result<Option<Option<Unit>>> {
    let units = call.text(index)?;
    let constant = call.is_constant(index) && !units.is_empty();
    Ok(constant.then(|| {
        units
            .is_valid(0)
            .then(|| Unit::find(units.value(0)))
            .flatten()
    }))
}

fn trunc(call: &Call) -> Result<ArrayRef> {
    let dates = call.typed::<Date32Array>(0)?;
    let cut = |date: i32, unit: Unit| i32::try_from(unit.cut_date(date.into())?).ok();
    let result: Date32Array = match constant_unit(call, 1)? {
        Some(Some(unit)) => dates.unary_opt(|date| cut(date, unit)),
        Some(None) => Date32Array::new_null(dates.len()),
        None => {
            let pairs = dates.iter().zip(call.text(1)?.iter());
            pairs
                .map(|(date, unit)| cut(date?, Unit::find(unit?)?))
                .collect()
        }
    };
    Ok(result.into_ref())
}

fn date_trunc(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[2])?;
    let instants = call.typed::<TimestampMicrosecondArray>(1)?;
    let result: TimestampMicrosecondArray = match constant_unit(call, 0)? {
        Some(Some(unit)) => instants.unary_opt(|instant| unit.cut_instant(instant, zone)),
        Some(None) => TimestampMicrosecondArray::new_null(instants.len()),
        None => {
            let pairs = instants.iter().zip(call.text(0)?.iter());
            pairs
                .map(|(instant, unit)| Unit::find(unit?)?.cut_instant(instant?, zone))
                .collect()
        }
    };
    Ok(result.with_timezone("UTC").into_ref())
}

fn make_date(call: &Call) -> Result<ArrayRef> {
    let years = call.typed::<Int32Array>(0)?;
    let months = call.typed::<Int32Array>(1)?;
    let days = call.typed::<Int32Array>(2)?;
    let result = (0..call.rows).map(|row| {
        if years.is_null(row) || months.is_null(row) || days.is_null(row) {
            return Ok(None);
        }
        let (year, month, day) = (years.value(row), months.value(row), days.value(row));
        let unsigned = u32::try_from(month).ok().zip(u32::try_from(day).ok());
        let date = unsigned.and_then(|(month, day)| from_civil(year.into(), month, day));
        match date.and_then(|date| i32::try_from(date).ok()) {
            Some(date) => Ok(Some(date)),
            None => {
                exec_err!("DATETIME_FIELD_OUT_OF_BOUNDS: there is no date {year}-{month}-{day}")
            }
        }
    });
    Ok(result.collect::<Result<Date32Array>>()?.into_ref())
}

fn shift_zone(call: &Call, shift: fn(Zone, i64) -> Option<i64>) -> Result<ArrayRef> {
    let instants = call.typed::<TimestampMicrosecondArray>(0)?;
    let zones = call.text(1)?;
    let result = instants.iter().zip(zones.iter()).map(|pair| match pair {
        (Some(instant), Some(zone)) => Ok(shift(Zone::parse(zone)?, instant)),
        _ => Ok(None),
    });
    instant_array(result)
}

/// Remembers the last pattern, which is mostly the same for all rows.
#[derive(Default)]
struct Patterns {
    last: Option<(String, Pattern)>,
}

impl Patterns {
    fn get(&mut self, text: &str) -> Result<&Pattern> {
        if self.last.as_ref().is_none_or(|(known, _)| known != text) {
            self.last = Some((text.to_string(), Pattern::parse(text)?));
        }
        match &self.last {
            Some((_, pattern)) => Ok(pattern),
            None => exec_err!("no pattern"),
        }
    }
}

fn date_format(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[2])?;
    let instants = call.typed::<TimestampMicrosecondArray>(0)?;
    let result = with_pattern(instants.iter(), call.text(1)?, |pattern, instant, _| {
        Ok(zone.to_local(instant).map(|local| pattern.format(local)))
    });
    Ok(result.collect::<Result<StringArray>>()?.into_ref())
}

/// Calls `convert` with each value and its pattern.
fn with_pattern<V, R>(
    values: impl Iterator<Item = Option<V>>,
    texts: &StringArray,
    convert: impl Fn(&Pattern, V, &str) -> Result<Option<R>>,
) -> impl Iterator<Item = Result<Option<R>>> {
    let mut patterns = Patterns::default();
    values.zip(texts.iter()).map(move |pair| match pair {
        (Some(value), Some(text)) => convert(patterns.get(text)?, value, text),
        _ => Ok(None),
    })
}

/// The local times that texts (the first argument) say by patterns (the second); null where a text
/// does not fit.
pub(super) fn parsed_by_pattern(call: &Call) -> Result<Vec<Option<i64>>> {
    with_pattern(call.text(0)?.iter(), call.text(1)?, |pattern, value, _| {
        pattern.parse_value(value)
    })
    .collect()
}

fn to_date(call: &Call) -> Result<ArrayRef> {
    let dates = with_pattern(
        call.text(0)?.iter(),
        call.text(1)?,
        |pattern, value, text| {
            let local = read(pattern, value, text, "DATE")?;
            Ok(i32::try_from(local.div_euclid(MICROS_PER_DAY)).ok())
        },
    );
    Ok(dates.collect::<Result<Date32Array>>()?.into_ref())
}

fn read(pattern: &Pattern, value: &str, text: &str, to: &str) -> Result<i64> {
    match pattern.parse_value(value)? {
        Some(local) => Ok(local),
        None => exec_err!(
            "CANNOT_PARSE_TIMESTAMP: cannot cast '{value}' to {to} by the pattern '{text}'"
        ),
    }
}

fn to_timestamp(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[2])?;
    instant_array(with_pattern(
        call.text(0)?.iter(),
        call.text(1)?,
        |pattern, value, text| Ok(zone.to_instant(read(pattern, value, text, "TIMESTAMP")?)),
    ))
}

/// `(time, zone)` or `(text, pattern, zone)`.
fn unix_timestamp_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let time = match given.first().map(types::plain_text) {
        Some(DataType::Utf8 | DataType::Null) => DataType::Utf8,
        Some(time) if types::is_time(&time) => types::instant(),
        _ => return plan_err!("DATATYPE_MISMATCH: unix_timestamp takes a time or a text"),
    };
    Ok(std::iter::once(time)
        .chain(given.iter().skip(1).map(|_| DataType::Utf8))
        .collect())
}

fn unix_timestamp(call: &Call) -> Result<ArrayRef> {
    if let Ok(instants) = call.typed::<TimestampMicrosecondArray>(0) {
        let seconds = instants.iter().map(|i| i.map(|i| i / MICROS_PER_SECOND));
        return Ok(seconds.collect::<Int64Array>().into_ref());
    }
    let values = call.text(0)?;
    let (texts, zone) = match call.args {
        [_, _, zone] => (Some(call.text(1)?), zone_of(zone)?),
        [_, zone] => (None, zone_of(zone)?),
        _ => return exec_err!("wrong number of arguments for unix_timestamp"),
    };
    let mut patterns = Patterns::default();
    let result = values.iter().enumerate().map(|(row, value)| {
        let text = match texts {
            Some(texts) if texts.is_null(row) => return Ok(None),
            Some(texts) => texts.value(row),
            None => "yyyy-MM-dd HH:mm:ss",
        };
        let Some(value) = value else { return Ok(None) };
        let local = read(patterns.get(text)?, value, text, "TIMESTAMP")?;
        Ok(zone
            .to_instant(local)
            .map(|instant| instant.div_euclid(MICROS_PER_SECOND)))
    });
    Ok(result.collect::<Result<Int64Array>>()?.into_ref())
}

fn from_unixtime(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[2])?;
    let seconds = call.typed::<Int64Array>(0)?;
    let result = with_pattern(seconds.iter(), call.text(1)?, |pattern, seconds, _| {
        let local = seconds
            .checked_mul(MICROS_PER_SECOND)
            .and_then(|instant| zone.to_local(instant));
        Ok(local.map(|local| pattern.format(local)))
    });
    Ok(result.collect::<Result<StringArray>>()?.into_ref())
}

fn months_between(call: &Call) -> Result<ArrayRef> {
    let zone = zone_of(&call.args[3])?;
    let ends = call.typed::<TimestampMicrosecondArray>(0)?;
    let starts = call.typed::<TimestampMicrosecondArray>(1)?;
    let rounds = call.typed::<datafusion::arrow::array::BooleanArray>(2)?;
    let between = |row: usize| {
        if ends.is_null(row) || starts.is_null(row) || rounds.is_null(row) {
            return None;
        }
        let (end, start) = (
            zone.to_local(ends.value(row))?,
            zone.to_local(starts.value(row))?,
        );
        Some(months(end, start, rounds.value(row)))
    };
    Ok((0..call.rows)
        .map(between)
        .collect::<Float64Array>()
        .into_ref())
}

fn months(end: i64, start: i64, round: bool) -> f64 {
    let parts = |local: i64| {
        let (year, month, day) = civil(local.div_euclid(MICROS_PER_DAY));
        let seconds = local.rem_euclid(MICROS_PER_DAY) / MICROS_PER_SECOND;
        (
            year * 12 + i64::from(month),
            i64::from(day),
            i64::from(time::days_in_month(year, month)),
            seconds,
        )
    };
    let (end_month, end_day, end_length, end_seconds) = parts(end);
    let (start_month, start_day, start_length, start_seconds) = parts(start);
    let whole = (end_month - start_month) as f64;
    if end_day == start_day || (end_day == end_length && start_day == start_length) {
        return whole;
    }
    let seconds = (end_day - start_day) * 86_400 + end_seconds - start_seconds;
    let difference = whole + seconds as f64 / (31.0 * 86_400.0);
    if round {
        (difference * 1e8).round() / 1e8
    } else {
        difference
    }
}

/// A date stays one if the interval has no time of day.
fn interval_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let [value, _, _, _, _, rest @ ..] = given else {
        return plan_err!("an interval has three parts and a zone");
    };
    if interval::is_interval(value) {
        return Ok(given.to_vec());
    }
    let time = match types::plain_text(value) {
        time if types::is_time(&time) => time,
        DataType::Null => types::instant(),
        DataType::Utf8 => types::instant(),
        other => {
            return plan_err!(
                "DATATYPE_MISMATCH: an interval is added to {}",
                types::name(&other)
            );
        }
    };
    let time = match time {
        // The fifth says whether the interval has a time of day.
        DataType::Date32 if !rest.is_empty() => types::instant(),
        other => other,
    };
    let mut params = vec![
        time,
        DataType::Int64,
        DataType::Int64,
        DataType::Int64,
        DataType::Utf8,
    ];
    params.extend(rest.iter().map(|_| DataType::Boolean));
    Ok(params)
}

fn beyond_range<T>() -> Result<T> {
    exec_err!("ARITHMETIC_OVERFLOW: overflow: the sum of a time and an interval has no number")
}

fn add_interval(call: &Call) -> Result<ArrayRef> {
    let part = |index: usize| -> Result<i64> { Ok(call.typed::<Int64Array>(index)?.value(0)) };
    if call.rows == 0 {
        return Ok(datafusion::arrow::array::new_empty_array(call.return_type));
    }
    let (months, days, micros) = (part(1)?, part(2)?, part(3)?);
    let zone = zone_of(&call.args[4])?;
    let moved_local = |local: i64, months: i64, days: i64| -> Option<i64> {
        let date = time::add_months(local.div_euclid(MICROS_PER_DAY), months)?.checked_add(days)?;
        date.checked_mul(MICROS_PER_DAY)?
            .checked_add(local.rem_euclid(MICROS_PER_DAY))
    };
    if let Ok(dates) = call.typed::<Date32Array>(0) {
        let result = dates.iter().map(|date| match date {
            None => Ok(None),
            Some(date) => {
                let moved =
                    time::add_months(date.into(), months).and_then(|date| date.checked_add(days));
                match moved.and_then(|date| i32::try_from(date).ok()) {
                    Some(date) => Ok(Some(date)),
                    None => beyond_range(),
                }
            }
        });
        return Ok(result.collect::<Result<Date32Array>>()?.into_ref());
    }
    // Whole days move by the calendar, however they were written.
    let (days, micros) = match days
        .checked_mul(MICROS_PER_DAY)
        .and_then(|d| d.checked_add(micros))
    {
        Some(total) => (total / MICROS_PER_DAY, total % MICROS_PER_DAY),
        None => return beyond_range(),
    };
    let times = call.typed::<TimestampMicrosecondArray>(0)?;
    let zoned = matches!(call.return_type, DataType::Timestamp(_, Some(_)));
    let zone = if zoned { zone } else { Zone::Fixed(0) };
    let result = times.iter().map(|instant| match instant {
        None => Ok(None),
        Some(instant) => {
            let moved = match (months, days) {
                (0, 0) => Some(instant),
                _ => zone
                    .to_local(instant)
                    .and_then(|local| moved_local(local, months, days))
                    .and_then(|local| zone.to_instant(local)),
            };
            match moved.and_then(|instant| instant.checked_add(micros)) {
                Some(instant) => Ok(Some(instant)),
                None => beyond_range(),
            }
        }
    });
    let array = result.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(if zoned {
        array.with_timezone("UTC").into_ref()
    } else {
        array.into_ref()
    })
}
