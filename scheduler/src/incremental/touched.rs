//! The parts of a window that a change touches, found by running what [`super::affected`] derives.
//!
//! The finest part are the rows with one of the key values that the changed rows have; coarser ones
//! are the values of one column, or the range in which they lie. Coarser parts are larger and never
//! wrong.

use std::collections::{BTreeSet, HashSet};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, lit};
use windrow_executor::local;

use super::affected::{Affected, Differ};
use super::keys::{Keys, LISTED, can_be_key, listed};
use super::telling_columns;
use crate::changed::ChangedSource;
use crate::flow::FlowPlan;

/// Keys beyond this are not held; coarser parts are looked for then.
const MOST_KEYS: usize = 200_000;
const MOST_KEY_BYTES: usize = 64 << 20;
/// Values of one column that are listed in a predicate.
const MOST_VALUES: usize = LISTED;

/// What a change touches of the window.
pub enum Touched {
    Nothing {
        bytes_read: u64,
    },
    /// It can't be told; the words say why.
    Anything {
        bytes_read: u64,
        why: String,
    },
    /// Any one of these parts holds all that is touched.
    Parts {
        bytes_read: u64,
        parts: Vec<Part>,
    },
}

/// A part of the window: the rows for which a condition holds, and with keys those of them that
/// have one of the keys.
pub struct Part {
    pub condition: Expr,
    pub keys: Option<Keys>,
}

impl Part {
    fn of(condition: Expr) -> Self {
        Self {
            condition,
            keys: None,
        }
    }
}

/// Reads the changed rows and tells what they touch. `rows` is the analyzed and optimized plan of
/// the window's rows. Without `net` rows are not compared with those that they replaced; then only
/// the slices are looked for, where there are any.
pub async fn find(
    plan: &FlowPlan,
    rows: &LogicalPlan,
    changed: &[ChangedSource],
    net: bool,
) -> Result<Touched> {
    let log = &plan.bound.log;
    let wanted = telling_columns(plan);
    let mut affected = Differ::new(changed, log, net).of(rows, &wanted)?;
    // A change of a source none of whose columns come out is followed to those that do.
    let is_blind = affected
        .as_ref()
        .is_some_and(|a| a.known.iter().all(Option::is_none));
    if is_blind {
        let all: BTreeSet<usize> = (0..plan.target_schema.fields().len()).collect();
        affected = Differ::new(changed, log, net).of(rows, &all)?;
    }
    let Some(affected) = affected else {
        return Ok(Touched::Nothing { bytes_read: 0 });
    };
    let known = known_columns(plan, &affected);
    if known.is_empty() {
        let (empty, bytes_read) = is_empty(plan, affected.plan).await?;
        return Ok(if empty {
            Touched::Nothing { bytes_read }
        } else {
            let names: Vec<&str> = changed.iter().map(|c| c.shown.as_str()).collect();
            Touched::Anything {
                bytes_read,
                why: format!(
                    "a change of {} can touch every row of the result: no column of the result tells which",
                    names.join(" or ")
                ),
            }
        });
    }
    let exact: Vec<&(String, Column)> = known
        .iter()
        .filter(|(name, _)| {
            plan.target_schema
                .field_with_name(name)
                .is_ok_and(|f| can_be_key(f.data_type()))
        })
        .collect();
    let mut bytes_read = 0;
    let mut keys = None;
    let slices = slice_columns(plan, &known);
    if !exact.is_empty() && (net || slices.is_empty()) {
        let names = exact.iter().map(|(name, _)| name.clone()).collect();
        let exprs: Vec<Expr> = exact.iter().map(|(_, c)| Expr::Column(c.clone())).collect();
        let distinct = LogicalPlanBuilder::from(affected.plan.clone())
            .project(exprs)?
            .distinct()?
            .build()?;
        let (found, read) = collect_keys(plan, names, distinct).await?;
        bytes_read += read;
        keys = found;
    }
    if let Some(keys) = &keys
        && keys.count() == 0
    {
        return Ok(Touched::Nothing { bytes_read });
    }
    let mut parts = Vec::new();
    match &keys {
        Some(keys) => parts.extend(by_values_of_keys(keys, &slices)?),
        None => {
            for (name, column) in &slices {
                let (part, read) = by_column(plan, &affected.plan, name, column).await?;
                bytes_read += read;
                match part {
                    OfColumn::Nothing => return Ok(Touched::Nothing { bytes_read }),
                    OfColumn::Part(part) => parts.push(part),
                    OfColumn::Unknown => {}
                }
            }
        }
    }
    if let Some(keys) = keys {
        let plain = plain_columns(rows);
        let usable = |name: &str| {
            plan.target_schema
                .index_of(name)
                .is_ok_and(|i| plain.get(i).copied().unwrap_or(false))
        };
        let bounds = keys.bounds(usable)?;
        parts.push(Part {
            condition: bounds,
            keys: Some(keys),
        });
    }
    Ok(if parts.is_empty() {
        Touched::Anything {
            bytes_read,
            why: "the columns by which a change could be told hold too many values, or floats"
                .into(),
        }
    } else {
        Touched::Parts { bytes_read, parts }
    })
}

/// The target's columns that are known of a touched row, with the columns of the relation.
fn known_columns(plan: &FlowPlan, affected: &Affected) -> Vec<(String, Column)> {
    plan.target_schema
        .fields()
        .iter()
        .zip(&affected.known)
        .filter_map(|(field, column)| {
            let column = column.clone()?;
            let found = affected
                .plan
                .schema()
                .field_with_unqualified_name(&column.name)
                .ok()?;
            (found.data_type() == field.data_type()).then(|| (field.name().clone(), column))
        })
        .collect()
}

/// The known columns by whose values the window can be cut: those that its predicate names, or by
/// which the table is parted.
fn slice_columns(plan: &FlowPlan, known: &[(String, Column)]) -> Vec<(String, Column)> {
    let telling: HashSet<&str> = telling_columns(plan)
        .into_iter()
        .map(|i| plan.target_schema.field(i).name().as_str())
        .collect();
    known
        .iter()
        .filter(|(name, _)| telling.contains(name.as_str()))
        .cloned()
        .collect()
}

async fn is_empty(plan: &FlowPlan, relation: LogicalPlan) -> Result<(bool, u64)> {
    let one = LogicalPlanBuilder::from(relation)
        .limit(0, Some(1))?
        .build()?;
    let state = &plan.bound.state;
    let physical = local::physical_of_typed(state, one).await?;
    let read = taken(plan);
    let batches = local::collect(state, physical).await?;
    Ok((batches.iter().all(|b| b.num_rows() == 0), read))
}

/// The bytes of the files that the plans made since the last call read.
fn taken(plan: &FlowPlan) -> u64 {
    plan.bound.log.take().iter().map(|r| r.bytes_scanned).sum()
}

/// The rows of a relation of distinct keys, `None` when there are too many, and the bytes read.
pub async fn collect_keys(
    plan: &FlowPlan,
    columns: Vec<String>,
    distinct: LogicalPlan,
) -> Result<(Option<Keys>, u64)> {
    let state = &plan.bound.state;
    let physical = local::physical_of_typed(state, distinct).await?;
    let read = taken(plan);
    let batches = local::collect_at_most(state, physical, MOST_KEYS, MOST_KEY_BYTES).await?;
    Ok((batches.map(|rows| Keys::new(columns, rows)), read))
}

/// The part of the window with the keys' values in the column that has the fewest of them.
fn by_values_of_keys(keys: &Keys, slices: &[(String, Column)]) -> Result<Option<Part>> {
    let mut best: Option<(&String, HashSet<ScalarValue>)> = None;
    for (name, _) in slices {
        if let Some(values) = keys.values(name, MOST_VALUES)?
            && best.as_ref().is_none_or(|(_, b)| values.len() < b.len())
        {
            best = Some((name, values));
        }
    }
    Ok(best.map(|(name, values)| Part::of(among(name, values))))
}

/// What one column tells of the touched rows.
enum OfColumn {
    Nothing,
    Part(Part),
    Unknown,
}

/// The values of one column in the touched rows, or the range in which they lie.
async fn by_column(
    plan: &FlowPlan,
    relation: &LogicalPlan,
    name: &str,
    column: &Column,
) -> Result<(OfColumn, u64)> {
    let state = &plan.bound.state;
    let own = || Expr::Column(column.clone());
    let distinct = LogicalPlanBuilder::from(relation.clone())
        .project([own()])?
        .distinct()?
        .build()?;
    let physical = local::physical_of_typed(state, distinct).await?;
    let mut read = taken(plan);
    let found = local::collect_at_most(state, physical, MOST_VALUES, MOST_KEY_BYTES).await?;
    if let Some(batches) = found {
        let mut values = HashSet::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                values.insert(ScalarValue::try_from_array(batch.column(0), row)?);
            }
        }
        return Ok(if values.is_empty() {
            (OfColumn::Nothing, read)
        } else {
            (OfColumn::Part(Part::of(among(name, values))), read)
        });
    }
    let field = plan.target_schema.field_with_name(name)?;
    if !can_be_key(field.data_type()) || *field.data_type() == DataType::Boolean {
        return Ok((OfColumn::Unknown, read));
    }
    let nulls = datafusion::logical_expr::when(own().is_null(), lit(1i64)).end()?;
    let ends = LogicalPlanBuilder::from(relation.clone())
        .aggregate(
            Vec::<Expr>::new(),
            vec![
                min(own()).alias("__windrow_low"),
                max(own()).alias("__windrow_high"),
                count(nulls).alias("__windrow_nulls"),
            ],
        )?
        .build()?;
    let physical = local::physical_of_typed(state, ends).await?;
    read += taken(plan);
    let batches = local::collect(state, physical).await?;
    let Some(batch) = batches.iter().find(|b| b.num_rows() > 0) else {
        return Ok((OfColumn::Unknown, read));
    };
    let value = |i: usize| ScalarValue::try_from_array(batch.column(i), 0);
    let (low, high, nulls) = (value(0)?, value(1)?, value(2)?);
    let target = || Expr::Column(Column::new_unqualified(name));
    let mut condition = target().gt_eq(lit(low)).and(target().lt_eq(lit(high)));
    if nulls != ScalarValue::Int64(Some(0)) {
        condition = condition.or(target().is_null());
    }
    Ok((OfColumn::Part(Part::of(condition)), read))
}

/// `column` has one of the values, null among them or not.
fn among(column: &str, values: HashSet<ScalarValue>) -> Expr {
    let own = || Expr::Column(Column::new_unqualified(column));
    let has_null = values.iter().any(ScalarValue::is_null);
    let values: Vec<ScalarValue> = values.into_iter().filter(|v| !v.is_null()).collect();
    // Floats are compared one by one, so that the comparison is that of the query language.
    let is_float = values
        .iter()
        .any(|v| matches!(v.data_type(), DataType::Float32 | DataType::Float64));
    let list = if is_float {
        values
            .into_iter()
            .map(|v| own().eq(lit(v)))
            .reduce(Expr::or)
    } else {
        listed(column, values, LISTED)
    };
    match (list, has_null) {
        (Some(list), true) => list.or(own().is_null()),
        (Some(list), false) => list,
        (None, true) => own().is_null(),
        (None, false) => lit(false),
    }
}

/// For each output column whether it is a column of a source as it stands there. A condition on such
/// a column can be brought down without being evaluated on anything that the query would not
/// look at.
fn plain_columns(node: &LogicalPlan) -> Vec<bool> {
    let width = node.schema().fields().len();
    let at = |plain: &[bool], expr: &Expr, schema: &datafusion::common::DFSchema| -> bool {
        match expr.clone().unalias() {
            Expr::Column(c) => schema
                .maybe_index_of_column(&c)
                .and_then(|i| plain.get(i).copied())
                .unwrap_or(false),
            _ => false,
        }
    };
    let mut plain = match node {
        LogicalPlan::TableScan(_) => vec![true; width],
        LogicalPlan::Projection(p) => {
            let below = plain_columns(&p.input);
            p.expr
                .iter()
                .map(|e| at(&below, e, p.input.schema()))
                .collect()
        }
        LogicalPlan::Aggregate(a) => {
            let below = plain_columns(&a.input);
            a.group_expr
                .iter()
                .map(|e| at(&below, e, a.input.schema()))
                .collect()
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => match node.inputs().as_slice() {
            [input] => plain_columns(input),
            _ => Vec::new(),
        },
        LogicalPlan::Union(union) => union
            .inputs
            .iter()
            .map(|i| plain_columns(i))
            .reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a && b).collect())
            .unwrap_or_default(),
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                plain_columns(&join.left)
            }
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                plain_columns(&join.right)
            }
            _ => {
                let mut both = plain_columns(&join.left);
                both.extend(plain_columns(&join.right));
                both
            }
        },
        _ => Vec::new(),
    };
    plain.resize(width, false);
    plain
}
