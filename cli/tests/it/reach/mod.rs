//! The measure of reach: how flows as people write them are refreshed after one hundredth of the rows
//! of one source changed, and whether what comes out is what a recompute gives.
//!
//! `tests/reach/flows.sql` has the flows, `tests/reach/expected.txt` the technique of each after each
//! change; `docs/incremental-reach.md` is written from it. `WINDROW_REACH_WRITE=1` writes both anew:
//! look at the difference before you keep it.

mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use datafusion::prelude::SessionContext;
use windrow_scheduler::report::FlowStatus;
use windrow_scheduler::update::UpdateOptions;

use crate::inside::{self, Rows, told};
use crate::lake::{Lake, arrow_schema, batches, register};
use crate::pipeline::{STORAGE, target};
use crate::{Outcome, cells, words};

/// The day after the last orders.
const NOW: &str = "1998-08-03T00:00:00Z";
const FULL: &str = "COMPLETE_RECOMPUTE";

/// What happens to a source: its name, the change, and how.
enum Change {
    /// Rows of a SELECT over the source `t`.
    Append(&'static str),
    /// Column, value, condition.
    Update(&'static str, &'static str, &'static str),
    Delete(&'static str),
}

/// About a hundredth of the rows each: here and there over all years, and some of the last weeks.
const CHANGES: [(&str, &str, Change); 21] = [
    (
        "lineitem",
        "append",
        Change::Append(
            "SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber + 10, l_quantity, l_extendedprice, l_discount, \
        l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment \
        FROM t WHERE l_orderkey * 7 % 101 = 7 OR l_shipdate >= CAST('1998-07-10' AS DATE) AND l_orderkey % 16 = 3",
        ),
    ),
    (
        "lineitem",
        "update",
        Change::Update(
            "l_extendedprice",
            "l_extendedprice + 1000",
            "l_orderkey * 7 % 101 = 9 OR l_shipdate >= DATE '1998-07-10' AND l_orderkey % 16 = 4",
        ),
    ),
    (
        "lineitem",
        "delete",
        Change::Delete(
            "l_orderkey * 7 % 101 = 12 OR l_shipdate >= DATE '1998-07-10' AND l_orderkey % 16 = 5",
        ),
    ),
    (
        "orders",
        "append",
        Change::Append(
            "SELECT o_orderkey + 10000000, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, \
        o_clerk, o_shippriority, o_comment FROM t WHERE o_orderkey * 7 % 101 = 7 OR o_orderdate >= CAST('1998-07-10' AS DATE) AND o_orderkey % 16 = 3",
        ),
    ),
    (
        "orders",
        "update",
        Change::Update(
            "o_totalprice",
            "o_totalprice + 1000",
            "o_orderkey * 7 % 101 = 9 OR o_orderdate >= DATE '1998-07-10' AND o_orderkey % 16 = 4",
        ),
    ),
    (
        "orders",
        "delete",
        Change::Delete(
            "o_orderkey * 7 % 101 = 12 OR o_orderdate >= DATE '1998-07-10' AND o_orderkey % 16 = 5",
        ),
    ),
    (
        "customer",
        "update",
        Change::Update(
            "c_mktsegment",
            "'BUILDING'",
            "c_custkey % 100 IN (7, 22, 55, 70)",
        ),
    ),
    (
        "part",
        "update",
        Change::Update("p_brand", "'Brand#99'", "p_partkey % 100 = 7"),
    ),
    (
        "partsupp",
        "update",
        Change::Update("ps_availqty", "1", "ps_partkey % 100 = 7"),
    ),
    (
        "supplier",
        "update",
        Change::Update("s_acctbal", "s_acctbal + 1", "s_suppkey = 7"),
    ),
    (
        "nation",
        "update",
        Change::Update("n_name", "'ATLANTIS'", "n_nationkey = 4"),
    ),
    (
        "region",
        "update",
        Change::Update("r_name", "'LEMURIA'", "r_regionkey = 3"),
    ),
    (
        "di_trade",
        "append",
        Change::Append(
            "SELECT t_id + 100000, t_dts, status, kind, symbol, qty, price, account FROM t WHERE t_id % 100 = 41",
        ),
    ),
    (
        "di_trade",
        "update",
        Change::Update("status", "'CNCL'", "t_id % 100 = 46"),
    ),
    (
        "di_account",
        "update",
        Change::Update("broker", "'B9'", "account = 13"),
    ),
    (
        "di_customer",
        "update",
        Change::Update("city", "'city 9'", "customer = 13"),
    ),
    (
        "di_customer_version",
        "append",
        Change::Append(
            "SELECT customer, version + 10, tier + 1, city, CAST('1998-07-15' AS DATE) FROM t WHERE customer = 13 AND version = 1",
        ),
    ),
    (
        "di_security",
        "update",
        Change::Update("exchange", "'E9'", "symbol = 'S7'"),
    ),
    (
        "di_market_day",
        "append",
        Change::Append(
            "SELECT symbol, CAST('1998-08-03' AS DATE), close + 1, high, low, volume FROM t WHERE day = CAST('1998-08-02' AS DATE)",
        ),
    ),
    (
        "di_watch",
        "append",
        Change::Append(
            "SELECT customer, symbol, 'CNCL', CAST('1998-08-01' AS DATE) FROM t WHERE day >= CAST('1998-07-29' AS DATE)",
        ),
    ),
    (
        "di_prospect",
        "append",
        Change::Append(
            "SELECT prospect + 1000, name, city, since FROM t WHERE since >= CAST('1998-07-27' AS DATE)",
        ),
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reach")
}

fn report_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/incremental-reach.md")
}

/// What each flow is, after its name, in the order of the file.
fn descriptions(sql: &str) -> Vec<(String, String)> {
    sql.lines()
        .filter_map(|line| line.strip_prefix("-- ")?.split_once(" | "))
        .map(|(name, text)| (name.trim().to_string(), text.trim().to_string()))
        .filter(|(name, _)| !name.contains(' '))
        .collect()
}

struct Suite {
    scratch: tempfile::TempDir,
    lake: Lake,
    /// The sources of each flow.
    reads: BTreeMap<String, BTreeSet<String>>,
}

impl Suite {
    async fn new() -> Outcome<Self> {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = Lake::folder(&scratch.path().join("lake"))?;
        lake.store()?;
        let names = tables::make(&lake).await?;
        let pipeline = scratch.path().join("pipeline");
        std::fs::create_dir_all(&pipeline).map_err(words)?;
        std::fs::copy(folder().join("flows.sql"), pipeline.join("flows.sql")).map_err(words)?;
        let mut yaml = format!(
            "name: reach\nstorage: {}\nlibraries:\n  - file: {{path: flows.sql}}\nconfiguration: {{windrow.partitions: \"2\"}}\ntables:\n",
            lake.location(STORAGE)
        );
        for name in &names {
            let at = lake.location(&tables::place(name));
            yaml.push_str(&format!("  {name}: {at}\n"));
        }
        std::fs::write(pipeline.join("windrow.yml"), yaml).map_err(words)?;
        let mut suite = Self {
            scratch,
            lake,
            reads: BTreeMap::new(),
        };
        let report = suite.run(&[], None).await?;
        for (flow, (_, _, sources)) in report {
            suite.reads.insert(flow, sources);
        }
        Ok(suite)
    }

    /// Flows that read a source, directly or through another flow.
    fn readers(&self, source: &str) -> Vec<String> {
        let mut found: BTreeSet<String> = BTreeSet::from([source.to_string()]);
        loop {
            let more: Vec<String> = self
                .reads
                .iter()
                .filter(|(flow, sources)| {
                    !found.contains(*flow) && sources.iter().any(|s| found.contains(s))
                })
                .map(|(flow, _)| flow.clone())
                .collect();
            if more.is_empty() {
                found.remove(source);
                return found.into_iter().collect();
            }
            found.extend(more);
        }
    }

    /// One update of some flows: technique, reasons and sources of each.
    async fn run(
        &self,
        flows: &[String],
        storage: Option<&Path>,
    ) -> Outcome<BTreeMap<String, (String, String, BTreeSet<String>)>> {
        let config = inside::pipeline(&self.scratch.path().join("pipeline"), storage)?;
        let options = UpdateOptions {
            refresh: flows.to_vec(),
            now: chrono::DateTime::parse_from_rfc3339(NOW)
                .ok()
                .map(|t| t.with_timezone(&chrono::Utc)),
            engine: crate::cluster::engine(),
            ..UpdateOptions::default()
        };
        let report = inside::update(config, &options)
            .await
            .map_err(|faults| told(&faults))?;
        let mut found = BTreeMap::new();
        for flow in report.flows {
            if flow.status != FlowStatus::Completed {
                return Err(format!("{}: {:?}", flow.flow, flow.error));
            }
            let technique = flow.technique.map_or("", |t| t.word()).to_string();
            let reasons: Vec<&str> = flow.fallback_reasons.iter().map(|r| r.word()).collect();
            let sources = flow.sources.into_iter().map(|s| s.table).collect();
            found.insert(flow.flow, (technique, reasons.join(" "), sources));
        }
        Ok(found)
    }

    async fn change(&self, source: &str, change: &Change) -> Outcome {
        let at = tables::place(source);
        match change {
            Change::Append(sql) => {
                let table = self.lake.open(&at).await?;
                let context = SessionContext::new();
                register(&context, "t", &table).await?;
                let schema = arrow_schema(&table)?;
                let mut rows = 0;
                for batch in batches(&context, sql).await? {
                    rows += batch.num_rows();
                    if batch.num_rows() > 0 {
                        self.lake
                            .append(&at, tables::as_table(&batch, &schema)?)
                            .await?;
                    }
                }
                match rows {
                    0 => Err("nothing was appended".into()),
                    _ => Ok(()),
                }
            }
            Change::Update(column, value, condition) => {
                let set = [(column.to_string(), value.to_string())];
                self.lake.update(&at, &set, Some(condition)).await
            }
            Change::Delete(condition) => self.lake.delete(&at, Some(condition)).await,
        }
    }

    /// Every target holds what the same flow gives in an empty storage.
    async fn compare(&self, flows: &[String]) -> Outcome {
        let storage = self.scratch.path().join("fresh");
        let all: BTreeSet<String> = flows.iter().cloned().collect();
        // A flow over a flow's table needs that flow too.
        let mut with_upstream = all.clone();
        for flow in flows {
            let sources = self.reads.get(flow).into_iter().flatten();
            with_upstream.extend(sources.filter(|s| self.reads.contains_key(*s)).cloned());
        }
        let with_upstream: Vec<String> = with_upstream.into_iter().collect();
        self.run(&with_upstream, Some(&storage)).await?;
        let fresh = Lake::folder(&storage)?;
        for flow in &all {
            let found = Rows::read(&self.lake, &target(flow)).await?;
            let expected = Rows::read(&fresh, &format!("tables/{flow}")).await?;
            let expected = expected.in_columns(&found.names)?;
            if let Some(difference) = cells::difference(&found.rows, &expected) {
                return Err(format!(
                    "{flow} is not what a recompute gives: {difference}"
                ));
            }
        }
        std::fs::remove_dir_all(&storage).map_err(words)
    }
}

/// `flow | source change | technique | reasons`.
type Line = (String, String, String, String);

async fn measure() -> Outcome<Vec<Line>> {
    let suite = Suite::new().await?;
    let mut lines = Vec::new();
    for (number, (source, name, change)) in CHANGES.iter().enumerate() {
        suite
            .change(source, change)
            .await
            .map_err(|e| format!("{source} {name}: {e}"))?;
        let readers = suite.readers(source);
        for (flow, (technique, reasons, _)) in suite.run(&readers, None).await? {
            lines.push((flow, format!("{source} {name}"), technique, reasons));
        }
        let more = CHANGES.get(number + 1).is_some_and(|(s, _, _)| s == source);
        if !more {
            suite
                .compare(&readers)
                .await
                .map_err(|e| format!("after changes of {source}: {e}"))?;
        }
    }
    lines.sort();
    Ok(lines)
}

fn as_text(lines: &[Line]) -> String {
    lines
        .iter()
        .map(|(flow, change, technique, reasons)| {
            format!("{flow} | {change} | {technique} | {reasons}")
                .trim_end_matches([' ', '|'])
                .to_string()
                + "\n"
        })
        .collect()
}

/// The page for people.
fn page(lines: &[Line], descriptions: &[(String, String)]) -> String {
    let full = lines.iter().filter(|l| l.2 == FULL).count();
    let flows: BTreeSet<&String> = lines.iter().map(|l| &l.0).collect();
    let never: usize = flows
        .iter()
        .filter(|f| !lines.iter().any(|l| l.0 == ***f && l.2 == FULL))
        .count();
    let mut text = format!(
        "# What incremental refresh reaches\n\n\
         How the flows of `cli/tests/reach/flows.sql` are refreshed after one hundredth of the rows of one source changed. \
         Written by the test `reach` (`WINDROW_REACH_WRITE=1`), which also compares each target with a recompute.\n\n\
         - {} of {} refreshes were no full recompute of the window.\n\
         - {never} of {} flows were never recomputed in full.\n\n",
        lines.len() - full,
        lines.len(),
        flows.len()
    );
    let mut techniques: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        *techniques.entry(&line.2).or_default() += 1;
    }
    text.push_str("| technique | refreshes |\n| --- | --- |\n");
    for (technique, count) in techniques {
        let _ = writeln!(text, "| {technique} | {count} |");
    }
    text.push_str("\n| flow | what it is | after a change of |\n| --- | --- | --- |\n");
    for (flow, what) in descriptions {
        let mut by_technique: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in lines.iter().filter(|l| l.0 == *flow) {
            by_technique.entry(&line.2).or_default().push(&line.1);
        }
        let told: Vec<String> = by_technique
            .into_iter()
            .map(|(technique, changes)| format!("{technique}: {}", changes.join(", ")))
            .collect();
        let _ = writeln!(text, "| {flow} | {what} | {} |", told.join("; "));
    }
    text.push_str(
        "\n## Full recomputes, and why\n\n| flow | after | reasons |\n| --- | --- | --- |\n",
    );
    for (flow, change, _, reasons) in lines.iter().filter(|l| l.2 == FULL) {
        let _ = writeln!(text, "| {flow} | {change} | {reasons} |");
    }
    text
}

#[test]
fn flows_are_refreshed_as_the_table_says() {
    let lines = match inside::run(measure).join() {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => panic!("{error}"),
        Err(panicked) => std::panic::resume_unwind(panicked),
    };
    let sql = std::fs::read_to_string(folder().join("flows.sql")).unwrap();
    let (found, shown) = (as_text(&lines), page(&lines, &descriptions(&sql)));
    let expected = folder().join("expected.txt");
    if std::env::var_os("WINDROW_REACH_WRITE").is_some() {
        std::fs::write(&expected, &found).unwrap();
        std::fs::write(report_file(), &shown).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&expected).unwrap_or_default();
    let lost: Vec<&str> = known
        .lines()
        .filter(|l| !found.lines().any(|f| f == *l))
        .collect();
    let new: Vec<&str> = found
        .lines()
        .filter(|l| !known.lines().any(|k| k == *l))
        .collect();
    assert!(
        lost.is_empty() && new.is_empty(),
        "expected:\n{}\nfound:\n{}\nif that is right: WINDROW_REACH_WRITE=1",
        lost.join("\n"),
        new.join("\n")
    );
    let page = std::fs::read_to_string(report_file()).unwrap_or_default();
    assert_eq!(
        page, shown,
        "docs/incremental-reach.md is another one: WINDROW_REACH_WRITE=1"
    );
}
