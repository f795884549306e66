//! How a change of the sources is brought to the target: the techniques between doing nothing and
//! computing the window anew, and the choice among them.
//!
//! [`affected`] tells which rows of the result a change can touch, [`appended`] which rows it adds,
//! [`merge`] how stored groups take new rows in. Whether any of this may be used at all (what the
//! flow state says, what others did to the target) is decided before, in `facts` and
//! `flows::refresh`. When anything here is in doubt, the window is computed as a whole.

mod affected;
mod appended;
mod changed_rows;
pub mod keys;
mod merge;
mod touched;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{Column, DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use windrow_delta::DataFile;
use windrow_executor::local;
use windrow_flows::refresh::{Decision, FallbackReason, Technique, decision_for};

use crate::changed::{ChangedSource, bytes_of};
use crate::flow::{FlowPlan, Scope};
use crate::learned::{Cost, Learned};
use crate::removal::RemovalPlanner;
use crate::report::{ChangeDataRead, Considered, Issue};
use touched::{Part, Touched};

/// An incremental plan is only refused for its cost when it would read more than this.
const REFUSABLE_BYTES: u64 = 64 << 20;

/// Changed files up to this size are compared row by row in any case.
const COMPARED_BYTES: u64 = 8 << 20;

/// What the user and the state allow.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The window holds exactly what the sources gave at the last refresh, so that rows may be added
    /// to what is there.
    pub base_is_exact: bool,
    /// Cost is no reason to compute the window as a whole.
    pub at_any_cost: bool,
    /// What of the window the last refresh did not cover; it is computed in any case.
    pub uncovered: Option<Expr>,
    /// The costs of all techniques are worked out, not only those that decide.
    pub all_costs: bool,
    /// What the flow's past runs tell of the estimates.
    pub learned: Learned,
    /// Only these techniques are taken, where they apply; empty for all. For measurements.
    pub only: Vec<Technique>,
}

/// A chosen technique with the rows that it stages.
pub struct Chosen {
    pub decision: Decision,
    /// What is staged; `None` for nothing.
    pub rows: Option<LogicalPlan>,
    /// The rows' expressions are typed already.
    pub typed: bool,
    pub considered: Vec<Considered>,
    /// Sources whose change was read from their change data.
    pub change_data: Vec<ChangeDataRead>,
    /// Bytes that were read to find out what changed.
    pub bytes_read: u64,
}

/// One way to bring the change in.
struct Candidate {
    technique: Technique,
    scope: Scope,
    rows: LogicalPlan,
    typed: bool,
    /// As past runs correct it.
    cost: Cost,
    /// Its place among what was considered.
    place: usize,
}

/// Chooses for a planned flow whose sources changed; sets the plan's scope.
///
/// # Errors
/// If the change can't be read, or the plan can't be derived: the caller then computes the window.
pub async fn choose(
    plan: &mut FlowPlan,
    changed: Vec<ChangedSource>,
    rules: Rules,
) -> Result<Chosen> {
    let mut changed = by_table(changed);
    loop {
        let by_change_data = changed.iter().any(|c| c.change_data.is_some());
        // A file that was rearranged away may be gone; the new files of others are there.
        let rearranged = changed
            .iter()
            .filter(|c| c.rearranged && c.change_data.is_none());
        if are_gone(objects(rearranged, false)).await {
            break;
        }
        match choose_among(plan, &changed, rules.clone()).await {
            Ok(chosen) => return Ok(chosen),
            // Change data may be gone before the files are, and the files tell the same.
            Err(error) if by_change_data => {
                tracing::debug!(%error, "change data could not be read");
                plan.scope = Scope::default();
                for source in &mut changed {
                    source.change_data = None;
                }
            }
            Err(error) if are_gone(objects(changed.iter(), true)).await => {
                tracing::debug!(%error, "changed files are gone");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    plan.scope = Scope::default();
    plan.bound.log.take();
    Ok(Chosen {
        decision: decision_for(vec![FallbackReason::DataFileMissing]),
        rows: Some(plan.windowed()?),
        typed: false,
        considered: Vec::new(),
        change_data: Vec::new(),
        bytes_read: 0,
    })
}

/// The objects of changed files, with removed ones or only the added.
fn objects<'a>(
    changed: impl Iterator<Item = &'a ChangedSource>,
    with_removed: bool,
) -> Vec<(Arc<dyn ObjectStore>, Path)> {
    let mut found = Vec::new();
    for source in changed {
        let store = source.table.location().store();
        let removed = source.removed.iter().filter(|_| with_removed);
        let paths = source.added.iter().chain(removed).map(DataFile::path);
        found.extend(paths.filter_map(Result::ok).map(|p| (store.clone(), p)));
    }
    found
}

/// Whether some of the objects are not there any more. What can't be found out counts as there.
async fn are_gone(objects: Vec<(Arc<dyn ObjectStore>, Path)>) -> bool {
    const AT_ONCE: usize = 32;
    for some in objects.chunks(AT_ONCE) {
        let heads = some.iter().map(|(store, path)| store.head(path));
        for head in futures::future::join_all(heads).await {
            if matches!(head, Err(object_store::Error::NotFound { .. })) {
                return true;
            }
        }
    }
    false
}

async fn choose_among(
    plan: &mut FlowPlan,
    changed: &[ChangedSource],
    rules: Rules,
) -> Result<Chosen> {
    plan.bound.log.take();
    let optimized = plan.bound.state.optimize(&plan.windowed()?)?;
    let mut choice = Choice {
        changed,
        rules,
        considered: Vec::new(),
        bytes_read: 0,
        candidates: Vec::new(),
        full: None,
    };
    if choice.gather(plan, &optimized).await? == Found::Nothing {
        choice.considered.retain(|c| c.technique != Technique::NoOp);
        let mut considered = vec![entry(Technique::NoOp, None, Vec::new())];
        considered[0].is_chosen = true;
        considered.extend(choice.considered);
        return Ok(Chosen {
            decision: Decision::no_op(),
            rows: None,
            typed: false,
            considered,
            change_data: change_data_of(changed),
            bytes_read: choice.bytes_read,
        });
    }
    choice.conclude(plan).await
}

/// Whether there is anything to bring in.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    Something,
}

struct Choice<'a> {
    changed: &'a [ChangedSource],
    rules: Rules,
    considered: Vec<Considered>,
    bytes_read: u64,
    candidates: Vec<Candidate>,
    /// The cost of the whole window, once it was needed.
    full: Option<Cost>,
}

impl Choice<'_> {
    fn wants(&self, technique: Technique) -> bool {
        self.rules.only.is_empty() || self.rules.only.contains(&technique)
    }

    fn refuse(&mut self, technique: Technique, words: impl Into<String>) {
        self.considered.push(entry(
            technique,
            None,
            vec![Issue {
                issue_type: FallbackReason::PlanNotIncrementalizable.word().into(),
                prevent_incrementalization: true,
                words: words.into(),
            }],
        ));
    }

    /// Finds the candidates.
    async fn gather(&mut self, plan: &mut FlowPlan, optimized: &LogicalPlan) -> Result<Found> {
        const BASE: &str =
            "an override wrote to the target since the last refresh; rows may be there already";
        const GROWN: &str = "the window takes in rows that the last one left out";
        let unfit = if self.rules.uncovered.is_some() {
            Some(GROWN)
        } else if !self.rules.base_is_exact {
            Some(BASE)
        } else {
            None
        };
        if let Some(why) = unfit {
            self.refuse(Technique::AppendOnly, why);
            self.refuse(Technique::GroupAggregate, why);
        } else {
            if self.wants(Technique::AppendOnly) {
                match appended::gained(optimized, self.changed, &plan.bound.log)? {
                    Ok(rows) => {
                        if self.is_empty(plan, &rows).await? {
                            return Ok(Found::Nothing);
                        }
                        let scope = Scope {
                            appends: true,
                            ..Scope::default()
                        };
                        self.candidate(plan, Technique::AppendOnly, scope, rows, true)
                            .await?;
                    }
                    Err(why) => self.refuse(Technique::AppendOnly, why),
                }
            }
            if self.wants(Technique::GroupAggregate) && self.candidates.is_empty() {
                match self.merge(plan, optimized).await? {
                    Ok(Found::Nothing) => return Ok(Found::Nothing),
                    Ok(Found::Something) => {}
                    Err(why) => self.refuse(Technique::GroupAggregate, why),
                }
            }
        }
        if !self.candidates.is_empty() {
            return Ok(Found::Something);
        }
        let net = self.rules.base_is_exact && self.is_worth_comparing(plan).await?;
        let parts = match touched::find(plan, optimized, self.changed, net).await? {
            Touched::Nothing { bytes_read } => {
                self.bytes_read += bytes_read;
                if self.rules.uncovered.is_none() {
                    return Ok(Found::Nothing);
                }
                vec![Part {
                    condition: lit(false),
                    keys: None,
                }]
            }
            Touched::Anything { bytes_read, why } => {
                self.bytes_read += bytes_read;
                self.refuse(fine_technique(optimized), why.clone());
                self.refuse(Technique::PartitionOverwrite, why);
                return Ok(Found::Something);
            }
            Touched::Parts { bytes_read, parts } => {
                self.bytes_read += bytes_read;
                parts
            }
        };
        for part in parts {
            // Beside a range that is new to the window, the keys' bounds are as good as the keys.
            let (condition, keys) = match &self.rules.uncovered {
                Some(uncovered) => (part.condition.or(uncovered.clone()), None),
                None => (part.condition, part.keys),
            };
            let technique = if keys.is_some() {
                fine_technique(optimized)
            } else {
                Technique::PartitionOverwrite
            };
            if !self.wants(technique) {
                continue;
            }
            let scope = Scope {
                keys,
                ..plan.part(condition)?
            };
            let before = std::mem::replace(&mut plan.scope, scope);
            let rows = plan.windowed();
            let scope = std::mem::replace(&mut plan.scope, before);
            self.candidate(plan, technique, scope, rows?, false).await?;
        }
        Ok(Found::Something)
    }

    /// Whether rewritten files are few enough for their old and new rows to be compared. An update
    /// of rows all over a table rewrites all of it; comparing it then costs more than reading it.
    async fn is_worth_comparing(&mut self, plan: &mut FlowPlan) -> Result<bool> {
        let rewritten: u64 = self
            .changed
            .iter()
            .filter(|c| !c.added.is_empty() && !c.removed.is_empty())
            .map(|c| match &c.change_data {
                Some(found) => found.bytes(),
                None => bytes_of(&c.added) + bytes_of(&c.removed),
            })
            .sum();
        if rewritten <= COMPARED_BYTES {
            return Ok(true);
        }
        let full = self.full(plan).await?;
        Ok(rewritten <= full.read / 2)
    }

    /// The estimate as past runs correct it, noted for the report.
    fn corrected(&self, technique: Technique, estimated: Cost) -> (Cost, Considered) {
        let mut noted = entry(technique, Some(estimated.total()), Vec::new());
        let Some((cost, runs)) = self.rules.learned.corrected(technique, estimated) else {
            return (estimated, noted);
        };
        noted.cost = Some(cost.total());
        noted.estimated_cost = Some(estimated.total());
        noted.past_runs = Some(runs as u64);
        (cost, noted)
    }

    /// The estimated cost of the whole window.
    async fn full(&mut self, plan: &mut FlowPlan) -> Result<Cost> {
        if let Some(known) = self.full {
            return Ok(known);
        }
        let whole = plan.windowed()?;
        let full = cost(plan, &Scope::default(), &whole, false).await?;
        self.full = Some(full);
        Ok(full)
    }

    /// The merge of new rows into stored groups, as a candidate.
    async fn merge(
        &mut self,
        plan: &mut FlowPlan,
        optimized: &LogicalPlan,
    ) -> Result<std::result::Result<Found, String>> {
        let merge = match merge::of(plan, optimized, self.changed, &plan.bound.log)? {
            Ok(merge) => merge,
            Err(why) => return Ok(Err(why)),
        };
        let Some(existing) = plan.existing.clone() else {
            return Ok(Err("there is no target".into()));
        };
        let columns = merge.keys(plan);
        let scope = if merge.is_one_row() {
            Scope::default()
        } else if columns.is_empty() {
            return Ok(Err("no key of GROUP BY can be looked up exactly".into()));
        } else {
            let exprs: Vec<Expr> = columns
                .iter()
                .map(|c| Expr::Column(Column::new_unqualified(c)))
                .collect();
            let distinct = LogicalPlanBuilder::from(merge.partial.clone())
                .project(exprs)?
                .distinct()?
                .build()?;
            let (keys, bytes_read) = touched::collect_keys(plan, columns, distinct).await?;
            self.bytes_read += bytes_read;
            match keys {
                None => return Ok(Err("too many groups have new rows".into())),
                Some(keys) if keys.count() == 0 => return Ok(Ok(Found::Nothing)),
                Some(keys) => {
                    let bounds = keys.bounds(|_| true)?;
                    Scope {
                        keys: Some(keys),
                        ..plan.part(bounds)?
                    }
                }
            }
        };
        let before = std::mem::replace(&mut plan.scope, scope);
        let rows = merge.rows(plan, &existing, &plan.bound.log);
        let scope = std::mem::replace(&mut plan.scope, before);
        self.candidate(plan, Technique::GroupAggregate, scope, rows?, true)
            .await?;
        Ok(Ok(Found::Something))
    }

    async fn is_empty(&mut self, plan: &FlowPlan, rows: &LogicalPlan) -> Result<bool> {
        let one = LogicalPlanBuilder::from(rows.clone())
            .limit(0, Some(1))?
            .build()?;
        let state = &plan.bound.state;
        let physical = local::physical_of_typed(state, one).await?;
        plan.bound.log.take();
        let batches = local::collect(state, physical).await?;
        Ok(batches.iter().all(|b| b.num_rows() == 0))
    }

    async fn candidate(
        &mut self,
        plan: &mut FlowPlan,
        technique: Technique,
        scope: Scope,
        rows: LogicalPlan,
        typed: bool,
    ) -> Result<()> {
        let estimated = cost(plan, &scope, &rows, typed).await?;
        let (cost, noted) = self.corrected(technique, estimated);
        let place = self.considered.len();
        self.considered.push(noted);
        self.candidates.push(Candidate {
            technique,
            scope,
            rows,
            typed,
            cost,
            place,
        });
        Ok(())
    }

    /// Takes the cheapest.
    async fn conclude(mut self, plan: &mut FlowPlan) -> Result<Chosen> {
        let whole = plan.windowed()?;
        let refusable = self
            .candidates
            .iter()
            .all(|c| c.cost.read > REFUSABLE_BYTES)
            && !self.rules.at_any_cost
            && self.rules.only.is_empty();
        if refusable || self.rules.all_costs {
            self.full(plan).await?;
        }
        let (full, whole_noted) = match self.full {
            Some(estimated) => {
                let (cost, noted) = self.corrected(Technique::CompleteRecompute, estimated);
                (Some(cost), noted)
            }
            None => (None, entry(Technique::CompleteRecompute, None, Vec::new())),
        };
        let grown: Vec<FallbackReason> = self
            .rules
            .uncovered
            .iter()
            .map(|_| FallbackReason::UnsupportedReplaceWherePredicate)
            .collect();
        let mut reasons = grown.clone();
        let best = (0..self.candidates.len()).min_by_key(|i| self.candidates[*i].cost.total());
        let best = match best.map(|i| self.candidates.swap_remove(i)) {
            None => {
                let reason = FallbackReason::PlanNotIncrementalizable;
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
                None
            }
            Some(best) => {
                let dearer = refusable && full.is_some_and(|full| best.cost.total() > full.total());
                let unwanted = self.rules.only == [Technique::CompleteRecompute];
                if dearer || unwanted {
                    reasons.push(FallbackReason::IncrementalPlanRejectedByCostModel);
                    None
                } else {
                    Some(best)
                }
            }
        };
        let whole_place = self.considered.len();
        self.considered.push(whole_noted);
        let decision = match &best {
            Some(best) => Decision {
                technique: best.technique,
                reasons: grown,
            },
            None => decision_for(reasons),
        };
        let chosen = best.as_ref().map_or(whole_place, |best| best.place);
        if let Some(chosen) = self.considered.get_mut(chosen) {
            chosen.is_chosen = true;
        }
        let (rows, typed) = match best {
            Some(best) => {
                plan.scope = best.scope;
                (best.rows, best.typed)
            }
            None => (whole, false),
        };
        Ok(Chosen {
            decision,
            rows: Some(rows),
            typed,
            considered: self.considered,
            change_data: change_data_of(self.changed),
            bytes_read: self.bytes_read,
        })
    }
}

/// The entry for a change that could not be read or derived.
pub fn not_told(message: &str) -> Vec<Considered> {
    let issue = Issue {
        issue_type: FallbackReason::PlanNotIncrementalizable.word().into(),
        prevent_incrementalization: true,
        words: format!("the change could not be told: {message}"),
    };
    let mut full = entry(Technique::CompleteRecompute, None, Vec::new());
    full.is_chosen = true;
    vec![
        entry(Technique::PartitionOverwrite, None, vec![issue]),
        full,
    ]
}

fn entry(technique: Technique, cost: Option<u64>, issues: Vec<Issue>) -> Considered {
    Considered {
        technique,
        is_applicable: issues.iter().all(|i| !i.prevent_incrementalization),
        is_chosen: false,
        cost,
        estimated_cost: None,
        past_runs: None,
        issues,
    }
}

/// What the techniques by affected keys are called for this query.
fn fine_technique(rows: &LogicalPlan) -> Technique {
    let mut node = rows;
    loop {
        match node {
            LogicalPlan::Window(_) => return Technique::WindowFunction,
            // Without an aggregate the rows are their own keys.
            LogicalPlan::Distinct(_) => return Technique::RowBased,
            LogicalPlan::Aggregate(a) if a.aggr_expr.is_empty() => return Technique::RowBased,
            LogicalPlan::Aggregate(_) => return Technique::GenericAggregate,
            _ => {}
        }
        match node.inputs().as_slice() {
            [input] => node = input,
            _ => return Technique::RowBased,
        }
    }
}

/// Sources by table: one that is read under several names changed once.
fn by_table(changed: Vec<ChangedSource>) -> Vec<ChangedSource> {
    let mut tables: Vec<ChangedSource> = Vec::new();
    for source in changed {
        let url = source.table.location().url().clone();
        match tables.iter_mut().find(|t| *t.table.location().url() == url) {
            None => tables.push(source),
            Some(known) => known.join(source),
        }
    }
    for table in &mut tables {
        table.settle();
    }
    tables
}

/// What of the changes is read from change data.
fn change_data_of(changed: &[ChangedSource]) -> Vec<ChangeDataRead> {
    let read = changed.iter().filter_map(|source| {
        let found = source.change_data.as_ref()?;
        Some(ChangeDataRead {
            table: source.shown.clone(),
            files: found.changes.len() as u64,
            bytes: bytes_of(&found.changes),
        })
    });
    read.filter(|read| read.files > 0).collect()
}

/// The bytes that staging `rows` and replacing the scope's rows would read and write, from the
/// tables' logs.
async fn cost(plan: &mut FlowPlan, scope: &Scope, rows: &LogicalPlan, typed: bool) -> Result<Cost> {
    let state = &plan.bound.state;
    if typed {
        local::physical_of_typed(state, rows.clone()).await?;
    } else {
        local::physical(state, rows).await?;
    }
    let read: u64 = plan.bound.log.take().iter().map(|r| r.bytes_scanned).sum();
    let mut cost = Cost { read, written: 0 };
    let Some(existing) = plan.existing.clone() else {
        return Ok(cost);
    };
    if scope.appends {
        // New rows take about the bytes that they have in the sources.
        cost.written = read;
        return Ok(cost);
    }
    let before = std::mem::replace(&mut plan.scope, scope.clone());
    let removal = RemovalPlanner::preview(plan, &existing).await;
    plan.scope = before;
    let removal = removal.map_err(|e| DataFusionError::External(Box::new(e)))?;
    let whole: u64 = removal.remove.iter().map(|f| f.size.unsigned_abs()).sum();
    cost.read += removal.looked_into_bytes;
    cost.written = whole + removal.looked_into_bytes;
    Ok(cost)
}

/// Positions of the target's columns that are worth knowing of a changed row: those that the window
/// is told by, and those by which files are parted.
fn telling_columns(plan: &FlowPlan) -> BTreeSet<usize> {
    let schema = &plan.target_schema;
    match &plan.pinned {
        Some(pinned) => pinned
            .typed
            .expr
            .column_refs()
            .iter()
            .filter_map(|c| schema.index_of(&c.name).ok())
            .collect(),
        None => plan
            .evolved
            .schema
            .partition_columns
            .iter()
            .filter_map(|p| schema.index_of(&windrow_executor::scan::query_name(p)).ok())
            .collect(),
    }
}
