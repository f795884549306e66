//! `windrow.v1.PipelineService`, request by request.
//!
//! What changes something is carried through even if its client goes away meanwhile; what only looks
//! ends with its client.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use tonic::{Request, Response, Status};
use windrow_proto::v1 as pb;
use windrow_proto::v1::pipeline_service_server::PipelineService;

use super::backfills::page_size;
use super::convert::{self, clock, given, some};
use super::error::ServiceError;
use super::queue::Found;
use super::record::{BackfillRequest, PipelineRecord, UpdateRequest};
use super::{Inner, Service, alone, record};
use crate::backfill::Backfill;
use crate::config::PipelineConfig;
use crate::event_reader::{self, EventFilter};
use crate::report::FaultReport;
use crate::update::{Update, UpdateOptions};

const PIPELINES_PAGE: usize = 100;
const UPDATES_PAGE: usize = 25;
const EVENTS_PAGE: usize = 100;
const LARGEST_PAGE: usize = 100;
const LARGEST_EVENTS_PAGE: usize = 1000;

/// Carries `work` through, whether or not anybody waits for it.
async fn through<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, ServiceError> {
    tokio::spawn(work).await.unwrap_or_else(|error| {
        Err(ServiceError::Internal {
            reason: error.to_string(),
        })
    })
}

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(result: Result<T, ServiceError>) -> Answer<T> {
    result.map(Response::new).map_err(Status::from)
}

impl Inner {
    /// The pipeline of a request that only looks.
    async fn seen(&self, by: Option<pb::PipelineRef>) -> Result<PipelineConfig, ServiceError> {
        let spec = match given(by.and_then(|r| r.by), "pipeline")? {
            pb::pipeline_ref::By::PipelineId(id) => self.pipeline(&id).await?.spec,
            pb::pipeline_ref::By::Spec(spec) => convert::spec(spec),
        };
        Ok(spec.config(&self.guard)?)
    }

    /// The pipeline of a request that starts something: it is kept.
    async fn kept(&self, by: Option<pb::PipelineRef>) -> Result<PipelineRecord, ServiceError> {
        match given(by.and_then(|r| r.by), "pipeline")? {
            pb::pipeline_ref::By::PipelineId(id) => self.pipeline(&id).await,
            pb::pipeline_ref::By::Spec(spec) => self.keep_pipeline(convert::spec(spec)).await,
        }
    }

    /// Plans and checks take memory and time, so only a few are made at a time.
    async fn look<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let _turn = self.looks.acquire().await;
        alone(work).await
    }

    async fn list_pipelines(
        &self,
        request: pb::ListPipelinesRequest,
    ) -> Result<pb::ListPipelinesResponse, ServiceError> {
        let mut all = self.known_pipelines().await;
        all.retain(|(_, known)| request.name.is_empty() || known.name == request.name);
        if let Some((name, id)) = page_token(&request.page_token)? {
            all.retain(|(own, known)| (known.name.as_str(), own.as_str()) > (&name, &id));
        }
        let size = page_size(request.page_size, PIPELINES_PAGE, LARGEST_PAGE);
        let mut response = pb::ListPipelinesResponse::default();
        if all.len() > size {
            all.truncate(size);
            if let Some((id, known)) = all.last() {
                response.next_page_token = format!("{id} {}", known.name);
            }
        }
        for (id, known) in all {
            let active = self.active_update(&id);
            response.pipelines.push(convert::summary(id, known, active));
        }
        Ok(response)
    }

    async fn list_updates(
        &self,
        request: pb::ListUpdatesRequest,
    ) -> Result<pb::ListUpdatesResponse, ServiceError> {
        self.until_taken_over().await;
        let size = page_size(request.page_size, UPDATES_PAGE, LARGEST_PAGE);
        let before = |id: &str| request.page_token.is_empty() || id < request.page_token.as_str();
        let mut response = pb::ListUpdatesResponse::default();
        let pipeline = match request.pipeline.and_then(|r| r.by) {
            None => {
                let mut under_way = self.under_way();
                under_way.retain(|live| before(&live.id));
                if under_way.len() > size {
                    under_way.truncate(size);
                    let last = under_way.last().map(|live| live.id.clone());
                    response.next_page_token = last.unwrap_or_default();
                }
                for live in under_way {
                    response.updates.push(convert::live(&live, false)?);
                }
                return Ok(response);
            }
            Some(pb::pipeline_ref::By::PipelineId(id)) => self.pipeline(&id).await?.id,
            Some(pb::pipeline_ref::By::Spec(spec)) => {
                match self.id_of(convert::spec(spec)).await? {
                    Some(id) => id,
                    // Nothing of it was ever started here.
                    None => return Ok(response),
                }
            }
        };
        let mut ids = self.records.update_ids(&pipeline).await?;
        ids.retain(|id| before(id));
        ids.reverse();
        if ids.len() > size {
            ids.truncate(size);
            response.next_page_token = ids.last().cloned().unwrap_or_default();
        }
        for id in ids {
            match self.find_update(&id, &pipeline).await {
                Ok(found) => response.updates.push(shown(found, false)?),
                // Forgotten since the list was made.
                Err(ServiceError::UpdateNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(response)
    }

    async fn list_events(
        &self,
        request: pb::ListEventsRequest,
    ) -> Result<pb::ListEventsResponse, ServiceError> {
        let config = self.seen(request.pipeline).await?;
        let size = page_size(request.page_size, EVENTS_PAGE, LARGEST_EVENTS_PAGE);
        let filter = EventFilter {
            flow: some(request.flow_name),
            update: some(request.update_id),
            event_type: some(request.event_type),
            level: some(request.level.to_uppercase()),
            before: some(request.page_token),
            last: size + 1,
        };
        let rows = self
            .look(async move { event_reader::read(&config, &filter).await })
            .await??;
        let more = rows.len() > size;
        let events: Vec<pb::Event> = rows
            .iter()
            .skip(usize::from(more))
            .map(convert::event)
            .collect();
        Ok(pb::ListEventsResponse {
            next_page_token: events
                .first()
                .filter(|_| more)
                .map(|e| e.id.clone())
                .unwrap_or_default(),
            events,
        })
    }

    async fn validate(
        &self,
        request: pb::ValidatePipelineRequest,
    ) -> Result<pb::ValidatePipelineResponse, ServiceError> {
        let config = self.seen(request.pipeline).await?;
        let options = UpdateOptions {
            now: clock(request.now)?,
            ..UpdateOptions::default()
        };
        let pipeline_name = config.name.clone();
        let checked = self.look(async move {
            let prepared = Update::prepare(config, &options).await;
            prepared.map(|update| update.warnings)
        });
        let (faults, warnings) = match checked.await? {
            Ok(warnings) => (Vec::new(), warnings),
            Err(faults) => (faults, Vec::new()),
        };
        Ok(pb::ValidatePipelineResponse {
            valid: faults.is_empty(),
            pipeline_name,
            faults: faults
                .iter()
                .map(|f| convert::fault(FaultReport::from(f)))
                .collect(),
            warnings,
        })
    }

    async fn plan(
        &self,
        request: pb::PlanUpdateRequest,
    ) -> Result<pb::PlanUpdateResponse, ServiceError> {
        let update = given(request.update, "update")?;
        let now = clock(update.now)?;
        let config = self.seen(update.pipeline.clone()).await?;
        let pipeline_name = config.name.clone();
        let request = update_request(update);
        let options = match self.options_of(&request, now) {
            Ok(options) => options,
            Err(fault) => {
                return Ok(pb::PlanUpdateResponse {
                    faults: vec![convert::fault(FaultReport::from(&fault))],
                    ..pb::PlanUpdateResponse::default()
                });
            }
        };
        let planned = self.look(async move {
            let update = Update::prepare(config, &options).await?;
            Ok::<_, Vec<windrow_flows::fault::Fault>>(update.explain().await)
        });
        match planned.await? {
            Ok(report) => convert::plan(&report),
            Err(faults) => Ok(pb::PlanUpdateResponse {
                faults: faults
                    .iter()
                    .map(|f| convert::fault(FaultReport::from(f)))
                    .collect(),
                pipeline_name,
                ..pb::PlanUpdateResponse::default()
            }),
        }
    }

    async fn plan_backfill(
        &self,
        request: pb::PlanBackfillRequest,
    ) -> Result<pb::PlanBackfillResponse, ServiceError> {
        let backfill = given(request.backfill, "backfill")?;
        let now = clock(backfill.now)?;
        let config = self.seen(backfill.pipeline.clone()).await?;
        let options = self.backfill_options(&backfill_request(backfill), now, None);
        let planned = match options {
            Ok(options) => {
                let looked = self.look(async move {
                    let backfill = Backfill::prepare(config, &options).await?;
                    Ok::<_, Vec<windrow_flows::fault::Fault>>(backfill.preview())
                });
                looked.await?
            }
            Err(fault) => Err(vec![fault]),
        };
        Ok(match planned {
            Ok(preview) => convert::preview(preview),
            Err(faults) => pb::PlanBackfillResponse {
                faults: faults
                    .iter()
                    .map(|f| convert::fault(FaultReport::from(f)))
                    .collect(),
                ..pb::PlanBackfillResponse::default()
            },
        })
    }

    async fn start(
        self: &Arc<Self>,
        request: pb::StartUpdateRequest,
    ) -> Result<pb::StartUpdateResponse, ServiceError> {
        let now = clock(request.now)?;
        let pipeline = self.kept(request.pipeline.clone()).await?;
        let token = request.idempotency_token.clone();
        let wanted = record::Request::Update(update_request(request));
        let live = self.enqueue(pipeline, wanted, now, token).await?;
        Ok(pb::StartUpdateResponse {
            update_id: live.id.clone(),
            pipeline_id: live.pipeline_id.clone(),
        })
    }
}

/// The id comes first in a token, since a name may hold anything.
fn page_token(token: &str) -> Result<Option<(String, String)>, ServiceError> {
    if token.is_empty() {
        return Ok(None);
    }
    let parts = token.split_once(' ');
    let (id, name) = parts.ok_or_else(|| ServiceError::WrongRequest {
        what: "`page_token` is none of this list".into(),
    })?;
    Ok(Some((name.to_string(), id.to_string())))
}

fn backfill_request(request: pb::StartBackfillRequest) -> BackfillRequest {
    BackfillRequest {
        flow: request.flow,
        column: some(request.column),
        from: some(request.from),
        to: some(request.to),
        by: some(request.by),
        parallel: usize::try_from(request.parallel.max(1)).unwrap_or(1),
        atomic: request.atomic,
        newest_first: request.newest_first,
        only: request.only,
        resumes: false,
        backfill: None,
    }
}

fn update_request(request: pb::StartUpdateRequest) -> UpdateRequest {
    UpdateRequest {
        refresh: request.refresh_selection,
        full_refresh: request.full_refresh_selection,
        full_refresh_all: request.full_refresh,
        replace_where: request
            .replace_where_overrides
            .into_iter()
            .map(|o| (o.flow_name, o.predicate_override))
            .collect(),
        validate_only: request.validate_only,
        agree: request.agree_to_rows_lost,
        slice_by: Some(request.slice_by).filter(|by| !by.is_empty()),
        parallel: request.parallel as usize,
    }
}

fn shown(found: Found, with_report: bool) -> Result<pb::Update, ServiceError> {
    match found {
        Found::Live(live) => convert::live(&live, with_report),
        Found::Kept(record) => convert::update(*record, None, with_report),
    }
}

#[tonic::async_trait]
impl PipelineService for Service {
    async fn create_pipeline(
        &self,
        request: Request<pb::CreatePipelineRequest>,
    ) -> Answer<pb::CreatePipelineResponse> {
        let inner = self.inner.clone();
        let spec = given(request.into_inner().spec, "spec")?;
        let made = through(async move { inner.create_pipeline(convert::spec(spec)).await }).await;
        answer(made.map(|record| pb::CreatePipelineResponse {
            pipeline: Some(convert::pipeline(record)),
        }))
    }

    async fn get_pipeline(
        &self,
        request: Request<pb::GetPipelineRequest>,
    ) -> Answer<pb::GetPipelineResponse> {
        let found = self.inner.pipeline(&request.into_inner().pipeline_id).await;
        answer(found.map(|record| pb::GetPipelineResponse {
            pipeline: Some(convert::pipeline(record)),
        }))
    }

    async fn list_pipelines(
        &self,
        request: Request<pb::ListPipelinesRequest>,
    ) -> Answer<pb::ListPipelinesResponse> {
        answer(self.inner.list_pipelines(request.into_inner()).await)
    }

    async fn edit_pipeline(
        &self,
        request: Request<pb::EditPipelineRequest>,
    ) -> Answer<pb::EditPipelineResponse> {
        let inner = self.inner.clone();
        let request = request.into_inner();
        let spec = convert::spec(given(request.spec, "spec")?);
        let edited = through(async move {
            inner
                .edit_pipeline(&request.pipeline_id, spec, request.expected_revision)
                .await
        });
        answer(edited.await.map(|record| pb::EditPipelineResponse {
            pipeline: Some(convert::pipeline(record)),
        }))
    }

    async fn delete_pipeline(
        &self,
        request: Request<pb::DeletePipelineRequest>,
    ) -> Answer<pb::DeletePipelineResponse> {
        let inner = self.inner.clone();
        let id = request.into_inner().pipeline_id;
        let deleted = through(async move { inner.delete_pipeline(&id).await }).await;
        answer(deleted.map(|()| pb::DeletePipelineResponse {}))
    }

    async fn validate_pipeline(
        &self,
        request: Request<pb::ValidatePipelineRequest>,
    ) -> Answer<pb::ValidatePipelineResponse> {
        answer(self.inner.validate(request.into_inner()).await)
    }

    async fn plan_update(
        &self,
        request: Request<pb::PlanUpdateRequest>,
    ) -> Answer<pb::PlanUpdateResponse> {
        answer(self.inner.plan(request.into_inner()).await)
    }

    async fn start_update(
        &self,
        request: Request<pb::StartUpdateRequest>,
    ) -> Answer<pb::StartUpdateResponse> {
        let inner = self.inner.clone();
        let request = request.into_inner();
        answer(through(async move { inner.start(request).await }).await)
    }

    async fn get_update(
        &self,
        request: Request<pb::GetUpdateRequest>,
    ) -> Answer<pb::GetUpdateResponse> {
        let request = request.into_inner();
        let found = self
            .inner
            .find_update(&request.update_id, &request.pipeline_id);
        let shown = found.await.and_then(|found| shown(found, true));
        answer(shown.map(|update| pb::GetUpdateResponse {
            update: Some(update),
        }))
    }

    async fn list_updates(
        &self,
        request: Request<pb::ListUpdatesRequest>,
    ) -> Answer<pb::ListUpdatesResponse> {
        answer(self.inner.list_updates(request.into_inner()).await)
    }

    async fn stop_update(
        &self,
        request: Request<pb::StopUpdateRequest>,
    ) -> Answer<pb::StopUpdateResponse> {
        let request = request.into_inner();
        let stopped = self
            .inner
            .stop_update(&request.update_id, &request.pipeline_id);
        let shown = stopped.await.and_then(|found| shown(found, true));
        answer(shown.map(|update| pb::StopUpdateResponse {
            update: Some(update),
        }))
    }

    type WatchUpdateStream = Pin<Box<dyn Stream<Item = Result<pb::UpdateEvent, Status>> + Send>>;

    async fn watch_update(
        &self,
        request: Request<pb::WatchUpdateRequest>,
    ) -> Answer<Self::WatchUpdateStream> {
        let request = request.into_inner();
        let found = self
            .inner
            .find_update(&request.update_id, &request.pipeline_id)
            .await?;
        let stream: Self::WatchUpdateStream = match found {
            Found::Live(live) => Box::pin(self.inner.watch(
                live,
                request.after_sequence,
                request.with_events,
            )?),
            Found::Kept(record) => {
                let update = convert::update(*record, None, true)?;
                let last = pb::UpdateEvent {
                    sequence: 0,
                    what: Some(pb::update_event::What::Update(update)),
                    last: true,
                };
                Box::pin(futures::stream::iter([Ok(last)]))
            }
        };
        Ok(Response::new(stream))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Answer<pb::ListEventsResponse> {
        answer(self.inner.list_events(request.into_inner()).await)
    }

    async fn start_backfill(
        &self,
        request: Request<pb::StartBackfillRequest>,
    ) -> Answer<pb::StartBackfillResponse> {
        let inner = self.inner.clone();
        let request = request.into_inner();
        let started = through(async move {
            let now = clock(request.now)?;
            let pipeline = inner.kept(request.pipeline.clone()).await?;
            let token = request.idempotency_token.clone();
            let wanted = record::Request::Backfill(backfill_request(request));
            inner.enqueue(pipeline, wanted, now, token).await
        });
        answer(started.await.map(|live| pb::StartBackfillResponse {
            update_id: live.id.clone(),
            pipeline_id: live.pipeline_id.clone(),
            backfill_id: live.record().backfill_id.unwrap_or_default(),
        }))
    }

    async fn plan_backfill(
        &self,
        request: Request<pb::PlanBackfillRequest>,
    ) -> Answer<pb::PlanBackfillResponse> {
        answer(self.inner.plan_backfill(request.into_inner()).await)
    }

    async fn resume_backfill(
        &self,
        request: Request<pb::ResumeBackfillRequest>,
    ) -> Answer<pb::ResumeBackfillResponse> {
        let inner = self.inner.clone();
        let request = request.into_inner();
        let started = through(async move {
            let now = clock(request.now)?;
            let pipeline = inner.kept(request.pipeline).await?;
            let wanted = record::Request::Backfill(BackfillRequest {
                flow: request.flow,
                column: some(request.column),
                from: some(request.from),
                to: some(request.to),
                by: some(request.by),
                parallel: usize::try_from(request.parallel.max(1)).unwrap_or(1),
                atomic: request.atomic,
                newest_first: request.newest_first,
                only: String::new(),
                resumes: true,
                backfill: some(request.backfill_id),
            });
            let token = request.idempotency_token;
            inner.enqueue(pipeline, wanted, now, token).await
        });
        answer(started.await.map(|live| pb::ResumeBackfillResponse {
            update_id: live.id.clone(),
            pipeline_id: live.pipeline_id.clone(),
        }))
    }

    async fn get_backfill(
        &self,
        request: Request<pb::GetBackfillRequest>,
    ) -> Answer<pb::GetBackfillResponse> {
        let request = request.into_inner();
        let config = self.inner.seen(request.pipeline).await?;
        let id = &request.backfill_id;
        let found = self.inner.backfill(&config, id, request.with_slices).await;
        answer(found.map(|backfill| pb::GetBackfillResponse {
            backfill: Some(backfill),
        }))
    }

    async fn list_backfills(
        &self,
        request: Request<pb::ListBackfillsRequest>,
    ) -> Answer<pb::ListBackfillsResponse> {
        let request = request.into_inner();
        let config = self.inner.seen(request.pipeline.clone()).await?;
        answer(self.inner.backfills(&config, &request).await)
    }

    async fn stop_backfill(
        &self,
        request: Request<pb::StopBackfillRequest>,
    ) -> Answer<pb::StopBackfillResponse> {
        let request = request.into_inner();
        let config = self.inner.seen(request.pipeline).await?;
        let stopped = self
            .inner
            .stop_backfill(&config, &request.backfill_id)
            .await;
        answer(stopped.map(|backfill| pb::StopBackfillResponse {
            backfill: Some(backfill),
        }))
    }
}
