//! The measurements: what each needs, what Windrow does in it, and what plain DataFusion or delta-rs
//! does for the same result.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chrono::{Days, NaiveDate};
use serde_json::Value;
use windrow_benches::lake::{LakeOptions, SCHEMA, Table, lake_root, make_lake};

use crate::baseline::{self, QueryTask};
use crate::expressions;
use crate::measure::{self, Sample};
use crate::report::{Measurement, Target};
use crate::synthetic;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The last day of all lakes, which is also the updates' clock.
pub const END: NaiveDate = match NaiveDate::from_ymd_opt(2026, 11, 29) {
    Some(day) => day,
    None => NaiveDate::MIN,
};

/// The first day of the window: with [`END`], seven days.
const WINDOW_START: &str = "2026-11-23";

/// Earlier than every row.
pub const EVERYTHING: &str = "2015-01-01";

/// Files of the source and of the target in `nothing`.
const NOTHING_FILES: u64 = 1_000;

pub const LINES: &str = "\
SELECT l_shipdate AS ship_date, l_orderkey AS order_key, l_linenumber AS line_number, \
l_partkey AS part_key, l_suppkey AS supplier_key, l_quantity AS quantity, \
l_extendedprice AS price, \
CAST(l_extendedprice * (1 - l_discount) AS DECIMAL(18, 4)) AS net_price, \
l_shipmode AS ship_mode, l_comment AS note FROM {table} WHERE l_returnflag <> 'R'";

pub const DAILY: &str = "\
SELECT l_shipdate AS ship_date, l_shipmode AS ship_mode, COUNT(*) AS line_count, \
SUM(l_quantity) AS quantity, \
SUM(CAST(l_extendedprice * (1 - l_discount) AS DECIMAL(18, 4))) AS net_price \
FROM {table} {where} GROUP BY l_shipdate, l_shipmode";

pub const LINEITEM: &str = "samples.tpch.lineitem";
pub const EVENTS: &str = "samples.synthetic.events";

/// What all measurements share.
pub struct Bench {
    /// The `windrow` binary.
    pub windrow: PathBuf,
    /// Where lakes and histories are kept from one run of the bench to the next.
    pub cache: PathBuf,
    /// Instead of each measurement's own scale factor.
    pub scale: Option<f64>,
    pub repeat: usize,
    /// Of a core, that each executor of `scaling` gets.
    pub share: Option<f64>,
}

/// A flow over a lineitem table, with all of its history in the target.
pub struct History {
    pub pipeline: PathBuf,
    pub storage: PathBuf,
}

impl Bench {
    /// Runs the measurements called `name`, all of them without one.
    ///
    /// # Errors
    /// If the name is unknown, a process fails, or the two sides wrote different numbers of rows.
    pub async fn run(&self, name: Option<&str>) -> Outcome<Vec<Measurement>> {
        let all = [
            "window",
            "nothing",
            "planning",
            "years",
            "incremental",
            "update100",
            "noop20",
            "growth",
            "choice",
            "expressions",
            "cluster",
            "scaling",
            "queue",
            "idle",
        ];
        if let Some(name) = name.filter(|name| !all.contains(name)) {
            return Err(format!("there is no `{name}`, only {}", all.join(", ")).into());
        }
        let mut measurements = Vec::new();
        for case in all {
            if name.is_some_and(|name| name != case) {
                continue;
            }
            match case {
                "window" => {
                    measurements.push(self.window("window rows", LINES, &["ship_date"]).await?);
                    measurements.push(self.window("window daily", DAILY, &[]).await?);
                }
                "nothing" => measurements.push(self.nothing().await?),
                "planning" => {
                    measurements.push(self.planning(10_000, 300, None).await?);
                    measurements.push(self.planning(100_000, 2_000, Some(500 << 20)).await?);
                }
                "years" => measurements.push(self.years().await?),
                "incremental" => measurements.push(self.incremental().await?),
                "update100" => measurements.push(self.update100().await?),
                "noop20" => measurements.push(self.noop20().await?),
                "growth" => measurements.extend(self.growth().await?),
                "expressions" => {
                    let millions = self.scale.unwrap_or(10.0);
                    let rows = (millions * 1e6).max(1.0) as usize;
                    measurements.extend(expressions::run(rows, self.repeat).await?);
                }
                "choice" => measurements.extend(self.choice().await?),
                "cluster" => measurements.extend(self.cluster().await?),
                "scaling" => measurements.push(self.scaling().await?),
                "queue" => measurements.push(self.queue().await?),
                _ => measurements.push(self.idle().await?),
            }
        }
        Ok(measurements)
    }

    /// A week of lines is replaced in a target that holds seven years of them.
    async fn window(&self, name: &str, sql: &str, partition_by: &[&str]) -> Outcome<Measurement> {
        let scale = self.scale.unwrap_or(1.0);
        let lake = self.lake(scale).await?;
        let history = self.history(&lake, scale, sql, partition_by)?;
        let from = WINDOW_START.parse()?;
        let (files, schema) = synthetic::files_reaching(&lineitem(&lake), "l_shipdate", from)?;
        let (windrow, baseline) = self.in_turn(
            |work| self.update(&history, work, &[]),
            |work| {
                let out = work.join("rows/");
                let condition = format!("l_shipdate >= DATE '{WINDOW_START}'");
                let task = QueryTask {
                    table: "lineitem",
                    files: &files,
                    schema: &schema,
                    sql: &plain(sql, &condition),
                    out: &out,
                    partition_by,
                };
                self.baseline(work, &task.to_json())
            },
        )?;
        Ok(Measurement {
            name: format!("{name}, SF {scale}"),
            against: "DataFusion reads the window's files and writes the rows",
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.3),
                extra_peak: Some(64 << 20),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// Seven years of daily sums, all replaced by one override.
    async fn years(&self) -> Outcome<Measurement> {
        let scale = self.scale.unwrap_or(10.0);
        let lake = self.lake(scale).await?;
        let history = self.history(&lake, scale, DAILY, &[])?;
        let (files, schema) =
            synthetic::files_reaching(&lineitem(&lake), "l_shipdate", EVERYTHING.parse()?)?;
        let predicate = format!("flow_rows=ship_date >= DATE '{EVERYTHING}'");
        let (windrow, baseline) = self.in_turn(
            |work| self.update(&history, work, &["--replace-where", &predicate]),
            |work| {
                let out = work.join("rows/");
                let condition = format!("l_shipdate >= DATE '{EVERYTHING}'");
                let task = QueryTask {
                    table: "lineitem",
                    files: &files,
                    schema: &schema,
                    sql: &plain(DAILY, &condition),
                    out: &out,
                    partition_by: &[],
                };
                self.baseline(work, &task.to_json())
            },
        )?;
        Ok(Measurement {
            name: format!("years, SF {scale}"),
            against: "DataFusion reads all files and writes the sums",
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.2),
                peak: Some(2 << 30),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// An update of a large target whose source did not change.
    async fn nothing(&self) -> Outcome<Measurement> {
        let home = self.cache.join("nothing");
        let lake = home.join("lake");
        let source = lake.join("synthetic/events");
        let history = History {
            pipeline: home.join("pipeline"),
            storage: home.join("storage"),
        };
        write_pipeline(
            &history.pipeline,
            &lake,
            &flow(
                &events_query(),
                &format!("day >= DATE '{EVERYTHING}'"),
                &["day"],
            ),
        )?;
        if !is_complete(&home) {
            start_anew(&[&lake, &history.storage])?;
            synthetic::write_source(&source, END, NOTHING_FILES).await?;
            measure::run(&mut self.command("run", &history.pipeline, &history.storage))?;
            complete(&home)?;
        }
        let task = baseline::open_task(&[&source, &history.storage.join("tables/flow_rows")]);
        let (windrow, baseline) = self.in_turn(
            |work| {
                let sample = self.update(&history, work, &[])?;
                expect(&sample, "technique", &Value::from("NO_OP"))?;
                // The baseline counts files.
                Ok(Sample {
                    rows: None,
                    ..sample
                })
            },
            |work| self.baseline(work, &task),
        )?;
        Ok(Measurement {
            name: format!("nothing, {NOTHING_FILES} files"),
            against: "delta-rs opens source and target",
            windrow,
            baseline,
            target: Target {
                wall: Some(Duration::from_millis(150)),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// The plan of an update whose source changed, against a target of many files.
    async fn planning(
        &self,
        files: usize,
        most_ms: u64,
        peak: Option<u64>,
    ) -> Outcome<Measurement> {
        let home = self.cache.join(format!("planning-{files}"));
        let (lake, pipeline, storage) = (
            home.join("lake"),
            home.join("pipeline"),
            home.join("storage"),
        );
        let source = lake.join("synthetic/events");
        let target = storage.join("tables/flow_rows");
        let window = "day >= date_add(current_date(), -6)";
        write_pipeline(&pipeline, &lake, &flow(&events_query(), window, &[]))?;
        if !is_complete(&home) {
            start_anew(&[&lake, &storage])?;
            synthetic::write_source(&source, END, NOTHING_FILES).await?;
            let before = END - Days::new(7);
            synthetic::write_target(&target, "bench", before, files).await?;
            measure::run(&mut self.command("run", &pipeline, &storage))?;
            synthetic::change_source(&source, END)?;
            complete(&home)?;
        }
        let task = baseline::open_task(&[&source, &target]);
        let (windrow, baseline) = self.in_turn(
            |_| {
                // Of all techniques the one that looks into the target's whole list of files.
                let mut command = self.command("plan", &pipeline, &storage);
                command.args(["--conf", "windrow.technique=PARTITION_OVERWRITE"]);
                let sample = measure::run(&mut command)?;
                let technique = Value::from("PARTITION_OVERWRITE");
                expect(&sample, "technique", &technique)?;
                Ok(sample)
            },
            |work| self.baseline(work, &task),
        )?;
        Ok(Measurement {
            name: format!("planning, {files} files"),
            against: "delta-rs opens source and target",
            windrow,
            baseline,
            target: Target {
                wall: Some(Duration::from_millis(most_ms)),
                peak,
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// Runs both sides in turn, each first in every second round, after one round that does not
    /// count.
    pub fn in_turn(
        &self,
        windrow: impl Fn(&Path) -> Outcome<Sample>,
        baseline: impl Fn(&Path) -> Outcome<Sample>,
    ) -> Outcome<(Vec<Sample>, Vec<Sample>)> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=self.repeat {
            for windrow_is_next in [round % 2 == 0, round % 2 != 0] {
                let work = tempfile::tempdir_in(&self.cache)?;
                let sample = if windrow_is_next {
                    windrow(work.path())?
                } else {
                    baseline(work.path())?
                };
                if round > 0 {
                    let samples = if windrow_is_next {
                        &mut ours
                    } else {
                        &mut theirs
                    };
                    samples.push(sample);
                }
            }
        }
        same_rows(&ours, &theirs)?;
        Ok((ours, theirs))
    }

    /// `windrow run` on a copy of the history.
    pub fn update(&self, history: &History, work: &Path, more: &[&str]) -> Outcome<Sample> {
        let storage = work.join("storage");
        link_tree(&history.storage, &storage)?;
        let mut command = self.command("run", &history.pipeline, &storage);
        let mut sample = measure::run(command.args(more))?;
        let report = report(&sample)?;
        let figure = |name: &str| report.pointer(&format!("/metrics/{name}"))?.as_u64();
        sample.rows = figure("num_output_rows");
        sample.bytes_read = figure("bytes_scanned");
        sample.files_removed = figure("num_files_removed");
        Ok(sample)
    }

    pub fn baseline(&self, work: &Path, task: &Value) -> Outcome<Sample> {
        let file = work.join("task.json");
        fs::write(&file, task.to_string())?;
        let mut command = Command::new(std::env::current_exe()?);
        let mut sample = measure::run(command.arg(baseline::COMMAND).arg(&file))?;
        sample.rows = Some(sample.stdout.trim().parse()?);
        Ok(sample)
    }

    pub fn command(&self, verb: &str, pipeline: &Path, storage: &Path) -> Command {
        let mut command = Command::new(&self.windrow);
        command
            .arg(verb)
            .arg(pipeline)
            .arg("--storage")
            .arg(storage)
            .args(["--output", "json", "--now"])
            .arg(format!("{END}T12:00:00Z"));
        command
    }

    /// The sample lake of a scale factor, made once.
    pub async fn lake(&self, scale: f64) -> Outcome<PathBuf> {
        let home = self.cache.join(format!("lake-{scale}"));
        let lake = home.join("lake");
        if !is_complete(&home) {
            eprintln!(
                "making a lake of scale factor {scale} at {}",
                lake.display()
            );
            start_anew(&[&lake])?;
            make_lake(
                &lake_root(&lake.to_string_lossy())?,
                scale,
                &LakeOptions::new(END),
            )
            .await?;
            complete(&home)?;
        }
        Ok(lake)
    }

    /// A pipeline of one flow over the lake, and a storage where an override wrote all days before.
    pub fn history(
        &self,
        lake: &Path,
        scale: f64,
        sql: &str,
        partition_by: &[&str],
    ) -> Outcome<History> {
        let kind = if sql == LINES { "rows" } else { "daily" };
        let home = self.cache.join(format!("history-{kind}-{scale}"));
        let history = History {
            pipeline: home.join("pipeline"),
            storage: home.join("storage"),
        };
        let query = sql.replace("{table}", LINEITEM).replace("{where} ", "");
        let window = "ship_date >= date_add(current_date(), -6)";
        write_pipeline(&history.pipeline, lake, &flow(&query, window, partition_by))?;
        if !is_complete(&home) {
            eprintln!("writing the history of {kind} at scale factor {scale}");
            start_anew(&[&history.storage])?;
            let predicate = format!("flow_rows=ship_date >= DATE '{EVERYTHING}'");
            let mut command = self.command("run", &history.pipeline, &history.storage);
            measure::run(command.args(["--replace-where", &predicate]))?;
            complete(&home)?;
        }
        Ok(history)
    }
}

pub fn events_query() -> String {
    format!("SELECT day, id, amount, note FROM {EVENTS}")
}

/// A flow's query for plain DataFusion, where the window is a condition on the table's own column.
fn plain(sql: &str, condition: &str) -> String {
    let filtered = sql.replace("{table}", "lineitem");
    if filtered.contains("{where}") {
        filtered.replace("{where}", &format!("WHERE {condition}"))
    } else {
        format!("{filtered} AND {condition}")
    }
}

pub fn flow(query: &str, window: &str, partition_by: &[&str]) -> String {
    let partitions = match partition_by {
        [] => String::new(),
        columns => format!("PARTITIONED BY ({})\n", columns.join(", ")),
    };
    format!(
        "CREATE OR REFRESH STREAMING TABLE flow_rows\n{partitions}\
         FLOW REPLACE WHERE {window} BY NAME\n{query};\n"
    )
}

pub fn write_pipeline(folder: &Path, lake: &Path, sql: &str) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let lake = Value::from(lake.to_string_lossy());
    fs::write(
        folder.join("windrow.yml"),
        format!(
            "name: bench\nstorage: storage\nlibraries:\n  - file: {{path: flow.sql}}\n\
             catalogs:\n  samples: {lake}\n"
        ),
    )?;
    Ok(fs::write(folder.join("flow.sql"), sql)?)
}

pub fn lineitem(lake: &Path) -> PathBuf {
    lake.join(SCHEMA).join(Table::Lineitem.name())
}

fn marker(home: &Path) -> PathBuf {
    home.join("complete")
}

pub fn is_complete(home: &Path) -> bool {
    marker(home).exists()
}

pub fn complete(home: &Path) -> Outcome<()> {
    Ok(fs::write(marker(home), "")?)
}

pub fn start_anew(folders: &[&Path]) -> Outcome<()> {
    for folder in folders {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    Ok(())
}

/// A copy of a folder that shares its files: no table changes a file that is there.
pub fn link_tree(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link_tree(&entry.path(), &target)?;
        } else {
            fs::hard_link(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The report of the only flow.
pub fn report(sample: &Sample) -> Outcome<Value> {
    let report: Value = serde_json::from_str(&sample.stdout)?;
    match report.pointer("/flows/0") {
        Some(flow) => Ok(flow.clone()),
        None => Err(format!("windrow reported no flow: {}", sample.stdout).into()),
    }
}

pub fn expect(sample: &Sample, key: &str, value: &Value) -> Outcome<()> {
    let report = report(sample)?;
    if report[key] == *value {
        Ok(())
    } else {
        Err(format!("`{key}` is not {value}: {report}").into())
    }
}

/// A ratio means something only if both sides did the same.
fn same_rows(ours: &[Sample], theirs: &[Sample]) -> Outcome<()> {
    for (our, their) in ours.iter().zip(theirs) {
        if let (Some(a), Some(b)) = (our.rows, their.rows)
            && a != b
        {
            return Err(format!("windrow wrote {a} rows, the baseline {b}").into());
        }
    }
    Ok(())
}
