//! Health and metrics of an executor, in plain HTTP for the machines that look after it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ballista_executor::health::ExecutorHealth;
use datafusion::execution::memory_pool::MemoryPool;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use windrow_delta::figures::Figures;
use windrow_delta::traffic;

use crate::process::Tasks;

/// Serves until the handle is aborted.
///
/// # Errors
/// If the address can't be listened on.
pub(crate) async fn serve(
    bind: SocketAddr,
    tasks: Arc<Tasks>,
    pool: Arc<dyn MemoryPool>,
    limit: usize,
    health: ExecutorHealth,
) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
    let ready = move || {
        let health = health.clone();
        async move {
            match health.is_ready() {
                true => (StatusCode::OK, "ready"),
                false => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the scheduler does not answer",
                ),
            }
        }
    };
    let metrics = move || {
        let text = metrics(&tasks, pool.reserved(), limit);
        async move { text }
    };
    let router = Router::new()
        .route("/health/live", get(|| async { "alive" }))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics));
    let listener = TcpListener::bind(bind).await?;
    Ok(tokio::spawn(
        async move { axum::serve(listener, router).await },
    ))
}

/// In the text format of Prometheus.
fn metrics(tasks: &Tasks, reserved: usize, limit: usize) -> String {
    let (running, succeeded, failed) = tasks.counts();
    let mut figures = Figures::default();
    figures.by(
        "windrow_tasks_total",
        "counter",
        "Tasks that ended.",
        "outcome",
        [("succeeded", succeeded), ("failed", failed)],
    );
    figures.gauge("windrow_tasks_running", "Tasks that run.", running);
    figures.gauge(
        "windrow_memory_used_bytes",
        "Memory that operators hold.",
        reserved as u64,
    );
    figures.gauge(
        "windrow_memory_limit_bytes",
        "Memory that operators may hold before they spill.",
        limit as u64,
    );
    figures.counter(
        "windrow_spill_bytes_total",
        "Bytes that operators put on disk for want of memory.",
        tasks.spilled(),
    );
    traffic::figures(&mut figures);
    figures.text()
}
