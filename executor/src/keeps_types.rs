//! A rule of DataFusion's that must leave the types of columns what they are.
//!
//! The rule that computes `count(DISTINCT x), sum(y)` in two steps makes a sum of sums, and Spark's sum of
//! decimals has more digits than its summands.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Another rule, behind which columns that changed their type are cast back.
#[derive(Debug)]
pub(crate) struct KeepsTypes {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl KeepsTypes {
    pub(crate) fn of(
        rule: Arc<dyn OptimizerRule + Send + Sync>,
    ) -> Arc<dyn OptimizerRule + Send + Sync> {
        Arc::new(Self { rule })
    }
}

impl OptimizerRule for KeepsTypes {
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
        let before = Arc::clone(plan.schema());
        let rewritten = self.rule.rewrite(plan, config)?;
        let after = Arc::clone(rewritten.data.schema());
        let pairs = || before.iter().zip(after.iter());
        let same = pairs().all(|((_, one), (_, other))| one.data_type() == other.data_type());
        if !rewritten.transformed || same || before.fields().len() != after.fields().len() {
            return Ok(rewritten);
        }
        let columns = pairs()
            .map(|((_, wanted), (qualifier, field))| {
                let column = Expr::from((qualifier, field));
                match wanted.data_type() == field.data_type() {
                    true => column,
                    false => Expr::Cast(Cast::new(Box::new(column), wanted.data_type().clone()))
                        .alias_qualified(qualifier.cloned(), field.name()),
                }
            })
            .collect();
        let projection = Projection::try_new(columns, Arc::new(rewritten.data))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    }
}
