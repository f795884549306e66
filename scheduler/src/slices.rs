//! Which slices of a window a change touches: the values of a predicate column for which rows of
//! the result can differ.
//!
//! A filter `column = value` on the result that the optimizer brings down to every scan of a
//! changed source as `source column = value` proves that rows of the result with that value come
//! from source rows with that value alone. Then the values of the source column in the changed rows
//! are the slices that must be computed anew, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use windrow_delta::DataFile;
use windrow_executor::local;
use windrow_executor::scan::{DeltaSource, FILE_COLUMN, ScanLog};

use crate::facts::ChangedSource;
use crate::flow::{FlowPlan, ScanFilters, same_table, scan_filters};

/// With more values than this the window is computed as a whole.
const MOST_VALUES: usize = 2_000;

/// The touched slices as a condition on the result: `column IN (values)`.
#[derive(Debug, Clone)]
pub struct Slices {
    pub condition: Expr,
    pub count: usize,
}

/// The slices that the changes touch, or `None` when they can't be told.
pub async fn touched(
    plan: &FlowPlan,
    filters: &ScanFilters,
    changed: &[ChangedSource],
) -> Result<Option<Slices>, DataFusionError> {
    let Some(pinned) = &plan.pinned else {
        return Ok(None);
    };
    let columns: BTreeSet<String> = pinned
        .typed
        .expr
        .column_refs()
        .into_iter()
        .map(|c| c.name.clone())
        .collect();
    for column in columns {
        let Ok(field) = plan.target_schema.field_with_name(&column) else {
            continue;
        };
        let Some(marker) = marker(field.data_type()) else {
            continue;
        };
        let Some(sources) = source_columns(plan, &column, &marker, changed)? else {
            continue;
        };
        return values(plan, filters, &column, field.data_type(), changed, &sources).await;
    }
    Ok(None)
}

/// A value that no query has by chance.
fn marker(data_type: &DataType) -> Option<ScalarValue> {
    Some(match data_type {
        DataType::Int32 => ScalarValue::Int32(Some(-1_387_219_447)),
        DataType::Int64 => ScalarValue::Int64(Some(-6_138_721_944_710_381)),
        DataType::Float64 => ScalarValue::Float64(Some(-1.387_219_447e-217)),
        DataType::Float32 => ScalarValue::Float32(Some(-1.387_219e-31)),
        DataType::Int16 => ScalarValue::Int16(Some(-31_873)),
        DataType::Utf8 => ScalarValue::Utf8(Some("\u{1}windrow marker\u{1}".into())),
        DataType::Date32 => ScalarValue::Date32(Some(-1_387_219)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(-6_138_721_944_710_381), zone.clone())
        }
        _ => return None,
    })
}

/// For each changed source the columns that carry the slice's value, one for each scan of it.
fn source_columns(
    plan: &FlowPlan,
    column: &str,
    marker: &ScalarValue,
    changed: &[ChangedSource],
) -> Result<Option<Vec<Vec<String>>>, DataFusionError> {
    let marked = LogicalPlanBuilder::from(plan.rows.clone())
        .filter(Expr::Column(Column::new_unqualified(column)).eq(lit(marker.clone())))?
        .build()?;
    let scans = scan_filters(plan, &marked)?;
    let mut found = Vec::new();
    for source in changed {
        let mut columns = Vec::new();
        let mut any = false;
        for (_, lists) in scans
            .iter()
            .filter(|(table, _)| same_table(table, &source.shown))
        {
            for list in lists {
                any = true;
                match list.iter().find_map(|f| column_equal_to(f, marker)) {
                    Some(name) => columns.push(name),
                    None => return Ok(None),
                }
            }
        }
        if !any {
            return Ok(None);
        }
        found.push(columns);
    }
    Ok(Some(found))
}

/// Zeros and NaNs of all kinds are one value to the comparison that this function is a part of.
const NORMALIZE: &str = "spark_normalize";

fn column_equal_to(filter: &Expr, marker: &ScalarValue) -> Option<String> {
    fn bare(expr: &Expr) -> &Expr {
        match expr {
            Expr::ScalarFunction(f) if f.name() == NORMALIZE && f.args.len() == 1 => {
                bare(&f.args[0])
            }
            other => other,
        }
    }
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = filter
    else {
        return None;
    };
    match (bare(left), bare(right)) {
        (Expr::Column(c), Expr::Literal(v, _)) | (Expr::Literal(v, _), Expr::Column(c))
            if v == marker =>
        {
            Some(c.name.clone())
        }
        _ => None,
    }
}

async fn values(
    plan: &FlowPlan,
    filters: &ScanFilters,
    column: &str,
    data_type: &DataType,
    changed: &[ChangedSource],
    sources: &[Vec<String>],
) -> Result<Option<Slices>, DataFusionError> {
    let mut found: Vec<ScalarValue> = Vec::new();
    for (source, columns) in changed.iter().zip(sources) {
        let scans = filters.on(&source.shown);
        for (i, name) in columns.iter().enumerate() {
            // Rows that the window's filters keep out of this scan touch nothing.
            let list = if scans.len() == columns.len() {
                scans.get(i).copied()
            } else {
                None
            };
            let rows = changed_rows(source, name, list.map_or(&[][..], Vec::as_slice))?;
            let Some(rows) = rows else { continue };
            let physical = local::physical(&plan.bound.state, &rows).await?;
            for batch in local::collect(&plan.bound.state, physical).await? {
                for row in 0..batch.num_rows() {
                    let value = ScalarValue::try_from_array(batch.column(0), row)?;
                    if value.data_type() != *data_type {
                        return Ok(None);
                    }
                    if !found.contains(&value) {
                        found.push(value);
                    }
                    if found.len() > MOST_VALUES {
                        return Ok(None);
                    }
                }
            }
        }
    }
    let own = || Expr::Column(Column::new_unqualified(column));
    let has_null = found.iter().any(ScalarValue::is_null);
    let list: Vec<Expr> = found
        .iter()
        .filter(|v| !v.is_null())
        .map(|v| lit(v.clone()))
        .collect();
    // Floats are compared one by one, so that the comparison is that of the query language.
    let among = |list: Vec<Expr>| match data_type {
        DataType::Float32 | DataType::Float64 => list
            .into_iter()
            .map(|v| own().eq(v))
            .reduce(Expr::or)
            .unwrap_or_else(|| lit(false)),
        _ if list.is_empty() => lit(false),
        _ => own().in_list(list, false),
    };
    let condition = if has_null {
        among(list).or(own().is_null())
    } else {
        among(list)
    };
    Ok(Some(Slices {
        condition,
        count: found.len(),
    }))
}

/// The distinct values of `column` in the rows that changed. With removed files among them, rows
/// that are on both sides did not change.
fn changed_rows(
    source: &ChangedSource,
    column: &str,
    filters: &[Expr],
) -> Result<Option<LogicalPlan>, DataFusionError> {
    const SIGN: &str = "__windrow_sign";
    let side = |files: &[DataFile],
                sign: i64,
                name: &str|
     -> Result<Option<LogicalPlan>, DataFusionError> {
        if files.is_empty() {
            return Ok(None);
        }
        let provider =
            DeltaSource::of_files(source.table.clone(), files.to_vec(), ScanLog::default())?;
        let mut scan =
            LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(provider)), None)?;
        for filter in filters {
            scan = scan.filter(windrow_executor::predicate::bare(filter.clone())?)?;
        }
        let mut exprs: Vec<Expr> = scan
            .schema()
            .columns()
            .into_iter()
            .filter(|c| c.name != FILE_COLUMN)
            .map(|c| {
                let name = c.name.clone();
                Expr::Column(c).alias(name)
            })
            .collect();
        exprs.push(lit(sign).alias(SIGN));
        Ok(Some(scan.project(exprs)?.build()?))
    };
    let wanted = || Expr::Column(Column::new_unqualified(column));
    let (added, removed) = (
        side(&source.added, 1, "added")?,
        side(&source.removed, -1, "removed")?,
    );
    let both = match (added, removed) {
        (None, None) => return Ok(None),
        (Some(one), None) | (None, Some(one)) => {
            return Ok(Some(
                LogicalPlanBuilder::from(one)
                    .project([wanted()])?
                    .distinct()?
                    .build()?,
            ));
        }
        (Some(a), Some(b)) => LogicalPlanBuilder::from(a).union(b)?.build()?,
    };
    let keys: Vec<Expr> = both
        .schema()
        .columns()
        .into_iter()
        .filter(|c| c.name != SIGN)
        .map(|c| Expr::Column(Column::new_unqualified(c.name)))
        .collect();
    let n = || Expr::Column(Column::new_unqualified("__windrow_n"));
    let sign = Expr::Column(Column::new_unqualified(SIGN));
    Ok(Some(
        LogicalPlanBuilder::from(both)
            .aggregate(keys, vec![sum(sign).alias("__windrow_n")])?
            .filter(n().not_eq(lit(0i64)))?
            .project([wanted()])?
            .distinct()?
            .build()?,
    ))
}
