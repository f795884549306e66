//! Functions that make arrays of arrays: sets, order, parts. Elements are compared as Spark
//! compares them: NaN is one value, the zeros are equal, nulls count as one where sets are made.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, ListArray, StructArray,
    UInt64Array, make_comparator, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{cast as arrow_cast, interleave, take};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use super::floats::normalize;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::types::{self, list_of};

macro_rules! entry {
    ($name:literal, $params:expr, $returns:expr, $evaluate:expr) => {
        Definition {
            name: $name,
            params: Params::Custom($params),
            returns: $returns,
            evaluate: $evaluate,
        }
    };
}

const SAME: Returns = Returns::Of(Param::Any);
const ELEMENT: Returns = Returns::Custom(|given, _| Ok(element(given)?.clone()));

/// Longest array that `sequence` and `array_repeat` make.
pub(super) const MOST_ELEMENTS: i64 = 100_000_000;

pub(super) static FUNCTIONS: &[Definition] = &[
    entry!("array_append", with_element, SAME, |call| added(call, true)),
    entry!("array_prepend", with_element, SAME, |call| added(
        call, false
    )),
    entry!("array_insert", insert_params, SAME, insert),
    entry!("array_remove", with_element, SAME, remove),
    entry!(
        "array_position",
        with_element,
        Returns::Of(Param::Long),
        position
    ),
    entry!(
        "array_repeat",
        repeat_params,
        Returns::Custom(|given, _| { Ok(list_of(given.first().unwrap_or(&DataType::Null))) }),
        repeat
    ),
    entry!("array_distinct", one_list, SAME, distinct),
    entry!("array_union", like_lists, SAME, |call| set(
        call,
        Set::Union
    )),
    entry!("array_intersect", like_lists, SAME, |call| set(
        call,
        Set::Intersect
    )),
    entry!("array_except", like_lists, SAME, |call| set(
        call,
        Set::Except
    )),
    entry!(
        "arrays_overlap",
        like_lists,
        Returns::Of(Param::Boolean),
        overlap
    ),
    entry!("array_compact", one_list, SAME, compact),
    entry!("array_max", one_list, ELEMENT, |call| extreme(
        call,
        Ordering::Greater
    )),
    entry!("array_min", one_list, ELEMENT, |call| extreme(
        call,
        Ordering::Less
    )),
    entry!("sort_array", sort_params, SAME, |call| sort(call, true)),
    entry!("spark_array_sort", one_list, SAME, |call| sort(call, false)),
    entry!("flatten", nested_list, ELEMENT, flatten),
    entry!("slice", slice_params, SAME, slice),
    entry!("spark_arrays_zip", as_given, Returns::Custom(zip_type), zip),
];

/// Taken as they are.
fn as_given(given: &[DataType]) -> Result<Vec<DataType>> {
    Ok(given.to_vec())
}

fn element(given: &[DataType]) -> Result<&DataType> {
    match given.first() {
        Some(DataType::List(field)) => Ok(field.data_type()),
        Some(other) => plan_err!(
            "DATATYPE_MISMATCH: an ARRAY is needed, not {}",
            types::name(other)
        ),
        None => plan_err!("WRONG_NUM_ARGS: an array is needed"),
    }
}

fn one_list(given: &[DataType]) -> Result<Vec<DataType>> {
    element(given)?;
    Ok(given.to_vec())
}

fn nested_list(given: &[DataType]) -> Result<Vec<DataType>> {
    match element(given)? {
        DataType::List(_) => Ok(given.to_vec()),
        other => plan_err!(
            "DATATYPE_MISMATCH: flatten takes an ARRAY of ARRAY, not of {}",
            types::name(other)
        ),
    }
}

/// An array and a value that may be in it.
fn with_element(given: &[DataType]) -> Result<Vec<DataType>> {
    let inner = element(given)?;
    let Some(value) = given.get(1) else {
        return plan_err!("WRONG_NUM_ARGS: a value is needed beside the array");
    };
    match meeting(inner, value) {
        Some(common) => Ok(vec![list_of(&common), common]),
        None => plan_err!(
            "DATATYPE_MISMATCH: {} is no element of {}",
            types::name(value),
            types::name(&given[0])
        ),
    }
}

/// The type in which elements of two types can be in one array: text and others do not mix.
fn meeting(left: &DataType, right: &DataType) -> Option<DataType> {
    let (left, right) = (types::plain_text(left), types::plain_text(right));
    let text = |t: &DataType| t == &DataType::Utf8;
    if left == right || right == DataType::Null {
        return Some(left);
    }
    if left == DataType::Null {
        return Some(right);
    }
    (text(&left) == text(&right))
        .then(|| types::common(&left, &right))
        .flatten()
}

fn insert_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let [list, position, value] = given else {
        return plan_err!("WRONG_NUM_ARGS: array_insert takes an array, a position and a value");
    };
    let both = with_element(&[list.clone(), value.clone()])?;
    if !types::is_integer(position) || position == &DataType::Int64 {
        return plan_err!(
            "DATATYPE_MISMATCH: the position in array_insert is {}, not INT",
            types::name(position)
        );
    }
    Ok(vec![both[0].clone(), DataType::Int32, both[1].clone()])
}

fn repeat_params(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [
            value,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Utf8 | DataType::Null,
        ] => Ok(vec![types::plain_text(value), DataType::Int32]),
        _ => plan_err!("DATATYPE_MISMATCH: array_repeat takes a value and an INT"),
    }
}

pub(super) fn like_lists(given: &[DataType]) -> Result<Vec<DataType>> {
    let mut common = element(given)?.clone();
    for other in &given[1..] {
        let other = match other {
            DataType::List(field) => field.data_type(),
            other => {
                return plan_err!(
                    "DATATYPE_MISMATCH: an ARRAY is needed, not {}",
                    types::name(other)
                );
            }
        };
        common = match meeting(&common, other) {
            Some(common) => common,
            None => {
                return plan_err!(
                    "DATATYPE_MISMATCH: arrays of {} and of {} have no common type",
                    types::name(&common),
                    types::name(other)
                );
            }
        };
    }
    Ok(vec![list_of(&common); given.len()])
}

fn sort_params(given: &[DataType]) -> Result<Vec<DataType>> {
    element(given)?;
    match given {
        [list] => Ok(vec![list.clone()]),
        [list, DataType::Boolean] => Ok(vec![list.clone(), DataType::Boolean]),
        _ => plan_err!("DATATYPE_MISMATCH: sort_array takes an array and a BOOLEAN"),
    }
}

fn slice_params(given: &[DataType]) -> Result<Vec<DataType>> {
    element(given)?;
    let fits = |t: &DataType| {
        matches!(
            t,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null
        )
    };
    match given {
        [list, start, length] if fits(start) && fits(length) => {
            Ok(vec![list.clone(), DataType::Int32, DataType::Int32])
        }
        _ => plan_err!("DATATYPE_MISMATCH: slice takes an array and two INTs"),
    }
}

/// Elements picked for each row from some arrays, one after the other.
struct Picks {
    picks: Vec<(usize, usize)>,
    offsets: Vec<i32>,
    valid: Vec<bool>,
}

impl Picks {
    fn new(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            picks: vec![],
            offsets,
            valid: Vec::with_capacity(rows),
        }
    }

    fn pick(&mut self, array: usize, at: usize) {
        self.picks.push((array, at));
    }

    fn end(&mut self, valid: bool) {
        self.offsets.push(self.picks.len() as i32);
        self.valid.push(valid);
    }

    fn finish(self, call: &Call, pool: &[&ArrayRef]) -> Result<ArrayRef> {
        let DataType::List(field) = call.return_type else {
            return plan_err!("an array was planned");
        };
        if i32::try_from(self.picks.len()).is_err() {
            return exec_err!("the arrays of one batch have more elements than can be held");
        }
        let pool = pool
            .iter()
            .map(|array| match array.data_type() == field.data_type() {
                true => Ok(Arc::clone(array)),
                false => arrow_cast(array, field.data_type()),
            })
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let pool: Vec<&dyn Array> = pool.iter().map(|array| array.as_ref()).collect();
        let values = match self.picks.is_empty() {
            true => new_null_array(field.data_type(), 0),
            false => interleave(&pool, &self.picks)?,
        };
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::new(self.offsets.into()),
            values,
            Some(NullBuffer::from(self.valid)),
        )?))
    }
}

/// The slots of a row's elements.
fn range(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let start = lists.value_offsets()[row] as usize;
    start..start + lists.value_length(row) as usize
}

/// Compares slots of two arrays, nulls being equal and least.
type Compare = dyn Fn(usize, usize) -> Ordering;

fn comparator(left: &ArrayRef, right: &ArrayRef) -> Result<Box<Compare>> {
    let (left, right) = (normalize(left, true), normalize(right, true));
    let compare = make_comparator(&left, &right, Default::default())?;
    Ok(Box::new(compare))
}

fn added(call: &Call, behind: bool) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        if lists.is_valid(row) {
            if !behind {
                picks.pick(1, row);
            }
            range(lists, row).for_each(|at| picks.pick(0, at));
            if behind {
                picks.pick(1, row);
            }
        }
        picks.end(lists.is_valid(row));
    }
    picks.finish(call, &[lists.values(), &call.args[1]])
}

fn insert(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let positions = call.typed::<Int32Array>(1)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.is_valid(row) && positions.is_valid(row);
        if valid {
            let elements = range(lists, row);
            let length = elements.len();
            let position = i64::from(positions.value(row));
            if position == 0 {
                return exec_err!("INVALID_INDEX_OF_ZERO: array_insert counts from 1");
            }
            if position.unsigned_abs() > MOST_ELEMENTS as u64 {
                return exec_err!("COLLECTION_SIZE_LIMIT_EXCEEDED: array_insert at {position}");
            }
            if position < 0 && position.unsigned_abs() as usize > length {
                picks.pick(1, row);
                let gap = position.unsigned_abs() as usize - length - 1;
                (0..=gap).skip(1).for_each(|_| picks.pick(2, 0));
                elements.for_each(|at| picks.pick(0, at));
            } else {
                let at = match position > 0 {
                    true => position as usize - 1,
                    false => (length as i64 + position + 1) as usize,
                };
                for slot in elements.clone().take(at) {
                    picks.pick(0, slot);
                }
                (length..at).for_each(|_| picks.pick(2, 0));
                picks.pick(1, row);
                for slot in elements.skip(at) {
                    picks.pick(0, slot);
                }
            }
        }
        picks.end(valid);
    }
    let null = new_null_array(lists.values().data_type(), 1);
    picks.finish(call, &[lists.values(), &call.args[2], &null])
}

fn remove(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let wanted = &call.args[1];
    let compare = comparator(lists.values(), wanted)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.is_valid(row) && wanted.is_valid(row);
        if valid {
            for at in range(lists, row) {
                if lists.values().is_null(at) || compare(at, row).is_ne() {
                    picks.pick(0, at);
                }
            }
        }
        picks.end(valid);
    }
    picks.finish(call, &[lists.values()])
}

fn position(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let wanted = &call.args[1];
    let compare = comparator(lists.values(), wanted)?;
    let positions = (0..call.rows).map(|row| {
        if lists.is_null(row) || wanted.is_null(row) {
            return None;
        }
        let found = range(lists, row)
            .position(|at| lists.values().is_valid(at) && compare(at, row).is_eq());
        Some(found.map_or(0, |at| at as i64 + 1))
    });
    Ok(Arc::new(positions.collect::<Int64Array>()))
}

fn repeat(call: &Call) -> Result<ArrayRef> {
    let counts = call.typed::<Int32Array>(1)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let count = if counts.is_valid(row) {
            counts.value(row)
        } else {
            0
        };
        if i64::from(count) > MOST_ELEMENTS {
            return exec_err!("COLLECTION_SIZE_LIMIT_EXCEEDED: an array of {count} elements");
        }
        (0..count).for_each(|_| picks.pick(0, row));
        picks.end(counts.is_valid(row));
    }
    picks.finish(call, &[&call.args[0]])
}

/// Adds the slots of `found` that equal none picked before.
fn add_distinct(
    picked: &mut Vec<(usize, usize)>,
    array: usize,
    slots: impl Iterator<Item = usize>,
    equal: impl Fn((usize, usize), (usize, usize)) -> bool,
) {
    for at in slots {
        if !picked.iter().any(|known| equal(*known, (array, at))) {
            picked.push((array, at));
        }
    }
}

fn distinct(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let compare = comparator(lists.values(), lists.values())?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        if lists.is_valid(row) {
            let mut picked = vec![];
            add_distinct(&mut picked, 0, range(lists, row), |one, other| {
                compare(one.1, other.1).is_eq()
            });
            picked
                .into_iter()
                .for_each(|(array, at)| picks.pick(array, at));
        }
        picks.end(lists.is_valid(row));
    }
    picks.finish(call, &[lists.values()])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Union,
    Intersect,
    Except,
}

fn set(call: &Call, kind: Set) -> Result<ArrayRef> {
    let (left, right) = (call.typed::<ListArray>(0)?, call.typed::<ListArray>(1)?);
    let arrays = [left.values(), right.values()];
    let compares = [
        [
            comparator(arrays[0], arrays[0])?,
            comparator(arrays[0], arrays[1])?,
        ],
        [
            comparator(arrays[1], arrays[0])?,
            comparator(arrays[1], arrays[1])?,
        ],
    ];
    let equal = |one: (usize, usize), other: (usize, usize)| {
        compares[one.0][other.0](one.1, other.1).is_eq()
    };
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = left.is_valid(row) && right.is_valid(row);
        if valid {
            let mut picked = vec![];
            let in_right = |at: usize| range(right, row).any(|other| equal((0, at), (1, other)));
            match kind {
                Set::Union => {
                    add_distinct(&mut picked, 0, range(left, row), equal);
                    add_distinct(&mut picked, 1, range(right, row), equal);
                }
                Set::Intersect => {
                    let slots = range(left, row).filter(|at| in_right(*at));
                    add_distinct(&mut picked, 0, slots, equal);
                }
                Set::Except => {
                    let slots = range(left, row).filter(|at| !in_right(*at));
                    add_distinct(&mut picked, 0, slots, equal);
                }
            }
            picked
                .into_iter()
                .for_each(|(array, at)| picks.pick(array, at));
        }
        picks.end(valid);
    }
    picks.finish(call, &arrays)
}

fn overlap(call: &Call) -> Result<ArrayRef> {
    let (left, right) = (call.typed::<ListArray>(0)?, call.typed::<ListArray>(1)?);
    let compare = comparator(left.values(), right.values())?;
    let found = (0..call.rows).map(|row| {
        if left.is_null(row) || right.is_null(row) {
            return None;
        }
        let (one, other) = (range(left, row), range(right, row));
        let common = one.clone().any(|a| {
            left.values().is_valid(a)
                && other
                    .clone()
                    .any(|b| right.values().is_valid(b) && compare(a, b).is_eq())
        });
        let nulls = one.clone().any(|a| left.values().is_null(a))
            || other.clone().any(|b| right.values().is_null(b));
        match common {
            true => Some(true),
            false if nulls && !one.is_empty() && !other.is_empty() => None,
            false => Some(false),
        }
    });
    Ok(Arc::new(found.collect::<BooleanArray>()))
}

fn compact(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        if lists.is_valid(row) {
            range(lists, row)
                .filter(|at| lists.values().is_valid(*at))
                .for_each(|at| picks.pick(0, at));
        }
        picks.end(lists.is_valid(row));
    }
    picks.finish(call, &[lists.values()])
}

fn extreme(call: &Call, wanted: Ordering) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let compare = comparator(lists.values(), lists.values())?;
    let picks: UInt64Array = (0..call.rows)
        .map(|row| {
            let slots = match lists.is_valid(row) {
                true => range(lists, row),
                false => 0..0,
            };
            slots
                .filter(|at| lists.values().is_valid(*at))
                .reduce(|best, at| {
                    if compare(at, best) == wanted {
                        at
                    } else {
                        best
                    }
                })
                .map(|at| at as u64)
        })
        .collect();
    Ok(take(lists.values(), &picks, None)?)
}

/// `sort_array` puts nulls first ascending and last descending, `array_sort` always last.
fn sort(call: &Call, nulls_by_order: bool) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let ascending = call.args.get(1).map(|flags| flags.as_boolean());
    let compare = comparator(lists.values(), lists.values())?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.is_valid(row) && ascending.is_none_or(|flags| flags.is_valid(row));
        if valid {
            let up = ascending.is_none_or(|flags| flags.value(row));
            let (nulls, mut set): (Vec<usize>, Vec<usize>) =
                range(lists, row).partition(|at| lists.values().is_null(*at));
            match up {
                true => set.sort_by(|a, b| compare(*a, *b)),
                false => set.sort_by(|a, b| compare(*b, *a)),
            }
            let (first, last) = match nulls_by_order && up {
                true => (nulls, set),
                false => (set, nulls),
            };
            first
                .into_iter()
                .chain(last)
                .for_each(|at| picks.pick(0, at));
        }
        picks.end(valid);
    }
    picks.finish(call, &[lists.values()])
}

fn flatten(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let inner = lists.values().as_list::<i32>();
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.is_valid(row) && range(lists, row).all(|at| inner.is_valid(at));
        if valid {
            for at in range(lists, row) {
                range(inner, at).for_each(|slot| picks.pick(0, slot));
            }
        }
        picks.end(valid);
    }
    picks.finish(call, &[inner.values()])
}

fn slice(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let (starts, lengths) = (call.typed::<Int32Array>(1)?, call.typed::<Int32Array>(2)?);
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.is_valid(row) && starts.is_valid(row) && lengths.is_valid(row);
        if valid {
            let (start, length) = (i64::from(starts.value(row)), lengths.value(row));
            if start == 0 {
                return exec_err!("INVALID_PARAMETER_VALUE.START: slice counts from 1");
            }
            if length < 0 {
                return exec_err!("INVALID_PARAMETER_VALUE.LENGTH: slice of {length} elements");
            }
            let slots = range(lists, row);
            let skipped = match start > 0 {
                true => start - 1,
                false => slots.len() as i64 + start,
            };
            if let Ok(skipped) = usize::try_from(skipped) {
                let slots = slots.skip(skipped).take(length as usize);
                slots.for_each(|at| picks.pick(0, at));
            }
        }
        picks.end(valid);
    }
    picks.finish(call, &[lists.values()])
}

pub(super) fn concat(call: &Call) -> Result<ArrayRef> {
    let lists = (0..call.args.len())
        .map(|index| call.typed::<ListArray>(index))
        .collect::<Result<Vec<_>>>()?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        let valid = lists.iter().all(|lists| lists.is_valid(row));
        if valid {
            for (index, lists) in lists.iter().enumerate() {
                range(lists, row).for_each(|at| picks.pick(index, at));
            }
        }
        picks.end(valid);
    }
    let pool: Vec<&ArrayRef> = lists.iter().map(|lists| lists.values()).collect();
    picks.finish(call, &pool)
}

pub(super) fn reverse(call: &Call) -> Result<ArrayRef> {
    let lists = call.typed::<ListArray>(0)?;
    let mut picks = Picks::new(call.rows);
    for row in 0..call.rows {
        if lists.is_valid(row) {
            range(lists, row).rev().for_each(|at| picks.pick(0, at));
        }
        picks.end(lists.is_valid(row));
    }
    picks.finish(call, &[lists.values()])
}

/// Names of the fields, then the arrays.
fn zip_type(given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let width = given.len() / 2;
    let mut fields = vec![];
    for index in 0..width {
        let name = literals
            .get(index)
            .copied()
            .flatten()
            .and_then(|value| value.try_as_str().flatten().map(str::to_string))
            .unwrap_or_else(|| index.to_string());
        let inner = element(&given[width + index..])?;
        fields.push(Field::new(name, inner.clone(), true));
    }
    Ok(list_of(&DataType::Struct(fields.into())))
}

fn zip(call: &Call) -> Result<ArrayRef> {
    let DataType::List(field) = call.return_type else {
        return plan_err!("an array was planned");
    };
    let DataType::Struct(fields) = field.data_type() else {
        return plan_err!("an array of structs was planned");
    };
    let width = fields.len();
    let lists = (width..2 * width)
        .map(|index| call.typed::<ListArray>(index))
        .collect::<Result<Vec<_>>>()?;
    let (mut offsets, mut valid) = (vec![0_i32], vec![]);
    let mut picks: Vec<Vec<Option<u64>>> = vec![vec![]; width];
    for row in 0..call.rows {
        let all = lists.iter().all(|lists| lists.is_valid(row));
        let longest = match all {
            true => lists
                .iter()
                .map(|lists| range(lists, row).len())
                .max()
                .unwrap_or(0),
            false => 0,
        };
        for (picks, lists) in picks.iter_mut().zip(&lists) {
            let slots = range(lists, row);
            picks.extend(
                (0..longest).map(|at| (at < slots.len()).then(|| (slots.start + at) as u64)),
            );
        }
        offsets.push(picks.first().map_or(0, |picks| picks.len()) as i32);
        valid.push(all);
    }
    let columns = picks
        .into_iter()
        .zip(&lists)
        .map(|(picks, lists)| Ok(take(lists.values(), &UInt64Array::from(picks), None)?))
        .collect::<Result<Vec<_>>>()?;
    let rows = StructArray::try_new(fields.clone(), columns, None)?;
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::new(offsets.into()),
        Arc::new(rows),
        Some(NullBuffer::from(valid)),
    )?))
}
