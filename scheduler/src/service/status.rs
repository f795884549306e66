//! What a scheduler says of itself to the machines that look after it: that it lives, whether it
//! serves, its figures. It says so from the start, also while another scheduler leads.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use windrow_delta::figures::Figures;

use super::Service;
use super::metrics::Metrics;

const FIGURES: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Of one process; clones are handles of the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    metrics: Arc<Metrics>,
    /// Set once it leads.
    service: Arc<OnceLock<Service>>,
}

impl Status {
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// From here on the service is what is told of.
    pub(crate) fn leads(&self, service: Service) {
        self.metrics.leads();
        // A process leads once in its life.
        let _ = self.service.set(service);
    }

    fn ready(&self) -> (StatusCode, &'static str) {
        match self.service.get() {
            Some(service) if service.is_ready() => (StatusCode::OK, "ready\n"),
            Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            None => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: this scheduler does not lead\n",
            ),
        }
    }

    async fn figures(&self) -> String {
        let mut figures = Figures::default();
        self.metrics.write(&mut figures);
        if let Some(service) = self.service.get() {
            service.engine_metrics(&mut figures).await;
        }
        figures.text()
    }

    /// The three paths.
    pub(crate) fn router(&self) -> Router {
        let (ready, figures) = (self.clone(), self.clone());
        Router::new()
            .route("/health/live", get(|| async { "alive\n" }))
            .route(
                "/health/ready",
                get(move || {
                    let answer = ready.ready();
                    async move { answer }
                }),
            )
            .route(
                "/metrics",
                get(move || {
                    let figures = figures.clone();
                    async move { ([("content-type", FIGURES)], figures.figures().await) }
                }),
            )
    }

    /// Answers on a port of its own, in plain HTTP and to everybody, until the handle is aborted.
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub(crate) async fn serve(
        &self,
        bind: SocketAddr,
    ) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
        let listener = TcpListener::bind(bind).await?;
        let router = self.router();
        Ok(tokio::spawn(
            async move { axum::serve(listener, router).await },
        ))
    }
}
