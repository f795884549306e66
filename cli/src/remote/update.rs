//! `run`, `plan` and `validate` by a scheduler.

use std::process::ExitCode;

use anstream::eprintln;
use windrow_proto::v1 as pb;
use windrow_scheduler::report::{FaultReport, UpdateReport};
use windrow_scheduler::update::{RowsAtRisk, UpdateOptions};

use super::connection::{Connection, FIRST_WAIT, does_not_lead, may_pass};
use super::follow::{Followed, follow};
use super::{fault_of, plain, prepared, problem_of, reference, refusals, time};
use crate::args::{Output, PipelineArgs, UpdateArgs};
use crate::update::{CANCELED, FAILED, agree, ended, options, planned, refuse_all, valid};

/// Tries at starting something when the scheduler goes away in the very moment.
const TRIES: u32 = 5;

/// `windrow validate`.
pub async fn validate(args: &PipelineArgs, scheduler: &str) -> ExitCode {
    let shown = args.pipeline.display().to_string();
    match checked(args, scheduler).await {
        Ok(response) if response.valid => {
            valid(args.output, &response.pipeline_name, &response.warnings)
        }
        Ok(response) => {
            let faults: Vec<FaultReport> = response.faults.into_iter().map(fault_of).collect();
            refuse_all(args.output, &shown, &faults)
        }
        Err(faults) => refuse_all(args.output, &shown, &faults),
    }
}

async fn checked(
    args: &PipelineArgs,
    scheduler: &str,
) -> Result<pb::ValidatePipelineResponse, Vec<FaultReport>> {
    let (config, now, connection) = prepared(args, scheduler).await?;
    let request = pb::ValidatePipelineRequest {
        pipeline: Some(reference(&config)),
        now: now.map(time),
    };
    let response = connection
        .ask(|mut client| {
            let request = request.clone();
            async move { client.validate_pipeline(request).await }
        })
        .await;
    response.map_err(|status| vec![connection.fault(&status)])
}

/// `windrow plan`.
pub async fn plan(args: &UpdateArgs, scheduler: &str) -> ExitCode {
    let output = args.pipeline.output;
    match plan_of(args, scheduler).await {
        Ok(report) => planned(output, &report),
        Err(faults) => refuse_all(
            output,
            &args.pipeline.pipeline.display().to_string(),
            &faults,
        ),
    }
}

async fn plan_of(args: &UpdateArgs, scheduler: &str) -> Result<UpdateReport, Vec<FaultReport>> {
    let (request, connection) = request(args, scheduler).await?;
    let request = pb::PlanUpdateRequest {
        update: Some(request),
    };
    let response = connection
        .ask(|mut client| {
            let request = request.clone();
            async move { client.plan_update(request).await }
        })
        .await;
    let response = response.map_err(|status| vec![connection.fault(&status)])?;
    if !response.faults.is_empty() {
        return Err(response.faults.into_iter().map(fault_of).collect());
    }
    read(&response.report_json).map_err(|fault| vec![fault])
}

/// A result, as this version of Windrow writes it.
pub fn read(report: &str) -> Result<UpdateReport, FaultReport> {
    serde_json::from_str(report).map_err(|error| {
        plain(
            "SCHEDULER_OTHER_VERSION",
            &format!("the scheduler's result can't be read: {error}"),
            Some("scheduler and client must be of the same version"),
        )
    })
}

async fn request(
    args: &UpdateArgs,
    scheduler: &str,
) -> Result<(pb::StartUpdateRequest, Connection), Vec<FaultReport>> {
    let (config, now, connection) = prepared(&args.pipeline, scheduler).await?;
    let options = options(args, now).map_err(|faults| refusals(&faults))?;
    let UpdateOptions {
        refresh,
        full_refresh,
        full_refresh_all,
        replace_where,
        now,
        yes,
        slicing,
        ..
    } = options;
    let request = pb::StartUpdateRequest {
        slice_by: slicing
            .by
            .map(|by| by.word().to_string())
            .unwrap_or_default(),
        parallel: u32::try_from(slicing.parallel).unwrap_or(u32::MAX),
        pipeline: Some(reference(&config)),
        refresh_selection: refresh,
        full_refresh: full_refresh_all,
        full_refresh_selection: full_refresh,
        replace_where_overrides: replace_where
            .into_iter()
            .map(|(flow_name, predicate_override)| pb::ReplaceWhereOverride {
                flow_name,
                predicate_override,
            })
            .collect(),
        validate_only: false,
        now: now.map(time),
        agree_to_rows_lost: yes,
        idempotency_token: uuid::Uuid::new_v4().to_string(),
    };
    Ok((request, connection))
}

/// `windrow run`.
pub async fn run(args: &UpdateArgs, scheduler: &str) -> ExitCode {
    let output = args.pipeline.output;
    let shown = args.pipeline.pipeline.display().to_string();
    let (mut request, mut connection) = match request(args, scheduler).await {
        Ok(prepared) => prepared,
        Err(faults) => return refuse_all(output, &shown, &faults),
    };
    loop {
        let started = match start(&connection, &request).await {
            Ok(started) => started,
            Err(fault) => return refuse_all(output, &shown, &[fault]),
        };
        let (update_id, pipeline_id) = (&started.update_id, &started.pipeline_id);
        let followed = follow(&mut connection, update_id, pipeline_id, output).await;
        let update = match followed {
            Followed::Ended(update) => update,
            other => {
                return unended(
                    other,
                    "cancelled; flows that had not committed changed nothing",
                );
            }
        };
        if update.rows_at_risk.is_empty() {
            return finished(output, &shown, *update);
        }
        let at_risk: Vec<RowsAtRisk> = update
            .rows_at_risk
            .into_iter()
            .map(|r| RowsAtRisk {
                table: r.table,
                rows: r.rows,
            })
            .collect();
        if let Err(fault) = agree(&at_risk) {
            return refuse_all(output, &shown, &refusals(&[fault]));
        }
        request.agree_to_rows_lost = true;
        request.idempotency_token = uuid::Uuid::new_v4().to_string();
    }
}

async fn start(
    connection: &Connection,
    request: &pb::StartUpdateRequest,
) -> Result<pb::StartUpdateResponse, FaultReport> {
    let ask = async || {
        connection
            .ask(|mut client| {
                let request = request.clone();
                async move { client.start_update(request).await }
            })
            .await
    };
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIES {
        match ask().await {
            Ok(started) => return Ok(started),
            // One that did not lead was asked long enough.
            Err(status) if may_pass(&status) && !does_not_lead(&status) => {}
            Err(status) => return Err(connection.fault(&status)),
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    ask().await.map_err(|status| connection.fault(&status))
}

/// How a command ends that did not see the end of its update.
pub fn unended(followed: Followed, words: &str) -> ExitCode {
    match followed {
        Followed::Ended(_) => ExitCode::SUCCESS,
        Followed::Stopped => {
            eprintln!("{words}");
            ExitCode::from(CANCELED)
        }
        Followed::Lost(fault) => {
            eprintln!("{}", fault.rendered);
            ExitCode::from(FAILED)
        }
    }
}

/// Shows an update that has ended.
pub fn finished(output: Output, pipeline: &str, update: pb::Update) -> ExitCode {
    if !update.faults.is_empty() {
        let faults: Vec<FaultReport> = update.faults.into_iter().map(fault_of).collect();
        return refuse_all(output, pipeline, &faults);
    }
    if update.report_json.is_empty() {
        // It ended before it wrote anything.
        let fault = update.error.as_ref().map_or_else(
            || plain("UPDATE_WITHOUT_RESULT", "the update has no result", None),
            problem_of,
        );
        let code = refuse_all(output, pipeline, &[fault]);
        return match update.state() {
            pb::UpdateState::Canceled => ExitCode::from(CANCELED),
            _ => code,
        };
    }
    let report = match read(&update.report_json) {
        Ok(report) => report,
        Err(fault) => {
            eprintln!("{}", fault.rendered);
            return ExitCode::from(FAILED);
        }
    };
    let was_interrupted = report
        .error
        .as_ref()
        .is_some_and(|e| e.code == "UPDATE_INTERRUPTED");
    let code = ended(output, &report);
    // Nobody can say that it wrote nothing.
    if was_interrupted {
        return ExitCode::from(FAILED);
    }
    code
}
