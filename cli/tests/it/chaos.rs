//! Faults at random places: the same work as without them must come out, row for row, and every file
//! that a table names must be there and whole.
//!
//! Each lane has a scheduler and executors of its own, on S3. A placement is one update of a window
//! with other numbers than before, and one fault while it runs. `WINDROW_CHAOS` says how many
//! placements, `WINDROW_CHAOS_SEED` where they begin.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::inside;
use crate::lake::{Column, Lake, NewTable, batches, register};
use crate::pipeline::{Pipeline, target};
use crate::s3::{Faulty, Server};
use crate::{Outcome, program, words};

const LANES: u64 = 3;
const PLACEMENTS: u64 = 100;
const NOW: &str = "2026-03-10T00:00:00Z";
/// A placement that takes longer hangs. A client that waits for its scheduler gives up before.
const LIMIT: Duration = Duration::from_secs(300);
const DAYS: u32 = 9;
const ROWS_A_DAY: u32 = 400;

const SQL: &str = "
CREATE STREAMING TABLE t PARTITIONED BY (d) FLOW REPLACE WHERE d >= date_add(current_date(), -6) BY NAME
  SELECT f.d, f.k, sum(f.x) * ${factor} AS s, count(*) AS n, max(m.name) AS name
  FROM fact f LEFT JOIN dim m ON f.k = m.k GROUP BY f.d, f.k;
";

/// The places at which a scheduler of a development build dies on demand.
const STEPS: [&str; 6] = [
    "before_stage",
    "after_stage",
    "before_commit",
    "after_commit",
    "before_events",
    "after_events",
];

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    KillExecutor(u64),
    KillAllExecutors(u64),
    StopExecutor(u64),
    KillScheduler(u64),
    SchedulerDiesAt(&'static str),
    DrainExecutor(u64),
}

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn fault(seed: u64) -> Fault {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    chance.below(7);
    let wait = 50 + chance.below(1200);
    match chance.below(20) {
        0 | 1 => Fault::None,
        2..=8 => Fault::KillExecutor(wait),
        9 => Fault::KillAllExecutors(wait),
        10 => Fault::StopExecutor(wait),
        11..=13 => Fault::KillScheduler(wait),
        14..=17 => Fault::SchedulerDiesAt(STEPS[chance.below(STEPS.len() as u64) as usize]),
        _ => Fault::DrainExecutor(wait),
    }
}

/// A scheduler with executors, and the pipeline that runs on them.
struct Lane {
    pipeline: Pipeline,
    /// The way of the processes to the store, on which some requests go wrong.
    variables: HashMap<String, String>,
    work: tempfile::TempDir,
    port: u16,
    scheduler: Option<Child>,
    executors: Vec<Child>,
    _faulty: Faulty,
}

impl Lane {
    async fn start(server: &Arc<Server>, number: u64, seed: u64) -> Outcome<Self> {
        let work = tempfile::tempdir().map_err(words)?;
        let lake = server.lake()?;
        sources(&lake).await?;
        let folder = work.path().join("pipeline");
        std::fs::create_dir_all(&folder).map_err(words)?;
        let pipeline = Pipeline::new(&folder, lake)
            .source("fact")
            .source("dim")
            .sql(SQL);
        // Every other lane has a store on which a twentieth of the requests goes wrong.
        let share = if number % 2 == 1 { "0.05" } else { "0" };
        let faulty = Faulty::start(server, share, seed)?;
        let mut variables: HashMap<String, String> = pipeline.lake.options.clone();
        variables.insert("AWS_ENDPOINT_URL".into(), faulty.endpoint.clone());
        variables.insert("WINDROW_LOG".into(), "off".into());
        let mut lane = Self {
            pipeline,
            variables,
            work,
            port: 0,
            scheduler: None,
            executors: Vec::new(),
            _faulty: faulty,
        };
        lane.start_scheduler(None).await?;
        for _ in 0..2 {
            lane.add_executor()?;
        }
        Ok(lane)
    }

    fn folder(&self) -> PathBuf {
        self.work.path().to_path_buf()
    }

    async fn start_scheduler(&mut self, dies_at: Option<&str>) -> Outcome {
        let mut variables = self.variables.clone();
        if let Some(step) = dies_at {
            variables.insert("WINDROW_DIE_AT".into(), step.into());
        }
        let root = self.pipeline.lake.location("");
        let (bind, storage) = (
            format!("127.0.0.1:{}", self.port),
            format!("{root}/scheduler"),
        );
        let arguments = [
            "scheduler",
            "--bind",
            &bind,
            "--storage",
            &storage,
            "--allow-path",
            &root,
            "--lease-seconds",
            "6",
        ];
        let begun = Instant::now();
        let (child, mut lines, told) = loop {
            let mut child = program::start(&self.folder(), &arguments, &variables)?;
            let stdout = child.stdout.take().ok_or("no stdout")?;
            let mut lines = BufReader::new(stdout).lines();
            let told = tokio::time::timeout(LIMIT, lines.next_line())
                .await
                .map_err(|_| "the scheduler does not listen".to_string())?
                .map_err(words)?;
            if let Some(told) = told {
                break (child, lines, told);
            }
            // While nobody listened there, any connection of this machine may have been given the port.
            let ended = program::end(child).await?;
            if self.port == 0 || begun.elapsed() > LIMIT {
                return Err(format!("the scheduler ended at once: {}", ended.told()));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        self.port = told
            .rsplit(':')
            .next()
            .and_then(|p| p.trim().parse().ok())
            .ok_or_else(|| format!("no port in `{told}`"))?;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        self.scheduler = Some(child);
        Ok(())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn add_executor(&mut self) -> Outcome {
        let (scheduler, work) = (self.address(), self.work.path().join("work"));
        let arguments = [
            "executor",
            "--scheduler",
            &scheduler,
            "--slots",
            "1",
            "--work-dir",
            &work.to_string_lossy(),
            "--drain-seconds",
            "20",
        ];
        let child = program::start(&self.folder(), &arguments, &self.variables)?;
        self.executors.push(child);
        Ok(())
    }

    /// One update with one fault; done again, as a user would, until it is through.
    async fn place(&mut self, seed: u64) -> Outcome {
        let fault = fault(seed);
        if let Fault::SchedulerDiesAt(step) = fault {
            self.end_scheduler().await?;
            self.start_scheduler(Some(step)).await?;
        }
        let begun = Instant::now();
        let mut first = true;
        loop {
            let url = format!("http://{}", self.address());
            let factor = format!("factor={}", seed + 1);
            let arguments = ["--now", NOW, "--conf", &factor, "--scheduler", &url];
            let call = self.pipeline.start("run", &arguments, &[])?;
            let mut ended = tokio::spawn(program::end(call));
            if std::mem::take(&mut first) {
                self.strike(fault).await?;
            }
            let ended = loop {
                let look = Duration::from_millis(200);
                match tokio::time::timeout(look, &mut ended).await {
                    Ok(ended) => break ended.map_err(words)??,
                    Err(_) => self.mend().await?,
                }
            };
            if ended.exit == Some(0) {
                break;
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("seed {seed}, {fault:?}: {}", ended.told()));
            }
            self.mend().await?;
        }
        self.mend().await?;
        self.check(seed)
            .await
            .map_err(|e| format!("seed {seed}, {fault:?}: {e}"))
    }

    async fn strike(&mut self, fault: Fault) -> Outcome {
        let wait = |millis| tokio::time::sleep(Duration::from_millis(millis));
        match fault {
            Fault::None | Fault::SchedulerDiesAt(_) => {}
            Fault::KillExecutor(millis) => {
                wait(millis).await;
                self.executors.remove(0).kill().await.map_err(words)?;
                self.add_executor()?;
            }
            Fault::KillAllExecutors(millis) => {
                wait(millis).await;
                for mut executor in std::mem::take(&mut self.executors) {
                    executor.kill().await.map_err(words)?;
                }
                wait(1000).await;
                self.add_executor()?;
                self.add_executor()?;
            }
            Fault::StopExecutor(millis) => {
                wait(millis).await;
                let mut stopped = self.executors.remove(0);
                signal(&stopped, "STOP").await?;
                self.add_executor()?;
                wait(25_000).await;
                // It comes back as one that was taken for lost.
                signal(&stopped, "CONT").await?;
                wait(1000).await;
                stopped.kill().await.map_err(words)?;
            }
            Fault::KillScheduler(millis) => {
                wait(millis).await;
                self.end_scheduler().await?;
                self.start_scheduler(None).await?;
            }
            Fault::DrainExecutor(millis) => {
                wait(millis).await;
                let mut draining = self.executors.remove(0);
                signal(&draining, "TERM").await?;
                self.add_executor()?;
                let ended = tokio::time::timeout(LIMIT, draining.wait()).await;
                ended
                    .map_err(|_| "an executor did not end after SIGTERM".to_string())?
                    .map_err(words)?;
            }
        }
        Ok(())
    }

    async fn end_scheduler(&mut self) -> Outcome {
        if let Some(mut scheduler) = self.scheduler.take() {
            scheduler.kill().await.map_err(words)?;
        }
        Ok(())
    }

    /// What died is started again, as something that looks after processes would.
    async fn mend(&mut self) -> Outcome {
        let is_dead = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)) | Err(_));
        if self.scheduler.as_mut().is_none_or(is_dead) {
            self.start_scheduler(None).await?;
        }
        self.executors
            .retain_mut(|e| !matches!(e.try_wait(), Ok(Some(_)) | Err(_)));
        while self.executors.len() < 2 {
            self.add_executor()?;
        }
        Ok(())
    }

    /// The table has the rows of this seed, and its files are there.
    async fn check(&self, seed: u64) -> Outcome {
        let lake = &self.pipeline.lake;
        let table = lake.open(&target("t")).await?;
        let context = SessionContext::new();
        register(&context, "t", &table).await?;
        let fact = lake.open("src/fact").await?;
        register(&context, "fact", &fact).await?;
        let dim = lake.open("src/dim").await?;
        register(&context, "dim", &dim).await?;
        let expected = format!(
            "SELECT f.d, f.k, sum(f.x) * {} AS s, count(*) AS n, max(m.name) AS name FROM fact f LEFT JOIN dim m ON f.k = m.k \
             WHERE f.d >= DATE '2026-03-04' GROUP BY f.d, f.k",
            seed + 1
        );
        let found = "SELECT d, k, s, n, name FROM t";
        for (what, sql) in [
            ("rows too many", format!("{found} EXCEPT ALL {expected}")),
            ("rows missing", format!("{expected} EXCEPT ALL {found}")),
        ] {
            let rows: usize = batches(&context, &sql)
                .await?
                .iter()
                .map(|b| b.num_rows())
                .sum();
            if rows > 0 {
                return Err(format!("{rows} {what}"));
            }
        }
        Ok(())
    }
}

async fn signal(child: &Child, name: &str) -> Outcome {
    let pid = child.id().ok_or("the process is gone")?.to_string();
    let sent = tokio::process::Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status()
        .await
        .map_err(words)?;
    match sent.success() {
        true => Ok(()),
        false => Err(format!("signal {name} was not sent")),
    }
}

async fn sources(lake: &Lake) -> Outcome {
    let column = |name: &str, delta_type: &str| Column {
        name: name.into(),
        delta_type: delta_type.into(),
        nullable: true,
    };
    let fact = NewTable {
        columns: vec![
            column("d", "date"),
            column("k", "long"),
            column("x", "long"),
        ],
        ..NewTable::default()
    };
    lake.create("src/fact", &fact).await?;
    for day in 1..=DAYS {
        let rows = format!(
            "SELECT DATE '2026-03-0{day}' AS d, value % 37 AS k, value + {day} AS x FROM generate_series(1, {ROWS_A_DAY})"
        );
        append(lake, "src/fact", &rows).await?;
    }
    let dim = NewTable {
        columns: vec![column("k", "long"), column("name", "string")],
        ..NewTable::default()
    };
    lake.create("src/dim", &dim).await?;
    append(
        lake,
        "src/dim",
        "SELECT value AS k, 'n' || value AS name FROM generate_series(0, 40, 2)",
    )
    .await
}

async fn append(lake: &Lake, at: &str, sql: &str) -> Outcome {
    let rows = batches(&SessionContext::new(), sql).await?;
    let schema = rows.first().map(|b| b.schema()).ok_or("no rows")?;
    let rows = datafusion::arrow::compute::concat_batches(&schema, &rows).map_err(words)?;
    lake.append(at, rows).await
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn faults_at_random_places_change_no_row() {
    let (count, from) = (
        number("WINDROW_CHAOS", PLACEMENTS),
        number("WINDROW_CHAOS_SEED", 1),
    );
    let server = Server::shared().unwrap_or_else(|e| panic!("{e}"));
    let lanes: Vec<_> = (0..LANES.min(count))
        .map(|number| {
            let server = server.clone();
            inside::run(move || async move {
                let mut lane = Lane::start(&server, number, from).await?;
                let mut seed = from + number;
                while seed < from + count {
                    lane.place(seed).await?;
                    seed += LANES;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    let failures: Vec<String> = lanes
        .into_iter()
        .filter_map(|lane| match lane.join() {
            Ok(outcome) => outcome.err(),
            Err(panic) => std::panic::resume_unwind(panic),
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
