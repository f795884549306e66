//! The spans of an update, the same wherever it runs: `update` is around `flow`, that around `slice` and
//! `commit`, and a slice on a cluster around its `attempt`s. Tasks on executors go on below an attempt.

use tracing::Span;
use tracing::field::Empty;
use windrow_executor::trace::TARGET;
use windrow_flows::refresh::Technique;

use crate::report::FlowReport;

/// Around all that is done for one update, its planning too. Pipeline and state are recorded when they
/// are known.
pub fn update(id: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        parent: None,
        "update",
        update = id,
        pipeline = Empty,
        state = Empty
    )
}

/// Around all that is done for a flow; [`end_of_flow`] tells in it how it ended.
pub(crate) fn flow(name: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        "flow",
        flow = name,
        status = Empty,
        technique = Empty
    )
}

/// Around the slice of a backfill, from its planning to its commit.
pub(crate) fn backfill_slice(flow: &str, number: usize, from: &str, to: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        "backfill_slice",
        flow,
        backfill_slice = number,
        from,
        to
    )
}

/// Around the staging of a slice.
pub(crate) fn slice(number: usize) -> Span {
    tracing::info_span!(
        target: TARGET,
        "slice",
        slice = number,
        files = Empty,
        bytes = Empty
    )
}

/// Around one try at a slice on executors, whose tasks know it by its id.
pub(crate) fn attempt(number: u32, id: &str) -> Span {
    tracing::info_span!(
        target: TARGET,
        "attempt",
        attempt = number,
        job = Empty,
        otel.span = id
    )
}

/// Around one try at a commit.
pub(crate) fn commit(version: i64) -> Span {
    tracing::info_span!(target: TARGET, "commit", version)
}

/// Tells how a flow ended, in its span.
pub(crate) fn end_of_flow(report: &FlowReport) {
    let status = report.status.word();
    let technique = report.technique.map(Technique::word).unwrap_or_default();
    let span = Span::current();
    span.record("status", status);
    span.record("technique", technique);
    let error = report.error.as_ref().map(|e| e.code.as_str());
    tracing::info!(
        status,
        technique,
        error,
        version = report.table_version,
        rows = report.metrics.num_output_rows,
        "a flow ended"
    );
}
