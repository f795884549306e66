//! Sends spans to a collector, in batches, over gRPC. Nobody waits for it: what it can't keep up with, and
//! what the collector does not take after some tries, is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request};
use windrow_proto::otlp::{
    AnyValue, ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span, any_value,
    export,
};
use windrow_scheduler::service::server::choose_cryptography;

use super::{TelemetryError, named};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How long the last spans may take.
const FAREWELL: Duration = Duration::from_secs(5);

enum Told {
    Span(Box<Span>),
    /// All that came before is to be sent, and then this be told.
    Flush(std::sync::mpsc::Sender<()>),
}

/// Takes spans to be sent. Clones are handles of the same one.
#[derive(Clone)]
pub struct Sender {
    queue: mpsc::Sender<Told>,
    /// That spans are dropped is told once.
    overflowed: Arc<AtomicBool>,
}

impl Sender {
    pub fn send(&self, span: Span) {
        let full = self.queue.try_send(Told::Span(Box::new(span))).is_err();
        if full && !self.overflowed.swap(true, Ordering::Relaxed) {
            tracing::warn!("spans come faster than they can be sent; some are dropped");
        }
    }

    /// Waits a while until what came so far is sent. Not to be called on threads of a runtime.
    pub fn flush(&self) {
        let (tell, told) = std::sync::mpsc::channel();
        if self.queue.blocking_send(Told::Flush(tell)).is_ok() {
            let _ = told.recv_timeout(FAREWELL);
        }
    }
}

/// What the variables say, where they have a number.
fn number(variable: &'static str, default: u64) -> Result<u64, TelemetryError> {
    match named(variable) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| TelemetryError::Variable {
            variable,
            value: text,
            wanted: "write a whole number",
        }),
    }
}

/// `a=b,c=d`, percent-encoded.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| {
            let value = percent_encoding::percent_decode_str(value.trim());
            (
                key.trim().to_string(),
                value.decode_utf8_lossy().into_owned(),
            )
        })
}

fn headers() -> Result<MetadataMap, TelemetryError> {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let mut headers = MetadataMap::new();
    let given = named("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| named(VARIABLE));
    for (key, value) in pairs(&given.unwrap_or_default()) {
        // Values are secrets, and not shown.
        let wrong = || TelemetryError::Variable {
            variable: VARIABLE,
            value: format!("{key}=..."),
            wanted: "write name=value, with what no header takes percent-encoded",
        };
        let name: MetadataKey<Ascii> = key.to_lowercase().parse().map_err(|_| wrong())?;
        let mut value: MetadataValue<Ascii> = value.parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn resource(service: &str) -> Resource {
    let mut all = vec![
        ("service.name".to_string(), service.to_string()),
        (
            "service.version".to_string(),
            env!("CARGO_PKG_VERSION").to_string(),
        ),
        (
            "service.instance.id".to_string(),
            uuid::Uuid::new_v4().to_string(),
        ),
        ("process.pid".to_string(), std::process::id().to_string()),
    ];
    let given = named("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let name = named("OTEL_SERVICE_NAME").map(|name| ("service.name".to_string(), name));
    for (key, value) in pairs(&given).chain(name) {
        all.retain(|(known, _)| *known != key);
        all.push((key, value));
    }
    let attributes = all.into_iter().map(|(key, value)| KeyValue {
        key,
        value: Some(AnyValue {
            value: Some(any_value::Value::String(value)),
        }),
    });
    Resource {
        attributes: attributes.collect(),
    }
}

fn channel(endpoint: &str) -> Result<Channel, TelemetryError> {
    let failed = |reason: String| TelemetryError::Endpoint {
        endpoint: endpoint.to_string(),
        reason,
    };
    let url = match endpoint.contains("://") {
        true => endpoint.to_string(),
        false => format!("http://{endpoint}"),
    };
    let timeout = Duration::from_millis(number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?);
    let mut to = Endpoint::from_shared(url.clone())
        .map_err(|e| failed(crate::with_sources(&e)))?
        .connect_timeout(timeout)
        .timeout(timeout);
    if url.starts_with("https://") {
        choose_cryptography();
        let mut tls = ClientTlsConfig::new().with_enabled_roots();
        if let Some(path) = named("OTEL_EXPORTER_OTLP_CERTIFICATE") {
            let ca = std::fs::read(&path).map_err(|e| failed(format!("{path}: {e}")))?;
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        to = to
            .tls_config(tls)
            .map_err(|e| failed(crate::with_sources(&e)))?;
    }
    Ok(to.connect_lazy())
}

/// A sender, if the variables name a collector. Needs a runtime, on which it sends.
///
/// # Errors
/// If a variable has a value that means nothing.
pub fn from_environment(service: &str) -> Result<Option<Sender>, TelemetryError> {
    let is_off = named("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
        || named("OTEL_TRACES_EXPORTER").as_deref() == Some("none");
    let endpoint = named(TRACES_ENDPOINT).or_else(|| named(ENDPOINT));
    let Some(endpoint) = endpoint.filter(|_| !is_off) else {
        return Ok(None);
    };
    if let Some(protocol) = named("OTEL_EXPORTER_OTLP_PROTOCOL").filter(|p| p != "grpc") {
        return Err(TelemetryError::Variable {
            variable: "OTEL_EXPORTER_OTLP_PROTOCOL",
            value: protocol,
            wanted: "traces go over grpc only",
        });
    }
    let queued = number("OTEL_BSP_MAX_QUEUE_SIZE", 8192)?.clamp(1, 1 << 20);
    let (queue, spans) = mpsc::channel(queued as usize);
    let worker = Worker {
        channel: channel(&endpoint)?,
        headers: headers()?,
        resource: resource(service),
        batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?.clamp(1, queued) as usize,
        delay: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5_000)?.max(1)),
        endpoint,
        is_failing: false,
    };
    tokio::spawn(worker.run(spans));
    Ok(Some(Sender {
        queue,
        overflowed: Arc::default(),
    }))
}

struct Worker {
    channel: Channel,
    headers: MetadataMap,
    resource: Resource,
    batch: usize,
    delay: Duration,
    endpoint: String,
    /// That the collector does not answer is told once, until it does again.
    is_failing: bool,
}

impl Worker {
    async fn run(mut self, mut spans: mpsc::Receiver<Told>) {
        let mut batch = Vec::new();
        let mut tick = tokio::time::interval(self.delay);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let told = tokio::select! {
                told = spans.recv() => told,
                _ = tick.tick() => {
                    self.send(&mut batch, TRIES).await;
                    continue;
                }
            };
            match told {
                Some(Told::Span(span)) => {
                    batch.push(*span);
                    if batch.len() >= self.batch {
                        self.send(&mut batch, TRIES).await;
                    }
                }
                Some(Told::Flush(tell)) => {
                    // The process ends: there is no time to try again.
                    self.send(&mut batch, 1).await;
                    let _ = tell.send(());
                }
                None => return,
            }
        }
    }

    async fn send(&mut self, batch: &mut Vec<Span>, tries: u32) {
        if batch.is_empty() {
            return;
        }
        let message = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "windrow".into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                    }),
                    spans: std::mem::take(batch),
                }],
            }],
        };
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=tries {
            let mut request = Request::new(message.clone());
            *request.metadata_mut() = self.headers.clone();
            let failed = match export(self.channel.clone(), request).await {
                Ok(_) => {
                    self.is_failing = false;
                    return;
                }
                Err(status) => status,
            };
            let may_pass = matches!(
                failed.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::ResourceExhausted
                    | Code::Aborted
                    | Code::Cancelled
            );
            if !may_pass || attempt == tries {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        endpoint = self.endpoint,
                        reason = failed.message(),
                        "spans were not taken by the collector and are dropped"
                    );
                }
                return;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_they_are_written() {
        let read: Vec<_> = pairs("a=b, c = d%2Ce ,f,g=h=i").collect();
        let wanted = [("a", "b"), ("c", "d,e"), ("g", "h=i")];
        let wanted: Vec<_> = wanted.map(|(k, v)| (k.to_string(), v.to_string())).to_vec();
        assert_eq!(read, wanted);
    }
}
