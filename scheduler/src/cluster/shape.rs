//! Makes a plan fit for processes that share nothing.
//!
//! Each task of the runtime sees one partition of a plan and nothing of the others. A join that gives
//! rows of a side by whether they met none, and holds that side whole in each task, would give them
//! once for each task: it runs in a single one. Which side of a nested loop join that is the runtime
//! decides late, so for these it is done for all but inner ones. Deletion vectors get a node of their
//! own. Plans with scans that the wire does not carry as they are stay here.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use windrow_executor::codec::WindrowCodec;
use windrow_executor::kept_rows;
use windrow_executor::one_task::OneTaskExec;

/// The plan as it is sent, or why it can't be.
pub(crate) enum Shape {
    Sent(Arc<dyn ExecutionPlan>),
    /// In words.
    StaysHere(String),
}

/// The sides of a join that must run in one task.
fn sides_for_one_task(
    node: &Arc<dyn ExecutionPlan>,
) -> Option<(Arc<dyn ExecutionPlan>, Arc<dyn ExecutionPlan>)> {
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let is_safe = *join.join_type() == JoinType::Inner;
        return (!is_safe).then(|| (join.left().clone(), join.right().clone()));
    }
    let join = node.downcast_ref::<HashJoinExec>()?;
    let tells_of_left = matches!(
        join.join_type(),
        JoinType::Left
            | JoinType::Full
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
    );
    let holds_left = *join.partition_mode() == PartitionMode::CollectLeft && tells_of_left;
    (holds_left || join.null_aware).then(|| (join.left().clone(), join.right().clone()))
}

/// Makes `plan` fit.
///
/// # Errors
/// If a node can't be made anew, or a file holds what the wire would lose.
pub(crate) fn of(plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Result<Shape> {
    if let Some(reason) = stays_here(&plan)? {
        return Ok(Shape::StaysHere(reason));
    }
    let plan = plan
        .transform_up(|node| {
            let (left, right) = match sides_for_one_task(&node) {
                Some(sides) => sides,
                None => return Ok(Transformed::no(node)),
            };
            let right: Arc<dyn ExecutionPlan> = Arc::new(OneTaskExec::over(right));
            let children = vec![left, right];
            Ok(Transformed::yes(node.replace_children(
                children,
                ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
            )?))
        })?
        .data;
    let plan = kept_rows::carried(plan)?;
    Ok(match lost(&plan, context) {
        None => Shape::Sent(plan),
        Some(reason) => Shape::StaysHere(reason),
    })
}

/// A plan as text, without the hints that say in which order files are best read: they do not travel,
/// and no row hangs on them.
fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    const HINTS: [&str; 2] = [", sort_order_for_reorder=[", ", reverse_row_groups="];
    let text = displayable(plan.as_ref()).indent(true).to_string();
    text.lines()
        .map(|line| {
            let end = HINTS.iter().filter_map(|hint| line.find(hint)).min();
            format!("{}\n", &line[..end.unwrap_or(line.len())])
        })
        .collect()
}

/// What of a plan would be another one where it arrives, in words. A plan shows all that decides
/// about its rows, so that two which show the same are the same.
fn lost(plan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Option<String> {
    let codec = WindrowCodec::default();
    let arrived = PhysicalPlanNode::try_from_physical_plan(plan.clone(), &codec)
        .and_then(|node| node.try_into_physical_plan(context, &codec));
    let arrived = match arrived {
        Ok(arrived) => arrived,
        Err(error) => return Some(format!("it can't be sent: {error}")),
    };
    let (here, there) = (shown(plan), shown(&arrived));
    if here == there {
        return None;
    }
    let differing = here.lines().zip(there.lines()).find(|(a, b)| a != b);
    Some(match differing {
        Some((a, b)) => format!(
            "it would arrive as another plan: `{}` as `{}`",
            a.trim(),
            b.trim()
        ),
        None => "it would arrive as another plan".into(),
    })
}

fn stays_here(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<String>> {
    let mut reason = None;
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            let source = scan.data_source();
            let is_carried = match source.downcast_ref::<FileScanConfig>() {
                Some(config) => config
                    .file_source()
                    .downcast_ref::<ParquetSource>()
                    .is_some(),
                None => source.downcast_ref::<MemorySourceConfig>().is_some(),
            };
            if !is_carried {
                reason = Some("it reads CSV or JSON files".to_string());
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reason)
}
