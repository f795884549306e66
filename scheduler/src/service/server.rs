//! The scheduler's one port: gRPC services, health, figures, behind token and TLS. While another
//! scheduler leads it is `standby`'s.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use windrow_proto::v1::FILE_DESCRIPTOR_SET;
use windrow_proto::v1::pipeline_service_server::PipelineServiceServer;

use super::auth::{Gate, Token, check, is_grpc};
use super::metrics::Metrics;
use super::standby::{self, Leader, Standby};
use super::status::Status;
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
    /// Where health and figures are told besides, in plain HTTP and to everybody.
    pub http: Option<SocketAddr>,
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

/// A port that is taken. It tells how the process does as soon as somebody serves it, and on the
/// port of `http` from here on.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
    options: ServerOptions,
    status: Status,
    health: HealthReporter,
    http: Option<JoinHandle<std::io::Result<()>>>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(http) = &self.http {
            http.abort();
        }
    }
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
        let status = Status::default();
        let http = match options.http {
            None => None,
            Some(bind) => {
                let failed = |source| ServerError::Bind { bind, source };
                Some(status.serve(bind).await.map_err(failed)?)
            }
        };
        let bound = Self {
            listener: listener.into_std().map_err(failed)?,
            address,
            options,
            status,
            health: HealthReporter::new(),
            http,
        };
        bound.set_health(ServingStatus::NotServing).await;
        Ok(bound)
    }

    /// With the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is counted of this process.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.status.metrics()
    }

    async fn set_health(&self, status: ServingStatus) {
        self.health.set_service_status("", status).await;
        match status {
            ServingStatus::Serving => {
                self.health
                    .set_serving::<PipelineServiceServer<Service>>()
                    .await;
            }
            _ => {
                self.health
                    .set_not_serving::<PipelineServiceServer<Service>>()
                    .await;
            }
        }
    }

    fn server(&self) -> Result<Server, ServerError> {
        let server = Server::builder()
            .accept_http1(true)
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        let Some(tls) = &self.options.tls else {
            return Ok(server);
        };
        choose_cryptography();
        let identity = Identity::from_pem(&tls.certificate, &tls.key);
        let mut config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
        if let Some(ca) = &tls.client_ca {
            config = config.client_ca_root(Certificate::from_pem(ca));
        }
        server.tls_config(config).map_err(|e| ServerError::Tls {
            reason: with_sources(&e),
        })
    }

    /// The same port again, for the next one who serves it.
    fn incoming(&self) -> Result<TcpIncoming, ServerError> {
        let bind = self.options.bind;
        let failed = |source| ServerError::Bind { bind, source };
        let listener = self.listener.try_clone().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        Ok(TcpIncoming::from(listener).with_nodelay(Some(true)))
    }

    /// Serves the port while `leader` leads.
    ///
    /// # Errors
    /// `TLS_NOT_USABLE`, or if the port is gone.
    pub fn stand_by(&self, leader: Leader) -> Result<Standby, ServerError> {
        let routes = self.common(RoutesBuilder::default())?;
        let router = routes.into_axum_router();
        let router = standby::refusing(router.merge(self.status.router()), leader);
        let mut server = self.server()?.max_connection_age(standby::LONGEST);
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let served = server
            .add_routes(self.gated(router))
            .serve_with_incoming_shutdown(self.incoming()?, async {
                let _ = closed.await;
            });
        Ok(Standby::new(close, tokio::spawn(served)))
    }

    /// Serves `service`, and what `services` holds besides, until `end`; then lets the updates that run
    /// go on for a while, and stops them.
    ///
    /// # Errors
    /// `TLS_NOT_USABLE`, and `SERVER_ENDED` when the port fails.
    pub async fn serve(
        self,
        service: Service,
        mut services: RoutesBuilder,
        end: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        services.add_service(
            PipelineServiceServer::new(service.clone())
                .max_decoding_message_size(LARGEST_REQUEST)
                .max_encoding_message_size(LARGEST_ANSWER),
        );
        let router = self.common(services)?.into_axum_router();
        let router = router.merge(self.status.router()).fallback(unknown);
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let mut served = tokio::spawn(
            self.server()?
                .add_routes(self.gated(router))
                .serve_with_incoming_shutdown(self.incoming()?, async {
                    let _ = closed.await;
                }),
        );
        self.status.leads(service.clone());
        // Whether the process lives is told from the start, however much there is to take over.
        let over = async {
            match service.take_over().await {
                Ok(()) => {
                    self.set_health(ServingStatus::Serving).await;
                    std::future::pending().await
                }
                Err(error) => error,
            }
        };
        tokio::select! {
            failed = &mut served => return Err(ended(failed)),
            error = over => return Err(error.into()),
            () = end => {}
        }
        service.stop_taking();
        self.set_health(ServingStatus::NotServing).await;
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

    /// What a scheduler that waits serves as well: gRPC's own health service, and reflection.
    fn common(&self, mut services: RoutesBuilder) -> Result<Routes, ServerError> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let wrong = |e: tonic_reflection::server::Error| ServerError::Ended {
            reason: format!("the services can't be described: {e}"),
        };
        let health = HealthService::from_health_reporter(self.health.clone());
        services
            .add_service(HealthServer::new(health))
            .add_service(reflection().build_v1().map_err(wrong)?)
            .add_service(reflection().build_v1alpha().map_err(wrong)?);
        Ok(services.routes())
    }

    /// Behind the token.
    fn gated(&self, router: Router) -> Routes {
        let gate = Gate {
            token: self.options.token.clone(),
            metrics: self.status.metrics(),
        };
        Routes::from(router.layer(axum::middleware::from_fn_with_state(gate, check)))
    }
}

/// Why the task that serves a port is over.
pub(crate) fn ended(
    ended: Result<Result<(), tonic::transport::Error>, tokio::task::JoinError>,
) -> ServerError {
    ServerError::Ended {
        reason: match ended {
            Ok(Ok(())) => "it ended by itself".into(),
            Ok(Err(error)) => with_sources(&error),
            Err(error) => error.to_string(),
        },
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
            http: None,
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
