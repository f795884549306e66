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

use chrono::{DateTime, NaiveDateTime, Utc};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Operator};
use futures::StreamExt;
use serde_json::json;
use tracing::Instrument;
use windrow_delta::{Table, TableError, changes};
use windrow_executor::scan::query_name;
use windrow_flows::calendar::{self, Span, Unit};
use windrow_flows::definition::{ExprText, FlowKind};
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::sql::parse_predicate;

use crate::bind::Upstream;
use crate::config::PipelineConfig;
use crate::engine::StageEngine;
use crate::events::Level;
use crate::facts::short_fingerprint;
use crate::flow::FlowPlan;
use crate::lease::Fence;
use crate::ledger::{Definition, FORMAT, Ledger, LedgerSlice, Ledgers};
use crate::report::{
    BackfillReport, FlowReport, FlowStatus, Problem, SliceOutcome, UpdateReport, UpdateState,
};
use crate::run::{SliceRun, Turn};
use crate::spans;
use crate::update::{Attempt, Progress, Update, UpdateOptions};

/// More slices than this are no plan but a slip of the pen.
const MOST_SLICES: usize = 100_000;
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

/// What the user asks for.
#[derive(Debug, Clone)]
pub struct BackfillOptions {
    /// The flow, or its table.
    pub flow: String,
    /// The column by which the range is told; by default that of the flow's predicate.
    pub column: Option<String>,
    /// Not needed when an earlier backfill goes on.
    pub from: Option<String>,
    pub to: Option<String>,
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
}

fn wrong(message: impl Into<String>) -> Fault {
    Fault::new("WRONG_OPTION", message)
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
        let mut ledger = if options.resume == Resume::No {
            begin(&plan, &flow.name, update.id(), options).map_err(|f| vec![f])?
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
                    ended.push((number, report.status == FlowStatus::Completed));
                    whole.add(report);
                    if saved.elapsed() > SAVED_EVERY {
                        unsaved = self.save(&ended).await.err();
                        saved = Instant::now();
                    }
                }
            }
            for (number, completed) in ended {
                self.ledger.slices[number].state = SliceState::of(completed);
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

    /// Writes the ledger, with what has become of some slices since it was last changed.
    async fn save(&self, ended: &[(usize, bool)]) -> Result<(), TableError> {
        let mut ledger = self.ledger.clone();
        for (number, completed) in ended {
            ledger.slices[*number].state = SliceState::of(*completed);
        }
        self.ledgers.save(&ledger).await
    }
}

/// What the slices of one run share.
struct Shared {
    upstream: BTreeMap<usize, Upstream>,
    turn: Arc<Turn>,
    /// The target as the last slice left it.
    latest: tokio::sync::Mutex<Option<Table>>,
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

fn table_fault(error: TableError) -> Vec<Fault> {
    vec![Fault::new(error.code(), error.to_string())]
}

fn time(text: &str, option: &str) -> Result<NaiveDateTime, Fault> {
    calendar::parse(text).ok_or_else(|| {
        wrong(format!("{option} `{text}` is no day and no time"))
            .help("write 2026-01-15 or 2026-01-15 08:00:00")
    })
}

fn definition(plan: &FlowPlan) -> Definition {
    Definition {
        query: short_fingerprint(&plan.bound.fingerprint),
        columns: short_fingerprint(&plan.evolved.schema.to_schema_string()),
    }
}

fn begin(
    plan: &FlowPlan,
    flow: &str,
    id: &str,
    options: &BackfillOptions,
) -> Result<Ledger, Fault> {
    let (Some(from), Some(to)) = (&options.from, &options.to) else {
        return Err(wrong("a backfill needs --from and --to"));
    };
    let span = Span {
        from: time(from, "--from")?,
        to: time(to, "--to")?,
    };
    if span.from >= span.to {
        return Err(wrong(format!("--from {from} is not before --to {to}"))
            .help("the bounds are half-open: the day of --to is no longer part of it"));
    }
    let column = column(plan, flow, options.column.as_deref())?;
    let unit = options
        .by
        .unwrap_or_else(|| Unit::fitting(span.from, span.to));
    let spans = if options.atomic {
        vec![span]
    } else {
        span.cut(unit, MOST_SLICES).ok_or_else(|| {
            wrong(format!(
                "by {} this range has more than {MOST_SLICES} slices",
                unit.word()
            ))
            .help("choose a larger unit")
        })?
    };
    Ok(Ledger {
        format: FORMAT,
        id: id.to_string(),
        flow: flow.to_string(),
        column,
        from: calendar::shown(span.from),
        to: calendar::shown(span.to),
        by: (!options.atomic).then(|| unit.word().to_string()),
        definition: definition(plan),
        target_version: plan.existing.as_ref().map_or(-1, Table::version),
        update: String::new(),
        slices: spans
            .into_iter()
            .map(|s| LedgerSlice {
                from: calendar::shown(s.from),
                to: calendar::shown(s.to),
                state: SliceState::Pending,
            })
            .collect(),
    })
}

/// The column by which the range is told.
fn column(plan: &FlowPlan, flow: &str, named: Option<&str>) -> Result<String, Fault> {
    let is_time =
        |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    let columns = &plan.evolved.schema.columns;
    if let Some(named) = named {
        let found = columns
            .iter()
            .find(|c| name::key(&c.name) == name::key(named));
        return match found {
            Some(c) if is_time(&c.data_type) => Ok(query_name(&c.name)),
            Some(c) => Err(Fault::new(
                "BACKFILL_COLUMN_UNCLEAR",
                format!(
                    "column `{}` of `{flow}` is a {}, which has no calendar",
                    c.name, c.data_type
                ),
            )
            .help("name a DATE or TIMESTAMP column with --column")),
            None => Err(Fault::new(
                "COLUMN_NOT_FOUND",
                format!("the target of `{flow}` has no column `{named}`"),
            )
            .hint(name::did_you_mean(
                named,
                columns.iter().map(|c| c.name.as_str()),
            ))),
        };
    }
    let mut bounded: Vec<String> = Vec::new();
    if let Some(pinned) = &plan.pinned {
        for name in compared_columns(&pinned.typed.expr) {
            let field = plan.target_schema.field_with_name(&name);
            if field.is_ok_and(|f| is_time(f.data_type())) && !bounded.contains(&name) {
                bounded.push(name);
            }
        }
    }
    match bounded.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Fault::new(
            "BACKFILL_COLUMN_UNCLEAR",
            format!("the predicate of `{flow}` compares no DATE or TIMESTAMP column"),
        )
        .help("say which column the range is about: --column NAME")),
        several => Err(Fault::new(
            "BACKFILL_COLUMN_UNCLEAR",
            format!(
                "the predicate of `{flow}` compares several columns with times: {}",
                several.join(", ")
            ),
        )
        .help("say which of them the range is about: --column NAME")),
    }
}

/// The columns that a predicate compares with something.
fn compared_columns(predicate: &Expr) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut take = |expr: &Expr| {
        let mut names: Vec<String> = expr.column_refs().iter().map(|c| c.name.clone()).collect();
        names.sort();
        found.extend(names);
    };
    // The visitor itself never fails.
    let _ = predicate.apply(|expr| {
        match expr {
            Expr::BinaryExpr(b)
                if matches!(
                    b.op,
                    Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                ) =>
            {
                take(&b.left);
                take(&b.right);
            }
            Expr::Between(between) => take(&between.expr),
            Expr::InList(list) => take(&list.expr),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// The ledger of the backfill that goes on, with what the target's log knows of its slices.
async fn resume(
    plan: &FlowPlan,
    flow: &str,
    ledgers: &Ledgers,
    options: &BackfillOptions,
) -> Result<Ledger, Vec<Fault>> {
    let mut ledger = find(flow, ledgers, &options.resume).await?;
    let mut faults = Vec::new();
    let now = definition(plan);
    if ledger.definition != now {
        let mut changed = Vec::new();
        if ledger.definition.query != now.query {
            changed.push("the query, or a view that it reads");
        }
        if ledger.definition.columns != now.columns {
            changed.push("the columns of the target");
        }
        faults.push(
            Fault::new(
                "BACKFILL_DEFINITION_CHANGED",
                format!(
                    "backfill {} of `{flow}` can't go on: since it began these have changed: {}",
                    ledger.id,
                    changed.join(", and ")
                ),
            )
            .help("start the whole range anew, without --resume"),
        );
    }
    let mut agree = |option: &str, given: Option<&str>, known: &str| {
        if let Some(given) = given
            && given != known
        {
            faults.push(
                wrong(format!(
                    "{option} {given} is not that of backfill {}, which is {known}",
                    ledger.id
                ))
                .help("leave the option out, or start another backfill without --resume"),
            );
        }
    };
    let same_time = |text: &Option<String>| {
        let text = text.as_deref()?;
        Some(calendar::parse(text).map_or(text.to_string(), calendar::shown))
    };
    agree("--from", same_time(&options.from).as_deref(), &ledger.from);
    agree("--to", same_time(&options.to).as_deref(), &ledger.to);
    agree(
        "--by",
        options.by.map(Unit::word),
        ledger.by.as_deref().unwrap_or("one slice"),
    );
    agree(
        "--column",
        options.column.as_deref().map(query_name).as_deref(),
        &ledger.column,
    );
    if !faults.is_empty() {
        return Err(faults);
    }
    if let Some(existing) = &plan.existing {
        let commits = changes::between(
            existing.location(),
            ledger.target_version,
            existing.version(),
        );
        // A log that no longer reaches back tells nothing; slices are then done again, which is safe.
        for commit in commits.await.map_err(table_fault)?.into_iter().flatten() {
            let Some(done) = commit.windrow.as_ref().and_then(|w| w.get("backfill")) else {
                continue;
            };
            let text = |key: &str| done.get(key).and_then(|v| v.as_str()).unwrap_or_default();
            if text("id") != ledger.id {
                continue;
            }
            for slice in &mut ledger.slices {
                if slice.from == text("from") && slice.to == text("to") {
                    slice.state = SliceState::Completed;
                }
            }
        }
    }
    Ok(ledger)
}

async fn find(flow: &str, ledgers: &Ledgers, which: &Resume) -> Result<Ledger, Vec<Fault>> {
    for entry in ledgers.list(Some(flow)).await.map_err(table_fault)? {
        if matches!(which, Resume::Id(id) if *id != entry.id) {
            continue;
        }
        let kept = ledgers.read(&entry).await.map_err(table_fault)?;
        let wanted = |ledger: &Ledger| matches!(which, Resume::Id(_)) || !ledger.is_done();
        if let Some(kept) = kept.filter(|k| wanted(&k.ledger)) {
            return Ok(kept.ledger);
        }
    }
    Err(vec![match which {
        Resume::Id(id) => Fault::new(
            "BACKFILL_NOT_FOUND",
            format!("flow `{flow}` has no backfill {id}"),
        ),
        _ => Fault::new(
            "BACKFILL_NOT_FOUND",
            format!("flow `{flow}` has no backfill that is not done"),
        )
        .help("start one without --resume"),
    }])
}
