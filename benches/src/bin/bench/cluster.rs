//! The measurements of a cluster: a scheduler and executors as processes of their own on this machine,
//! held against Windrow in one process, or against fewer executors. What a scheduler itself needs is
//! read from `/proc`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cases::{
    Bench, DAILY, END, EVERYTHING, History, LINES, Outcome, complete, events_query, flow,
    is_complete, link_tree, start_anew, write_pipeline,
};
use crate::measure::{self, Sample};
use crate::report::{Measurement, Target};
use crate::share::Share;
use crate::synthetic;

/// How long processes may take to find each other.
const START: Duration = Duration::from_secs(60);
/// Slices that one update has in `queue`, at full scale.
const SLICES: f64 = 10_000.0;
/// Updates of `idle` at full scale, and the flows of its pipeline.
const UPDATES: f64 = 1_000.0;
const FLOWS: usize = 100;
/// Clock ticks of `/proc/PID/stat` in a second, on all Linux systems that matter.
const TICKS: f64 = 100.0;

/// A scheduler and its executors, which end with this value.
struct Cluster {
    scheduler: Child,
    executors: Vec<Child>,
    /// Of executors that get a share of a core. Dropped after they have ended.
    shares: Vec<Share>,
    address: String,
    _home: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.executors.iter_mut().chain([&mut self.scheduler]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Cluster {
    fn start(bench: &Bench, executors: usize, slots: usize, share: Option<f64>) -> Outcome<Self> {
        let home = tempfile::tempdir_in(&bench.cache)?;
        let mut scheduler = Command::new(&bench.windrow)
            .args(["scheduler", "--bind", "127.0.0.1:0", "--storage"])
            .arg(home.path().join("scheduler"))
            .arg("--allow-path")
            .arg(&bench.cache)
            .env("WINDROW_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = scheduler.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .map(str::to_string);
        let mut cluster = Self {
            scheduler,
            executors: Vec::new(),
            shares: Vec::new(),
            address: address.ok_or("the scheduler does not listen")?,
            _home: home,
        };
        for _ in 0..executors {
            let work = cluster._home.path().join("work");
            let executor = Command::new(&bench.windrow)
                .args(["executor", "--scheduler", &cluster.address])
                .args(["--slots", &slots.to_string(), "--work-dir"])
                .arg(work)
                .env("WINDROW_LOG", "error")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()?;
            let pid = executor.id();
            cluster.executors.push(executor);
            if let Some(share) = share {
                cluster.shares.push(Share::hold(pid, share)?);
            }
        }
        let begun = Instant::now();
        while cluster.figure("windrow_executors")? != executors as f64 {
            if begun.elapsed() > START {
                return Err(format!("{executors} executors did not come").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(cluster)
    }

    /// One of the scheduler's own figures.
    fn figure(&self, name: &str) -> Outcome<f64> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .ok_or_else(|| format!("the scheduler does not tell `{name}`"))?;
        Ok(value.trim().parse()?)
    }

    fn let_do(&self, command: &mut Command) -> Outcome<Sample> {
        let url = format!("http://{}", self.address);
        Ok(measure::run(command.env("WINDROW_SCHEDULER", url))?)
    }

    /// Bytes that the scheduler holds now, and held at most.
    fn memory(&self) -> Outcome<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.scheduler.id()))?;
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kib << 10)
        };
        match (of("VmRSS:"), of("VmHWM:")) {
            (Some(now), Some(most)) => Ok((now, most)),
            _ => Err("the scheduler's memory is not told".into()),
        }
    }

    /// Processor time of the scheduler so far.
    fn busy(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.scheduler.id()))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        // The name is the second field; times in user and kernel mode are the 14th and 15th.
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_secs_f64(ticks as f64 / TICKS))
    }
}

impl Bench {
    /// Seven years and one day of daily sums, on one executor and in one process.
    pub async fn cluster(&self) -> Outcome<Vec<Measurement>> {
        let scale = self.scale.unwrap_or(1.0);
        let lake = self.lake(scale).await?;
        let daily = self.history(&lake, scale, DAILY, &[])?;
        let one = Cluster::start(self, 1, 2, None)?;
        let mut measurements = Vec::new();
        for (name, predicate, target) in [
            (
                "cluster years",
                format!("flow_rows=ship_date >= DATE '{EVERYTHING}'"),
                Target {
                    ratio: Some(1.25),
                    ..Target::default()
                },
            ),
            (
                "cluster day",
                format!("flow_rows=ship_date = DATE '{END}'"),
                Target {
                    extra_wall: Some(Duration::from_millis(300)),
                    ..Target::default()
                },
            ),
        ] {
            let more = ["--replace-where", predicate.as_str()];
            let (windrow, baseline) = self.in_turn(
                |work| self.on_copy(&one, "run", &daily, work, &more),
                |work| {
                    self.update(&daily, work, &more)
                        .map(|s| Sample { rows: None, ..s })
                },
            )?;
            measurements.push(Measurement {
                name: format!("{name}, SF {scale}"),
                against: "Windrow does the same in one process",
                windrow,
                baseline,
                target,
                more: Vec::new(),
            });
        }
        Ok(measurements)
    }

    /// A backfill on two executors and on one.
    pub async fn scaling(&self) -> Outcome<Measurement> {
        let scale = self.scale.unwrap_or(1.0);
        let lake = self.lake(scale).await?;
        let rows = self.history(&lake, scale, LINES, &["ship_date"])?;
        let one = Cluster::start(self, 1, 1, self.share)?;
        let two = Cluster::start(self, 2, 1, self.share)?;
        let range = [
            "--flow",
            "flow_rows",
            "--from",
            "2019-12-01",
            "--to",
            "2026-12-01",
        ];
        let more: Vec<&str> = range
            .into_iter()
            .chain(["--by", "month", "--parallel", "4"])
            .collect();
        let (windrow, baseline) = self.in_turn(
            |work| self.on_copy(&two, "backfill", &rows, work, &more),
            |work| self.on_copy(&one, "backfill", &rows, work, &more),
        )?;
        let held = self
            .share
            .map(|share| format!(", each with {share} of a core"));
        Ok(Measurement {
            name: format!("two executors{}, SF {scale}", held.unwrap_or_default()),
            against: "one executor does the same backfill, month by month",
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.0 / 1.7),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// One update of very many slices: what the scheduler needs for them.
    pub async fn queue(&self) -> Outcome<Measurement> {
        let slices = (SLICES * self.scale.unwrap_or(1.0)).max(1.0) as u64;
        let home = self.cache.join(format!("queue-{slices}"));
        let lake = home.join("lake");
        let history = History {
            pipeline: home.join("pipeline"),
            storage: home.join("storage"),
        };
        let window = format!(
            "day >= DATE '{}' AND day < DATE '{}'",
            END - chrono::Days::new(slices - 1),
            END + chrono::Days::new(1)
        );
        write_pipeline(
            &history.pipeline,
            &lake,
            &flow(&events_query(), &window, &[]),
        )?;
        if !is_complete(&home) {
            start_anew(&[&lake, &history.storage])?;
            synthetic::write_source_of(&lake.join("synthetic/events"), END, slices, 1).await?;
            complete(&home)?;
        }
        let cluster = Cluster::start(self, 1, 2, None)?;
        let before = cluster.busy()?;
        let work = tempfile::tempdir_in(&self.cache)?;
        let more = ["--by", "day", "--parallel", "4"];
        let sample = self.on_copy(&cluster, "run", &history, work.path(), &more)?;
        let staged = cluster.figure("windrow_staged_slices_total")?;
        if staged < slices as f64 {
            return Err(format!("{staged} of {slices} slices were computed on executors").into());
        }
        let each = (cluster.busy()? - before).as_secs_f64() * 1_000.0 / slices as f64;
        let peak_bytes = cluster.memory()?.1;
        Ok(Measurement {
            name: format!("queue, {slices} slices"),
            against: "nothing; the peak is the scheduler's",
            windrow: vec![Sample {
                peak_bytes,
                ..sample
            }],
            baseline: Vec::new(),
            target: Target {
                peak: Some(500 << 20),
                ..Target::default()
            },
            more: vec![(
                format!("{each:.2} of 5 ms of the scheduler for a slice"),
                each < 5.0,
            )],
        })
    }

    /// Updates that find nothing to do, one after the other: what the scheduler keeps of them.
    pub async fn idle(&self) -> Outcome<Measurement> {
        let updates = (UPDATES * self.scale.unwrap_or(1.0)).max(10.0) as usize;
        let home = self.cache.join("idle");
        let lake = home.join("lake");
        let history = History {
            pipeline: home.join("pipeline"),
            storage: home.join("storage"),
        };
        let sql: String = (0..FLOWS)
            .map(|number| {
                flow(&events_query(), "day >= date_add(current_date(), -6)", &[])
                    .replace("flow_rows", &format!("flow_rows{number}"))
            })
            .collect();
        write_pipeline(&history.pipeline, &lake, &sql)?;
        if !is_complete(&home) {
            start_anew(&[&lake, &history.storage])?;
            synthetic::write_source_of(&lake.join("synthetic/events"), END, 10, 10).await?;
            measure::run(&mut self.command("run", &history.pipeline, &history.storage))?;
            complete(&home)?;
        }
        let cluster = Cluster::start(self, 0, 0, None)?;
        let work = tempfile::tempdir_in(&self.cache)?;
        let storage = work.path().join("storage");
        link_tree(&history.storage, &storage)?;
        let (mut samples, mut early) = (Vec::new(), 0);
        for number in 1..=updates {
            let mut command = self.command("run", &history.pipeline, &storage);
            let mut sample = cluster.let_do(&mut command)?;
            let report: Value = serde_json::from_str(&sample.stdout)?;
            let flows = report["flows"].as_array().map_or(&[][..], Vec::as_slice);
            if flows.len() != FLOWS || flows.iter().any(|f| f["technique"] != "NO_OP") {
                return Err(format!("a flow had something to do: {report}").into());
            }
            let (now, most) = cluster.memory()?;
            (sample.peak_bytes, sample.stdout) = (most, String::new());
            samples.push(sample);
            if number == updates / 10 {
                early = now;
            }
        }
        let (late, allowed) = (cluster.memory()?.0, early + early / 10 + (16 << 20));
        let mib = |bytes: u64| bytes >> 20;
        Ok(Measurement {
            name: format!("idle, {updates} updates"),
            against: "nothing; the peak is the scheduler's",
            windrow: samples,
            baseline: Vec::new(),
            target: Target::default(),
            more: vec![(
                format!("{} MiB after a tenth, {} at the end", mib(early), mib(late)),
                late <= allowed,
            )],
        })
    }

    /// A command on a copy of a history, done by a cluster.
    fn on_copy(
        &self,
        cluster: &Cluster,
        verb: &str,
        history: &History,
        work: &Path,
        more: &[&str],
    ) -> Outcome<Sample> {
        let storage = work.join("storage");
        link_tree(&history.storage, &storage)?;
        let mut command = self.command(verb, &history.pipeline, &storage);
        let sample = cluster.let_do(command.args(more))?;
        let report: Value = serde_json::from_str(&sample.stdout)?;
        match report["state"].as_str() {
            Some("COMPLETED") => Ok(sample),
            _ => Err(format!("it did not complete: {report}").into()),
        }
    }
}
