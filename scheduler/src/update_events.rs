//! The events of an update as it goes on: what it is, its progress, each flow's plan and end, and the
//! note that stands for them until the event log is written.

use chrono::SecondsFormat;
use serde_json::{Value, json};
use windrow_delta::Table;
use windrow_flows::definition::TableKind;
use windrow_flows::refresh::Technique;

use crate::events::{self, Level, Pending, PendingTarget};
use crate::report::{FlowReport, FlowStatus, Problem, UpdateState};
use crate::update::{Inner, Update};

impl Inner {
    pub(crate) fn progress(&self, state: &str, level: Level) {
        self.recorder.add(
            "update_progress",
            None,
            level,
            format!("update {} is {state}", self.id),
            json!({"state": state}),
        );
    }

    pub(crate) fn record_end(&self, index: usize, report: &FlowReport) {
        let flow = &self.project.flows[index];
        let target = &self.project.tables[flow.table].shown;
        let level = match report.status {
            FlowStatus::Completed | FlowStatus::Planned => Level::Info,
            FlowStatus::Skipped | FlowStatus::Canceled => Level::Warn,
            FlowStatus::Failed => Level::Error,
        };
        let error = report.error.as_ref().map(|e| {
            json!({"fatal": report.status == FlowStatus::Failed,
                "exceptions": [{"class_name": e.code, "message": e.message}]})
        });
        let mut message = format!("flow {} is {}", flow.name, report.status.word());
        if let Some(e) = &report.error {
            message.push_str(&format!(": {}", e.message));
        }
        self.recorder.add_with_error(
            "flow_progress",
            Some((&flow.name, target)),
            level,
            message,
            json!({"status": report.status.word(), "metrics": {
                    "num_output_rows": report.metrics.num_output_rows,
                    "num_deleted_rows": report.metrics.num_deleted_rows,
                    "num_output_bytes": report.metrics.bytes_written,
                    "executor_time_ms": report.metrics.duration_ms},
                "data_quality": {"dropped_records": 0, "expectations": []}}),
            error,
        );
    }

    pub(crate) fn record_planning(&self, index: usize, report: &FlowReport) {
        let flow = &self.project.flows[index];
        let target = &self.project.tables[flow.table].shown;
        let Some(technique) = report.technique else {
            return;
        };
        let reasons: Vec<Value> = report
            .fallback_reasons
            .iter()
            .map(|r| json!({"issue_type": r.word(), "prevent_incrementalization": true}))
            .collect();
        let mut information = Vec::new();
        for t in Technique::ALL {
            let mut found = report
                .considered
                .iter()
                .filter(|c| c.technique == t)
                .peekable();
            if found.peek().is_none() {
                let full = t == Technique::CompleteRecompute;
                information.push(json!({
                    "maintenance_type": format!("MAINTENANCE_TYPE_{}", t.word()),
                    "is_chosen": t == technique,
                    "is_applicable": t == technique || full,
                    "incrementalization_issues": if full { json!([]) } else { json!(reasons) }}));
            }
            for considered in found {
                let issues: Vec<Value> = considered
                    .issues
                    .iter()
                    .map(|i| {
                        json!({"issue_type": i.issue_type,
                        "prevent_incrementalization": i.prevent_incrementalization,
                        "message": i.words})
                    })
                    .collect();
                let issues = if considered.is_applicable || !issues.is_empty() {
                    issues
                } else {
                    reasons.clone()
                };
                let mut told = json!({
                    "maintenance_type": format!("MAINTENANCE_TYPE_{}", t.word()),
                    "is_chosen": considered.is_chosen,
                    "is_applicable": considered.is_applicable,
                    "cost": considered.cost,
                    "incrementalization_issues": issues});
                if let Some(runs) = considered.past_runs {
                    told["estimated_cost"] = json!(considered.estimated_cost);
                    told["past_runs"] = json!(runs);
                }
                information.push(told);
            }
        }
        self.recorder.add(
            "planning_information",
            Some((&flow.name, target)),
            Level::Info,
            format!("flow {} is refreshed by {}", flow.name, technique.word()),
            json!({"technique_information": information, "fallback_reasons": reasons, "predicate": report.predicate,
                "source_table_information": report.sources, "change_data": report.change_data}),
        );
    }
}

impl Update {
    /// Records what the update is, and leaves the note of it.
    pub(crate) async fn begin(&self) -> Result<(), Problem> {
        self.record_definitions();
        self.inner.noted().await
    }

    pub(crate) fn record_definitions(&self) {
        let inner = &self.inner;
        let config = &inner.project.config;
        let names: Vec<&str> = inner
            .selected
            .iter()
            .map(|i| inner.project.flows[*i].name.as_str())
            .collect();
        inner.recorder.add(
            "create_update",
            None,
            Level::Info,
            format!("update {} of pipeline {}", inner.id, config.name),
            json!({"now": inner.clock.to_rfc3339_opts(SecondsFormat::AutoSi, true), "flows": names,
                "overrides": inner.requests.iter().filter_map(|(i, r)| Some(json!({
                    "flow": inner.project.flows[*i].name,
                    "predicate": r.override_predicate.as_ref()?.text}))).collect::<Vec<_>>(),
                "full_refresh": inner.requests.iter().filter(|(_, r)| r.full_refresh)
                    .map(|(i, _)| inner.project.flows[*i].name.clone()).collect::<Vec<_>>()}),
        );
        for table in &inner.project.tables {
            inner.recorder.add(
                "dataset_definition",
                None,
                Level::Info,
                format!("table {}", table.shown),
                json!({"dataset": table.shown, "location": table.location.to_string(),
                    "dataset_type": if table.definition.kind == TableKind::MaterializedView
                        { "MATERIALIZED_VIEW" } else { "STREAMING_TABLE" },
                    "num_flows": table.flows.len()}),
            );
        }
        for flow in &inner.project.flows {
            let target = &inner.project.tables[flow.table].shown;
            inner.recorder.add(
                "flow_definition",
                Some((&flow.name, target)),
                Level::Info,
                format!("flow {} into {target}", flow.name),
                json!({"flow_type": flow.definition.kind.word(), "output_dataset": target,
                    "language": "SQL", "comment": flow.definition.comment}),
            );
        }
        inner.progress("RUNNING", Level::Info);
    }

    pub(crate) async fn end(&self, state: UpdateState) -> Result<(), Problem> {
        let inner = &self.inner;
        let config = &inner.project.config;
        let level = match state {
            UpdateState::Completed => Level::Info,
            UpdateState::Canceled => Level::Warn,
            _ => Level::Error,
        };
        inner.progress(state.word(), level);
        let problem = |e: windrow_delta::TableError| Problem {
            code: e.code().into(),
            message: e.to_string(),
            help: None,
        };
        crate::failpoint::reached("before_events");
        let session = inner.session().map_err(|e| Problem {
            code: "SESSION_NOT_STARTED".into(),
            message: e,
            help: None,
        })?;
        let log = events::log_location(&config.storage, &config.store_options).map_err(problem)?;
        events::append(&session, &log, &inner.id, &inner.recorder.events())
            .await
            .map_err(problem)?;
        crate::failpoint::reached("after_events");
        events::take_note(&config.storage, &config.store_options, &inner.id)
            .await
            .map_err(problem)
    }
}

impl Inner {
    /// Leaves the note of this update, once: who finds it after a crash knows what may be committed.
    /// Events of updates that crashed are written. Nothing may be written to a target before.
    pub(crate) async fn noted(&self) -> Result<(), Problem> {
        let noted = self.noted.get_or_init(|| self.leave_note());
        noted.await.clone()
    }

    async fn leave_note(&self) -> Result<(), Problem> {
        let config = &self.project.config;
        let table_problem = |e: windrow_delta::TableError| Problem {
            code: e.code().into(),
            message: e.to_string(),
            help: Some("check `storage` and the access to it".into()),
        };
        let state = self.session().map_err(|e| Problem {
            code: "SESSION_NOT_STARTED".into(),
            message: e,
            help: None,
        })?;
        let log =
            events::log_location(&config.storage, &config.store_options).map_err(table_problem)?;
        let (recovered, before) = futures::join!(
            events::recover(&state, &config.storage, &config.store_options),
            Table::open(&log, None)
        );
        let recovered = recovered.map_err(table_problem)?;
        for id in recovered {
            tracing::info!(
                update = id,
                "events of an update whose process had ended were written"
            );
        }
        let log_version = before.map_err(table_problem)?.map_or(-1, |t| t.version());
        let targets = self
            .selected
            .iter()
            .map(|i| {
                let flow = &self.project.flows[*i];
                let table = &self.project.tables[flow.table];
                PendingTarget {
                    flow: flow.name.clone(),
                    dataset: table.shown.clone(),
                    url: table.location.to_string(),
                    version: self.existing.get(&flow.table).map_or(-1, Table::version),
                }
            })
            .collect();
        let pending = Pending::new(&self.recorder, log_version, targets);
        events::leave_note(&config.storage, &config.store_options, &pending)
            .await
            .map_err(table_problem)
    }
}
