//! `events` by a scheduler.

use serde_json::Value;
use windrow_proto::v1 as pb;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::report::FaultReport;

use super::connection::Connection;
use super::reference;
use crate::args::EventsArgs;

const PAGE: usize = 1000;

/// The newest events that pass, oldest first.
pub async fn list(
    args: &EventsArgs,
    config: &PipelineConfig,
    scheduler: &str,
) -> Result<Vec<Value>, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let mut pages: Vec<Vec<Value>> = Vec::new();
    let mut left = args.last;
    let mut token = String::new();
    while left > 0 {
        let request = pb::ListEventsRequest {
            pipeline: Some(reference(config)),
            flow_name: args.flow.clone().unwrap_or_default(),
            update_id: args.update.clone().unwrap_or_default(),
            event_type: args.event_type.clone().unwrap_or_default(),
            level: args.level.clone().unwrap_or_default(),
            page_size: u32::try_from(left.min(PAGE)).unwrap_or(1),
            page_token: token,
        };
        let response = connection
            .ask(|mut client| {
                let request = request.clone();
                async move { client.list_events(request).await }
            })
            .await;
        let response = response.map_err(|status| connection.fault(&status))?;
        left = left.saturating_sub(response.events.len());
        let events = response.events.iter();
        pages.push(
            events
                .filter_map(|e| serde_json::from_str(&e.event_json).ok())
                .collect(),
        );
        token = response.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(pages.into_iter().rev().flatten().collect())
}
