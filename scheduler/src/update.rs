//! An update of a pipeline: everything is checked first, then flows run in the order of their
//! dependencies, independent ones side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::Instrument;
use windrow_delta::Table;
use windrow_executor::scan::PlannedTable;
use windrow_executor::session::Engine;
use windrow_flows::definition::{ExprText, FlowKind, TableKind};
use windrow_flows::fault::Fault;
use windrow_flows::graph::Dependencies;
use windrow_flows::refresh::Technique;

use crate::bind::{Sources, Upstream, open_targets, words_of};
use crate::config::PipelineConfig;
use crate::engine::{InProcess, StageEngine};
use crate::events::{Level, Recorder, RunningHere};
use crate::flow::{FlowContext, FlowPlan, FlowRequest, plan_flow, source_reports};
use crate::lease::Fence;
use crate::planning::Prepared;
use crate::project::Project;
use crate::references;
use crate::removal::RemovalPlanner;
use crate::report::{
    Effect, FlowMetrics, FlowReport, FlowStatus, Problem, SliceOutcome, Slices, UpdateReport,
    UpdateState,
};
use crate::run::{Done, RunContext, SliceRun, Stopped, physical, run_flow};
use crate::selection::{check_settings, engine_options, select};
use crate::slicing::Slicing;
use crate::spans;

/// Flows that run at the same time; each uses all cores.
const SIDE_BY_SIDE: usize = 3;

/// What the user asks for.
#[derive(Debug, Clone, Default)]
pub struct UpdateOptions {
    /// Only these tables, unless empty.
    pub refresh: Vec<String>,
    pub full_refresh: Vec<String>,
    pub full_refresh_all: bool,
    /// Flow and predicate.
    pub replace_where: Vec<(String, String)>,
    pub now: Option<DateTime<Utc>>,
    /// Rows that a full refresh takes away for good are agreed to.
    pub yes: bool,
    /// Where what is staged is computed; in this process unless said.
    pub engine: Option<Arc<dyn StageEngine>>,
    /// Asked before every commit whether this process still may.
    pub fence: Option<Arc<dyn Fence>>,
    pub slicing: Slicing,
    /// The update's id, for one that was promised under it; by default a new one.
    pub id: Option<String>,
}

/// Told of what happens while an update runs.
pub trait Progress: Send + Sync {
    fn flow_started(&self, flow: &str);
    fn flow_ended(&self, report: &FlowReport);
    /// A slice of a backfill.
    fn slice_ended(&self, _flow: &str, _slice: &SliceOutcome) {}
}

/// Rows that a full refresh would take away and nobody can bring back.
#[derive(Debug, Clone)]
pub struct RowsAtRisk {
    pub table: String,
    pub rows: u64,
}

/// A checked update, ready to be planned or run.
pub struct Update {
    pub(crate) inner: Arc<Inner>,
    order: Vec<usize>,
    dependencies: Dependencies,
    pub warnings: Vec<String>,
}

pub(crate) struct Inner {
    pub(crate) project: Project,
    pub(crate) engine: Engine,
    pub(crate) stages: Arc<dyn StageEngine>,
    pub(crate) fence: Option<Arc<dyn Fence>>,
    pub(crate) slicing: Slicing,
    pub(crate) sources: Sources,
    pub(crate) clock: DateTime<Utc>,
    pub(crate) id: String,
    pub(crate) selected: BTreeSet<usize>,
    pub(crate) requests: BTreeMap<usize, FlowRequest>,
    /// The targets as they were when the update began, by table index.
    pub(crate) existing: BTreeMap<usize, Table>,
    pub(crate) recorder: Recorder,
    /// Plans that were made to check them and still hold, by flow.
    checked: Mutex<BTreeMap<usize, FlowPlan>>,
    pub(crate) noted: tokio::sync::OnceCell<Result<(), Problem>>,
    _here: RunningHere,
}

/// Plans that are kept between checking and running; each holds a session.
const KEPT_PLANS: usize = 8;

impl Update {
    /// Reads and checks everything. Nothing is written.
    pub async fn prepare(
        config: PipelineConfig,
        options: &UpdateOptions,
    ) -> Result<Self, Vec<Fault>> {
        let (project, mut faults) = Project::read(config);
        let clock = options.now.unwrap_or_else(Utc::now);
        let stages = options
            .engine
            .clone()
            .unwrap_or_else(|| Arc::new(InProcess));
        let mut engine_options = engine_options(&project).map_err(|f| vec![f])?;
        engine_options.distributed = stages.is_distributed();
        if engine_options.partitions.is_none() {
            engine_options.partitions = stages.partitions().await;
        }
        let engine = Engine::new(&engine_options)
            .map_err(|e| vec![Fault::new("ENGINE_NOT_STARTED", e.to_string())])?;
        check_settings(&project, &mut faults);
        if faults.iter().any(|f| f.code == "UNKNOWN_TIME_ZONE") {
            // Without a time zone no query has a meaning.
            return Err(unique(faults));
        }
        let mut warnings: Vec<String> = project.warnings.iter().map(Fault::as_warning).collect();
        let (dependencies, others) =
            references::dependencies(&project, &engine, clock, &mut faults);
        let sources = Sources::default();
        let (targets, ()) =
            futures::join!(open_targets(&project), sources.open_ahead(&project, others));
        let mut existing = BTreeMap::new();
        for ((index, table), opened) in project.tables.iter().enumerate().zip(targets) {
            match opened {
                Ok(Some(found)) => {
                    existing.insert(index, found);
                }
                Ok(None) => {}
                Err(error) => faults.push(
                    Fault::new(error.code(), error.to_string())
                        .at(table.definition.name.place.clone())
                        .help("check `storage` and the access to it"),
                ),
            }
        }
        let (selected, requests) = select(&project, options, &existing, &mut faults, &mut warnings);
        let order = match dependencies.order() {
            Ok(order) => order,
            Err(circles) => {
                for circle in circles {
                    let names: Vec<&str> = circle
                        .iter()
                        .map(|i| project.flows[*i].name.as_str())
                        .collect();
                    faults.push(
                        Fault::new(
                            "DEPENDENCY_CYCLE",
                            format!("these read each other in a circle: {}", names.join(", ")),
                        )
                        .at(project.flows[circle[0]]
                            .definition
                            .name
                            .place
                            .clone()),
                    );
                }
                (0..project.flows.len()).collect()
            }
        };
        let id = options.id.clone();
        let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let recorder = Recorder::new(&project.config.name, &id);
        let mut update = Self {
            inner: Arc::new(Inner {
                project,
                engine,
                stages,
                fence: options.fence.clone(),
                slicing: options.slicing.clone(),
                sources,
                clock,
                selected,
                requests,
                existing,
                recorder,
                checked: Mutex::default(),
                noted: tokio::sync::OnceCell::new(),
                _here: RunningHere::new(&id),
                id,
            }),
            order,
            dependencies,
            warnings,
        };
        update.check_sources_made(&mut faults);
        update.check_flows(&mut faults).await;
        if faults.is_empty() {
            Ok(update)
        } else {
            Err(unique(faults))
        }
    }

    /// A selected flow can't read a table that is neither there nor made by this update.
    fn check_sources_made(&self, faults: &mut Vec<Fault>) {
        let project = &self.inner.project;
        for index in &self.inner.selected {
            for source in self.dependencies.sources(*index) {
                let table = project.flows[source].table;
                if self.inner.selected.contains(&source) || self.inner.existing.contains_key(&table)
                {
                    continue;
                }
                let (flow, shown) = (&project.flows[*index], &project.tables[table].shown);
                faults.push(
                    Fault::new(
                        "TABLE_NOT_MADE_YET",
                        format!("`{}` reads `{shown}`, which is not made yet and not refreshed by this update", flow.name),
                    )
                    .at(flow.definition.name.place.clone())
                    .help(format!("add --refresh {shown}, or leave --refresh out")),
                );
            }
        }
    }

    /// Plans every flow once, so that each fault of a query or a schema is known before anything
    /// is written.
    async fn check_flows(&mut self, faults: &mut Vec<Fault>) {
        let mut upstream = self.upstream_at_start();
        for index in self.order.clone() {
            let table = self.inner.project.flows[index].table;
            if !is_available(&self.inner.project.flows[index].definition.kind) {
                continue;
            }
            let planned = self.plan(index, &upstream).await;
            match planned {
                Ok(plan) => {
                    upstream.insert(table, Upstream::Planned(visible(&plan)));
                    // What this flow reads does not change while the update runs.
                    if self.dependencies.sources(index).is_empty() {
                        self.inner.keep(index, plan);
                    }
                }
                Err(found) => faults.extend(found),
            }
        }
    }

    /// Tables that this update does not touch are read as they are.
    pub(crate) fn upstream_at_start(&self) -> BTreeMap<usize, Upstream> {
        self.inner
            .existing
            .iter()
            .filter(|(table, _)| !self.writes(**table))
            .map(|(index, table)| (*index, Upstream::Existing(table.clone())))
            .collect()
    }

    fn writes(&self, table: usize) -> bool {
        self.inner.project.tables[table]
            .flows
            .iter()
            .any(|f| self.inner.selected.contains(f))
    }

    async fn plan(
        &self,
        index: usize,
        upstream: &BTreeMap<usize, Upstream>,
    ) -> Result<FlowPlan, Vec<Fault>> {
        self.inner.plan(index, upstream, &Attempt::default()).await
    }

    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Its flows as they are when it is stopped before they end.
    pub(crate) fn unended(&self) -> Vec<FlowReport> {
        let flows = self.inner.selected.iter();
        flows
            .map(|index| self.inner.blank(*index, FlowStatus::Canceled, None))
            .collect()
    }

    /// The events that it gathers while it runs.
    pub(crate) fn recorder(&self) -> Recorder {
        self.inner.recorder.clone()
    }

    pub fn clock(&self) -> DateTime<Utc> {
        self.inner.clock
    }

    pub fn pipeline(&self) -> &str {
        &self.inner.project.config.name
    }

    pub fn storage(&self) -> &url::Url {
        &self.inner.project.config.storage
    }

    /// Rows outside their windows that the full refreshes of this update would take away.
    pub async fn rows_at_risk(&self) -> Result<Vec<RowsAtRisk>, Problem> {
        let mut found = Vec::new();
        let mut upstream = self.upstream_at_start();
        for (table, existing) in &self.inner.existing {
            upstream
                .entry(*table)
                .or_insert_with(|| Upstream::Existing(existing.clone()));
        }
        for (index, request) in &self.inner.requests {
            let table = self.inner.project.flows[*index].table;
            let (true, Some(existing)) = (request.full_refresh, self.inner.existing.get(&table))
            else {
                continue;
            };
            if self.inner.project.tables[table].definition.kind == TableKind::MaterializedView {
                continue;
            }
            let mut plan = self.plan(*index, &upstream).await.map_err(first_problem)?;
            plan.full_refresh = false;
            let rows = rows_outside(&plan, existing).await?;
            if rows > 0 {
                found.push(RowsAtRisk {
                    table: self.inner.project.tables[table].shown.clone(),
                    rows,
                });
            }
        }
        Ok(found)
    }

    /// What the update would do, without writing.
    pub async fn explain(&self) -> UpdateReport {
        let mut upstream = self.upstream_at_start();
        for (table, existing) in &self.inner.existing {
            upstream
                .entry(*table)
                .or_insert_with(|| Upstream::Existing(existing.clone()));
        }
        let mut reports: Vec<FlowReport> = Vec::new();
        for index in &self.order {
            let flow = &self.inner.project.flows[*index];
            let after: Vec<String> = self
                .dependencies
                .sources(*index)
                .iter()
                .map(|s| &self.inner.project.flows[*s].name)
                .filter(|name| {
                    reports
                        .iter()
                        .any(|r| r.flow == **name && r.technique != Some(Technique::NoOp))
                })
                .cloned()
                .collect();
            let plan = self.plan(*index, &upstream).await;
            if let Ok(plan) = &plan {
                upstream
                    .entry(flow.table)
                    .or_insert_with(|| Upstream::Planned(visible(plan)));
            }
            if self.inner.selected.contains(index) {
                let report = match plan {
                    Ok(mut plan) => self.inner.explain(*index, &mut plan).await,
                    Err(faults) => Err(first_problem(faults)),
                };
                let mut report = report.unwrap_or_else(|problem| {
                    self.inner.blank(*index, FlowStatus::Failed, Some(problem))
                });
                report.after = after;
                reports.push(report);
            }
        }
        reports.sort_by_key(|r| self.position(&r.flow));
        self.report(UpdateState::Planned, reports)
    }

    fn position(&self, flow: &str) -> usize {
        self.inner
            .project
            .flows
            .iter()
            .position(|f| f.name == flow)
            .unwrap_or(usize::MAX)
    }

    pub(crate) fn report(&self, state: UpdateState, flows: Vec<FlowReport>) -> UpdateReport {
        let error = flows.iter().find_map(|f| {
            f.error.as_ref().map(|e| Problem {
                code: e.code.clone(),
                message: format!("flow `{}` failed: {}", f.flow, e.message),
                help: e.help.clone(),
            })
        });
        UpdateReport {
            update_id: self.inner.id.clone(),
            pipeline: self.inner.project.config.name.clone(),
            state,
            now: self
                .inner
                .clock
                .to_rfc3339_opts(SecondsFormat::AutoSi, true),
            flows,
            warnings: self.warnings.clone(),
            error,
            backfill: None,
        }
    }

    /// Runs the selected flows and writes the event log.
    pub async fn run(&self, progress: Arc<dyn Progress>) -> UpdateReport {
        self.record_definitions();
        // Flows are planned while the note is left, and wait for it before they write.
        let (noted, flows) = futures::join!(self.inner.noted(), self.run_flows(&progress));
        if let Err(problem) = noted {
            return UpdateReport {
                error: Some(problem),
                ..self.report(UpdateState::Failed, Vec::new())
            };
        }
        let failed = flows.iter().any(|f| f.status != FlowStatus::Completed);
        let state = if failed {
            UpdateState::Failed
        } else {
            UpdateState::Completed
        };
        let mut report = self.report(state, flows);
        if let Err(problem) = self.end(state).await {
            report.warnings.push(format!(
                "warning: the event log was not written: {}",
                problem.message
            ));
        }
        report
    }

    async fn run_flows(&self, progress: &Arc<dyn Progress>) -> Vec<FlowReport> {
        let inner = &self.inner;
        let mut upstream = self.upstream_at_start();
        let mut reports: BTreeMap<usize, FlowReport> = BTreeMap::new();
        let mut running: JoinSet<(usize, FlowReport, Option<Table>)> = JoinSet::new();
        let mut started: BTreeSet<usize> = BTreeSet::new();
        let slots = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        loop {
            for index in &self.order {
                if !inner.selected.contains(index) || started.contains(index) {
                    continue;
                }
                let sources: Vec<usize> = self
                    .dependencies
                    .sources(*index)
                    .into_iter()
                    .filter(|s| inner.selected.contains(s))
                    .collect();
                let failed = sources.iter().find(|s| {
                    reports
                        .get(s)
                        .is_some_and(|r| r.status != FlowStatus::Completed)
                });
                if let Some(failed) = failed {
                    started.insert(*index);
                    let problem = Problem {
                        code: "UPSTREAM_FAILED".into(),
                        message: format!(
                            "`{}`, which it reads, did not complete",
                            inner.project.flows[*failed].name
                        ),
                        help: None,
                    };
                    let mut report = inner.blank(*index, FlowStatus::Skipped, Some(problem));
                    report.technique = None;
                    inner.record_end(*index, &report);
                    progress.flow_ended(&report);
                    reports.insert(*index, report);
                    continue;
                }
                if sources.iter().all(|s| reports.contains_key(s)) {
                    started.insert(*index);
                    let span = spans::flow(&inner.project.flows[*index].name);
                    let (inner, index, upstream) = (inner.clone(), *index, upstream.clone());
                    let (progress, slots) = (progress.clone(), slots.clone());
                    let work = async move {
                        let _slot = slots.acquire_owned().await;
                        progress.flow_started(&inner.project.flows[index].name);
                        let (report, table) =
                            inner.run_one(index, &upstream, Attempt::default()).await;
                        inner.record_end(index, &report);
                        progress.flow_ended(&report);
                        spans::end_of_flow(&report);
                        (index, report, table)
                    };
                    running.spawn(work.instrument(span));
                }
            }
            match running.join_next().await {
                None => {
                    let left = self
                        .order
                        .iter()
                        .any(|i| inner.selected.contains(i) && !started.contains(i));
                    if !left {
                        break;
                    }
                }
                Some(Ok((index, report, table))) => {
                    if let Some(table) = table {
                        upstream
                            .insert(inner.project.flows[index].table, Upstream::Existing(table));
                    }
                    reports.insert(index, report);
                }
                Some(Err(error)) => {
                    // A task that panicked: its flow is the one without a report.
                    let lost = started.iter().find(|i| !reports.contains_key(i)).copied();
                    if let Some(index) = lost {
                        let problem = Problem {
                            code: "INTERNAL".into(),
                            message: format!("the flow's task ended unexpectedly: {error}"),
                            help: Some("this is a fault of Windrow; nothing was written".into()),
                        };
                        reports
                            .insert(index, inner.blank(index, FlowStatus::Failed, Some(problem)));
                    }
                }
            }
        }
        reports.into_values().collect()
    }
}

impl Inner {
    pub(crate) fn session(
        &self,
    ) -> Result<datafusion::execution::session_state::SessionState, String> {
        self.engine
            .session(self.clock, self.project.time_zone(), false)
            .map_err(|e| e.to_string())
    }

    fn checked(&self) -> MutexGuard<'_, BTreeMap<usize, FlowPlan>> {
        self.checked.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn keep(&self, index: usize, plan: FlowPlan) {
        let mut checked = self.checked();
        if checked.len() < KEPT_PLANS {
            checked.insert(index, plan);
        }
    }

    pub(crate) async fn plan(
        &self,
        index: usize,
        upstream: &BTreeMap<usize, Upstream>,
        attempt: &Attempt,
    ) -> Result<FlowPlan, Vec<Fault>> {
        if !attempt.spilling_joins
            && attempt.newer.is_none()
            && let Some(plan) = self.checked().remove(&index)
        {
            return Ok(plan);
        }
        let context = FlowContext {
            project: &self.project,
            engine: &self.engine,
            clock: self.clock,
            sources: &self.sources,
            upstream,
        };
        let mut request = self.requests.get(&index).cloned().unwrap_or_default();
        request.spilling_joins = attempt.spilling_joins;
        if let Some(predicate) = &attempt.override_predicate {
            request.override_predicate = Some(predicate.clone());
        }
        let existing = match &attempt.newer {
            Some(newer) => Some(newer.clone()),
            None => self.existing.get(&self.project.flows[index].table).cloned(),
        };
        plan_flow(&context, index, existing, &request).await
    }

    pub(crate) fn blank(
        &self,
        index: usize,
        status: FlowStatus,
        error: Option<Problem>,
    ) -> FlowReport {
        let flow = &self.project.flows[index];
        let table = &self.project.tables[flow.table];
        FlowReport {
            flow: flow.name.clone(),
            target: table.shown.clone(),
            kind: flow.definition.kind.word().into(),
            status,
            technique: None,
            fallback_reasons: Vec::new(),
            considered: Vec::new(),
            change_data: Vec::new(),
            predicate: None,
            predicate_as_written: None,
            slices: Slices::default(),
            table_version: self.existing.get(&flow.table).map(Table::version),
            location: table.location.to_string(),
            metrics: FlowMetrics::default(),
            sources: Vec::new(),
            effect: None,
            after: Vec::new(),
            expectations: Vec::new(),
            error,
        }
    }

    async fn explain(&self, index: usize, plan: &mut FlowPlan) -> Result<FlowReport, Problem> {
        let prepared = self.prepare(plan, true).await?;
        let mut report = self.blank(index, FlowStatus::Planned, None);
        self.describe(plan, &prepared, &mut report);
        if let Some(rows) = &prepared.work.rows {
            let planned = physical(plan, &prepared.work.form, rows.clone()).await;
            planned.map_err(|e| {
                let (code, message) = words_of(&e);
                Problem {
                    code: code.into(),
                    message,
                    help: None,
                }
            })?;
        }
        (report.sources, report.metrics.bytes_scanned) = source_reports(plan, &prepared.filters);
        let removes = prepared.work.rows.is_some() && !plan.scope.appends;
        if let (Some(existing), true) = (&plan.existing, removes) {
            let removal = RemovalPlanner::preview(plan, existing)
                .await
                .map_err(|e| Problem {
                    code: e.code().into(),
                    message: e.to_string(),
                    help: None,
                })?;
            report.metrics.num_deleted_rows = removal.deleted_rows;
            let (removed, unclear) = (removal.remove.len() as u64, removal.looked_into);
            report.effect = Some(Effect {
                files_total: removal.files_total,
                files_removed: removed,
                files_looked_into: unclear,
                files_kept: removal.files_total.saturating_sub(removed + unclear),
            });
        }
        Ok(report)
    }

    fn describe(&self, plan: &FlowPlan, prepared: &Prepared, report: &mut FlowReport) {
        report.technique = Some(prepared.work.decision.technique);
        report.fallback_reasons = prepared.work.decision.reasons.clone();
        report.considered = prepared.considered.clone();
        report.change_data = prepared.change_data.clone();
        report.predicate = plan.predicate_text();
        report.predicate_as_written = plan.written.clone();
        report.slices.total = u64::from(prepared.work.rows.is_some());
    }

    pub(crate) async fn run_one(
        &self,
        index: usize,
        upstream: &BTreeMap<usize, Upstream>,
        attempt: Attempt,
    ) -> (FlowReport, Option<Table>) {
        let mut report = self.blank(index, FlowStatus::Failed, None);
        match self.try_run(index, upstream, attempt, &mut report).await {
            Ok(done) => {
                report.status = FlowStatus::Completed;
                report.slices.total = report.slices.total.max(done.metrics.num_slices);
                report.slices.completed = report.slices.total;
                report.table_version = Some(done.version);
                report.metrics = done.metrics;
                if !done.sources.is_empty() {
                    report.sources = done.sources;
                }
                if done.committed {
                    let flow = &self.project.flows[index];
                    let target = &self.project.tables[flow.table].shown;
                    self.recorder.add(
                        "commit",
                        Some((&flow.name, target)),
                        Level::Info,
                        format!("version {} of {target}", done.version),
                        json!({"version": done.version, "files_added": report.metrics.num_files_added,
                            "files_removed": report.metrics.num_files_removed,
                            "bytes_added": report.metrics.bytes_written}),
                    );
                }
                (report, Some(done.table))
            }
            Err(problem) => {
                report.slices.failed = report.slices.total;
                report.error = Some(problem);
                (report, None)
            }
        }
    }

    async fn try_run(
        &self,
        index: usize,
        upstream: &BTreeMap<usize, Upstream>,
        mut attempt: Attempt,
        report: &mut FlowReport,
    ) -> Result<Done, Problem> {
        loop {
            let mut plan = self
                .plan(index, upstream, &attempt)
                .await
                .map_err(first_problem)?;
            let prepared = self.prepare(&mut plan, false).await?;
            self.describe(&plan, &prepared, report);
            if !attempt.spilling_joins {
                self.record_planning(index, report);
            }
            let context = RunContext {
                project: &self.project,
                update_id: &self.id,
                clock: self.clock,
                partitions: self.engine.partitions(),
                stages: self.stages.clone(),
                fence: self.fence.clone(),
                slicing: &self.slicing,
                memory_limit: self.engine.memory_limit(),
                slice: attempt.slice.as_deref(),
            };
            let Prepared {
                state,
                filters,
                work,
                considered: _,
                change_data: _,
            } = prepared;
            let may_replan = !attempt.spilling_joins;
            self.noted().await?;
            match run_flow(&context, &plan, work, state, &filters, may_replan).await {
                Ok(done) => return Ok(done),
                Err(Stopped::Failed(problem)) => return Err(problem),
                Err(Stopped::NeedsSpillingJoins) => attempt.spilling_joins = true,
                Err(Stopped::WindowChanged(newer)) => {
                    attempt.again += 1;
                    if attempt.again > PLANNED_AGAIN {
                        return Err(Problem {
                            code: "COMMIT_CONFLICTS".into(),
                            message: format!(
                                "rows of the window of {} were changed by others {PLANNED_AGAIN} times while this flow ran",
                                report.location
                            ),
                            help: Some(
                                "run the update again when the other writers are done".into(),
                            ),
                        });
                    }
                    attempt.newer = Some(*newer);
                }
            }
        }
    }
}

/// How often a flow is planned anew because others changed its window meanwhile.
const PLANNED_AGAIN: u32 = 5;

/// What earlier tries at a flow have taught.
#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) spilling_joins: bool,
    /// The target as it is by now, when it has moved on since the update began.
    pub(crate) newer: Option<Table>,
    pub(crate) again: u32,
    /// In place of the flow's own predicate and of the update's override.
    pub(crate) override_predicate: Option<ExprText>,
    /// The slice of a backfill that this is.
    pub(crate) slice: Option<Arc<SliceRun>>,
}

/// Flows of other kinds are refused by name when the project is read.
fn is_available(kind: &FlowKind) -> bool {
    matches!(
        kind,
        FlowKind::ReplaceWhere { .. } | FlowKind::MaterializedView { .. }
    )
}

/// The columns of a planned target as its readers will see them.
fn visible(plan: &FlowPlan) -> datafusion::arrow::datatypes::SchemaRef {
    use datafusion::catalog::TableProvider;
    PlannedTable::new(plan.target_schema.clone()).schema()
}

fn first_problem(faults: Vec<Fault>) -> Problem {
    match faults.into_iter().next() {
        Some(fault) => Problem {
            code: fault.code.into(),
            message: fault.message,
            help: fault.help,
        },
        None => Problem {
            code: "UPSTREAM_NOT_PLANNED".into(),
            message: "a table that it reads could not be planned".into(),
            help: None,
        },
    }
}

fn unique(faults: Vec<Fault>) -> Vec<Fault> {
    let mut kept: Vec<Fault> = Vec::new();
    for fault in faults {
        if !kept.contains(&fault) {
            kept.push(fault);
        }
    }
    kept
}

async fn rows_outside(plan: &FlowPlan, existing: &Table) -> Result<u64, Problem> {
    use futures::TryStreamExt;
    let table_problem = |e: windrow_delta::TableError| Problem {
        code: e.code().into(),
        message: e.to_string(),
        help: None,
    };
    let mut total = 0u64;
    {
        let mut batches = std::pin::pin!(existing.files());
        while let Some(files) = batches.try_next().await.map_err(table_problem)? {
            for file in files.iter() {
                let rows = windrow_delta::prune::record_count(file.stats.as_deref()).unwrap_or(1);
                let gone = file
                    .deletion_vector
                    .as_ref()
                    .map_or(0, |v| v.cardinality.unsigned_abs());
                total += rows.saturating_sub(gone);
            }
        }
    }
    let removal = RemovalPlanner::default()
        .plan(plan, existing)
        .await
        .map_err(|e| {
            let (code, message) = words_of(&e);
            Problem {
                code: code.into(),
                message,
                help: None,
            }
        })?;
    Ok(total.saturating_sub(removal.deleted_rows))
}
