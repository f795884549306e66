//! Commands that a scheduler elsewhere carries out. What they print and how they end is the same as
//! when this process does it.

pub mod backfill;
mod connection;
pub mod events;
mod follow;
pub mod update;
pub mod updates;

use chrono::{DateTime, Utc};
use windrow_proto::v1 as pb;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::report::{FaultPlace, FaultReport};
use windrow_scheduler::service::spec_to_wire;
use windrow_scheduler::spec::PipelineSpec;

use crate::update::load;

pub use connection::Connection;

/// The pipeline with all that a scheduler needs of it.
fn reference(config: &PipelineConfig) -> pb::PipelineRef {
    pb::PipelineRef {
        by: Some(pb::pipeline_ref::By::Spec(spec_to_wire(PipelineSpec::of(
            config,
        )))),
    }
}

fn time(at: DateTime<Utc>) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.timestamp(),
        nanos: i32::try_from(at.timestamp_subsec_nanos()).unwrap_or(0),
    }
}

fn shown_time(at: Option<&prost_types::Timestamp>) -> Option<String> {
    let at = at?;
    let nanos = u32::try_from(at.nanos).ok()?;
    let at = DateTime::from_timestamp(at.seconds, nanos)?;
    Some(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

fn fault_of(fault: pb::Fault) -> FaultReport {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    FaultReport {
        code: fault.code,
        message: fault.message,
        help: text(fault.help),
        hint: text(fault.hint),
        place: (fault.line > 0).then_some(FaultPlace {
            file: fault.file,
            line: fault.line,
            column: fault.column,
            end_line: fault.end_line,
            end_column: fault.end_column,
            source_line: fault.source_line,
        }),
        rendered: fault.rendered,
    }
}

/// A fault without a place.
fn plain(code: &str, message: &str, help: Option<&str>) -> FaultReport {
    let mut rendered = format!("error[{code}]: {message}");
    if let Some(help) = help {
        rendered.push_str(&format!("\n  = help: {help}"));
    }
    FaultReport {
        code: code.into(),
        message: message.into(),
        help: help.map(str::to_string),
        hint: None,
        place: None,
        rendered,
    }
}

fn problem_of(problem: &pb::Problem) -> FaultReport {
    let help = Some(problem.help.as_str()).filter(|help| !help.is_empty());
    plain(&problem.code, &problem.message, help)
}

fn refusals(faults: &[windrow_flows::fault::Fault]) -> Vec<FaultReport> {
    faults.iter().map(FaultReport::from).collect()
}

/// Reads the pipeline and finds the scheduler.
async fn prepared(
    args: &crate::args::PipelineArgs,
    scheduler: &str,
) -> Result<(PipelineConfig, Option<DateTime<Utc>>, Connection), Vec<FaultReport>> {
    let (config, now) = load(args).map_err(|faults| refusals(&faults))?;
    let connection = Connection::open(scheduler).await.map_err(|f| vec![f])?;
    Ok((config, now, connection))
}
