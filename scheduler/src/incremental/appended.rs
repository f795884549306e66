//! The rows that a query gains when its sources only grow: the query over the new rows.
//!
//! This holds for plans that give each row from rows of which no other row takes part:
//! projections, filters, UNION ALL, inner joins, and outer, semi and anti joins whose other side did
//! not change. Anything else is left to the techniques that look at affected rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, Result};
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, TableScan, Union,
};
use windrow_executor::scan::{DeltaSource, ScanLog};

use super::changed_rows::{changed_source, same_scan, scan_of_files};
use crate::changed::ChangedSource;

/// The rows that an analyzed and optimized plan gains, or in words what stands against it.
pub fn gained(
    node: &LogicalPlan,
    changed: &[ChangedSource],
    log: &ScanLog,
) -> Result<std::result::Result<LogicalPlan, String>> {
    if let Some(shrunk) = changed.iter().find(|c| !c.removed.is_empty()) {
        return Ok(Err(format!(
            "rows of `{}` were changed or deleted",
            shrunk.shown
        )));
    }
    let growth = Growth { changed, log };
    Ok(match growth.of(node) {
        Ok(Some(rows)) => Ok(rows),
        // Nothing below reads a changed source; then there is nothing to append.
        Ok(None) => Err("no changed source is read".into()),
        Err(Stop::Shape(why)) => Err(why),
        Err(Stop::Error(error)) => return Err(error),
    })
}

/// Why a plan's gain can't be told.
enum Stop {
    Shape(String),
    Error(DataFusionError),
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Error(error)
    }
}

fn shape<T>(why: &str) -> std::result::Result<T, Stop> {
    Err(Stop::Shape(why.into()))
}

struct Growth<'a> {
    changed: &'a [ChangedSource],
    log: &'a ScanLog,
}

impl Growth<'_> {
    fn changed(&self, scan: &TableScan) -> Option<&ChangedSource> {
        changed_source(self.changed, scan)
    }

    fn mentions(&self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        node.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && self.changed(scan).is_some()
            {
                found = true;
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }

    /// The rows that the node gains, in the node's own schema; `None` when it gains none.
    fn of(&self, node: &LogicalPlan) -> std::result::Result<Option<LogicalPlan>, Stop> {
        if !self.mentions(node)? {
            return Ok(None);
        }
        if self.in_expressions(node)? {
            return shape("a subquery reads a source that changed");
        }
        match node {
            LogicalPlan::TableScan(scan) => {
                let Some(change) = self.changed(scan) else {
                    return Ok(None);
                };
                if scan.fetch.is_some() {
                    return shape("the query has a LIMIT");
                }
                Ok(Some(scan_of_files(change, scan, &change.added, self.log)?))
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Unnest(_) => self.through(node),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.of(&sort.input),
            LogicalPlan::Repartition(r) => self.of(&r.input),
            LogicalPlan::Union(union) => {
                let mut inputs = Vec::with_capacity(union.inputs.len());
                for input in &union.inputs {
                    let gained = match self.of(input)? {
                        Some(gained) => named_as(gained, &union.schema)?,
                        None => LogicalPlan::EmptyRelation(EmptyRelation {
                            produce_one_row: false,
                            schema: union.schema.clone(),
                        }),
                    };
                    inputs.push(Arc::new(gained));
                }
                Ok(Some(LogicalPlan::Union(Union {
                    inputs,
                    schema: union.schema.clone(),
                })))
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(_) => shape("the query has GROUP BY or DISTINCT"),
            LogicalPlan::Distinct(_) => shape("the query has DISTINCT"),
            LogicalPlan::Window(_) => shape("the query has window functions"),
            LogicalPlan::Limit(_) | LogicalPlan::Sort(_) => shape("the query has a LIMIT"),
            other => shape(&format!(
                "{} is not followed row by row",
                other
                    .display()
                    .to_string()
                    .split(':')
                    .next()
                    .unwrap_or_default()
            )),
        }
    }

    fn through(&self, node: &LogicalPlan) -> std::result::Result<Option<LogicalPlan>, Stop> {
        let inputs = node.inputs();
        let [input] = inputs.as_slice() else {
            return shape("a node with several inputs");
        };
        let Some(gained) = self.of(input)? else {
            return Ok(None);
        };
        Ok(Some(node.with_new_exprs(node.expressions(), vec![gained])?))
    }

    fn in_expressions(&self, node: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        for expr in node.expressions() {
            expr.apply(|e| {
                let plan = match e {
                    Expr::ScalarSubquery(s) => Some(&s.subquery),
                    Expr::Exists(e) => Some(&e.subquery.subquery),
                    Expr::InSubquery(i) => Some(&i.subquery.subquery),
                    _ => None,
                };
                if let Some(plan) = plan {
                    found |= self.mentions(plan)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(found)
    }

    fn join(&self, join: &Join) -> std::result::Result<Option<LogicalPlan>, Stop> {
        let (left, right) = (self.of(&join.left)?, self.of(&join.right)?);
        let with = |left: LogicalPlan, right: LogicalPlan| -> Result<LogicalPlan> {
            let node = LogicalPlan::Join(join.clone());
            node.with_new_exprs(node.expressions(), vec![left, right])
        };
        let one_by_one = |side_is_left: bool| match join.join_type {
            JoinType::Inner => true,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                side_is_left
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                !side_is_left
            }
            JoinType::Full => false,
        };
        const OTHER: &str = "a new row on the other side of an outer, semi or anti join changes rows that are there";
        match (left, right) {
            (None, None) => Ok(None),
            (Some(left), None) if one_by_one(true) => {
                Ok(Some(with(left, join.right.as_ref().clone())?))
            }
            (None, Some(right)) if one_by_one(false) => {
                Ok(Some(with(join.left.as_ref().clone(), right)?))
            }
            (Some(_), Some(_)) if self.changed.iter().any(|c| c.rearranged) => {
                shape("both sides of a join grew, and files were rearranged meanwhile")
            }
            (Some(left), Some(right)) if join.join_type == JoinType::Inner => {
                // New rows meet all of the other side; old ones of the left meet the new of the right.
                let first = with(left, join.right.as_ref().clone())?;
                let second = with(self.before(&join.left)?, right)?;
                Ok(Some(both(first, second)?))
            }
            _ => shape(OTHER),
        }
    }

    /// The node without the rows that its sources gained.
    fn before(&self, node: &LogicalPlan) -> Result<LogicalPlan> {
        let moved = node.clone().transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = &node else {
                return Ok(Transformed::no(node));
            };
            let Some(change) = self.changed(scan) else {
                return Ok(Transformed::no(node));
            };
            let provider =
                DeltaSource::new(change.table.clone(), change.shown.clone(), self.log.clone())?
                    .without(&change.added);
            Ok(Transformed::yes(same_scan(scan, provider)?))
        })?;
        Ok(moved.data)
    }
}

/// The plan with the names of `schema`. The optimizer may leave one input alone in the place of a
/// union, whose names it then must have.
fn named_as(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let exprs: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .zip(schema.iter())
        .map(|(own, (relation, field))| {
            Expr::Column(own).alias_qualified(relation.cloned(), field.name())
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

/// UNION ALL of two plans of one schema, under that schema's own qualified names.
fn both(first: LogicalPlan, second: LogicalPlan) -> Result<LogicalPlan> {
    let name = |i: usize| format!("__windrow_u{i}");
    let columns: Vec<_> = first
        .schema()
        .iter()
        .map(|(relation, field)| (relation.cloned(), field.name().clone()))
        .collect();
    let plainly = |plan: LogicalPlan| -> Result<LogicalPlan> {
        let exprs: Vec<Expr> = plan
            .schema()
            .columns()
            .into_iter()
            .enumerate()
            .map(|(i, c)| Expr::Column(c).alias(name(i)))
            .collect();
        LogicalPlanBuilder::from(plan).project(exprs)?.build()
    };
    let back: Vec<Expr> = columns
        .into_iter()
        .enumerate()
        .map(|(i, (relation, own))| {
            Expr::Column(Column::new_unqualified(name(i))).alias_qualified(relation, own)
        })
        .collect();
    LogicalPlanBuilder::from(plainly(first)?)
        .union(plainly(second)?)?
        .project(back)?
        .build()
}
