//! Memory that is short: a window of many bytes, and one of many partitions, are replaced by processes
//! that may hold little. They spill, or fail in words; they do not grow, and lose nothing.

use super::{Executor, Machines, until};
use crate::crash::{NOW, play, prepared};
use crate::program::Ended;
use crate::{Outcome, words};

/// Bytes that an executor's operators may hold, much less than what they sort.
const LIMIT: [&str; 4] = ["--slots", "2", "--memory-limit", "48m"];
/// KiB that a process may have held at most: what it is itself, and the limit several times over.
const MOST: u64 = 1 << 20;

/// The most that a process ever held, in KiB.
fn peak(id: Option<u32>) -> Outcome<u64> {
    let id = id.ok_or("it has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).map_err(words)?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok());
    kib.ok_or_else(|| format!("no peak in {status}"))
}

async fn replace(machines: &Machines, number: usize, predicate: &str) -> Outcome<Ended> {
    let (storage, predicate) = (machines.storage(number), format!("t={predicate}"));
    let mut arguments = NOW.to_vec();
    arguments.extend(["--storage", &storage, "--replace-where", &predicate]);
    let call = machines
        .scheduler
        .call(&machines.pipeline, "run", &arguments);
    call.await
}

/// The window is replaced twice: each time it is done, or refused for memory with the way out. Gives
/// how often it was done.
async fn replaced(machines: &Machines, executor: &mut Executor, predicate: &str) -> Outcome<usize> {
    let mut done = 0;
    for _ in 0..2 {
        let ended = replace(machines, 0, predicate).await?;
        if ended.exit == Some(0) {
            done += 1;
            continue;
        }
        let report = ended.report()?;
        let error = &report["flows"][0]["error"];
        if error["code"] != "MEMORY_EXHAUSTED" || error["help"].is_null() {
            return Err(ended.told());
        }
    }
    if let Some(exit) = executor.ended()? {
        return Err(format!("the executor ended with {exit}"));
    }
    let peaks = [peak(executor.child.id())?, peak(machines.scheduler.id())?];
    match peaks.iter().all(|peak| *peak < MOST) {
        true => Ok(done),
        false => Err(format!("executor and scheduler held {peaks:?} KiB")),
    }
}

async fn limited(sql: &str, predicate: &str, count: &str) -> Outcome {
    let scratch = tempfile::tempdir().map_err(words)?;
    let pipeline = prepared(&scratch.path().join("lake"), 20_000)
        .await?
        .sql(sql);
    let machines = Machines::over(pipeline, scratch.path(), &[]).await?;
    let address = machines.scheduler.address.clone();
    let mut executor = machines.executor("one", &address, &LIMIT).await?;
    machines.wait_for(1).await?;
    let done = replaced(&machines, &mut executor, predicate).await?;
    let lake = machines.lake(0)?;
    if done == 0 {
        return match lake.versions("tables/t").await?.is_empty() {
            true => Ok(()),
            false => Err("it was refused, and there is a table".into()),
        };
    }
    let context = datafusion::prelude::SessionContext::new();
    crate::lake::register(&context, "t", &lake.open("tables/t").await?).await?;
    let found = crate::lake::batches(&context, count).await?;
    let shown = datafusion::arrow::util::pretty::pretty_format_batches(&found).map_err(words)?;
    if !shown.to_string().contains("| true ") {
        return Err(format!("not all rows are there: {shown}"));
    }
    until("spill files go", async || {
        Ok(super::left(&executor.work) == 0)
    })
    .await
}

#[test]
fn a_window_larger_than_memory() {
    play(async {
        let names: Vec<String> = (0..7).map(|n| format!("c{n}")).collect();
        let columns: String = (0..7)
            .map(|n| format!(", repeat('{n}', 20) || CAST(k AS STRING) AS c{n}"))
            .collect();
        let names = names.join(", ");
        let sql = format!(
            "CREATE STREAMING TABLE t PARTITIONED BY (d) FLOW REPLACE WHERE d >= DATE '2026-03-01' BY NAME
            SELECT DATE '2026-03-01' AS d, k, {names}, row_number() OVER (ORDER BY {names}, x, day) AS n
            FROM (SELECT d AS day, k, x{columns} FROM s);"
        );
        let all = "SELECT count(*) = 300010 AND count(DISTINCT n) = 300010 AS ok FROM t";
        limited(&sql, "d = DATE '2026-03-01'", all).await
    });
}

#[test]
fn a_window_of_a_thousand_partitions() {
    play(async {
        let sql = "CREATE STREAMING TABLE t PARTITIONED BY (d) FLOW REPLACE WHERE d >= DATE '2020-01-01' BY NAME
            SELECT date_add(DATE '2020-01-01', CAST(k % 1000 AS INT)) AS d, k, x FROM s;";
        let all = "SELECT count(*) = 300010 AND count(DISTINCT d) = 1000 AS ok FROM t";
        limited(sql, "d >= DATE '2020-01-01'", all).await
    });
}
