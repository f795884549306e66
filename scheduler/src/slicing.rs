//! A window in slices: parts of its rows that are computed each for itself, at most so many at a
//! time, and committed together. Long windows are cut so that a part that has to be computed anew
//! is a small one.
//!
//! Every row of the result lies in exactly one slice, also one without a value in the column that is
//! cut. What a query gives must not hang on how often it runs: one that ranks or limits rows may
//! choose others each time, and is not cut.

use chrono::{DateTime, NaiveDateTime, Utc};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use windrow_flows::calendar::{Span, Unit};
use windrow_flows::refresh::Technique;
use windrow_flows::window::{Bound, BoundOp};

use crate::flow::FlowPlan;

/// How windows are cut.
#[derive(Debug, Clone, Default)]
pub struct Slicing {
    /// The calendar's unit of a slice; by default windows are cut only when they read much.
    pub by: Option<Unit>,
    /// Slices that are computed at a time; 0 for one.
    pub parallel: usize,
}

/// Slices of one window.
const MOST: usize = 10_000;
/// Bytes of sources from which on a window is cut although nobody asked for it.
const MUCH: u64 = 16 << 30;

/// The rows of each slice; one for all of them when they are not cut.
pub(crate) fn slices(
    plan: &FlowPlan,
    rows: &LogicalPlan,
    technique: Technique,
    slicing: &Slicing,
    clock: DateTime<Utc>,
    bytes: u64,
) -> Result<Vec<LogicalPlan>, DataFusionError> {
    let whole = || Ok(vec![rows.clone()]);
    let may = technique == Technique::CompleteRecompute && is_repeatable(rows)?;
    if !may || (slicing.by.is_none() && bytes < MUCH) {
        return whole();
    }
    let Some((column, data_type, span)) = span(plan, clock) else {
        return whole();
    };
    let unit = slicing
        .by
        .unwrap_or_else(|| Unit::fitting(span.from, span.to));
    let Some(spans) = span.cut(unit, MOST) else {
        return whole();
    };
    let cuts: Vec<Expr> = spans
        .iter()
        .skip(1)
        .filter_map(|s| Some(lit(value(s.from, &data_type)?)))
        .collect();
    if cuts.is_empty() {
        return whole();
    }
    let column = Expr::Column(Column::new_unqualified(column));
    let mut conditions = Vec::with_capacity(cuts.len() + 1);
    for at in 0..=cuts.len() {
        let from = at
            .checked_sub(1)
            .map(|i| column.clone().gt_eq(cuts[i].clone()));
        let to = cuts.get(at).map(|cut| column.clone().lt(cut.clone()));
        conditions.extend(match (from, to) {
            (Some(from), Some(to)) => Some(from.and(to)),
            // The last one has what is in no other, too.
            (Some(from), None) => Some(from.or(column.clone().is_null())),
            (None, to) => to,
        });
    }
    conditions
        .into_iter()
        .map(|condition| {
            LogicalPlanBuilder::from(rows.clone())
                .filter(condition)?
                .build()
        })
        .collect()
}

/// Whether a plan gives the same rows whenever it runs.
fn is_repeatable(rows: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut repeatable = true;
    rows.apply_with_subqueries(|node| {
        let chooses = matches!(
            node,
            LogicalPlan::Window(_) | LogicalPlan::Limit(_) | LogicalPlan::Extension(_)
        ) || matches!(node, LogicalPlan::Sort(sort) if sort.fetch.is_some())
            || matches!(node, LogicalPlan::Aggregate(a) if a.aggr_expr.iter().any(hangs_on_order))
            || node.expressions().iter().any(Expr::is_volatile);
        repeatable &= !chooses;
        Ok(match repeatable {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(repeatable)
}

/// Aggregates whose result hangs on the order of their rows.
fn hangs_on_order(expr: &Expr) -> bool {
    const NAMES: [&str; 12] = [
        "first",
        "last",
        "first_value",
        "last_value",
        "any_value",
        "array_agg",
        "collect_list",
        "max_by",
        "min_by",
        "listagg",
        "string_agg",
        "mode",
    ];
    let shown = expr.to_string().to_lowercase();
    NAMES.iter().any(|name| shown.contains(&format!("{name}(")))
}

/// The column of time that the window bounds from below, with its type and its span; an open end
/// is the update's clock.
fn span(plan: &FlowPlan, clock: DateTime<Utc>) -> Option<(String, DataType, Span)> {
    let bounds: Vec<&Bound> = plan
        .window
        .conjuncts
        .iter()
        .filter_map(|c| c.bound.as_ref())
        .collect();
    let is_lower = |b: &Bound| matches!(b.op, BoundOp::Gt | BoundOp::GtEq);
    let lower = bounds.iter().find(|b| is_lower(b))?;
    let field = plan.target_schema.field_with_name(&lower.column).ok()?;
    let data_type = field.data_type().clone();
    let times = |wanted: &dyn Fn(&Bound) -> bool| -> Vec<NaiveDateTime> {
        bounds
            .iter()
            .filter(|b| b.column == lower.column && wanted(b))
            .filter_map(|b| time(&b.value.scalar(&data_type)?))
            .collect()
    };
    let from = times(&is_lower).into_iter().max()?;
    let to = times(&|b| matches!(b.op, BoundOp::Lt | BoundOp::LtEq))
        .into_iter()
        .min()
        .unwrap_or(clock.naive_utc());
    (from < to).then(|| (lower.column.clone(), data_type, Span { from, to }))
}

fn time(value: &ScalarValue) -> Option<NaiveDateTime> {
    match value {
        ScalarValue::Date32(Some(days)) => {
            let day = chrono::NaiveDate::from_epoch_days(*days)?;
            day.and_hms_opt(0, 0, 0)
        }
        ScalarValue::TimestampMicrosecond(Some(micros), _) => {
            Some(DateTime::from_timestamp_micros(*micros)?.naive_utc())
        }
        _ => None,
    }
}

fn value(at: NaiveDateTime, data_type: &DataType) -> Option<ScalarValue> {
    match data_type {
        DataType::Date32 => Some(ScalarValue::Date32(Some(at.date().to_epoch_days()))),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => Some(
            ScalarValue::TimestampMicrosecond(Some(at.and_utc().timestamp_micros()), zone.clone()),
        ),
        _ => None,
    }
}
