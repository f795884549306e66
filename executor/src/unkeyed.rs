//! What plans say of keys is kept from those who would trust it: rules of DataFusion's, and its planner.
//!
//! A schema says which columns determine others. Behind a join with a relation of distinct rows, a GROUP BY
//! over a key of these and a column of the other side says that the key alone determines the row. Rules
//! would then drop a DISTINCT, a key of GROUP BY or ORDER BY, or a join, and give other rows; the planner adds
//! what it takes for determined to a GROUP BY, and counts on the rules to take it out again. So both must not
//! see keys: the planner sees a relation without them (`without_keys`, by the planner of relations), and the
//! rules a plan without them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rules that look at keys.
const RULES: [&str; 4] = [
    "eliminate_duplicated_expr",
    "eliminate_join",
    "optimize_projections",
    "replace_distinct_aggregate",
];

/// Another rule, for which no column determines another.
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
        // A rule that is given one node after the other looks at the schemas of its inputs.
        let one_by_one = self.rule.apply_order().is_some();
        let plan = match one_by_one {
            true => plan.map_children(below).data()?,
            false => plan
                .transform_down_with_subqueries(|plan| forget(plan).map(Transformed::yes))
                .data()?,
        };
        self.rule.rewrite(plan, config)
    }
}

/// A relation whose schema says nothing of keys.
pub(crate) fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan.schema().functional_dependencies().is_empty() {
        true => Ok(plan),
        false => below(plan).data(),
    }
}

/// Forgets the keys of the first schema at or below a node.
fn below(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match &plan {
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Distinct(_) => plan.map_children(below).data()?,
        _ => forget(plan)?,
    };
    Ok(Transformed::yes(plan))
}

fn forget(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let schema: Option<&mut DFSchemaRef> = match &mut plan {
        LogicalPlan::Projection(projection) => Some(&mut projection.schema),
        LogicalPlan::Aggregate(aggregate) => Some(&mut aggregate.schema),
        LogicalPlan::Join(join) => Some(&mut join.schema),
        LogicalPlan::SubqueryAlias(alias) => Some(&mut alias.schema),
        LogicalPlan::Window(window) => Some(&mut window.schema),
        LogicalPlan::Union(union) => Some(&mut union.schema),
        LogicalPlan::Unnest(unnest) => Some(&mut unnest.schema),
        _ => None,
    };
    if let Some(schema) = schema
        && !schema.functional_dependencies().is_empty()
    {
        let none = FunctionalDependencies::empty();
        let forgotten = schema.as_ref().clone().with_functional_dependencies(none)?;
        *schema = Arc::new(forgotten);
    }
    Ok(plan)
}
