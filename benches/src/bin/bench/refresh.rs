//! The measurements of incremental refresh. Both sides are Windrow: an update that may look at what
//! changed, and one that computes the same window anew (by an override with the flow's own predicate).

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Days;
use datafusion::prelude::SessionContext;
use deltalake::protocol::SaveMode;
use serde_json::{Value, json};
use url::Url;

use crate::baseline;
use crate::cases::{
    Bench, DAILY, END, EVENTS, EVERYTHING, History, LINEITEM, Outcome, complete, events_query,
    expect, flow, is_complete, lineitem, link_tree, report, start_anew, write_pipeline,
};
use crate::measure::{self, Sample};
use crate::report::{Measurement, Target};
use crate::synthetic;

/// Days of the window in `incremental`.
const WINDOW_DAYS: u64 = 30;
/// Files of the window in `update100`, and rows in each.
const UPDATE_FILES: u64 = 100;
const UPDATE_ROWS: u64 = 20_000;
const NOOP_FLOWS: usize = 20;
const NOOP_FILES: usize = 10_000;
/// Days of the shortest history in `growth`, rows in each, and days and rows of the change.
const GROWTH_DAYS: u64 = 100;
const GROWTH_ROWS: u64 = 2_000;
const CHANGED_DAYS: u64 = 5;
const CHANGED_ROWS: u64 = 2_000;

const AGAINST: &str = "Windrow computes the same window anew";

impl Bench {
    /// One hundredth of the window's rows comes in on three of its days.
    pub async fn incremental(&self) -> Outcome<Measurement> {
        let scale = self.scale.unwrap_or(1.0);
        let base = self.lake(scale).await?;
        let home = self.home(&format!("incremental-{scale}"));
        let lake = home.0.join("lake");
        let window = format!(
            "ship_date >= date_add(current_date(), -{})",
            WINDOW_DAYS - 1
        );
        let query = DAILY.replace("{table}", LINEITEM).replace("{where} ", "");
        write_pipeline(&home.1.pipeline, &lake, &flow(&query, &window, &[]))?;
        if !is_complete(&home.0) {
            start_anew(&[&lake, &home.1.storage])?;
            link_tree(&base, &lake)?;
            self.first_run(&home.1)?;
            let days: Vec<String> = [3, 11, 20]
                .iter()
                .map(|back| format!("DATE '{}'", END - Days::new(*back)))
                .collect();
            // A tenth of the rows of three days of thirty.
            let sql = format!(
                "SELECT * FROM t WHERE l_shipdate IN ({}) AND l_orderkey / 32 % 10 = 7",
                days.join(", ")
            );
            append(&lineitem(&lake), &sql).await?;
            complete(&home.0)?;
        }
        let (windrow, baseline) = self.against_full(&home.1, &window)?;
        Ok(Measurement {
            name: format!("incremental, SF {scale}"),
            against: AGAINST,
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.0 / 8.0),
                bytes_ratio: Some(0.05),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// A hundred rows of one file are updated below a join that keeps rows.
    pub async fn update100(&self) -> Outcome<Measurement> {
        let home = self.home("update100");
        let lake = home.0.join("lake");
        let events = lake.join("synthetic/events");
        let window = format!("day >= DATE '{EVERYTHING}'");
        let query = format!(
            "SELECT e.day, e.id, e.amount, n.amount AS of_note FROM {EVENTS} AS e \
             JOIN samples.synthetic.notes AS n ON e.note = n.note"
        );
        write_pipeline(&home.1.pipeline, &lake, &flow(&query, &window, &["day"]))?;
        if !is_complete(&home.0) {
            start_anew(&[&lake, &home.1.storage])?;
            synthetic::write_source_of(&events, END, UPDATE_FILES, UPDATE_ROWS).await?;
            synthetic::write_source_of(&lake.join("synthetic/notes"), END, 1, 100).await?;
            self.first_run(&home.1)?;
            let first = 50 * UPDATE_ROWS + 7_000;
            deltalake::open_table(url(&events)?)
                .await?
                .update()
                .with_predicate(format!("id >= {first} AND id < {}", first + 100))
                .with_update("amount", "amount + 1")
                .await?;
            complete(&home.0)?;
        }
        let (windrow, baseline) = self.against_full(&home.1, &window)?;
        Ok(Measurement {
            name: "update100".into(),
            against: AGAINST,
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.0 / 8.0),
                files_removed: Some(3),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// Twenty flows over twenty sources of ten thousand files, and nothing changed.
    pub async fn noop20(&self) -> Outcome<Measurement> {
        let home = self.home("noop20");
        let lake = home.0.join("lake");
        let source = |number: usize| lake.join(format!("synthetic/events{number}"));
        let sql: String = (0..NOOP_FLOWS)
            .map(|number| {
                let query = events_query().replace(EVENTS, &format!("{EVENTS}{number}"));
                flow(&query, "day >= date_add(current_date(), -6)", &[])
                    .replace("flow_rows", &format!("flow_rows{number}"))
            })
            .collect();
        write_pipeline(&home.1.pipeline, &lake, &sql)?;
        if !is_complete(&home.0) {
            start_anew(&[&lake, &home.1.storage])?;
            for number in 0..NOOP_FLOWS {
                // No file reaches the window, so that none need be there.
                let before = END - Days::new(7);
                synthetic::write_log(&source(number), &json!({}), before, NOOP_FILES).await?;
            }
            self.first_run(&home.1)?;
            complete(&home.0)?;
        }
        let tables: Vec<PathBuf> = (0..NOOP_FLOWS).map(source).collect();
        let tables: Vec<&Path> = tables.iter().map(PathBuf::as_path).collect();
        let task = baseline::open_task(&tables);
        let (windrow, baseline) = self.in_turn(
            |work| {
                let storage = work.join("storage");
                link_tree(&home.1.storage, &storage)?;
                let mut command = self.command("run", &home.1.pipeline, &storage);
                let sample = measure::run(&mut command)?;
                let report: Value = serde_json::from_str(&sample.stdout)?;
                let flows = report["flows"].as_array().map_or(&[][..], Vec::as_slice);
                if flows.len() != NOOP_FLOWS || flows.iter().any(|f| f["technique"] != "NO_OP") {
                    return Err(format!("a flow had something to do: {report}").into());
                }
                Ok(sample)
            },
            |work| {
                Ok(Sample {
                    // The baseline counts files.
                    rows: None,
                    ..self.baseline(work, &task)?
                })
            },
        )?;
        Ok(Measurement {
            name: "noop20, 10,000 files".into(),
            against: "delta-rs opens the twenty sources",
            windrow,
            baseline,
            target: Target {
                wall: Some(Duration::from_millis(500)),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// The same change against histories of one, four and sixteen times the length.
    pub async fn growth(&self) -> Outcome<Vec<Measurement>> {
        let mut histories = Vec::new();
        let window = format!("day >= DATE '{EVERYTHING}'");
        let query = format!(
            "SELECT day, note, COUNT(*) AS events, SUM(amount) AS amount FROM {EVENTS} GROUP BY day, note"
        );
        for times in [1, 4, 16] {
            let home = self.home(&format!("growth-{times}"));
            let lake = home.0.join("lake");
            let events = lake.join("synthetic/events");
            write_pipeline(&home.1.pipeline, &lake, &flow(&query, &window, &[]))?;
            if !is_complete(&home.0) {
                start_anew(&[&lake, &home.1.storage])?;
                synthetic::write_source_of(&events, END, GROWTH_DAYS * times, GROWTH_ROWS).await?;
                self.first_run(&home.1)?;
                synthetic::append_days(&events, 2, END, CHANGED_DAYS, CHANGED_ROWS)?;
                complete(&home.0)?;
            }
            histories.push((times, home.1));
        }
        let mut measurements = Vec::new();
        for (times, history) in &histories[1..] {
            let (windrow, baseline) = self.in_turn(
                |work| self.changed(history, work),
                |work| self.changed(&histories[0].1, work),
            )?;
            measurements.push(Measurement {
                name: format!("growth, {times} times"),
                against: "Windrow does the same with a sixteenth (or a quarter) of the history",
                windrow,
                baseline,
                target: Target {
                    ratio: (*times == 16).then_some(1.5),
                    ..Target::default()
                },
                more: Vec::new(),
            });
        }
        Ok(measurements)
    }

    /// What the planner chooses against the technique that is fastest, for changes of all sizes and
    /// flows of several shapes.
    pub async fn choice(&self) -> Outcome<Vec<Measurement>> {
        let scale = self.scale.unwrap_or(0.1);
        let base = self.lake(scale).await?;
        let lines = "SELECT l_shipdate AS ship_date, l_orderkey AS order_key, l_linenumber AS line_number, \
             l_extendedprice * (1 - l_discount) AS net FROM samples.tpch.lineitem";
        let joined = "SELECT l_shipdate AS ship_date, l_orderkey AS order_key, l_linenumber AS line_number, \
             o_orderstatus AS status FROM samples.tpch.lineitem JOIN samples.tpch.orders ON l_orderkey = o_orderkey";
        let ranked = "SELECT l_shipdate AS ship_date, l_orderkey AS order_key, l_linenumber AS line_number, \
             row_number() OVER (PARTITION BY l_shipdate ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber) AS place \
             FROM samples.tpch.lineitem";
        let daily = DAILY.replace("{table}", LINEITEM).replace("{where} ", "");
        let distinct = "SELECT l_shipdate AS ship_date, COUNT(DISTINCT l_partkey) AS parts FROM samples.tpch.lineitem GROUP BY l_shipdate";
        let shapes = [
            ("rows", lines),
            ("join", joined),
            ("sums", daily.as_str()),
            ("distinct", distinct),
            ("window", ranked),
        ];
        let mut measurements = Vec::new();
        for (shape, query) in shapes {
            for (share, condition) in [
                ("0.1 %", "(l_orderkey * 7 + l_linenumber * 13) % 1000 = 7"),
                ("1 %", "(l_orderkey * 7 + l_linenumber * 13) % 100 = 7"),
                ("10 %", "(l_orderkey * 7 + l_linenumber * 13) % 10 = 7"),
                ("50 %", "(l_orderkey * 7 + l_linenumber * 13) % 2 = 1"),
            ] {
                let name = format!("choice-{scale}-{shape}-{}", share.replace(' ', ""));
                let home = self.home(&name.replace('%', "p"));
                let lake = home.0.join("lake");
                let window = "ship_date >= date_add(current_date(), -364)";
                write_pipeline(&home.1.pipeline, &lake, &flow(query, window, &[]))?;
                if !is_complete(&home.0) {
                    start_anew(&[&lake, &home.1.storage])?;
                    link_tree(&base, &lake)?;
                    self.first_run(&home.1)?;
                    deltalake::open_table(url(&lineitem(&lake))?)
                        .await?
                        .update()
                        .with_predicate(format!("{condition} AND l_shipdate >= DATE '2025-12-01'"))
                        .with_update("l_extendedprice", "l_extendedprice + 1")
                        .await?;
                    complete(&home.0)?;
                }
                measurements.push(self.chosen(&format!("{shape} {share}"), &home.1)?);
            }
        }
        Ok(measurements)
    }

    /// The planner's choice against the fastest of all techniques that apply.
    fn chosen(&self, name: &str, history: &History) -> Outcome<Measurement> {
        const TECHNIQUES: [&str; 7] = [
            "APPEND_ONLY",
            "GROUP_AGGREGATE",
            "GENERIC_AGGREGATE",
            "ROW_BASED",
            "WINDOW_FUNCTION",
            "PARTITION_OVERWRITE",
            "COMPLETE_RECOMPUTE",
        ];
        let forced = |work: &Path, technique: &str| {
            let conf = format!("windrow.technique={technique}");
            self.update(history, work, &["--conf", &conf])
        };
        let mut fastest: Option<(Duration, &str)> = None;
        for technique in TECHNIQUES {
            let mut walls = Vec::new();
            for _ in 0..2 {
                let work = tempfile::tempdir_in(&self.cache)?;
                let sample = forced(work.path(), technique)?;
                if report(&sample)?["technique"] == technique {
                    walls.push(sample.wall);
                }
            }
            let Some(wall) = walls.into_iter().min() else {
                continue;
            };
            if fastest.is_none_or(|(other, _)| wall < other) {
                fastest = Some((wall, technique));
            }
        }
        let (_, best) = fastest.ok_or("no technique applies")?;
        let chosen = std::cell::RefCell::new(String::new());
        let (windrow, baseline) = self.in_turn(
            |work| {
                let sample = self.changed(history, work)?;
                let technique = report(&sample)?["technique"].clone();
                *chosen.borrow_mut() = technique.as_str().unwrap_or_default().to_lowercase();
                Ok(sample)
            },
            |work| {
                Ok(Sample {
                    rows: None,
                    ..forced(work, best)?
                })
            },
        )?;
        Ok(Measurement {
            name: format!("{name}: {}, best {}", chosen.take(), best.to_lowercase()),
            against: "the technique that was fastest in a first round",
            windrow,
            baseline,
            target: Target {
                ratio: Some(1.2),
                ..Target::default()
            },
            more: Vec::new(),
        })
    }

    /// A folder of the cache with a pipeline and a storage in it.
    fn home(&self, name: &str) -> (PathBuf, History) {
        let home = self.cache.join(name);
        let history = History {
            pipeline: home.join("pipeline"),
            storage: home.join("storage"),
        };
        (home, history)
    }

    fn first_run(&self, history: &History) -> Outcome<()> {
        measure::run(&mut self.command("run", &history.pipeline, &history.storage))?;
        Ok(())
    }

    /// An update after a change; it must have something to do.
    fn changed(&self, history: &History, work: &Path) -> Outcome<Sample> {
        let sample = self.update(history, work, &[])?;
        if report(&sample)?["technique"] == "NO_OP" {
            return Err("there was nothing to do".into());
        }
        // How many rows are written is up to the technique.
        Ok(Sample {
            rows: None,
            ..sample
        })
    }

    fn against_full(&self, history: &History, window: &str) -> Outcome<(Vec<Sample>, Vec<Sample>)> {
        let predicate = format!("flow_rows={window}");
        self.in_turn(
            |work| self.changed(history, work),
            |work| {
                let sample = self.update(history, work, &["--replace-where", &predicate])?;
                expect(&sample, "technique", &Value::from("COMPLETE_RECOMPUTE"))?;
                Ok(Sample {
                    rows: None,
                    ..sample
                })
            },
        )
    }
}

fn url(folder: &Path) -> Outcome<Url> {
    Url::from_directory_path(folder)
        .map_err(|()| format!("`{}` is no absolute path", folder.display()).into())
}

/// Appends the rows of a SELECT over the table itself, as `t`.
async fn append(folder: &Path, sql: &str) -> Outcome<()> {
    let table = deltalake::open_table(url(folder)?).await?;
    let context = SessionContext::new();
    context.register_table("t", table.table_provider().await?)?;
    let rows = context.sql(sql).await?.collect().await?;
    if rows.iter().all(|batch| batch.num_rows() == 0) {
        return Err(format!("no row: {sql}").into());
    }
    table.write(rows).with_save_mode(SaveMode::Append).await?;
    Ok(())
}
