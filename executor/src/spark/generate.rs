//! Generators: each makes a list of rows (structs) of its arguments, which the planner takes apart.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, ListArray, MapArray, StringBuilder,
    StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use super::relations::rows_of;
use super::scalar::{Call, Definition, Params, Returns};
use super::{json, types};

/// Most rows that `range` makes.
const MOST_RANGE_ROWS: i64 = 10_000_000;

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "spark_explode",
        params: Params::Custom(collection),
        returns: Returns::Custom(|given, _| exploded(given, false)),
        evaluate: |call| explode(call, false),
    },
    Definition {
        name: "spark_posexplode",
        params: Params::Custom(collection),
        returns: Returns::Custom(|given, _| exploded(given, true)),
        evaluate: |call| explode(call, true),
    },
    Definition {
        name: "spark_inline",
        params: Params::Custom(structs),
        returns: Returns::Custom(|given, _| Ok(given.first().cloned().unwrap_or(DataType::Null))),
        evaluate: |call| Ok(Arc::clone(&call.args[0])),
    },
    Definition {
        name: "spark_stack",
        params: Params::Custom(stack_params),
        returns: Returns::Custom(stack_type),
        evaluate: stack,
    },
    Definition {
        name: "spark_json_tuple",
        params: Params::Custom(|given| Ok(vec![DataType::Utf8; given.len()])),
        returns: Returns::Custom(|given, _| {
            let names = (0..given.len().saturating_sub(1)).map(|at| format!("c{at}"));
            Ok(rows_of(names.map(|name| (name, DataType::Utf8)).collect()))
        }),
        evaluate: json_tuple,
    },
    Definition {
        name: "spark_range",
        params: Params::Custom(|given| Ok(vec![DataType::Int64; given.len()])),
        returns: Returns::Custom(|_, _| Ok(rows_of(vec![("id".into(), DataType::Int64)]))),
        evaluate: range,
    },
];

fn collection(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [DataType::List(_) | DataType::Map(..)] => Ok(given.to_vec()),
        [other] => plan_err!(
            "DATATYPE_MISMATCH: explode takes an ARRAY or a MAP, not {}",
            types::name(other)
        ),
        _ => plan_err!("explode takes one argument"),
    }
}

fn structs(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [DataType::List(field)] if matches!(field.data_type(), DataType::Struct(_)) => {
            Ok(given.to_vec())
        }
        [other] => plan_err!(
            "DATATYPE_MISMATCH: inline takes an ARRAY of STRUCT, not {}",
            types::name(other)
        ),
        _ => plan_err!("inline takes one argument"),
    }
}

fn exploded(given: &[DataType], with_position: bool) -> Result<DataType> {
    let mut columns = vec![];
    if with_position {
        columns.push(("pos".to_string(), DataType::Int32));
    }
    match given.first() {
        Some(DataType::List(field)) => columns.push(("col".into(), field.data_type().clone())),
        Some(other) => match types::map_entry(other) {
            Some((key, value)) => {
                columns.push(("key".into(), key));
                columns.push(("value".into(), value));
            }
            None => {
                return plan_err!(
                    "DATATYPE_MISMATCH: explode takes an ARRAY or a MAP, not {}",
                    types::name(other)
                );
            }
        },
        None => return plan_err!("explode takes one argument"),
    }
    Ok(rows_of(columns))
}

/// Lists of rows with these columns.
fn lists(
    call: &Call,
    offsets: OffsetBuffer<i32>,
    columns: Vec<ArrayRef>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let DataType::List(element) = call.return_type else {
        return plan_err!("rows were planned");
    };
    let DataType::Struct(fields) = element.data_type() else {
        return plan_err!("rows were planned");
    };
    let rows = match columns.first().map(|column| column.len()) {
        Some(_) => StructArray::try_new(fields.clone(), columns, None)?,
        None => return plan_err!("rows without columns"),
    };
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(element),
        offsets,
        Arc::new(rows),
        nulls,
    )?))
}

fn explode(call: &Call, with_position: bool) -> Result<ArrayRef> {
    let array = &call.args[0];
    let (offsets, nulls, mut columns) = if let Some(lists) = array.as_list_opt::<i32>() {
        (
            lists.offsets().clone(),
            lists.nulls().cloned(),
            vec![Arc::clone(lists.values())],
        )
    } else if let Some(maps) = array.as_any().downcast_ref::<MapArray>() {
        (
            maps.offsets().clone(),
            maps.nulls().cloned(),
            vec![Arc::clone(maps.keys()), Arc::clone(maps.values())],
        )
    } else {
        return exec_err!("explode of {} was not planned", array.data_type());
    };
    if with_position {
        let length = columns[0].len();
        let mut positions = vec![0_i32; length];
        for pair in offsets.windows(2) {
            for (position, slot) in (pair[0]..pair[1]).enumerate() {
                positions[slot as usize] = position as i32;
            }
        }
        columns.insert(0, Arc::new(Int32Array::from(positions)));
    }
    lists(call, offsets, columns, nulls)
}

/// `stack(n, v...)`: the values of a column have one type.
fn stack_params(given: &[DataType]) -> Result<Vec<DataType>> {
    // How many rows there are is a value; the types of a column are checked when it is known.
    Ok(given.to_vec())
}

fn stack_rows(given: usize, literals: &[Option<&ScalarValue>]) -> Result<(usize, usize)> {
    let rows = match literals.first().copied().flatten() {
        Some(ScalarValue::Int32(Some(rows))) if *rows > 0 => *rows as usize,
        Some(ScalarValue::Int64(Some(rows))) if *rows > 0 => *rows as usize,
        _ => return plan_err!("the first argument of stack is a positive integer literal"),
    };
    Ok((rows, (given - 1).div_ceil(rows)))
}

fn stack_type(given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let (_, width) = stack_rows(given.len(), literals)?;
    let mut columns = vec![];
    for column in 0..width {
        let mut common = DataType::Null;
        for value in given[1..].iter().skip(column).step_by(width) {
            common = match (&common, value) {
                (DataType::Null, value) => value.clone(),
                (common, value) if common == value || value == &DataType::Null => common.clone(),
                (common, value) => {
                    return plan_err!(
                        "DATATYPE_MISMATCH: {} and {} in one column of stack; cast them to one type",
                        types::name(common),
                        types::name(value)
                    );
                }
            };
        }
        columns.push((format!("col{column}"), common));
    }
    Ok(rows_of(columns))
}

fn stack(call: &Call) -> Result<ArrayRef> {
    let DataType::List(element) = call.return_type else {
        return plan_err!("rows were planned");
    };
    let DataType::Struct(fields) = element.data_type() else {
        return plan_err!("rows were planned");
    };
    let width = fields.len();
    let values = &call.args[1..];
    let rows = values.len().div_ceil(width.max(1));
    let mut columns = vec![];
    for (column, field) in fields.iter().enumerate() {
        let nulls = datafusion::arrow::array::new_null_array(field.data_type(), call.rows);
        let parts: Vec<ArrayRef> = (0..rows)
            .map(|row| match values.get(row * width + column) {
                Some(array) if array.data_type() == field.data_type() => Arc::clone(array),
                _ => Arc::clone(&nulls),
            })
            .collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        let picks: Vec<(usize, usize)> = (0..call.rows)
            .flat_map(|row| (0..rows).map(move |part| (part, row)))
            .collect();
        columns.push(interleave(&parts, &picks)?);
    }
    let offsets = OffsetBuffer::from_repeated_length(rows, call.rows);
    lists(call, offsets, columns, None)
}

fn json_tuple(call: &Call) -> Result<ArrayRef> {
    let documents = call.text(0)?;
    let mut columns: Vec<StringBuilder> =
        (1..call.args.len()).map(|_| StringBuilder::new()).collect();
    for row in 0..call.rows {
        let fields = match documents.is_valid(row) {
            true => json::top_level(documents.value(row)),
            false => None,
        };
        for (at, column) in columns.iter_mut().enumerate() {
            let names = call.text(at + 1)?;
            let found = match (&fields, names.is_valid(row)) {
                (Some(fields), true) => fields.text_of(names.value(row)),
                _ => None,
            };
            column.append_option(found);
        }
    }
    let columns = columns
        .into_iter()
        .map(|mut column| Arc::new(column.finish()) as ArrayRef)
        .collect();
    let offsets = OffsetBuffer::from_repeated_length(1, call.rows);
    lists(call, offsets, columns, None)
}

fn range(call: &Call) -> Result<ArrayRef> {
    let argument = |index: usize| -> Result<i64> { Ok(call.typed::<Int64Array>(index)?.value(0)) };
    let (start, end, step) = match call.args.len() {
        1 => (0, argument(0)?, 1),
        2 => (argument(0)?, argument(1)?, 1),
        _ => (argument(0)?, argument(1)?, argument(2)?),
    };
    if step == 0 {
        return exec_err!("the step of range is zero");
    }
    let span = (i128::from(end) - i128::from(start)).max(0) * i128::from(step.signum());
    let span = match step > 0 {
        true => span,
        false => (i128::from(start) - i128::from(end)).max(0),
    };
    let count = (span + i128::from(step.unsigned_abs()) - 1) / i128::from(step.unsigned_abs());
    if count > i128::from(MOST_RANGE_ROWS) {
        return exec_err!("range makes {count} rows, of which {MOST_RANGE_ROWS} are allowed");
    }
    let values: Int64Array = (0..count as i64)
        .map(|at| Some(start + at * step))
        .collect();
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(values.len(), call.rows.min(1)));
    lists(call, offsets, vec![Arc::new(values)], None)
}
