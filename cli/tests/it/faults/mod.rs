//! Faults below a cluster of real processes: certificates that do not fit, a network that is cut, a
//! disk that is full. An update ends right, or it fails in words and changes nothing.

mod disk;
mod lost;
mod memory;
mod network;
mod strangers;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;

use crate::crash::{NOW, prepared, twin};
use crate::lake::Lake;
use crate::pipeline::{Pipeline, target};
use crate::program::Ended;
use crate::scheduler::Scheduler;
use crate::{Outcome, cells, program, words};

/// Nothing that is waited for takes longer, whatever the machine does besides.
const LIMIT: Duration = Duration::from_secs(150);
/// Days of the window of [`busy`].
const DAYS: u64 = 4;
/// The number of the update that nothing disturbs.
const UNDISTURBED: usize = 1_000;
/// How many updates may be over before a fault strikes one, on a machine of whatever speed.
const UPDATES: usize = 20;
const RUNNING: &str = "windrow_tasks_running";
const SUCCEEDED: &str = "windrow_tasks_total{outcome=\"succeeded\"}";

/// An executor in a process of its own, which is ended when this is dropped.
struct Executor {
    child: Child,
    /// Where others fetch what its tasks made.
    address: SocketAddr,
    /// Where it tells of its health.
    http: SocketAddr,
    work: PathBuf,
    said: Arc<Mutex<String>>,
}

impl Executor {
    /// Starts one for the scheduler at `scheduler`. Its files go below `work`.
    async fn start(work: &Path, scheduler: &str, more: &[&str]) -> Outcome<Self> {
        let http = free_address()?;
        let mut child = Self::begin(work, scheduler, http, more)?;
        let said = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            keep(stderr, said.clone());
        }
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line())
            .await
            .map_err(|_| "the executor does not say where it listens")?
            .map_err(words)?;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = first
            .as_deref()
            .and_then(|line| line.strip_prefix("executor listening on "))
            .and_then(|address| address.parse().ok());
        let told = || said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Self {
            address: address.ok_or_else(|| format!("the executor does not listen: {}", told()))?,
            child,
            http,
            work: work.to_path_buf(),
            said,
        })
    }

    fn begin(work: &Path, scheduler: &str, http: SocketAddr, more: &[&str]) -> Outcome<Child> {
        std::fs::create_dir_all(work).map_err(words)?;
        let (http, folder) = (http.to_string(), work.to_string_lossy().into_owned());
        let mut arguments = vec!["executor", "--scheduler", scheduler];
        if !more.contains(&"--slots") {
            arguments.extend(["--slots", "1"]);
        }
        arguments.extend(["--work-dir", &folder, "--http", &http]);
        arguments.extend(more);
        program::start(work, &arguments, &quiet())
    }

    /// All that it said so far.
    fn told(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone()
    }

    async fn figure(&self, name: &str) -> Outcome<u64> {
        figure(&get(self.http, "/metrics").await?, name)
    }

    /// Whether it has ended, and how.
    fn ended(&mut self) -> Outcome<Option<i32>> {
        let ended = self.child.try_wait().map_err(words)?;
        Ok(ended.map(|status| status.code().unwrap_or(-1)))
    }
}

/// A scheduler with a pipeline for it, and what comes out when nothing goes wrong.
struct Machines {
    scheduler: Scheduler,
    pipeline: Pipeline,
    old: Vec<cells::Row>,
    new: Vec<cells::Row>,
    folder: PathBuf,
}

impl Machines {
    /// `sql` stands for the pipeline of [`prepared`] when it is empty.
    async fn start(folder: &Path, rows_a_day: u32, sql: &str, more: &[&str]) -> Outcome<Self> {
        let pipeline = prepared(&folder.join("lake"), rows_a_day).await?;
        let mut clean = twin(&pipeline, &folder.join("clean"))?;
        let mut machines = Self::over(pipeline, folder, more).await?;
        if !sql.is_empty() {
            clean = clean.sql(sql);
            machines.pipeline.files.clone_from(&clean.files);
        }
        clean.call("run", &NOW).await?.expect_exit(0)?;
        machines.old = machines.pipeline.lake.all_rows(&target("t")).await?;
        machines.new = clean.lake.all_rows(&target("t")).await?;
        match machines.old == machines.new {
            true => Err("the update changes nothing".into()),
            false => Ok(machines),
        }
    }

    /// A scheduler for a pipeline of which no result is known.
    async fn over(pipeline: Pipeline, folder: &Path, more: &[&str]) -> Outcome<Self> {
        let storage = folder.join("scheduler").to_string_lossy().into_owned();
        let room = folder.to_string_lossy().into_owned();
        let mut arguments = vec!["scheduler", "--bind", "127.0.0.1:0", "--storage", &storage];
        arguments.extend(["--allow-path", &room]);
        arguments.extend(more);
        Ok(Self {
            scheduler: Scheduler::start_as(folder, &arguments, &[]).await?,
            pipeline,
            old: Vec::new(),
            new: Vec::new(),
            folder: folder.to_path_buf(),
        })
    }

    /// Where the tables of an update lie that has its own, so that it has the work of all others.
    fn storage(&self, number: usize) -> String {
        let folder = self.folder.join("out").join(number.to_string());
        folder.to_string_lossy().into_owned()
    }

    fn lake(&self, number: usize) -> Outcome<Lake> {
        Lake::folder(Path::new(&self.storage(number)))
    }

    /// What such an update makes when nothing goes wrong.
    async fn undisturbed(&self) -> Outcome<Vec<cells::Row>> {
        let storage = self.storage(UNDISTURBED);
        let arguments: Vec<&str> = NOW.into_iter().chain(["--storage", &storage]).collect();
        let call = self.pipeline.call("run", &arguments);
        call.await?.expect_exit(0)?;
        self.lake(UNDISTURBED)?.all_rows("tables/t").await
    }

    /// The table of such an update has these rows.
    async fn check(&self, number: usize, rows: &[cells::Row]) -> Outcome {
        let found = self.lake(number)?.all_rows("tables/t").await?;
        let difference = cells::difference(&found, rows);
        difference.map_or(Ok(()), |d| Err(format!("update {number}: {d}")))
    }

    async fn executor(&self, name: &str, scheduler: &str, more: &[&str]) -> Outcome<Executor> {
        Executor::start(&self.folder.join(name), scheduler, more).await
    }

    async fn figure(&self, name: &str) -> Outcome<u64> {
        figure(&self.scheduler.get("/metrics", "").await?.1, name)
    }

    /// Waits until the scheduler knows so many executors.
    async fn wait_for(&self, count: u64) -> Outcome {
        until("the executors", async || {
            Ok(self.figure("windrow_executors").await? == count)
        })
        .await
    }

    /// The table has these rows.
    async fn expect(&self, rows: &[cells::Row]) -> Outcome {
        let found = self.pipeline.lake.all_rows(&target("t")).await?;
        cells::difference(&found, rows).map_or(Ok(()), Err)
    }
}

/// An update of [`Machines::storage`] under way.
struct Running(JoinHandle<Outcome<Ended>>);

impl Running {
    fn begin(machines: &Machines, number: usize) -> Outcome<Self> {
        let storage = machines.storage(number);
        let arguments: Vec<&str> = NOW.into_iter().chain(["--storage", &storage]).collect();
        let scheduler = &machines.scheduler;
        let child = scheduler.begin(&machines.pipeline, "run", &arguments)?;
        Ok(Self(tokio::spawn(program::end(child))))
    }

    /// Waits until a figure of an executor has grown beyond `from`; false when the update is over
    /// before.
    async fn until_grown(&self, executor: &Executor, name: &str, from: u64) -> Outcome<bool> {
        loop {
            if executor.figure(name).await? > from {
                return Ok(true);
            }
            if self.0.is_finished() {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Outcome<Ended> {
        tokio::time::timeout(LIMIT, self.0)
            .await
            .map_err(|_| "the update hangs")?
            .map_err(words)?
    }
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > LIMIT {
            return Err(format!("{what}: waited for in vain"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn quiet() -> HashMap<String, String> {
    HashMap::from([("WINDROW_LOG".to_string(), "warn".to_string())])
}

fn keep(stderr: ChildStderr, said: Arc<Mutex<String>>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&line);
            said.push('\n');
        }
    });
}

/// An address that was free a moment ago.
fn free_address() -> Outcome<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(words)?;
    listener.local_addr().map_err(words)
}

/// The body of a plain HTTP answer.
async fn get(address: SocketAddr, path: &str) -> Outcome<String> {
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .map_err(words)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(words)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(words)?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok(body.to_string())
}

/// A figure of `/metrics`, by its name and labels.
fn figure(text: &str, name: &str) -> Outcome<u64> {
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    found.ok_or_else(|| format!("no {name} in {text}"))
}

/// A query whose stages pass all rows of the window on, several times over: it keeps executors busy
/// and shuffles much.
fn busy() -> String {
    format!(
        "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= date_add(current_date(), -{DAYS}) BY NAME
        SELECT d, k, sum(x) + max(place) - max(place) AS x FROM (
          SELECT d, k, x, row_number() OVER (PARTITION BY k ORDER BY d, x) AS place FROM s
        ) GROUP BY d, k;"
    )
}

/// Bytes of what tasks left below a folder.
fn left(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => left(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
