//! The service as other programs use it, message by message.

use tonic::transport::Channel;
use tonic::{Code, Status};
use windrow_proto::status::error_info;
use windrow_proto::v1 as pb;
use windrow_proto::v1::pipeline_service_client::PipelineServiceClient;

use super::{ENDLESS, Scheduler};
use crate::crash::{play, prepared};
use crate::pipeline::Pipeline;
use crate::s3::on_s3;
use crate::{Outcome, words};

type Client = PipelineServiceClient<Channel>;

async fn client(scheduler: &Scheduler) -> Outcome<Client> {
    Client::connect(scheduler.url()).await.map_err(words)
}

fn spec(pipeline: &Pipeline, name: &str, sql: &str) -> pb::PipelineSpec {
    let url = |place: &str| pipeline.lake.url(place).to_string();
    pb::PipelineSpec {
        name: name.into(),
        storage: url("own"),
        tables: vec![pb::NamedLocation {
            name: "s".into(),
            url: url("src/s"),
        }],
        sources: vec![pb::SourceFile {
            name: "a.sql".into(),
            text: sql.into(),
        }],
        ..pb::PipelineSpec::default()
    }
}

fn by_id(id: &str) -> Option<pb::PipelineRef> {
    Some(pb::PipelineRef {
        by: Some(pb::pipeline_ref::By::PipelineId(id.into())),
    })
}

fn clock() -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp {
        seconds: 1_773_100_800,
        nanos: 0,
    })
}

fn refused<T: std::fmt::Debug>(
    answer: Result<tonic::Response<T>, Status>,
    code: Code,
    word: &str,
) -> Outcome {
    match answer {
        Err(status)
            if status.code() == code
                && error_info(&status).is_some_and(|info| info.reason == word) =>
        {
            Ok(())
        }
        other => Err(format!("not {word}: {other:?}")),
    }
}

const SQL: &str =
    "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= date_add(current_date(), -4) BY NAME
    SELECT d, k, sum(x) AS x FROM s GROUP BY d, k;";

/// The end of an update, and what was told before it.
async fn watched(
    client: &mut Client,
    update_id: &str,
) -> Outcome<(pb::Update, Vec<pb::update_event::What>)> {
    let request = pb::WatchUpdateRequest {
        update_id: update_id.into(),
        with_events: true,
        ..pb::WatchUpdateRequest::default()
    };
    let mut stream = client
        .watch_update(request)
        .await
        .map_err(words)?
        .into_inner();
    let mut told = Vec::new();
    let mut before = 0;
    while let Some(event) = stream.message().await.map_err(words)? {
        if event.sequence != 0 && event.sequence <= before {
            return Err(format!("{} comes after {before}", event.sequence));
        }
        before = before.max(event.sequence);
        match event.what {
            Some(pb::update_event::What::Update(update)) if event.last => {
                return Ok((update, told));
            }
            what => told.extend(what),
        }
    }
    Err("the stream ends without a last word".into())
}

#[test]
fn pipelines_are_kept_edited_and_forgotten() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 5).await?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let mut client = client(&scheduler).await?;
        let create = |name: &str| pb::CreatePipelineRequest {
            spec: Some(spec(&lake, name, SQL)),
        };
        let made = client.create_pipeline(create("a")).await.map_err(words)?;
        let made = made.into_inner().pipeline.ok_or("no pipeline")?;
        refused(
            client.create_pipeline(create("a")).await,
            Code::AlreadyExists,
            "PIPELINE_EXISTS",
        )?;
        for name in ["b", "c"] {
            client.create_pipeline(create(name)).await.map_err(words)?;
        }
        let edit = |revision: u64| pb::EditPipelineRequest {
            pipeline_id: made.pipeline_id.clone(),
            spec: Some(spec(&lake, "a", ENDLESS)),
            expected_revision: revision,
        };
        refused(
            client.edit_pipeline(edit(7)).await,
            Code::Aborted,
            "PIPELINE_EDITED",
        )?;
        let edited = client.edit_pipeline(edit(1)).await.map_err(words)?;
        let edited = edited.into_inner().pipeline.ok_or("no pipeline")?;
        if edited.revision != 2 || edited.created != made.created {
            return Err(format!("{edited:?}"));
        }

        // Nothing is lost with the process.
        let address = scheduler.address.clone();
        scheduler.kill().await?;
        let scheduler = Scheduler::start(scratch.path(), &["--bind", &address], &[]).await?;
        let mut client = self::client(&scheduler).await?;
        let mut names = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListPipelinesRequest {
                page_size: 2,
                page_token,
                name: String::new(),
            };
            let page = client.list_pipelines(request).await.map_err(words)?;
            let page = page.into_inner();
            names.extend(page.pipelines.into_iter().map(|p| p.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        if names != ["a", "b", "c"] {
            return Err(format!("{names:?}"));
        }
        let get = pb::GetPipelineRequest {
            pipeline_id: made.pipeline_id.clone(),
        };
        let got = client.get_pipeline(get.clone()).await.map_err(words)?;
        if got.into_inner().pipeline.as_ref() != Some(&edited) {
            return Err("not the pipeline that was edited".into());
        }

        let started = client
            .start_update(pb::StartUpdateRequest {
                pipeline: by_id(&made.pipeline_id),
                now: clock(),
                ..pb::StartUpdateRequest::default()
            })
            .await
            .map_err(words)?
            .into_inner();
        let delete = pb::DeletePipelineRequest {
            pipeline_id: made.pipeline_id.clone(),
        };
        refused(
            client.delete_pipeline(delete.clone()).await,
            Code::FailedPrecondition,
            "UPDATE_ALREADY_RUNNING",
        )?;
        let stop = pb::StopUpdateRequest {
            update_id: started.update_id.clone(),
            ..pb::StopUpdateRequest::default()
        };
        let stopped = client.stop_update(stop).await.map_err(words)?.into_inner();
        let state = stopped.update.map(|u| u.state());
        if state != Some(pb::UpdateState::Canceled) {
            return Err(format!("{state:?}"));
        }
        client
            .delete_pipeline(delete.clone())
            .await
            .map_err(words)?;
        refused(
            client.get_pipeline(get).await,
            Code::NotFound,
            "PIPELINE_NOT_FOUND",
        )?;
        refused(
            client.delete_pipeline(delete).await,
            Code::NotFound,
            "PIPELINE_NOT_FOUND",
        )?;
        // Ids are no paths.
        let request = pb::GetPipelineRequest {
            pipeline_id: "../pipelines/x".into(),
        };
        refused(
            client.get_pipeline(request).await,
            Code::NotFound,
            "PIPELINE_NOT_FOUND",
        )
    });
}

#[test]
fn an_update_is_started_once_watched_and_listed() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 5).await?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let mut client = client(&scheduler).await?;
        let by_spec = |sql: &str| {
            Some(pb::PipelineRef {
                by: Some(pb::pipeline_ref::By::Spec(spec(&lake, "a", sql))),
            })
        };
        let start = |token: &str| pb::StartUpdateRequest {
            pipeline: by_spec(SQL),
            now: clock(),
            idempotency_token: token.into(),
            ..pb::StartUpdateRequest::default()
        };
        let first = client
            .start_update(start("x"))
            .await
            .map_err(words)?
            .into_inner();
        let (update, told) = watched(&mut client, &first.update_id).await?;
        if update.state() != pb::UpdateState::Completed || update.flows.len() != 1 {
            return Err(format!("{update:?}"));
        }
        let flow = &update.flows[0];
        if flow.status() != pb::FlowStatus::Completed
            || flow.table_version.is_none()
            || flow.metrics.is_none_or(|m| m.num_output_rows == 0)
            || flow.technique.is_empty()
        {
            return Err(format!("{flow:?}"));
        }
        let count = |is: fn(&pb::update_event::What) -> bool| told.iter().filter(|w| is(w)).count();
        let starts = count(|w| matches!(w, pb::update_event::What::FlowStarted(_)));
        let ends = count(|w| matches!(w, pb::update_event::What::FlowEnded(_)));
        let rows = count(|w| matches!(w, pb::update_event::What::Event(_)));
        if (starts, ends) != (1, 1) || rows < 5 {
            return Err(format!(
                "{starts} starts, {ends} ends, {rows} rows of the log"
            ));
        }
        // The same word is the same update, ended or not.
        let again = client
            .start_update(start("x"))
            .await
            .map_err(words)?
            .into_inner();
        if again != first {
            return Err(format!("{again:?} is not {first:?}"));
        }
        let mut validate = start("y");
        validate.validate_only = true;
        let second = client
            .start_update(validate)
            .await
            .map_err(words)?
            .into_inner();
        let (update, _) = watched(&mut client, &second.update_id).await?;
        if update.state() != pb::UpdateState::Completed || !update.flows.is_empty() {
            return Err(format!("{update:?}"));
        }
        let mut faulty = start("z");
        faulty.pipeline = by_spec(
            "CREATE STREAMING TABLE t FLOW REPLACE WHERE dat > 1 BY NAME\nSELECT d FROM s;",
        );
        let third = client
            .start_update(faulty)
            .await
            .map_err(words)?
            .into_inner();
        let (update, _) = watched(&mut client, &third.update_id).await?;
        let fault = update.faults.first().ok_or("no fault")?;
        let place = (fault.file.as_str(), fault.line, fault.column);
        if update.state() != pb::UpdateState::Failed
            || fault.code != "PREDICATE_COLUMN_NOT_FOUND"
            || place != ("a.sql", 1, 45)
            || !fault.source_line.starts_with("CREATE STREAMING TABLE t")
        {
            return Err(format!("{update:?}"));
        }
        let pipeline_id = first.pipeline_id.clone();
        let mut listed = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::ListUpdatesRequest {
                pipeline: by_id(&pipeline_id),
                page_size: 2,
                page_token,
            };
            let page = client
                .list_updates(request)
                .await
                .map_err(words)?
                .into_inner();
            listed.extend(page.updates.into_iter().map(|u| u.update_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let wanted = [third, second, first].map(|started| started.update_id);
        if listed != wanted {
            return Err(format!("{listed:?}"));
        }
        let request = pb::GetUpdateRequest {
            update_id: "nosuch".into(),
            pipeline_id: String::new(),
        };
        refused(
            client.get_update(request).await,
            Code::NotFound,
            "UPDATE_NOT_FOUND",
        )?;
        let nothing = pb::StartUpdateRequest::default();
        refused(
            client.start_update(nothing).await,
            Code::InvalidArgument,
            "WRONG_REQUEST",
        )
    });
}

/// What is kept on object storage is kept by conditional puts, edits too.
#[test]
fn records_on_object_storage() {
    on_s3(async |server| {
        let lake = server.lake()?;
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = Pipeline::new(scratch.path(), lake);
        let root = pipeline.lake.root.to_string();
        let variables: Vec<(&str, &str)> = pipeline
            .lake
            .options
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let arguments = [
            "scheduler",
            "--in-process",
            "--storage",
            &root,
            "--bind",
            "127.0.0.1:0",
        ];
        let first = Scheduler::start_as(scratch.path(), &arguments, &variables).await?;
        let mut client = client(&first).await?;
        let view = |n: u32| format!("CREATE MATERIALIZED VIEW v AS SELECT {n} AS x;");
        let start = |n: u32| {
            let mut spec = spec(&pipeline, "a", &view(n));
            spec.tables.clear();
            pb::StartUpdateRequest {
                pipeline: Some(pb::PipelineRef {
                    by: Some(pb::pipeline_ref::By::Spec(spec)),
                }),
                ..pb::StartUpdateRequest::default()
            }
        };
        for n in 1..=2 {
            let started = client
                .start_update(start(n))
                .await
                .map_err(words)?
                .into_inner();
            let (update, _) = watched(&mut client, &started.update_id).await?;
            if update.state() != pb::UpdateState::Completed {
                return Err(format!("{update:?}"));
            }
        }
        let rows = pipeline.lake.all_rows("own/tables/v").await?;
        if rows != [[Some("2".to_string())]] {
            return Err(format!("{rows:?}"));
        }
        first.kill().await?;
        let second = Scheduler::start_as(scratch.path(), &arguments, &variables).await?;
        // The lease of the first one has to end.
        second.until_ready().await?;
        let mut client = self::client(&second).await?;
        let request = pb::ListPipelinesRequest::default();
        let listed = client
            .list_pipelines(request)
            .await
            .map_err(words)?
            .into_inner();
        if listed.pipelines.len() != 1 || listed.pipelines[0].revision != 2 {
            return Err(format!("{listed:?}"));
        }
        Ok(())
    });
}

/// Health is told to everybody, and who knows the token is told what else there is.
#[test]
fn health_and_reflection() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let variables = [("WINDROW_TOKEN", "sesame")];
        let scheduler = Scheduler::start(scratch.path(), &[], &variables).await?;
        scheduler.until_ready().await?;
        let channel = tonic::transport::Endpoint::from_shared(scheduler.url());
        let channel = channel.map_err(words)?.connect().await.map_err(words)?;
        let mut health = HealthClient::new(channel.clone());
        for service in ["", "windrow.v1.PipelineService"] {
            let request = tonic_health::pb::HealthCheckRequest {
                service: service.into(),
            };
            let answer = health.check(request).await.map_err(words)?.into_inner();
            if answer.status() != ServingStatus::Serving {
                return Err(format!("`{service}` is {answer:?}"));
            }
        }
        let request = || ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let asked = |token: &str| -> Outcome<tonic::Request<_>> {
            let mut request = tonic::Request::new(futures::stream::iter([request()]));
            let bearer = format!("Bearer {token}").parse().map_err(words)?;
            request.metadata_mut().insert("authorization", bearer);
            Ok(request)
        };
        let mut reflection = ServerReflectionClient::new(channel);
        refused(
            reflection
                .server_reflection_info(asked("open")?)
                .await
                .map(|_| tonic::Response::new(())),
            Code::Unauthenticated,
            "UNAUTHENTICATED",
        )?;
        let answers = reflection.server_reflection_info(asked("sesame")?).await;
        let mut answers = answers.map_err(words)?.into_inner();
        let answer = answers.message().await.map_err(words)?.ok_or("no answer")?;
        let Some(MessageResponse::ListServicesResponse(listed)) = answer.message_response else {
            return Err(format!("{answer:?}"));
        };
        let names: Vec<&str> = listed.service.iter().map(|s| s.name.as_str()).collect();
        for name in ["windrow.v1.PipelineService", "grpc.health.v1.Health"] {
            if !names.contains(&name) {
                return Err(format!("{name} is not among {names:?}"));
            }
        }
        Ok(())
    });
}
