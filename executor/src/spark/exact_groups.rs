//! Sums and averages of integers and decimals by group: the accumulator that sees every row.
//!
//! Sums are kept in 128 bits, and in 256 from the first one on that needs more. How a sum becomes
//! the result is said in `aggregate`.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Int64Array,
    PrimitiveArray,
};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type, i256};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::aggregate::{Finish, for_each_row, state_value};
use super::types;

/// See the module.
pub(super) struct ExactGroups {
    finish: Finish,
    sums: Sums,
    counts: Vec<i64>,
}

enum Sums {
    Short(Vec<i128>),
    Wide(Vec<i256>),
}

impl ExactGroups {
    pub(super) fn new(finish: Finish) -> Self {
        Self {
            finish,
            sums: Sums::Short(vec![]),
            counts: vec![],
        }
    }

    fn grow(&mut self, total: usize) {
        match &mut self.sums {
            Sums::Short(sums) => sums.resize(total, 0),
            Sums::Wide(sums) => sums.resize(total, i256::ZERO),
        }
        self.counts.resize(total, 0);
    }

    /// Adds the value of each row that counts to its group's sum, and `count` of the row to its
    /// count.
    fn add<T: ArrowPrimitiveType>(
        &mut self,
        values: &PrimitiveArray<T>,
        count: impl Fn(usize) -> i64,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) where
        T::Native: Into<i128>,
    {
        if values.null_count() == 0 && filter.is_none() {
            for (row, (value, group)) in values.values().iter().zip(groups).enumerate() {
                self.add_one(*group, (*value).into(), count(row));
            }
            return;
        }
        for_each_row(
            values.len(),
            |row| values.is_valid(row),
            groups,
            filter,
            |row, group| self.add_one(group, values.value(row).into(), count(row)),
        );
    }

    fn add_one(&mut self, group: usize, value: i128, count: i64) {
        self.counts[group] += count;
        let sums = match &mut self.sums {
            Sums::Short(sums) => match sums[group].checked_add(value) {
                Some(sum) => {
                    sums[group] = sum;
                    return;
                }
                None => {
                    let wide = sums.iter().map(|sum| i256::from_i128(*sum)).collect();
                    self.sums = Sums::Wide(wide);
                    match &mut self.sums {
                        Sums::Wide(sums) => sums,
                        Sums::Short(_) => return,
                    }
                }
            },
            Sums::Wide(sums) => sums,
        };
        // 256 bits hold more sums of 128 bits than there can be rows.
        sums[group] = sums[group].wrapping_add(i256::from_i128(value));
    }

    /// The sums and counts that are handed out.
    fn take(&mut self, emit: EmitTo) -> (Vec<i256>, Vec<i64>) {
        let sums = match &mut self.sums {
            Sums::Short(sums) => {
                let sums = emit.take_needed(sums);
                sums.into_iter().map(i256::from_i128).collect()
            }
            Sums::Wide(sums) => emit.take_needed(sums),
        };
        (sums, emit.take_needed(&mut self.counts))
    }
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grow(total);
        match values[0].data_type() {
            DataType::Decimal128(..) => {
                let values = values[0].as_primitive::<Decimal128Type>();
                self.add(values, |_| 1, groups, filter);
            }
            DataType::Int64 => {
                let values = values[0].as_primitive::<Int64Type>();
                self.add(values, |_| 1, groups, filter);
            }
            other => return exec_err!("a sum of {other} was not planned"),
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = self.take(emit);
        let results = sums
            .into_iter()
            .zip(counts)
            .map(|(sum, count)| self.finish.exact(sum, count));
        let results = results.collect::<Result<Decimal128Array>>()?;
        Ok(match self.finish.result {
            DataType::Decimal128(precision, scale) => {
                Arc::new(results.with_precision_and_scale(precision, scale)?)
            }
            _ => {
                let narrowed = results
                    .iter()
                    .map(|v| v.and_then(|v| i64::try_from(v).ok()));
                Arc::new(narrowed.collect::<Int64Array>())
            }
        })
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = self.take(emit);
        let states = sums
            .into_iter()
            .zip(&counts)
            .map(|(sum, count)| state_value(sum, *count, &self.finish));
        let states = states.collect::<Result<Decimal128Array>>()?;
        let states = states.with_precision_and_scale(types::MAX_PRECISION, self.finish.scale)?;
        Ok(vec![Arc::new(states), Arc::new(Int64Array::from(counts))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grow(total);
        let counts = states[1].as_primitive::<Int64Type>();
        self.add(
            states[0].as_primitive::<Decimal128Type>(),
            |row| counts.value(row),
            groups,
            None,
        );
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let passes =
            |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let (rows, value): (usize, Box<dyn Fn(usize) -> Option<i128>>) = match values[0].data_type()
        {
            DataType::Decimal128(..) => {
                let values = values[0].as_primitive::<Decimal128Type>();
                let value = |row| values.is_valid(row).then(|| values.value(row));
                (values.len(), Box::new(value))
            }
            DataType::Int64 => {
                let values = values[0].as_primitive::<Int64Type>();
                let value = |row| values.is_valid(row).then(|| values.value(row).into());
                (values.len(), Box::new(value))
            }
            other => return exec_err!("a sum of {other} was not planned"),
        };
        let sums: Decimal128Array = (0..rows)
            .map(|row| value(row).filter(|_| passes(row)))
            .collect();
        let counts: Int64Array = (0..rows)
            .map(|row| Some(i64::from(sums.is_valid(row))))
            .collect();
        let sums = sums.with_precision_and_scale(types::MAX_PRECISION, self.finish.scale)?;
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn size(&self) -> usize {
        let sums = match &self.sums {
            Sums::Short(sums) => sums.capacity() * size_of::<i128>(),
            Sums::Wide(sums) => sums.capacity() * size_of::<i256>(),
        };
        sums + self.counts.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::aggregate::Kind;
    use super::*;

    fn groups(values: Vec<i128>, kind: Kind) -> ExactGroups {
        let mut groups = ExactGroups::new(Finish {
            kind,
            scale: 0,
            result: DataType::Decimal128(38, 0),
        });
        let values: ArrayRef = Arc::new(
            Decimal128Array::from(values)
                .with_precision_and_scale(38, 0)
                .unwrap(),
        );
        let of_one = vec![1; values.len()];
        groups.update_batch(&[values], &of_one, None, 2).unwrap();
        groups
    }

    #[test]
    fn a_sum_that_leaves_128_bits_on_its_way_comes_back() {
        let most = 10i128.pow(38) - 1;
        let mut groups = groups(vec![most, most, 7, -most, -most], Kind::Sum);
        assert!(matches!(groups.sums, Sums::Wide(_)));
        let result = groups.evaluate(EmitTo::All).unwrap();
        let result = result.as_primitive::<Decimal128Type>();
        assert!(result.is_null(0));
        assert_eq!(result.value(1), 7);
    }

    #[test]
    fn a_sum_that_stays_outside_is_an_error() {
        let most = 10i128.pow(38) - 1;
        let mut groups = groups(vec![most, most, most], Kind::Sum);
        let error = groups.evaluate(EmitTo::All).unwrap_err().to_string();
        assert!(error.contains("ARITHMETIC_OVERFLOW"), "{error}");
    }
}
