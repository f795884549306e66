//! `sequence`: numbers, dates and timestamps from one to another, by a number or an interval.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Date32Array, Int64Array, ListArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};

use super::array::MOST_ELEMENTS;
use super::cast::zone_of;
use super::scalar::{Call, Definition, Params, Returns};
use super::time::{self, MICROS_PER_DAY};
use super::types::{self, list_of};

const LIST: Returns =
    Returns::Custom(|given, _| Ok(list_of(given.first().unwrap_or(&DataType::Null))));

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "sequence",
        params: Params::Custom(sequence_params),
        returns: LIST,
        evaluate: sequence,
    },
    Definition {
        name: "spark_sequence",
        params: Params::Custom(time_sequence_params),
        returns: LIST,
        evaluate: time_sequence,
    },
];

fn sequence_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let mut common = DataType::Null;
    for given in given {
        common = match types::common(&common, given) {
            Some(found) => found,
            None => {
                return plan_err!(
                    "DATATYPE_MISMATCH: sequence of {} and {}",
                    types::name(&common),
                    types::name(given)
                );
            }
        };
    }
    match (&common, given.len()) {
        (integer, 2 | 3) if types::is_integer(integer) => Ok(vec![common; given.len()]),
        (DataType::Date32, 2) => Ok(vec![common; 2]),
        (DataType::Timestamp(_, Some(_)), 2) => Ok(vec![common; 2]),
        _ => plan_err!(
            "DATATYPE_MISMATCH: sequence of {} is not available",
            types::name(&common)
        ),
    }
}

/// The numbers from `start` to `stop`.
fn steps(start: i64, stop: i64, step: i64) -> Result<impl Iterator<Item = i64>> {
    let wrong =
        (step == 0 && start != stop) || (step > 0 && start > stop) || (step < 0 && start < stop);
    if wrong {
        return exec_err!(
            "INVALID_PARAMETER_VALUE: sequence from {start} to {stop} by {step} has no end"
        );
    }
    let span = i128::from(stop) - i128::from(start);
    let count = match step {
        0 => 1,
        step => span / i128::from(step) + 1,
    };
    if count > i128::from(MOST_ELEMENTS) {
        return exec_err!("COLLECTION_SIZE_LIMIT_EXCEEDED: sequence makes {count} elements");
    }
    Ok((0..count as i64).map(move |at| start.wrapping_add(at.wrapping_mul(step))))
}

fn sequence(call: &Call) -> Result<ArrayRef> {
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    let unit = match field.data_type() {
        DataType::Timestamp(..) => MICROS_PER_DAY,
        _ => 1,
    };
    let longs = call
        .args
        .iter()
        .map(|array| {
            Ok(arrow_cast(
                &arrow_cast(array, &numeric(array.data_type()))?,
                &DataType::Int64,
            )?)
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let value = |index: usize, row: usize| {
        let array = longs.get(index)?;
        let array = array.as_any().downcast_ref::<Int64Array>()?;
        array.is_valid(row).then(|| array.value(row))
    };
    let mut values = vec![];
    let mut offsets = vec![0_i32];
    let mut valid = vec![];
    for row in 0..call.rows {
        let (start, stop) = (value(0, row), value(1, row));
        let step = match longs.len() {
            3 => value(2, row),
            _ => start
                .zip(stop)
                .map(|(start, stop)| if start <= stop { unit } else { -unit }),
        };
        match (start, stop, step) {
            (Some(start), Some(stop), Some(step)) => {
                values.extend(steps(start, stop, step)?);
                valid.push(true);
            }
            _ => valid.push(false),
        }
        offsets.push(values.len() as i32);
    }
    let values: ArrayRef = Arc::new(Int64Array::from(values));
    let values = arrow_cast(
        &arrow_cast(&values, &numeric(field.data_type()))?,
        field.data_type(),
    )?;
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::new(offsets.into()),
        values,
        Some(NullBuffer::from(valid)),
    )?))
}

/// The number type that holds a type's values.
fn numeric(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Date32 => DataType::Int32,
        DataType::Timestamp(..) => DataType::Int64,
        other => other.clone(),
    }
}

/// `(start, stop, months, days, micros, zone)`.
fn time_sequence_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let [start, stop, ..] = given else {
        return plan_err!("WRONG_NUM_ARGS: sequence takes a start, a stop and a step");
    };
    let common = match types::common(start, stop) {
        Some(DataType::Utf8) | None => None,
        Some(common) if types::is_time(&common) => Some(common),
        Some(_) => None,
    };
    let Some(common) = common else {
        return plan_err!(
            "DATATYPE_MISMATCH: sequence of {} by an interval",
            types::name(start)
        );
    };
    Ok(vec![
        common.clone(),
        common,
        DataType::Int64,
        DataType::Int64,
        DataType::Int64,
        DataType::Utf8,
    ])
}

fn time_sequence(call: &Call) -> Result<ArrayRef> {
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    if call.rows == 0 {
        return Ok(datafusion::arrow::array::new_empty_array(call.return_type));
    }
    let part = |index: usize| -> Result<i64> { Ok(call.typed::<Int64Array>(index)?.value(0)) };
    let (months, days, micros) = (part(2)?, part(3)?, part(4)?);
    // Whole days move by the calendar, however they were written.
    let Some(span) = days
        .checked_mul(MICROS_PER_DAY)
        .and_then(|span| span.checked_add(micros))
    else {
        return exec_err!("ARITHMETIC_OVERFLOW: overflow in the step of sequence");
    };
    let (days, micros) = (span / MICROS_PER_DAY, span % MICROS_PER_DAY);
    let is_date = field.data_type() == &DataType::Date32;
    let zone = match field.data_type() {
        // Below a day it is time that passes, whatever clocks do.
        DataType::Timestamp(_, Some(_)) if (months, days) != (0, 0) => zone_of(&call.args[5])?,
        _ => time::Zone::Fixed(0),
    };
    let local = |index: usize, row: usize| -> Result<Option<i64>> {
        let array = &call.args[index];
        if array.is_null(row) {
            return Ok(None);
        }
        Ok(match is_date {
            true => Some(i64::from(call.typed::<Date32Array>(index)?.value(row)) * MICROS_PER_DAY),
            false => zone.to_local(call.typed::<TimestampMicrosecondArray>(index)?.value(row)),
        })
    };
    let forward = months > 0 || days > 0 || micros > 0;
    let (mut values, mut offsets, mut valid) = (vec![], vec![0_i32], vec![]);
    for row in 0..call.rows {
        let (Some(start), Some(stop)) = (local(0, row)?, local(1, row)?) else {
            offsets.push(values.len() as i32);
            valid.push(false);
            continue;
        };
        let wrong = (months, days, micros) == (0, 0, 0)
            || if forward { start > stop } else { start < stop };
        if wrong && start != stop {
            return exec_err!("INVALID_PARAMETER_VALUE: sequence by this interval has no end");
        }
        for step in 0..MOST_ELEMENTS {
            let date = time::add_months(start.div_euclid(MICROS_PER_DAY), months * step);
            let moved = date
                .and_then(|date| date.checked_add(days * step)?.checked_mul(MICROS_PER_DAY))
                .and_then(|date| {
                    date.checked_add(start.rem_euclid(MICROS_PER_DAY))?
                        .checked_add(micros * step)
                });
            let Some(moved) = moved else { break };
            if (forward && moved > stop) || (!forward && moved < stop) {
                break;
            }
            values.push(match is_date {
                true => moved.div_euclid(MICROS_PER_DAY),
                false => zone.to_instant(moved).unwrap_or(moved),
            });
            if (months, days, micros) == (0, 0, 0) {
                break;
            }
        }
        offsets.push(values.len() as i32);
        valid.push(true);
    }
    let values: ArrayRef = Arc::new(Int64Array::from(values));
    let values = arrow_cast(
        &arrow_cast(&values, &numeric(field.data_type()))?,
        field.data_type(),
    )?;
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::new(offsets.into()),
        values,
        Some(NullBuffer::from(valid)),
    )?))
}
