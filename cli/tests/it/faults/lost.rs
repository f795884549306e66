//! Executors that die, come back at the same address, or stand still and go on late.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Executor, Machines, RUNNING, Running, SUCCEEDED, UPDATES, busy, left, until};
use crate::crash::{NOW, play, prepared};
use crate::lake::files;
use crate::pipeline::Pipeline;
use crate::{Outcome, words};

/// An executor dies when it has made what others still want, and another one comes at its address:
/// the update has all rows once, in one commit.
#[test]
fn one_that_dies_after_its_shuffle_and_one_at_its_address() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &[]).await?;
        let expected = machines.undisturbed().await?;
        let scheduler = machines.scheduler.address.clone();
        let mut first = machines.executor("first", &scheduler, &[]).await?;
        let _others = [
            machines.executor("second", &scheduler, &[]).await?,
            machines.executor("third", &scheduler, &[]).await?,
        ];
        machines.wait_for(3).await?;
        for number in 0..UPDATES {
            let retried = machines.figure("windrow_retried_slices_total").await?;
            let before = first.figure(SUCCEEDED).await?;
            let running = Running::begin(&machines, number)?;
            if running.until_grown(&first, SUCCEEDED, before).await? {
                let bind = first.address.to_string();
                first.child.kill().await.map_err(words)?;
                first = machines
                    .executor("first", &scheduler, &["--bind", &bind])
                    .await?;
            }
            running.end().await?.expect_exit(0)?;
            machines.check(number, &expected).await?;
            machines.wait_for(3).await?;
            let now = machines.figure("windrow_retried_slices_total").await?;
            if now > retried {
                return Ok(());
            }
        }
        Err(format!(
            "{UPDATES} updates were over before a slice was begun anew"
        ))
    });
}

/// All executors die in the middle of an update: it fails in the time that was said, or goes on when
/// one comes.
#[test]
fn all_die_and_one_comes_or_none() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let options = [
            "--no-executor-seconds",
            "10",
            "--executor-timeout-seconds",
            "6",
        ];
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &options).await?;
        let scheduler = machines.scheduler.address.clone();
        let mut struck = BTreeSet::new();
        for number in 0..UPDATES {
            let comes = number % 2 == 1;
            let mut one = machines.executor("one", &scheduler, &[]).await?;
            machines.wait_for(1).await?;
            let running = Running::begin(&machines, number)?;
            let is_hit = running.until_grown(&one, RUNNING, 0).await?;
            one.child.kill().await.map_err(words)?;
            let late = match comes {
                true => {
                    machines.wait_for(0).await?;
                    Some(machines.executor("late", &scheduler, &[]).await?)
                }
                false => None,
            };
            let ended = running.end().await?;
            drop(late);
            machines.wait_for(0).await?;
            let committed = Path::new(&machines.storage(number))
                .join("tables/t/_delta_log")
                .exists();
            match (ended.exit, is_hit && !comes) {
                (Some(0), _) if committed => {}
                (Some(1), true) if !committed => {
                    if ended.report()?["flows"][0]["error"]["code"] != "NO_EXECUTOR" {
                        return Err(ended.told());
                    }
                    struck.insert(comes);
                    continue;
                }
                _ => return Err(format!("committed: {committed}; {}", ended.told())),
            }
            if is_hit && comes {
                struck.insert(comes);
            }
            if struck.len() == 2 {
                return Ok(());
            }
        }
        Err(format!(
            "{UPDATES} updates were over before both ends were seen: {struck:?}"
        ))
    });
}

/// Many partitions are written; one executor dies, the other one stands still for longer than the
/// scheduler waits and goes on late. Each row is there once, and what was late is gone after a vacuum.
#[test]
fn one_that_goes_on_late_adds_nothing() {
    const PARTITIONS: usize = 40;
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let sql = format!(
            "CREATE STREAMING TABLE t PARTITIONED BY (p) FLOW REPLACE WHERE d >= DATE '2026-03-01' BY NAME
            SELECT d, k, x, k % {PARTITIONS} AS p FROM (
              SELECT d, k, x, row_number() OVER (PARTITION BY k ORDER BY d, x) AS place FROM s
            ) WHERE place > 0;"
        );
        let options = ["--executor-timeout-seconds", "6"];
        let pipeline = prepared(&scratch.path().join("lake"), 4_000)
            .await?
            .sql(&sql);
        let machines = Machines::over(pipeline, scratch.path(), &options).await?;
        let expected = machines.undisturbed().await?;
        let scheduler = machines.scheduler.address.clone();
        for number in 0..UPDATES {
            let mut dies = machines.executor("dies", &scheduler, &[]).await?;
            let late = machines.executor("late", &scheduler, &[]).await?;
            machines.wait_for(2).await?;
            let running = Running::begin(&machines, number)?;
            let is_hit = running.until_grown(&late, RUNNING, 0).await?;
            signal(&late, "STOP")?;
            dies.child.kill().await.map_err(words)?;
            let _next = machines.executor("next", &scheduler, &[]).await?;
            let ended = running.end().await?;
            let before = late.told();
            signal(&late, "CONT")?;
            ended.expect_exit(0)?;
            // Late tasks end, or are told to.
            until("the late one is idle", async || {
                Ok(late.figure("windrow_tasks_running").await? == 0)
            })
            .await
            .map_err(|e| format!("{e}: {before}{}", late.told()))?;
            machines.check(number, &expected).await?;
            one_attempt_of_each(&machines, number, PARTITIONS).await?;
            if is_hit {
                return vacuumed(&machines, number).await;
            }
        }
        Err(format!(
            "{UPDATES} updates were over before a late executor had a task"
        ))
    });
}

/// The files that a table names are of one attempt for each part of the job, and hold all partitions.
async fn one_attempt_of_each(machines: &Machines, number: usize, partitions: usize) -> Outcome {
    let lake = machines.lake(number)?;
    let named = files(&lake.open("tables/t").await?)?;
    let values: BTreeSet<&str> = named.iter().filter_map(|f| f.split('/').next()).collect();
    if values.len() != partitions {
        return Err(format!("{} partitions in {named:?}", values.len()));
    }
    let there = lake.objects("tables/t").await?;
    let missing = named
        .iter()
        .find(|file| !there.contains_key(&format!("tables/t/{file}")));
    missing.map_or(Ok(()), |file| Err(format!("{file} is named and not there")))
}

/// After a vacuum there are the files that the newest version names, and no other.
async fn vacuumed(machines: &Machines, number: usize) -> Outcome {
    let storage = machines.storage(number);
    let arguments = ["--retention-hours", "0", "--storage", &storage];
    let call = machines.pipeline.call("vacuum", &arguments);
    call.await?.expect_exit(0)?;
    let lake = machines.lake(number)?;
    let named = files(&lake.open("tables/t").await?)?;
    let there: BTreeSet<String> = lake
        .objects("tables/t")
        .await?
        .into_keys()
        .filter(|p| p.ends_with(".parquet") && !p.contains("/_delta_log/"))
        .map(|p| p.trim_start_matches("tables/t/").to_string())
        .collect();
    match there == named {
        true => Ok(()),
        false => Err(format!(
            "after the vacuum there are {there:?}, not {named:?}"
        )),
    }
}

fn signal(executor: &Executor, name: &str) -> Outcome {
    let id = executor.child.id().ok_or("it has ended")?.to_string();
    let sent = std::process::Command::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    match sent.map_err(words)?.success() {
        true => Ok(()),
        false => Err(format!("signal {name} was not sent")),
    }
}

/// Whatever the end of an update is, its shuffle and spill files go: it is done, it fails, it is
/// stopped, its executor is killed and another one takes the folder.
#[test]
fn nothing_stays_in_the_work_folder() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let failing = "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= DATE '2026-03-01' BY NAME
            SELECT d, k, 1 DIV (k - 7918) AS x FROM (
              SELECT d, k, row_number() OVER (PARTITION BY k ORDER BY d) AS place FROM s) WHERE place > 0;";
        let machines = Machines::start(scratch.path(), 30_000, &busy(), &[]).await?;
        let scheduler = machines.scheduler.address.clone();
        let mut executor = machines.executor("work", &scheduler, &[]).await?;
        machines.wait_for(1).await?;
        let work = executor.work.clone();
        for number in 0..3 {
            Running::begin(&machines, number)?
                .end()
                .await?
                .expect_exit(0)?;
        }
        let mut wrong = Pipeline::new(
            &machines.folder.join("failing"),
            machines.pipeline.lake.clone(),
        )
        .source("s")
        .sql(failing);
        std::fs::create_dir_all(&wrong.folder).map_err(words)?;
        wrong.keys = format!("name: failing\nstorage: \"{}\"\n", machines.storage(100));
        let call = machines.scheduler.call(&wrong, "run", &NOW);
        call.await?.expect_exit(1)?;
        let mut stopped = false;
        for number in 3..UPDATES {
            let running = Running::begin(&machines, number)?;
            if running.until_grown(&executor, RUNNING, 0).await? {
                let storage = machines.storage(number);
                let arguments = ["--storage", storage.as_str()];
                let updates = machines
                    .scheduler
                    .call(&machines.pipeline, "updates", &arguments);
                let updates = updates.await?.expect_exit(0)?.report()?;
                let id = updates["updates"][0]["update_id"]
                    .as_str()
                    .ok_or("no update")?;
                machines.scheduler.stop(&machines.folder, id).await?;
                stopped |= running.end().await?.exit == Some(130);
            } else {
                running.end().await?.expect_exit(0)?;
            }
            if stopped {
                break;
            }
        }
        if !stopped {
            return Err(format!(
                "{UPDATES} updates were over before one was stopped"
            ));
        }
        until("shuffle files go", async || Ok(left(&work) == 0)).await?;
        let before = executor.figure(SUCCEEDED).await?;
        let running = Running::begin(&machines, UPDATES)?;
        running.until_grown(&executor, SUCCEEDED, before).await?;
        executor.child.kill().await.map_err(words)?;
        executor = machines.executor("work", &scheduler, &[]).await?;
        running.end().await?.expect_exit(0)?;
        until(
            "the files of the dead one go",
            async || Ok(left(&work) == 0),
        )
        .await?;
        match executor.ended()? {
            None => Ok(()),
            Some(exit) => Err(format!("the executor ended with {exit}")),
        }
    });
}
