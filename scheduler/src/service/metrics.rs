//! Figures of a scheduler, as Prometheus reads them.

use std::sync::atomic::{AtomicI64, Ordering};

use windrow_delta::commit::CONFLICTS;
use windrow_delta::figures::{Counter, Figures};
use windrow_delta::traffic;

use super::record::State;
use crate::report::{FlowReport, FlowStatus};
use crate::stager::STAGED_BYTES;

/// Counts since this process began, and what is under way.
#[derive(Debug, Default)]
pub struct Metrics {
    completed: Counter,
    failed: Counter,
    canceled: Counter,
    interrupted: Counter,
    flows_completed: Counter,
    flows_failed: Counter,
    flows_skipped: Counter,
    flows_canceled: Counter,
    queued: AtomicI64,
    running: AtomicI64,
    watchers: AtomicI64,
    refused: Counter,
    rows: Counter,
    bytes_written: Counter,
    bytes_scanned: Counter,
    leading: AtomicI64,
}

/// Counts one more as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a AtomicI64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn counted(gauge: &AtomicI64) -> Counted<'_> {
    gauge.fetch_add(1, Ordering::Relaxed);
    Counted(gauge)
}

impl Metrics {
    pub(crate) fn leads(&self) {
        self.leading.store(1, Ordering::Relaxed);
    }

    pub(crate) fn queued(&self) -> Counted<'_> {
        counted(&self.queued)
    }

    pub(crate) fn running(&self) -> Counted<'_> {
        counted(&self.running)
    }

    pub(crate) fn watcher_began(&self) {
        self.watchers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watcher_ended(&self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, state: State) {
        let counter = match state {
            State::Completed => &self.completed,
            State::Canceled => &self.canceled,
            _ => &self.failed,
        };
        counter.add(1);
    }

    pub(crate) fn interrupted(&self) {
        self.interrupted.add(1);
    }

    /// A request without a right token.
    pub fn refused(&self) {
        self.refused.add(1);
    }

    pub(crate) fn flow_ended(&self, flow: &FlowReport) {
        let counter = match flow.status {
            FlowStatus::Completed => &self.flows_completed,
            FlowStatus::Failed => &self.flows_failed,
            FlowStatus::Skipped => &self.flows_skipped,
            FlowStatus::Canceled => &self.flows_canceled,
            FlowStatus::Planned => return,
        };
        counter.add(1);
        if flow.status == FlowStatus::Completed {
            self.rows.add(flow.metrics.num_output_rows);
            self.bytes_written.add(flow.metrics.bytes_written);
            self.bytes_scanned.add(flow.metrics.bytes_scanned);
        }
    }

    /// What is counted of this process, but for its engine.
    pub(crate) fn write(&self, to: &mut Figures) {
        let now = |gauge: &AtomicI64| gauge.load(Ordering::Relaxed).max(0).unsigned_abs();
        to.gauge(
            "windrow_leading",
            "Whether this scheduler leads.",
            now(&self.leading),
        );
        to.by(
            "windrow_updates_total",
            "counter",
            "Updates that ended, by state.",
            "state",
            [
                ("COMPLETED", self.completed.get()),
                ("FAILED", self.failed.get()),
                ("CANCELED", self.canceled.get()),
            ],
        );
        to.counter(
            "windrow_updates_interrupted_total",
            "Updates whose scheduler had gone away.",
            self.interrupted.get(),
        );
        to.gauge(
            "windrow_updates_queued",
            "Updates that wait for their turn.",
            now(&self.queued),
        );
        to.gauge(
            "windrow_updates_running",
            "Updates that have their turn.",
            now(&self.running),
        );
        to.by(
            "windrow_flows_total",
            "counter",
            "Flows that ended, by status.",
            "status",
            [
                ("COMPLETED", self.flows_completed.get()),
                ("FAILED", self.flows_failed.get()),
                ("SKIPPED", self.flows_skipped.get()),
                ("CANCELED", self.flows_canceled.get()),
            ],
        );
        to.counter(
            "windrow_rows_written_total",
            "Rows that completed flows wrote.",
            self.rows.get(),
        );
        to.counter(
            "windrow_bytes_written_total",
            "Bytes of files that completed flows wrote.",
            self.bytes_written.get(),
        );
        to.counter(
            "windrow_bytes_scanned_total",
            "Bytes of files that completed flows read.",
            self.bytes_scanned.get(),
        );
        to.counter(
            "windrow_staged_bytes_total",
            "Bytes of files that a commit may take.",
            STAGED_BYTES.get(),
        );
        to.counter(
            "windrow_commit_conflicts_total",
            "Commits that another writer was faster than.",
            CONFLICTS.get(),
        );
        to.gauge(
            "windrow_watchers",
            "Streams of WatchUpdate that are open.",
            now(&self.watchers),
        );
        to.counter(
            "windrow_requests_refused_total",
            "Requests without a right token.",
            self.refused.get(),
        );
        traffic::figures(to);
    }
}
