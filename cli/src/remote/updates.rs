//! `updates` by a scheduler.

use windrow_proto::v1 as pb;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::report::FaultReport;
use windrow_scheduler::service::update_state;

use super::connection::Connection;
use super::{reference, shown_time};
use crate::updates::Line;

/// The newest updates of a pipeline, the newest first.
pub async fn list(
    config: &PipelineConfig,
    last: usize,
    scheduler: &str,
) -> Result<Vec<Line>, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let mut lines = Vec::new();
    let mut token = String::new();
    while lines.len() < last {
        let request = pb::ListUpdatesRequest {
            pipeline: Some(reference(config)),
            page_size: u32::try_from((last - lines.len()).min(100)).unwrap_or(1),
            page_token: token,
        };
        let response = connection
            .ask(|mut client| {
                let request = request.clone();
                async move { client.list_updates(request).await }
            })
            .await;
        let response = response.map_err(|status| connection.fault(&status))?;
        lines.extend(response.updates.iter().map(line));
        token = response.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(lines)
}

fn line(update: &pb::Update) -> Line {
    Line {
        update_id: update.update_id.clone(),
        pipeline: update.pipeline_name.clone(),
        state: word(update.state()).to_string(),
        created: shown_time(update.created.as_ref()).unwrap_or_default(),
        ended: shown_time(update.ended.as_ref()),
    }
}

fn word(state: pb::UpdateState) -> &'static str {
    match update_state(state) {
        Some(state) => state.word(),
        None => match state {
            pb::UpdateState::Queued => "QUEUED",
            pb::UpdateState::Initializing => "INITIALIZING",
            pb::UpdateState::Stopping => "STOPPING",
            _ => "RUNNING",
        },
    }
}

/// Stops an update, and gives it as it then stands.
pub async fn stop(id: &str, scheduler: &str) -> Result<Line, FaultReport> {
    let connection = Connection::open(scheduler).await?;
    let request = pb::StopUpdateRequest {
        update_id: id.to_string(),
        pipeline_id: String::new(),
    };
    let response = connection
        .ask(|mut client| {
            let request = request.clone();
            async move { client.stop_update(request).await }
        })
        .await;
    let response = response.map_err(|status| connection.fault(&status))?;
    Ok(line(&response.update.unwrap_or_default()))
}
