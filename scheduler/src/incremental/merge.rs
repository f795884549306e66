//! Groups that are kept up to date from new rows alone: the aggregates of the new rows, merged with
//! those that the target holds.
//!
//! It takes a query whose result is an aggregate with all of its group keys, aggregates that can be
//! merged from their results (COUNT, SUM of exact types, MIN and MAX), and sources that only grew.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DataFusionError, Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit,
};
use windrow_delta::Table;
use windrow_executor::scan::{DeltaSource, ScanLog};

use super::appended::gained;
use super::keys::can_be_key;
use crate::changed::ChangedSource;
use crate::flow::FlowPlan;
use crate::removal::existing_rows;

/// What a column of the target is in the aggregate.
enum Role {
    Group,
    /// Two results are merged by this function.
    Merged(Arc<AggregateUDF>),
    Constant(ScalarValue),
}

/// How the groups of a flow are merged.
pub struct Merge {
    /// The aggregates of the new rows, with the target's columns.
    pub partial: LogicalPlan,
    roles: Vec<Role>,
}

/// Where a column of the target comes from, on the way down to the aggregate.
enum Origin {
    Position(usize),
    Constant(ScalarValue),
}

/// The merge for an analyzed and optimized plan of the target's rows, or in words what stands
/// against it.
pub fn of(
    plan: &FlowPlan,
    rows: &LogicalPlan,
    changed: &[ChangedSource],
    log: &ScanLog,
) -> Result<std::result::Result<Merge, String>> {
    let (aggregate, origins) = match down(rows)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let keys = aggregate.group_expr.len();
    if aggregate
        .group_expr
        .iter()
        .any(|e| matches!(e, Expr::GroupingSet(_)))
    {
        return Ok(Err("the query has GROUPING SETS, ROLLUP or CUBE".into()));
    }
    for key in 0..keys {
        let is_output = origins
            .iter()
            .any(|o| matches!(o, Origin::Position(p) if *p == key));
        if !is_output {
            return Ok(Err(format!(
                "`{}` of GROUP BY is no column of the result",
                aggregate.group_expr[key]
            )));
        }
    }
    let state = &plan.bound.state;
    let Some(sum) = state.aggregate_functions().get("sum").cloned() else {
        return Err(DataFusionError::Internal("there is no sum".into()));
    };
    let mut roles = Vec::with_capacity(origins.len());
    for (origin, field) in origins.iter().zip(plan.target_schema.fields()) {
        roles.push(match origin {
            Origin::Constant(value) => Role::Constant(value.clone()),
            Origin::Position(p) if *p < keys => Role::Group,
            Origin::Position(p) => {
                let expr = &aggregate.aggr_expr[*p - keys];
                match merged_by(expr, field.data_type(), &sum) {
                    Ok(function) => Role::Merged(function),
                    Err(why) => return Ok(Err(why)),
                }
            }
        });
    }
    let input = match gained(&aggregate.input, changed, log)? {
        Ok(input) => input,
        Err(why) => return Ok(Err(why)),
    };
    let node = LogicalPlan::Aggregate(aggregate.clone());
    let node = node.with_new_exprs(node.expressions(), vec![input])?;
    let columns = node.schema().columns();
    let exprs: Vec<Expr> = origins
        .iter()
        .zip(plan.target_schema.fields())
        .map(|(origin, field)| {
            let expr = match origin {
                Origin::Position(p) => Expr::Column(columns[*p].clone()),
                Origin::Constant(value) => lit(value.clone()),
            };
            expr.alias(field.name())
        })
        .collect();
    let partial = LogicalPlanBuilder::from(node).project(exprs)?.build()?;
    Ok(Ok(Merge { partial, roles }))
}

/// The aggregate below plain projections, and what each output column is in it.
fn down(rows: &LogicalPlan) -> Result<std::result::Result<(&Aggregate, Vec<Origin>), String>> {
    let mut origins: Vec<Origin> = (0..rows.schema().fields().len())
        .map(Origin::Position)
        .collect();
    let (mut node, mut filtered) = (rows, false);
    loop {
        node = match node {
            LogicalPlan::Projection(projection) => {
                for origin in &mut origins {
                    let Origin::Position(p) = origin else {
                        continue;
                    };
                    *origin = match projection.expr[*p].clone().unalias() {
                        Expr::Column(c) => {
                            Origin::Position(projection.input.schema().index_of_column(&c)?)
                        }
                        Expr::Literal(value, _) => Origin::Constant(value),
                        other => {
                            return Ok(Err(format!(
                                "a column of the result is computed after GROUP BY: {other}; a view over the table can compute it"
                            )));
                        }
                    };
                }
                projection.input.as_ref()
            }
            LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => sort.input.as_ref(),
            LogicalPlan::Filter(filter) => {
                filtered = true;
                filter.input.as_ref()
            }
            LogicalPlan::Aggregate(_) if filtered => {
                return Ok(Err("groups are filtered (HAVING, or by the window)".into()));
            }
            LogicalPlan::Aggregate(aggregate) => return Ok(Ok((aggregate, origins))),
            _ => return Ok(Err("the result is no GROUP BY".into())),
        };
    }
}

/// The function that merges two results of an aggregate.
fn merged_by(
    expr: &Expr,
    data_type: &DataType,
    sum: &Arc<AggregateUDF>,
) -> std::result::Result<Arc<AggregateUDF>, String> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr.clone().unalias() else {
        return Err(format!("{expr} is no plain aggregate"));
    };
    let float = matches!(data_type, DataType::Float32 | DataType::Float64);
    let refused = || Err(format!("{expr} can't be merged from its results"));
    if params.distinct {
        return Err(format!(
            "{expr} can't be merged from its results: DISTINCT must see all rows of a group"
        ));
    }
    if !params.order_by.is_empty() {
        return refused();
    }
    match func.name() {
        "count" if *data_type == DataType::Int64 => Ok(sum.clone()),
        "sum" if matches!(data_type, DataType::Int64 | DataType::Decimal128(..)) => Ok(sum.clone()),
        "sum" => Err(format!(
            "{expr} is a sum of floats, which depends on the order of its rows; a sum of decimals does not"
        )),
        "avg" => Err(format!(
            "{expr} can't be merged from its results; SUM and COUNT can"
        )),
        "min" | "max" if !float && can_be_key(data_type) => Ok(func),
        _ => refused(),
    }
}

impl Merge {
    /// The group keys among the target's columns by which its rows can be found.
    pub fn keys(&self, plan: &FlowPlan) -> Vec<String> {
        plan.target_schema
            .fields()
            .iter()
            .zip(&self.roles)
            .filter(|(f, role)| matches!(role, Role::Group) && can_be_key(f.data_type()))
            .map(|(f, _)| f.name().clone())
            .collect()
    }

    /// Whether the query has no GROUP BY, so that its result is one row.
    pub fn is_one_row(&self) -> bool {
        !self.roles.iter().any(|r| matches!(r, Role::Group))
    }

    /// The rows that take the place of those that the plan's scope removes: the stored groups with
    /// the new rows in them.
    pub fn rows(&self, plan: &FlowPlan, existing: &Table, log: &ScanLog) -> Result<LogicalPlan> {
        let source = DeltaSource::new(existing.clone(), existing.location().shown(), log.clone())?;
        let scan = LogicalPlanBuilder::scan("target", provider_as_source(Arc::new(source)), None)?
            .build()?;
        let mut stored = existing_rows(plan, existing, scan, false)?;
        if let Some(effective) = plan.effective().filter(|e| !e.is_true()) {
            stored = LogicalPlanBuilder::from(stored)
                .filter(effective.expr.clone())?
                .build()?;
        }
        if let Some(keys) = &plan.scope.keys {
            stored = keys.only(stored)?;
        }
        let all = LogicalPlanBuilder::from(stored).union(self.partial.clone())?;
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        let fields = plan.target_schema.fields();
        let (mut groups, mut merged) = (Vec::new(), Vec::new());
        for (field, role) in fields.iter().zip(&self.roles) {
            match role {
                Role::Group => groups.push(column(field.name())),
                Role::Constant(_) => {}
                Role::Merged(function) => merged.push(
                    Expr::AggregateFunction(AggregateFunction::new_udf(
                        function.clone(),
                        vec![column(field.name())],
                        false,
                        None,
                        Vec::new(),
                        None,
                    ))
                    .alias(field.name()),
                ),
            }
        }
        let all = all.aggregate(groups, merged)?;
        let schema = all.schema().clone();
        let exprs = fields
            .iter()
            .zip(&self.roles)
            .map(|(field, role)| {
                let expr = match role {
                    Role::Constant(value) => return Ok(lit(value.clone()).alias(field.name())),
                    _ => column(field.name()),
                };
                Ok(if expr.get_type(schema.as_ref())? == *field.data_type() {
                    expr.alias(field.name())
                } else {
                    cast(expr, field.data_type().clone()).alias(field.name())
                })
            })
            .collect::<Result<Vec<_>>>()?;
        all.project(exprs)?.build()
    }
}
