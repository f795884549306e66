//! Aggregates that depend on the order or the frequency of values: percentiles, the most frequent
//! value, and the value beside an extreme one.

use std::collections::HashMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::types::{self, list_of};

/// All functions of this module.
pub(super) fn functions() -> Vec<AggregateUDF> {
    [
        Kind::Median,
        Kind::Percentile,
        Kind::PercentileDisc,
        Kind::MaxBy,
        Kind::MinBy,
        Kind::Mode,
    ]
    .into_iter()
    .map(|kind| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Ordered { kind, signature })
    })
    .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Median,
    Percentile,
    PercentileDisc,
    MaxBy,
    MinBy,
    Mode,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered {
    kind: Kind,
    signature: Signature,
}

impl AggregateUDFImpl for Ordered {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Median => "median",
            Kind::Percentile => "percentile",
            Kind::PercentileDisc => "spark_percentile_disc",
            Kind::MaxBy => "max_by",
            Kind::MinBy => "min_by",
            Kind::Mode => "mode",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let number = |given: &DataType| match types::plain_text(given) {
            DataType::Null | DataType::Utf8 => Ok(DataType::Float64),
            number if types::is_number(&number) => Ok(DataType::Float64),
            other => plan_err!(
                "DATATYPE_MISMATCH: {} of {}",
                self.name(),
                types::name(&other)
            ),
        };
        match (self.kind, given) {
            (Kind::MaxBy | Kind::MinBy, [_, _]) | (Kind::Mode, [_]) => Ok(given.to_vec()),
            (Kind::Percentile | Kind::PercentileDisc, [value, _]) => {
                Ok(vec![number(value)?, DataType::Float64])
            }
            (Kind::Median, [value]) => Ok(vec![number(value)?]),
            _ => plan_err!(
                "WRONG_NUM_ARGS: wrong number of arguments for {}: {}",
                self.name(),
                given.len()
            ),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match (self.kind, given.first()) {
            (Kind::MaxBy | Kind::MinBy | Kind::Mode, Some(first)) => Ok(first.clone()),
            (_, Some(_)) => Ok(DataType::Float64),
            (_, None) => plan_err!("{} needs an argument", self.name()),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let input = args.expr_fields[0].data_type().clone();
        if args.is_distinct {
            return plan_err!("DISTINCT in {} is not available", self.name());
        }
        Ok(match self.kind {
            Kind::Median => Box::new(Percentile {
                values: vec![],
                fraction: Some(0.5),
                interpolated: true,
            }),
            Kind::Percentile | Kind::PercentileDisc => Box::new(Percentile {
                values: vec![],
                fraction: None,
                interpolated: self.kind == Kind::Percentile,
            }),
            Kind::MaxBy | Kind::MinBy => Box::new(Beside {
                greatest: self.kind == Kind::MaxBy,
                value: ScalarValue::try_from(&input)?,
                order: ScalarValue::try_from(args.expr_fields[1].data_type())?,
            }),
            Kind::Mode => Box::new(Mode {
                input,
                counts: HashMap::new(),
                values: vec![],
            }),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input = args.input_fields[0].data_type();
        let field = |name: &str, data_type: DataType| -> FieldRef {
            Field::new(format_state_name(args.name, name), data_type, true).into()
        };
        Ok(match self.kind {
            Kind::Median | Kind::Percentile | Kind::PercentileDisc => vec![
                field("values", list_of(&DataType::Float64)),
                field("fraction", DataType::Float64),
            ],
            Kind::MaxBy | Kind::MinBy => vec![
                field("value", input.clone()),
                field("order", args.input_fields[1].data_type().clone()),
            ],
            Kind::Mode => vec![
                field("values", list_of(input)),
                field("counts", list_of(&DataType::Int64)),
            ],
        })
    }
}

fn float_values(array: &ArrayRef) -> Result<Float64Array> {
    Ok(arrow_cast(array, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone())
}

/// How often each value was seen; of those seen most often the first one counts.
#[derive(Debug)]
struct Mode {
    input: DataType,
    counts: HashMap<ScalarValue, usize>,
    values: Vec<(ScalarValue, i64)>,
}

impl Mode {
    fn add(&mut self, value: ScalarValue, count: i64) {
        match self.counts.get(&value) {
            Some(at) => self.values[*at].1 += count,
            None => {
                self.counts.insert(value.clone(), self.values.len());
                self.values.push((value, count));
            }
        }
    }
}

impl Accumulator for Mode {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values[0].len() {
            if values[0].is_valid(row) {
                self.add(ScalarValue::try_from_array(&values[0], row)?, 1);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let most = self.values.iter().map(|(_, count)| *count).max();
        match self.values.iter().find(|(_, count)| Some(*count) == most) {
            Some((value, _)) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.input),
        }
    }

    fn size(&self) -> usize {
        let values: usize = self.values.iter().map(|(value, _)| value.size()).sum();
        size_of_val(self) + 2 * values + self.values.len() * 32
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.values.iter().map(|(value, _)| value.clone()).collect();
        let counts: Vec<ScalarValue> = self
            .values
            .iter()
            .map(|(_, count)| ScalarValue::Int64(Some(*count)))
            .collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.input)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::Int64)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, counts): (&ListArray, &ListArray) =
            (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (values, counts) in values.iter().zip(counts.iter()) {
            let (Some(values), Some(counts)) = (values, counts) else {
                continue;
            };
            let counts: &Int64Array = counts.as_primitive::<Int64Type>();
            for row in 0..values.len() {
                self.add(
                    ScalarValue::try_from_array(&values, row)?,
                    counts.value(row),
                );
            }
        }
        Ok(())
    }
}

/// All values of a group, of which the percentile is taken.
#[derive(Debug)]
struct Percentile {
    values: Vec<f64>,
    fraction: Option<f64>,
    /// Between two values one in between is made; else the lower rank counts.
    interpolated: bool,
}

impl Accumulator for Percentile {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values
            .extend(float_values(&values[0])?.iter().flatten());
        if let (None, Some(fractions)) = (self.fraction, values.get(1)) {
            self.fraction = fractions
                .as_primitive::<Float64Type>()
                .iter()
                .flatten()
                .next();
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (Some(fraction), false) = (self.fraction, self.values.is_empty()) else {
            return Ok(ScalarValue::Float64(None));
        };
        if !(0.0..=1.0).contains(&fraction) {
            return exec_err!(
                "VALUE_OUT_OF_RANGE: the percentage {fraction} is not between 0 and 1"
            );
        }
        self.values.sort_by(f64::total_cmp);
        if !self.interpolated {
            let rank = (self.values.len() as f64 * fraction).ceil() as usize;
            let value = self.values[rank.max(1) - 1];
            return Ok(ScalarValue::Float64(Some(value)));
        }
        let position = (self.values.len() - 1) as f64 * fraction;
        let (lower, higher) = (position.floor(), position.ceil());
        let (low, high) = (self.values[lower as usize], self.values[higher as usize]);
        let value = if lower == higher || low == high {
            low
        } else {
            (higher - position) * low + (position - lower) * high
        };
        Ok(ScalarValue::Float64(Some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self
            .values
            .iter()
            .map(|value| ScalarValue::Float64(Some(*value)))
            .collect();
        let list = ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64));
        Ok(vec![list, ScalarValue::Float64(self.fraction)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.values.extend(float_values(&list)?.iter().flatten());
        }
        if self.fraction.is_none() {
            self.fraction = states[1]
                .as_primitive::<Float64Type>()
                .iter()
                .flatten()
                .next();
        }
        Ok(())
    }
}

/// The value of the row whose order is the greatest or least.
#[derive(Debug)]
struct Beside {
    greatest: bool,
    value: ScalarValue,
    order: ScalarValue,
}

impl Accumulator for Beside {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // An array of the null type says of no row that it is null.
        if values[1].data_type() == &DataType::Null {
            return Ok(());
        }
        for row in 0..values[1].len() {
            if values[1].is_null(row) {
                continue;
            }
            let order = ScalarValue::try_from_array(&values[1], row)?;
            let keeps = match order.partial_cmp(&self.order) {
                _ if self.order.is_null() => false,
                Some(found) if self.greatest => found.is_lt(),
                Some(found) => found.is_gt(),
                None => return exec_err!("values of {} can not be compared", order.data_type()),
            };
            if !keeps {
                self.value = ScalarValue::try_from_array(&values[0], row)?;
                self.order = order;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.order.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.order.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
