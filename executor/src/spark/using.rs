//! RIGHT and FULL joins USING columns: the column by its bare name is that of the right side, or that of
//! the side which has the row. DataFusion takes the left side's. The dialect puts such a join in
//! parentheses, and refuses the key by the name of a side that might not have the row.

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

/// The plan of such joins, in which the left side's key is that of the row.
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
    let using = keys.iter().map(Column::from_name).collect();
    let (left_columns, right_columns) = (left.schema().columns(), right.schema().columns());
    let joined = LogicalPlanBuilder::from(left).join_using(right, join_type, using)?;
    let of_right = |name: &str| {
        right_columns
            .iter()
            .find(|column| column.name() == name)
            .cloned()
            .map(Expr::Column)
    };
    let mut rest = vec![];
    let mut first = vec![];
    for column in left_columns {
        let is_key = keys.iter().any(|key| key == column.name());
        let Some(right) = of_right(column.name()).filter(|_| is_key) else {
            rest.push(Expr::Column(column));
            continue;
        };
        let (relation, name) = (column.relation.clone(), column.name().to_string());
        let value = match join_type {
            JoinType::Right => right,
            _ => functions::call("coalesce", vec![Expr::Column(column), right]),
        };
        let at = keys.iter().position(|key| *key == name).unwrap_or(0);
        first.push((at, value.alias_qualified(relation, name)));
    }
    first.sort_by_key(|(at, _)| *at);
    let columns = first.into_iter().map(|(_, column)| column).chain(rest);
    let columns = columns.chain(right_columns.iter().cloned().map(Expr::Column));
    joined.project(columns)?.build()
}

fn common(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let names = left.fields().iter().map(|field| field.name());
    names
        .filter(|name| right.has_column_with_unqualified_name(name))
        .cloned()
        .collect()
}
