//! Operations on the bits of integers.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{DataType, Int8Type, Int16Type, Int32Type, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};

use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "shiftleft",
        params: Params::Custom(shift_params),
        returns: Returns::Of(Param::Any),
        evaluate: |call| shift(call, |v, n| v.wrapping_shl(n), |v, n| v.wrapping_shl(n)),
    },
    Definition {
        name: "shiftright",
        params: Params::Custom(shift_params),
        returns: Returns::Of(Param::Any),
        evaluate: |call| shift(call, |v, n| v.wrapping_shr(n), |v, n| v.wrapping_shr(n)),
    },
    Definition {
        name: "shiftrightunsigned",
        params: Params::Custom(shift_params),
        returns: Returns::Of(Param::Any),
        evaluate: |call| {
            shift(
                call,
                |v, n| (v as u32).wrapping_shr(n) as i32,
                |v, n| (v as u64).wrapping_shr(n) as i64,
            )
        },
    },
    Definition {
        name: "spark_bit_not",
        params: Params::Custom(one_integer),
        returns: Returns::Of(Param::Any),
        evaluate: not,
    },
    // The optimizer makes 0 of `x ^ x`, though x may be null.
    Definition {
        name: "spark_bit_xor",
        params: Params::Custom(two_integers),
        returns: Returns::Of(Param::Any),
        evaluate: xor,
    },
    Definition {
        name: "bit_count",
        params: Params::Custom(|given| match given {
            [DataType::Boolean] => Ok(vec![DataType::Int64]),
            [integer] if types::is_integer(integer) || integer == &DataType::Null => {
                Ok(vec![DataType::Int64])
            }
            _ => plan_err!("DATATYPE_MISMATCH: bit_count takes an integer or a BOOLEAN"),
        }),
        returns: Returns::Of(Param::Int),
        evaluate: |call| {
            let values = call.args[0].as_primitive::<Int64Type>().iter();
            let counts = values.map(|value| value.map(|value| value.count_ones() as i32));
            Ok(Arc::new(counts.collect::<Int32Array>()))
        },
    },
    Definition {
        name: "bit_get",
        params: Params::Custom(|given| match given {
            [value, position]
                if (types::is_integer(value) || value == &DataType::Null)
                    && (types::is_integer(position) && position != &DataType::Int64) =>
            {
                let value = match value {
                    DataType::Null => DataType::Int32,
                    other => other.clone(),
                };
                Ok(vec![value, DataType::Int32])
            }
            _ => plan_err!("DATATYPE_MISMATCH: bit_get takes an integer and an INT"),
        }),
        returns: Returns::Custom(|_, _| Ok(DataType::Int8)),
        evaluate: bit_get,
    },
];

fn one_integer(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [DataType::Null] => Ok(vec![DataType::Int32]),
        [integer] if types::is_integer(integer) => Ok(given.to_vec()),
        [other, ..] => plan_err!(
            "DATATYPE_MISMATCH: an integer is needed, not {}",
            types::name(other)
        ),
        [] => plan_err!("WRONG_NUM_ARGS: an integer is needed"),
    }
}

fn shift_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let small = |t: &DataType| {
        matches!(
            t,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null
        )
    };
    match given {
        [DataType::Int64, by] if small(by) => Ok(vec![DataType::Int64, DataType::Int32]),
        [value, by] if small(value) && small(by) => Ok(vec![DataType::Int32, DataType::Int32]),
        _ => plan_err!("DATATYPE_MISMATCH: a shift takes an INT or BIGINT and an INT"),
    }
}

fn shift(call: &Call, ints: fn(i32, u32) -> i32, longs: fn(i64, u32) -> i64) -> Result<ArrayRef> {
    let by = call.typed::<Int32Array>(1)?;
    let value = &call.args[0];
    Ok(match value.data_type() {
        DataType::Int64 => {
            let pairs = value.as_primitive::<Int64Type>().iter().zip(by.iter());
            let shifted = pairs.map(|(value, by)| Some(longs(value?, by? as u32)));
            Arc::new(shifted.collect::<Int64Array>())
        }
        _ => {
            let pairs = value.as_primitive::<Int32Type>().iter().zip(by.iter());
            let shifted = pairs.map(|(value, by)| Some(ints(value?, by? as u32)));
            Arc::new(shifted.collect::<Int32Array>())
        }
    })
}

fn not(call: &Call) -> Result<ArrayRef> {
    let value = &call.args[0];
    Ok(match value.data_type() {
        DataType::Int8 => Arc::new(
            value
                .as_primitive::<Int8Type>()
                .unary::<_, Int8Type>(|v| !v),
        ),
        DataType::Int16 => Arc::new(
            value
                .as_primitive::<Int16Type>()
                .unary::<_, Int16Type>(|v| !v),
        ),
        DataType::Int32 => Arc::new(
            value
                .as_primitive::<Int32Type>()
                .unary::<_, Int32Type>(|v| !v),
        ),
        _ => Arc::new(
            value
                .as_primitive::<Int64Type>()
                .unary::<_, Int64Type>(|v| !v),
        ),
    })
}

fn two_integers(given: &[DataType]) -> Result<Vec<DataType>> {
    let [left, right] = given else {
        return plan_err!("WRONG_NUM_ARGS: two integers are needed");
    };
    let common = types::common(left, right).filter(types::is_integer);
    match (common, left, right) {
        (Some(common), _, _) => Ok(vec![common; 2]),
        (None, DataType::Null, DataType::Null) => Ok(vec![DataType::Int32; 2]),
        _ => plan_err!(
            "DATATYPE_MISMATCH: {} ^ {}",
            types::name(left),
            types::name(right)
        ),
    }
}

fn xor(call: &Call) -> Result<ArrayRef> {
    let longs =
        |index: usize| -> Result<ArrayRef> { Ok(arrow_cast(&call.args[index], &DataType::Int64)?) };
    let (left, right) = (longs(0)?, longs(1)?);
    let pairs = left
        .as_primitive::<Int64Type>()
        .iter()
        .zip(right.as_primitive::<Int64Type>().iter());
    let values: ArrayRef = Arc::new(pairs.map(|(l, r)| Some(l? ^ r?)).collect::<Int64Array>());
    Ok(arrow_cast(&values, call.return_type)?)
}

fn bit_get(call: &Call) -> Result<ArrayRef> {
    let bits = match call.args[0].data_type() {
        DataType::Int8 => 8,
        DataType::Int16 => 16,
        DataType::Int32 => 32,
        _ => 64,
    };
    let values = arrow_cast(&call.args[0], &DataType::Int64)?;
    let values = values.as_primitive::<Int64Type>();
    let positions = call.typed::<Int32Array>(1)?;
    let found = values.iter().zip(positions.iter()).map(|pair| match pair {
        (Some(value), Some(position)) if (0..bits).contains(&position) => {
            Ok(Some((value >> position & 1) as i8))
        }
        (Some(_), Some(position)) => {
            exec_err!("INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE: bit {position} of {bits}")
        }
        _ => Ok(None),
    });
    let found = found.collect::<Result<datafusion::arrow::array::Int8Array>>()?;
    debug_assert_eq!(found.len(), call.rows);
    Ok(Arc::new(found))
}
