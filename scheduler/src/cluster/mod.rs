//! Staging plans on executors, over Ballista.
//!
//! A job of the runtime is all or nothing for us. Its own way to go on after the loss of an executor
//! gives rows twice, or never ends: so when an executor is lost, every job that runs is ended and
//! begun anew by us, under another attempt, and the result of a job counts only if none of its
//! stages ran twice and each partition of the result is there once. `job` runs one, `shape` makes a
//! plan fit for it, `results` fetches what it staged, `door` is what executors see,
//! `attendance` who of them is there, `slots` how busy they are.

mod attendance;
mod door;
mod job;
mod results;
mod shape;
mod slots;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tonic::service::RoutesBuilder;
use windrow_delta::figures::Figures;
use windrow_executor::codec::WindrowCodec;
use windrow_executor::link::Link;
use windrow_executor::process::{MESSAGE_BYTES, task_config};
use windrow_executor::stage::StagedFile;
use windrow_proto::v1::executor_service_server::ExecutorServiceServer;

use crate::engine::{StageEngine, StageJob};
use attendance::{Attendance, Room};
use door::Door;
use slots::Slots;

pub(crate) type Runtime = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// Reasons that are kept.
const REASONS: usize = 32;

/// Limits of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How long an executor may be silent before it is taken for lost. An executor that is busy is
    /// silent for up to five seconds.
    pub executor_timeout: Duration,
    /// How long a job waits for an executor when there is none.
    pub no_executor_wait: Duration,
    /// How often a job is begun anew before its slice fails.
    pub attempts: u32,
    /// Jobs that run at the same time; others wait.
    pub jobs: usize,
    /// How executors are reached.
    pub link: Link,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            executor_timeout: Duration::from_secs(15),
            no_executor_wait: Duration::from_secs(120),
            attempts: 5,
            jobs: 16,
            link: Link::default(),
        }
    }
}

/// Why a cluster's scheduler did not start.
#[derive(Debug, thiserror::Error)]
#[error("the scheduler of tasks did not start: {0}")]
pub struct ClusterError(#[from] ballista_core::error::BallistaError);

/// The scheduler of tasks and what is known of its executors.
#[derive(Clone)]
pub struct Cluster {
    runtime: Runtime,
    state: BallistaCluster,
    attendance: Attendance,
    slots: Slots,
    /// The threads that serve; those of an update end with it.
    serving: tokio::runtime::Handle,
    options: ClusterOptions,
    /// Jobs that may still begin.
    admitted: Arc<tokio::sync::Semaphore>,
    /// Jobs that wait or run.
    waiting: Arc<AtomicU64>,
    /// Jobs whose result was taken.
    done: Arc<AtomicU64>,
    /// Attempts after the first of a job.
    retried: Arc<AtomicU64>,
    /// Plans that ran here, and why; the last ones.
    stayed: Arc<Mutex<VecDeque<String>>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.runtime.scheduler_id)
    }
}

/// An executor as the scheduler knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorInfo {
    pub id: String,
    pub address: String,
    pub slots: usize,
}

impl Cluster {
    /// Starts scheduling; executors reach it through [`Cluster::routes`].
    ///
    /// # Errors
    /// If the runtime refuses its settings.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let message = MESSAGE_BYTES as u32;
        let timeout = options.executor_timeout.as_secs().max(6);
        let present = Room::default();
        let waiting = present.clone();
        let config = Arc::new(SchedulerConfig {
            scheduling_policy: TaskSchedulingPolicy::PullStaged,
            override_config_producer: Some(Arc::new(task_config)),
            override_physical_codec: Some(Arc::new(WindrowCodec::default())),
            grpc_server_max_decoding_message_size: message,
            grpc_server_max_encoding_message_size: message,
            grpc_client_max_message_size: message,
            executor_timeout_seconds: timeout,
            expire_dead_executor_interval_seconds: 1,
            no_executors_grace_period_seconds: options.no_executor_wait.as_secs().max(timeout),
            // What a lost executor had shuffled is not made again inside a job.
            stage_max_failures: 1,
            on_work_available: Some(Arc::new(move |_| waiting.wake())),
            finished_job_data_clean_up_interval_seconds: 30,
            finished_job_state_clean_up_interval_seconds: 60,
            ..SchedulerConfig::default()
        });
        config.validate()?;
        let state = BallistaCluster::new_from_config(&config).await?;
        let runtime = create_scheduler(state.clone(), config).await?;
        Ok(Self {
            attendance: Attendance::new(runtime.clone(), present),
            slots: Slots::default(),
            serving: tokio::runtime::Handle::current(),
            runtime,
            state,
            admitted: Arc::new(tokio::sync::Semaphore::new(options.jobs.max(1))),
            options,
            waiting: Arc::default(),
            done: Arc::default(),
            retried: Arc::default(),
            stayed: Arc::default(),
        })
    }

    /// Why the last plans that ran on the scheduler did not run on executors.
    pub fn stayed_here(&self) -> Vec<String> {
        let stayed = self.stayed.lock().unwrap_or_else(PoisonError::into_inner);
        stayed.iter().cloned().collect()
    }

    fn stays_here(&self, job: &StageJob, reason: &str) {
        tracing::warn!(
            update = job.update,
            flow = job.flow,
            reason,
            "a plan runs on the scheduler"
        );
        let mut stayed = self.stayed.lock().unwrap_or_else(PoisonError::into_inner);
        stayed.push_back(format!("{}: {reason}", job.flow));
        if stayed.len() > REASONS {
            stayed.pop_front();
        }
    }

    /// How many plans were staged by executors so far.
    pub fn jobs_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How often a plan was begun anew so far, because executors were lost or failed.
    pub fn jobs_retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// How many plans executors stage at this moment.
    pub fn jobs_running(&self) -> u64 {
        (self.options.jobs.max(1) - self.admitted.available_permits()) as u64
    }

    /// Adds the services that executors call.
    pub fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(ExecutorServiceServer::new(self.attendance.clone()));
        routes.add_service(
            SchedulerGrpcServer::new(Door {
                runtime: self.runtime.clone(),
                slots: self.slots.clone(),
            })
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES),
        );
    }

    /// The executors that are alive.
    pub async fn executors(&self) -> Vec<ExecutorInfo> {
        let state = self.state.cluster_state();
        let now = chrono::Utc::now().timestamp().unsigned_abs();
        let limit = self.options.executor_timeout.as_secs();
        // One that polled lately; the runtime removes others a little later.
        let is_alive = |id: &str| {
            state
                .get_executor_heartbeat(id)
                .is_some_and(|beat| now.saturating_sub(beat.timestamp) <= limit)
        };
        state
            .registered_executor_metadata()
            .await
            .into_iter()
            .filter(|e| is_alive(&e.id))
            .map(|e| ExecutorInfo {
                address: format!("{}:{}", e.host, e.port),
                slots: e.specification.vcores as usize,
                id: e.id,
            })
            .collect()
    }
}

#[async_trait]
impl StageEngine for Cluster {
    async fn run_stage(
        &self,
        job: &StageJob,
        state: &SessionState,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        job::run(self, job, state, plan).await
    }

    async fn partitions(&self) -> Option<usize> {
        let slots: usize = self.executors().await.iter().map(|e| e.slots).sum();
        Some(slots.max(1))
    }

    async fn metrics(&self, to: &mut Figures) {
        let executors = self.executors().await;
        let (free, busy) = self.slots.count(&executors);
        let all = self.waiting.load(Ordering::Relaxed);
        let running = self.jobs_running();
        to.gauge(
            "windrow_executors",
            "Executors that are there.",
            executors.len() as u64,
        );
        to.by(
            "windrow_executor_slots",
            "gauge",
            "Tasks that they can run at a time, by whether they do.",
            "state",
            [("free", free as u64), ("busy", busy as u64)],
        );
        to.gauge(
            "windrow_queued_slices",
            "Slices that wait.",
            all.saturating_sub(running),
        );
        to.gauge(
            "windrow_running_slices",
            "Slices that are computed.",
            running,
        );
        to.counter(
            "windrow_staged_slices_total",
            "Slices that executors staged.",
            self.jobs_done(),
        );
        to.counter(
            "windrow_retried_slices_total",
            "Attempts at a slice after its first one.",
            self.jobs_retried(),
        );
    }

    fn is_distributed(&self) -> bool {
        true
    }
}
