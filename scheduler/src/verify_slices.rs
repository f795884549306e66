//! Into which slices a window is cut for checking: days, months or values of one column.
//!
//! Any cut by a column of the target is sound, as both sides are filtered by it; it is worth while
//! where the condition reaches a source. The last slice holds what none of the others does, so
//! that rows are found which only one side has. How slices are compared is left to `verify`.

use std::collections::BTreeSet;

use chrono::{Datelike, NaiveDate};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use windrow_executor::local;
use windrow_flows::render;

use crate::flow::{FlowPlan, count_scan_filters};

/// With more days than this, slices are months.
const MOST_DAYS: usize = 93;
/// With more months or values than this, the window stays whole.
const MOST_SLICES: usize = 1_000;
/// Days that are looked at; 2,700 years have as many.
const DAYS_MAX: usize = 1_000_000;

/// A part of a window.
#[derive(Debug, Clone)]
pub struct Slice {
    /// For people.
    pub label: String,
    /// Over the target's columns; `None` for the whole window.
    pub condition: Option<Expr>,
}

impl Slice {
    fn whole() -> Vec<Self> {
        vec![Self {
            label: "the whole window".into(),
            condition: None,
        }]
    }
}

/// The slices of a window. `stored` has the window's rows of the target.
pub async fn slices(plan: &FlowPlan, stored: &LogicalPlan) -> Result<Vec<Slice>, DataFusionError> {
    for column in candidates(plan) {
        let Ok(field) = plan.target_schema.field_with_name(&column) else {
            continue;
        };
        if !reaches_a_source(plan, &column, field.data_type())? {
            continue;
        }
        let found = match field.data_type() {
            DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _) => {
                by_time(plan, stored, &column, field.data_type()).await?
            }
            _ => by_value(plan, stored, &column).await?,
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Ok(Slice::whole())
}

fn own(column: &str) -> Expr {
    Expr::Column(Column::new_unqualified(column))
}

/// Columns that a cut may go by, best first: of the predicate, or of a view its partition columns
/// and its times.
fn candidates(plan: &FlowPlan) -> Vec<String> {
    let mut names: Vec<String> = match &plan.pinned {
        Some(pinned) => {
            let columns: BTreeSet<String> = pinned
                .typed
                .expr
                .column_refs()
                .into_iter()
                .map(|c| c.name.clone())
                .collect();
            columns.into_iter().collect()
        }
        None => {
            let schema = &plan.evolved.schema;
            plan.target_schema
                .fields()
                .iter()
                .zip(&schema.columns)
                .filter(|(f, c)| rank(f.data_type()) < 2 || schema.is_partition_column(&c.name))
                .map(|(f, _)| f.name().clone())
                .collect()
        }
    };
    let rank_of = |name: &String| {
        let field = plan.target_schema.field_with_name(name);
        field.map_or(u8::MAX, |f| rank(f.data_type()))
    };
    names.retain(|name| rank_of(name) < u8::MAX);
    names.sort_by_key(rank_of);
    names
}

fn rank(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Date32 => 0,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1,
        DataType::Utf8
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64 => 2,
        _ => u8::MAX,
    }
}

/// Whether a condition on the column makes a source's scan smaller.
fn reaches_a_source(
    plan: &FlowPlan,
    column: &str,
    data_type: &DataType,
) -> Result<bool, DataFusionError> {
    let probe = ScalarValue::new_default(data_type)?;
    let filtered = LogicalPlanBuilder::from(plan.rows.clone())
        .filter(own(column).eq(lit(probe)))?
        .build()?;
    Ok(count_scan_filters(plan, &filtered)? > count_scan_filters(plan, &plan.rows)?)
}

async fn distinct(
    plan: &FlowPlan,
    stored: &LogicalPlan,
    expr: Expr,
    most: usize,
) -> Result<Option<Vec<ScalarValue>>, DataFusionError> {
    let rows = LogicalPlanBuilder::from(stored.clone())
        .project([expr.alias("value")])?
        .distinct()?
        .limit(0, Some(most + 1))?
        .build()?;
    let physical = local::physical(&plan.bound.state, &rows).await?;
    let mut found = Vec::new();
    for batch in local::collect(&plan.bound.state, physical).await? {
        for row in 0..batch.num_rows() {
            found.push(ScalarValue::try_from_array(batch.column(0), row)?);
        }
    }
    Ok((found.len() <= most).then_some(found))
}

async fn by_value(
    plan: &FlowPlan,
    stored: &LogicalPlan,
    column: &str,
) -> Result<Option<Vec<Slice>>, DataFusionError> {
    let Some(mut values) = distinct(plan, stored, own(column), MOST_SLICES).await? else {
        return Ok(None);
    };
    values.retain(|v| !v.is_null());
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let mut slices: Vec<Slice> = values
        .iter()
        .map(|value| {
            let condition = own(column).eq(lit(value.clone()));
            Slice {
                label: render::sql(&condition),
                condition: Some(condition),
            }
        })
        .collect();
    let among = own(column).in_list(values.into_iter().map(lit).collect(), false);
    slices.push(others(column, (!slices.is_empty()).then_some(among)));
    Ok(Some(slices))
}

/// What no other slice holds: other values, and null.
fn others(column: &str, among: Option<Expr>) -> Slice {
    Slice {
        label: format!("all other values of {column}"),
        condition: among.map(|among| Expr::IsNotTrue(Box::new(among))),
    }
}

async fn by_time(
    plan: &FlowPlan,
    stored: &LogicalPlan,
    column: &str,
    data_type: &DataType,
) -> Result<Option<Vec<Slice>>, DataFusionError> {
    let day = cast(own(column), DataType::Date32);
    let Some(values) = distinct(plan, stored, day, DAYS_MAX).await? else {
        return Ok(None);
    };
    let mut days: BTreeSet<i32> = BTreeSet::new();
    for value in values {
        let array = value.to_array()?;
        let array = array.as_primitive::<Date32Type>();
        if array.is_valid(0) {
            days.insert(array.value(0));
        }
    }
    let mut ranges: BTreeSet<(i32, i32)> = days.iter().map(|d| (*d, d.saturating_add(1))).collect();
    let mut unit = "%Y-%m-%d";
    if ranges.len() > MOST_DAYS {
        ranges = days.iter().filter_map(|d| month_of(*d)).collect();
        unit = "%Y-%m";
    }
    if ranges.len() > MOST_SLICES {
        return Ok(None);
    }
    let mut slices = Vec::new();
    for (from, to) in &ranges {
        let label = NaiveDate::from_epoch_days(*from).map(|d| d.format(unit).to_string());
        slices.push(Slice {
            label: format!("{column} in {}", label.unwrap_or_else(|| from.to_string())),
            condition: Some(between(column, data_type, *from, *to)),
        });
    }
    // Adjoining ranges are one, so that the last condition stays short.
    let mut joined: Vec<(i32, i32)> = Vec::new();
    for (from, to) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    let among = joined
        .into_iter()
        .map(|(from, to)| between(column, data_type, from, to))
        .reduce(Expr::or);
    slices.push(others(column, among));
    Ok(Some(slices))
}

/// First day of the month of a day, and of the next month.
fn month_of(day: i32) -> Option<(i32, i32)> {
    let date = NaiveDate::from_epoch_days(day)?;
    let first = date.with_day(1)?;
    let next = first.checked_add_months(chrono::Months::new(1))?;
    Some((first.to_epoch_days(), next.to_epoch_days()))
}

/// `from <= column < to`, in days since 1970 (UTC).
fn between(column: &str, data_type: &DataType, from: i32, to: i32) -> Expr {
    let bound = |day: i32| match data_type {
        DataType::Timestamp(_, zone) => {
            const MICROS: i64 = 86_400_000_000;
            let micros = i64::from(day).saturating_mul(MICROS);
            lit(ScalarValue::TimestampMicrosecond(
                Some(micros),
                zone.clone(),
            ))
        }
        _ => lit(ScalarValue::Date32(Some(day))),
    };
    own(column)
        .gt_eq(bound(from))
        .and(own(column).lt(bound(to)))
}
