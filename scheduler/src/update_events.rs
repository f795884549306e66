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
