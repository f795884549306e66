//! `backfill` by a scheduler.

use std::process::ExitCode;

use anstream::eprintln;
use windrow_proto::v1 as pb;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::report::FaultReport;

use super::connection::Connection;
use super::follow::{Followed, follow};
use super::update::{finished, unended};
use super::{fault_of, prepared, reference, time};
use crate::args::{BackfillArgs, Order};
use crate::backfill::{Line, OpenLine, PreviewLines, SliceLine, part_word};
use crate::update::refuse_all;

struct Started {
    update_id: String,
    pipeline_id: String,
}

/// `windrow backfill`.
pub async fn run(args: &BackfillArgs, flow: &str, scheduler: &str) -> ExitCode {
    let output = args.pipeline.output;
    let shown = args.pipeline.pipeline.display().to_string();
    let started = async {
        let (config, now, connection) = prepared(&args.pipeline, scheduler).await?;
        let started = start(&connection, &config, args, flow, now.map(time)).await;
        started
            .map(|started| (started, connection))
            .map_err(|fault| vec![fault])
    };
    let (started, mut connection) = match started.await {
        Ok(started) => started,
        Err(faults) => return refuse_all(output, &shown, &faults),
    };
    let (update_id, pipeline_id) = (&started.update_id, &started.pipeline_id);
    match follow(&mut connection, update_id, pipeline_id, output).await {
        Followed::Ended(update) => {
            let (id, state) = (update.backfill_id.clone(), update.state());
            // Faults mean that it never began.
            let has_begun = update.faults.is_empty() && !update.report_json.is_empty();
            let code = finished(output, &shown, *update);
            if has_begun && state != pb::UpdateState::Completed {
                eprintln!("backfill {id} is not done; go on with --resume {id}");
            }
            code
        }
        other => unended(
            other,
            "cancelled; slices that were committed stay. Go on with --resume",
        ),
    }
}

fn start_request(
    config: &PipelineConfig,
    args: &BackfillArgs,
    flow: &str,
    now: Option<prost_types::Timestamp>,
) -> pb::StartBackfillRequest {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    pb::StartBackfillRequest {
        pipeline: Some(reference(config)),
        flow: flow.to_string(),
        from: text(&args.from),
        to: text(&args.to),
        by: text(&args.by),
        parallel: u32::try_from(args.parallel).unwrap_or(u32::MAX),
        atomic: args.atomic,
        newest_first: args.order == Order::Newest,
        column: text(&args.column),
        now,
        idempotency_token: String::new(),
        only: part_word(args),
    }
}

/// What a backfill would do.
pub async fn preview(
    args: &BackfillArgs,
    flow: &str,
    scheduler: &str,
) -> Result<PreviewLines, Vec<FaultReport>> {
    let (config, now, mut connection) = prepared(&args.pipeline, scheduler).await?;
    let request = pb::PlanBackfillRequest {
        backfill: Some(start_request(&config, args, flow, now.map(time))),
    };
    let response = connection.client.plan_backfill(request).await;
    let response = response
        .map_err(|status| vec![connection.fault(&status)])?
        .into_inner();
    if !response.faults.is_empty() {
        return Err(response.faults.into_iter().map(fault_of).collect());
    }
    Ok(PreviewLines {
        flow: response.flow,
        column: response.column,
        from: response.from,
        to: response.to,
        by: Some(response.by).filter(|by| !by.is_empty()),
        open: response
            .open
            .into_iter()
            .map(|o| OpenLine {
                from: o.from,
                to: o.to,
                state: o.state,
                backfill_id: Some(o.backfill_id).filter(|id| !id.is_empty()),
            })
            .collect(),
        slices: response
            .slices
            .into_iter()
            .map(|s| SliceLine {
                from: s.from,
                to: s.to,
                state: s.state,
            })
            .collect(),
        warnings: response.warnings,
    })
}

async fn start(
    connection: &Connection,
    config: &PipelineConfig,
    args: &BackfillArgs,
    flow: &str,
    now: Option<prost_types::Timestamp>,
) -> Result<Started, FaultReport> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let token = uuid::Uuid::new_v4().to_string();
    let parallel = u32::try_from(args.parallel).unwrap_or(u32::MAX);
    match &args.resume {
        None => {
            let request = pb::StartBackfillRequest {
                idempotency_token: token,
                ..start_request(config, args, flow, now)
            };
            let started = connection
                .ask(|mut client| {
                    let request = request.clone();
                    async move { client.start_backfill(request).await }
                })
                .await;
            let started = started.map_err(|status| connection.fault(&status))?;
            Ok(Started {
                update_id: started.update_id,
                pipeline_id: started.pipeline_id,
            })
        }
        Some(id) => {
            let request = pb::ResumeBackfillRequest {
                pipeline: Some(reference(config)),
                flow: flow.to_string(),
                backfill_id: text(id),
                parallel,
                newest_first: args.order == Order::Newest,
                now,
                idempotency_token: token,
                from: text(&args.from),
                to: text(&args.to),
                by: text(&args.by),
                column: text(&args.column),
                atomic: args.atomic,
            };
            let started = connection
                .ask(|mut client| {
                    let request = request.clone();
                    async move { client.resume_backfill(request).await }
                })
                .await;
            let started = started.map_err(|status| connection.fault(&status))?;
            Ok(Started {
                update_id: started.update_id,
                pipeline_id: started.pipeline_id,
            })
        }
    }
}

fn line(backfill: pb::Backfill) -> Line {
    let slices = backfill.slices.unwrap_or_default();
    Line {
        backfill_id: backfill.backfill_id,
        flow: backfill.flow,
        column: backfill.column,
        from: backfill.from,
        to: backfill.to,
        by: Some(backfill.by).filter(|by| !by.is_empty()),
        state: backfill.state,
        total: slices.total,
        completed: slices.completed,
        failed: slices.failed,
        slices: backfill
            .all_slices
            .into_iter()
            .map(|s| SliceLine {
                from: s.from,
                to: s.to,
                state: s.state,
            })
            .collect(),
    }
}

/// The backfills of a pipeline, the newest first.
pub async fn list(
    config: &PipelineConfig,
    flow: Option<&str>,
    scheduler: &str,
) -> Result<Vec<Line>, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let mut lines = Vec::new();
    let mut token = String::new();
    loop {
        let request = pb::ListBackfillsRequest {
            pipeline: Some(reference(config)),
            flow: flow.unwrap_or_default().to_string(),
            page_size: 100,
            page_token: token,
        };
        let response = connection
            .ask(|mut client| {
                let request = request.clone();
                async move { client.list_backfills(request).await }
            })
            .await;
        let response = response.map_err(|status| connection.fault(&status))?;
        lines.extend(response.backfills.into_iter().map(line));
        token = response.next_page_token;
        if token.is_empty() {
            return Ok(lines);
        }
    }
}

/// One backfill with its slices.
pub async fn show(config: &PipelineConfig, id: &str, scheduler: &str) -> Result<Line, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let request = pb::GetBackfillRequest {
        pipeline: Some(reference(config)),
        backfill_id: id.to_string(),
        with_slices: true,
    };
    let response = connection
        .ask(|mut client| {
            let request = request.clone();
            async move { client.get_backfill(request).await }
        })
        .await;
    let response = response.map_err(|status| connection.fault(&status))?;
    Ok(line(response.backfill.unwrap_or_default()))
}

/// Asks for the end of one.
pub async fn stop(config: &PipelineConfig, id: &str, scheduler: &str) -> Result<Line, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let request = pb::StopBackfillRequest {
        pipeline: Some(reference(config)),
        backfill_id: id.to_string(),
    };
    let response = connection
        .ask(|mut client| {
            let request = request.clone();
            async move { client.stop_backfill(request).await }
        })
        .await;
    let response = response.map_err(|status| connection.fault(&status))?;
    Ok(line(response.backfill.unwrap_or_default()))
}
