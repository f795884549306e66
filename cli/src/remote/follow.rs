//! Follows an update on a scheduler until it ends, through lost connections, and stops it when the
//! user says so.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anstream::eprintln;
use windrow_proto::v1 as pb;
use windrow_scheduler::report::{FaultReport, FlowReport, SliceOutcome};
use windrow_scheduler::service::update_state;
use windrow_scheduler::update::Progress;

use super::connection::{Connection, FIRST_WAIT, LONGEST_WAIT, may_pass};
use super::plain;
use crate::args::Output;
use crate::update::Shown;

/// How long the answer to a stop is waited for.
const STOP: Duration = Duration::from_secs(40);

/// How following came to an end.
pub enum Followed {
    Ended(Box<pb::Update>),
    /// The user stopped it.
    Stopped,
    /// Nothing is known of it any more.
    Lost(FaultReport),
}

enum Broken {
    /// It may be there again soon.
    Away(tonic::Status),
    Refused(tonic::Status),
}

struct Follower {
    shown: Shown,
    /// The number of the last thing that was told.
    after: u64,
    ended: BTreeSet<String>,
    warned: BTreeSet<String>,
}

/// Follows an update, showing what it does.
pub async fn follow(
    connection: &mut Connection,
    update_id: &str,
    pipeline_id: &str,
    output: Output,
) -> Followed {
    let mut follower = Follower {
        shown: Shown::new(output),
        after: 0,
        ended: BTreeSet::new(),
        warned: BTreeSet::new(),
    };
    let mut update_id = update_id.to_string();
    loop {
        let followed = tokio::select! {
            followed = follower.until_end(connection, &update_id, pipeline_id) => followed,
            _ = tokio::signal::ctrl_c() => {
                follower.shown.clear();
                stop(connection, &update_id, pipeline_id).await;
                return Followed::Stopped;
            }
        };
        match followed {
            Ok(update) if !update.retried_as.is_empty() => {
                eprintln!(
                    "the scheduler went away; update {} runs in its place",
                    update.retried_as
                );
                update_id = update.retried_as;
                follower.after = 0;
                follower.ended.clear();
            }
            Ok(update) => {
                follower.rest(&update);
                follower.shown.clear();
                return Followed::Ended(Box::new(update));
            }
            Err(fault) => {
                follower.shown.clear();
                return Followed::Lost(fault);
            }
        }
    }
}

async fn stop(connection: &mut Connection, update_id: &str, pipeline_id: &str) {
    let request = pb::StopUpdateRequest {
        update_id: update_id.to_string(),
        pipeline_id: pipeline_id.to_string(),
    };
    let asked = connection.ask(|mut client| {
        let request = request.clone();
        async move { client.stop_update(request).await }
    });
    let stopped = tokio::select! {
        stopped = tokio::time::timeout(STOP, asked) => stopped,
        // Said twice, it means at once.
        _ = tokio::signal::ctrl_c() => return,
    };
    match stopped {
        Ok(Ok(_)) => {}
        Ok(Err(status)) => eprintln!("{}", connection.fault(&status).rendered),
        Err(_) => eprintln!("the scheduler has not answered; update {update_id} may go on"),
    }
}

impl Follower {
    async fn until_end(
        &mut self,
        connection: &mut Connection,
        update_id: &str,
        pipeline_id: &str,
    ) -> Result<pb::Update, FaultReport> {
        let mut away_since: Option<Instant> = None;
        let mut wait = FIRST_WAIT;
        loop {
            let before = self.after;
            let broken = match self.once(connection, update_id, pipeline_id).await {
                Ok(Some(update)) => return Ok(update),
                Ok(None) => Broken::Away(tonic::Status::unavailable("it ended the stream")),
                Err(broken) => broken,
            };
            let status = match broken {
                Broken::Away(status) => status,
                Broken::Refused(status) => return Err(connection.fault(&status)),
            };
            if self.after != before {
                away_since = None;
                wait = FIRST_WAIT;
            }
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() > connection.patience {
                return Err(plain(
                    "SCHEDULER_LOST",
                    &format!(
                        "the scheduler has been away for {} s ({}); update {update_id} may have ended or may still run",
                        connection.patience.as_secs(),
                        connection.fault(&status).message
                    ),
                    Some("see `windrow updates` when it is back"),
                ));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One stream: the update when it has ended, or nothing when the stream has.
    async fn once(
        &mut self,
        connection: &mut Connection,
        update_id: &str,
        pipeline_id: &str,
    ) -> Result<Option<pb::Update>, Broken> {
        let broken = |status: tonic::Status| {
            if may_pass(&status) {
                Broken::Away(status)
            } else {
                Broken::Refused(status)
            }
        };
        let request = pb::WatchUpdateRequest {
            update_id: update_id.to_string(),
            pipeline_id: pipeline_id.to_string(),
            after_sequence: self.after,
            with_events: false,
        };
        let watched = connection.client.watch_update(request).await;
        let mut events = watched.map_err(broken)?.into_inner();
        while let Some(event) = events.message().await.map_err(broken)? {
            if event.sequence > 0 {
                self.after = event.sequence;
            }
            match event.what {
                Some(pb::update_event::What::Update(update)) => {
                    for warning in &update.warnings {
                        self.warn(warning);
                    }
                    if event.last {
                        return Ok(update_state(update.state()).map(|_| update));
                    }
                }
                Some(what) => self.show(what),
                None => {}
            }
        }
        Ok(None)
    }

    fn warn(&mut self, warning: &str) {
        if self.warned.insert(warning.to_string()) {
            self.shown.note(warning);
        }
    }

    fn show(&mut self, what: pb::update_event::What) {
        use pb::update_event::What;
        match what {
            What::FlowStarted(started) => self.shown.flow_started(&started.flow),
            What::FlowEnded(ended) => {
                if let Ok(report) = serde_json::from_str::<FlowReport>(&ended.report_json) {
                    self.ended.insert(report.flow.clone());
                    self.shown.flow_ended(&report);
                }
            }
            What::SliceEnded(ended) => {
                if let Ok(slice) = serde_json::from_str::<SliceOutcome>(&ended.slice_json) {
                    self.shown.slice_ended(&ended.flow, &slice);
                }
            }
            What::Warning(warning) => self.warn(&warning),
            What::Update(_) | What::State(_) | What::Event(_) => {}
        }
    }

    /// Flows whose end was missed while the connection was lost.
    fn rest(&mut self, update: &pb::Update) {
        let report =
            serde_json::from_str::<windrow_scheduler::report::UpdateReport>(&update.report_json);
        for flow in report.iter().flat_map(|r| &r.flows) {
            if !self.ended.contains(&flow.flow) {
                self.shown.flow_ended(flow);
            }
        }
    }
}
