//! What scheduler and executors serve at `/metrics`: all that docs/kubernetes.md promises, nothing else,
//! and the right numbers.

use std::process::Command;

use tokio::process::Child;

use super::{Scheduler, http_get};
use crate::s3::{Server, on_s3};
use crate::{Outcome, program, python, words};

/// Both roles of a cluster on object storage, with health and metrics in plain HTTP.
pub struct Pair {
    pub scheduler: Scheduler,
    pub executor: Child,
    /// Addresses of health and metrics.
    pub http: [String; 2],
}

fn free_address() -> Outcome<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(words)?;
    Ok(listener.local_addr().map_err(words)?.to_string())
}

impl Pair {
    /// Starts both, for pipelines below `root`.
    pub async fn start(
        server: &Server,
        folder: &std::path::Path,
        root: &str,
        variables: &[(&str, &str)],
    ) -> Outcome<Self> {
        let http = [free_address()?, free_address()?];
        let storage = format!("{root}scheduler");
        let mut all: std::collections::HashMap<String, String> =
            server.lake()?.options.into_iter().collect();
        let more = variables.iter();
        all.extend(more.map(|(k, v)| (k.to_string(), v.to_string())));
        let variables: Vec<(&str, &str)> = all.iter().map(|(k, v)| (&**k, &**v)).collect();
        let arguments = [
            "scheduler",
            "--bind",
            "127.0.0.1:0",
            "--http",
            &http[0],
            "--storage",
            &storage,
            "--allow-path",
            root,
        ];
        let scheduler = Scheduler::start_as(folder, &arguments, &variables).await?;
        let work = folder.join("work").to_string_lossy().into_owned();
        let arguments = [
            "executor",
            "--scheduler",
            &scheduler.address,
            "--http",
            &http[1],
            "--slots",
            "2",
            "--work-dir",
            &work,
        ];
        let executor = program::start(folder, &arguments, &all)?;
        scheduler.until_ready().await?;
        Ok(Self {
            scheduler,
            executor,
            http,
        })
    }
}

fn value(figures: &str, metric: &str) -> Outcome<u64> {
    let found = figures
        .lines()
        .find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    found
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("no {metric} in {figures}"))
}

#[test]
fn what_is_served_is_what_is_documented() {
    on_s3(async |server| {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = crate::s3::pipeline(&server, scratch.path()).await?;
        let root = pipeline.lake.root.to_string();
        let pair = Pair::start(&server, scratch.path(), &root, &[]).await?;
        pair.scheduler
            .call(&pipeline, "run", &[])
            .await?
            .expect_exit(0)?;

        let compared = Command::new(python::interpreter_for("deploy")?)
            .arg(python::folder().join("deploy/compare_metrics.py"))
            .args(pair.http.iter().map(|address| format!("http://{address}")))
            .output()
            .map_err(words)?;
        if !compared.status.success() {
            return Err(format!(
                "{}{}",
                String::from_utf8_lossy(&compared.stdout),
                String::from_utf8_lossy(&compared.stderr)
            ));
        }

        let (_, scheduler) = http_get(&pair.http[0], "/metrics", "").await?;
        for (metric, wanted) in [
            ("windrow_leading", 1),
            ("windrow_executors", 1),
            ("windrow_queued_slices", 0),
            ("windrow_staged_slices_total", 1),
            ("windrow_updates_total{state=\"COMPLETED\"}", 1),
            ("windrow_updates_total{state=\"FAILED\"}", 0),
            ("windrow_flows_total{status=\"COMPLETED\"}", 1),
            ("windrow_rows_written_total", 5),
        ] {
            let found = value(&scheduler, metric)?;
            if found != wanted {
                return Err(format!("{metric} is {found}, not {wanted}"));
            }
        }
        let slots = ["free", "busy"].map(|state| {
            let metric = format!("windrow_executor_slots{{state=\"{state}\"}}");
            value(&scheduler, &metric)
        });
        let [free, busy] = slots;
        if free? + busy? != 2 {
            return Err("two slots are not two".into());
        }
        let (_, executor) = http_get(&pair.http[1], "/metrics", "").await?;
        let put = "windrow_store_requests_total{operation=\"put\",outcome=\"ok\"}";
        let get = "windrow_store_requests_total{operation=\"get\",outcome=\"ok\"}";
        for (figures, metric) in [
            (&scheduler, "windrow_staged_bytes_total"),
            (&scheduler, put),
            (&scheduler, get),
            (&executor, put),
            (&executor, get),
            (&executor, "windrow_tasks_total{outcome=\"succeeded\"}"),
            (&executor, "windrow_memory_limit_bytes"),
        ] {
            if value(figures, metric)? == 0 {
                return Err(format!("{metric} is 0 in {figures}"));
            }
        }
        Ok(())
    });
}
