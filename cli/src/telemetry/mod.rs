//! What the process tells of its work: the log on stderr, and traces where the standard variables of
//! OpenTelemetry name a collector.
//!
//! `WINDROW_LOG` says what is logged, `WINDROW_LOG_FORMAT` how (`text` or `json`, see `json_log`). Traces
//! are off unless `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set; `spans`
//! gathers them and `otlp` sends them. OpenTelemetry's own libraries are not used: they would change the
//! features of libraries below the query engine.

mod fields;
mod json_log;
mod otlp;
mod spans;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use windrow_executor::trace;

use json_log::JsonLog;
use otlp::Sender;
use spans::{Sampler, Spans};

/// Keeps traces going; what was not sent yet is when this is dropped.
pub struct Telemetry(Option<Sender>);

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            sender.flush();
        }
    }
}

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("{variable} is `{value}`; {wanted}")]
    Variable {
        variable: &'static str,
        value: String,
        wanted: &'static str,
    },
    #[error("traces can't be sent to {endpoint}: {reason}")]
    Endpoint { endpoint: String, reason: String },
}

fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

/// Begins to tell. Needs the runtime whose threads send the traces. `role` is empty for commands that
/// end soon.
///
/// # Errors
/// If a variable has a value that means nothing.
pub fn begin(role: &str) -> Result<Telemetry, TelemetryError> {
    let filter = EnvFilter::try_from_env("WINDROW_LOG")
        // The kernel logs as errors what is none here, such as a table that is not there yet.
        .unwrap_or_else(|_| EnvFilter::new("warn,buoyant_kernel=off"));
    let service = match role {
        "" => "windrow".to_string(),
        role => format!("windrow-{role}"),
    };
    let is_json = match named("WINDROW_LOG_FORMAT").as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(TelemetryError::Variable {
                variable: "WINDROW_LOG_FORMAT",
                value: other.into(),
                wanted: "write text or json",
            });
        }
    };
    let sampler = Sampler::from_environment()?;
    let sender = otlp::from_environment(&service)?;
    let traces = sender.clone().map(|sender| {
        // By targets alone, so that all other spans and events of the process stay free of charge.
        let chosen = Targets::new()
            .with_target("windrow", LevelFilter::WARN)
            .with_target(trace::TARGET, LevelFilter::INFO)
            .with_target(windrow_delta::traffic::TARGET, LevelFilter::INFO);
        Spans::new(sender, sampler).with_filter(chosen)
    });
    if is_json || sender.is_some() {
        trace::follow_operators();
    }
    let log = if is_json {
        // Spans give the ids, whatever the level of what is logged.
        let filter = match format!("{}=info", trace::TARGET).parse() {
            Ok(ids) => filter.add_directive(ids),
            Err(_) => filter,
        };
        JsonLog { service }.with_filter(filter).boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_filter(filter)
            .boxed()
    };
    tracing_subscriber::registry().with(traces).with(log).init();
    Ok(Telemetry(sender))
}
