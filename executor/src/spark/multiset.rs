//! INTERSECT ALL and EXCEPT ALL. DataFusion plans them as joins that ask whether a row is there at all; how
//! often it is there counts, too. So equal rows are numbered on both sides, and the number is a key.

use std::sync::Arc;

use datafusion::common::{Column, NullEquality, Result};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};

/// Names of the numbers of the two sides.
const NUMBERS: [&str; 2] = ["__windrow_left_number", "__windrow_right_number"];

/// Whether the planner has made a join of an operation on sets that keeps duplicates.
///
/// Over distinct rows the join is right as it is.
pub(super) fn is_all(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

/// The join with the number of a row among its equals as one more key.
pub(super) fn numbered(mut join: Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = columns.collect();
    let (left, right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    join.left = Arc::new(with_number(&join.left, left, NUMBERS[0])?);
    join.right = Arc::new(with_number(&join.right, right, NUMBERS[1])?);
    let number = |name: &str| Expr::Column(Column::new_unqualified(name));
    join.on.push((number(NUMBERS[0]), number(NUMBERS[1])));
    let joined = Join::try_new(
        join.left,
        join.right,
        join.on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined))
        .project(columns)?
        .build()
}

fn with_number(plan: &LogicalPlan, keys: Vec<Expr>, name: &str) -> Result<LogicalPlan> {
    let mut function = WindowFunction::new(row_number_udwf(), vec![]);
    function.params.partition_by = keys;
    let number = Expr::WindowFunction(Box::new(function)).alias(name);
    LogicalPlanBuilder::from(plan.clone())
        .window(vec![number])?
        .build()
}
