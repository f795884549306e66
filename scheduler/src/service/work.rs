//! One update from its turn to its end.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tracing::Instrument;
use windrow_executor::session::{Engine, EngineOptions};
use windrow_flows::calendar::Unit;
use windrow_flows::fault::Fault;

use super::Inner;
use super::compute::Compute;
use super::error::ServiceError;
use super::live::{Live, Told};
use super::record::{AtRisk, BackfillRequest, Request, State, UpdateRecord, UpdateRequest};
use crate::backfill::{Backfill, BackfillOptions, Only, Resume};
use crate::config::PipelineConfig;
use crate::events::{self, Ending, Event, Level, RunningHere};
use crate::report::{
    FaultReport, FlowMetrics, FlowReport, FlowStatus, Problem, Slices, UpdateReport, UpdateState,
};
use crate::slicing::Slicing;
use crate::spans;
use crate::spec::PipelineSpec;
use crate::update::{Update, UpdateOptions};

/// How long a stopped update may take to reach its next pause, before it is left behind.
const LET_GO: Duration = Duration::from_secs(3);
/// A commit whose request was on its way when the update was stopped may still arrive.
const SETTLED: Duration = Duration::from_millis(300);
/// Tries at writing a result, each twice as long after the one before.
const SAVE_TRIES: u32 = 6;
const SAVE_FIRST_WAIT: Duration = Duration::from_millis(250);
/// Updates of a pipeline that are remembered, and how many more may gather before some are forgotten.
const REMEMBERED: usize = 1000;
const FORGOTTEN_AT: usize = 1100;

/// What came of an update.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    state: State,
    faults: Vec<FaultReport>,
    at_risk: Vec<AtRisk>,
    error: Option<Problem>,
    report: Option<UpdateReport>,
}

impl Outcome {
    fn failed(error: Problem) -> Self {
        Self {
            state: State::Failed,
            faults: Vec::new(),
            at_risk: Vec::new(),
            error: Some(error),
            report: None,
        }
    }

    fn refused(faults: &[Fault]) -> Self {
        let first = faults.first().map(|f| Problem {
            code: f.code.into(),
            message: f.message.clone(),
            help: f.help.clone(),
        });
        Self {
            state: State::Failed,
            faults: faults.iter().map(FaultReport::from).collect(),
            at_risk: Vec::new(),
            error: first,
            report: None,
        }
    }

    fn of(report: UpdateReport) -> Self {
        Self {
            state: match report.state {
                UpdateState::Completed => State::Completed,
                UpdateState::Canceled => State::Canceled,
                UpdateState::Failed | UpdateState::Planned => State::Failed,
            },
            faults: Vec::new(),
            at_risk: Vec::new(),
            error: report.error.clone(),
            report: Some(report),
        }
    }

    pub(crate) fn write(self, record: &mut UpdateRecord) {
        record.state = self.state;
        record.ended = Some(Utc::now());
        record.faults = self.faults;
        record.rows_at_risk = self.at_risk;
        record.error = self.error;
        if let Some(report) = &self.report {
            if let Some(backfill) = &report.backfill {
                record.backfill_id = Some(backfill.id.clone());
            }
            record.warnings = report.warnings.clone();
        }
        record.report = self.report;
    }
}

impl Inner {
    /// Waits for a turn, runs the update, and keeps what came of it.
    pub(crate) async fn drive(self: Arc<Self>, live: Arc<Live>, spec: PipelineSpec) {
        let slot = {
            let _waiting = self.metrics.queued();
            tokio::select! {
                slot = self.slots.clone().acquire_owned() => slot.ok(),
                () = live.stopped() => None,
            }
        };
        if slot.is_some() && self.stopping.load(std::sync::atomic::Ordering::Acquire) {
            // Its record still says that it waits: the next scheduler begins it.
            live.end();
            self.retire(&live.id);
            return;
        }
        let outcome = if slot.is_some() {
            let _running = self.metrics.running();
            self.supervise(&live, spec).await
        } else {
            Outcome {
                state: State::Canceled,
                ..Outcome::failed(stopped())
            }
        };
        self.finish(&live, outcome).await;
        drop(slot);
    }

    /// Runs the update as a task of its own, which a stop ends wherever it is.
    async fn supervise(self: &Arc<Self>, live: &Arc<Live>, spec: PipelineSpec) -> Outcome {
        live.change(|r| {
            r.state = State::Initializing;
            r.started = Some(Utc::now());
        });
        live.tell(Told::State(State::Initializing));
        if let Err(error) = self.save(live).await {
            return Outcome::failed(Problem {
                code: error.code().to_string(),
                message: error.to_string(),
                help: Some("check the scheduler's storage and the access to it".into()),
            });
        }
        let compute = match Compute::new() {
            Ok(compute) => compute,
            Err(error) => return Outcome::failed(no_threads(&error.to_string())),
        };
        let span = spans::update(&live.id);
        span.record("pipeline", &spec.name);
        let work = self.clone().work(live.clone(), spec.clone());
        let Some(mut task) = compute.spawn(work.instrument(span.clone())) else {
            return Outcome::failed(no_threads("they have ended"));
        };
        let ended = tokio::select! {
            ended = &mut task => Some(ended),
            () = live.stopped() => {
                task.abort();
                tokio::time::timeout(LET_GO, task).await.ok()
            }
        };
        // What has not let go by now ends at its next pause, before it could commit.
        drop(compute);
        let outcome = match ended {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) if !error.is_cancelled() => {
                let config = spec.config(&self.guard).ok();
                let problem = Problem {
                    code: "INTERNAL".into(),
                    message: format!("the update's task ended unexpectedly: {error}"),
                    help: Some("this is a fault of Windrow".into()),
                };
                self.closed(&live.record(), config.as_ref(), problem, BROKEN)
                    .await
            }
            None | Some(Err(_)) => {
                let config = spec.config(&self.guard).ok();
                self.closed(&live.record(), config.as_ref(), stopped(), STOPPED)
                    .await
            }
        };
        let state = outcome.state.word();
        span.record("state", state);
        span.in_scope(|| tracing::info!(state, "an update ended"));
        outcome
    }

    async fn work(self: Arc<Self>, live: Arc<Live>, spec: PipelineSpec) -> Outcome {
        let config = match spec.config(&self.guard) {
            Ok(config) => config,
            Err(fault) => return Outcome::refused(&[fault]),
        };
        let record = live.record();
        match &record.request {
            Request::Update(request) => match self.update_options(request, &record) {
                Ok(options) => self.run_update(&live, config, &options, request).await,
                Err(fault) => Outcome::refused(&[fault]),
            },
            Request::Backfill(request) => {
                match self.backfill_options(request, record.now, Some(record.id.clone())) {
                    Ok(options) => self.run_backfill(&live, config, &options).await,
                    Err(fault) => Outcome::refused(&[fault]),
                }
            }
        }
    }

    async fn run_update(
        self: &Arc<Self>,
        live: &Arc<Live>,
        config: PipelineConfig,
        options: &UpdateOptions,
        request: &UpdateRequest,
    ) -> Outcome {
        let update = match Update::prepare(config, options).await {
            Ok(update) => update,
            Err(faults) => return Outcome::refused(&faults),
        };
        warn(live, &update.warnings);
        if request.validate_only {
            return Outcome {
                state: State::Completed,
                error: None,
                ..Outcome::refused(&[])
            };
        }
        if !request.agree {
            match update.rows_at_risk().await {
                Ok(at_risk) if at_risk.is_empty() => {}
                Ok(at_risk) => {
                    let at_risk = at_risk.into_iter().map(|r| AtRisk {
                        table: r.table,
                        rows: r.rows,
                    });
                    return Outcome {
                        at_risk: at_risk.collect(),
                        ..Outcome::failed(Problem {
                            code: "FULL_REFRESH_NOT_AGREED".into(),
                            message:
                                "the full refresh takes away rows outside the windows for good"
                                    .into(),
                            help: Some("start it again, and agree if they may go".into()),
                        })
                    };
                }
                Err(problem) => {
                    return Outcome::refused(&[Fault::new(
                        "FULL_REFRESH_NOT_CHECKED",
                        problem.message,
                    )]);
                }
            }
        }
        if let Err(outcome) = self.set_running(live).await {
            return *outcome;
        }
        live.follow(update.recorder(), update.unended());
        Outcome::of(update.run(live.clone()).await)
    }

    async fn run_backfill(
        self: &Arc<Self>,
        live: &Arc<Live>,
        config: PipelineConfig,
        options: &BackfillOptions,
    ) -> Outcome {
        let backfill = match Backfill::prepare(config, options).await {
            Ok(backfill) => backfill,
            Err(faults) => return Outcome::refused(&faults),
        };
        warn(live, backfill.warnings());
        live.change(|r| r.backfill_id = Some(backfill.id().to_string()));
        if let Err(outcome) = self.set_running(live).await {
            return *outcome;
        }
        live.follow(backfill.recorder(), backfill.unended());
        Outcome::of(backfill.run(live.clone()).await)
    }

    /// From here on it writes, and the storage knows that it may have.
    async fn set_running(self: &Arc<Self>, live: &Arc<Live>) -> Result<(), Box<Outcome>> {
        live.change(|r| r.state = State::Running);
        live.tell(Told::State(State::Running));
        let (inner, live) = (self.clone(), live.clone());
        // On the threads that write all records, and to the end even if it is stopped meanwhile.
        let saved = self.serving.spawn(async move { inner.save(&live).await });
        let saved = saved.await.unwrap_or_else(|error| {
            Err(ServiceError::Internal {
                reason: error.to_string(),
            })
        });
        saved.map_err(|error| {
            Box::new(Outcome::failed(Problem {
                code: error.code().to_string(),
                message: error.to_string(),
                help: Some("check the scheduler's storage and the access to it".into()),
            }))
        })
    }

    async fn finish(&self, live: &Live, outcome: Outcome) {
        let record = live.change(|record| outcome.write(record));
        live.tell(Told::State(record.state));
        let mut wait = SAVE_FIRST_WAIT;
        let mut is_saved = false;
        for _ in 0..SAVE_TRIES {
            match self.save(live).await {
                Ok(()) => {
                    is_saved = true;
                    break;
                }
                Err(error) => {
                    tracing::error!(update = live.id, %error, "the result of an update was not written");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
            }
        }
        // An update that has no result on the storage is left to the next scheduler as interrupted.
        if is_saved && let Err(error) = self.records.delete_active(&live.id).await {
            tracing::warn!(update = live.id, %error, "the marker of an update that has ended stays");
        }
        self.metrics.ended(record.state);
        for flow in record.report.iter().flat_map(|r| &r.flows) {
            self.metrics.flow_ended(flow);
        }
        live.end();
        self.retire(&live.id);
        self.forget_old(&live.pipeline_id).await;
    }

    /// Only tidiness hangs on it.
    async fn forget_old(&self, pipeline: &str) {
        let Ok(ids) = self.records.update_ids(pipeline).await else {
            return;
        };
        if ids.len() < FORGOTTEN_AT {
            return;
        }
        for id in &ids[..ids.len() - REMEMBERED] {
            if let Err(error) = self.records.delete_update(pipeline, id).await {
                tracing::debug!(update = id, %error, "an old update was not forgotten");
                return;
            }
        }
    }

    /// The end of an update that can't tell of it itself: its commits are looked up in the targets'
    /// logs, and its events are written.
    pub(crate) async fn closed(
        &self,
        record: &UpdateRecord,
        config: Option<&PipelineConfig>,
        problem: Problem,
        ending: Ending,
    ) -> Outcome {
        let live = self.live(&record.id);
        let mut flows: Vec<FlowReport> = Vec::new();
        if let Some(live) = &live {
            flows.extend(live.flows().into_values().flatten());
        }
        let mut warnings = record.warnings.clone();
        if let Some(config) = config.filter(|_| record.state == State::Running) {
            until_let_go(&record.id).await;
            let told = live.as_ref().and_then(|live| live.recorded());
            if let Err(words) = close(config, record, told, ending, &mut flows).await {
                warnings.push(format!("warning: the event log was not written: {words}"));
            }
        }
        if let Some(live) = &live {
            let mut all = live.unended();
            for flow in flows {
                match all.iter_mut().find(|f| f.flow == flow.flow) {
                    Some(unended) => *unended = flow,
                    None => all.push(flow),
                }
            }
            flows = all;
        }
        let started = record.now.or(record.started).unwrap_or(record.created);
        let is_canceled = ending.state == UpdateState::Canceled.word();
        let report = UpdateReport {
            update_id: record.id.clone(),
            pipeline: record.pipeline_name.clone(),
            state: if is_canceled {
                UpdateState::Canceled
            } else {
                UpdateState::Failed
            },
            now: started.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
            flows,
            warnings,
            error: Some(problem.clone()),
            backfill: None,
        };
        Outcome {
            state: if is_canceled {
                State::Canceled
            } else {
                State::Failed
            },
            report: Some(report),
            ..Outcome::failed(problem)
        }
    }
}

const STOPPED: Ending = Ending {
    state: "CANCELED",
    cause: "USER_ACTION",
    level: Level::Warn,
    message: "the update was stopped",
};

const BROKEN: Ending = Ending {
    state: "FAILED",
    cause: "INTERNAL",
    level: Level::Error,
    message: "the update's task ended unexpectedly",
};

/// Of an update that another scheduler ran.
pub(crate) const INTERRUPTED: Ending = Ending {
    state: "FAILED",
    cause: "SCHEDULER_ENDED",
    level: Level::Error,
    message: "the update's scheduler went away before the update ended",
};

fn no_threads(why: &str) -> Problem {
    Problem {
        code: "RUNTIME_NOT_STARTED".into(),
        message: format!("the update has no threads: {why}"),
        help: Some("let fewer updates run at a time: --max-updates".into()),
    }
}

fn stopped() -> Problem {
    Problem {
        code: "UPDATE_STOPPED".into(),
        message: "it was stopped; flows that had committed stay, the others changed nothing".into(),
        help: None,
    }
}

fn warn(live: &Live, warnings: &[String]) {
    live.change(|r| r.warnings = warnings.to_vec());
    for warning in warnings {
        live.tell(Told::Warning(warning.clone()));
    }
}

/// The last traces of a task are gone a moment after its end.
async fn until_let_go(id: &str) {
    let waited = async {
        while RunningHere::holds(id) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LET_GO, waited).await.is_err() {
        tracing::warn!(update = id, "a task of a stopped update is still at work");
    }
    tokio::time::sleep(SETTLED).await;
}

/// Writes the events of an update that is over, and adds the flows that its targets' logs know of.
async fn close(
    config: &PipelineConfig,
    record: &UpdateRecord,
    told: Option<Vec<Event>>,
    ending: Ending,
    flows: &mut Vec<FlowReport>,
) -> Result<(), String> {
    let (storage, options) = (&config.storage, &config.store_options);
    let found = events::committed(storage, options, &record.id);
    for commit in found.await.map_err(|e| e.to_string())? {
        let known = flows
            .iter_mut()
            .find(|f| f.flow == commit.flow && f.table_version >= Some(commit.version));
        if known.is_none() {
            flows.retain(|f| f.flow != commit.flow);
            flows.push(completed(commit));
        }
    }
    let engine = Engine::new(&EngineOptions::default()).map_err(|e| e.to_string())?;
    let state = engine
        .session(Utc::now(), "UTC", false)
        .map_err(|e| e.to_string())?;
    events::close(&state, storage, options, &record.id, told, ending)
        .await
        .map_err(|e| e.to_string())
}

/// A flow of which no more is known than its commit.
fn completed(commit: events::FoundCommit) -> FlowReport {
    FlowReport {
        flow: commit.flow,
        target: commit.dataset,
        kind: String::new(),
        status: FlowStatus::Completed,
        technique: None,
        fallback_reasons: Vec::new(),
        considered: Vec::new(),
        change_data: Vec::new(),
        predicate: None,
        predicate_as_written: None,
        slices: Slices::default(),
        table_version: Some(commit.version),
        location: commit.url,
        metrics: FlowMetrics {
            num_files_added: commit.files_added,
            num_files_removed: commit.files_removed,
            ..FlowMetrics::default()
        },
        sources: Vec::new(),
        effect: None,
        after: Vec::new(),
        expectations: Vec::new(),
        error: None,
    }
}

fn unit(word: Option<&String>) -> Result<Option<Unit>, Fault> {
    let Some(word) = word else { return Ok(None) };
    match Unit::of_word(&word.to_lowercase()) {
        Some(unit) => Ok(Some(unit)),
        None => Err(Fault::new(
            "WRONG_OPTION",
            format!("--by `{word}` is no unit of the calendar"),
        )
        .help(format!("write {}", Unit::WORDS))),
    }
}

impl Inner {
    pub(crate) fn update_options(
        &self,
        request: &UpdateRequest,
        record: &UpdateRecord,
    ) -> Result<UpdateOptions, Fault> {
        Ok(UpdateOptions {
            id: Some(record.id.clone()),
            ..self.options_of(request, record.now)?
        })
    }

    /// The same for an update that is only looked at.
    pub(crate) fn options_of(
        &self,
        request: &UpdateRequest,
        now: Option<DateTime<Utc>>,
    ) -> Result<UpdateOptions, Fault> {
        Ok(UpdateOptions {
            refresh: request.refresh.clone(),
            full_refresh: request.full_refresh.clone(),
            full_refresh_all: request.full_refresh_all,
            replace_where: request.replace_where.clone(),
            now,
            yes: request.agree,
            id: None,
            engine: self.engine.clone(),
            fence: self.fence.clone(),
            slicing: Slicing {
                by: unit(request.slice_by.as_ref())?,
                parallel: request.parallel,
            },
        })
    }
}

impl Inner {
    pub(crate) fn backfill_options(
        &self,
        request: &BackfillRequest,
        now: Option<DateTime<Utc>>,
        id: Option<String>,
    ) -> Result<BackfillOptions, Fault> {
        let by = unit(request.by.as_ref())?;
        let only = only(&request.only)?;
        Ok(BackfillOptions {
            only,
            flow: request.flow.clone(),
            column: request.column.clone(),
            from: request.from.clone(),
            to: request.to.clone(),
            by,
            parallel: request.parallel,
            atomic: request.atomic,
            newest_first: request.newest_first,
            resume: match (request.resumes, &request.backfill) {
                (false, _) => Resume::No,
                (true, None) => Resume::Newest,
                (true, Some(id)) => Resume::Id(id.clone()),
            },
            now,
            id,
            engine: self.engine.clone(),
            fence: self.fence.clone(),
        })
    }
}

fn only(word: &str) -> Result<Only, Fault> {
    if word.is_empty() {
        return Ok(Only::All);
    }
    Only::of_word(word).ok_or_else(|| {
        Fault::new("WRONG_OPTION", format!("`{word}` is no part of a backfill"))
            .help(format!("write {}", Only::WORDS))
    })
}
