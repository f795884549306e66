//! An executor as a process: asks a scheduler for tasks, runs them, serves what they shuffle.
//!
//! The parts are the distributed runtime's; how they are put together is ours, since its own way
//! leaves no room for draining, for stores that open when a plan names them, and for errors that
//! keep their codes. What runs where is the scheduler's decision.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    ExecutorRegistration, ExecutorStoppedParams, GetJobStatusParams, RuntimeStatsReport,
    ShuffleWritePartition, TaskColumnStats, WindowStateReport, job_status,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use ballista_executor::executor::{Executor, TasksDrainedFuture};
use ballista_executor::executor_process::{ExecutorProcessConfig, structure_executor_metadata};
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool, TrackConsumersPool};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::Instrument;
use windrow_proto::v1::executor_service_client::ExecutorServiceClient;
use windrow_proto::v1::{AttendRequest, order};

use crate::codec::WindrowCodec;
use crate::failure;
use crate::link::{Greeting, Link, LinkError};
use crate::session::{Engine, EngineOptions, default_memory};
use crate::status;
use crate::stores::{PlanOptions, Runtimes};
use crate::trace;

/// Bytes of a message between the processes of a cluster: a plan holds the files that it reads and
/// the keys that changed.
pub const MESSAGE_BYTES: usize = 256 << 20;

/// How an executor is run.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The scheduler, as `host:port`.
    pub scheduler: String,
    /// How scheduler and other executors are reached.
    pub link: Link,
    /// Where health and metrics are served, in plain HTTP.
    pub http: Option<SocketAddr>,
    /// Where shuffle data is served.
    pub bind: SocketAddr,
    /// Host under which other executors reach this one; default: the address bound.
    pub advertise: Option<String>,
    /// Tasks that run at the same time.
    pub slots: usize,
    /// Shuffle and spill files go here, into a folder of this process.
    pub work_dir: PathBuf,
    /// Bytes that operators may hold before they spill; default as for [`EngineOptions`].
    pub memory_limit: Option<usize>,
    /// How long running tasks may go on after a stop was asked for.
    pub drain: Duration,
}

/// Why an executor did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error("{address} cannot be listened on: {source}")]
    Bind {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("folder {folder} cannot be used for shuffle and spill files: {source}")]
    WorkDir {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the scheduler at {address} refused this executor: {reason}")]
    Refused { address: String, reason: String },
    #[error("the engine did not start: {0}")]
    Engine(#[from] datafusion::error::DataFusionError),
    #[error("the executor stopped working: {0}")]
    Stopped(String),
}

impl ExecutorError {
    /// Stable code, listed in docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "ADDRESS_NOT_AVAILABLE",
            Self::WorkDir { .. } => "WORK_DIR_NOT_USABLE",
            Self::Link(_) => "LINK_NOT_USABLE",
            Self::Refused { .. } => "EXECUTOR_REFUSED",
            Self::Engine(_) => "ENGINE_NOT_STARTED",
            Self::Stopped(_) => "EXECUTOR_STOPPED",
        }
    }
}

/// What a task's sessions have in common before its plan's settings come over them.
pub fn task_config() -> SessionConfig {
    use ballista_core::extension::SessionConfigExt;
    crate::spark::session_config("UTC")
        .with_option_extension(crate::stores::PlanOptions::default())
        .upgrade_for_ballista()
}

/// All functions that a plan can name.
fn functions() -> DataFusionResult<BallistaFunctionRegistry> {
    let engine = Engine::new(&EngineOptions::default())?;
    let state = engine.session(chrono::DateTime::UNIX_EPOCH, "UTC", false)?;
    Ok(BallistaFunctionRegistry {
        scalar_functions: state.scalar_functions().clone(),
        aggregate_functions: state.aggregate_functions().clone(),
        window_functions: state.window_functions().clone(),
        higher_order_functions: state.higher_order_functions().clone(),
    })
}

/// Runs an executor until `stop`, then lets its tasks end. `listening` is told the address of its
/// shuffle data.
///
/// # Errors
/// If it can't start, or its work ends by itself.
pub async fn run(
    options: &ExecutorOptions,
    listening: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ExecutorError> {
    let work = WorkDir::take(&options.work_dir)?;
    let bind_error = |source| ExecutorError::Bind {
        address: options.bind,
        source,
    };
    let listener = TcpListener::bind(options.bind).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    let slots = options.slots.max(1);
    let tasks = Arc::new(Tasks::default());
    let limit = options.memory_limit.unwrap_or_else(default_memory);
    let pool: Arc<dyn MemoryPool> = Arc::new(TrackConsumersPool::new(
        FairSpillPool::new(limit),
        NonZeroUsize::new(5).unwrap_or(NonZeroUsize::MIN),
    ));
    let executor = Arc::new(executor(
        options,
        address,
        slots,
        &work.folder,
        pool.clone(),
        tasks.clone(),
    )?);
    let channel = options.link.endpoint(&options.scheduler)?.connect_lazy();
    let scheduler = SchedulerGrpcClient::with_interceptor(channel, options.link.greeting())
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let flight = FlightServiceServer::new(BallistaFlightService::new(
        work.folder.to_string_lossy().into_owned(),
    ))
    .max_decoding_message_size(MESSAGE_BYTES)
    .max_encoding_message_size(MESSAGE_BYTES);
    let mut serving = tokio::spawn(
        options
            .link
            .server()?
            .add_service(flight)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let health = ExecutorHealth::new();
    let http = match options.http {
        None => None,
        Some(bind) => Some(
            status::serve(bind, tasks.clone(), pool, limit, health.clone())
                .await
                .map_err(|source| ExecutorError::Bind {
                    address: bind,
                    source,
                })?,
        ),
    };
    listening(address);
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        () = &mut stop => return Ok(()),
        met = meet(scheduler.clone()) => met.map_err(|reason| ExecutorError::Refused {
            address: options.scheduler.clone(),
            reason,
        })?,
    }
    let codec = BallistaCodec::<LogicalPlanNode, PhysicalPlanNode>::new(
        Arc::new(BallistaLogicalExtensionCodec::default()),
        Arc::new(WindrowCodec::default()),
    );
    let free = Arc::new(Semaphore::new(slots));
    let mut polling = tokio::spawn(ballista_executor::execution_loop::poll_loop(
        scheduler.clone(),
        executor.clone(),
        codec,
        Some(tasks.wake.clone()),
        Some(free.clone()),
        health,
    ));
    let attending = tokio::spawn(attend(
        ExecutorServiceClient::with_interceptor(
            options.link.endpoint(&options.scheduler)?.connect_lazy(),
            options.link.greeting(),
        ),
        executor.clone(),
        tasks.clone(),
    ));
    let waking = tokio::spawn(wake(tasks.clone()));
    let tidying = tokio::spawn(tidy(work.folder.clone(), tasks.clone(), scheduler.clone()));
    let ended = tokio::select! {
        () = stop => None,
        ended = &mut polling => Some(format!("{ended:?}")),
        ended = &mut serving => Some(format!("{ended:?}")),
    };
    if ended.is_none() {
        let drained = drained(&executor, &free, slots, &tasks, scheduler.clone());
        if tokio::time::timeout(options.drain, drained).await.is_err() {
            tracing::warn!(
                tasks = executor.active_task_count(),
                "not all was done when the time to drain was over"
            );
        }
    }
    polling.abort();
    attending.abort();
    waking.abort();
    tidying.abort();
    // So that jobs which were here are begun anew at once.
    let said = say_goodbye(scheduler, &executor.metadata.id);
    let _ = tokio::time::timeout(Duration::from_secs(2), said).await;
    serving.abort();
    if let Some(http) = http {
        http.abort();
    }
    match ended {
        Some(reason) => Err(ExecutorError::Stopped(reason)),
        None => Ok(()),
    }
}

type Scheduler = SchedulerGrpcClient<InterceptedService<Channel, Greeting>>;

/// Waits until the scheduler is there. The error is what it has against this executor.
async fn meet(mut scheduler: Scheduler) -> Result<(), String> {
    let mut told = false;
    loop {
        let asked = GetJobStatusParams {
            job_id: String::new(),
        };
        match scheduler.get_job_status(asked).await {
            Ok(_) => return Ok(()),
            Err(status) => match status.code() {
                Code::FailedPrecondition | Code::Unauthenticated | Code::PermissionDenied => {
                    return Err(status.message().to_string());
                }
                // It answered, whatever it made of the question. What did not arrive has a source.
                Code::Internal if std::error::Error::source(&status).is_none() => return Ok(()),
                _ => {
                    let reason = innermost(&status);
                    if is_about_certificates(&reason) {
                        return Err(format!(
                            "the certificates do not fit together ({reason}); each side's must come from an authority that the other one was given"
                        ));
                    }
                    if !told {
                        tracing::warn!(reason, "waiting for the scheduler");
                        told = true;
                    }
                }
            },
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// What lies at the bottom of a call that did not arrive.
fn innermost(status: &Status) -> String {
    let mut text = status.message().to_string();
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

/// Whether a handshake failed for the certificates, which were read at the start: waiting mends
/// nothing. TLS tells it in words, and in the names of its alerts.
fn is_about_certificates(reason: &str) -> bool {
    const ALERTS: [&str; 4] = [
        "UnknownCA",
        "BadCertificate",
        "AccessDenied",
        "DecryptError",
    ];
    let words = reason.to_lowercase();
    words.contains("certificate") || ALERTS.iter().any(|alert| reason.contains(alert))
}

/// Stays in touch with the scheduler, and does what it orders.
async fn attend(
    mut scheduler: ExecutorServiceClient<InterceptedService<Channel, Greeting>>,
    executor: Arc<Executor>,
    tasks: Arc<Tasks>,
) {
    loop {
        let here = AttendRequest {
            executor_id: executor.metadata.id.clone(),
        };
        if let Ok(answer) = scheduler.attend(here).await {
            let mut orders = answer.into_inner();
            while let Ok(Some(order)) = orders.message().await {
                let cancel = match order.order {
                    Some(order::Order::CancelJob(cancel)) => cancel,
                    Some(order::Order::AskForWork(_)) => {
                        tasks.wake.notify_one();
                        continue;
                    }
                    None => continue,
                };
                let job: JobId = cancel.job_id.into();
                for (stage, task) in tasks.of(&job) {
                    if let Err(error) = executor.cancel_task(job.clone(), stage, task).await {
                        tracing::debug!(%error, stage, task, "a task was not cancelled");
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Has tasks asked for now and then, also when no order to do so arrives.
async fn wake(tasks: Arc<Tasks>) {
    loop {
        tokio::time::sleep(WAKE_EVERY).await;
        tasks.wake.notify_one();
    }
}

async fn say_goodbye(mut scheduler: Scheduler, id: &str) {
    let goodbye = ExecutorStoppedParams {
        executor_id: id.to_string(),
        reason: "it was asked to stop".into(),
    };
    if let Err(status) = scheduler.executor_stopped(goodbye).await {
        tracing::debug!(
            reason = status.message(),
            "the scheduler was not told of the end"
        );
    }
}

/// Takes no new task, lets those that run end, and stays until nobody needs what they made.
async fn drained(
    executor: &Arc<Executor>,
    free: &Semaphore,
    slots: usize,
    tasks: &Tasks,
    mut scheduler: Scheduler,
) {
    let all = u32::try_from(slots).unwrap_or(u32::MAX);
    let _slots = free.acquire_many(all).await;
    TasksDrainedFuture(executor.clone()).await;
    for job_id in tasks.jobs() {
        loop {
            let asked = GetJobStatusParams {
                job_id: job_id.to_string(),
            };
            let answer = scheduler.get_job_status(asked).await;
            let status = answer.ok().and_then(|a| a.into_inner().status?.status);
            match status {
                Some(job_status::Status::Running(_) | job_status::Status::Queued(_)) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                // The scheduler fetches what a job staged when it has ended.
                Some(job_status::Status::Successful(done)) if recent(done.ended_at) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                _ => break,
            }
        }
    }
}

/// Removes what tasks of jobs left here that are over. The runtime does so when a job ends; a task that
/// still ran then leaves its files behind.
async fn tidy(folder: PathBuf, tasks: Arc<Tasks>, mut scheduler: Scheduler) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        let folders = entries.flatten().filter(|e| e.path().is_dir());
        let names = folders.map(|e| e.file_name().to_string_lossy().into_owned());
        let jobs: Vec<String> = names.filter(|name| name != SPILL).collect();
        for job in jobs {
            let asked = GetJobStatusParams {
                job_id: job.clone(),
            };
            let is_over = match scheduler.get_job_status(asked).await {
                Ok(answer) => match answer.into_inner().status.and_then(|s| s.status) {
                    Some(job_status::Status::Running(_) | job_status::Status::Queued(_)) => false,
                    // What it made is fetched for a while; the runtime removes it after that.
                    Some(job_status::Status::Successful(_)) => false,
                    // One that is not known any more ended long ago.
                    Some(job_status::Status::Failed(_)) | None => true,
                },
                Err(_) => false,
            };
            if is_over && tasks.of(&job.clone().into()).is_empty() {
                let removed = tokio::fs::remove_dir_all(folder.join(&job)).await;
                tracing::debug!(job, ?removed, "files of a job that is over");
            }
        }
    }
}

/// Whether a time in milliseconds is less than two seconds ago.
fn recent(millis: u64) -> bool {
    let now = chrono::Utc::now().timestamp_millis();
    i64::try_from(millis).is_ok_and(|then| now - then < 2_000)
}

fn executor(
    options: &ExecutorOptions,
    address: SocketAddr,
    slots: usize,
    folder: &Path,
    pool: Arc<dyn MemoryPool>,
    tasks: Arc<Tasks>,
) -> Result<Executor, ExecutorError> {
    let host = options
        .advertise
        .clone()
        .unwrap_or_else(|| address.ip().to_string());
    // A number of its own at every start: the scheduler must not take this for a process that ended.
    let described = ExecutorProcessConfig {
        executor_id: uuid::Uuid::now_v7().to_string(),
        external_host: Some(host),
        port: address.port(),
        grpc_port: address.port(),
        ..ExecutorProcessConfig::default()
    };
    let place: Arc<str> = format!(
        "executor {}:{} (work folder {})",
        described.external_host.as_deref().unwrap_or_default(),
        address.port(),
        folder.display()
    )
    .into();
    let registration: ExecutorRegistration =
        structure_executor_metadata(&Arc::new(described), u32::try_from(slots).unwrap_or(1));
    let runtimes = Runtimes::new(pool, folder.join(SPILL));
    Ok(Executor::new(
        registration,
        &folder.to_string_lossy(),
        Arc::new(move |config| runtimes.of(config)),
        {
            let link = options.link.clone();
            Arc::new(move || link.configured(task_config()))
        },
        Arc::new(functions()?),
        Arc::new(LoggingMetricsCollector::default()),
        slots,
        Arc::new(Telling {
            engine: DefaultExecutionEngine::new(),
            tasks,
            place,
        }),
    ))
}

/// A folder of this process below the one given. Folders of processes that died are removed.
struct WorkDir {
    folder: PathBuf,
    /// Locked as long as this process lives.
    _lock: std::fs::File,
}

const FOLDER: &str = "windrow-executor-";
const LOCK: &str = "lock";
const SPILL: &str = "spill";
/// How often what is left of jobs is looked for.
const TIDY_EVERY: Duration = Duration::from_secs(10);

/// How often tasks are asked for when nothing is heard of any.
const WAKE_EVERY: Duration = Duration::from_millis(100);

impl WorkDir {
    fn take(below: &Path) -> Result<Self, ExecutorError> {
        let folder = below.join(format!("{FOLDER}{}", uuid::Uuid::now_v7()));
        let refused = |source| ExecutorError::WorkDir {
            folder: below.to_path_buf(),
            source,
        };
        std::fs::create_dir_all(below).map_err(refused)?;
        for entry in std::fs::read_dir(below).map_err(refused)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(FOLDER) && is_abandoned(&entry.path()) {
                let removed = std::fs::remove_dir_all(entry.path());
                tracing::info!(folder = ?entry.path(), ?removed, "files of an executor that ended");
            }
        }
        // Under another name until it is locked: an unlocked folder is taken for abandoned.
        let made = below.join(format!(".{FOLDER}{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(made.join(SPILL)).map_err(refused)?;
        let lock = std::fs::File::create(made.join(LOCK)).map_err(refused)?;
        lock.try_lock()
            .map_err(|e| refused(std::io::Error::other(e.to_string())))?;
        std::fs::rename(&made, &folder).map_err(refused)?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }
}

fn is_abandoned(folder: &Path) -> bool {
    match std::fs::File::open(folder.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        // It may be just being made, or is none of ours.
        Err(_) => false,
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::debug!(%error, folder = ?self.folder, "shuffle files were not removed");
        }
    }
}

/// What this executor did and does.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    succeeded: AtomicU64,
    failed: AtomicU64,
    spilled: AtomicU64,
    jobs: Mutex<BTreeSet<JobId>>,
    /// Job, stage and task.
    now: Mutex<BTreeSet<(JobId, usize, usize)>>,
    /// The scheduler is to be asked for tasks and told of those that are over.
    wake: Arc<Notify>,
}

/// Jobs that are remembered, to wait for them before this process ends.
const JOBS: usize = 256;

/// A task that runs, as long as this is there; also when the task is cut off.
struct RunningTask<'a> {
    tasks: &'a Tasks,
    name: (JobId, usize, usize),
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        self.tasks.now().remove(&self.name);
    }
}

impl Tasks {
    fn now(&self) -> MutexGuard<'_, BTreeSet<(JobId, usize, usize)>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> BTreeSet<JobId> {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The tasks of a job that run, as stage and task.
    fn of(&self, job: &JobId) -> Vec<(usize, usize)> {
        self.now()
            .iter()
            .filter(|(of, _, _)| of == job)
            .map(|(_, stage, task)| (*stage, *task))
            .collect()
    }

    fn running(&self, name: (JobId, usize, usize)) -> RunningTask<'_> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.insert(name.0.clone());
        while jobs.len() > JOBS {
            // Their numbers grow.
            jobs.pop_first();
        }
        self.now().insert(name.clone());
        RunningTask { tasks: self, name }
    }

    /// Bytes that operators of tasks put on disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }

    fn ended(&self, well: bool) {
        let counter = if well { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Running, succeeded and failed ones.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            self.now().len() as u64,
            of(&self.succeeded),
            of(&self.failed),
        )
    }
}

/// The runtime's engine, whose errors keep their codes on the way to the scheduler.
struct Telling {
    engine: DefaultExecutionEngine,
    tasks: Arc<Tasks>,
    /// This process, for errors that are about its place.
    place: Arc<str>,
}

impl ExecutionEngine for Telling {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> DataFusionResult<Arc<dyn QueryStageExecutor>> {
        let name = (job_id.clone(), stage_id);
        let stage = self
            .engine
            .create_query_stage_exec(
                job_id,
                stage_id,
                task_id,
                global_output_partition_ids,
                plan,
                work_dir,
                config,
            )
            .map_err(failure::sent)?;
        Ok(Arc::new(TellingStage {
            stage,
            name,
            tasks: self.tasks.clone(),
            told: config
                .options()
                .extensions
                .get::<PlanOptions>()
                .cloned()
                .unwrap_or_default(),
            place: self.place.clone(),
        }))
    }
}

#[derive(Debug)]
struct TellingStage {
    stage: Arc<dyn QueryStageExecutor>,
    /// Job and stage.
    name: (JobId, usize),
    tasks: Arc<Tasks>,
    /// What came with the plan.
    told: PlanOptions,
    place: Arc<str>,
}

impl TellingStage {
    /// The span of one of its tasks, below that of the slice in the scheduler.
    fn span(&self, task: usize) -> tracing::Span {
        let (job, stage) = &self.name;
        tracing::info_span!(
            target: trace::TARGET,
            parent: None,
            "task",
            update = self.told.update,
            flow = self.told.flow,
            slice = self.told.slice,
            job = %job,
            stage,
            task,
            outcome = tracing::field::Empty,
            otel.parent = self.told.traceparent,
        )
    }
}

/// What the runtime keeps until it has noted down how the task went.
impl Drop for TellingStage {
    fn drop(&mut self) {
        self.tasks.wake.notify_one();
    }
}

impl fmt::Display for TellingStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

/// Counts what a task has spilled when it is over, also when it was cut off.
struct Spilling<'a>(&'a TellingStage);

impl Drop for Spilling<'_> {
    fn drop(&mut self) {
        let all = self.0.stage.collect_plan_metrics();
        let bytes: usize = all.iter().filter_map(MetricsSet::spilled_bytes).sum();
        self.0
            .tasks
            .spilled
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[async_trait]
impl QueryStageExecutor for TellingStage {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<Vec<ShuffleWritePartition>> {
        let span = self.span(task_id);
        let (job, stage) = self.name.clone();
        let _running = self.tasks.running((job, stage, task_id));
        let _spilling = Spilling(self);
        let work = self.stage.execute_query_stage(task_id, context);
        let result = work.instrument(span.clone()).await;
        self.tasks.ended(result.is_ok());
        let outcome = if result.is_ok() {
            "succeeded"
        } else {
            "failed"
        };
        span.record("outcome", outcome);
        span.in_scope(|| match &result {
            Ok(_) => tracing::debug!("a task ended"),
            Err(error) => tracing::warn!(%error, "a task failed"),
        });
        result.map_err(|error| failure::sent_from(&self.place, error))
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.stage.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.stage.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> DataFusionResult<Vec<WindowStateReport>> {
        self.stage.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.stage.collect_column_stats()
    }
}
