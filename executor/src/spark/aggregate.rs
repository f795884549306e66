//! Sums that must not wrap, and averages, of decimals too.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type, i256,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::cast::{Exact, divide_half_up, format_decimal, power_of_ten};
use super::exact_groups::ExactGroups;
use super::types;

/// Digits that a sum has more than its summands.
const SUM_DIGITS: i32 = 10;

/// All functions of this module.
pub(super) fn functions() -> Vec<AggregateUDF> {
    [Kind::Sum, Kind::Avg, Kind::TrySum, Kind::TryAvg]
        .into_iter()
        .map(|kind| {
            let signature = Signature::user_defined(Volatility::Immutable);
            AggregateUDF::new_from_impl(Aggregate { kind, signature })
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Sum,
    Avg,
    /// Null where the sum does not fit.
    TrySum,
    TryAvg,
}

impl Kind {
    fn is_sum(self) -> bool {
        matches!(self, Self::Sum | Self::TrySum)
    }

    fn is_fallible(self) -> bool {
        matches!(self, Self::Sum | Self::Avg)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    kind: Kind,
    signature: Signature,
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Sum => "sum",
            Kind::Avg => "avg",
            Kind::TrySum => "try_sum",
            Kind::TryAvg => "try_avg",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let number = |given: &DataType| match types::plain_text(given) {
            DataType::Null | DataType::Utf8 | DataType::Float32 => Ok(DataType::Float64),
            integer if types::is_integer(&integer) => Ok(match self.kind.is_sum() {
                true => DataType::Int64,
                false => DataType::Float64,
            }),
            other @ (DataType::Decimal128(..) | DataType::Float64) => Ok(other),
            other => plan_err!(
                "DATATYPE_MISMATCH: {} of {}",
                self.name(),
                types::name(&other)
            ),
        };
        match given {
            [value] => Ok(vec![number(value)?]),
            _ => plan_err!(
                "wrong number of arguments for {}: {}",
                self.name(),
                given.len()
            ),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let Some(first) = given.first() else {
            return plan_err!("{} needs an argument", self.name());
        };
        Ok(match (self.kind.is_sum(), first) {
            (true, DataType::Decimal128(precision, scale)) => {
                bounded(i32::from(*precision) + SUM_DIGITS, (*scale).into())
            }
            (false, DataType::Decimal128(precision, scale)) => {
                bounded(i32::from(*precision) + 4, i32::from(*scale) + 4)
            }
            (true, DataType::Int64) => DataType::Int64,
            _ => DataType::Float64,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let input = args.expr_fields[0].data_type().clone();
        let result = args.return_field.data_type().clone();
        let total = Total::new(self.kind, &input, result);
        Ok(match args.is_distinct {
            true => Box::new(Distinct {
                total,
                seen: HashSet::new(),
                input,
            }),
            false => Box::new(total),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let input = args.expr_fields[0].data_type().clone();
        let result = args.return_field.data_type().clone();
        match input {
            DataType::Float64 => Ok(Box::new(Sliding {
                kind: self.kind,
                values: VecDeque::new(),
            })),
            _ => Ok(Box::new(Total::new(self.kind, &input, result))),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input = args.input_fields[0].data_type();
        let field = |name: &str, data_type: DataType| -> FieldRef {
            Field::new(format_state_name(args.name, name), data_type, true).into()
        };
        let list =
            |data_type: DataType| DataType::List(Field::new_list_field(data_type, true).into());
        Ok(match args.is_distinct {
            true => vec![field("distinct", list(input.clone()))],
            false => vec![
                field("sum", sum_type(input)),
                field("count", DataType::Int64),
            ],
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let input = args.expr_fields[0].data_type().clone();
        let result = args.return_field.data_type().clone();
        let finish = Finish {
            kind: self.kind,
            scale: scale_of(&input),
            result,
        };
        Ok(match input {
            DataType::Float64 => Box::new(FloatGroups {
                finish,
                sums: vec![],
                counts: vec![],
            }),
            _ => Box::new(ExactGroups::new(finish)),
        })
    }
}

fn bounded(precision: i32, scale: i32) -> DataType {
    let most = i32::from(types::MAX_PRECISION);
    DataType::Decimal128(precision.min(most) as u8, scale.min(most) as i8)
}

fn scale_of(input: &DataType) -> i8 {
    match input {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// The type in which a sum is handed on: wide enough never to wrap.
fn sum_type(input: &DataType) -> DataType {
    match input {
        DataType::Float64 => DataType::Float64,
        other => DataType::Decimal128(types::MAX_PRECISION, scale_of(other)),
    }
}

/// How a sum and a count become the result.
#[derive(Debug, Clone)]
pub(super) struct Finish {
    pub kind: Kind,
    pub scale: i8,
    pub result: DataType,
}

impl Finish {
    fn float(&self, sum: f64, count: i64) -> Option<f64> {
        match (count, self.kind) {
            (0, _) => None,
            (_, kind) if kind.is_sum() => Some(sum),
            (count, _) => Some(sum / count as f64),
        }
    }

    /// The unscaled result; an error if it does not fit.
    pub(super) fn exact(&self, sum: i256, count: i64) -> Result<Option<i128>> {
        if count == 0 {
            return Ok(None);
        }
        let fitted = match self.result {
            DataType::Decimal128(precision, scale) => self
                .quotient(sum, count, scale.into())
                .and_then(|exact| exact.rescaled(precision, scale)),
            _ => sum.to_i128().filter(|sum| i64::try_from(*sum).is_ok()),
        };
        match fitted {
            Some(fitted) => Ok(Some(fitted)),
            None if !self.kind.is_fallible() => Ok(None),
            None => {
                let shown = sum.to_i128().map(|sum| format_decimal(sum, self.scale));
                exec_err!(
                    "ARITHMETIC_OVERFLOW: overflow in {}: {} does not fit {}",
                    if self.kind == Kind::Avg { "avg" } else { "sum" },
                    shown.unwrap_or_else(|| "the total".into()),
                    types::name(&self.result)
                )
            }
        }
    }

    fn quotient(&self, sum: i256, count: i64, scale: i32) -> Option<Exact> {
        if self.kind.is_sum() {
            return Some(Exact {
                unscaled: sum,
                scale: self.scale.into(),
            });
        }
        let dividend = sum.checked_mul(power_of_ten(scale - i32::from(self.scale))?)?;
        Some(Exact {
            unscaled: divide_half_up(dividend, i256::from_i128(count.into()))?,
            scale,
        })
    }

    fn scalar(&self, value: Option<i128>) -> ScalarValue {
        match self.result {
            DataType::Decimal128(precision, scale) => {
                ScalarValue::Decimal128(value, precision, scale)
            }
            _ => ScalarValue::Int64(value.and_then(|value| i64::try_from(value).ok())),
        }
    }
}

/// The values of an integer or decimal array as wide integers.
fn exact_values(array: &ArrayRef) -> Result<Decimal128Array> {
    match array.data_type() {
        DataType::Decimal128(..) => Ok(array.as_primitive::<Decimal128Type>().clone()),
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>();
            Ok(values.iter().map(|value| value.map(i128::from)).collect())
        }
        other => exec_err!("a sum of {other} was not planned"),
    }
}

fn float_values(array: &ArrayRef) -> Result<Float64Array> {
    Ok(arrow_cast(array, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone())
}

/// The sum and count of one group.
#[derive(Debug)]
struct Total {
    finish: Finish,
    is_float: bool,
    exact: i256,
    float: f64,
    count: i64,
}

impl Total {
    fn new(kind: Kind, input: &DataType, result: DataType) -> Self {
        Self {
            finish: Finish {
                kind,
                scale: scale_of(input),
                result,
            },
            is_float: input == &DataType::Float64,
            exact: i256::ZERO,
            float: 0.0,
            count: 0,
        }
    }

    fn add(&mut self, array: &ArrayRef, sign: i128) -> Result<()> {
        if self.is_float {
            let values = float_values(array)?;
            self.float = values
                .iter()
                .flatten()
                .fold(self.float, |sum, value| sum + value);
        } else {
            let factor = i256::from_i128(sign);
            for value in exact_values(array)?.iter().flatten() {
                self.exact = self
                    .exact
                    .wrapping_add(i256::from_i128(value).wrapping_mul(factor));
            }
        }
        self.count += sign as i64 * (array.len() - array.null_count()) as i64;
        Ok(())
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        !self.is_float
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.is_float {
            return Ok(ScalarValue::Float64(
                self.finish.float(self.float, self.count),
            ));
        }
        Ok(self
            .finish
            .scalar(self.finish.exact(self.exact, self.count)?))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = match (self.is_float, self.count) {
            (true, 0) => ScalarValue::Float64(None),
            (true, _) => ScalarValue::Float64(Some(self.float)),
            (false, count) => {
                let sum = state_value(self.exact, count, &self.finish)?;
                ScalarValue::Decimal128(sum, types::MAX_PRECISION, self.finish.scale)
            }
        };
        Ok(vec![sum, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let before = self.count;
        self.add(&states[0], 1)?;
        self.count = before
            + states[1]
                .as_primitive::<Int64Type>()
                .iter()
                .flatten()
                .sum::<i64>();
        Ok(())
    }
}

/// A partial sum as it is handed on, where it must fit a decimal.
pub(super) fn state_value(sum: i256, count: i64, finish: &Finish) -> Result<Option<i128>> {
    if count == 0 {
        return Ok(None);
    }
    let exact = Exact {
        unscaled: sum,
        scale: finish.scale.into(),
    };
    match exact.rescaled(types::MAX_PRECISION, finish.scale) {
        Some(value) => Ok(Some(value)),
        None => exec_err!(
            "ARITHMETIC_OVERFLOW: overflow in a sum: the total does not fit {}",
            types::name(&finish.result)
        ),
    }
}

/// A sum or average of the values that differ.
#[derive(Debug)]
struct Distinct {
    total: Total,
    seen: HashSet<ScalarValue>,
    input: DataType,
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values[0].len() {
            if values[0].is_valid(row) {
                self.seen
                    .insert(ScalarValue::try_from_array(&values[0], row)?);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if !self.seen.is_empty() {
            let values = ScalarValue::iter_to_array(std::mem::take(&mut self.seen))?;
            self.total.update_batch(&[values])?;
        }
        self.total.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.seen.iter().map(ScalarValue::size).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.seen.iter().cloned().collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(
            &values,
            &self.input,
        ))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[list])?;
        }
        Ok(())
    }
}

/// A sum of floats over a moving frame, summed anew each time: a float that leaves can not be
/// subtracted again without a trace.
#[derive(Debug)]
struct Sliding {
    kind: Kind,
    values: VecDeque<Option<f64>>,
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(float_values(&values[0])?.iter());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.drain(..values[0].len().min(self.values.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.values.iter().flatten().count() as i64;
        let sum = self
            .values
            .iter()
            .flatten()
            .fold(0.0, |sum, value| sum + value);
        let finish = Finish {
            kind: self.kind,
            scale: 0,
            result: DataType::Float64,
        };
        Ok(ScalarValue::Float64(finish.float(sum, count)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<Option<f64>>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a moving frame is not summed in parts")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> Result<()> {
        exec_err!("a moving frame is not summed in parts")
    }
}

/// Sums of floats by group.
struct FloatGroups {
    finish: Finish,
    sums: Vec<f64>,
    counts: Vec<i64>,
}

/// The rows that count: not null, and let through by the filter.
pub(super) fn for_each_row(
    rows: usize,
    valid: impl Fn(usize) -> bool,
    groups: &[usize],
    filter: Option<&BooleanArray>,
    mut visit: impl FnMut(usize, usize),
) {
    for (row, group) in groups.iter().enumerate().take(rows) {
        let passes = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        if passes && valid(row) {
            visit(row, *group);
        }
    }
}

/// The values of the rows that a filter lets through, null for the others.
fn passing<V>(
    values: impl Iterator<Item = Option<V>>,
    filter: Option<&BooleanArray>,
) -> impl Iterator<Item = Option<V>> {
    values.enumerate().map(move |(row, value)| {
        value.filter(|_| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)))
    })
}

impl GroupsAccumulator for FloatGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total, 0.0);
        self.counts.resize(total, 0);
        let values = float_values(&values[0])?;
        for_each_row(
            values.len(),
            |row| values.is_valid(row),
            groups,
            filter,
            |row, group| {
                self.sums[group] += values.value(row);
                self.counts[group] += 1;
            },
        );
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (
            emit.take_needed(&mut self.sums),
            emit.take_needed(&mut self.counts),
        );
        let results = sums
            .into_iter()
            .zip(counts)
            .map(|(sum, count)| self.finish.float(sum, count));
        Ok(Arc::new(results.collect::<Float64Array>()))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (
            emit.take_needed(&mut self.sums),
            emit.take_needed(&mut self.counts),
        );
        let states = sums
            .into_iter()
            .zip(&counts)
            .map(|(sum, count)| (*count > 0).then_some(sum));
        Ok(vec![
            Arc::new(states.collect::<Float64Array>()),
            Arc::new(Int64Array::from(counts)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.sums.resize(total, 0.0);
        self.counts.resize(total, 0);
        let sums = states[0].as_primitive::<Float64Type>();
        let counts = states[1].as_primitive::<Int64Type>();
        for_each_row(
            sums.len(),
            |row| sums.is_valid(row),
            groups,
            None,
            |row, group| {
                self.sums[group] += sums.value(row);
                self.counts[group] += counts.value(row);
            },
        );
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = float_values(&values[0])?;
        let sums: Float64Array = passing(values.iter(), filter).collect();
        let counts: Int64Array = sums
            .iter()
            .map(|value| Some(i64::from(value.is_some())))
            .collect();
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<f64>() + self.counts.capacity() * size_of::<i64>()
    }
}
