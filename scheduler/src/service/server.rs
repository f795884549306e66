//! The scheduler's one port: gRPC services, health, figures, behind token and TLS.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use windrow_proto::v1::FILE_DESCRIPTOR_SET;
use windrow_proto::v1::pipeline_service_server::PipelineServiceServer;

use super::auth::{Gate, Token, check, is_grpc};
use super::{Service, ServiceError};

/// A request holds a pipeline's SQL.
const LARGEST_REQUEST: usize = 16 << 20;
/// An answer may hold the report of a backfill with all its slices.
pub const LARGEST_ANSWER: usize = 64 << 20;
const STREAMS_PER_CONNECTION: u32 = 256;
const KEEPALIVE: Duration = Duration::from_secs(20);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long updates that were told to stop may take, and clients to hear of it.
const STOPPING: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(3);

/// Certificate and key as PEM.
#[derive(Clone)]
pub struct Tls {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// Clients must have a certificate of this authority.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("client_ca", &self.client_ca.is_some())
            .finish_non_exhaustive()
    }
}

/// How the port is set up.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Port 0 lets the system choose.
    pub bind: SocketAddr,
    pub token: Option<Token>,
    pub tls: Option<Tls>,
    /// Others may reach it without TLS, or without having to say who they are.
    pub insecure_remote: bool,
    /// How long updates that run may go on after the end was asked for.
    pub drain: Duration,
}

/// Why the port is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{bind} can be reached by others, and {missing}")]
    NotSecured {
        bind: SocketAddr,
        missing: &'static str,
    },
    #[error("port {bind} can't be had: {source}")]
    Bind {
        bind: SocketAddr,
        source: std::io::Error,
    },
    #[error("certificate or key can't be used: {reason}")]
    Tls { reason: String },
    #[error("the port is no longer served: {reason}")]
    Ended { reason: String },
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl ServerError {
    /// The stable code word.
    pub fn code(&self) -> &str {
        match self {
            Self::NotSecured { .. } => "REMOTE_NOT_SECURED",
            Self::Bind { .. } => "PORT_NOT_AVAILABLE",
            Self::Tls { .. } => "TLS_NOT_USABLE",
            Self::Ended { .. } => "SERVER_ENDED",
            Self::Service(error) => error.code(),
        }
    }

    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotSecured { .. } => Some(
                "give --tls-cert and --tls-key, and a token (--token-file, WINDROW_TOKEN) or --tls-client-ca; \
                 or bind 127.0.0.1; or say --insecure-remote where the network itself keeps others out",
            ),
            _ => None,
        }
    }
}

/// Both sides of TLS choose their cryptography by what this process has named.
pub fn choose_cryptography() {
    // Somebody else's choice made before this one stands.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn check_secured(options: &ServerOptions) -> Result<(), ServerError> {
    if options.bind.ip().is_loopback() || options.insecure_remote {
        return Ok(());
    }
    let missing = match &options.tls {
        None => "without TLS everybody on the way reads along",
        Some(tls) if tls.client_ca.is_none() && options.token.is_none() => {
            "without a token or certificates of clients everybody is let in"
        }
        Some(_) => return Ok(()),
    };
    Err(ServerError::NotSecured {
        bind: options.bind,
        missing,
    })
}

/// A port that is taken and not yet served.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    options: ServerOptions,
}

impl Bound {
    /// Takes the port.
    ///
    /// # Errors
    /// `REMOTE_NOT_SECURED`, `PORT_NOT_AVAILABLE`.
    pub async fn new(options: ServerOptions) -> Result<Self, ServerError> {
        check_secured(&options)?;
        let bind = options.bind;
        let failed = |source| ServerError::Bind { bind, source };
        let listener = TcpListener::bind(bind).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            options,
        })
    }

    /// With the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `service`, and what `services` holds besides, until `end`; then lets the updates that run
    /// go on for a while, and stops them.
    ///
    /// # Errors
    /// `TLS_NOT_USABLE`, and `SERVER_ENDED` when the port fails.
    pub async fn serve(
        self,
        service: Service,
        services: RoutesBuilder,
        end: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let (health, health_server) = tonic_health::server::health_reporter();
        health.set_serving::<PipelineServiceServer<Service>>().await;
        let router = self.router(&service, services, health_server)?;
        let mut server = Server::builder()
            .accept_http1(true)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        if let Some(tls) = &self.options.tls {
            choose_cryptography();
            let identity = Identity::from_pem(&tls.certificate, &tls.key);
            let mut config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
            if let Some(ca) = &tls.client_ca {
                config = config.client_ca_root(Certificate::from_pem(ca));
            }
            server = server.tls_config(config).map_err(|e| ServerError::Tls {
                reason: with_sources(&e),
            })?;
        }
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let mut served = tokio::spawn(server.add_routes(router).serve_with_incoming_shutdown(
            incoming,
            async {
                let _ = closed.await;
            },
        ));
        // Whether the process lives is told from the start, however much there is to take over.
        let taking = service.clone();
        let over = async move {
            match taking.take_over().await {
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        tokio::select! {
            ended = &mut served => return Err(ServerError::Ended {
                reason: match ended {
                    Ok(Ok(())) => "it ended by itself".into(),
                    Ok(Err(error)) => with_sources(&error),
                    Err(error) => error.to_string(),
                },
            }),
            error = over => return Err(error.into()),
            () = end => {}
        }
        service.stop_taking();
        health
            .set_not_serving::<PipelineServiceServer<Service>>()
            .await;
        if tokio::time::timeout(self.options.drain, service.until_idle())
            .await
            .is_err()
        {
            tracing::warn!("updates that still run are stopped");
            let _ = tokio::time::timeout(STOPPING, service.stop_running()).await;
        }
        let _ = close.send(());
        if tokio::time::timeout(FAREWELL, &mut served).await.is_err() {
            served.abort();
        }
        Ok(())
    }

    fn router(
        &self,
        service: &Service,
        mut services: RoutesBuilder,
        health: tonic_health::pb::health_server::HealthServer<
            impl tonic_health::pb::health_server::Health,
        >,
    ) -> Result<Routes, ServerError> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let wrong = |e: tonic_reflection::server::Error| ServerError::Ended {
            reason: format!("the services can't be described: {e}"),
        };
        services
            .add_service(
                PipelineServiceServer::new(service.clone())
                    .max_decoding_message_size(LARGEST_REQUEST)
                    .max_encoding_message_size(LARGEST_ANSWER),
            )
            .add_service(health)
            .add_service(reflection().build_v1().map_err(wrong)?)
            .add_service(reflection().build_v1alpha().map_err(wrong)?);
        let (ready, metrics) = (service.clone(), service.metrics());
        let is_ready = move || {
            let is_ready = ready.is_ready();
            async move {
                if is_ready {
                    (StatusCode::OK, "ready\n")
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
                }
            }
        };
        let measured = service.clone();
        let figures = move || {
            let (mut text, measured) = (metrics.text(), measured.clone());
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            async move {
                text.push_str(&measured.engine_metrics().await);
                ([("content-type", kind)], text)
            }
        };
        let router = services
            .routes()
            .into_axum_router()
            .route("/health/live", get(|| async { "alive\n" }))
            .route("/health/ready", get(is_ready))
            .route("/metrics", get(figures))
            .fallback(unknown);
        let gate = Gate {
            token: self.options.token.clone(),
            metrics: service.metrics(),
        };
        Ok(Routes::from(
            router.layer(axum::middleware::from_fn_with_state(gate, check)),
        ))
    }
}

async fn unknown(request: Request) -> Response {
    if is_grpc(&request) {
        let path = request.uri().path();
        return tonic::Status::unimplemented(format!("there is no method {path}")).into_http();
    }
    (StatusCode::NOT_FOUND, "there is nothing here\n").into_response()
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(bind: &str, token: bool, tls: bool, client_ca: bool) -> ServerOptions {
        ServerOptions {
            bind: bind.parse().expect("an address"),
            token: token.then(|| Token::new("sesame").expect("a token")),
            tls: tls.then(|| Tls {
                certificate: Vec::new(),
                key: Vec::new(),
                client_ca: client_ca.then(Vec::new),
            }),
            insecure_remote: false,
            drain: Duration::ZERO,
        }
    }

    #[test]
    fn others_reach_it_only_secured() {
        let is_refused = |options: &ServerOptions| check_secured(options).is_err();
        assert!(!is_refused(&options("127.0.0.1:0", false, false, false)));
        assert!(!is_refused(&options("[::1]:0", false, false, false)));
        assert!(is_refused(&options("0.0.0.0:0", false, false, false)));
        assert!(is_refused(&options("[::]:0", true, false, false)));
        assert!(is_refused(&options("10.0.0.1:0", true, false, false)));
        assert!(is_refused(&options("10.0.0.1:0", false, true, false)));
        assert!(!is_refused(&options("10.0.0.1:0", true, true, false)));
        assert!(!is_refused(&options("10.0.0.1:0", false, true, true)));
        let mut in_words = options("0.0.0.0:0", false, false, false);
        in_words.insecure_remote = true;
        assert!(!is_refused(&in_words));
    }
}
