//! RIGHT and FULL joins USING columns: the column by its bare name is that of the right side, or that of
//! the side which has the row. DataFusion takes the left side's. The dialect puts such a join in
//! parentheses, and refuses the key by the name of a side.

use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{JoinConstraint, JoinOperator, TableFactor, TableWithJoins};

use super::functions;

/// Whether the last join takes its key from both sides, or from the right one.
pub(super) fn is_from_both_sides(joins: &TableWithJoins) -> bool {
    joins.joins.last().is_some_and(|join| {
        let constraint = kind(&join.join_operator).map(|(_, constraint)| constraint);
        matches!(
            constraint,
            Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
        )
    })
}

fn kind(operator: &JoinOperator) -> Option<(JoinType, &JoinConstraint)> {
    match operator {
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            Some((JoinType::Right, constraint))
        }
        JoinOperator::FullOuter(constraint) => Some((JoinType::Full, constraint)),
        _ => None,
    }
}

/// The plan of such joins, with one key for those of both sides.
pub(super) fn plan(
    mut joins: TableWithJoins,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let last = joins.joins.pop();
    let Some((last, (join_type, constraint))) = last.as_ref().and_then(|last| {
        let kind = kind(&last.join_operator)?;
        Some((last, kind))
    }) else {
        return plan_err!("a join without a join");
    };
    let left = match joins.joins.is_empty() {
        true => context.plan(joins.relation)?,
        false => context.plan(TableFactor::NestedJoin {
            table_with_joins: Box::new(joins),
            alias: None,
        })?,
    };
    let right = context.plan(last.relation.clone())?;
    let keys = match constraint {
        JoinConstraint::Using(names) => names
            .iter()
            .filter_map(|name| name.0.last().and_then(|part| part.as_ident()))
            .map(|ident| ident.value.clone())
            .collect(),
        _ => common(left.schema(), right.schema()),
    };
    if keys.is_empty() {
        return plan_err!("a RIGHT or FULL join of tables that have no column in common");
    }
    let left = renamed(left, &keys)?;
    let (left_columns, right_columns) = (left.schema().columns(), right.schema().columns());
    let of = |columns: &[Column], key: &str| {
        let hidden = hidden(key);
        let mut columns = columns.iter();
        columns
            .find(|column| column.name() == key || column.name() == hidden)
            .cloned()
    };
    // As in Spark, the keys come first. They belong to no table any more.
    let mut columns = Vec::with_capacity(left_columns.len() + right_columns.len());
    let mut pairs = (vec![], vec![]);
    for key in &keys {
        let (Some(left), Some(right)) = (of(&left_columns, key), of(&right_columns, key)) else {
            return plan_err!("a join USING `{key}`, which one side lacks");
        };
        pairs.0.push(left.clone());
        pairs.1.push(right.clone());
        let value = match join_type {
            JoinType::Right => Expr::Column(right),
            _ => functions::call("coalesce", vec![Expr::Column(left), Expr::Column(right)]),
        };
        columns.push(value.alias(key));
    }
    let all = left_columns.into_iter().chain(right_columns);
    let is_key = |column: &Column| {
        let name = column.name();
        keys.iter().any(|key| key == name || hidden(key) == name)
    };
    let others = all.filter(|column| !is_key(column));
    columns.extend(others.map(Expr::Column));
    LogicalPlanBuilder::from(left)
        .join(right, join_type, pairs, None)?
        .project(columns)?
        .build()
}

/// The name of a key of an earlier join, which belongs to no table, while it stands beside one that does.
fn hidden(key: &str) -> String {
    format!("__windrow_using_{key}")
}

/// The plan with such names for its keys.
fn renamed(plan: LogicalPlan, keys: &[String]) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let is_bare =
        |column: &Column| column.relation.is_none() && keys.iter().any(|key| key == column.name());
    if !columns.iter().any(is_bare) {
        return Ok(plan);
    }
    let columns = columns.into_iter().map(|column| match is_bare(&column) {
        true => {
            let name = hidden(column.name());
            Expr::Column(column).alias(name)
        }
        false => Expr::Column(column),
    });
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn common(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let names = left.fields().iter().map(|field| field.name());
    names
        .filter(|name| right.has_column_with_unqualified_name(name))
        .cloned()
        .collect()
}
