//! Traces and logs of both roles: one update is one trace, as a collector made of OpenTelemetry's own
//! parts sees it (`tests/traces`), and each line of the log knows what it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::LIMIT;
use super::figures::Pair;
use crate::s3::on_s3;
use crate::{Outcome, python, words};

/// The lines that a process writes, kept as they come.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let all = Self::default();
        let kept = all.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                kept.0.lock().unwrap_or_else(|e| e.into_inner()).push(line);
            }
        });
        all
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Waits until one of them is wanted; gives it.
    async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Outcome<String> {
        let began = Instant::now();
        loop {
            let all = self.all();
            if let Some(line) = all.iter().find(|line| wanted(line)) {
                return Ok(line.clone());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("no {what} came: {all:#?}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A collector as a process of its own. Ended when it is dropped.
struct Collector {
    _process: Child,
    lines: Lines,
    endpoint: String,
}

impl Collector {
    async fn start() -> Outcome<Self> {
        let mut process = Command::new(python::interpreter_for("traces")?)
            .arg(python::folder().join("traces/collector.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(words)?;
        let lines = Lines::of(process.stdout.take().ok_or("no stdout")?);
        let is_address = |line: &str| line.starts_with("http");
        let endpoint = lines.until("address", is_address).await?;
        Ok(Self {
            _process: process,
            lines,
            endpoint,
        })
    }

    fn spans(&self) -> Outcome<Vec<Value>> {
        let lines = self.lines.all();
        let spans = lines.iter().filter(|line| line.starts_with('{'));
        spans
            .map(|line| serde_json::from_str(line).map_err(words))
            .collect()
    }

    async fn until(&self, service: &str, name: &str) -> Outcome {
        let what = format!("span `{name}` of {service}");
        let is_wanted = |line: &str| {
            serde_json::from_str::<Value>(line)
                .is_ok_and(|span| span["service"] == service && span["name"] == name)
        };
        self.lines.until(&what, is_wanted).await.map(|_| ())
    }
}

/// Looks for a line with a message, all of them being JSON objects.
fn logged(lines: &Lines, message: &str) -> Outcome<Value> {
    let lines = lines.all();
    let mut found = None;
    for line in &lines {
        let value: Value =
            serde_json::from_str(line).map_err(|e| format!("`{line}` is no JSON: {e}"))?;
        for key in ["timestamp", "level", "service", "target"] {
            if !value[key].is_string() {
                return Err(format!("no {key} in {line}"));
            }
        }
        if value["message"] == message {
            found = Some(value);
        }
    }
    found.ok_or_else(|| format!("`{message}` is not logged: {lines:#?}"))
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

/// The names from a span up to the root of its trace.
fn way(span: &Value, all: &BTreeMap<&str, &Value>) -> Outcome<String> {
    let mut names = vec![text(span, "name")];
    let mut above = text(span, "parent");
    while !above.is_empty() {
        let parent = all
            .get(above)
            .ok_or_else(|| format!("the span above {names:?} never came"))?;
        names.push(text(parent, "name"));
        above = text(parent, "parent");
    }
    Ok(names.join(" < "))
}

fn check_one_trace(spans: &[Value], update: &str) -> Outcome {
    let of_update = |span: &&Value| span["name"] == "update";
    let roots: Vec<&Value> = spans.iter().filter(of_update).collect();
    let [root] = roots[..] else {
        return Err(format!("not one update: {roots:?}"));
    };
    let attributes = &root["attributes"];
    let is_whole = attributes["update"] == update
        && attributes["pipeline"] == "pipeline_under_test"
        && attributes["state"] == "COMPLETED";
    // Who knows the update knows its trace.
    if !is_whole || text(root, "trace") != update.replace('-', "") {
        return Err(format!("{update} is {root}"));
    }
    let ours: BTreeMap<&str, &Value> = spans
        .iter()
        .filter(|span| span["trace"] == root["trace"])
        .map(|span| (text(span, "span"), span))
        .collect();
    let mut ways = BTreeSet::new();
    for span in ours.values() {
        ways.insert(format!("{}: {}", text(span, "service"), way(span, &ours)?));
    }
    for wanted in [
        "windrow-scheduler: update",
        "windrow-scheduler: flow < update",
        "windrow-scheduler: commit < flow < update",
        "windrow-scheduler: put < commit < flow < update",
        "windrow-scheduler: attempt < slice < flow < update",
        "windrow-executor: task < attempt < slice < flow < update",
    ] {
        if !ways.contains(wanted) {
            return Err(format!("no `{wanted}` among {ways:#?}"));
        }
    }
    Ok(())
}

#[test]
fn one_update_is_one_trace_across_processes() {
    on_s3(async |server| {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = crate::s3::pipeline(&server, scratch.path()).await?;
        let root = pipeline.lake.root.to_string();
        let collector = Collector::start().await?;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("WINDROW_LOG_FORMAT", "json"),
            (
                "WINDROW_LOG",
                "warn,windrow_scheduler=info,windrow_executor=debug",
            ),
        ];
        let mut pair = Pair::start(&server, scratch.path(), &root, &variables).await?;
        let stderr = pair.scheduler.child.stderr.take().ok_or("no stderr")?;
        let scheduler = Lines::of(stderr);
        let executor = Lines::of(pair.executor.stderr.take().ok_or("no stderr")?);
        let run = pair.scheduler.call(&pipeline, "run", &[]).await?;
        let report = run.expect_exit(0)?.report()?;
        let update = report["update_id"].as_str().ok_or("no update")?;
        collector.until("windrow-scheduler", "update").await?;
        collector.until("windrow-executor", "task").await?;
        // Both send their last spans when they end.
        pair.scheduler.terminate().await?;
        super::told_to_end(&mut pair.executor).await?;
        check_one_trace(&collector.spans()?, update)?;

        let flow = logged(&scheduler, "a flow ended")?;
        let task = logged(&executor, "a task ended")?;
        for (line, service) in [(&flow, "windrow-scheduler"), (&task, "windrow-executor")] {
            if line["service"] != service || line["update"] != update || line["flow"] != "t" {
                return Err(format!("{line}"));
            }
        }
        if flow["status"] != "COMPLETED" || flow["pipeline"] != "pipeline_under_test" {
            return Err(format!("{flow}"));
        }
        for key in ["slice", "stage", "task"] {
            if !task[key].is_u64() {
                return Err(format!("no {key} in {task}"));
            }
        }
        Ok(())
    });
}
