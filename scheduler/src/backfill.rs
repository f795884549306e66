//! Backfills: a range of a flow's history, slice by slice, each slice one commit of its own.
//!
//! A slice is an override of the flow's predicate by half-open bounds of one column. What became of
//! each slice is kept in a ledger below `system/backfills`, so that a backfill that was cut short can
//! go on. The ledger may lag behind by the slices whose commits came just before a crash; those are
//! recognised in the target's log, where each commit names its backfill and slice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use serde_json::json;
use tracing::Instrument;
use windrow_delta::{Table, TableError};
use windrow_flows::calendar::{self, Unit};
use windrow_flows::definition::{ExprText, FlowKind};
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::sql::parse_predicate;

use crate::backfill_start::{begin, resume, table_fault};
use crate::bind::Upstream;
use crate::config::PipelineConfig;
use crate::coverage::{Open, OpenState};
use crate::engine::StageEngine;
use crate::events::Level;
use crate::lease::Fence;
use crate::ledger::{Ledger, LedgerSlice, Ledgers};
use crate::report::{
    BackfillReport, FlowReport, FlowStatus, Problem, SliceOutcome, UpdateReport, UpdateState,
};
use crate::run::{SliceRun, Turn};
use crate::spans;
use crate::update::{Attempt, Progress, Update, UpdateOptions};

/// How far the ledger may lag behind. The target's log knows the slices in between.
const SAVED_EVERY: Duration = Duration::from_secs(1);

pub use crate::ledger::SliceState;

/// Whether an earlier backfill goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    No,
    /// The newest of the flow that is not done.
    Newest,
    Id(String),
}

/// Which part of the range is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Only {
    #[default]
    All,
    /// What is not processed: what never was, and what the last backfill that tried failed on.
    Missing,
    /// What the last backfill that tried failed on.
    Failed,
}

impl Only {
    pub const WORDS: &str = "missing, failed or all";

    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "all" => Self::All,
            "missing" => Self::Missing,
            "failed" => Self::Failed,
            _ => return None,
        })
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

/// What a backfill would do.
#[derive(Debug, Clone)]
pub struct Preview {
    pub flow: String,
    pub column: String,
    pub from: String,
    pub to: String,
    /// `None` for a single slice.
    pub by: Option<String>,
    /// What is not processed between the bounds, where only that is asked for.
    pub open: Option<Vec<Open>>,
    /// What would be computed, with the state in which it is where that is known.
    pub slices: Vec<(String, String, Option<OpenState>)>,
    pub warnings: Vec<String>,
}

/// What the user asks for.
#[derive(Debug, Clone)]
pub struct BackfillOptions {
    /// The flow, or its table.
    pub flow: String,
    /// The column by which the range is told; by default that of the flow's predicate.
    pub column: Option<String>,
    /// Not needed when an earlier backfill goes on. With [`Only::Missing`] and [`Only::Failed`] the
    /// bounds of what is known stand for those that are left out.
    pub from: Option<String>,
    pub to: Option<String>,
    pub only: Only,
    pub by: Option<Unit>,
    /// Slices that are computed at a time.
    pub parallel: usize,
    /// One commit for the whole range.
    pub atomic: bool,
    pub newest_first: bool,
    pub resume: Resume,
    pub now: Option<DateTime<Utc>>,
    /// The id of the update that runs it, for one that was promised under it. A new backfill has the
    /// id of its first update.
    pub id: Option<String>,
    /// Where slices are computed; in this process unless said.
    pub engine: Option<Arc<dyn StageEngine>>,
    /// Asked before every commit whether this process still may.
    pub fence: Option<Arc<dyn Fence>>,
}

/// A backfill that is ready to run.
pub struct Backfill {
    update: Update,
    index: usize,
    ledger: Ledger,
    ledgers: Ledgers,
    /// Set once a stop was asked for.
    stop: AtomicBool,
    parallel: usize,
    newest_first: bool,
    /// What was found open, where only that is computed.
    open: Option<Vec<Open>>,
}

impl Backfill {
    /// Reads and checks everything. Nothing is written.
    ///
    /// # Errors
    /// All faults of the pipeline and of the options, among them `BACKFILL_COLUMN_UNCLEAR`,
    /// `BACKFILL_DEFINITION_CHANGED` and `BACKFILL_NOT_FOUND`.
    pub async fn prepare(
        config: PipelineConfig,
        options: &BackfillOptions,
    ) -> Result<Self, Vec<Fault>> {
        let update = Update::prepare(
            config,
            &UpdateOptions {
                refresh: vec![options.flow.clone()],
                now: options.now,
                engine: options.engine.clone(),
                fence: options.fence.clone(),
                id: options.id.clone(),
                ..UpdateOptions::default()
            },
        )
        .await?;
        let project = &update.inner.project;
        let selected = &update.inner.selected;
        let index = selected
            .iter()
            .copied()
            .find(|i| name::key(&project.flows[*i].name) == name::key(&options.flow))
            .or_else(|| selected.first().copied().filter(|_| selected.len() == 1))
            .ok_or_else(|| {
                vec![Fault::new(
                    "FLOW_NOT_FOUND",
                    format!("`{}` is no single flow", options.flow),
                )]
            })?;
        let flow = &project.flows[index];
        if !matches!(flow.definition.kind, FlowKind::ReplaceWhere { .. }) {
            return Err(vec![
                Fault::new(
                    "BACKFILL_NOT_ALLOWED",
                    format!(
                        "`{}` is a {} flow; only REPLACE WHERE flows have a range to backfill",
                        flow.name,
                        flow.definition.kind.word()
                    ),
                )
                .at(flow.definition.name.place.clone()),
            ]);
        }
        let upstream = update.upstream_at_start();
        let plan = update
            .inner
            .plan(index, &upstream, &Attempt::default())
            .await?;
        let ledgers = Ledgers::open(&project.config).map_err(table_fault)?;
        let mut open = None;
        let mut ledger = if options.resume == Resume::No {
            let zone = project.time_zone();
            let begun = begin(&plan, &flow.name, zone, update.id(), &ledgers, options).await?;
            open = begun.open;
            begun.ledger
        } else {
            resume(&plan, &flow.name, &ledgers, options).await?
        };
        ledger.update = update.id().to_string();
        let backfill = Self {
            index,
            ledger,
            ledgers,
            stop: AtomicBool::new(false),
            parallel: options.parallel.max(1),
            newest_first: options.newest_first,
            open,
            update,
        };
        // A predicate that can't be planned is known before anything is written.
        if let Some(slice) = backfill.ledger.slices.first() {
            let attempt = Attempt {
                override_predicate: Some(
                    backfill
                        .predicate(&slice.from, &slice.to)
                        .map_err(|f| vec![f])?,
                ),
                ..Attempt::default()
            };
            backfill
                .update
                .inner
                .plan(index, &upstream, &attempt)
                .await?;
        }
        Ok(backfill)
    }

    pub fn id(&self) -> &str {
        &self.ledger.id
    }

    /// Its flow as it is when it is stopped.
    pub(crate) fn unended(&self) -> Vec<FlowReport> {
        self.update.unended()
    }

    /// The events that it gathers while it runs.
    pub(crate) fn recorder(&self) -> crate::events::Recorder {
        self.update.recorder()
    }

    pub fn warnings(&self) -> &[String] {
        &self.update.warnings
    }

    /// What it would do.
    pub fn preview(&self) -> Preview {
        let state_of = |from: &str| {
            let from = calendar::parse(from)?;
            let open = self.open.as_ref()?;
            let found = open.iter().find(|o| o.from <= from && from < o.to)?;
            Some(found.state)
        };
        let ledger = &self.ledger;
        Preview {
            flow: ledger.flow.clone(),
            column: ledger.column.clone(),
            from: ledger.from.clone(),
            to: ledger.to.clone(),
            by: ledger.by.clone(),
            open: self.open.clone(),
            slices: ledger
                .slices
                .iter()
                .filter(|s| s.state != SliceState::Completed)
                .map(|s| (s.from.clone(), s.to.clone(), state_of(&s.from)))
                .collect(),
            warnings: self.update.warnings.clone(),
        }
    }

    fn predicate(&self, from: &str, to: &str) -> Result<ExprText, Fault> {
        let column = self.ledger.column.replace('`', "``");
        let text = format!("`{column}` >= '{from}' AND `{column}` < '{to}'");
        parse_predicate("backfill", &text, &BTreeMap::new())
    }

    /// Runs the slices that are not done, and writes the ledger and the event log.
    pub async fn run(mut self, progress: Arc<dyn Progress>) -> UpdateReport {
        if let Err(problem) = self.start().await {
            return UpdateReport {
                error: Some(problem),
                ..self.update.report(UpdateState::Failed, Vec::new())
            };
        }
        let flow = self.update.inner.project.flows[self.index].name.clone();
        progress.flow_started(&flow);
        let mut open: Vec<usize> = (0..self.ledger.slices.len())
            .filter(|i| self.ledger.slices[*i].state != SliceState::Completed)
            .collect();
        if self.newest_first {
            open.reverse();
        }
        let mut whole = Whole::new(
            self.update
                .inner
                .blank(self.index, FlowStatus::Failed, None),
        );
        let shared = Shared {
            upstream: self.update.upstream_at_start(),
            turn: Arc::new(Turn::default()),
            latest: tokio::sync::Mutex::new(None),
            version: self.version_at_start(),
        };
        let mut unsaved = None;
        let mut saved = Instant::now();
        // The first slice makes the table, or changes its columns, alone; the others then agree.
        let rest = open.split_off(open.len().min(1));
        for batch in [open, rest] {
            let mut ended = Vec::new();
            {
                let (this, shared) = (&self, &shared);
                let running = futures::stream::iter(batch)
                    .map(|number| async move {
                        if this.stop_requested().await {
                            return None;
                        }
                        let (from, to) = this.bounds(number);
                        Some((number, this.slice(number, from, to, shared).await))
                    })
                    .buffer_unordered(self.parallel);
                let mut running = std::pin::pin!(running);
                while let Some(ended_slice) = running.next().await {
                    let Some((number, report)) = ended_slice else {
                        continue;
                    };
                    progress.slice_ended(&flow, &outcome(&self.ledger.slices[number], &report));
                    self.record(number, &report);
                    ended.push(self.ended(number, &report, shared).await);
                    whole.add(report);
                    if saved.elapsed() > SAVED_EVERY {
                        unsaved = self.save(&ended).await.err();
                        saved = Instant::now();
                    }
                }
            }
            for slice in &ended {
                slice.enter(&mut self.ledger);
            }
        }
        if let Err(error) = self.save(&[]).await {
            unsaved = Some(error);
        }
        self.finish(whole, unsaved, &progress).await
    }

    async fn finish(
        self,
        whole: Whole,
        unsaved: Option<TableError>,
        progress: &Arc<dyn Progress>,
    ) -> UpdateReport {
        let mut report = whole.report;
        report.predicate = None;
        report.predicate_as_written = Some(format!(
            "{} >= '{}' AND {} < '{}'",
            self.ledger.column, self.ledger.from, self.ledger.column, self.ledger.to
        ));
        report.slices.total = self.ledger.slices.len() as u64;
        report.slices.completed = self.ledger.count(SliceState::Completed);
        report.slices.failed = self.ledger.count(SliceState::Failed);
        let state = if self.ledger.is_done() {
            report.status = FlowStatus::Completed;
            UpdateState::Completed
        } else if self.stop.load(Ordering::Relaxed) {
            report.status = FlowStatus::Canceled;
            report.error = Some(Problem {
                code: "BACKFILL_STOPPED".into(),
                message: format!(
                    "it was stopped with {} of {} slices done",
                    report.slices.completed, report.slices.total
                ),
                help: Some(format!("go on with --resume {}", self.ledger.id)),
            });
            UpdateState::Canceled
        } else {
            UpdateState::Failed
        };
        self.update.inner.record_end(self.index, &report);
        progress.flow_ended(&report);
        let mut all = self.update.report(state, vec![report]);
        if let Some(error) = unsaved {
            all.warnings.push(format!(
                "warning: the ledger of this backfill was not written ({error}); --resume may do slices again that are done"
            ));
        }
        if let Err(problem) = self.update.end(state).await {
            all.warnings.push(format!(
                "warning: the event log was not written: {}",
                problem.message
            ));
        }
        all.backfill = Some(BackfillReport {
            id: self.ledger.id.clone(),
            column: self.ledger.column.clone(),
            by: self.ledger.by.clone(),
            slices: self
                .ledger
                .slices
                .iter()
                .map(|s| SliceOutcome {
                    from: s.from.clone(),
                    to: s.to.clone(),
                    state: s.state,
                    rows: None,
                    error: None,
                })
                .collect(),
        });
        all
    }

    async fn start(&self) -> Result<(), Problem> {
        self.update.begin().await?;
        let began = async {
            self.ledgers.forget_stop(&self.ledger).await?;
            self.save(&[]).await
        };
        began.await.map_err(|e| Problem {
            code: e.code().into(),
            message: e.to_string(),
            help: Some("check `storage` and the access to it".into()),
        })
    }

    /// Whether somebody asked for an end. A store that does not answer stops nothing.
    async fn stop_requested(&self) -> bool {
        if !self.stop.load(Ordering::Relaxed) {
            let found = self.ledgers.stop_requested(&self.ledger).await;
            self.stop
                .fetch_or(matches!(found, Ok(true)), Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }

    fn version_at_start(&self) -> i64 {
        let table = self.update.inner.project.flows[self.index].table;
        let existing = self.update.inner.existing.get(&table);
        existing.map_or(-1, Table::version)
    }

    fn bounds(&self, number: usize) -> (&str, &str) {
        let slice = &self.ledger.slices[number];
        (&slice.from, &slice.to)
    }

    async fn slice(&self, number: usize, from: &str, to: &str, shared: &Shared) -> FlowReport {
        let inner = &self.update.inner;
        let predicate = match self.predicate(from, to) {
            Ok(predicate) => predicate,
            Err(fault) => {
                let problem = Problem {
                    code: fault.code.into(),
                    message: fault.message,
                    help: fault.help,
                };
                return inner.blank(self.index, FlowStatus::Failed, Some(problem));
            }
        };
        let attempt = Attempt {
            override_predicate: Some(predicate),
            newer: shared.latest.lock().await.clone(),
            slice: Some(Arc::new(SliceRun {
                backfill: self.ledger.id.clone(),
                number,
                from: from.to_string(),
                to: to.to_string(),
                turn: shared.turn.clone(),
            })),
            ..Attempt::default()
        };
        let flow = &inner.project.flows[self.index].name;
        let span = spans::backfill_slice(flow, number, from, to);
        let run = inner.run_one(self.index, &shared.upstream, attempt);
        let (report, table) = run.instrument(span).await;
        if let Some(table) = table {
            let mut latest = shared.latest.lock().await;
            if latest
                .as_ref()
                .is_none_or(|t| t.version() < table.version())
            {
                *latest = Some(table);
            }
        }
        report
    }

    fn record(&self, number: usize, report: &FlowReport) {
        let inner = &self.update.inner;
        let flow = &inner.project.flows[self.index];
        let target = &inner.project.tables[flow.table].shown;
        let (from, to) = self.bounds(number);
        let level = match report.status {
            FlowStatus::Completed => Level::Info,
            _ => Level::Error,
        };
        inner.recorder.add(
            "slice_progress",
            Some((&flow.name, target)),
            level,
            format!(
                "slice {from} to {to} of {} is {}",
                flow.name,
                report.status.word()
            ),
            json!({"backfill": self.ledger.id, "from": from, "to": to,
                "status": report.status.word(), "num_output_rows": report.metrics.num_output_rows,
                "num_deleted_rows": report.metrics.num_deleted_rows,
                "error": report.error}),
        );
    }

    async fn ended(&self, number: usize, report: &FlowReport, shared: &Shared) -> Ended {
        let latest = shared.latest.lock().await;
        let known = latest.as_ref().map_or(shared.version, Table::version);
        Ended {
            number,
            completed: report.status == FlowStatus::Completed,
            at: Utc::now(),
            clock: self.update.clock(),
            version: report.table_version.unwrap_or(known),
        }
    }

    /// Writes the ledger, with what has become of some slices since it was last changed. A backfill
    /// that found nothing to do leaves none.
    async fn save(&self, ended: &[Ended]) -> Result<(), TableError> {
        if self.ledger.slices.is_empty() {
            return Ok(());
        }
        let mut ledger = self.ledger.clone();
        for slice in ended {
            slice.enter(&mut ledger);
        }
        self.ledgers.save(&ledger).await
    }
}

/// What became of a slice.
struct Ended {
    number: usize,
    completed: bool,
    at: DateTime<Utc>,
    clock: DateTime<Utc>,
    version: i64,
}

impl Ended {
    fn enter(&self, ledger: &mut Ledger) {
        let slice = &mut ledger.slices[self.number];
        slice.state = SliceState::of(self.completed);
        slice.ended = Some(self.at);
        slice.clock = Some(self.clock);
        slice.version = Some(self.version);
    }
}

/// What the slices of one run share.
struct Shared {
    upstream: BTreeMap<usize, Upstream>,
    turn: Arc<Turn>,
    /// The target as the last slice left it.
    latest: tokio::sync::Mutex<Option<Table>>,
    /// Its version before the first one.
    version: i64,
}

/// The reports of the slices, as that of the flow.
struct Whole {
    report: FlowReport,
    is_first: bool,
}

impl Whole {
    fn new(report: FlowReport) -> Self {
        Self {
            report,
            is_first: true,
        }
    }

    fn add(&mut self, slice: FlowReport) {
        let whole = &mut self.report;
        let (sum, part) = (&mut whole.metrics, &slice.metrics);
        sum.num_output_rows += part.num_output_rows;
        sum.num_deleted_rows += part.num_deleted_rows;
        sum.num_copied_rows += part.num_copied_rows;
        sum.num_files_added += part.num_files_added;
        sum.num_files_removed += part.num_files_removed;
        sum.bytes_scanned += part.bytes_scanned;
        sum.bytes_written += part.bytes_written;
        sum.duration_ms += part.duration_ms;
        whole.table_version = whole.table_version.max(slice.table_version);
        if self.is_first {
            whole.technique = slice.technique;
            whole.fallback_reasons = slice.fallback_reasons;
            whole.sources = slice.sources;
            self.is_first = false;
        } else {
            for source in slice.sources {
                match whole.sources.iter_mut().find(|s| s.table == source.table) {
                    Some(known) => {
                        known.files_scanned += source.files_scanned;
                        known.bytes_scanned += source.bytes_scanned;
                    }
                    None => whole.sources.push(source),
                }
            }
        }
        if whole.error.is_none() {
            whole.error = slice.error;
        }
    }
}

fn outcome(slice: &LedgerSlice, report: &FlowReport) -> SliceOutcome {
    let completed = report.status == FlowStatus::Completed;
    SliceOutcome {
        from: slice.from.clone(),
        to: slice.to.clone(),
        state: SliceState::of(completed),
        rows: completed.then_some(report.metrics.num_output_rows),
        error: report.error.clone(),
    }
}
