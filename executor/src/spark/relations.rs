//! Plans the table forms that the dialect makes ready: generators (a PIVOT with a default, see the
//! dialect's module on them), PIVOT itself, and joins in parentheses whose key may come from either side.
//! Named and derived tables are DataFusion's to plan, but say nothing of keys (see `unkeyed`).

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, NullHandling, Result, TableReference, UnnestOptions, plan_err,
};
use datafusion::functions::core::get_field;
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{
    self, ExprWithAlias, PivotValueSource, TableFactor, TableSample, TableSampleKind,
    TableSampleModifier, Value,
};

use super::{types, using};
use crate::unkeyed::without_keys;

/// The column that holds the generated rows until they are taken apart.
const ROWS: &str = "__windrow_rows";

/// See the module.
#[derive(Debug)]
pub(super) struct Relations;

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if let TableFactor::Table {
            sample, args: None, ..
        }
        | TableFactor::Derived { sample, .. } = &mut relation
        {
            if sample.is_some() {
                return Ok(RelationPlanning::Original(Box::new(relation)));
            }
            *sample = Some(seen());
            let plan = without_keys(context.plan(relation)?)?;
            return Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
                plan, None,
            ))));
        }
        let plan = match relation {
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                default_on_null: Some(outer),
                alias: Some(alias),
                ..
            } => {
                let outer = matches!(
                    outer,
                    ast::Expr::Value(ast::ValueWithSpan {
                        value: Value::Boolean(true),
                        ..
                    })
                );
                let input = context.plan(*table)?;
                generate(
                    input,
                    aggregate_functions,
                    value_column,
                    outer,
                    &alias,
                    context,
                )?
            }
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source: PivotValueSource::List(values),
                default_on_null: None,
                alias,
            } => {
                let input = context.plan(*table)?;
                let plan = pivot(input, aggregate_functions, value_column, values, context)?;
                let planned = PlannedRelation::new(plan, alias);
                return Ok(RelationPlanning::Planned(Box::new(planned)));
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } if using::is_from_both_sides(&table_with_joins) => {
                let plan = using::plan(*table_with_joins, context)?;
                let planned = PlannedRelation::new(plan, alias);
                return Ok(RelationPlanning::Planned(Box::new(planned)));
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

/// Marks a relation that comes back from here. The dialect refuses samples, so no other relation has one.
fn seen() -> TableSampleKind {
    TableSampleKind::AfterTableAlias(Box::new(TableSample {
        modifier: TableSampleModifier::Sample,
        name: None,
        quantity: None,
        seed: None,
        bucket: None,
        offset: None,
    }))
}

fn columns_of(schema: &DFSchema) -> impl Iterator<Item = Column> + '_ {
    schema
        .iter()
        .map(|(qualifier, field)| Column::new(qualifier.cloned(), field.name()))
}

fn generate(
    input: LogicalPlan,
    calls: Vec<ExprWithAlias>,
    left_out: Vec<ast::Expr>,
    outer: bool,
    alias: &ast::TableAlias,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let mut calls = calls.into_iter();
    let Some(call) = calls.next() else {
        return plan_err!("a generator without a call");
    };
    let schema = input.schema().as_ref().clone();
    let rows = context.sql_to_expr(call.expr, &schema)?;
    let DataType::List(element) = rows.get_type(&schema)? else {
        return plan_err!("a generator that makes no list");
    };
    let DataType::Struct(fields) = element.data_type() else {
        return plan_err!("a generator that makes no rows");
    };
    if !alias.columns.is_empty() && alias.columns.len() != fields.len() {
        return plan_err!(
            "NUM_TABLE_VALUE_ALIASES_MISMATCH: {} makes {} columns, but there are {} names for them",
            alias.name.value,
            fields.len(),
            alias.columns.len()
        );
    }
    let mut columns: Vec<Expr> = columns_of(&schema).map(Expr::Column).collect();
    columns.push(rows.alias(ROWS));
    let handling = match outer {
        true => NullHandling::PreserveAndExpandEmpty,
        false => NullHandling::Drop,
    };
    let options = UnnestOptions::new().with_null_handling(handling);
    let unnested = LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_column_with_options(Column::new_unqualified(ROWS), options)?;
    let mut left = HashSet::new();
    for expr in left_out {
        let expr = context.sql_to_expr(expr, &schema)?;
        left.extend(expr.column_refs().into_iter().cloned());
    }
    let mut columns: Vec<Expr> = columns_of(&schema)
        .filter(|column| !left.contains(column))
        .map(Expr::Column)
        .collect();
    let name = TableReference::bare(alias.name.value.clone());
    for (index, field) in fields.iter().enumerate() {
        let column = match alias.columns.get(index) {
            Some(column) => column.name.value.clone(),
            None => field.name().clone(),
        };
        let value = Expr::ScalarFunction(ScalarFunction::new_udf(
            get_field(),
            vec![
                Expr::Column(Column::new_unqualified(ROWS)),
                lit(field.name().clone()),
            ],
        ));
        columns.push(value.alias_qualified(Some(name.clone()), column));
    }
    let made = unnested.project(columns)?.build()?;
    let Some(condition) = calls.next() else {
        return Ok(made);
    };
    let condition = context.sql_to_expr(condition.expr, made.schema())?;
    LogicalPlanBuilder::from(made).filter(condition)?.build()
}

fn pivot(
    input: LogicalPlan,
    aggregates: Vec<ExprWithAlias>,
    pivoted: Vec<ast::Expr>,
    values: Vec<ExprWithAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let schema = input.schema().as_ref().clone();
    let mut used = HashSet::new();
    for column in pivoted {
        let column = context.sql_to_expr(column, &schema)?;
        used.extend(column.column_refs().into_iter().cloned());
    }
    let mut planned = vec![];
    for aggregate in aggregates {
        let expr = context.sql_to_expr(aggregate.expr, &schema)?.unalias();
        used.extend(expr.column_refs().into_iter().cloned());
        planned.push((expr, aggregate.alias.map(|alias| alias.value)));
    }
    let groups: Vec<Column> = columns_of(&schema)
        .filter(|column| !used.contains(column))
        .collect();
    let mut calls = vec![];
    let mut columns = vec![];
    for value in values {
        let condition = context.sql_to_expr(value.expr, &schema)?;
        let label = value.alias.map(|alias| alias.value).unwrap_or_default();
        let rows = filtered(count_all().unalias(), &condition)?;
        calls.push(rows.clone());
        for (aggregate, name) in &planned {
            let aggregate = filtered(aggregate.clone(), &condition)?;
            calls.extend(find_aggregate_exprs(std::iter::once(&aggregate)));
            let name = match name {
                Some(name) => format!("{label}_{name}"),
                None => label.clone(),
            };
            // Where no row has the value there is nothing, whatever the function makes of nothing.
            let any = rows.clone().gt(lit(0_i64));
            let case = Case::new(None, vec![(Box::new(any), Box::new(aggregate))], None);
            columns.push(Expr::Case(case).alias(name));
        }
    }
    let mut seen = HashSet::new();
    calls.retain(|call| seen.insert(call.clone()));
    let columns = columns
        .into_iter()
        .map(|column| by_name(column, &seen))
        .collect::<Result<Vec<_>>>()?;
    let keys: Vec<Expr> = groups.into_iter().map(Expr::Column).collect();
    LogicalPlanBuilder::from(input)
        .aggregate(keys.clone(), calls)?
        .project(keys.into_iter().chain(columns))?
        .build()
}

/// An expression whose aggregates see only the rows that satisfy `condition`.
fn filtered(expr: Expr, condition: &Expr) -> Result<Expr> {
    let changed = expr.transform(|expr| match expr {
        Expr::AggregateFunction(mut function) => {
            let filter = match function.params.filter.take() {
                Some(filter) => filter.and(condition.clone()),
                None => condition.clone(),
            };
            function.params.filter = Some(Box::new(filter));
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// An expression over the results of aggregates that are computed below it.
fn by_name(expr: Expr, computed: &HashSet<Expr>) -> Result<Expr> {
    let changed = expr.transform(|expr| match computed.contains(&expr) {
        true => {
            let name = expr.schema_name().to_string();
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                name,
            ))))
        }
        false => Ok(Transformed::no(expr)),
    })?;
    Ok(changed.data)
}

/// The type of the rows a generator makes.
pub(super) fn rows_of(columns: Vec<(String, DataType)>) -> DataType {
    let fields: Vec<_> = columns
        .into_iter()
        .map(|(name, data_type)| datafusion::arrow::datatypes::Field::new(name, data_type, true))
        .collect();
    types::list_of(&DataType::Struct(fields.into()))
}
