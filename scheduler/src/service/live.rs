//! An update in the hands of this scheduler: where it stands, what is told of it, and its stop.
//!
//! What is told is kept in a ring of bounded length that watchers read at their own pace; one that is
//! too slow misses the oldest and is given the update as it stands instead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use chrono::Utc;
use tokio::sync::watch;

use super::record::{State, UpdateRecord};
use super::store::Version;
use crate::events::{Event, Recorder};
use crate::report::{FlowReport, SliceOutcome};
use crate::update::Progress;

/// Things told of one update that are kept for watchers.
const KEPT: usize = 4096;

/// One thing that is told of an update.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    State(State),
    FlowStarted(String),
    FlowEnded(Box<FlowReport>),
    SliceEnded(String, Box<SliceOutcome>),
    Event(Box<Event>),
    Warning(String),
}

#[derive(Debug)]
struct Story {
    /// The number of the newest. They begin with the time, so that a watcher who comes from another run
    /// of the scheduler never takes new ones for old.
    last: u64,
    kept: VecDeque<Arc<Told>>,
    /// How many rows of the event log were told.
    events: usize,
}

/// A flow that has begun, and how it ended.
pub(crate) type Flows = BTreeMap<String, Option<FlowReport>>;

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: String,
    pub(crate) pipeline_id: String,
    record: Mutex<UpdateRecord>,
    /// The record's version on the storage; whoever writes it holds this.
    pub(crate) saved: tokio::sync::Mutex<Option<Version>>,
    flows: Mutex<Flows>,
    story: Mutex<Story>,
    told: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    recorder: Mutex<Option<Recorder>>,
    /// What is to be told of each flow if it never ends.
    unended: Mutex<Vec<FlowReport>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What a watcher gets next.
#[derive(Debug)]
pub(crate) enum Next {
    /// These, in their order, the first of which has this number.
    Told(u64, Vec<Arc<Told>>),
    /// What came between is no longer kept; go on behind this number.
    Missed(u64),
    /// Nothing new.
    Nothing,
}

impl Live {
    pub(crate) fn new(record: UpdateRecord) -> Self {
        Self {
            id: record.id.clone(),
            pipeline_id: record.pipeline_id.clone(),
            record: Mutex::new(record),
            saved: tokio::sync::Mutex::new(None),
            flows: Mutex::default(),
            story: Mutex::new(Story {
                last: Utc::now().timestamp_micros().unsigned_abs(),
                kept: VecDeque::new(),
                events: 0,
            }),
            told: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            recorder: Mutex::default(),
            unended: Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> UpdateRecord {
        locked(&self.record).clone()
    }

    pub(crate) fn state(&self) -> State {
        locked(&self.record).state
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut UpdateRecord)) -> UpdateRecord {
        let mut record = locked(&self.record);
        change(&mut record);
        record.clone()
    }

    pub(crate) fn flows(&self) -> Flows {
        locked(&self.flows).clone()
    }

    /// Asks for the end of the update.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    pub(crate) async fn stopped(&self) {
        // The sender lives as long as `self`.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// The update has ended, and its result is on the storage or given up on.
    pub(crate) fn end(&self) {
        *locked(&self.recorder) = None;
        locked(&self.unended).clear();
        self.ended.send_replace(true);
        self.told.send_modify(|_| {});
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(crate) async fn until_ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// The update begins: the rows of the event log that it gathers are told too, and these are its flows
    /// in case that it is stopped.
    pub(crate) fn follow(&self, recorder: Recorder, unended: Vec<FlowReport>) {
        *locked(&self.recorder) = Some(recorder);
        *locked(&self.unended) = unended;
    }

    /// The flows of the update as they are without an end of their own.
    pub(crate) fn unended(&self) -> Vec<FlowReport> {
        locked(&self.unended).clone()
    }

    pub(crate) fn recorded(&self) -> Option<Vec<Event>> {
        locked(&self.recorder).as_ref().map(Recorder::events)
    }

    pub(crate) fn tell(&self, told: Told) {
        let recorder = locked(&self.recorder).clone();
        let last = {
            let mut story = locked(&self.story);
            if let Some(recorder) = recorder {
                for event in recorder.events_from(story.events) {
                    story.events += 1;
                    story.push(Told::Event(Box::new(event)));
                }
            }
            story.push(told);
            story.last
        };
        self.told.send_replace(last);
    }

    /// Up to `most` things that were told after number `after`.
    pub(crate) fn next(&self, after: u64, most: usize) -> Next {
        let story = locked(&self.story);
        let first = story.last + 1 - story.kept.len() as u64;
        if after >= story.last {
            return Next::Nothing;
        }
        if after + 1 < first {
            return Next::Missed(first - 1);
        }
        let skip = usize::try_from(after + 1 - first).unwrap_or(usize::MAX);
        let told = story.kept.iter().skip(skip).take(most).cloned().collect();
        Next::Told(after + 1, told)
    }

    #[cfg(test)]
    pub(crate) fn last(&self) -> u64 {
        locked(&self.story).last
    }

    /// Is woken with everything that is told.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }
}

impl Story {
    fn push(&mut self, told: Told) {
        self.last += 1;
        self.kept.push_back(Arc::new(told));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }
}

impl Progress for Live {
    fn flow_started(&self, flow: &str) {
        locked(&self.flows).insert(flow.to_string(), None);
        self.tell(Told::FlowStarted(flow.to_string()));
    }

    fn flow_ended(&self, report: &FlowReport) {
        locked(&self.flows).insert(report.flow.clone(), Some(report.clone()));
        self.tell(Told::FlowEnded(Box::new(report.clone())));
    }

    fn slice_ended(&self, flow: &str, slice: &SliceOutcome) {
        self.tell(Told::SliceEnded(flow.to_string(), Box::new(slice.clone())));
    }
}
