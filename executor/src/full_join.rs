//! Conditions on the common key of a full join.
//!
//! `coalesce(l.k, r.k)` above `l FULL JOIN r ON l.k = r.k` is the key of every row, whichever side it
//! comes from: rows that match have the same key, others have their own. So a condition on it holds
//! for a row just when it holds for the keys that the row is made of, and can be asked of both sides
//! before they are joined. DataFusion leaves it above the join, and both sides would be read whole.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KeysOfFullJoins;

impl OptimizerRule for KeysOfFullJoins {
    fn name(&self) -> &str {
        "keys_of_full_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else {
            return Ok(Transformed::no(plan));
        };
        let join = match filter.input.as_ref() {
            LogicalPlan::Join(join) if join.join_type == JoinType::Full => join,
            _ => return Ok(Transformed::no(plan)),
        };
        let keys: Vec<(&Column, &Column)> = join
            .on
            .iter()
            .filter_map(|pair| match pair {
                (Expr::Column(left), Expr::Column(right)) => Some((left, right)),
                _ => None,
            })
            .collect();
        let (mut left, mut right, mut above) = (Vec::new(), Vec::new(), Vec::new());
        for part in split_conjunction(&filter.predicate) {
            match for_both_sides(part, &keys, join)? {
                Some((of_left, of_right)) => {
                    left.push(of_left);
                    right.push(of_right);
                }
                None => above.push(part.clone()),
            }
        }
        let (Some(left), Some(right)) = (conjunction(left), conjunction(right)) else {
            return Ok(Transformed::no(plan));
        };
        let filtered = |predicate: Expr, input: &Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
            let filter = Filter::try_new(predicate, Arc::clone(input))?;
            Ok(Arc::new(LogicalPlan::Filter(filter)))
        };
        let join = LogicalPlan::Join(Join {
            left: filtered(left, &join.left)?,
            right: filtered(right, &join.right)?,
            ..join.clone()
        });
        Ok(Transformed::yes(match conjunction(above) {
            Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(join))?),
            None => join,
        }))
    }
}

/// The condition on the key of either side, if it is one on the common key alone.
fn for_both_sides(
    condition: &Expr,
    keys: &[(&Column, &Column)],
    join: &Join,
) -> Result<Option<(Expr, Expr)>> {
    if condition.is_volatile() {
        return Ok(None);
    }
    for (left, right) in keys {
        let of_left = with_key(condition, left, right, left)?;
        let of_right = with_key(condition, left, right, right)?;
        if is_about(&of_left, left, join.left.schema())
            && is_about(&of_right, right, join.right.schema())
        {
            return Ok(Some((of_left, of_right)));
        }
    }
    Ok(None)
}

fn is_about(condition: &Expr, key: &Column, schema: &DFSchema) -> bool {
    let columns = condition.column_refs();
    columns.len() == 1 && columns.contains(key) && schema.maybe_index_of_column(key).is_some()
}

/// `key` in the place of the first of `left` and `right` that is not null.
fn with_key(condition: &Expr, left: &Column, right: &Column, key: &Column) -> Result<Expr> {
    condition
        .clone()
        .transform_down(|expr| {
            Ok(match first_of_two(&expr) {
                Some((a, b)) if (a == left && b == right) || (a == right && b == left) => {
                    Transformed::yes(Expr::Column(key.clone()))
                }
                _ => Transformed::no(expr),
            })
        })
        .data()
}

/// The columns of `coalesce(a, b)`, which may have become a CASE by now.
fn first_of_two(expr: &Expr) -> Option<(&Column, &Column)> {
    match expr {
        Expr::ScalarFunction(function) if function.name() == "coalesce" => {
            match function.args.as_slice() {
                [Expr::Column(a), Expr::Column(b)] => Some((a, b)),
                _ => None,
            }
        }
        Expr::Case(Case {
            expr: None,
            when_then_expr,
            else_expr: Some(otherwise),
        }) => match (when_then_expr.as_slice(), otherwise.as_ref()) {
            ([(when, then)], Expr::Column(b)) => match (when.as_ref(), then.as_ref()) {
                (Expr::IsNotNull(tested), Expr::Column(a)) if tested.as_ref() == then.as_ref() => {
                    Some((a, b))
                }
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
