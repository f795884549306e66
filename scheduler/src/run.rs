//! Running one planned flow: stage the window's rows, plan the removal, commit both as one version.
//!
//! After a conflict the commit moves past commits that have nothing to do with the window (`rebase`).
//! Otherwise a refresh of the whole window plans its removal again, without running the query again; any
//! other technique rests on what the target held, so the flow is planned anew. Staged
//! files of a flow that fails are removed, those of a process that died are found by `vacuum`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::common::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use tracing::Instrument;
use windrow_delta::commit::{Outcome, checkpoint, checkpoint_is_due};
use windrow_delta::state::{DefinedRefresh, FlowState, PastRun, app_id};
use windrow_delta::{Location, Table, TableError};
use windrow_executor::local;
use windrow_executor::stage::StagedFile;
use windrow_flows::refresh::{Decision, Technique};

use crate::bind::{ReadKind, words_of};
use crate::contents::{commit_of, metadata_differs};
use crate::coverage;
use crate::engine::StageEngine;
use crate::facts;
use crate::failpoint;
use crate::flow::{FlowPlan, OWNER, ScanFilters, source_reports};
use crate::learned::{Cost, Learned};
use crate::lease::Fence;
use crate::project::Project;
use crate::rebase;
use crate::removal::{Removal, RemovalPlanner};
use crate::report::{FlowMetrics, Problem, SourceReport};
use crate::slicing::{self, Slicing};
use crate::spans;
use crate::stager::{SliceRows, Stager};

/// How often a removal is planned against newer versions before the flow gives up.
const COMMIT_TRIES: u32 = 40;
/// How often a commit is moved past others in a row before it counts as one of these tries.
const MOVES: u32 = 200;

/// What running a flow needs from the update.
pub struct RunContext<'a> {
    pub project: &'a Project,
    pub update_id: &'a str,
    pub clock: DateTime<Utc>,
    pub partitions: usize,
    pub memory_limit: usize,
    pub stages: Arc<dyn StageEngine>,
    pub fence: Option<Arc<dyn Fence>>,
    pub slicing: &'a Slicing,
    /// The slice of a backfill that this is.
    pub slice: Option<&'a SliceRun>,
}

/// Slices of one backfill commit one after the other: the flow's state as the last one left it, once one
/// has committed.
pub type Turn = tokio::sync::Mutex<Option<FlowState>>;

/// A slice of a backfill, of which several are computed at a time.
pub struct SliceRun {
    pub backfill: String,
    pub number: usize,
    pub from: String,
    pub to: String,
    pub turn: Arc<Turn>,
}

/// A flow that was committed, or had nothing to do.
#[derive(Debug)]
pub struct Done {
    pub table: Table,
    /// The version that the flow made; the current one when it made none.
    pub version: i64,
    pub committed: bool,
    pub metrics: FlowMetrics,
    pub sources: Vec<SourceReport>,
}

/// Why a flow was not run to its end.
#[derive(Debug)]
pub enum Stopped {
    Failed(Problem),
    /// A join may not fit into memory; the flow must be planned again with joins that spill.
    NeedsSpillingJoins,
    /// Others changed the window, which the technique did not expect: the flow must be planned
    /// again, on this newer version.
    WindowChanged(Box<Table>),
}

impl From<TableError> for Stopped {
    fn from(error: TableError) -> Self {
        Self::Failed(Problem {
            code: error.code().into(),
            message: error.to_string(),
            help: None,
        })
    }
}

impl From<DataFusionError> for Stopped {
    fn from(error: DataFusionError) -> Self {
        let (code, message) = words_of(&error);
        Self::Failed(Problem {
            help: help_for(&code),
            code: code.into(),
            message,
        })
    }
}

fn help_for(code: &str) -> Option<String> {
    match code {
        "DISK_FULL" => Some(
            "make room there, or give it another folder for shuffle and spill files (--work-dir of executors, TMPDIR otherwise)".into(),
        ),
        "MEMORY_EXHAUSTED" => Some("raise windrow.memoryLimit, or take a smaller window".into()),
        "ROW_OUTSIDE_WINDOW" | "INTERNAL" => {
            Some("this is a fault of Windrow; nothing was written".into())
        }
        _ => None,
    }
}

/// How far a plan of rows is on its way to a physical one.
pub enum RowsForm {
    Logical,
    /// All of its expressions are typed.
    Typed,
    /// There is an optimized plan of the same rows.
    Optimized(Box<LogicalPlan>),
}

impl RowsForm {
    /// The form of a plan that makes a choice of the same rows.
    fn of_parts(&self) -> Self {
        match self {
            Self::Typed => Self::Typed,
            Self::Logical | Self::Optimized(_) => Self::Logical,
        }
    }
}

/// The rows that a flow writes and the window that it takes away.
pub struct Work {
    /// What is staged; `None` when nothing is computed.
    pub rows: Option<LogicalPlan>,
    pub form: RowsForm,
    pub decision: Decision,
    /// Bytes that were read to find out what changed.
    pub bytes_read: u64,
}

/// Stages, plans the removal and commits. `state` is the flow's state as it is.
pub async fn run_flow(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: Work,
    state: Option<FlowState>,
    filters: &ScanFilters,
    may_replan: bool,
) -> Result<Done, Stopped> {
    let started = Instant::now();
    let table = &context.project.tables[context.project.flows[plan.flow].table];
    let location = Location::open(&table.location, &context.project.config.store_options)?;
    if work.decision.technique == Technique::NoOp
        && let Some(existing) = &plan.existing
        && !metadata_differs(plan, context.project, table)?
        && !state_moves(plan, state.as_ref()).await?
    {
        let metrics = FlowMetrics {
            bytes_scanned: work.bytes_read,
            duration_ms: started.elapsed().as_millis() as u64,
            ..FlowMetrics::default()
        };
        return Ok(Done {
            version: existing.version(),
            table: existing.clone(),
            committed: false,
            metrics,
            sources: source_reports(plan, filters).0,
        });
    }
    let mut stager = Stager::new(context, plan, table, &location)?;
    let result = stage_and_commit(
        context,
        plan,
        &work,
        state,
        filters,
        &mut stager,
        may_replan,
    )
    .await;
    match result {
        Ok(mut done) => {
            done.metrics.duration_ms = started.elapsed().as_millis() as u64;
            Ok(done)
        }
        Err(stopped) => {
            stager.discard().await;
            Err(stopped)
        }
    }
}

async fn stage_and_commit(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: &Work,
    state: Option<FlowState>,
    filters: &ScanFilters,
    stager: &mut Stager<'_>,
    may_replan: bool,
) -> Result<Done, Stopped> {
    let started = Instant::now();
    let mut metrics = FlowMetrics {
        bytes_scanned: work.bytes_read,
        ..FlowMetrics::default()
    };
    let mut sources = Vec::new();
    let mut scanned = 0;
    failpoint::reached("before_stage");
    let mut planner = RemovalPlanner::default();
    let mut target = plan.existing.clone();
    let mut planned = None;
    if let Some(rows) = &work.rows {
        let whole = physical(plan, &work.form, rows.clone()).await?;
        (sources, scanned) = source_reports(plan, filters);
        if may_replan && joins_may_not_fit(rows, &sources, context.memory_limit) {
            return Err(Stopped::NeedsSpillingJoins);
        }
        metrics.bytes_scanned += scanned;
        // What goes does not hang on what comes, so both are found out at once.
        let removal = async {
            match &target {
                Some(table) if !plan.scope.appends => planner.plan(plan, table).await.map(Some),
                _ => Ok(None),
            }
        };
        let technique = work.decision.technique;
        let slices = slicing::slices(
            plan,
            rows,
            technique,
            context.slicing,
            context.clock,
            scanned,
        )?;
        metrics.num_slices = slices.len() as u64;
        let parts = match slices.len() {
            0 | 1 => vec![SliceRows::Planned(whole)],
            _ => slices.into_iter().map(SliceRows::ToPlan).collect(),
        };
        let parallel = context.slicing.parallel;
        let staging = stager.stage_slices(parts, work.form.of_parts(), scanned, parallel);
        let (staged, removal) = futures::join!(staging, removal);
        let staged = staged?;
        metrics.num_output_rows = staged.iter().map(|f| f.rows.unsigned_abs()).sum();
        stager.files.extend(staged);
        planned = removal?;
    }
    failpoint::reached("after_stage");
    let nothing_goes = work.rows.is_none() || plan.scope.appends;
    let mut copied: Vec<(Vec<String>, Vec<StagedFile>)> = Vec::new();
    let flow_name = &context.project.flows[plan.flow].name;
    let mut expected = match &target {
        Some(table) => table.transaction_version(&app_id(flow_name)).await?,
        None => None,
    };
    let mut turn = match context.slice {
        Some(slice) => Some(slice.turn.lock().await),
        None => None,
    };
    if let (Some(turn), Some(table)) = (&turn, &target) {
        // Slices of the same backfill may have committed since this one was planned; nobody else.
        expected = turn.as_ref().map_or(expected, |last| Some(last.sequence));
        let newer = table.refreshed().await?;
        if newer.version() != table.version() {
            check_unchanged(context, Some(table), &newer, flow_name, expected).await?;
            target = Some(newer);
            planned = None;
        }
    }
    let run_id = format!("{}-{}", context.update_id, uuid::Uuid::new_v4().simple());
    for attempt in 0..COMMIT_TRIES {
        let removal = match (planned.take(), &target) {
            (Some(removal), _) => removal,
            (None, Some(table)) if !nothing_goes => planner.plan(plan, table).await?,
            _ => Removal::default(),
        };
        let rewritten: Vec<String> = removal.rewrite.iter().map(|f| f.log_path.clone()).collect();
        let kept = match copied.iter().position(|(paths, _)| *paths == rewritten) {
            Some(at) => copied[at].1.clone(),
            None => {
                let files = match &target {
                    Some(table) => stager.copy(plan, table, &removal).await?,
                    None => Vec::new(),
                };
                copied.push((rewritten, files.clone()));
                files
            }
        };
        metrics.num_deleted_rows = removal.deleted_rows;
        metrics.num_copied_rows = removal.copied_rows;
        metrics.num_files_added = (stager.files.len() + kept.len()) as u64;
        metrics.num_files_removed = (removal.remove.len() + removal.rewrite.len()) as u64;
        metrics.bytes_written = stager
            .files
            .iter()
            .chain(&kept)
            .map(|f| f.bytes.unsigned_abs())
            .sum();
        if let (Some(_), Some(table)) = (context.slice, &target)
            && metrics.num_files_added == 0
            && metrics.num_files_removed == 0
            && !metadata_differs(
                plan,
                context.project,
                &context.project.tables[context.project.flows[plan.flow].table],
            )?
        {
            // A slice without rows on either side leaves no trace.
            return Ok(Done {
                version: table.version(),
                table: table.clone(),
                committed: false,
                metrics,
                sources,
            });
        }
        let mut version = target.as_ref().map_or(0, |t| t.version() + 1);
        for _ in 0..MOVES {
            let last = turn.as_ref().and_then(|turn| turn.as_ref());
            let before = last.or(state.as_ref());
            let past_runs = past_runs(plan, work, before, || {
                let estimated = match plan.scope.appends {
                    // As the estimate has it: new rows take the bytes that they have in the sources.
                    true => Cost {
                        read: scanned,
                        written: scanned,
                    },
                    false => Cost {
                        read: scanned + removal.looked_into_bytes,
                        written: removal.whole_bytes + removal.looked_into_bytes,
                    },
                };
                PastRun {
                    technique: work.decision.technique.word().into(),
                    estimated_read: estimated.read,
                    estimated_written: estimated.written,
                    read: read_in_all(plan, stager, &planner),
                    written: metrics.bytes_written,
                    duration_ms: started.elapsed().as_millis() as u64,
                }
            });
            let new_state =
                next_state(context, plan, before, expected, &run_id, flow_name, version)
                    .await?
                    .with_runs(past_runs);
            let staged_state = new_state.stage(&stager.location).await?;
            failpoint::reached("before_commit");
            let commit = commit_of(
                context,
                plan,
                work,
                target.as_ref(),
                &removal,
                &kept,
                stager,
                &new_state,
                &staged_state,
            )?;
            if let Some(Err(message)) = context.fence.as_ref().map(|f| f.may_commit()) {
                return Err(Stopped::Failed(Problem {
                    code: "LEASE_LOST".into(),
                    message,
                    help: Some("the scheduler that leads now runs the update again".into()),
                }));
            }
            // From here on the staged files may be the table's, whatever fails.
            stager.may_be_committed = true;
            let tried = commit.attempt(&stager.location, version);
            match tried.instrument(spans::commit(version)).await? {
                Outcome::Committed => {
                    failpoint::reached("after_commit");
                    if let Some(turn) = &mut turn {
                        **turn = Some(new_state.clone());
                    }
                    stager.forget_all_but(&kept).await;
                    let newest = async {
                        match &target {
                            // Only the new entries of the log are read.
                            Some(target) => target.refreshed().await,
                            None => Table::open_existing(&stager.location, None).await,
                        }
                    };
                    let (table, ()) =
                        futures::join!(newest, new_state.forget_older(&stager.location));
                    let table = table?;
                    if checkpoint_is_due(&table, version, commit.actions.len()) {
                        if table.version() == version {
                            checkpoint(&table).await;
                        } else {
                            let at = Some(version);
                            match Table::open_existing(&stager.location, at).await {
                                Ok(table) => checkpoint(&table).await,
                                Err(error) => tracing::warn!(%error, version, "no checkpoint"),
                            }
                        }
                    }
                    return Ok(Done {
                        table,
                        version,
                        committed: true,
                        metrics,
                        sources,
                    });
                }
                Outcome::Conflict => {
                    stager.may_be_committed = false;
                    match rebase::past(plan, flow_name, target.as_ref(), version).await? {
                        Some(next) => version = next,
                        None => break,
                    }
                }
            }
        }
        let newer = match &target {
            Some(target) => target.refreshed().await?,
            None => Table::open_existing(&stager.location, None).await?,
        };
        check_unchanged(context, target.as_ref(), &newer, flow_name, expected).await?;
        if work.decision.technique != Technique::CompleteRecompute {
            return Err(Stopped::WindowChanged(Box::new(newer)));
        }
        target = Some(newer);
        tokio::time::sleep(Duration::from_millis(20 * u64::from(attempt.min(20)))).await;
    }
    Err(Stopped::Failed(Problem {
        code: "COMMIT_CONFLICTS".into(),
        message: format!(
            "table {} was committed to by others {COMMIT_TRIES} times while this flow tried to",
            stager.location.shown()
        ),
        help: Some("run the update again when the other writers are done".into()),
    }))
}

pub(crate) async fn physical(
    plan: &FlowPlan,
    form: &RowsForm,
    rows: LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let state = &plan.bound.state;
    match form {
        RowsForm::Logical => local::physical(state, &rows).await,
        RowsForm::Typed => local::physical_of_typed(state, rows).await,
        RowsForm::Optimized(optimized) => local::physical_of_optimized(state, optimized).await,
    }
}

/// A foreign commit may change rows, but neither the columns nor the owner.
async fn check_unchanged(
    context: &RunContext<'_>,
    old: Option<&Table>,
    new: &Table,
    flow: &str,
    expected: Option<i64>,
) -> Result<(), Stopped> {
    let failed = |code: &str, message: String, help: &str| {
        Err(Stopped::Failed(Problem {
            code: code.into(),
            message,
            help: Some(help.into()),
        }))
    };
    let shown = new.location().shown();
    if new.properties().get(OWNER) != Some(&context.project.config.name) {
        return failed(
            "TARGET_NOT_OWNED",
            format!("a table that this pipeline did not make appeared at {shown}"),
            "move it away and run the update again",
        );
    }
    let sequence = new.transaction_version(&app_id(flow)).await?;
    if sequence != expected {
        return failed(
            "CONCURRENT_UPDATE",
            format!("another update of flow `{flow}` was committed to {shown} meanwhile"),
            "run one update of a pipeline at a time; this one wrote nothing",
        );
    }
    let same = match old {
        None => false,
        Some(old) => {
            old.metadata_json()? == new.metadata_json()?
                && old.protocol_json()? == new.protocol_json()?
        }
    };
    if !same {
        return failed(
            "CONCURRENT_SCHEMA_CHANGE",
            format!("the columns, properties or protocol of {shown} were changed meanwhile"),
            "run the update again; it starts from the table as it is now",
        );
    }
    Ok(())
}

/// A hash join keeps one side in memory. Compressed bytes are taken eight-fold.
fn joins_may_not_fit(rows: &LogicalPlan, sources: &[SourceReport], memory: usize) -> bool {
    use datafusion::common::tree_node::TreeNodeRecursion;
    let mut joins = false;
    let _ = rows.apply_with_subqueries(|node| {
        joins |= matches!(node, LogicalPlan::Join(_));
        Ok(TreeNodeRecursion::Continue)
    });
    let mut sizes: Vec<u64> = sources.iter().map(|s| s.bytes_scanned).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    joins && sizes.iter().skip(1).sum::<u64>().saturating_mul(8) > memory as u64
}

async fn state_moves(plan: &FlowPlan, state: Option<&FlowState>) -> Result<bool, TableError> {
    let Some(last) = state.and_then(|s| s.defined.as_ref()) else {
        return Ok(true);
    };
    Ok(facts::source_states(plan).await?.0 != last.sources)
}

/// The flow's record of past runs after this one. Only refreshes by the flow's own predicate that
/// computed something tell what the next ones may cost.
fn past_runs(
    plan: &FlowPlan,
    work: &Work,
    state: Option<&FlowState>,
    run: impl FnOnce() -> PastRun,
) -> Vec<PastRun> {
    if plan.is_override || work.rows.is_none() {
        return state.map(|s| s.runs.clone()).unwrap_or_default();
    }
    Learned::of(state, &plan.fingerprint()).with(run())
}

/// Bytes that the run has read; `None` where not all of them were counted.
fn read_in_all(plan: &FlowPlan, stager: &Stager<'_>, planner: &RemovalPlanner) -> Option<u64> {
    // The estimate knows of sources with a log alone.
    let all_in_delta = plan
        .bound
        .reads
        .iter()
        .all(|r| matches!(r.kind, ReadKind::Delta(_)));
    let staged = stager.bytes_read().filter(|_| all_in_delta)?;
    Some(staged + planner.bytes_read())
}

async fn next_state(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    state: Option<&FlowState>,
    expected: Option<i64>,
    run_id: &str,
    flow: &str,
    version: i64,
) -> Result<FlowState, TableError> {
    let kept = state
        .and_then(|s| s.defined.clone())
        .filter(|_| !plan.full_refresh);
    let defined = if plan.is_override {
        kept
    } else {
        let (sources, sources_versioned) = facts::source_states(plan).await?;
        // A refresh that computed a part leaves what the last one covered as it was, so the
        // window that is covered is this one.
        Some(DefinedRefresh {
            fingerprint: plan.fingerprint(),
            predicate: serde_json::to_string(&plan.window).unwrap_or_default(),
            predicate_deterministic: plan.pinned.as_ref().is_none_or(|p| p.deterministic),
            time_zone: context.project.time_zone().to_string(),
            clock: context.clock.to_rfc3339(),
            query_clock: facts::query_clock(plan, &context.clock),
            sources,
            sources_versioned,
            target_version: version,
        })
    };
    let parts = coverage::parts(plan, context.project.time_zone(), context.clock);
    let history = coverage::after(plan, state, &parts);
    let number = expected.unwrap_or(0) + 1;
    Ok(FlowState::new(flow, number, run_id, defined, history))
}
