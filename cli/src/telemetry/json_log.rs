//! The log as JSON, a line for each event: time, level, where it is from, its words and fields, and the
//! ids of the update, flow, slice and task that it is about.

use std::collections::BTreeMap;
use std::io::Write;

use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::Fields;

/// Writes to stderr.
pub struct JsonLog {
    /// Which of the program's roles this process has.
    pub service: String,
}

/// The fields of a span, kept as long as it lives.
struct Kept(BTreeMap<&'static str, Value>);

/// Names for traces alone, and what the bridge from another logging library adds.
fn is_hidden(name: &str) -> bool {
    ["otel.", "log."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

impl JsonLog {
    fn line(&self, event: &Event<'_>, of: BTreeMap<&'static str, Value>) -> Value {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let target = match fields.0.get("log.target").and_then(Value::as_str) {
            Some(target) => target.to_string(),
            None => metadata.target().to_string(),
        };
        let message = fields.0.remove("message").unwrap_or_default();
        let mut line = Map::new();
        let all = of.into_iter().chain(fields.0);
        for (name, value) in all.filter(|(name, _)| !is_hidden(name)) {
            line.insert(name.to_string(), value);
        }
        let now = Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true);
        for (name, value) in [
            ("timestamp", Value::String(now)),
            ("level", Value::String(metadata.level().to_string())),
            ("service", Value::String(self.service.clone())),
            ("target", Value::String(target)),
            ("message", message),
        ] {
            line.insert(name.into(), value);
        }
        Value::Object(line)
    }
}

impl<S> Layer<S> for JsonLog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Kept(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(kept) = span.extensions_mut().get_mut::<Kept>()
        {
            kept.0.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut of = BTreeMap::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(kept) = span.extensions().get::<Kept>() {
                // The innermost comes first and stands.
                for (name, value) in &kept.0 {
                    of.entry(*name).or_insert_with(|| value.clone());
                }
            }
        }
        let mut line = self.line(event, of).to_string();
        line.push('\n');
        // In one piece, and without a word when nobody reads it any more.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}
