//! Ends of all kinds: a stop, a death, a farewell, a line of those who wait.

use serde_json::json;

use super::{Scheduler, endless};
use crate::crash::{NOW, play, prepared, twin};
use crate::pipeline::{Pipeline, target};
use crate::program::end;
use crate::{Outcome, cells, words};

#[test]
fn a_stop_ends_the_work_itself() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let quick = prepared(&scratch.path().join("lake"), 300).await?;
        let slow = endless(&quick, scratch.path(), "slow")?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let child = scheduler.begin(&slow, "run", &NOW)?;
        let id = scheduler.until(&slow, "RUNNING").await?;
        // One at a time.
        let second = scheduler.call(&slow, "run", &NOW).await?.expect_exit(1)?;
        if second.report()?["error"]["code"] != "UPDATE_ALREADY_RUNNING" {
            return Err(second.told());
        }
        // Others are not kept waiting.
        scheduler.call(&quick, "run", &NOW).await?.expect_exit(0)?;
        let stopped = scheduler.stop(scratch.path(), &id).await?.expect_exit(0)?;
        if stopped.report()?["state"] != "CANCELED" {
            return Err(stopped.told());
        }
        let ended = end(child).await?.expect_exit(130)?;
        let report = ended.report()?;
        if report["state"] != "CANCELED" || report["flows"][0]["status"] != "CANCELED" {
            return Err(ended.told());
        }
        let (_, figures) = scheduler.get("/metrics", "").await?;
        for line in [
            "windrow_updates_total{state=\"CANCELED\"} 1",
            "windrow_updates_total{state=\"COMPLETED\"} 1",
            "windrow_updates_running 0",
            "windrow_updates_queued 0",
        ] {
            if !figures.contains(line) {
                return Err(format!("no `{line}` in {figures}"));
            }
        }
        // The event log knows, and nothing is left that looks like a dead update.
        let events = scheduler
            .call(&slow, "events", &["--type", "update_progress"])
            .await?;
        if !events.stdout.contains("CANCELED") || !events.stdout.contains("USER_ACTION") {
            return Err(events.told());
        }
        let left = slow.lake.objects("out/slow/system/pending").await?;
        if !left.is_empty() {
            return Err(format!("notes are left: {left:?}"));
        }
        // It has ended: stopping it once more changes nothing.
        let again = scheduler.stop(scratch.path(), &id).await?.expect_exit(0)?;
        if again.report()?["state"] != "CANCELED" {
            return Err(again.told());
        }
        let unknown = scheduler
            .stop(scratch.path(), "nosuch")
            .await?
            .expect_exit(2)?;
        if !unknown.told().contains("UPDATE_NOT_FOUND") {
            return Err(unknown.told());
        }
        Ok(())
    });
}

#[test]
fn an_interrupted_client_stops_its_update() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 300).await?;
        let slow = endless(&lake, scratch.path(), "slow")?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let child = scheduler.begin(&slow, "run", &NOW)?;
        scheduler.until(&slow, "RUNNING").await?;
        let pid = child.id().ok_or("it has ended")?.to_string();
        let told = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        told.map_err(words)?;
        let ended = end(child).await?.expect_exit(130)?;
        if !ended.stderr.contains("cancelled") {
            return Err(ended.told());
        }
        scheduler.until(&slow, "CANCELED").await.map(|_| ())
    });
}

/// What a run on the same tables gives when nothing dies.
async fn expected(start: &Pipeline, folder: &std::path::Path) -> Outcome<Vec<cells::Row>> {
    let clean = twin(start, folder)?;
    clean.call("run", &NOW).await?.expect_exit(0)?;
    clean.lake.all_rows(&target("t")).await
}

/// The scheduler dies by itself at a step of the update; another one takes its place, at the same
/// address, and the client hears of it.
#[test]
fn a_new_scheduler_answers_for_a_dead_one() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 20).await?;
        let old = start.lake.all_rows(&target("t")).await?;
        let new = expected(&start, &scratch.path().join("clean")).await?;
        for (step, retries) in [
            ("before_stage", 0),
            ("before_commit", 1),
            ("after_commit", 0),
            ("after_commit", 1),
            ("before_events", 0),
        ] {
            let what = format!("{step}, {retries} retries");
            let folder = scratch.path().join(format!("{step}-{retries}"));
            let mut pipeline = twin(&start, &folder)?;
            pipeline.keys =
                format!("configuration: {{pipelines.numUpdateRetryAttempts: {retries}}}\n");
            let run = async {
                let first = Scheduler::start(&folder, &[], &[("WINDROW_DIE_AT", step)]).await?;
                let client = first.begin(&pipeline, "run", &NOW)?;
                let address = first.address.clone();
                let mut child = first.child;
                let died = tokio::time::timeout(super::LIMIT, child.wait()).await;
                died.map_err(|_| "the scheduler did not die")?
                    .map_err(words)?;
                let second = Scheduler::start(&folder, &["--bind", &address], &[]).await?;
                let ended = end(client).await?;
                check_taken_over(&pipeline, &second, &ended, step, retries).await?;
                let rows = pipeline.lake.all_rows(&target("t")).await?;
                let is_done = retries > 0 || step != "before_stage";
                let wanted = if is_done { &new } else { &old };
                match cells::difference(&rows, wanted) {
                    Some(difference) => Err(difference),
                    None => Ok(second),
                }
            };
            let second = run.await.map_err(|e: String| format!("{what}: {e}"))?;
            // The pipeline is not blocked, and ends up right whatever came before.
            second.call(&pipeline, "run", &NOW).await?.expect_exit(0)?;
            let rows = pipeline.lake.all_rows(&target("t")).await?;
            if let Some(difference) = cells::difference(&rows, &new) {
                return Err(format!("{what}, after the next run: {difference}"));
            }
            let commits = pipeline.call("events", &["--type", "commit"]).await?;
            let wanted = commits.stdout.matches("version 3 of t").count();
            if wanted != 1 {
                return Err(format!(
                    "{what}: the commit is told {wanted} times: {}",
                    commits.told()
                ));
            }
        }
        Ok(())
    });
}

async fn check_taken_over(
    pipeline: &Pipeline,
    scheduler: &Scheduler,
    ended: &crate::program::Ended,
    step: &str,
    retries: u32,
) -> Outcome {
    let updates = scheduler.updates(pipeline).await?;
    let states: Vec<&str> = updates.iter().filter_map(|u| u["state"].as_str()).collect();
    if retries > 0 {
        if ended.exit != Some(0) || states != ["COMPLETED", "FAILED"] {
            return Err(format!("{states:?}: {}", ended.told()));
        }
        return Ok(());
    }
    let report = ended.report()?;
    if ended.exit != Some(1)
        || report["error"]["code"] != "UPDATE_INTERRUPTED"
        || states != ["FAILED"]
    {
        return Err(format!("{states:?}: {}", ended.told()));
    }
    let committed = step != "before_stage";
    let flow = &report["flows"][0];
    let is_told = flow["status"] == "COMPLETED" && flow["table_version"] == 3;
    if committed != is_told {
        return Err(format!("what was committed is not told: {report}"));
    }
    Ok(())
}

#[test]
fn killed_from_outside_and_back() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 300).await?;
        let slow = endless(&lake, scratch.path(), "slow")?;
        let waiting = endless(&lake, scratch.path(), "waiting")?.sql(
            "CREATE STREAMING TABLE w FLOW REPLACE WHERE d >= DATE '2026-03-01' BY NAME SELECT d, x FROM s;",
        );
        let first = Scheduler::start(scratch.path(), &["--max-updates", "1"], &[]).await?;
        let running = first.begin(&slow, "run", &NOW)?;
        first.until(&slow, "RUNNING").await?;
        let queued = first.begin(&waiting, "run", &NOW)?;
        let id = first.until(&waiting, "QUEUED").await?;
        let address = first.address.clone();
        first.kill().await?;
        let second = Scheduler::start(scratch.path(), &["--bind", &address], &[]).await?;
        // The one that ran has failed; the one that waited is run, under the same id.
        let failed = end(running).await?.expect_exit(1)?;
        if failed.report()?["error"]["code"] != "UPDATE_INTERRUPTED" {
            return Err(failed.told());
        }
        let done = end(queued).await?.expect_exit(0)?;
        if done.report()?["update_id"] != json!(id) {
            return Err(format!("not {id}: {}", done.told()));
        }
        let (_, figures) = second.get("/metrics", "").await?;
        if !figures.contains("windrow_updates_interrupted_total 1") {
            return Err(figures);
        }
        // A third one has nothing to take over.
        second.kill().await?;
        let third = Scheduler::start(scratch.path(), &["--bind", &address], &[]).await?;
        let updates = third.updates(&waiting).await?;
        if updates.len() != 1 || updates[0]["state"] != "COMPLETED" {
            return Err(format!("{updates:?}"));
        }
        Ok(())
    });
}

#[test]
fn told_to_end_it_lets_go() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 300).await?;
        let slow = endless(&lake, scratch.path(), "slow")?;
        let arguments = ["--drain-seconds", "0"];
        let first = Scheduler::start(scratch.path(), &arguments, &[]).await?;
        let running = first.begin(&slow, "run", &NOW)?;
        first.until(&slow, "RUNNING").await?;
        let code = first.terminate().await?;
        if code != Some(0) {
            return Err(format!("it ended with {code:?}"));
        }
        let ended = end(running).await?.expect_exit(130)?;
        if ended.report()?["state"] != "CANCELED" {
            return Err(ended.told());
        }
        // Idle, it does not wait until the time to drain is over.
        let arguments = ["--drain-seconds", "86400"];
        let second = Scheduler::start(scratch.path(), &arguments, &[]).await?;
        let code = second.terminate().await;
        match code.map_err(|e| format!("an idle scheduler waits for something: {e}"))? {
            Some(0) => Ok(()),
            code => Err(format!("it ended with {code:?}")),
        }
    });
}

#[test]
fn a_scheduler_that_does_not_come_back() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let lake = prepared(&scratch.path().join("lake"), 300).await?;
        let slow = endless(&lake, scratch.path(), "slow")?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let url = scheduler.url();
        let variables = [
            ("WINDROW_SCHEDULER", url.as_str()),
            ("WINDROW_SCHEDULER_PATIENCE", "1"),
        ];
        let child = slow.start("run", &NOW, &variables)?;
        scheduler.until(&slow, "RUNNING").await?;
        scheduler.kill().await?;
        let lost = end(child).await?.expect_exit(1)?;
        if !lost.stderr.contains("SCHEDULER_LOST") {
            return Err(lost.told());
        }
        let never = slow.start("run", &NOW, &variables)?;
        let never = end(never).await?.expect_exit(1)?;
        if never.report()?["error"]["code"] != "SCHEDULER_NOT_REACHABLE" {
            return Err(never.told());
        }
        Ok(())
    });
}
