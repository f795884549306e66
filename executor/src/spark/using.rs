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
    let using = keys.iter().map(Column::from_name).collect();
    let (left_columns, right_columns) = (left.schema().columns(), right.schema().columns());
    let joined = LogicalPlanBuilder::from(left).join_using(right, join_type, using)?;
    let of = |columns: &[Column], key: &str| {
        let mut columns = columns.iter();
        columns.find(|column| column.name() == key).cloned()
    };
    // As in Spark, the keys come first. They belong to no table any more.
    let mut columns = Vec::with_capacity(left_columns.len() + right_columns.len());
    for key in &keys {
        let (Some(left), Some(right)) = (of(&left_columns, key), of(&right_columns, key)) else {
            return plan_err!("a join USING `{key}`, which one side lacks");
        };
        let value = match join_type {
            JoinType::Right => Expr::Column(right),
            _ => functions::call("coalesce", vec![Expr::Column(left), Expr::Column(right)]),
        };
        columns.push(value.alias(key));
    }
    let all = left_columns.into_iter().chain(right_columns);
    let others = all.filter(|column| !keys.iter().any(|key| key == column.name()));
    columns.extend(others.map(Expr::Column));
    joined.project(columns)?.build()
}

fn common(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let names = left.fields().iter().map(|field| field.name());
    names
        .filter(|name| right.has_column_with_unqualified_name(name))
        .cloned()
        .collect()
}
