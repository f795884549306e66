//! Traces: how the spans of one update hang together, through tasks and across processes.
//!
//! The trace of an update has the update's id, so that everybody who knows the one knows the other. Spans
//! of traces have targets of their own, by which a listener chooses them. Who listens, and whether anybody
//! does, is the program's affair; nobody does unless it says so, and then they cost nothing. Fields that
//! begin with `otel.` are for the listener: `otel.span` gives a span its id, `otel.parent` names one in
//! another process, `otel.name` and `otel.kind` mean what they mean to OpenTelemetry.

use std::any::Any;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::{Instrument, Span};

/// The target of spans about updates, flows, slices, tasks and commits.
pub const TARGET: &str = "windrow::trace";

/// An id for a span, to be given to it and told to others.
pub fn new_span_id() -> String {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // One of the halves alone has bits that are always the same.
    format!("{:016x}", (high ^ low).max(1))
}

/// A span of an update's trace, as `traceparent` names it in the W3C's recommendation. Empty if the
/// update's id can't be that of a trace.
pub fn name(update: &str, span: &str) -> String {
    match uuid::Uuid::parse_str(update) {
        Ok(id) if !id.is_nil() => format!("00-{}-{span}-01", id.simple()),
        _ => String::new(),
    }
}

/// Trace and span that a `traceparent` names; nothing for a text that is none.
pub fn parsed(name: &str) -> Option<([u8; 16], [u8; 8])> {
    let mut parts = name.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_whole = version == "00" && parts.next().is_none() && flags.len() == 2;
    if !is_whole || trace.len() != 32 || span.len() != 16 {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id > 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|id| *id > 0)?;
    Some((trace.to_be_bytes(), span.to_be_bytes()))
}

/// From here on what a query's operators start on other threads belongs to the span that started it.
pub fn follow_operators() {
    // Somebody else's choice made before this one stands.
    let _ = set_join_set_tracer(&Following);
}

struct Following;

impl JoinSetTracer for Following {
    fn trace_future(
        &self,
        work: BoxFuture<'static, Box<dyn Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn Any + Send>> {
        work.in_current_span().boxed()
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        let span = Span::current();
        Box::new(move || span.in_scope(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_named_and_found_again() {
        let update = uuid::Uuid::now_v7();
        let span = new_span_id();
        let named = name(&update.to_string(), &span);
        let (trace, found) = parsed(&named).expect("a span");
        assert_eq!(trace, *update.as_bytes());
        assert_eq!(format!("{:016x}", u64::from_be_bytes(found)), span);
        assert_eq!(name("by hand", &span), "");
        for wrong in [
            "",
            "00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-01",
            "00-x-y-z",
        ] {
            assert!(parsed(wrong).is_none(), "{wrong}");
        }
    }
}
