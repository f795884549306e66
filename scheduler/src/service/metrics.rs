//! Figures of a scheduler, as Prometheus reads them.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::record::State;

/// Counts since this process began, and what is under way.
#[derive(Debug, Default)]
pub struct Metrics {
    completed: AtomicU64,
    failed: AtomicU64,
    canceled: AtomicU64,
    interrupted: AtomicU64,
    queued: AtomicI64,
    running: AtomicI64,
    watchers: AtomicI64,
    refused: AtomicU64,
    rows: AtomicU64,
    bytes_written: AtomicU64,
    bytes_scanned: AtomicU64,
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
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn interrupted(&self) {
        self.interrupted.fetch_add(1, Ordering::Relaxed);
    }

    /// A request without a right token.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, rows: u64, written: u64, scanned: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes_written.fetch_add(written, Ordering::Relaxed);
        self.bytes_scanned.fetch_add(scanned, Ordering::Relaxed);
    }

    /// The text that `/metrics` answers with.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let gauge = |gauge: &AtomicI64| gauge.load(Ordering::Relaxed).max(0).unsigned_abs();
        let name = "windrow_updates_total";
        let _ = writeln!(out, "# HELP {name} Updates that ended, by state.");
        let _ = writeln!(out, "# TYPE {name} counter");
        for (state, counter) in [
            ("COMPLETED", &self.completed),
            ("FAILED", &self.failed),
            ("CANCELED", &self.canceled),
        ] {
            let _ = writeln!(out, "{name}{{state=\"{state}\"}} {}", count(counter));
        }
        let mut one = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(out, "# HELP {name} {help}");
            let _ = writeln!(out, "# TYPE {name} {kind}");
            let _ = writeln!(out, "{name} {value}");
        };
        one(
            "windrow_leading",
            "gauge",
            "Whether this scheduler leads.",
            gauge(&self.leading),
        );
        one(
            "windrow_updates_interrupted_total",
            "counter",
            "Updates whose scheduler had gone away.",
            count(&self.interrupted),
        );
        one(
            "windrow_updates_queued",
            "gauge",
            "Updates that wait for their turn.",
            gauge(&self.queued),
        );
        one(
            "windrow_updates_running",
            "gauge",
            "Updates that have their turn.",
            gauge(&self.running),
        );
        one(
            "windrow_watchers",
            "gauge",
            "Streams of WatchUpdate that are open.",
            gauge(&self.watchers),
        );
        one(
            "windrow_requests_refused_total",
            "counter",
            "Requests without a right token.",
            count(&self.refused),
        );
        one(
            "windrow_rows_written_total",
            "counter",
            "Rows that completed flows wrote.",
            count(&self.rows),
        );
        one(
            "windrow_bytes_written_total",
            "counter",
            "Bytes of files that completed flows wrote.",
            count(&self.bytes_written),
        );
        one(
            "windrow_bytes_scanned_total",
            "counter",
            "Bytes of files that completed flows read.",
            count(&self.bytes_scanned),
        );
        out
    }
}
