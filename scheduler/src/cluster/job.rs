//! One job of the runtime, begun anew until its result can be trusted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ballista_core::JobId;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::{JobStatus, SuccessfulJob, job_status};
use ballista_scheduler::cluster::ClusterStateEvent;
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use ballista_scheduler::state::execution_stage::ExecutionStage;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use tokio::sync::mpsc;
use tracing::Instrument;
use windrow_executor::failure::{self, RemoteError};
use windrow_executor::link::Link;
use windrow_executor::local;
use windrow_executor::process::MESSAGE_BYTES;
use windrow_executor::stage::{StageExec, StagedFile};
use windrow_executor::stores::{self, PlanOptions};
use windrow_executor::trace;

use super::shape::{self, Shape};
use super::{Cluster, results};
use crate::engine::StageJob;
use crate::spans;

/// Between the end of a job as it is told and as it can be looked at, and between two attempts.
const SOON: Duration = Duration::from_millis(10);
const GRAPH_WAIT: Duration = Duration::from_secs(10);

/// How an attempt ended.
enum Ended {
    Staged(Vec<StagedFile>),
    /// Another attempt may do better.
    Again(String),
    Failed(RemoteError),
}

pub(super) async fn run(
    cluster: &Cluster,
    job: &StageJob,
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Vec<StagedFile>, DataFusionError> {
    let _counted = Counted::new(cluster.waiting.clone());
    let _admitted = cluster
        .admitted
        .acquire()
        .await
        .map_err(|e| DataFusionError::External(Box::new(e)))?;
    let sent = match shape::of(plan.clone(), &state.task_ctx())? {
        Shape::Sent(sent) => sent,
        Shape::StaysHere(reason) => {
            cluster.stays_here(job, &reason);
            return local::run_stage(state, plan).await;
        }
    };
    let Some(stage) = sent.downcast_ref::<StageExec>() else {
        return Err(DataFusionError::Internal(
            "a job's plan ends in the staged-file writer".into(),
        ));
    };
    let mut last = String::new();
    for number in 0..cluster.options.attempts.max(1) {
        if number > 0 {
            cluster.retried.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                update = job.update,
                flow = job.flow,
                slice = job.slice,
                attempt = number,
                reason = last,
                "a slice is computed anew"
            );
            tokio::time::sleep(SOON * (1 << number.min(8))).await;
        }
        let plan: Arc<dyn ExecutionPlan> = Arc::new(stage.with_attempt(number));
        let span = trace::new_span_id();
        let session = context(state, job, &span, &cluster.options.link)?;
        let tried = attempt(cluster, job, session, plan);
        match tried.instrument(spans::attempt(number, &span)).await? {
            Ended::Staged(files) => {
                cluster.done.fetch_add(1, Ordering::Relaxed);
                return Ok(files);
            }
            Ended::Again(reason) => last = reason,
            Ended::Failed(error) => return Err(DataFusionError::External(Box::new(error))),
        }
    }
    Err(DataFusionError::External(Box::new(RemoteError {
        code: "TASKS_FAILED".into(),
        message: format!(
            "the executors did not get through in {} attempts; the last one: {last}",
            cluster.options.attempts.max(1)
        ),
    })))
}

/// Counts one more as long as it lives.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(counter: Arc<AtomicU64>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The session of a job: that of the flow, with what the runtime and the executors need to know. `span`
/// is what its tasks belong to in the update's trace.
fn context(
    state: &SessionState,
    job: &StageJob,
    span: &str,
    link: &Link,
) -> Result<Arc<SessionContext>, DataFusionError> {
    let told = PlanOptions {
        stores: stores::written(&job.stores),
        traceparent: trace::name(&job.update, span),
        update: job.update.clone(),
        flow: job.flow.clone(),
        slice: job.slice as u64,
    };
    let config = state
        .config()
        .clone()
        .with_option_extension(told)
        .upgrade_for_ballista()
        .with_ballista_adaptive_query_planner(false)
        // What executors know by themselves gives way to the settings of a job.
        .with_ballista_use_tls(link.has_tls())
        // A task of several partitions could not be counted and tried alone.
        .set_u64("ballista.scheduler.max_partitions_per_task", 1)
        .set_u64("ballista.client.io_retries_times", 1)
        .set_u64("ballista.client.io_retry_wait_time_ms", 500)
        .set_u64(
            "ballista.client.grpc_max_message_size",
            MESSAGE_BYTES as u64,
        );
    let state = SessionStateBuilder::new_from_existing(state.clone())
        .with_session_id(uuid::Uuid::new_v4().to_string())
        .with_config(config)
        .build();
    Ok(Arc::new(SessionContext::new_with_state(state)))
}

/// Ends a job that nobody waits for any more.
struct Running {
    cluster: Cluster,
    id: JobId,
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.cluster.attendance.cancel(self.id.as_ref());
        let (runtime, id) = (self.cluster.runtime.clone(), self.id.clone());
        self.cluster.serving.spawn(async move {
            if let Err(error) = runtime.cancel_job(id).await {
                tracing::debug!(%error, "a job was not cancelled");
            }
        });
    }
}

fn not_run(error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::External(Box::new(RemoteError {
        code: "TASKS_FAILED".into(),
        message: format!("the scheduler of tasks refused a job: {error}"),
    }))
}

async fn attempt(
    cluster: &Cluster,
    job: &StageJob,
    context: Arc<SessionContext>,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Ended, DataFusionError> {
    // Before the job begins, so that no loss goes unseen.
    let mut events = cluster
        .runtime
        .cluster_state_events()
        .await
        .map_err(not_run)?;
    let (tell, mut told) = mpsc::channel::<JobStatus>(64);
    let name = format!("{} {} slice {}", job.update, job.flow, job.slice);
    let id = cluster
        .runtime
        .submit_physical_plan(&name, context, plan, Some(tell))
        .await
        .map_err(not_run)?;
    tracing::Span::current().record("job", id.to_string());
    let mut running = Running {
        cluster: cluster.clone(),
        id: id.clone(),
        is_over: false,
    };
    let mut look = tokio::time::interval(Duration::from_secs(1));
    let mut seen_alive = Instant::now();
    loop {
        tokio::select! {
            status = told.recv() => match status.and_then(|s| s.status) {
                Some(job_status::Status::Successful(done)) => {
                    running.is_over = true;
                    return result(cluster, &id, done).await;
                }
                Some(job_status::Status::Failed(failed)) => {
                    running.is_over = true;
                    return Ok(judged(&failed.error));
                }
                Some(_) => {}
                None => return Ok(Ended::Again("the job was lost sight of".into())),
            },
            event = events.next() => match event {
                Some(ClusterStateEvent::RemovedExecutor { executor_id }) => {
                    return Ok(Ended::Again(format!("executor {executor_id} was lost")));
                }
                Some(_) => {}
                None => return Ok(Ended::Again("the executors were lost sight of".into())),
            },
            _ = look.tick() => {
                if !cluster.executors().await.is_empty() {
                    seen_alive = Instant::now();
                } else if seen_alive.elapsed() > cluster.options.no_executor_wait {
                    return Ok(Ended::Failed(RemoteError {
                        code: "NO_EXECUTOR".into(),
                        message: format!(
                            "no executor was there for {} s",
                            cluster.options.no_executor_wait.as_secs()
                        ),
                    }));
                }
            }
        }
    }
}

/// What the text of a failed job means. A fault of the work itself comes again at every attempt.
fn judged(text: &str) -> Ended {
    match failure::received(text) {
        Some(error) if error.code != "STORAGE_NOT_REACHABLE" => Ended::Failed(error),
        Some(error) => Ended::Again(error.message),
        None => Ended::Again(text.to_string()),
    }
}

async fn result(
    cluster: &Cluster,
    id: &JobId,
    done: SuccessfulJob,
) -> Result<Ended, DataFusionError> {
    let Some(graph) = graph(cluster, id).await? else {
        return Ok(Ended::Again("the finished job can't be looked at".into()));
    };
    let parts: Vec<u32> = done
        .partition_location
        .iter()
        .filter_map(|l| l.partition_id.as_ref().map(|p| p.partition_id))
        .collect();
    let rows = match trusted(&graph, &parts) {
        Ok(rows) => rows,
        Err(reason) => return Ok(Ended::Again(reason)),
    };
    let files = match results::fetch(&cluster.options.link, done).await {
        Ok(files) => files,
        Err(reason) => return Ok(Ended::Again(reason)),
    };
    let paths: BTreeSet<&str> = files.iter().map(|f| f.path.as_str()).collect();
    let staged: i64 = files.iter().map(|f| f.rows).sum();
    if paths.len() != files.len() {
        return Ok(Ended::Again("two tasks staged a file of one name".into()));
    }
    if rows.is_some_and(|rows| i64::try_from(rows) != Ok(staged)) {
        return Ok(Ended::Again(format!(
            "{staged} rows are in the staged files, but the tasks counted {}",
            rows.unwrap_or_default()
        )));
    }
    Ok(Ended::Staged(files))
}

/// The graph of a finished job; the runtime tells of the end before it can be had.
async fn graph(
    cluster: &Cluster,
    id: &JobId,
) -> Result<Option<ExecutionGraphBox>, DataFusionError> {
    let jobs = cluster.state.job_state();
    let begun = Instant::now();
    let mut wait = Duration::from_millis(1);
    loop {
        if let Some(graph) = jobs.get_execution_graph(id).await.map_err(not_run)? {
            return Ok(Some(graph));
        }
        if begun.elapsed() > GRAPH_WAIT {
            return Ok(None);
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SOON);
    }
}

/// Whether each partition of the result was made once, by stages that never ran twice. Gives the
/// rows that the tasks counted, where they told.
fn trusted(graph: &ExecutionGraphBox, parts: &[u32]) -> Result<Option<usize>, String> {
    let mut last = None;
    for (number, stage) in graph.stages() {
        let ExecutionStage::Successful(stage) = stage else {
            return Err(format!("stage {number} did not succeed"));
        };
        if stage.stage_attempt_num > 0 {
            return Err(format!("stage {number} ran more than once"));
        }
        if stage.output_links.is_empty() {
            last = Some(stage);
        }
    }
    let Some(last) = last else {
        return Err("there is no last stage".into());
    };
    let mut found = parts.to_vec();
    found.sort_unstable();
    let wanted: Vec<u32> = (0..last.partitions as u32).collect();
    if found != wanted {
        return Err(format!(
            "parts {found:?} of the result are there where {} are wanted",
            wanted.len()
        ));
    }
    let counted: Vec<usize> = last
        .stage_metrics
        .iter()
        .filter_map(|m| m.sum_by_name("rows_staged"))
        .map(|m| m.as_usize())
        .collect();
    Ok((!counted.is_empty()).then(|| counted.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_work_ends_it_and_a_lost_executor_does_not() {
        let wrong = failure::sent(DataFusionError::Execution("division by zero".into()));
        let Ended::Failed(error) = judged(&format!("Task failed: {wrong:?}")) else {
            panic!("a division by zero is tried again");
        };
        assert_eq!(error.message, "Execution error: division by zero");
        assert!(matches!(
            judged("FetchFailed(executor, 1, 2)"),
            Ended::Again(_)
        ));
    }
}
