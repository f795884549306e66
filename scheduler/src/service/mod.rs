//! The scheduler as a process that others talk to: `windrow.v1.PipelineService`.
//!
//! `pipelines` keeps what clients send, `queue` decides what may begin, `work` does it on threads of
//! `compute`, `live` and `watch` tell of it, and `backfills` looks after ledgers. `record` and `store`
//! are what outlives the process, `convert` the way to and from the messages, `grpc` the service
//! itself, `server` the port with its tokens and TLS, `standby` the port while another one leads, and
//! `status` what machines are told. What an update does is `update`'s and
//! `backfill`'s.

mod auth;
mod backfills;
mod compute;
mod convert;
mod error;
mod grpc;
mod live;
mod metrics;
mod pipelines;
mod queue;
mod record;
pub mod server;
mod standby;
mod status;
mod store;
mod watch;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;
use url::Url;
use windrow_delta::StoreOptions;
use windrow_delta::figures::Figures;

pub use auth::Token;
pub use convert::{spec_to_wire, update_state};
pub use error::ServiceError;
pub use metrics::Metrics;
pub use standby::{Leader, Standby};

use crate::engine::StageEngine;
use crate::lease::Fence;
use crate::paths::PathGuard;
use compute::Compute;
use live::Live;
use pipelines::Index;
use store::Records;

/// Updates that wait at the most; a client that asks for more is told to come back.
const MOST_QUEUED: usize = 1000;
/// Ended updates of which the story is kept for watchers that come late.
const KEPT_ENDED: usize = 16;
/// Streams of WatchUpdate at a time.
const MOST_WATCHERS: usize = 1000;

/// How a scheduler is set up.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Where it keeps what it must remember.
    pub storage: Url,
    /// Where the pipelines of its clients may read and write; the storage when empty.
    pub allowed: Vec<Url>,
    /// Updates that run at a time.
    pub max_updates: usize,
    /// Where what is staged is computed; in this process unless said.
    pub engine: Option<Arc<dyn StageEngine>>,
    /// Asked before every commit whether this process still may.
    pub fence: Option<Arc<dyn Fence>>,
    /// What is counted of this process.
    pub metrics: Arc<Metrics>,
}

/// A scheduler. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// This run of a scheduler, by which its updates are told from those of others.
    run: String,
    /// The threads of the port, on which records are written.
    serving: tokio::runtime::Handle,
    engine: Option<Arc<dyn StageEngine>>,
    fence: Option<Arc<dyn Fence>>,
    guard: Arc<PathGuard>,
    records: Records,
    pipelines: Index,
    lives: Mutex<Lives>,
    slots: Arc<Semaphore>,
    /// Plans and checks that clients wait for.
    looks: Semaphore,
    watchers: Arc<Semaphore>,
    stopping: AtomicBool,
    /// Set once what earlier schedulers had under way is in the hands of this one.
    taken_over: tokio::sync::watch::Sender<bool>,
    metrics: Arc<Metrics>,
}

/// The updates in the hands of this scheduler, and a few that have ended.
#[derive(Debug, Default)]
struct Lives {
    all: BTreeMap<String, Arc<Live>>,
    ended: VecDeque<String>,
}

impl Service {
    /// Reads which pipelines are kept. The runtime that calls it is the one that serves; updates have
    /// threads of their own.
    ///
    /// # Errors
    /// When the storage can't be read, or a root is no place.
    pub async fn open(options: &ServiceOptions) -> Result<Self, ServiceError> {
        let store_options = StoreOptions::from_environment();
        let roots = if options.allowed.is_empty() {
            vec![options.storage.clone()]
        } else {
            options.allowed.clone()
        };
        let records = Records::open(&options.storage, &store_options)?;
        let pipelines = Index::read(&records).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                run: uuid::Uuid::now_v7().to_string(),
                serving: tokio::runtime::Handle::current(),
                engine: options.engine.clone(),
                fence: options.fence.clone(),
                guard: Arc::new(PathGuard::new(&roots)?),
                records,
                pipelines,
                lives: Mutex::default(),
                slots: Arc::new(Semaphore::new(options.max_updates.max(1))),
                looks: Semaphore::new(options.max_updates.max(2)),
                watchers: Arc::new(Semaphore::new(MOST_WATCHERS)),
                stopping: AtomicBool::new(false),
                taken_over: tokio::sync::watch::Sender::new(false),
                metrics: options.metrics.clone(),
            }),
        })
    }

    /// Fails, or begins anew, what earlier schedulers had under way. Requests about updates wait for it.
    ///
    /// # Errors
    /// When the storage can't be read.
    pub async fn take_over(&self) -> Result<(), ServiceError> {
        self.inner.take_over().await?;
        self.inner.taken_over.send_replace(true);
        Ok(())
    }

    /// Whether it can serve all requests at once.
    pub fn is_ready(&self) -> bool {
        *self.inner.taken_over.borrow() && !self.is_stopping()
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        self.inner.metrics.clone()
    }

    /// What the engine says of itself, as Prometheus reads it.
    pub(crate) async fn engine_metrics(&self, to: &mut Figures) {
        if let Some(engine) = &self.inner.engine {
            engine.metrics(to).await;
        }
    }

    /// Takes no new updates from here on; what waits stays for the next scheduler.
    pub fn stop_taking(&self) {
        self.inner.stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    /// Returns when no update runs any more.
    pub async fn until_idle(&self) {
        loop {
            let busy = self.inner.busy();
            if busy.is_empty() {
                return;
            }
            for live in busy {
                live.until_ended().await;
            }
        }
    }

    /// Stops the updates that run, and waits until they have.
    pub async fn stop_running(&self) {
        let busy = self.inner.busy();
        for live in &busy {
            live.stop();
        }
        for live in busy {
            live.until_ended().await;
        }
    }
}

impl Inner {
    fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Which updates are under way is known only then.
    async fn until_taken_over(&self) {
        let mut taken_over = self.taken_over.subscribe();
        // The sender lives as long as `self`.
        let _ = taken_over.wait_for(|done| *done).await;
    }

    fn live(&self, id: &str) -> Option<Arc<Live>> {
        self.lives().all.get(id).cloned()
    }

    /// Updates that have had their turn and not ended.
    fn busy(&self) -> Vec<Arc<Live>> {
        let lives = self.lives();
        let busy = lives
            .all
            .values()
            .filter(|live| !live.has_ended() && live.state() != record::State::Queued);
        busy.cloned().collect()
    }

    /// An update has ended: a while longer its story can be asked for.
    fn retire(&self, id: &str) {
        let mut lives = self.lives();
        lives.ended.push_back(id.to_string());
        while lives.ended.len() > KEPT_ENDED {
            if let Some(old) = lives.ended.pop_front() {
                lives.all.remove(&old);
            }
        }
    }
}

/// Runs `work` on threads of its own, so that neither a panic in it nor its hunger touches anything
/// else. It ends with the caller.
async fn alone<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ServiceError> {
    let internal = |reason: String| ServiceError::Internal { reason };
    let compute = Compute::new().map_err(|e| internal(e.to_string()))?;
    match compute.spawn(work) {
        Some(task) => task.await.map_err(|e| internal(e.to_string())),
        None => Err(internal("it has no threads".into())),
    }
}
