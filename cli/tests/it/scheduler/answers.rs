//! Through a scheduler the answers are those of an embedded run: the same JSON, the same text, the
//! same exit status, the same tables.

use super::{Scheduler, comparable};
use crate::crash::{NOW, append, play, prepared, twin};
use crate::pipeline::{Pipeline, target};
use crate::program::Ended;
use crate::{Outcome, cells, words};

fn same(what: &str, here: &str, there: &str) -> Outcome {
    if here == there {
        return Ok(());
    }
    Err(format!("{what}\n  embedded: {here}\n  remote:   {there}"))
}

fn same_report(what: &str, here: (&Ended, &Pipeline), there: (&Ended, &Pipeline)) -> Outcome {
    let of = |(ended, pipeline): (&Ended, &Pipeline)| -> Outcome<String> {
        let report = comparable(&ended.report()?, &pipeline.lake);
        let folder = pipeline.folder.to_string_lossy().into_owned();
        let report = report.replace(&folder, "{pipeline}");
        Ok(format!("exit {:?} {report}", ended.exit))
    };
    same(what, &of(here)?, &of(there)?)
}

/// Text without ids, times and figures of speed.
fn plain(text: &str, pipeline: &Pipeline) -> String {
    let dir = pipeline.dir();
    let text = text.replace(&dir, "{dir}");
    text.split_inclusive([' ', '\n', '\t'])
        .map(|word| {
            let is_id = word.trim().len() == 36 && word.matches('-').count() == 4;
            let is_figure = word.contains('.') && word.trim().parse::<f64>().is_ok();
            if is_id || is_figure { "... " } else { word }
        })
        .collect::<String>()
        .lines()
        .map(|line| line.split("   about ").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn reports_texts_and_tables_are_the_same() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 20).await?;
        let here = twin(&start, &scratch.path().join("here"))?;
        let there = twin(&start, &scratch.path().join("there"))?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let backfill = [
            "--flow",
            "t",
            "--from",
            "2026-03-01",
            "--to",
            "2026-03-05",
            "--by",
            "day",
        ];
        let backfill: Vec<&str> = backfill.into_iter().chain(NOW).collect();
        let full: Vec<&str> = ["--full-refresh", "t"].into_iter().chain(NOW).collect();
        let agreed: Vec<&str> = full.iter().copied().chain(["--yes"]).collect();
        let other: Vec<&str> = ["--replace-where", "t=d = DATE '2026-03-02'"]
            .into_iter()
            .chain(NOW)
            .collect();
        let wrong: Vec<&str> = ["--replace-where", "t=dat = 1"]
            .into_iter()
            .chain(NOW)
            .collect();
        let calls: [(&str, &[&str]); 11] = [
            ("validate", &NOW),
            ("plan", &NOW),
            ("run", &NOW),
            ("run", &NOW),
            ("plan", &other),
            ("run", &other),
            ("plan", &wrong),
            ("run", &wrong),
            ("run", &full),
            ("backfill", &backfill),
            ("run", &agreed),
        ];
        for (command, arguments) in calls {
            let what = format!("{command} {arguments:?}");
            let embedded = here.call(command, arguments).await?;
            let remote = scheduler.call(&there, command, arguments).await?;
            same_report(&what, (&embedded, &here), (&remote, &there))?;
            same(
                &format!("stderr of {what}"),
                &plain(&embedded.stderr, &here),
                &plain(&remote.stderr, &there),
            )?;
        }
        append(
            &here,
            "src/s",
            "SELECT DATE '2026-03-09' AS d, 3 AS k, 7 AS x",
        )
        .await?;
        append(
            &there,
            "src/s",
            "SELECT DATE '2026-03-09' AS d, 3 AS k, 7 AS x",
        )
        .await?;
        for command in ["plan", "run", "run"] {
            let arguments: Vec<&str> = NOW.into_iter().chain(["--output", "text"]).collect();
            let embedded = here.call(command, &arguments).await?.expect_exit(0)?;
            let remote = scheduler
                .call(&there, command, &arguments)
                .await?
                .expect_exit(0)?;
            same(
                &format!("text of {command}"),
                &plain(&embedded.stdout, &here),
                &plain(&remote.stdout, &there),
            )?;
        }
        let rows = here.lake.all_rows(&target("t")).await?;
        if let Some(difference) =
            cells::difference(&there.lake.all_rows(&target("t")).await?, &rows)
        {
            return Err(difference);
        }
        // Of the event log, the types in their order, for each update.
        let arguments = ["--last", "2000", "--type", "flow_progress"];
        let told = |ended: Ended| -> Outcome<Vec<String>> {
            let lines = ended.stdout.lines();
            lines
                .map(|line| {
                    let event: serde_json::Value = serde_json::from_str(line).map_err(words)?;
                    Ok(format!(
                        "{} {}",
                        event["level"], event["details"]["flow_progress"]["status"]
                    ))
                })
                .collect()
        };
        let embedded = told(here.call("events", &arguments).await?.expect_exit(0)?)?;
        let remote = told(
            scheduler
                .call(&there, "events", &arguments)
                .await?
                .expect_exit(0)?,
        )?;
        if embedded.len() < 5 || embedded != remote {
            return Err(format!("events: {embedded:?}, remote {remote:?}"));
        }
        Ok(())
    });
}

#[test]
fn faults_have_the_same_places() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let here = prepared(&scratch.path().join("here"), 2).await?;
        let there = twin(&here, &scratch.path().join("there"))?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let faulty = "-- öffentlich\nCREATE STREAMING TABLE t FLOW REPLACE WHERE dat >= '2026-03-01' BY NAME\nSELECT d, k FROM s;\nCREATE MATERIALIZED VIEW v AS SELECT nosuch FROM s;\nCREATE TABL x;";
        let (here, there) = (here.sql(faulty), there.sql(faulty));
        for command in ["validate", "plan", "run"] {
            let embedded = here.call(command, &NOW).await?.expect_exit(2)?;
            let remote = scheduler
                .call(&there, command, &NOW)
                .await?
                .expect_exit(2)?;
            let faults = &embedded.report()?["faults"];
            if faults.as_array().is_none_or(|f| f.len() < 2) {
                return Err(format!("too few faults: {}", embedded.told()));
            }
            same(command, &embedded.stderr, &remote.stderr)?;
            same_report(command, (&embedded, &here), (&remote, &there))?;
        }
        Ok(())
    });
}

/// Ranges that are not processed are told and filled alike, in text and in JSON.
#[test]
fn what_is_missing_is_told_and_filled_alike() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let here = prepared(&scratch.path().join("here"), 5).await?;
        let there = twin(&here, &scratch.path().join("there"))?;
        let scheduler = Scheduler::start(scratch.path(), &[], &[]).await?;
        let list = "list --missing --flow t --from 2026-02-20 --to 2026-03-10";
        let fill = "--flow t --missing --from 2026-02-25 --to 2026-03-10 --by week";
        let calls = [
            (format!("{list} --output text"), 0, "MISSING"),
            (list.to_string(), 0, "\"state\":\"MISSING\""),
            (format!("{fill} --dry-run --output text"), 0, "by week"),
            (format!("{fill} --dry-run"), 0, "\"by\":\"week\""),
            (
                "--flow t --only some --dry-run".into(),
                2,
                "missing, failed or all",
            ),
            ("--flow nosuch --missing".into(), 2, "nosuch"),
            (fill.to_string(), 0, "2026-02-25"),
            (fill.to_string(), 0, "nothing of the range is open"),
            (format!("{list} --output text"), 0, "2026-02-25"),
        ];
        for (line, exit, said) in calls {
            let arguments: Vec<&str> = line.split(' ').chain(NOW).collect();
            let embedded = here.call("backfill", &arguments).await?;
            let remote = scheduler.call(&there, "backfill", &arguments).await?;
            if !embedded.told().contains(said) {
                return Err(format!(
                    "{line}: nothing about `{said}`: {}",
                    embedded.told()
                ));
            }
            let embedded = embedded.expect_exit(exit)?;
            let remote = remote.expect_exit(exit)?;
            if line.contains("text") {
                same(
                    &line,
                    &plain(&embedded.stdout, &here),
                    &plain(&remote.stdout, &there),
                )?;
            } else if line == fill && embedded.report()?["state"] == "COMPLETED" {
                // The copy's sources lie elsewhere than those of its last refresh, which is one more reason.
                let (one, other) = (embedded.report()?, remote.report()?);
                let slices =
                    |report: &serde_json::Value| report.pointer("/backfill/slices").cloned();
                if slices(&one) != slices(&other) || one["state"] != other["state"] {
                    return Err(format!("{line}: {one} here, {other} there"));
                }
            } else {
                same_report(&line, (&embedded, &here), (&remote, &there))?;
            }
        }
        let rows = here.lake.all_rows(&target("t")).await?;
        let found = there.lake.all_rows(&target("t")).await?;
        cells::difference(&found, &rows).map_or(Ok(()), Err)
    });
}

/// A backfill is listed, shown, stopped between two slices and resumed, here and there.
#[test]
fn a_backfill_is_stopped_and_resumed() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let here = prepared(&scratch.path().join("here"), 5).await?;
        let there = twin(&here, &scratch.path().join("there"))?;
        let hold = scratch.path().join("hold");
        std::fs::write(&hold, "").map_err(words)?;
        let held = [
            ("WINDROW_HOLD_AT", "after_stage"),
            ("WINDROW_HOLD_WHILE", hold.to_str().ok_or("a path")?),
        ];
        let scheduler = Scheduler::start(scratch.path(), &[], &held).await?;
        stopped_and_resumed(&here, None, &hold, &held).await?;
        std::fs::write(&hold, "").map_err(words)?;
        stopped_and_resumed(&there, Some(&scheduler), &hold, &[]).await
    });
}

async fn stopped_and_resumed(
    pipeline: &Pipeline,
    scheduler: Option<&Scheduler>,
    hold: &std::path::Path,
    held: &[(&str, &str)],
) -> Outcome {
    let at = scheduler.map(Scheduler::url);
    let variables: Vec<(&str, &str)> = at
        .iter()
        .map(|url| ("WINDROW_SCHEDULER", url.as_str()))
        .collect();
    let range = [
        "--flow",
        "t",
        "--from",
        "2026-03-01",
        "--to",
        "2026-03-06",
        "--by",
        "day",
    ];
    let range: Vec<&str> = range.into_iter().chain(NOW).collect();
    let running: Vec<(&str, &str)> = variables.iter().chain(held).copied().collect();
    let child = pipeline.start("backfill", &range, &running)?;
    let folder = pipeline.folder.to_string_lossy().into_owned();
    let manage = async |action: &[&str]| -> Outcome<Ended> {
        let mut all = vec!["backfill"];
        all.extend(action);
        all.extend([folder.as_str(), "--output", "json"]);
        let variables = variables
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        crate::program::end(crate::program::start(&pipeline.folder, &all, &variables)?).await
    };
    let began = std::time::Instant::now();
    let id = loop {
        let listed = manage(&["list"]).await?.expect_exit(0)?.report()?;
        if let Some(id) = listed["backfills"][0]["backfill_id"].as_str() {
            if listed["backfills"][0]["state"] != "RUNNING" {
                return Err(format!("it is not known to run: {listed}"));
            }
            break id.to_string();
        }
        if began.elapsed() > super::LIMIT {
            return Err("no backfill begins".into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    manage(&["stop", &id]).await?.expect_exit(0)?;
    std::fs::remove_file(hold).map_err(words)?;
    let ended = crate::program::end(child).await?.expect_exit(130)?;
    let report = ended.report()?;
    if report["state"] != "CANCELED" || report["error"]["code"] != "BACKFILL_STOPPED" {
        return Err(format!("not stopped: {}", ended.told()));
    }
    let shown = manage(&["show", &id]).await?.expect_exit(0)?.report()?;
    let done = shown["slices"]["completed"].as_u64().unwrap_or(0);
    if shown["state"] != "STOPPED" || done == 0 || done == 5 {
        return Err(format!("after the stop: {shown}"));
    }
    let resumed = manage(&["resume", &id]).await?.expect_exit(0)?.report()?;
    if resumed["backfill"]["id"] != id.as_str() || resumed["state"] != "COMPLETED" {
        return Err(format!("not resumed: {resumed}"));
    }
    let shown = manage(&["show", &id]).await?.expect_exit(0)?.report()?;
    if shown["state"] != "COMPLETED" || shown["slices"]["completed"] != 5 {
        return Err(format!("after the end: {shown}"));
    }
    let unknown = manage(&["show", "nosuch"]).await?.expect_exit(2)?;
    if !unknown.told().contains("BACKFILL_NOT_FOUND") {
        return Err(unknown.told());
    }
    Ok(())
}
