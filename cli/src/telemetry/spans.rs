//! Gathers spans, from their beginning to their end, in the form that collectors take.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use windrow_delta::traffic;
use windrow_executor::trace;
use windrow_proto::otlp::{self, AnyValue, KeyValue, Kind, SpanStatus, StatusCode, any_value};

use super::fields::Fields;
use super::otlp::Sender;
use super::{TelemetryError, named};

/// Events of a span that are kept.
const MOST_EVENTS: usize = 32;

/// Which traces are kept: a share of them, the same ones in every process.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    /// A trace whose last eight bytes are less than this is kept.
    below: u128,
}

impl Sampler {
    /// By `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`; all, if they say nothing.
    ///
    /// # Errors
    /// If they have values that mean nothing here.
    pub fn from_environment() -> Result<Self, TelemetryError> {
        let name = named("OTEL_TRACES_SAMPLER").unwrap_or_default();
        let ratio = match name.trim_start_matches("parentbased_") {
            "" | "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => match named("OTEL_TRACES_SAMPLER_ARG") {
                None => 1.0,
                Some(text) => match text.parse::<f64>() {
                    Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
                    _ => {
                        return Err(TelemetryError::Variable {
                            variable: "OTEL_TRACES_SAMPLER_ARG",
                            value: text,
                            wanted: "write a number from 0 to 1",
                        });
                    }
                },
            },
            _ => {
                return Err(TelemetryError::Variable {
                    variable: "OTEL_TRACES_SAMPLER",
                    value: name,
                    wanted: "write always_on, always_off, traceidratio, or one of these behind parentbased_",
                });
            }
        };
        Ok(Self::share(ratio))
    }

    fn share(ratio: f64) -> Self {
        Self {
            below: (ratio * (u64::MAX as f64 + 1.0)) as u128,
        }
    }

    fn keeps(self, trace: &[u8; 16]) -> bool {
        let low = u128::from_be_bytes(*trace) as u64;
        // The bits before are the same for all of one kind of ids.
        u128::from(low.wrapping_mul(0x9e37_79b9_7f4a_7c15)) < self.below
    }
}

/// A layer that hands each span on when it is over.
pub struct Spans {
    sender: Sender,
    sampler: Sampler,
}

/// A span that is not over.
struct Open {
    trace: [u8; 16],
    span: otlp::Span,
    is_kept: bool,
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attributes(fields: Fields) -> Vec<KeyValue> {
    let all = fields.0.into_iter();
    let attribute = |(key, value): (&str, Value)| {
        let value = match value {
            Value::String(text) => any_value::Value::String(text),
            Value::Bool(is) => any_value::Value::Bool(is),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => any_value::Value::Int(whole),
                (None, real) => any_value::Value::Double(real.unwrap_or_default()),
            },
            other => any_value::Value::String(other.to_string()),
        };
        KeyValue {
            key: key.to_string(),
            value: Some(AnyValue { value: Some(value) }),
        }
    };
    all.filter(|(key, _)| !key.starts_with("otel.") && !key.starts_with("log."))
        .map(attribute)
        .collect()
}

fn set(all: &mut Vec<KeyValue>, more: Vec<KeyValue>) {
    for new in more {
        match all.iter_mut().find(|old| old.key == new.key) {
            Some(old) => *old = new,
            None => all.push(new),
        }
    }
}

/// The trace of an update is the update's id; others are made up.
fn new_trace(fields: &Fields) -> [u8; 16] {
    let update = fields.0.get("update").and_then(Value::as_str);
    let id = update.and_then(|text| uuid::Uuid::parse_str(text).ok());
    let id = id.filter(|id| !id.is_nil());
    *id.unwrap_or_else(uuid::Uuid::new_v4).as_bytes()
}

impl Spans {
    pub fn new(sender: Sender, sampler: Sampler) -> Self {
        Self { sender, sampler }
    }

    fn open(&self, name: &str, mut fields: Fields, above: Option<([u8; 16], Vec<u8>)>) -> Open {
        let told = fields
            .take("otel.parent")
            .and_then(|name| trace::parsed(&name));
        let above = above.or(told.map(|(trace, span)| (trace, span.to_vec())));
        let (trace, parent) = above.unwrap_or_else(|| (new_trace(&fields), Vec::new()));
        let id = fields.take("otel.span");
        let id = id.and_then(|text| u64::from_str_radix(&text, 16).ok());
        let id = match id {
            Some(id) => id,
            None => u64::from_str_radix(&trace::new_span_id(), 16).unwrap_or(1),
        };
        let kind = match fields.take("otel.kind").as_deref() {
            Some("client") => Kind::Client,
            _ => Kind::Internal,
        };
        Open {
            trace,
            is_kept: self.sampler.keeps(&trace),
            span: otlp::Span {
                trace_id: trace.to_vec(),
                span_id: id.to_be_bytes().to_vec(),
                parent_span_id: parent,
                name: fields.take("otel.name").unwrap_or_else(|| name.to_string()),
                kind: kind as i32,
                start_time_unix_nano: nanos(SystemTime::now()),
                attributes: attributes(fields),
                ..otlp::Span::default()
            },
        }
    }
}

impl<S> Layer<S> for Spans
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let above = match attributes.parent() {
            Some(parent) => context.span(parent),
            None if attributes.is_contextual() => context.lookup_current(),
            None => None,
        };
        let above = above.and_then(|above| {
            let extensions = above.extensions();
            let open = extensions.get::<Open>()?;
            Some((open.trace, open.span.span_id.clone()))
        });
        // A lease that is renewed all day makes no traces.
        if above.is_none() && attributes.metadata().target() == traffic::TARGET {
            return;
        }
        let open = self.open(attributes.metadata().name(), fields, above);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(open);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            set(&mut open.span.attributes, attributes(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else {
            return;
        };
        let mut extensions = span.extensions_mut();
        let Some(open) = extensions.get_mut::<Open>() else {
            return;
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.take("message").unwrap_or_default();
        if *event.metadata().level() == Level::ERROR {
            open.span.status = Some(SpanStatus {
                message: message.clone(),
                code: StatusCode::Error as i32,
            });
        }
        if open.span.events.len() >= MOST_EVENTS {
            open.span.dropped_events_count += 1;
            return;
        }
        open.span.events.push(otlp::Event {
            time_unix_nano: nanos(SystemTime::now()),
            name: message,
            attributes: attributes(fields),
        });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let Some(Open {
            mut span, is_kept, ..
        }) = span.extensions_mut().remove::<Open>()
        else {
            return;
        };
        if is_kept {
            span.end_time_unix_nano = nanos(SystemTime::now());
            self.sender.send(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_updates_is_kept() {
        let ids: Vec<[u8; 16]> = (0..2000)
            .map(|_| *uuid::Uuid::now_v7().as_bytes())
            .collect();
        let kept = |ratio: f64| {
            let sampler = Sampler::share(ratio);
            ids.iter().filter(|id| sampler.keeps(id)).count()
        };
        assert_eq!((kept(0.0), kept(1.0)), (0, 2000));
        assert!((800..1200).contains(&kept(0.5)), "{}", kept(0.5));
    }

    #[test]
    fn what_is_recorded_later_stands() {
        let mut all = Vec::new();
        for value in ["a", "b"] {
            let mut fields = Fields::default();
            fields.0.insert("state", Value::from(value));
            fields.0.insert("otel.kind", Value::from("client"));
            set(&mut all, attributes(fields));
        }
        assert_eq!(all.len(), 1);
        let wanted = any_value::Value::String("b".into());
        assert_eq!(
            all[0].value,
            Some(AnyValue {
                value: Some(wanted)
            })
        );
    }
}
