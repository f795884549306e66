//! The way to a scheduler: its address, TLS, the token, and what its refusals say. One that waits for
//! its turn is asked again until it has it.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anstream::eprintln;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use windrow_proto::status::{HELP, error_info};
use windrow_proto::v1::pipeline_service_client::PipelineServiceClient;
use windrow_scheduler::report::FaultReport;
use windrow_scheduler::service::server::{LARGEST_ANSWER, choose_cryptography};

use super::plain;

const CONNECT: Duration = Duration::from_secs(10);
const CONNECT_TRIES: u32 = 4;
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long a scheduler that was there before may be away, unless `WINDROW_SCHEDULER_PATIENCE` says.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pauses between two questions to a scheduler that does not lead.
pub const FIRST_WAIT: Duration = Duration::from_millis(200);
pub const LONGEST_WAIT: Duration = Duration::from_secs(3);

pub type Client = PipelineServiceClient<InterceptedService<Channel, Bearer>>;

/// Adds the token to each request.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A scheduler that has answered.
pub struct Connection {
    pub client: Client,
    pub patience: Duration,
    shown: String,
}

impl Connection {
    /// # Errors
    /// `SCHEDULER_NOT_REACHABLE`, `WRONG_OPTION` for an address that is none, `TOKEN_NOT_USABLE` and
    /// `TLS_NOT_USABLE` for files that can't be read.
    pub async fn open(scheduler: &str) -> Result<Self, FaultReport> {
        let (mut endpoint, is_secure) = endpoint(scheduler)?;
        if is_secure {
            choose_cryptography();
            endpoint = endpoint
                .tls_config(tls()?)
                .map_err(|e| plain("TLS_NOT_USABLE", &crate::with_sources(&e), None))?;
        }
        let token = token()?;
        let channel = connect(&endpoint).await.map_err(|error| {
            let help = "start one with `windrow scheduler`, or leave --scheduler (WINDROW_SCHEDULER) out to run here";
            plain(
                "SCHEDULER_NOT_REACHABLE",
                &format!(
                    "no scheduler answers at {scheduler}: {}",
                    crate::with_sources(&error)
                ),
                Some(help),
            )
        })?;
        let client = PipelineServiceClient::with_interceptor(channel, Bearer(token))
            .max_decoding_message_size(LARGEST_ANSWER)
            .max_encoding_message_size(LARGEST_ANSWER);
        let patience = std::env::var("WINDROW_SCHEDULER_PATIENCE").ok();
        let patience = patience.and_then(|text| text.parse().ok());
        Ok(Self {
            client,
            patience: patience.map_or(PATIENCE, Duration::from_secs),
            shown: scheduler.to_string(),
        })
    }

    /// Asks, and asks again as long as the scheduler that answers waits for its turn; by then it may
    /// have it, or the same name leads to the one that has it.
    pub async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        let mut told = false;
        loop {
            let status = match request(self.client.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            // A scheduler that waits ends its connections from time to time.
            let again = does_not_lead(&status) || (told && may_pass(&status));
            if !again || began.elapsed() > self.patience {
                return Err(status);
            }
            if !told {
                told = true;
                eprintln!(
                    "the scheduler at {} does not lead; asked again for up to {} s",
                    self.shown,
                    self.patience.as_secs()
                );
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Why a request was refused, for people.
    pub fn fault(&self, status: &Status) -> FaultReport {
        if let Some(info) = error_info(status) {
            let help = info.metadata.get(HELP).map(String::as_str);
            return plain(&info.reason, status.message(), help);
        }
        let scheduler = &self.shown;
        match status.code() {
            Code::Unimplemented => plain(
                "SCHEDULER_OTHER_VERSION",
                &format!("the scheduler at {scheduler} does not know this request"),
                Some("scheduler and client must be of the same version"),
            ),
            code => plain(
                "SCHEDULER_REQUEST_FAILED",
                &format!(
                    "the scheduler at {scheduler} answered {code:?}: {}",
                    crate::with_sources(status)
                ),
                None,
            ),
        }
    }
}

/// Connects, and does so again where the other side hung up before it had said anything: a scheduler
/// that begins to lead hands its port on to itself, and drops who is just coming in.
async fn connect(endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
    let mut wait = FIRST_WAIT;
    for _ in 1..CONNECT_TRIES {
        match endpoint.connect().await {
            Err(error) if was_hung_up(&error) => {
                tracing::debug!(error = crate::with_sources(&error), "connecting once more");
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            done => return done,
        }
    }
    endpoint.connect().await
}

fn was_hung_up(error: &tonic::transport::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        let kind = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
        if let Some(
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted,
        ) = kind
        {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether it was refused by a scheduler that waits for its turn.
pub fn does_not_lead(status: &Status) -> bool {
    error_info(status).is_some_and(|info| info.reason == NOT_LEADING)
}

const NOT_LEADING: &str = "NOT_LEADING";

/// Whether the same request may succeed a little later.
pub fn may_pass(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Internal
    ) && error_info(status)
        .is_none_or(|info| ["SCHEDULER_STOPPING", NOT_LEADING].contains(&info.reason.as_str()))
}

fn endpoint(scheduler: &str) -> Result<(Endpoint, bool), FaultReport> {
    let address = if scheduler.contains("://") {
        scheduler.to_string()
    } else {
        format!("http://{scheduler}")
    };
    let wrong = |why: &str| {
        plain(
            "WRONG_OPTION",
            &format!("--scheduler `{scheduler}` is no address of a scheduler: {why}"),
            Some("write http://host:port, or https://host:port for TLS"),
        )
    };
    let is_secure = address.starts_with("https://");
    if !is_secure && !address.starts_with("http://") {
        return Err(wrong("it is neither http nor https"));
    }
    if address.contains('@') {
        return Err(wrong("it names a user; the token comes from WINDROW_TOKEN"));
    }
    let endpoint = Endpoint::from_shared(address).map_err(|e| wrong(&crate::with_sources(&e)))?;
    Ok((
        endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true),
        is_secure,
    ))
}

fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

fn file(variable: &str, code: &str) -> Result<Option<Vec<u8>>, FaultReport> {
    let Some(path) = named(variable) else {
        return Ok(None);
    };
    std::fs::read(&path).map(Some).map_err(|error| {
        plain(
            code,
            &format!("{variable} names `{path}`, which can't be read: {error}"),
            None,
        )
    })
}

fn tls() -> Result<ClientTlsConfig, FaultReport> {
    const CODE: &str = "TLS_NOT_USABLE";
    let mut config = ClientTlsConfig::new().with_enabled_roots();
    if let Some(ca) = file("WINDROW_TLS_CA", CODE)? {
        config = config.ca_certificate(Certificate::from_pem(ca));
    }
    match (
        file("WINDROW_TLS_CERT", CODE)?,
        file("WINDROW_TLS_KEY", CODE)?,
    ) {
        (Some(certificate), Some(key)) => {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        (None, None) => {}
        _ => {
            return Err(plain(
                CODE,
                "WINDROW_TLS_CERT and WINDROW_TLS_KEY belong together; one of them is not set",
                None,
            ));
        }
    }
    Ok(config)
}

/// The token, from the environment or a file; its text is never shown.
fn token() -> Result<Option<MetadataValue<Ascii>>, FaultReport> {
    const CODE: &str = "TOKEN_NOT_USABLE";
    let text = match named("WINDROW_TOKEN") {
        Some(text) => text,
        None => match file("WINDROW_TOKEN_FILE", CODE)? {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => return Ok(None),
        },
    };
    let value = format!("Bearer {}", text.trim());
    let mut value: MetadataValue<Ascii> = value
        .parse()
        .map_err(|_| plain(CODE, "the token has characters that no request takes", None))?;
    value.set_sensitive(true);
    Ok(Some(value))
}
