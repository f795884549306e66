//! Timestamps put together, taken apart and moved by units; names of days and months.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result, exec_err, plan_err};

use super::cast::{Failure, zone_of};
use super::datetime::parsed_by_pattern;
use super::scalar::{Call, Definition, Param, Params, Returns, function};
use super::time::{self, MICROS_PER_DAY, MICROS_PER_SECOND, Zone, civil, from_civil};
use super::types;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

const MADE: Returns = Returns::Custom(|given, _| {
    Ok(match given.len() {
        6 => types::local_time(),
        _ => types::instant(),
    })
});

pub(super) static FUNCTIONS: &[Definition] = &[
    function!("dayname", [Date], Text, |call| {
        let names = call.typed::<Date32Array>(0)?.iter().map(|date| {
            date.and_then(|date| DAYS.get((i64::from(date) + 3).rem_euclid(7) as usize))
        });
        Ok(Arc::new(names.collect::<StringArray>()))
    }),
    function!("monthname", [Date], Text, |call| {
        let names = call
            .typed::<Date32Array>(0)?
            .iter()
            .map(|date| date.and_then(|date| MONTHS.get(civil(date.into()).1 as usize - 1)));
        Ok(Arc::new(names.collect::<StringArray>()))
    }),
    function!("spark_year_of_week", [Date], Int, |call| {
        let years = call.typed::<Date32Array>(0)?.iter().map(|date| {
            let days = i64::from(date?);
            Some(civil(days - (days + 3).rem_euclid(7) + 3).0 as i32)
        });
        Ok(Arc::new(years.collect::<Int32Array>()))
    }),
    Definition {
        name: "spark_seconds",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Instant, Param::Text],
        },
        returns: Returns::Custom(|_, _| Ok(DataType::Decimal128(8, 6))),
        evaluate: |call| {
            let zone = zone_of(&call.args[1])?;
            let values = call
                .typed::<TimestampMicrosecondArray>(0)?
                .iter()
                .map(|instant| {
                    let local = zone.to_local(instant?)?;
                    Some(i128::from(local.rem_euclid(60 * MICROS_PER_SECOND)))
                });
            let values: Decimal128Array = values.collect();
            Ok(Arc::new(values.with_precision_and_scale(8, 6)?))
        },
    },
    Definition {
        name: "spark_make_timestamp",
        params: Params::Custom(make_params),
        returns: MADE,
        evaluate: |call| make_timestamp(call, Failure::Error),
    },
    Definition {
        name: "spark_try_make_timestamp",
        params: Params::Custom(make_params),
        returns: MADE,
        evaluate: |call| make_timestamp(call, Failure::Null),
    },
    function!(
        "spark_try_to_timestamp",
        [Text, Text, Text],
        Instant,
        |call| {
            let zone = zone_of(&call.args[2])?;
            let local = parsed_by_pattern(call)?;
            let instants = local.into_iter().map(|local| zone.to_instant(local?));
            Ok(Arc::new(
                instants
                    .collect::<TimestampMicrosecondArray>()
                    .with_timezone("UTC"),
            ))
        }
    ),
    function!("spark_try_to_date", [Text, Text], Date, |call| {
        let dates = parsed_by_pattern(call)?
            .into_iter()
            .map(|local| i32::try_from(local?.div_euclid(MICROS_PER_DAY)).ok());
        Ok(Arc::new(dates.collect::<Date32Array>()))
    }),
    function!(
        "convert_timezone",
        [Text, Text, LocalTime],
        LocalTime,
        |call| {
            let (sources, targets) = (call.text(0)?, call.text(1)?);
            let times = call.typed::<TimestampMicrosecondArray>(2)?;
            let moved = (0..call.rows).map(|row| {
                if sources.is_null(row) || targets.is_null(row) || times.is_null(row) {
                    return Ok(None);
                }
                let source = Zone::parse(sources.value(row))?;
                let target = Zone::parse(targets.value(row))?;
                let instant = source.to_instant(times.value(row));
                Ok(instant.and_then(|instant| target.to_local(instant)))
            });
            Ok(Arc::new(
                moved.collect::<Result<TimestampMicrosecondArray>>()?,
            ))
        }
    ),
    Definition {
        name: "timestampadd",
        params: Params::Custom(|given| match given {
            [_, count, time, _] if is_count(count) => Ok(vec![
                DataType::Utf8,
                DataType::Int64,
                moved_type(time)?,
                DataType::Utf8,
            ]),
            [_, count, ..] => plan_err!(
                "DATATYPE_MISMATCH: timestampadd of {}, not of an integer",
                types::name(count)
            ),
            _ => plan_err!("WRONG_NUM_ARGS: timestampadd takes a unit, a number and a time"),
        }),
        returns: Returns::Custom(|given, _| match given.get(2) {
            Some(time) => moved_type(time),
            None => Ok(types::instant()),
        }),
        evaluate: timestampadd,
    },
    function!(
        "timestampdiff",
        [Text, Instant, Instant, Text],
        Long,
        timestampdiff
    ),
];

fn is_count(given: &DataType) -> bool {
    types::is_integer(given) || matches!(given, DataType::Null | DataType::Utf8)
}

fn moved_type(time: &DataType) -> Result<DataType> {
    Ok(match types::plain_text(time) {
        local @ DataType::Timestamp(_, None) => local,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Utf8 | DataType::Null => {
            types::instant()
        }
        other => return plan_err!("DATATYPE_MISMATCH: timestampadd to {}", types::name(&other)),
    })
}

/// Year, month, day, hour, minute, seconds; then perhaps a zone and the session's.
fn make_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let number = |t: &DataType| types::is_number(t) || matches!(t, DataType::Null | DataType::Utf8);
    let fits = matches!(given.len(), 6..=8) && given[..6].iter().all(number);
    if !fits {
        return plan_err!("DATATYPE_MISMATCH: make_timestamp takes five INTs and seconds");
    }
    let mut params = vec![DataType::Int32; 5];
    params.push(DataType::Decimal128(16, 6));
    params.extend(given.iter().skip(6).map(|_| DataType::Utf8));
    Ok(params)
}

fn make_timestamp(call: &Call, failure: Failure) -> Result<ArrayRef> {
    let part = |index: usize| call.typed::<Int32Array>(index);
    let (years, months, days) = (part(0)?, part(1)?, part(2)?);
    let (hours, minutes) = (part(3)?, part(4)?);
    let seconds = call.args[5].as_primitive::<Decimal128Type>();
    let zones = (6..call.args.len())
        .map(|index| call.text(index))
        .collect::<Result<Vec<_>>>()?;
    let local = |row: usize| -> Option<i64> {
        let day = from_civil(
            years.value(row).into(),
            u32::try_from(months.value(row)).ok()?,
            u32::try_from(days.value(row)).ok()?,
        )?;
        let (hour, minute) = (i64::from(hours.value(row)), i64::from(minutes.value(row)));
        let micros = i64::try_from(seconds.value(row)).ok()?;
        // A sixtieth second without a fraction is the next minute.
        let last = 60 * MICROS_PER_SECOND;
        if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=last).contains(&micros) {
            return None;
        }
        day.checked_mul(MICROS_PER_DAY)?
            .checked_add((hour * 60 + minute) * 60 * MICROS_PER_SECOND + micros)
    };
    let values = (0..call.rows).map(|row| {
        if call.args.iter().any(|array| array.is_null(row)) {
            return Ok(None);
        }
        let made = match (local(row), zones.first()) {
            (Some(local), Some(zone)) => match (Zone::find(zone.value(row)), failure) {
                (Some(zone), _) => zone.to_instant(local),
                (None, Failure::Null) => None,
                (None, Failure::Error) => Zone::parse(zone.value(row))?.to_instant(local),
            },
            (local, _) => local,
        };
        match (made, failure) {
            (None, Failure::Error) => exec_err!(
                "DATETIME_FIELD_OUT_OF_BOUNDS: there is no time {}-{}-{} {}:{}",
                years.value(row),
                months.value(row),
                days.value(row),
                hours.value(row),
                minutes.value(row)
            ),
            (made, _) => Ok(made),
        }
    });
    let values = values.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(match zones.is_empty() {
        true => Arc::new(values),
        false => Arc::new(values.with_timezone("UTC")),
    })
}

/// A unit as months, days or microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    Months(i64),
    Days(i64),
    Micros(i64),
}

fn unit(name: &str) -> Result<Unit> {
    Ok(match name.to_uppercase().as_str() {
        "YEAR" => Unit::Months(12),
        "QUARTER" => Unit::Months(3),
        "MONTH" => Unit::Months(1),
        "WEEK" => Unit::Days(7),
        "DAY" | "DAYOFYEAR" => Unit::Days(1),
        "HOUR" => Unit::Micros(3600 * MICROS_PER_SECOND),
        "MINUTE" => Unit::Micros(60 * MICROS_PER_SECOND),
        "SECOND" => Unit::Micros(MICROS_PER_SECOND),
        "MILLISECOND" => Unit::Micros(1000),
        "MICROSECOND" => Unit::Micros(1),
        _ => {
            return exec_err!("INVALID_PARAMETER_VALUE.DATETIME_UNIT: there is no unit {name}");
        }
    })
}

fn timestampadd(call: &Call) -> Result<ArrayRef> {
    let units = call.text(0)?;
    let counts = call.typed::<Int64Array>(1)?;
    let times = call.typed::<TimestampMicrosecondArray>(2)?;
    let zoned = matches!(call.return_type, DataType::Timestamp(_, Some(_)));
    let zone = match zoned {
        true => zone_of(&call.args[3])?,
        false => Zone::Fixed(0),
    };
    let moved = |time: i64, count: i64, unit: Unit| -> Option<i64> {
        let (months, days) = match unit {
            Unit::Micros(micros) => return time.checked_add(count.checked_mul(micros)?),
            Unit::Months(months) => (count.checked_mul(months)?, 0),
            Unit::Days(days) => (0, count.checked_mul(days)?),
        };
        let local = zone.to_local(time)?;
        let date = time::add_months(local.div_euclid(MICROS_PER_DAY), months)?.checked_add(days)?;
        let local = date
            .checked_mul(MICROS_PER_DAY)?
            .checked_add(local.rem_euclid(MICROS_PER_DAY))?;
        zone.to_instant(local)
    };
    let values = (0..call.rows).map(|row| {
        if units.is_null(row) || counts.is_null(row) || times.is_null(row) {
            return Ok(None);
        }
        match moved(times.value(row), counts.value(row), unit(units.value(row))?) {
            Some(moved) => Ok(Some(moved)),
            None => {
                exec_err!("DATETIME_OVERFLOW: timestampadd leads beyond the range of TIMESTAMP")
            }
        }
    });
    let values = values.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(match zoned {
        true => Arc::new(values.with_timezone("UTC")),
        false => Arc::new(values),
    })
}

fn timestampdiff(call: &Call) -> Result<ArrayRef> {
    let units = call.text(0)?;
    let starts = call.typed::<TimestampMicrosecondArray>(1)?;
    let ends = call.typed::<TimestampMicrosecondArray>(2)?;
    let zone = zone_of(&call.args[3])?;
    let between = |start: i64, end: i64, unit: Unit| -> Option<i64> {
        let (start_local, end_local) = (zone.to_local(start)?, zone.to_local(end)?);
        Some(match unit {
            Unit::Micros(micros) => (end_local - start_local) / micros,
            Unit::Days(days) => (end_local - start_local) / MICROS_PER_DAY / days,
            Unit::Months(months) => {
                let parts = |local: i64| {
                    let (year, month, day) = civil(local.div_euclid(MICROS_PER_DAY));
                    let in_month =
                        i64::from(day) * MICROS_PER_DAY + local.rem_euclid(MICROS_PER_DAY);
                    (year * 12 + i64::from(month), in_month)
                };
                let ((from, from_rest), (to, to_rest)) = (parts(start_local), parts(end_local));
                let whole = to - from;
                let whole = match (end_local >= start_local, to_rest >= from_rest) {
                    (true, false) => whole - 1,
                    (false, true) if to_rest > from_rest => whole + 1,
                    _ => whole,
                };
                whole / months
            }
        })
    };
    let values = (0..call.rows).map(|row| {
        if units.is_null(row) || starts.is_null(row) || ends.is_null(row) {
            return Ok(None);
        }
        Ok(between(
            starts.value(row),
            ends.value(row),
            unit(units.value(row))?,
        ))
    });
    Ok(Arc::new(values.collect::<Result<Int64Array>>()?))
}
