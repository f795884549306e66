//! Which updates may begin, and how those that are under way are found, stopped and taken over.
//!
//! A pipeline has one update at a time. An update is on the storage before its client hears of it;
//! until it runs nothing else is written, so that the next scheduler can begin it anew. One that ran
//! when its scheduler went away has failed: each of its commits was all or nothing, and what it did
//! is in the targets' logs.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt};

use super::Inner;
use super::error::ServiceError;
use super::live::Live;
use super::record::{ActiveRecord, FORMAT, PipelineRecord, Request, State, UpdateRecord};
use super::store::{Version, is_id};
use super::work::{INTERRUPTED, Outcome};
use crate::ledger::Ledgers;
use crate::report::Problem;
use crate::spec::PipelineSpec;

/// How often an update is begun anew when its scheduler went away; the name that users of such
/// pipelines know.
const RETRIES: &str = "pipelines.numUpdateRetryAttempts";
/// How long a stop is waited for before the client is told that it is on its way.
const STOP_WAITED: Duration = Duration::from_secs(20);
const READ_AT_A_TIME: usize = 16;

/// An update, wherever it is known from.
#[derive(Debug)]
pub(crate) enum Found {
    Live(Arc<Live>),
    Kept(Box<UpdateRecord>),
}

impl Inner {
    /// Queues an update, or finds the one that the same client's word has started before.
    pub(crate) async fn enqueue(
        self: &Arc<Self>,
        pipeline: PipelineRecord,
        request: Request,
        now: Option<DateTime<Utc>>,
        token: String,
    ) -> Result<Arc<Live>, ServiceError> {
        self.until_taken_over().await;
        let id = uuid::Uuid::now_v7().to_string();
        let backfill_id = match &request {
            Request::Backfill(b) if b.resumes => b.backfill.clone(),
            Request::Backfill(_) => Some(id.clone()),
            Request::Update(_) => None,
        };
        let record = UpdateRecord {
            format: FORMAT,
            id,
            pipeline_id: pipeline.id,
            pipeline_name: pipeline.spec.name.clone(),
            pipeline_revision: pipeline.revision,
            request,
            now,
            token,
            state: State::Queued,
            created: Utc::now(),
            started: None,
            ended: None,
            scheduler: self.run.clone(),
            attempt: 1,
            retry_of: None,
            retried_as: None,
            backfill_id,
            warnings: Vec::new(),
            faults: Vec::new(),
            rows_at_risk: Vec::new(),
            error: None,
            report: None,
        };
        let live = match self.reserve(record)? {
            Reserved::Known(live) => return Ok(live),
            Reserved::New(live) => live,
        };
        if let Err(error) = self.put_new(&live).await {
            self.lives().all.remove(&live.id);
            live.end();
            // Without its record the marker means nothing; the next scheduler clears it away.
            let _ = self.records.delete_active(&live.id).await;
            return Err(error);
        }
        self.begin(live.clone(), pipeline.spec);
        Ok(live)
    }

    fn reserve(&self, record: UpdateRecord) -> Result<Reserved, ServiceError> {
        let mut lives = self.lives();
        if !record.token.is_empty() {
            let known = lives.all.values().find(|live| {
                live.pipeline_id == record.pipeline_id && live.record().token == record.token
            });
            if let Some(known) = known {
                return Ok(Reserved::Known(known.clone()));
            }
        }
        if self.stopping.load(std::sync::atomic::Ordering::Acquire) {
            return Err(ServiceError::Stopping);
        }
        let mut waiting = 0;
        for live in lives.all.values().filter(|live| !live.has_ended()) {
            if live.pipeline_id == record.pipeline_id {
                return Err(ServiceError::AlreadyRunning {
                    pipeline: record.pipeline_name,
                    update: live.id.clone(),
                });
            }
            waiting += 1;
        }
        if waiting >= super::MOST_QUEUED {
            return Err(ServiceError::Full {
                what: "updates under way and waiting",
                limit: super::MOST_QUEUED,
            });
        }
        let live = Arc::new(Live::new(record));
        lives.all.insert(live.id.clone(), live.clone());
        Ok(Reserved::New(live))
    }

    async fn put_new(&self, live: &Live) -> Result<(), ServiceError> {
        let active = ActiveRecord {
            pipeline: live.pipeline_id.clone(),
            update: live.id.clone(),
        };
        self.records.put_active(&active).await?;
        self.save(live).await
    }

    /// Writes the update's record as it stands.
    pub(crate) async fn save(&self, live: &Live) -> Result<(), ServiceError> {
        let mut saved = live.saved.lock().await;
        let record = live.record();
        let written = match self.records.put_update(&record, saved.as_ref()).await {
            // A stop may have come between a write and its answer. Then what is there is of this run, and
            // older than what is known here.
            Err(ServiceError::Contended { path }) => {
                let there = self.records.update(&record.pipeline_id, &record.id).await?;
                match there.filter(|(there, _)| there.scheduler == self.run) {
                    Some((_, version)) => self.records.put_update(&record, Some(&version)).await?,
                    None => return Err(ServiceError::Contended { path }),
                }
            }
            written => written?,
        };
        *saved = Some(written);
        Ok(())
    }

    fn begin(self: &Arc<Self>, live: Arc<Live>, spec: PipelineSpec) {
        tokio::spawn(self.clone().drive(live, spec));
    }

    /// The update of a pipeline that is under way.
    pub(crate) fn active_update(&self, pipeline: &str) -> Option<String> {
        let lives = self.lives();
        let found = lives
            .all
            .values()
            .find(|live| live.pipeline_id == pipeline && !live.has_ended());
        found.map(|live| live.id.clone())
    }

    /// All updates that are under way, the newest first.
    pub(crate) fn under_way(&self) -> Vec<Arc<Live>> {
        let lives = self.lives();
        let found = lives.all.values().rev().filter(|live| !live.has_ended());
        found.cloned().collect()
    }

    pub(crate) async fn find_update(
        &self,
        id: &str,
        pipeline: &str,
    ) -> Result<Found, ServiceError> {
        self.until_taken_over().await;
        if let Some(live) = self.live(id) {
            return Ok(Found::Live(live));
        }
        let missing = || ServiceError::UpdateNotFound { id: id.to_string() };
        if !is_id(id) {
            return Err(missing());
        }
        let pipelines = if is_id(pipeline) {
            vec![pipeline.to_string()]
        } else {
            let all = self.known_pipelines().await;
            all.into_iter().map(|(id, _)| id).collect()
        };
        let looked = futures::stream::iter(pipelines)
            .map(|pipeline| async move { self.records.update(&pipeline, id).await })
            .buffer_unordered(READ_AT_A_TIME)
            .try_filter_map(|found| async move { Ok(found) });
        let mut looked = std::pin::pin!(looked);
        match looked.try_next().await? {
            Some((record, _)) => Ok(Found::Kept(Box::new(record))),
            None => Err(missing()),
        }
    }

    /// Stops an update and waits a while for its end.
    pub(crate) async fn stop_update(
        &self,
        id: &str,
        pipeline: &str,
    ) -> Result<Found, ServiceError> {
        let found = self.find_update(id, pipeline).await?;
        if let Found::Live(live) = &found
            && !live.has_ended()
        {
            live.stop();
            // Who asks again gets the same; who watches hears of the end.
            let _ = tokio::time::timeout(STOP_WAITED, live.until_ended()).await;
        }
        Ok(found)
    }

    /// What earlier schedulers had under way.
    pub(crate) async fn take_over(self: &Arc<Self>) -> Result<(), ServiceError> {
        let mut left = Vec::new();
        for active in self.records.active().await? {
            match self.records.update(&active.pipeline, &active.update).await {
                Ok(Some((record, version))) if !record.state.is_end() => {
                    left.push((record, version));
                }
                Ok(_) => self.records.delete_active(&active.update).await?,
                Err(ServiceError::Damaged { path, reason }) => {
                    tracing::error!(path, reason, "an update can't be read and is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        let retried: Vec<String> = left
            .iter()
            .filter_map(|(r, _)| r.retry_of.clone())
            .collect();
        for (record, version) in left {
            let id = record.id.clone();
            let is_retried = retried.contains(&id);
            if let Err(error) = self.take(record, version, is_retried).await {
                // Its marker stays, so that the next start tries again.
                tracing::error!(update = id, %error, "an update of another scheduler was not taken over");
            }
        }
        Ok(())
    }

    async fn take(
        self: &Arc<Self>,
        mut record: UpdateRecord,
        version: Version,
        is_retried: bool,
    ) -> Result<(), ServiceError> {
        let spec = match self.records.pipeline(&record.pipeline_id).await? {
            Some((pipeline, _)) => Some(pipeline.spec),
            None => None,
        };
        if let (false, Some(spec)) = (record.state == State::Running, &spec) {
            tracing::info!(update = record.id, "an update that waited is queued again");
            record.state = State::Queued;
            record.scheduler = self.run.clone();
            return self.adopt(record, Some(version), spec.clone()).await;
        }
        self.metrics.interrupted();
        let retry = match &spec {
            Some(spec) if !is_retried => self.retry(&record, spec).await?,
            _ => None,
        };
        record.retried_as = retry.as_ref().map(|(r, _)| r.id.clone());
        // Before the next one begins: it would write the missing events too.
        let outcome = self.interrupted(&record, spec.as_ref()).await;
        if let Some((next, spec)) = retry {
            let active = ActiveRecord {
                pipeline: next.pipeline_id.clone(),
                update: next.id.clone(),
            };
            self.records.put_active(&active).await?;
            self.adopt(next, None, spec).await?;
        }
        outcome.write(&mut record);
        self.records.put_update(&record, Some(&version)).await?;
        self.records.delete_active(&record.id).await
    }

    async fn adopt(
        self: &Arc<Self>,
        record: UpdateRecord,
        version: Option<Version>,
        spec: PipelineSpec,
    ) -> Result<(), ServiceError> {
        let live = Arc::new(Live::new(record));
        *live.saved.lock().await = version;
        self.save(&live).await?;
        self.lives().all.insert(live.id.clone(), live.clone());
        self.begin(live, spec);
        Ok(())
    }

    /// The update in place of one whose scheduler went away, when the pipeline asks for one.
    async fn retry(
        &self,
        record: &UpdateRecord,
        spec: &PipelineSpec,
    ) -> Result<Option<(UpdateRecord, PipelineSpec)>, ServiceError> {
        let wanted = spec.configuration.get(RETRIES);
        let wanted = wanted.and_then(|text| text.trim().parse::<u32>().ok());
        if record.attempt > wanted.unwrap_or(0) {
            return Ok(None);
        }
        let id = uuid::Uuid::now_v7().to_string();
        let mut next = UpdateRecord {
            id: id.clone(),
            state: State::Queued,
            created: Utc::now(),
            started: None,
            scheduler: self.run.clone(),
            attempt: record.attempt + 1,
            retry_of: Some(record.id.clone()),
            // What its client knows it by stays with the first.
            token: String::new(),
            ..record.clone()
        };
        if let Request::Backfill(request) = &mut next.request {
            let begun = match (&record.backfill_id, spec.config(&self.guard)) {
                (Some(id), Ok(config)) => Ledgers::open(&config)?.find(id).await?,
                _ => None,
            };
            match begun {
                Some(kept) => {
                    request.resumes = true;
                    request.backfill = Some(kept.ledger.id);
                }
                None => next.backfill_id = Some(id),
            }
        }
        Ok(Some((next, spec.clone())))
    }

    /// What came of an update whose scheduler went away.
    async fn interrupted(&self, record: &UpdateRecord, spec: Option<&PipelineSpec>) -> Outcome {
        let error = Problem {
            code: "UPDATE_INTERRUPTED".into(),
            message: "the scheduler went away while the update ran; flows that had committed stay, the others changed nothing".into(),
            help: Some(match &record.retried_as {
                Some(next) => format!("update {next} runs in its place"),
                None => format!("start it again; the setting {RETRIES} does so by itself"),
            }),
        };
        let config = spec.and_then(|spec| spec.config(&self.guard).ok());
        self.closed(record, config.as_ref(), error, INTERRUPTED)
            .await
    }
}

enum Reserved {
    New(Arc<Live>),
    Known(Arc<Live>),
}
