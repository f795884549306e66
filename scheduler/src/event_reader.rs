//! Reading the event log back, for people and programs.

use std::sync::Arc;

use chrono::Utc;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit};
use serde_json::{Value, json};
use windrow_delta::{Table, TableError};
use windrow_executor::local;
use windrow_executor::scan::{DeltaSource, ScanLog};
use windrow_executor::session::{Engine, EngineOptions};

use crate::config::PipelineConfig;
use crate::events::log_location;

/// Which events are wanted; everything that is `None` lets all pass.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub flow: Option<String>,
    pub update: Option<String>,
    pub event_type: Option<String>,
    pub level: Option<String>,
    /// Only those that came before the event with this id.
    pub before: Option<String>,
    /// The newest so many.
    pub last: usize,
}

/// The events that pass, oldest first, as objects with the log's columns.
pub async fn read(config: &PipelineConfig, filter: &EventFilter) -> Result<Vec<Value>, TableError> {
    let location = log_location(&config.storage, &config.store_options)?;
    let Some(table) = Table::open(&location, None).await? else {
        return Ok(Vec::new());
    };
    let query = |e| TableError::Query {
        url: location.shown(),
        source: Box::new(e),
    };
    let mut events = rows(table, filter).await.map_err(query)?;
    let origin = |event: &Value, key: &str, wanted: &Option<String>| {
        wanted.as_ref().is_none_or(|w| {
            event
                .pointer(&format!("/origin/{key}"))
                .and_then(Value::as_str)
                .is_some_and(|v| v.eq_ignore_ascii_case(w))
        })
    };
    events
        .retain(|e| origin(e, "flow_name", &filter.flow) && origin(e, "update_id", &filter.update));
    if let Some(before) = &filter.before {
        let id = |event: &Value| event.get("id").and_then(Value::as_str) == Some(before.as_str());
        events.truncate(events.iter().position(id).unwrap_or(0));
    }
    let skip = events.len().saturating_sub(filter.last);
    Ok(events.split_off(skip))
}

async fn rows(table: Table, filter: &EventFilter) -> Result<Vec<Value>, DataFusionError> {
    let engine = Engine::new(&EngineOptions::default())?;
    let state = engine.session(Utc::now(), "UTC", false)?;
    let source = DeltaSource::new(table, "events", ScanLog::default())?;
    let mut plan = LogicalPlanBuilder::scan("events", provider_as_source(Arc::new(source)), None)?;
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    for (name, wanted) in [("event_type", &filter.event_type), ("level", &filter.level)] {
        if let Some(wanted) = wanted {
            plan = plan.filter(column(name).eq(lit(wanted.as_str())))?;
        }
    }
    let plan = plan
        .sort([
            column("timestamp").sort(true, true),
            column("id").sort(true, true),
        ])?
        .build()?;
    let physical = local::physical(&state, &plan).await?;
    let mut events = Vec::new();
    for batch in local::collect(&state, physical).await? {
        let text = |name: &str, row: usize| -> Option<String> {
            let column = batch.column_by_name(name)?;
            let column = column.as_string_opt::<i32>()?;
            column.is_valid(row).then(|| column.value(row).to_string())
        };
        let parsed = |name: &str, row: usize| -> Value {
            text(name, row)
                .and_then(|t| serde_json::from_str(&t).ok())
                .unwrap_or(Value::Null)
        };
        for row in 0..batch.num_rows() {
            let time = batch
                .column_by_name("timestamp")
                .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>())
                .and_then(|c| chrono::DateTime::from_timestamp_micros(c.value(row)))
                .map(|t| t.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
            events.push(
                json!({"id": text("id", row), "sequence": parsed("sequence", row),
                "origin": parsed("origin", row), "timestamp": time, "message": text("message", row),
                "level": text("level", row), "maturity_level": text("maturity_level", row),
                "error": parsed("error", row), "details": parsed("details", row),
                "event_type": text("event_type", row)}),
            );
        }
    }
    Ok(events)
}
