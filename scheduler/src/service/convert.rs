//! Between the messages of `windrow.v1` and what the scheduler works with.

use chrono::{DateTime, Utc};
use windrow_flows::calendar;
use windrow_proto::v1 as pb;

use super::error::ServiceError;
use super::live::{Flows, Live, Told};
use super::pipelines::Known;
use super::record::{PipelineRecord, Request, State, UpdateRecord};
use crate::backfill::Preview;
use crate::events::{Event, event_json};
use crate::ledger::{Kept, SliceState};
use crate::report::{
    FaultReport, FlowReport, FlowStatus, Problem, SliceOutcome, UpdateReport, UpdateState,
};
use crate::spec::{PipelineSpec, SpecSource};

/// The spec as it is sent.
pub fn spec_to_wire(spec: PipelineSpec) -> pb::PipelineSpec {
    let named = |list: Vec<(String, String)>| {
        list.into_iter()
            .map(|(name, url)| pb::NamedLocation { name, url })
            .collect()
    };
    pb::PipelineSpec {
        name: spec.name,
        storage: spec.storage,
        catalog: spec.catalog,
        schema: spec.schema,
        configuration: spec.configuration,
        tables: named(spec.tables),
        catalogs: named(spec.catalogs),
        allowed_paths: spec.allowed_paths,
        object_store: spec.object_store,
        sources: spec
            .sources
            .into_iter()
            .map(|s| pb::SourceFile {
                name: s.name,
                text: s.text,
            })
            .collect(),
        base_url: spec.base_url,
    }
}

pub(crate) fn spec(sent: pb::PipelineSpec) -> PipelineSpec {
    let named = |list: Vec<pb::NamedLocation>| list.into_iter().map(|n| (n.name, n.url)).collect();
    PipelineSpec {
        name: sent.name,
        storage: sent.storage,
        catalog: sent.catalog,
        schema: sent.schema,
        configuration: sent.configuration,
        tables: named(sent.tables),
        catalogs: named(sent.catalogs),
        allowed_paths: sent.allowed_paths,
        object_store: sent.object_store,
        sources: sent
            .sources
            .into_iter()
            .map(|s| SpecSource {
                name: s.name,
                text: s.text,
            })
            .collect(),
        base_url: sent.base_url,
    }
}

/// A message that has to be there.
pub(crate) fn given<T>(sent: Option<T>, what: &str) -> Result<T, ServiceError> {
    sent.ok_or_else(|| ServiceError::WrongRequest {
        what: format!("the request has no `{what}`"),
    })
}

pub(crate) fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(crate) fn time(at: DateTime<Utc>) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.timestamp(),
        nanos: i32::try_from(at.timestamp_subsec_nanos()).unwrap_or(0),
    }
}

pub(crate) fn clock(
    sent: Option<prost_types::Timestamp>,
) -> Result<Option<DateTime<Utc>>, ServiceError> {
    let Some(sent) = sent else { return Ok(None) };
    u32::try_from(sent.nanos)
        .ok()
        .and_then(|nanos| DateTime::from_timestamp(sent.seconds, nanos))
        .map(Some)
        .ok_or_else(|| ServiceError::WrongRequest {
            what: "`now` is no time".into(),
        })
}

pub(crate) fn pipeline(record: PipelineRecord) -> pb::Pipeline {
    pb::Pipeline {
        pipeline_id: record.id,
        spec: Some(spec_to_wire(record.spec)),
        revision: record.revision,
        created: Some(time(record.created)),
        modified: Some(time(record.modified)),
    }
}

pub(crate) fn summary(id: String, known: Known, active: Option<String>) -> pb::PipelineSummary {
    pb::PipelineSummary {
        pipeline_id: id,
        name: known.name,
        storage: known.storage,
        revision: known.revision,
        created: Some(time(known.created)),
        modified: Some(time(known.modified)),
        active_update_id: active.unwrap_or_default(),
    }
}

pub(crate) fn fault(fault: FaultReport) -> pb::Fault {
    let place = fault.place;
    pb::Fault {
        code: fault.code,
        message: fault.message,
        help: fault.help.unwrap_or_default(),
        hint: fault.hint.unwrap_or_default(),
        line: place.as_ref().map_or(0, |p| p.line),
        column: place.as_ref().map_or(0, |p| p.column),
        end_line: place.as_ref().map_or(0, |p| p.end_line),
        end_column: place.as_ref().map_or(0, |p| p.end_column),
        source_line: place
            .as_ref()
            .map(|p| p.source_line.clone())
            .unwrap_or_default(),
        file: place.map(|p| p.file).unwrap_or_default(),
        rendered: fault.rendered,
    }
}

pub(crate) fn problem(problem: &Problem) -> pb::Problem {
    pb::Problem {
        code: problem.code.clone(),
        message: problem.message.clone(),
        help: problem.help.clone().unwrap_or_default(),
    }
}

fn status(status: FlowStatus) -> pb::FlowStatus {
    match status {
        FlowStatus::Completed => pb::FlowStatus::Completed,
        FlowStatus::Failed => pb::FlowStatus::Failed,
        FlowStatus::Skipped => pb::FlowStatus::Skipped,
        FlowStatus::Canceled => pb::FlowStatus::Canceled,
        FlowStatus::Planned => pb::FlowStatus::Planned,
    }
}

pub(crate) fn flow(report: &FlowReport) -> pb::Flow {
    let m = &report.metrics;
    pb::Flow {
        flow: report.flow.clone(),
        target: report.target.clone(),
        kind: report.kind.clone(),
        status: status(report.status).into(),
        technique: report
            .technique
            .map(|t| t.word().into())
            .unwrap_or_default(),
        fallback_reasons: report
            .fallback_reasons
            .iter()
            .map(|r| r.word().to_string())
            .collect(),
        predicate: report.predicate.clone().unwrap_or_default(),
        slices: Some(pb::SliceCounts {
            total: report.slices.total,
            completed: report.slices.completed,
            failed: report.slices.failed,
        }),
        table_version: report.table_version,
        metrics: Some(pb::FlowMetrics {
            num_output_rows: m.num_output_rows,
            num_deleted_rows: m.num_deleted_rows,
            num_copied_rows: m.num_copied_rows,
            num_files_added: m.num_files_added,
            num_files_removed: m.num_files_removed,
            bytes_scanned: m.bytes_scanned,
            bytes_written: m.bytes_written,
            duration_ms: m.duration_ms,
        }),
        error: report.error.as_ref().map(problem),
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, ServiceError> {
    serde_json::to_string(value).map_err(|e| ServiceError::Internal {
        reason: e.to_string(),
    })
}

/// The state in a list of states that clients know.
pub(crate) fn state(state: State, is_stopping: bool) -> pb::UpdateState {
    match state {
        State::Queued | State::Initializing | State::Running if is_stopping => {
            pb::UpdateState::Stopping
        }
        State::Queued => pb::UpdateState::Queued,
        State::Initializing => pb::UpdateState::Initializing,
        State::Running => pb::UpdateState::Running,
        State::Completed => pb::UpdateState::Completed,
        State::Failed => pb::UpdateState::Failed,
        State::Canceled => pb::UpdateState::Canceled,
    }
}

/// The state of a result, for a message of an update that has ended; `None` for one under way.
pub fn update_state(state: pb::UpdateState) -> Option<UpdateState> {
    match state {
        pb::UpdateState::Completed => Some(UpdateState::Completed),
        pb::UpdateState::Failed => Some(UpdateState::Failed),
        pb::UpdateState::Canceled => Some(UpdateState::Canceled),
        pb::UpdateState::Unspecified
        | pb::UpdateState::Queued
        | pb::UpdateState::Initializing
        | pb::UpdateState::Running
        | pb::UpdateState::Stopping => None,
    }
}

pub(crate) fn live(live: &Live, with_report: bool) -> Result<pb::Update, ServiceError> {
    let mut update = update(live.record(), Some(live.flows()), with_report)?;
    let as_known = state(live.state(), live.is_stopping());
    update.state = as_known.into();
    Ok(update)
}

pub(crate) fn update(
    record: UpdateRecord,
    flows: Option<Flows>,
    with_report: bool,
) -> Result<pb::Update, ServiceError> {
    let flows = match &record.report {
        Some(report) => report.flows.iter().map(flow).collect(),
        None => flows.unwrap_or_default().into_iter().map(begun).collect(),
    };
    let report_json = match record.report.as_ref().filter(|_| with_report) {
        Some(report) => json(report)?,
        None => String::new(),
    };
    Ok(pb::Update {
        update_id: record.id,
        pipeline_id: record.pipeline_id,
        pipeline_name: record.pipeline_name,
        kind: match record.request {
            Request::Update(_) => pb::UpdateKind::Update,
            Request::Backfill(_) => pb::UpdateKind::Backfill,
        }
        .into(),
        state: state(record.state, false).into(),
        created: Some(time(record.created)),
        started: record.started.map(time),
        ended: record.ended.map(time),
        flows,
        faults: record.faults.into_iter().map(fault).collect(),
        error: record.error.as_ref().map(problem),
        warnings: record.warnings,
        rows_at_risk: record
            .rows_at_risk
            .into_iter()
            .map(|r| pb::RowsAtRisk {
                table: r.table,
                rows: r.rows,
            })
            .collect(),
        backfill_id: record.backfill_id.unwrap_or_default(),
        retry_of: record.retry_of.unwrap_or_default(),
        retried_as: record.retried_as.unwrap_or_default(),
        report_json,
    })
}

fn begun((name, report): (String, Option<FlowReport>)) -> pb::Flow {
    match report {
        Some(report) => flow(&report),
        None => pb::Flow {
            flow: name,
            status: pb::FlowStatus::Running.into(),
            ..pb::Flow::default()
        },
    }
}

/// One thing that is told to a watcher; `None` for what it did not ask for.
pub(crate) fn told(
    told: &Told,
    with_events: bool,
) -> Result<Option<pb::update_event::What>, ServiceError> {
    use pb::update_event::What;
    Ok(Some(match told {
        Told::State(now) => What::State(state(*now, false).into()),
        Told::FlowStarted(flow) => What::FlowStarted(pb::FlowStarted { flow: flow.clone() }),
        Told::FlowEnded(report) => What::FlowEnded(pb::FlowEnded {
            flow: Some(flow(report)),
            report_json: json(report)?,
        }),
        Told::SliceEnded(flow, slice) => What::SliceEnded(slice_ended(flow, slice)?),
        Told::Event(event) if with_events => What::Event(recorded(event)),
        Told::Event(_) => return Ok(None),
        Told::Warning(warning) => What::Warning(warning.clone()),
    }))
}

fn slice_ended(flow: &str, slice: &SliceOutcome) -> Result<pb::SliceEnded, ServiceError> {
    Ok(pb::SliceEnded {
        flow: flow.to_string(),
        from: slice.from.clone(),
        to: slice.to.clone(),
        completed: slice.state == SliceState::Completed,
        rows: slice.rows,
        error: slice.error.as_ref().map(problem),
        slice_json: json(slice)?,
    })
}

fn recorded(event: &Event) -> pb::Event {
    pb::Event {
        id: event.id.clone(),
        timestamp: Some(time(event.timestamp)),
        level: event.level.word().to_string(),
        event_type: event.event_type.clone(),
        message: event.message.clone(),
        event_json: event_json(event).to_string(),
    }
}

/// A row of the event log that was read back.
pub(crate) fn event(row: &serde_json::Value) -> pb::Event {
    let text = |key: &str| {
        let found = row.get(key).and_then(serde_json::Value::as_str);
        found.unwrap_or_default().to_string()
    };
    let timestamp = DateTime::parse_from_rfc3339(&text("timestamp")).ok();
    pb::Event {
        id: text("id"),
        timestamp: timestamp.map(|t| time(t.with_timezone(&Utc))),
        level: text("level"),
        event_type: text("event_type"),
        message: text("message"),
        event_json: row.to_string(),
    }
}

pub(crate) fn backfill(kept: &Kept, active: Option<String>, with_slices: bool) -> pb::Backfill {
    let ledger = &kept.ledger;
    pb::Backfill {
        backfill_id: ledger.id.clone(),
        flow: ledger.flow.clone(),
        column: ledger.column.clone(),
        from: ledger.from.clone(),
        to: ledger.to.clone(),
        by: ledger.by.clone().unwrap_or_default(),
        state: kept.state(active.is_some()).to_string(),
        slices: Some(pb::SliceCounts {
            total: ledger.slices.len() as u64,
            completed: ledger.count(SliceState::Completed),
            failed: ledger.count(SliceState::Failed),
        }),
        active_update_id: active.unwrap_or_default(),
        all_slices: if with_slices {
            let slices = ledger.slices.iter();
            slices
                .map(|s| pb::BackfillSlice {
                    from: s.from.clone(),
                    to: s.to.clone(),
                    state: s.state.word().to_string(),
                })
                .collect()
        } else {
            Vec::new()
        },
    }
}

pub(crate) fn preview(preview: Preview) -> pb::PlanBackfillResponse {
    let open = preview.open.into_iter().flatten();
    pb::PlanBackfillResponse {
        faults: Vec::new(),
        flow: preview.flow,
        column: preview.column,
        from: preview.from,
        to: preview.to,
        by: preview.by.unwrap_or_default(),
        open: open
            .map(|o| pb::PastRange {
                from: calendar::shown(o.from),
                to: calendar::shown(o.to),
                state: o.state.word().into(),
                backfill_id: o.backfill.unwrap_or_default(),
            })
            .collect(),
        slices: preview
            .slices
            .into_iter()
            .map(|(from, to, state)| pb::PastRange {
                from,
                to,
                state: state.map(|s| s.word().to_string()).unwrap_or_default(),
                backfill_id: String::new(),
            })
            .collect(),
        warnings: preview.warnings,
    }
}

pub(crate) fn plan(report: &UpdateReport) -> Result<pb::PlanUpdateResponse, ServiceError> {
    Ok(pb::PlanUpdateResponse {
        faults: Vec::new(),
        flows: report.flows.iter().map(flow).collect(),
        warnings: report.warnings.clone(),
        error: report.error.as_ref().map(problem),
        report_json: json(report)?,
        pipeline_name: report.pipeline.clone(),
    })
}
