//! How the processes of a cluster reach each other and know each other: certificates, a token, the
//! version of what they say.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballista_core::extension::{BallistaConfigGrpcEndpoint, SessionConfigExt};
use datafusion::prelude::SessionConfig;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{
    Certificate, ClientTlsConfig, Endpoint, Error, Identity, Server, ServerTlsConfig,
};
use tonic::{Request, Status};

/// The metadata that carries the version.
const VERSION_KEY: &str = "windrow-version";
/// The program's version and that of what its processes say to each other. The second number grows
/// whenever a plan node, a function or a message changes.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");

/// Why a link can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("{what} {path} can't be read: {source}", path = path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the token may hold visible characters only, and must not be empty")]
    Token,
    #[error("`{address}` is no address that can be connected to: {reason}")]
    Address { address: String, reason: String },
    #[error("{0}")]
    Incomplete(&'static str),
}

/// Files with which a process shows who it is and knows others.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// Certificate authorities that other processes' certificates must come from.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The name that other processes' certificates must have, where it is not the host's.
    pub name: Option<String>,
}

#[derive(Clone)]
struct Tls {
    ca: Certificate,
    identity: Option<Identity>,
    name: Option<String>,
}

/// A way to other processes. The default speaks plainly and shows nothing.
#[derive(Clone, Default)]
pub struct Link {
    token: Option<MetadataValue<Ascii>>,
    tls: Option<Arc<Tls>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("token", &self.token.is_some())
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, LinkError> {
    std::fs::read(path).map_err(|source| LinkError::File {
        what,
        path: path.to_path_buf(),
        source,
    })
}

impl Link {
    /// # Errors
    /// If a file can't be read, a part is missing, or the token has characters that can't be sent.
    pub fn new(files: &TlsFiles, token: Option<&str>) -> Result<Self, LinkError> {
        let token = match token.map(str::trim) {
            None => None,
            Some("") => return Err(LinkError::Token),
            Some(token) => {
                let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
                    .parse()
                    .map_err(|_| LinkError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let identity = match (&files.certificate, &files.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Identity::from_pem(
                read("the certificate", certificate)?,
                read("the private key", key)?,
            )),
            _ => {
                return Err(LinkError::Incomplete(
                    "a certificate and its private key belong together; one of them is missing",
                ));
            }
        };
        let tls = match &files.ca {
            None if identity.is_some() => {
                return Err(LinkError::Incomplete(
                    "a certificate is of no use without the authority that others are checked against",
                ));
            }
            None => None,
            Some(ca) => Some(Arc::new(Tls {
                ca: Certificate::from_pem(read("the certificate authority", ca)?),
                identity,
                name: files.name.clone(),
            })),
        };
        Ok(Self { token, tls })
    }

    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    fn client(tls: &Tls) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(tls.ca.clone());
        if let Some(identity) = &tls.identity {
            config = config.identity(identity.clone());
        }
        if let Some(name) = &tls.name {
            config = config.domain_name(name);
        }
        config
    }

    /// A way to `address`, with or without its scheme.
    ///
    /// # Errors
    /// If it is no address, or its scheme does not fit to the link.
    pub fn endpoint(&self, address: &str) -> Result<Endpoint, LinkError> {
        let wrong = |reason: String| LinkError::Address {
            address: address.to_string(),
            reason,
        };
        let scheme = if self.has_tls() { "https" } else { "http" };
        let url = match address.split_once("://") {
            None => format!("{scheme}://{address}"),
            Some(("https", _)) if !self.has_tls() => {
                return Err(wrong("https needs a certificate authority".into()));
            }
            Some(("http", _)) if self.has_tls() => {
                return Err(wrong("certificates are given, but http sends none".into()));
            }
            Some(_) => address.to_string(),
        };
        let endpoint = Endpoint::from_shared(url).map_err(|e| wrong(told(&e)))?;
        let endpoint = self.over_tls(endpoint).map_err(|e| wrong(told(&e)))?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(20))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true))
    }

    fn over_tls(&self, endpoint: Endpoint) -> Result<Endpoint, Error> {
        match &self.tls {
            Some(tls) => endpoint.tls_config(Self::client(tls)),
            None => Ok(endpoint),
        }
    }

    /// A server that only processes with a certificate of the same authority reach, where there are
    /// certificates.
    ///
    /// # Errors
    /// If the certificates can't be used.
    pub fn server(&self) -> Result<Server, LinkError> {
        let server = Server::builder().tcp_nodelay(true);
        let Some(tls) = &self.tls else {
            return Ok(server);
        };
        let Some(identity) = &tls.identity else {
            return Err(LinkError::Incomplete(
                "a process that others connect to needs a certificate and its private key",
            ));
        };
        let config = ServerTlsConfig::new()
            .identity(identity.clone())
            .client_ca_root(tls.ca.clone());
        server.tls_config(config).map_err(|e| LinkError::Address {
            address: "this process".into(),
            reason: told(&e),
        })
    }

    /// How the distributed runtime makes its own connections; `None` for its usual way.
    pub fn customized(&self) -> Option<Arc<BallistaConfigGrpcEndpoint>> {
        let tls = self.tls.clone()?;
        Some(Arc::new(BallistaConfigGrpcEndpoint::new(Arc::new(
            move |endpoint: Endpoint| Ok(endpoint.tls_config(Self::client(&tls))?),
        ))))
    }

    /// The settings with which tasks fetch from other executors.
    #[must_use]
    pub fn configured(&self, config: SessionConfig) -> SessionConfig {
        match &self.tls {
            None => config,
            Some(tls) => {
                let tls = tls.clone();
                config
                    .with_ballista_use_tls(true)
                    .with_ballista_override_create_grpc_client_endpoint(Arc::new(
                        move |endpoint: Endpoint| Ok(endpoint.tls_config(Self::client(&tls))?),
                    ))
            }
        }
    }

    /// Puts version and token onto each request.
    pub fn greeting(&self) -> Greeting {
        Greeting {
            token: self.token.clone(),
        }
    }
}

/// What each request to a scheduler carries.
#[derive(Clone)]
pub struct Greeting {
    token: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Greeting {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert(VERSION_KEY, MetadataValue::from_static(VERSION));
        if let Some(token) = &self.token {
            metadata.insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Whether a process that sent this speaks as this one does.
///
/// # Errors
/// The status to answer with otherwise.
pub fn same_version(metadata: &MetadataMap) -> Result<(), Status> {
    let theirs = metadata.get(VERSION_KEY).and_then(|v| v.to_str().ok());
    match theirs {
        Some(VERSION) => Ok(()),
        theirs => Err(Status::failed_precondition(format!(
            "VERSION_MISMATCH: the scheduler is windrow {VERSION}, the executor is {}; run the same version on both",
            theirs.map_or_else(
                || "of an unknown version".into(),
                |v| format!("windrow {v}")
            )
        ))),
    }
}

fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}
