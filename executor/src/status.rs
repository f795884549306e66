//! Health and metrics of an executor, in plain HTTP for the machines that look after it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ballista_executor::health::ExecutorHealth;
use datafusion::execution::memory_pool::MemoryPool;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

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
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[(&str, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    family(
        "windrow_tasks_total",
        "counter",
        "Tasks that ended.",
        &[
            ("{outcome=\"succeeded\"}", succeeded),
            ("{outcome=\"failed\"}", failed),
        ],
    );
    family(
        "windrow_tasks_running",
        "gauge",
        "Tasks that run.",
        &[("", running)],
    );
    family(
        "windrow_memory_used_bytes",
        "gauge",
        "Memory that operators hold.",
        &[("", reserved as u64)],
    );
    family(
        "windrow_memory_limit_bytes",
        "gauge",
        "Memory that operators may hold before they spill.",
        &[("", limit as u64)],
    );
    text
}
