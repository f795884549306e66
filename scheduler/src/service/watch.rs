//! WatchUpdate: what is told of an update, at the pace of the one who watches.
//!
//! A watcher holds a place in the update's ring and takes a handful at a time, so a slow one costs no
//! memory. It begins with the update as it stands and ends with the update as it ended.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;
use windrow_proto::v1 as pb;

use super::error::ServiceError;
use super::live::{Live, Next};
use super::metrics::Metrics;
use super::{Inner, convert};

/// Things that are taken from the ring at a time.
const TAKEN: usize = 64;

struct Watcher {
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    news: watch::Receiver<u64>,
    /// The number of the last thing that was told.
    at: u64,
    with_events: bool,
    ready: VecDeque<pb::UpdateEvent>,
    is_done: bool,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.metrics.watcher_ended();
    }
}

impl Inner {
    /// The stream of one watcher.
    pub(crate) fn watch(
        &self,
        live: Arc<Live>,
        after: u64,
        with_events: bool,
    ) -> Result<impl Stream<Item = Result<pb::UpdateEvent, Status>> + Send + use<>, ServiceError>
    {
        let permit = self.watchers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ServiceError::Full {
            what: "watchers",
            limit: super::MOST_WATCHERS,
        })?;
        self.metrics.watcher_began();
        let mut watcher = Watcher {
            news: live.news(),
            live,
            metrics: self.metrics.clone(),
            at: after,
            with_events,
            ready: VecDeque::new(),
            is_done: false,
            _permit: permit,
        };
        // The first answer is the update as it stands, so nothing is missed by what is no longer kept.
        if let Next::Missed(at) = watcher.live.next(after, TAKEN) {
            watcher.at = at;
        }
        watcher.stands(false)?;
        Ok(futures::stream::unfold(watcher, |mut watcher| async move {
            let next = watcher.next().await.transpose()?;
            Some((next, watcher))
        }))
    }
}

impl Watcher {
    fn stands(&mut self, is_last: bool) -> Result<(), ServiceError> {
        let update = convert::live(&self.live, is_last)?;
        self.ready.push_back(pb::UpdateEvent {
            sequence: 0,
            what: Some(pb::update_event::What::Update(update)),
            last: is_last,
        });
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<pb::UpdateEvent>, Status> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            if self.is_done {
                return Ok(None);
            }
            self.news.borrow_and_update();
            // Read in this order: all is told before the end.
            let has_ended = self.live.has_ended();
            match self.live.next(self.at, TAKEN) {
                Next::Told(first, told) => {
                    for (told, sequence) in told.iter().zip(first..) {
                        self.at = sequence;
                        let what = convert::told(told, self.with_events)?;
                        self.ready.extend(what.map(|what| pb::UpdateEvent {
                            sequence,
                            what: Some(what),
                            last: false,
                        }));
                    }
                }
                Next::Missed(at) => {
                    self.at = at;
                    self.stands(false)?;
                }
                Next::Nothing if has_ended => {
                    self.is_done = true;
                    self.stands(true)?;
                }
                Next::Nothing => {
                    if self.news.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::live::Told;
    use crate::service::record::{FORMAT, Request, State, UpdateRecord, UpdateRequest};

    fn live() -> Arc<Live> {
        Arc::new(Live::new(UpdateRecord {
            format: FORMAT,
            id: "u".into(),
            pipeline_id: "p".into(),
            pipeline_name: "p".into(),
            pipeline_revision: 1,
            request: Request::Update(UpdateRequest::default()),
            now: None,
            token: String::new(),
            state: State::Running,
            created: chrono::Utc::now(),
            started: None,
            ended: None,
            scheduler: "s".into(),
            attempt: 1,
            retry_of: None,
            retried_as: None,
            backfill_id: None,
            warnings: Vec::new(),
            faults: Vec::new(),
            rows_at_risk: Vec::new(),
            error: None,
            report: None,
        }))
    }

    fn watcher(live: &Arc<Live>, after: u64) -> Watcher {
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        Watcher {
            news: live.news(),
            live: live.clone(),
            metrics: Arc::default(),
            at: after,
            with_events: false,
            ready: VecDeque::new(),
            is_done: false,
            _permit: permits.try_acquire_owned().expect("a permit"),
        }
    }

    async fn all(mut watcher: Watcher) -> Vec<pb::UpdateEvent> {
        let mut all = Vec::new();
        while let Some(event) = watcher.next().await.expect("an event") {
            all.push(event);
        }
        all
    }

    fn warned(events: &[pb::UpdateEvent]) -> usize {
        let is_warning =
            |e: &&pb::UpdateEvent| matches!(e.what, Some(pb::update_event::What::Warning(_)));
        events.iter().filter(is_warning).count()
    }

    #[tokio::test]
    async fn one_who_comes_back_hears_the_rest_once() {
        let live = live();
        let begin = live.last();
        for n in 0..10 {
            live.tell(Told::Warning(n.to_string()));
        }
        live.end();
        let events = all(watcher(&live, begin + 4)).await;
        assert_eq!(warned(&events), 6);
        assert_eq!(events[0].sequence, begin + 5);
        let last = events.last().expect("an event");
        assert!(matches!(last.what, Some(pb::update_event::What::Update(_))));
        assert!(last.last);
    }

    #[tokio::test]
    async fn one_who_is_too_slow_gets_the_update_instead() {
        let live = live();
        let begin = live.last();
        for n in 0..5000 {
            live.tell(Told::Warning(n.to_string()));
        }
        live.end();
        let events = all(watcher(&live, begin)).await;
        assert_eq!(warned(&events), 4096);
        assert!(matches!(
            events[0].what,
            Some(pb::update_event::What::Update(_))
        ));
    }

    #[tokio::test]
    async fn one_who_waits_is_woken_by_the_end() {
        let live = live();
        let waiting = tokio::spawn(all(watcher(&live, live.last())));
        tokio::task::yield_now().await;
        live.tell(Told::Warning("late".into()));
        live.end();
        let events = waiting.await.expect("a task");
        assert_eq!(warned(&events), 1);
    }
}
