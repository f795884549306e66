//! Functions that take a lambda: it is evaluated over all elements of a batch at once, whatever
//! array they are in; `aggregate` goes through the arrays of a batch in step, one element of each
//! at a time.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray, MapArray, StructArray,
    UInt64Array, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{interleave, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::map::unique_keys;
use super::types::{self, list_of, map_of};

/// Most pairs of elements that are compared for one batch of arrays to sort.
const MOST_COMPARED: usize = 20_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Transform,
    Filter,
    Exists,
    ForAll,
    Aggregate,
    ZipWith,
    MapFilter,
    TransformKeys,
    TransformValues,
    Sort,
}

const ALL: [(&str, Kind); 10] = [
    ("spark_transform", Kind::Transform),
    ("spark_filter", Kind::Filter),
    ("spark_exists", Kind::Exists),
    ("spark_forall", Kind::ForAll),
    ("spark_aggregate", Kind::Aggregate),
    ("spark_zip_with", Kind::ZipWith),
    ("spark_map_filter", Kind::MapFilter),
    ("spark_transform_keys", Kind::TransformKeys),
    ("spark_transform_values", Kind::TransformValues),
    ("spark_sort_by", Kind::Sort),
];

/// The names of all functions of this module.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(name, _)| name)
}

/// All functions of this module.
pub(super) fn functions() -> impl Iterator<Item = Arc<HigherOrderUDF>> {
    ALL.into_iter().map(|(name, kind)| {
        let signature = HigherOrderSignature::variadic_any(Volatility::Immutable);
        Arc::new(HigherOrderUDF::new_from_impl(Lambdas {
            name,
            kind,
            signature,
        }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Lambdas {
    name: &'static str,
    kind: Kind,
    signature: HigherOrderSignature,
}

type Argument<V, L> = ValueOrLambda<V, L>;

fn element(field: &FieldRef) -> Result<DataType> {
    match field.data_type() {
        DataType::List(inner) => Ok(inner.data_type().clone()),
        other => plan_err!(
            "DATATYPE_MISMATCH: an ARRAY is needed, not {}",
            types::name(other)
        ),
    }
}

fn entry(field: &FieldRef) -> Result<(DataType, DataType)> {
    match types::map_entry(field.data_type()) {
        Some(entry) => Ok(entry),
        None => plan_err!(
            "DATATYPE_MISMATCH: a MAP is needed, not {}",
            types::name(field.data_type())
        ),
    }
}

fn parameter(name: &str, data_type: DataType) -> FieldRef {
    Field::new(name, data_type, true).into()
}

fn is_boolean(field: &FieldRef) -> Result<()> {
    match field.data_type() {
        DataType::Boolean | DataType::Null => Ok(()),
        other => plan_err!(
            "DATATYPE_MISMATCH: the lambda gives {}, not BOOLEAN",
            types::name(other)
        ),
    }
}

impl Lambdas {
    fn wrong<T>(&self) -> Result<T> {
        plan_err!(
            "DATATYPE_MISMATCH: {} takes its values first and lambda functions behind them",
            self.name.trim_start_matches("spark_")
        )
    }
}

impl HigherOrderUDFImpl for Lambdas {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn lambda_parameters(
        &self,
        _step: usize,
        fields: &[Argument<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        use ValueOrLambda::{Lambda, Value};
        let index = || parameter("index", DataType::Int32);
        let one = |data_type| parameter("element", data_type);
        let lambdas = match (self.kind, fields) {
            (Kind::Transform | Kind::Filter, [Value(list), Lambda(_)]) => {
                vec![vec![one(element(list)?), index()]]
            }
            (Kind::Exists | Kind::ForAll, [Value(list), Lambda(_)]) => {
                vec![vec![one(element(list)?)]]
            }
            (Kind::Sort, [Value(list), Lambda(_)]) => {
                vec![vec![one(element(list)?), one(element(list)?)]]
            }
            (Kind::Aggregate, [Value(list), Value(start), Lambda(_), rest @ ..]) => {
                let start = one(start.data_type().clone());
                let merge = vec![Arc::clone(&start), one(element(list)?)];
                match rest {
                    [] => vec![merge],
                    [Lambda(_)] => vec![merge, vec![start]],
                    _ => return self.wrong(),
                }
            }
            (Kind::ZipWith, [Value(left), Value(right), Lambda(_)]) => {
                vec![vec![one(element(left)?), one(element(right)?)]]
            }
            (
                Kind::MapFilter | Kind::TransformKeys | Kind::TransformValues,
                [Value(map), Lambda(_)],
            ) => {
                let (key, value) = entry(map)?;
                vec![vec![one(key), one(value)]]
            }
            _ => return self.wrong(),
        };
        Ok(LambdaParametersProgress::Complete(lambdas))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        use ValueOrLambda::{Lambda, Value};
        let data_type = match (self.kind, args.arg_fields) {
            (Kind::Transform, [Value(_), Lambda(made)])
            | (Kind::ZipWith, [Value(_), Value(_), Lambda(made)]) => list_of(made.data_type()),
            (Kind::Filter, [Value(list), Lambda(kept)]) => {
                is_boolean(kept)?;
                list_of(&element(list)?)
            }
            (Kind::Sort, [Value(list), Lambda(order)]) => match order.data_type() {
                DataType::Int32 => list_of(&element(list)?),
                other => {
                    return plan_err!(
                        "DATATYPE_MISMATCH: the lambda of array_sort gives {}, not INT",
                        types::name(other)
                    );
                }
            },
            (Kind::Exists | Kind::ForAll, [Value(_), Lambda(found)]) => {
                is_boolean(found)?;
                DataType::Boolean
            }
            (Kind::Aggregate, [Value(_), Value(start), Lambda(merged), rest @ ..]) => {
                let fits = merged.data_type() == start.data_type()
                    || merged.data_type() == &DataType::Null;
                if !fits {
                    return plan_err!(
                        "DATATYPE_MISMATCH: aggregate starts with {} and goes on with {}; cast the start",
                        types::name(start.data_type()),
                        types::name(merged.data_type())
                    );
                }
                match rest {
                    [Lambda(finished)] => finished.data_type().clone(),
                    _ => start.data_type().clone(),
                }
            }
            (Kind::MapFilter, [Value(map), Lambda(kept)]) => {
                is_boolean(kept)?;
                map.data_type().clone()
            }
            (Kind::TransformKeys, [Value(map), Lambda(made)]) => {
                map_of(made.data_type(), &entry(map)?.1)
            }
            (Kind::TransformValues, [Value(map), Lambda(made)]) => {
                map_of(&entry(map)?.0, made.data_type())
            }
            _ => return self.wrong(),
        };
        Ok(Field::new(self.name, data_type, true).into())
    }

    fn clear_null_values(&self) -> bool {
        false
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut values = vec![];
        let mut lambdas = vec![];
        for argument in &args.args {
            match argument {
                ValueOrLambda::Value(value) => values.push(value.to_array(rows)?),
                ValueOrLambda::Lambda(lambda) => lambdas.push(lambda),
            }
        }
        let to = args.return_field.data_type();
        // An array that is only ever null has no elements to look at.
        if values
            .iter()
            .any(|value| value.data_type() == &DataType::Null)
            && self.kind != Kind::Aggregate
        {
            return Ok(ColumnarValue::Array(new_null_array(to, rows)));
        }
        let result = match (self.kind, values.as_slice(), lambdas.as_slice()) {
            (Kind::Aggregate, [lists, start], [merge, finish @ ..]) => {
                aggregate(lists, start, merge, finish.first().copied(), to)?
            }
            (Kind::ZipWith, [left, right], [lambda]) => zip_with(left, right, lambda, to)?,
            (Kind::Sort, [lists], [lambda]) => sort(lists, lambda, to)?,
            (Kind::MapFilter | Kind::TransformKeys | Kind::TransformValues, [maps], [lambda]) => {
                over_map(self.kind, maps, lambda, to)?
            }
            (kind, [lists], [lambda]) => over_list(kind, lists, lambda, to)?,
            _ => return self.wrong(),
        };
        Ok(ColumnarValue::Array(result))
    }
}

/// The elements of all rows that are not null, one after the other.
struct Flat {
    /// Where each element stands among the list's values.
    slots: Vec<u64>,
    /// The row each element belongs to.
    rows: Vec<u64>,
    /// Where each row's elements begin.
    offsets: Vec<i32>,
    nulls: Option<NullBuffer>,
}

impl Flat {
    fn new(offsets_in: &OffsetBuffer<i32>, nulls: Option<&NullBuffer>) -> Self {
        let (mut slots, mut rows, mut offsets) = (vec![], vec![], vec![0]);
        for row in 0..offsets_in.len() - 1 {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let range = offsets_in[row] as u64..offsets_in[row + 1] as u64;
                rows.extend(range.clone().map(|_| row as u64));
                slots.extend(range);
            }
            offsets.push(slots.len() as i32);
        }
        Self {
            slots,
            rows,
            offsets,
            nulls: nulls.cloned(),
        }
    }

    fn pick(&self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(take(values, &UInt64Array::from(self.slots.clone()), None)?)
    }

    fn positions(&self) -> ArrayRef {
        let positions = self
            .offsets
            .windows(2)
            .flat_map(|pair| 0..pair[1] - pair[0]);
        Arc::new(Int32Array::from_iter_values(positions))
    }

    fn offsets(&self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(self.offsets.clone().into())
    }

    fn call(&self, lambda: &LambdaArgument, args: &[ArrayRef]) -> Result<ArrayRef> {
        called(lambda, args, &self.rows)
    }
}

/// Evaluates a lambda over elements, of which `rows` tells the rows they belong to.
fn called(lambda: &LambdaArgument, args: &[ArrayRef], rows: &[u64]) -> Result<ArrayRef> {
    if rows.is_empty() {
        // Nothing is evaluated, so that nothing can fail; the type is made right by the caller.
        return Ok(new_null_array(&DataType::Null, 0));
    }
    let arguments: Vec<_> = args
        .iter()
        .map(|array| move || Ok(Arc::clone(array)))
        .collect();
    let arguments: Vec<&dyn Fn() -> Result<ArrayRef>> = arguments
        .iter()
        .map(|argument| argument as &dyn Fn() -> Result<ArrayRef>)
        .collect();
    let indices = UInt64Array::from(rows.to_vec());
    let value = lambda.evaluate(&arguments, |captures| {
        captures
            .iter()
            .map(|column| Ok(take(column, &indices, None)?))
            .collect()
    })?;
    value.into_array(rows.len())
}

/// An array of the wanted type where nothing was evaluated.
fn typed(array: ArrayRef, to: &DataType) -> ArrayRef {
    match array.is_empty() || array.data_type() == &DataType::Null {
        true => new_null_array(to, array.len()),
        false => array,
    }
}

fn over_list(
    kind: Kind,
    value: &ArrayRef,
    lambda: &LambdaArgument,
    to: &DataType,
) -> Result<ArrayRef> {
    let lists = value.as_list::<i32>();
    let flat = Flat::new(lists.offsets(), lists.nulls());
    let elements = flat.pick(lists.values())?;
    let made = flat.call(lambda, &[Arc::clone(&elements), flat.positions()])?;
    match (kind, to) {
        (Kind::Transform, DataType::List(field)) => Ok(Arc::new(ListArray::try_new(
            Arc::clone(field),
            flat.offsets(),
            typed(made, field.data_type()),
            flat.nulls.clone(),
        )?)),
        (Kind::Filter, DataType::List(field)) => {
            let (offsets, kept) = kept(&flat, &made);
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(field),
                offsets,
                take(&elements, &kept, None)?,
                flat.nulls.clone(),
            )?))
        }
        _ => {
            let made = typed(made, &DataType::Boolean);
            let made = made.as_boolean();
            let decided = (0..lists.len()).map(|row| {
                if lists.is_null(row) {
                    return None;
                }
                let range = flat.offsets[row] as usize..flat.offsets[row + 1] as usize;
                let deciding = kind == Kind::Exists;
                let is = |at: usize| made.is_valid(at) && made.value(at) == deciding;
                match range.clone().any(is) {
                    true => Some(deciding),
                    false if range.clone().any(|at| made.is_null(at)) => None,
                    false => Some(!deciding),
                }
            });
            Ok(Arc::new(decided.collect::<BooleanArray>()))
        }
    }
}

/// The elements for which a lambda was true.
fn kept(flat: &Flat, made: &ArrayRef) -> (OffsetBuffer<i32>, UInt64Array) {
    let made = typed(Arc::clone(made), &DataType::Boolean);
    let made = made.as_boolean();
    let mut kept = vec![];
    let mut offsets = vec![0];
    for pair in flat.offsets.windows(2) {
        for at in pair[0] as usize..pair[1] as usize {
            if made.is_valid(at) && made.value(at) {
                kept.push(at as u64);
            }
        }
        offsets.push(kept.len() as i32);
    }
    (OffsetBuffer::new(offsets.into()), UInt64Array::from(kept))
}

fn over_map(
    kind: Kind,
    value: &ArrayRef,
    lambda: &LambdaArgument,
    to: &DataType,
) -> Result<ArrayRef> {
    let DataType::Map(entries, _) = to else {
        return plan_err!("a map was planned");
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return plan_err!("a map was planned");
    };
    let maps = value.as_map();
    let flat = Flat::new(maps.offsets(), maps.nulls());
    let (keys, values) = (flat.pick(maps.keys())?, flat.pick(maps.values())?);
    let made = flat.call(lambda, &[Arc::clone(&keys), Arc::clone(&values)])?;
    let (offsets, keys, values) = match kind {
        Kind::MapFilter => {
            let (offsets, kept) = kept(&flat, &made);
            (
                offsets,
                take(&keys, &kept, None)?,
                take(&values, &kept, None)?,
            )
        }
        Kind::TransformKeys => (flat.offsets(), typed(made, fields[0].data_type()), values),
        _ => (flat.offsets(), keys, typed(made, fields[1].data_type())),
    };
    unique_keys(&keys, &offsets)?;
    let rows = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
    Ok(Arc::new(MapArray::try_new(
        Arc::clone(entries),
        offsets,
        rows,
        flat.nulls,
        false,
    )?))
}

fn zip_with(
    left: &ArrayRef,
    right: &ArrayRef,
    lambda: &LambdaArgument,
    to: &DataType,
) -> Result<ArrayRef> {
    let DataType::List(field) = to else {
        return plan_err!("an array was planned");
    };
    let (left, right) = (left.as_list::<i32>(), right.as_list::<i32>());
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let (mut rows, mut offsets) = (vec![], vec![0_i32]);
    let (mut ones, mut others) = (vec![], vec![]);
    for row in 0..left.len() {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            let (one, other) = (left.value_length(row), right.value_length(row));
            for at in 0..one.max(other) {
                let slot = |lists: &ListArray, length: i32| {
                    (at < length).then(|| (lists.value_offsets()[row] + at) as u64)
                };
                ones.push(slot(left, one));
                others.push(slot(right, other));
                rows.push(row as u64);
            }
        }
        offsets.push(rows.len() as i32);
    }
    let args = [
        take(left.values(), &UInt64Array::from(ones), None)?,
        take(right.values(), &UInt64Array::from(others), None)?,
    ];
    let made = typed(called(lambda, &args, &rows)?, field.data_type());
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::new(offsets.into()),
        made,
        nulls,
    )?))
}

fn aggregate(
    value: &ArrayRef,
    start: &ArrayRef,
    merge: &LambdaArgument,
    finish: Option<&LambdaArgument>,
    to: &DataType,
) -> Result<ArrayRef> {
    let Some(lists) = value.as_list_opt::<i32>() else {
        return Ok(new_null_array(to, value.len()));
    };
    let mut held = Arc::clone(start);
    let longest = (0..lists.len())
        .filter(|row| lists.is_valid(*row))
        .map(|row| lists.value_length(row))
        .max()
        .unwrap_or(0);
    for at in 0..longest {
        let rows: Vec<u64> = (0..lists.len())
            .filter(|row| lists.is_valid(*row) && lists.value_length(*row) > at)
            .map(|row| row as u64)
            .collect();
        let slots = rows
            .iter()
            .map(|row| (lists.value_offsets()[*row as usize] + at) as u64);
        let elements = take(lists.values(), &UInt64Array::from_iter_values(slots), None)?;
        let before = take(&held, &UInt64Array::from(rows.clone()), None)?;
        let merged = typed(
            called(merge, &[before, elements], &rows)?,
            start.data_type(),
        );
        let mut picks: Vec<(usize, usize)> = (0..lists.len()).map(|row| (0, row)).collect();
        for (position, row) in rows.iter().enumerate() {
            picks[*row as usize] = (1, position);
        }
        held = interleave(&[held.as_ref(), merged.as_ref()], &picks)?;
    }
    if let Some(finish) = finish {
        let rows: Vec<u64> = (0..lists.len() as u64).collect();
        held = typed(called(finish, &[held], &rows)?, to);
    }
    // The aggregate of a null array is null.
    let picks: UInt64Array = (0..lists.len())
        .map(|row| lists.is_valid(row).then_some(row as u64))
        .collect();
    Ok(take(&held, &picks, None)?)
}

/// A stable sort that ends with some order whatever the comparison says.
fn merge_sort(mut items: Vec<usize>, in_order: &impl Fn(usize, usize) -> bool) -> Vec<usize> {
    if items.len() < 2 {
        return items;
    }
    let right = items.split_off(items.len() / 2);
    let left = merge_sort(items, in_order);
    let right = merge_sort(right, in_order);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let next = match in_order(*one, *other) {
            true => left.next(),
            false => right.next(),
        };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

/// Sorts by a comparing lambda, which is evaluated once over all pairs of a batch.
fn sort(value: &ArrayRef, lambda: &LambdaArgument, to: &DataType) -> Result<ArrayRef> {
    let DataType::List(field) = to else {
        return plan_err!("an array was planned");
    };
    let lists = value.as_list::<i32>();
    let flat = Flat::new(lists.offsets(), lists.nulls());
    let lengths = flat
        .offsets
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as usize);
    let pairs: usize = lengths.clone().map(|length| length * length).sum();
    if pairs > MOST_COMPARED {
        return exec_err!(
            "COLLECTION_SIZE_LIMIT_EXCEEDED: array_sort with a lambda of such long arrays"
        );
    }
    let (mut ones, mut others, mut rows) = (vec![], vec![], vec![]);
    for (row, pair) in flat.offsets.windows(2).enumerate() {
        for one in pair[0]..pair[1] {
            for other in pair[0]..pair[1] {
                ones.push(flat.slots[one as usize]);
                others.push(flat.slots[other as usize]);
                rows.push(row as u64);
            }
        }
    }
    let args = [
        take(lists.values(), &UInt64Array::from(ones), None)?,
        take(lists.values(), &UInt64Array::from(others), None)?,
    ];
    let compared = typed(called(lambda, &args, &rows)?, &DataType::Int32);
    let compared = compared.as_primitive::<Int32Type>();
    if compared.null_count() > 0 {
        return exec_err!("COMPARATOR_RETURNS_NULL: the lambda of array_sort gave null");
    }
    let mut sorted = Vec::with_capacity(flat.slots.len());
    let mut base = 0;
    for (length, start) in lengths.zip(&flat.offsets) {
        // Not the library's sort: that one may panic at a lambda that contradicts itself.
        let order = merge_sort((0..length).collect(), &|one, other| {
            compared.value(base + one * length + other) <= 0
        });
        sorted.extend(order.iter().map(|at| flat.slots[*start as usize + at]));
        base += length * length;
    }
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        flat.offsets(),
        take(lists.values(), &UInt64Array::from(sorted), None)?,
        flat.nulls,
    )?))
}
