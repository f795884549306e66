//! Two schedulers on one storage: one leads, the other one waits, says so to whoever asks, and goes on
//! when the first is gone.

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use windrow_proto::v1::ListPipelinesRequest;
use windrow_proto::v1::pipeline_service_client::PipelineServiceClient;

use super::{LIMIT, Scheduler};
use crate::crash::{NOW, play, prepared, twin};
use crate::pipeline::Pipeline;
use crate::program::{self, end};
use crate::s3::{Server, on_s3};
use crate::{Outcome, words};

async fn health(scheduler: &Scheduler) -> Outcome<ServingStatus> {
    let endpoint = tonic::transport::Endpoint::from_shared(scheduler.url()).map_err(words)?;
    let mut health = HealthClient::new(endpoint.connect().await.map_err(words)?);
    let mut found = None;
    for service in ["", "windrow.v1.PipelineService"] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let answer = health.check(request).await.map_err(words)?.into_inner();
        if found.is_some_and(|found| found != answer.status()) {
            return Err("the service is not as well as the whole".into());
        }
        found = Some(answer.status());
    }
    found.ok_or_else(|| "no answer".into())
}

/// What is asked of one that waits, by all ways.
async fn check_waits(second: &Scheduler) -> Outcome {
    for (path, status) in [
        ("/health/live", 200),
        ("/health/ready", 503),
        ("/metrics", 200),
        ("/nosuch", 503),
    ] {
        let (got, body) = second.get(path, "").await?;
        if got != status {
            return Err(format!("{path}: {got} {body}"));
        }
    }
    let (_, figures) = second.get("/metrics", "").await?;
    for line in ["windrow_leading 0", "windrow_updates_running 0"] {
        if !figures.lines().any(|l| l == line) {
            return Err(format!("no `{line}` in {figures}"));
        }
    }
    if health(second).await? != ServingStatus::NotServing {
        return Err("its health is that of one that leads".into());
    }
    let endpoint = tonic::transport::Endpoint::from_shared(second.url()).map_err(words)?;
    let channel = endpoint.connect().await.map_err(words)?;
    let mut client = PipelineServiceClient::new(channel);
    let Err(status) = client.list_pipelines(ListPipelinesRequest::default()).await else {
        return Err("it lists pipelines".into());
    };
    let info = windrow_proto::status::error_info(&status).ok_or("no details")?;
    if status.code() != Code::Unavailable || info.reason != "NOT_LEADING" {
        return Err(format!("refused with {status:?}"));
    }
    Ok(())
}

/// Starts `windrow run` and waits until it has said that the scheduler does not lead.
async fn run_too_early(pipeline: &Pipeline, scheduler: &Scheduler) -> Outcome<Child> {
    let mut child = scheduler.begin(pipeline, "run", &NOW)?;
    let stderr = child.stderr.take().ok_or("no stderr")?;
    let mut lines = BufReader::new(stderr).lines();
    let said = async {
        while let Some(line) = lines.next_line().await.map_err(words)? {
            if line.contains("does not lead") {
                return Ok(());
            }
        }
        Err("the client does not say that it waits".to_string())
    };
    tokio::time::timeout(LIMIT, said)
        .await
        .map_err(|_| "the client says nothing")??;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(child)
}

#[test]
fn the_second_waits_and_goes_on() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let done = prepared(&scratch.path().join("done"), 2).await?;
        let early = twin(&done, &scratch.path().join("early"))?;
        let first = Scheduler::start(scratch.path(), &[], &[]).await?;
        first.until_ready().await?;
        let second = Scheduler::start(scratch.path(), &[], &[]).await?;
        check_waits(&second).await?;
        let run = first.call(&done, "run", &NOW).await?.expect_exit(0)?;
        let id = run.report()?["update_id"].clone();
        // Whoever has no time is told.
        let url = second.url();
        let hasty = [
            ("WINDROW_SCHEDULER", url.as_str()),
            ("WINDROW_SCHEDULER_PATIENCE", "1"),
        ];
        let refused = end(early.start("run", &NOW, &hasty)?)
            .await?
            .expect_exit(1)?;
        if refused.report()?["error"]["code"] != "NOT_LEADING" {
            return Err(refused.told());
        }
        let waiting = run_too_early(&early, &second).await?;

        first.kill().await?;
        second.until_ready().await?;
        end(waiting).await?.expect_exit(0)?;
        let updates = second.updates(&done).await?;
        if updates.len() != 1 || updates[0]["update_id"] != id || updates[0]["state"] != "COMPLETED"
        {
            return Err(format!("not {id}: {updates:?}"));
        }
        if health(&second).await? != ServingStatus::Serving {
            return Err("it leads, and its health is not that of one that does".into());
        }
        let (_, figures) = second.get("/metrics", "").await?;
        if !figures.lines().any(|l| l == "windrow_leading 1") {
            return Err(figures);
        }
        Ok(())
    });
}

/// A scheduler and what it needs of an S3 server, computing on executors.
async fn on_store(server: &Server, folder: &std::path::Path, root: &str) -> Outcome<Scheduler> {
    let storage = format!("{root}scheduler");
    let arguments = [
        "scheduler",
        "--bind",
        "127.0.0.1:0",
        "--storage",
        &storage,
        "--allow-path",
        root,
        "--lease-seconds",
        "4",
    ];
    let variables = server.lake()?.options;
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    Scheduler::start_as(folder, &arguments, &variables).await
}

/// The same by a lease on object storage. An executor that was sent to the one that waits works for it
/// as soon as it leads.
#[test]
fn the_second_takes_the_lease_and_the_executors() {
    on_s3(async |server| {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = crate::s3::pipeline(&server, scratch.path()).await?;
        let root = pipeline.lake.root.to_string();
        let first = on_store(&server, scratch.path(), &root).await?;
        first.until_ready().await?;
        let second = on_store(&server, scratch.path(), &root).await?;
        check_waits(&second).await?;
        let work = scratch.path().join("work").to_string_lossy().into_owned();
        let arguments = [
            "executor",
            "--scheduler",
            &second.address,
            "--slots",
            "1",
            "--work-dir",
            &work,
        ];
        let variables = pipeline.lake.options.clone().into_iter().collect();
        let _executor = program::start(scratch.path(), &arguments, &variables)?;
        let waiting = run_too_early(&pipeline, &second).await?;
        first.kill().await?;
        second.until_ready().await?;
        end(waiting).await?.expect_exit(0)?;
        let (_, figures) = second.get("/metrics", "").await?;
        for line in ["windrow_executors 1", "windrow_staged_slices_total 1"] {
            if !figures.lines().any(|l| l == line) {
                return Err(format!("no `{line}` in {figures}"));
            }
        }
        Ok(())
    });
}
