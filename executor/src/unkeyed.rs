//! Rules of DataFusion's that trust what plans say of keys, kept from it.
//!
//! A schema says which columns determine others. Behind a join with a relation of distinct rows, a GROUP BY
//! over a key of these and a column of the other side says that the key alone determines the row. Rules
//! would then drop a DISTINCT, a key of ORDER BY, or a join, and give other rows.
//!
//! The schemas themselves stay as they are: the planner adds columns that are determined to GROUP BY, and
//! the rule for projections takes them out again by what the same schemas say.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rules that look at keys.
const RULES: [&str; 3] = [
    "eliminate_duplicated_expr",
    "eliminate_join",
    "replace_distinct_aggregate",
];

/// Another rule, which is not asked where it would look at keys.
#[derive(Debug)]
pub(crate) struct Unkeyed {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl Unkeyed {
    /// The rule, kept from keys if it looks at them.
    pub(crate) fn of(
        rule: Arc<dyn OptimizerRule + Send + Sync>,
    ) -> Arc<dyn OptimizerRule + Send + Sync> {
        match RULES.contains(&rule.name()) {
            true => Arc::new(Self { rule }),
            false => rule,
        }
    }
}

impl OptimizerRule for Unkeyed {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let has_keys = |plan: &LogicalPlan| !plan.schema().functional_dependencies().is_empty();
        match plan {
            LogicalPlan::Distinct(Distinct::All(input)) if has_keys(&input) => {
                let columns = input.schema().columns();
                let keys: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
                if keys.is_empty() {
                    let plan = LogicalPlan::Distinct(Distinct::All(input));
                    return self.rule.rewrite(plan, config);
                }
                let groups = Aggregate::try_new(input, keys, vec![])?;
                Ok(Transformed::yes(LogicalPlan::Aggregate(groups)))
            }
            LogicalPlan::Sort(sort) if has_keys(&sort.input) => {
                Ok(Transformed::no(LogicalPlan::Sort(sort)))
            }
            LogicalPlan::Join(join) if has_keys(&join.left) || has_keys(&join.right) => {
                Ok(Transformed::no(LogicalPlan::Join(join)))
            }
            other => self.rule.rewrite(other, config),
        }
    }
}
