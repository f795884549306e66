//! Death at any moment: a reader sees the old table or the new one, a rerun gives what one run
//! gives, the event log misses no committed flow, and vacuum takes exactly what nobody needs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::prelude::SessionContext;
use tokio::process::Child;

use crate::lake::{Lake, NewTable, arrow_schema, batches, files};
use crate::pipeline::{Pipeline, STORAGE, target};
use crate::{Outcome, cells, python, words};

/// The steps of a run at which a development build dies on demand, in their order.
const STEPS: [&str; 6] = [
    "before_stage",
    "after_stage",
    "before_commit",
    "after_commit",
    "before_events",
    "after_events",
];
pub const NOW: [&str; 2] = ["--now", "2026-03-10T00:00:00Z"];
const SQL: &str =
    "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= date_add(current_date(), -4) BY NAME
    SELECT d, k, sum(x) AS x FROM s GROUP BY d, k;";

pub fn play<F: Future<Output = Outcome>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if let Err(failure) = runtime.block_on(test) {
        panic!("{failure}");
    }
}

/// A source of ten days, a target that was run once and got rows of its own outside the window,
/// then a source that has changed: the next run has files to drop, to rewrite and to keep.
pub async fn prepared(folder: &Path, rows_a_day: u32) -> Outcome<Pipeline> {
    let lake = Lake::folder(&folder.join("lake"))?;
    lake.store()?;
    let at = folder.join("pipeline");
    std::fs::create_dir_all(&at).map_err(words)?;
    let pipeline = Pipeline::new(&at, lake).source("s").sql(SQL);
    let column = |name: &str, delta_type: &str| crate::lake::Column {
        name: name.into(),
        delta_type: delta_type.into(),
        nullable: true,
    };
    let new = NewTable {
        columns: vec![
            column("d", "date"),
            column("k", "long"),
            column("x", "long"),
        ],
        ..NewTable::default()
    };
    pipeline.lake.create("src/s", &new).await?;
    append(&pipeline, "src/s", &days(10, rows_a_day, 1)).await?;
    pipeline.call("run", &NOW).await?.expect_exit(0)?;
    let own =
        "SELECT DATE '2026-02-01' AS d, 1 AS k, -1 AS x UNION ALL SELECT DATE '2026-03-09', 1, -1";
    append(&pipeline, &target("t"), own).await?;
    append(
        &pipeline,
        &target("t"),
        "SELECT CAST(NULL AS DATE) AS d, 2 AS k, -2 AS x",
    )
    .await?;
    append(&pipeline, "src/s", &days(10, rows_a_day / 2 + 1, 1000)).await?;
    Ok(pipeline)
}

fn days(days: u32, rows: u32, x: u32) -> String {
    format!(
        "SELECT CAST(DATE '2026-03-01' + CAST(a.value || ' days' AS INTERVAL) AS DATE) AS d, b.value % 7919 AS k, {x} AS x \
         FROM generate_series(0, {}) a CROSS JOIN generate_series(1, {rows}) b",
        days - 1
    )
}

pub async fn append(pipeline: &Pipeline, place: &str, select: &str) -> Outcome {
    let schema = arrow_schema(&pipeline.lake.open(place).await?)?;
    let mut parts = Vec::new();
    for part in batches(&SessionContext::new(), select).await? {
        let columns = schema
            .fields()
            .iter()
            .map(|f| {
                cells::cast(
                    part.column_by_name(f.name()).ok_or("a column")?,
                    f.data_type(),
                )
            })
            .collect::<Outcome<Vec<_>>>()?;
        parts.push(RecordBatch::try_new(schema.clone(), columns).map_err(words)?);
    }
    pipeline
        .lake
        .append(place, concat_batches(&schema, &parts).map_err(words)?)
        .await
}

pub fn copy(from: &Path, to: &Path) -> Outcome {
    std::fs::create_dir_all(to).map_err(words)?;
    for entry in std::fs::read_dir(from).map_err(words)? {
        let entry = entry.map_err(words)?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &place)?;
        } else {
            std::fs::copy(&path, &place).map_err(words)?;
        }
    }
    Ok(())
}

/// The pipeline of `of` over a copy of its lake.
pub fn twin(of: &Pipeline, folder: &Path) -> Outcome<Pipeline> {
    copy(Path::new(&of.dir()), &folder.join("lake"))?;
    let at = folder.join("pipeline");
    std::fs::create_dir_all(&at).map_err(words)?;
    Ok(Pipeline::new(&at, Lake::folder(&folder.join("lake"))?)
        .source("s")
        .sql(SQL))
}

/// Event types and statuses of one flow's committed versions, with how often each is told.
async fn commits_told(pipeline: &Pipeline) -> Outcome<Vec<String>> {
    let log = pipeline
        .lake
        .open(&format!("{STORAGE}/system/events"))
        .await?;
    let columns = ["event_type", "message"].map(str::to_string);
    let rows = pipeline.lake.rows(&log, &columns).await?.1;
    let mut told: Vec<String> = rows
        .into_iter()
        .filter(|r| r[0].as_deref() == Some("commit"))
        .map(|r| r[1].clone().unwrap_or_default())
        .collect();
    told.sort();
    Ok(told)
}

/// Vacuum leaves the files that the newest version names, and no other.
pub async fn vacuumed(pipeline: &Pipeline) -> Outcome {
    let place = target("t");
    let named = files(&pipeline.lake.open(&place).await?)?;
    let rows = pipeline.lake.all_rows(&place).await?;
    pipeline
        .call("vacuum", &["--retention-hours", "0"])
        .await?
        .expect_exit(0)?;
    let there: BTreeSet<String> = pipeline
        .lake
        .objects(&place)
        .await?
        .into_keys()
        .filter(|p| p.ends_with(".parquet") && !p.contains("/_delta_log/"))
        .map(|p| p.trim_start_matches(&format!("{place}/")).to_string())
        .collect();
    if there != named {
        return Err(format!(
            "after vacuum there are {there:#?}, the log names {named:#?}"
        ));
    }
    match cells::difference(&pipeline.lake.all_rows(&place).await?, &rows) {
        None => Ok(()),
        Some(difference) => Err(format!("vacuum changed the table: {difference}")),
    }
}

#[test]
fn each_step_of_a_run() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 50).await?;
        let old = start.lake.all_rows(&target("t")).await?;
        let clean = twin(&start, &scratch.path().join("clean"))?;
        clean.call("run", &NOW).await?.expect_exit(0)?;
        let new = clean.lake.all_rows(&target("t")).await?;
        if old == new {
            return Err("the run changes nothing".into());
        }
        for step in STEPS {
            let pipeline = twin(&start, &scratch.path().join(step))?;
            dies_and_recovers(&pipeline, step, &old, &new)
                .await
                .map_err(|e| format!("{step}: {e}"))?;
        }
        Ok(())
    });
}

async fn dies_and_recovers(
    pipeline: &Pipeline,
    step: &str,
    old: &[cells::Row],
    new: &[cells::Row],
) -> Outcome {
    let place = target("t");
    let child = pipeline.start("run", &NOW, &[("WINDROW_DIE_AT", step)])?;
    let died = crate::program::end(child).await?;
    if died.exit.is_some() {
        return Err(format!("it was not killed: {}", died.told()));
    }
    let committed =
        STEPS.iter().position(|s| *s == step) >= STEPS.iter().position(|s| *s == "after_commit");
    let expected = if committed { new } else { old };
    if let Some(difference) = cells::difference(&pipeline.lake.all_rows(&place).await?, expected) {
        return Err(format!("right after the death: {difference}"));
    }
    let orphans = orphans(pipeline).await?;
    if ["after_stage", "before_commit"].contains(&step) && orphans == 0 {
        return Err("there is no staged file: the step was not where it says".into());
    }
    pipeline.call("run", &NOW).await?.expect_exit(0)?;
    if let Some(difference) = cells::difference(&pipeline.lake.all_rows(&place).await?, new) {
        return Err(format!("after the rerun: {difference}"));
    }
    // Two versions by foreign writers lie between the first run and the last.
    let told = commits_told(pipeline).await?;
    let wanted = ["version 0 of t", "version 3 of t"].map(str::to_string);
    if told[..2.min(told.len())] != wanted
        || told.iter().filter(|t| *t == "version 3 of t").count() != 1
    {
        return Err(format!("the event log tells of the commits {told:?}"));
    }
    vacuumed(pipeline).await?;
    let uris = [
        pipeline.lake.location(&place),
        pipeline.lake.location(&format!("{STORAGE}/system/events")),
    ];
    python::check_tables(&uris, &["--foreign"], &[])
}

/// Data files in the target's folder that no version has ever named.
async fn orphans(pipeline: &Pipeline) -> Outcome<usize> {
    let place = target("t");
    let mut named = BTreeSet::new();
    for version in 0..=pipeline
        .lake
        .versions(&place)
        .await?
        .get(&place)
        .copied()
        .unwrap_or(0)
    {
        named.extend(files(&pipeline.lake.open_at(&place, version).await?)?);
    }
    let objects = pipeline.lake.objects(&place).await?;
    Ok(objects
        .keys()
        .filter(|p| p.ends_with(".parquet") && !p.contains("/_delta_log/"))
        .filter(|p| !named.contains(p.trim_start_matches(&format!("{place}/"))))
        .count())
}

/// A death in the first run of all: there is no table, or the whole table.
#[test]
fn each_step_of_the_first_run() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 5).await?;
        let all = start.lake.objects(STORAGE).await?;
        for path in all.keys() {
            start.lake.remove(path).await?;
        }
        let clean = twin(&start, &scratch.path().join("clean"))?;
        clean.call("run", &NOW).await?.expect_exit(0)?;
        let rows = clean.lake.all_rows(&target("t")).await?;
        for step in STEPS {
            let pipeline = twin(&start, &scratch.path().join(step))?;
            let child = pipeline.start("run", &NOW, &[("WINDROW_DIE_AT", step)])?;
            if crate::program::end(child).await?.exit.is_some() {
                return Err(format!("{step}: it was not killed"));
            }
            pipeline
                .call("run", &NOW)
                .await?
                .expect_exit(0)
                .map_err(|e| format!("{step}: {e}"))?;
            if let Some(difference) =
                cells::difference(&pipeline.lake.all_rows(&target("t")).await?, &rows)
            {
                return Err(format!("{step}: {difference}"));
            }
            let told = commits_told(&pipeline).await?;
            if told.iter().filter(|t| *t == "version 0 of t").count() != 1 {
                return Err(format!(
                    "{step}: the event log tells of the commits {told:?}"
                ));
            }
            vacuumed(&pipeline)
                .await
                .map_err(|e| format!("{step}: {e}"))?;
        }
        Ok(())
    });
}

/// Kills from outside at moments spread over the time that a whole run takes.
#[test]
fn killed_from_outside_at_any_moment() {
    const MOMENTS: u32 = 10;
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 20_000).await?;
        let old = start.lake.all_rows(&target("t")).await?;
        let clean = twin(&start, &scratch.path().join("clean"))?;
        let began = std::time::Instant::now();
        clean.call("run", &NOW).await?.expect_exit(0)?;
        let whole = began.elapsed();
        let new = clean.lake.all_rows(&target("t")).await?;
        let pipeline = twin(&start, &scratch.path().join("victim"))?;
        for moment in 1..=MOMENTS {
            let mut child = pipeline.start("run", &NOW, &[])?;
            // Not evenly: most of what can go wrong is near the end.
            let part = 1.0 - f64::from(MOMENTS - moment).powi(2) / f64::from(MOMENTS).powi(2);
            tokio::time::sleep(Duration::from_secs_f64(whole.as_secs_f64() * part)).await;
            child.kill().await.map_err(words)?;
            let rows = pipeline.lake.all_rows(&target("t")).await?;
            if rows != old && rows != new {
                let difference = cells::difference(&rows, &new).unwrap_or_default();
                return Err(format!(
                    "killed after {part:.2} of the time: neither old nor new: {difference}"
                ));
            }
        }
        pipeline.call("run", &NOW).await?.expect_exit(0)?;
        if let Some(difference) =
            cells::difference(&pipeline.lake.all_rows(&target("t")).await?, &new)
        {
            return Err(format!("after the last run: {difference}"));
        }
        vacuumed(&pipeline).await?;
        python::check_tables(
            &[pipeline.lake.location(&target("t"))],
            &["--foreign", "--no-orphans"],
            &[],
        )
    });
}

/// A run that stands still at a step, with files staged, as long as the file `hold` is there.
async fn held(pipeline: &Pipeline, arguments: &[&str], step: &str, hold: &Path) -> Outcome<Child> {
    let variables = [
        ("WINDROW_HOLD_AT", step),
        ("WINDROW_HOLD_WHILE", &hold.to_string_lossy()),
    ];
    let mut child = pipeline.start("run", arguments, &variables)?;
    while orphans(pipeline).await? == 0 {
        if let Some(status) = child.try_wait().map_err(words)? {
            return Err(format!("it ended with {status} and staged nothing"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(child)
}

/// Two overrides of ranges that share files but no row, at once: both are done in the end, and neither
/// takes back what the other one wrote.
#[test]
fn two_overrides_at_once() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 30).await?;
        let override_of = |day: &str| {
            let predicate = format!("t=d = DATE '{day}'");
            [
                "--replace-where".to_string(),
                predicate,
                NOW[0].into(),
                NOW[1].into(),
            ]
        };
        let (one, other) = (override_of("2026-03-07"), override_of("2026-03-08"));
        let one: Vec<&str> = one.iter().map(String::as_str).collect();
        let other: Vec<&str> = other.iter().map(String::as_str).collect();
        let clean = twin(&start, &scratch.path().join("clean"))?;
        for arguments in [&one, &other] {
            clean.call("run", arguments).await?.expect_exit(0)?;
        }
        let expected = clean.lake.all_rows(&target("t")).await?;
        for step in ["after_stage", "before_commit"] {
            let pipeline = twin(&start, &scratch.path().join(step))?;
            let hold = scratch.path().join(format!("hold-{step}"));
            std::fs::write(&hold, "").map_err(words)?;
            let child = held(&pipeline, &one, step, &hold).await?;
            pipeline.call("run", &other).await?.expect_exit(0)?;
            std::fs::remove_file(&hold).map_err(words)?;
            let ended = crate::program::end(child).await?;
            if ended.exit != Some(0) {
                let report = ended.report()?;
                if report["flows"][0]["error"]["code"] != "CONCURRENT_UPDATE" {
                    return Err(format!("{step}: {}", ended.told()));
                }
                pipeline.call("run", &one).await?.expect_exit(0)?;
            }
            let rows = pipeline.lake.all_rows(&target("t")).await?;
            if let Some(difference) = cells::difference(&rows, &expected) {
                return Err(format!("{step}: {difference}"));
            }
            vacuumed(&pipeline)
                .await
                .map_err(|e| format!("{step}: {e}"))?;
        }
        Ok(())
    });
}

/// Data files are there before their commit. No vacuum may take those of an update under way.
#[test]
fn vacuum_while_an_update_holds_its_files() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 50).await?;
        let clean = twin(&start, &scratch.path().join("clean"))?;
        clean.call("run", &NOW).await?.expect_exit(0)?;
        let new = clean.lake.all_rows(&target("t")).await?;

        let hold = scratch.path().join("hold");
        std::fs::write(&hold, "").map_err(words)?;
        let child = held(&start, &NOW, "after_stage", &hold).await?;
        let refused = start.call("vacuum", &["--retention-hours", "0"]).await?;
        if refused.exit != Some(2) || !refused.told().contains("VACUUM_UPDATE_RUNNING") {
            return Err(format!("vacuum was not refused: {}", refused.told()));
        }
        start.call("vacuum", &[]).await?.expect_exit(0)?;
        let (_, removed) = start
            .lake
            .open(&target("t"))
            .await?
            .vacuum()
            .with_mode(deltalake::operations::vacuum::VacuumMode::Full)
            .await
            .map_err(words)?;
        if !removed.files_deleted.is_empty() {
            return Err(format!("another vacuum took {:?}", removed.files_deleted));
        }
        std::fs::remove_file(&hold).map_err(words)?;
        crate::program::end(child).await?.expect_exit(0)?;
        match cells::difference(&start.lake.all_rows(&target("t")).await?, &new) {
            None => vacuumed(&start).await,
            Some(difference) => Err(difference),
        }
    });
}

/// Files of the window that appear after an incremental refresh was planned are not what it was
/// planned on: the window is computed anew, and what is outside it stays.
#[test]
fn the_window_changes_while_a_part_of_it_is_refreshed() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 5).await?;
        start.call("run", &NOW).await?.expect_exit(0)?;
        let late = "SELECT DATE '2026-03-09' AS d, 3 AS k, 7 AS x";
        append(&start, "src/s", late).await?;
        let clean = twin(&start, &scratch.path().join("clean"))?;
        clean.call("run", &NOW).await?.expect_exit(0)?;
        let planned = start.call("plan", &NOW).await?.expect_exit(0)?.report()?;
        if planned["flows"][0]["technique"] == "COMPLETE_RECOMPUTE" {
            return Err(format!("not only a part is to be refreshed: {planned}"));
        }
        let mut expected = clean.lake.all_rows(&target("t")).await?;

        let hold = scratch.path().join("hold");
        std::fs::write(&hold, "").map_err(words)?;
        let child = held(&start, &NOW, "before_commit", &hold).await?;
        let foreign = "SELECT DATE '2026-03-07' AS d, 1 AS k, -5 AS x UNION ALL SELECT DATE '2026-01-07', 1, -6";
        append(&start, &target("t"), foreign).await?;
        std::fs::remove_file(&hold).map_err(words)?;
        let done = crate::program::end(child).await?.expect_exit(0)?.report()?;
        if done["flows"][0]["technique"] != "COMPLETE_RECOMPUTE" {
            return Err(format!("not computed anew: {done}"));
        }
        expected.push(vec![
            Some("2026-01-07".into()),
            Some("1".into()),
            Some("-6".into()),
        ]);
        match cells::difference(&start.lake.all_rows(&target("t")).await?, &expected) {
            None => vacuumed(&start).await,
            Some(difference) => Err(difference),
        }
    });
}

/// Strangers append, delete and compact between the slices of a backfill, which carries its list of
/// files from slice to slice: what they did outside the range stays, and nothing is there twice.
#[test]
fn strangers_commit_between_the_slices_of_a_backfill() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let start = prepared(&scratch.path().join("start"), 5).await?;
        let clean = twin(&start, &scratch.path().join("clean"))?;
        let range: Vec<&str> = "--flow t --from 2026-03-01 --to 2026-03-09 --by day --parallel 1"
            .split(' ')
            .chain(NOW)
            .collect();
        clean.call("backfill", &range).await?.expect_exit(0)?;
        let row = |day: &str, k: &str, x: &str| [day, k, x].map(|v| Some(v.to_string())).to_vec();
        let mut expected = clean.lake.all_rows(&target("t")).await?;
        let before = expected.len();
        expected.retain(|r| *r != row("2026-02-01", "1", "-1"));
        if expected.len() + 1 != before {
            return Err("the row that is to be deleted is not there".into());
        }
        expected.push(row("2026-01-07", "1", "-6"));

        let version = || async {
            let table = start.lake.open(&target("t")).await;
            table.map(|table| table.version())
        };
        let begun = version().await?;
        let hold = scratch.path().join("hold");
        std::fs::write(&hold, "").map_err(words)?;
        let variables = [
            ("WINDROW_HOLD_AT", "before_commit#5"),
            ("WINDROW_HOLD_WHILE", &hold.to_string_lossy()),
        ];
        let mut child = start.start("backfill", &range, &variables)?;
        while version().await? != begun.map(|v| v + 4) {
            if let Some(status) = child.try_wait().map_err(words)? {
                return Err(format!(
                    "it ended with {status} before four slices were done"
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The first is outside of the range; the second is in a slice to come, which replaces it.
        let foreign = "SELECT DATE '2026-01-07' AS d, 1 AS k, -6 AS x UNION ALL SELECT DATE '2026-03-07', 1, -5";
        append(&start, &target("t"), foreign).await?;
        let gone = "d = DATE '2026-02-01'";
        start.lake.delete(&target("t"), Some(gone)).await?;
        if start.lake.optimize(&target("t"), &[]).await? == 0 {
            return Err("nothing was compacted".into());
        }
        std::fs::remove_file(&hold).map_err(words)?;
        crate::program::end(child).await?.expect_exit(0)?;
        if version().await? != begun.map(|v| v + 8 + 3) {
            return Err(format!("{:?} after {begun:?}", version().await?));
        }
        match cells::difference(&start.lake.all_rows(&target("t")).await?, &expected) {
            None => vacuumed(&start).await,
            Some(difference) => Err(difference),
        }
    });
}

/// A backfill that dies right after a slice's commit goes on with the next one: the log knows what
/// the ledger did not live to say.
#[test]
fn a_backfill_goes_on_after_its_death() {
    play(async {
        let scratch = tempfile::tempdir().map_err(words)?;
        let pipeline = prepared(&scratch.path().join("start"), 5).await?;
        let range = [
            "--flow",
            "t",
            "--from",
            "2026-03-01",
            "--to",
            "2026-03-07",
            "--by",
            "day",
        ];
        let range: Vec<&str> = range.into_iter().chain(NOW).collect();
        let before = pipeline.lake.open(&target("t")).await?.version();
        let child = pipeline.start("backfill", &range, &[("WINDROW_DIE_AT", "after_commit")])?;
        let died = crate::program::end(child).await?;
        if died.exit.is_some() {
            return Err(format!("it was not killed: {}", died.told()));
        }
        // Rows of the slice that is done, and of one that is not.
        let late = "SELECT DATE '2026-03-01' AS d, 50 AS k, 1 AS x UNION ALL SELECT DATE '2026-03-02', 50, 1";
        append(&pipeline, "src/s", late).await?;
        let resumed: Vec<&str> = range.iter().copied().chain(["--resume"]).collect();
        pipeline.call("backfill", &resumed).await?.expect_exit(0)?;
        let table = pipeline.lake.open(&target("t")).await?;
        if table.version() != before.map(|v| v + 6) {
            return Err(format!("{:?} after {before:?}", table.version()));
        }
        let rows = pipeline.lake.all_rows(&target("t")).await?;
        let days: BTreeSet<&str> = rows
            .iter()
            .filter(|r| r[1].as_deref() == Some("50"))
            .filter_map(|r| r[0].as_deref())
            .collect();
        if days != BTreeSet::from(["2026-03-02"]) {
            return Err(format!("late rows are there for {days:?}"));
        }
        vacuumed(&pipeline).await
    });
}
