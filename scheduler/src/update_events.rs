//! The events of an update as it goes on: its own progress, each flow's plan and end.

use serde_json::{Value, json};
use windrow_flows::refresh::Technique;

use crate::events::Level;
use crate::report::{FlowReport, FlowStatus};
use crate::update::Inner;

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
            FlowStatus::Skipped => Level::Warn,
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
        let issues: Vec<Value> = report
            .fallback_reasons
            .iter()
            .map(|r| json!({"issue_type": r.word(), "prevent_incrementalization": true}))
            .collect();
        let information: Vec<Value> = [
            Technique::NoOp,
            Technique::PartitionOverwrite,
            Technique::CompleteRecompute,
        ]
        .into_iter()
        .map(|t| {
            json!({"maintenance_type": format!("MAINTENANCE_TYPE_{}", t.word()),
                    "is_chosen": t == technique,
                    "is_applicable": t == technique || t == Technique::CompleteRecompute,
                    "incrementalization_issues": if t == Technique::CompleteRecompute { json!([]) }
                        else { json!(issues) }})
        })
        .collect();
        self.recorder.add(
            "planning_information",
            Some((&flow.name, target)),
            Level::Info,
            format!("flow {} is refreshed by {}", flow.name, technique.word()),
            json!({"technique_information": information, "predicate": report.predicate,
                "source_table_information": report.sources}),
        );
    }
}
