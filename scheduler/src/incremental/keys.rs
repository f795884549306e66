//! The part of a target that is computed anew, as a list of key values: which rows of the target and
//! of the query have one of them.
//!
//! Keys are columns of the target that compare exactly: no floats, nothing nested. Null is a value
//! like any other. The list is a relation in the plans, so that they can be sent elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Column, NullEquality, Result, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, lit};

/// The column that tells rows with a key of the list from others.
pub const HIT: &str = "__windrow_hit";

/// Values of a column that are listed in a condition; above, only bounds are.
const LISTED: usize = 200;
/// Ranges by which a list is bounded, for the statistics of files.
const RANGES: usize = 12;
/// Values of which the gaps are looked for.
const SORTED: usize = 20_000;

/// Distinct values of some columns of the target.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The target's columns, by the names of queries.
    pub columns: Vec<String>,
    rows: Arc<Vec<RecordBatch>>,
}

/// Whether a column of this type can be a key.
pub fn can_be_key(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Utf8
            | DataType::Binary
            | DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Decimal128(..)
    )
}

impl Keys {
    /// `rows` are distinct and have one column for each of `columns`, in that order.
    pub fn new(columns: Vec<String>, rows: Vec<RecordBatch>) -> Self {
        Self {
            columns,
            rows: Arc::new(rows),
        }
    }

    pub fn count(&self) -> usize {
        self.rows.iter().map(RecordBatch::num_rows).sum()
    }

    /// The values of one column, up to `most` different ones.
    pub fn values(&self, column: &str, most: usize) -> Result<Option<HashSet<ScalarValue>>> {
        let Some(index) = self.columns.iter().position(|c| c == column) else {
            return Ok(None);
        };
        let mut found = HashSet::new();
        for batch in self.rows.iter() {
            for row in 0..batch.num_rows() {
                found.insert(ScalarValue::try_from_array(batch.column(index), row)?);
                if found.len() > most {
                    return Ok(None);
                }
            }
        }
        Ok(Some(found))
    }

    fn names(&self) -> Vec<String> {
        (0..self.columns.len())
            .map(|i| format!("__windrow_k{i}"))
            .collect()
    }

    fn relation(&self) -> Result<LogicalPlanBuilder> {
        let fields: Vec<Field> = self
            .names()
            .into_iter()
            .enumerate()
            .map(|(i, name)| {
                let data_type = self
                    .rows
                    .first()
                    .map_or(DataType::Null, |b| b.column(i).data_type().clone());
                Field::new(name, data_type, true)
            })
            .collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let batches = self
            .rows
            .iter()
            .map(|b| {
                let columns: Vec<ArrayRef> = b.columns()[..self.columns.len()].to_vec();
                Ok(RecordBatch::try_new(schema.clone(), columns)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let table = MemTable::try_new(schema, vec![batches])?;
        LogicalPlanBuilder::scan("__windrow_keys", provider_as_source(Arc::new(table)), None)
    }

    fn join(&self, kind: JoinType, rows: LogicalPlan, hit: bool) -> Result<LogicalPlanBuilder> {
        let keys = self.relation()?;
        let mut exprs: Vec<Expr> = self
            .names()
            .into_iter()
            .map(|n| Expr::Column(Column::new_unqualified(&n)).alias(n))
            .collect();
        if hit {
            exprs.push(lit(true).alias(HIT));
        }
        let names = self.names().into_iter().map(Column::new_unqualified);
        let own = self.columns.iter().map(Column::new_unqualified);
        // The list is the side that is kept in memory.
        keys.project(exprs)?.join_detailed(
            rows,
            kind,
            (names.collect::<Vec<_>>(), own.collect::<Vec<_>>()),
            None,
            NullEquality::NullEqualsNull,
        )
    }

    /// The rows that have a key of the list.
    pub fn only(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        self.join(JoinType::RightSemi, rows, false)?.build()
    }

    /// All rows, with a column [`HIT`] that is true for rows with a key of the list and else null.
    pub fn marked(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        let mut exprs: Vec<Expr> = rows
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        exprs.push(Expr::Column(Column::new_unqualified(HIT)));
        self.join(JoinType::Right, rows, true)?
            .project(exprs)?
            .build()
    }

    /// A condition that holds for every row with a key of the list, and for few others. Only columns
    /// for which `usable` holds are named in it.
    pub fn bounds(&self, usable: impl Fn(&str) -> bool) -> Result<Expr> {
        let mut parts = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            if usable(column) {
                let arrays: Vec<&ArrayRef> = self.rows.iter().map(|b| b.column(index)).collect();
                parts.extend(column_bounds(column, &arrays)?);
            }
        }
        Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
    }
}

/// A condition on one column that holds for all its values.
fn column_bounds(column: &str, arrays: &[&ArrayRef]) -> Result<Option<Expr>> {
    let own = || Expr::Column(Column::new_unqualified(column));
    let has_null = arrays.iter().any(|a| a.null_count() > 0);
    let (mut distinct, mut ends) = (HashSet::new(), None);
    for array in arrays {
        for row in (0..array.len()).filter(|row| !array.is_null(*row)) {
            let value = ScalarValue::try_from_array(array, row)?;
            widen(&mut ends, &value);
            if distinct.len() <= SORTED {
                distinct.insert(value);
            }
        }
    }
    let values = match ends {
        Some((low, high)) if distinct.len() > SORTED => {
            Some(own().gt_eq(lit(low)).and(own().lt_eq(lit(high))))
        }
        _ => listed(column, distinct.into_iter().collect()),
    };
    Ok(Some(match (values, has_null) {
        (Some(values), true) => values.or(own().is_null()),
        (Some(values), false) => values,
        (None, _) => own().is_null(),
    }))
}

fn widen(ends: &mut Option<(ScalarValue, ScalarValue)>, value: &ScalarValue) {
    use std::cmp::Ordering::{Greater, Less};
    match ends {
        None => *ends = Some((value.clone(), value.clone())),
        Some((low, high)) => {
            if value.partial_cmp(low) == Some(Less) {
                *low = value.clone();
            }
            if value.partial_cmp(high) == Some(Greater) {
                *high = value.clone();
            }
        }
    }
}

/// `column IN (...)` and the ranges in which the values lie; `None` for no values.
pub fn listed(column: &str, mut values: Vec<ScalarValue>) -> Option<Expr> {
    let own = || Expr::Column(Column::new_unqualified(column));
    if values.is_empty() {
        return None;
    }
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let list = (values.len() <= LISTED)
        .then(|| own().in_list(values.iter().map(|v| lit(v.clone())).collect(), false));
    // A short list is held against statistics value by value.
    if values.len() <= RANGES {
        return list;
    }
    let ranges = ranges(&values)
        .into_iter()
        .map(|(low, high)| {
            if low == high {
                own().eq(lit(low))
            } else {
                own().gt_eq(lit(low)).and(own().lt_eq(lit(high)))
            }
        })
        .reduce(Expr::or);
    match (list, ranges) {
        (Some(list), Some(ranges)) => Some(ranges.and(list)),
        (one, other) => one.or(other),
    }
}

/// Sorted values as few ranges, parted where the gaps are widest. Without a distance between
/// values it is one range.
fn ranges(values: &[ScalarValue]) -> Vec<(ScalarValue, ScalarValue)> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return Vec::new();
    };
    let mut gaps: Vec<(u128, usize)> = values
        .windows(2)
        .enumerate()
        .filter_map(|(i, pair)| Some((distance(&pair[0], &pair[1])?, i + 1)))
        .filter(|(gap, _)| *gap > 1)
        .collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    gaps.truncate(RANGES - 1);
    let mut cuts: Vec<usize> = gaps.into_iter().map(|(_, at)| at).collect();
    cuts.sort_unstable();
    let mut found = Vec::new();
    let mut from = first;
    for cut in cuts {
        if let (Some(before), Some(next)) = (values.get(cut - 1), values.get(cut)) {
            found.push((from.clone(), before.clone()));
            from = next;
        }
    }
    found.push((from.clone(), last.clone()));
    found
}

fn distance(a: &ScalarValue, b: &ScalarValue) -> Option<u128> {
    let number = |v: &ScalarValue| -> Option<i128> {
        match v {
            ScalarValue::Int8(Some(v)) => Some(i128::from(*v)),
            ScalarValue::Int16(Some(v)) => Some(i128::from(*v)),
            ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => Some(i128::from(*v)),
            ScalarValue::Int64(Some(v)) | ScalarValue::TimestampMicrosecond(Some(v), _) => {
                Some(i128::from(*v))
            }
            ScalarValue::Decimal128(Some(v), _, _) => Some(*v),
            _ => None,
        }
    };
    number(a)?.checked_sub(number(b)?).map(i128::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringArray};

    use super::*;

    fn keys(days: Vec<Option<i64>>, names: Vec<Option<&str>>) -> Keys {
        let batch = RecordBatch::try_from_iter_with_nullable(vec![
            ("d", Arc::new(Int64Array::from(days)) as ArrayRef, true),
            ("k", Arc::new(StringArray::from(names)) as ArrayRef, true),
        ])
        .unwrap();
        Keys::new(vec!["d".into(), "k".into()], vec![batch])
    }

    #[test]
    fn few_values_are_listed_and_null_is_one_of_them() {
        let keys = keys(vec![Some(3), None], vec![Some("a"), Some("b")]);
        let text = keys.bounds(|c| c == "d").unwrap().to_string();
        assert_eq!(
            text,
            "d = Int64(3) OR d IS NULL".replace("d = Int64(3)", "d IN ([Int64(3)])")
        );
        assert_eq!(keys.bounds(|_| false).unwrap(), lit(true));
    }

    #[test]
    fn many_values_are_bounded_where_they_lie() {
        let days: Vec<i64> = (0..1000).chain(50_000..50_100).collect();
        let values = days
            .into_iter()
            .map(|d| ScalarValue::Int64(Some(d)))
            .collect();
        let text = listed("d", values).unwrap().to_string();
        assert_eq!(
            text,
            "d >= Int64(0) AND d <= Int64(999) OR d >= Int64(50000) AND d <= Int64(50099)"
        );
    }
}
