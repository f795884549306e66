//! A scheduler in a process of its own: it answers as an embedded run does, survives its own death,
//! stops what it is told to stop, and lets in only those whom it should.

mod answers;
mod doors;
mod ends;
mod figures;
mod service;
mod standby;
mod telemetry;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;

use crate::lake::Lake;
use crate::pipeline::{Pipeline, STORAGE};
use crate::program::{self, Ended};
use crate::{Outcome, words};

/// Nothing that is waited for takes longer, whatever the machine does besides.
const LIMIT: Duration = Duration::from_secs(120);

/// A scheduler that listens. Its process is ended when this is dropped.
pub struct Scheduler {
    child: Child,
    pub address: String,
}

/// A query that ends long after the test.
const ENDLESS: &str =
    "CREATE STREAMING TABLE slow FLOW REPLACE WHERE d >= DATE '2026-01-01' BY NAME
    SELECT a.d, sum((a.x * b.x + c.k) % 7) AS x FROM s a CROSS JOIN s b CROSS JOIN s c CROSS JOIN s e GROUP BY a.d;";

impl Scheduler {
    /// Starts one whose storage is in `folder`, with room for the lakes in it.
    async fn start(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome<Self> {
        let storage = folder.join("scheduler").to_string_lossy().into_owned();
        let room = folder.to_string_lossy().into_owned();
        let mut all = vec![
            "scheduler",
            "--in-process",
            "--storage",
            &storage,
            "--allow-path",
            &room,
        ];
        if !arguments.contains(&"--bind") {
            all.extend(["--bind", "127.0.0.1:0"]);
        }
        all.extend(arguments);
        Self::start_as(folder, &all, variables).await
    }

    /// Starts one with these arguments, the command among them.
    pub async fn start_as(
        folder: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Outcome<Self> {
        let variables: HashMap<String, String> = variables
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let begun = std::time::Instant::now();
        loop {
            let mut child = program::start(folder, arguments, &variables)?;
            let stdout = child.stdout.take().ok_or("no stdout")?;
            let mut lines = BufReader::new(stdout).lines();
            let first = tokio::time::timeout(LIMIT, lines.next_line())
                .await
                .map_err(|_| "the scheduler does not say where it listens")?
                .map_err(words)?;
            let address = first
                .as_deref()
                .and_then(|line| line.strip_prefix("listening on "))
                .map(str::to_string);
            if let Some(address) = address {
                return Ok(Self { child, address });
            }
            let mut said = String::new();
            if let Some(stderr) = &mut child.stderr {
                let _ = stderr.read_to_string(&mut said).await;
            }
            // While nobody listened there, any connection of this machine may have been given the port.
            let in_use = said.contains("already in use");
            if !in_use || begun.elapsed() > LIMIT {
                return Err(format!("the scheduler does not listen: {said}"));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The process; `None` when it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `windrow COMMAND PIPELINE ... --scheduler`.
    pub async fn call(
        &self,
        pipeline: &Pipeline,
        command: &str,
        arguments: &[&str],
    ) -> Outcome<Ended> {
        program::end(self.begin(pipeline, command, arguments)?).await
    }

    pub fn begin(&self, pipeline: &Pipeline, command: &str, arguments: &[&str]) -> Outcome<Child> {
        pipeline.start(command, arguments, &[("WINDROW_SCHEDULER", &self.url())])
    }

    /// Ends the process at once, as a crash would.
    async fn kill(mut self) -> Outcome {
        self.child.kill().await.map_err(words)
    }

    /// Tells it to end, and waits until it has.
    async fn terminate(mut self) -> Outcome<Option<i32>> {
        told_to_end(&mut self.child).await
    }

    /// An HTTP/1.1 request as old tools make it: status and body.
    pub async fn get(&self, path: &str, headers: &str) -> Outcome<(u16, String)> {
        http_get(&self.address, path, headers).await
    }

    /// Waits until it serves.
    pub async fn until_ready(&self) -> Outcome {
        let began = std::time::Instant::now();
        loop {
            let (status, body) = self.get("/health/ready", "").await?;
            if status == 200 {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("it is not ready: {body}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The updates of a pipeline, the newest first.
    async fn updates(&self, pipeline: &Pipeline) -> Outcome<Vec<Value>> {
        let listed = self.call(pipeline, "updates", &[]).await?.expect_exit(0)?;
        let updates = listed.report()?["updates"].clone();
        serde_json::from_value(updates).map_err(words)
    }

    /// Waits until the newest update of a pipeline is in a state; gives its id.
    async fn until(&self, pipeline: &Pipeline, state: &str) -> Outcome<String> {
        let began = std::time::Instant::now();
        loop {
            let updates = self.updates(pipeline).await?;
            let found = updates.first().filter(|u| u["state"] == state);
            if let Some(id) = found.and_then(|u| u["update_id"].as_str()) {
                return Ok(id.to_string());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("no update is {state}: {updates:?}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// `updates stop ID`.
    pub async fn stop(&self, folder: &Path, id: &str) -> Outcome<Ended> {
        let variables = HashMap::from([("WINDROW_SCHEDULER".to_string(), self.url())]);
        let arguments = ["updates", "stop", id, "--output", "json"];
        program::end(program::start(folder, &arguments, &variables)?).await
    }
}

/// Tells a process to end, and waits until it has.
async fn told_to_end(child: &mut Child) -> Outcome<Option<i32>> {
    let pid = child.id().ok_or("it has ended already")?.to_string();
    let told = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    if !told.map_err(words)?.success() {
        return Err("it could not be told to end".into());
    }
    let ended = tokio::time::timeout(LIMIT, child.wait()).await;
    let ended = ended.map_err(|_| "it did not end")?.map_err(words)?;
    Ok(ended.code())
}

/// An HTTP/1.1 request as old tools make it: status and body.
async fn http_get(address: &str, path: &str, headers: &str) -> Outcome<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .map_err(words)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(words)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(words)?;
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok((status.ok_or("no status")?, body.to_string()))
}

/// The pipeline of another one's lake that never ends by itself.
fn endless(of: &Pipeline, folder: &Path, name: &str) -> Outcome<Pipeline> {
    let at = folder.join(name);
    std::fs::create_dir_all(&at).map_err(words)?;
    let mut pipeline = Pipeline::new(&at, of.lake.clone()).source("s").sql(ENDLESS);
    pipeline.keys = format!(
        "name: {name}\nstorage: \"{}/{name}\"\n",
        of.lake.location(STORAGE)
    );
    Ok(pipeline)
}

/// A report without what differs between two runs that do the same.
fn comparable(report: &Value, lake: &Lake) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in [
                    "update_id",
                    "id",
                    "duration_ms",
                    "timestamp",
                    "backfill_id",
                    // How rows lie in a file is left to chance.
                    "bytes_written",
                    "cost",
                    "estimated_cost",
                    "past_runs",
                ] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut report = report.clone();
    strip(&mut report);
    let dir = lake.location("");
    report
        .to_string()
        .replace(dir.trim_end_matches('/'), "{dir}")
}
