//! The port of a scheduler that waits while another one leads: it lives, is not ready, and refuses what
//! is the leader's with a word that clients know.
//!
//! Whoever came to it by a name that stands for several schedulers must not stay with it, so its
//! connections end after a while; the next one may find the leader.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Status;

use super::ServiceError;
use super::auth::is_grpc;
use super::server::ServerError;

/// How long a connection may last.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);
/// How long answers that are on their way may take when it begins to lead.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who leads, as far as it is known.
pub type Leader = watch::Receiver<Option<String>>;

/// A port that is served until this is ended.
#[derive(Debug)]
pub struct Standby {
    close: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Standby {
    pub(crate) fn new(
        close: oneshot::Sender<()>,
        served: JoinHandle<Result<(), tonic::transport::Error>>,
    ) -> Self {
        Self { close, served }
    }

    /// Returns when the port fails, and not before.
    pub async fn failed(&mut self) -> ServerError {
        super::server::ended((&mut self.served).await)
    }

    /// Gives the port back, for the one who leads from here on.
    pub async fn end(mut self) {
        let _ = self.close.send(());
        // Streams of the health service stay open; they hear of the change where they are.
        let _ = tokio::time::timeout(FAREWELL, &mut self.served).await;
    }
}

/// Refuses whatever is asked.
pub(crate) fn refusing(router: Router, leader: Leader) -> Router {
    router.fallback(move |request: Request| {
        let leader = leader.borrow().clone();
        async move { refused(&request, leader) }
    })
}

fn refused(request: &Request, leader: Option<String>) -> Response {
    let error = ServiceError::NotLeading { leader };
    if is_grpc(request) {
        return Status::from(error).into_http();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
}
