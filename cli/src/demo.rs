//! `demo`: a sample lake, a pipeline over it, and three updates that show what Windrow is for.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anstream::{eprintln, println};
use chrono::{NaiveDate, Utc};
use owo_colors::OwoColorize;
use windrow_benches::lake::{LakeOptions, demo as lake_demo, lake_root, make_lake};
use windrow_scheduler::report::{FlowReport, UpdateReport};

use crate::args::{Output, PipelineArgs, RemoteArgs, UpdateArgs};
use crate::text;
use crate::update::{self, FAILED, REFUSED};

pub async fn run(dir: &Path, scale: f64) -> ExitCode {
    match tell(dir, scale).await {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error[DEMO]: {message}");
            ExitCode::from(REFUSED)
        }
    }
}

async fn tell(dir: &Path, scale: f64) -> Result<ExitCode, String> {
    let dir = std::path::absolute(dir).map_err(|e| e.to_string())?;
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "folder `{}` is not empty; name another one, or remove it",
            dir.display()
        ));
    }
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make `{}`: {e}", dir.display()))?;
    let today = Utc::now().date_naive();

    println!(
        "{}",
        "1. A lake with seven years of orders (TPC-H data, as Delta tables)".bold()
    );
    let started = Instant::now();
    let root =
        lake_root(&dir.join("lake").display().to_string()).map_err(|e| crate::with_sources(&e))?;
    let lake = make_lake(&root, scale, &LakeOptions::new(today))
        .await
        .map_err(|e| crate::with_sources(&e))?;
    for table in &lake.tables {
        println!(
            "   {:<10} {:>12} rows  {:>5} files  {:>9}",
            table.name,
            text::count(table.rows),
            table.files,
            text::bytes(table.bytes)
        );
    }
    println!(
        "   {} to {}, made in {:.1} s\n",
        lake.first_day,
        lake.last_day,
        started.elapsed().as_secs_f64()
    );

    let pipeline = dir.join("pipeline");
    write(
        &pipeline.join("windrow.yml"),
        &lake_demo::pipeline_yml("../lake", "../storage"),
    )?;
    write(
        &pipeline.join(lake_demo::SQL_FILE),
        lake_demo::pipeline_sql(),
    )?;
    println!("{}", "2. A pipeline: an enrichment join and a daily aggregate, each REPLACE WHERE over the last days".bold());
    println!("   {}\n", pipeline.join(lake_demo::SQL_FILE).display());
    for line in lake_demo::pipeline_sql()
        .lines()
        .filter(|l| l.starts_with("FLOW") || l.starts_with("CREATE"))
    {
        println!("   {}", line.dimmed());
    }

    println!("\n{}", "3. What it would do (windrow plan)".bold());
    let args = |replace_where: Vec<String>| UpdateArgs {
        pipeline: PipelineArgs {
            pipeline: pipeline.clone(),
            storage: None,
            conf: Vec::new(),
            now: Some(format!("{today}T12:00:00Z")),
            output: Output::Text,
        },
        remote: RemoteArgs::default(),
        refresh: Vec::new(),
        full_refresh: Vec::new(),
        full_refresh_all: false,
        replace_where,
        yes: false,
        by: None,
        parallel: 1,
    };
    update::plan(&args(Vec::new())).await;

    println!(
        "\n{}",
        "4. The nightly update (windrow run): the window alone is read and written".bold()
    );
    let nightly = args(Vec::new());
    let report = update::run_for_report(&nightly).await;
    if !told(&report) {
        return Ok(ExitCode::from(FAILED));
    }

    let year = year_before(today);
    println!(
        "\n{}",
        format!("5. History: the same flows over one whole year ({year}), by an override").bold()
    );
    let predicate = format!("ship_date BETWEEN '{year}-01-01' AND '{year}-12-31'");
    let both = ["shipments", "daily_sales"]
        .map(|f| format!("{f}={predicate}"))
        .to_vec();
    println!("   windrow run --replace-where \"shipments={predicate}\" ...\n");
    let report = update::run_for_report(&args(both)).await;
    if !told(&report) {
        return Ok(ExitCode::from(FAILED));
    }

    println!(
        "\n{}",
        "6. The nightly update again: no source changed, so nothing is computed".bold()
    );
    let report = update::run_for_report(&nightly).await;
    if !told(&report) {
        return Ok(ExitCode::from(FAILED));
    }

    println!("\n{}", "Look around".bold());
    let shown = pipeline.display();
    println!(
        "   tables       {}  (any Delta reader opens them)",
        dir.join("storage/tables").display()
    );
    println!("   event log    windrow events {shown}");
    println!("   plan         windrow plan {shown}");
    println!(
        "   one day      windrow run {shown} --replace-where \"shipments=ship_date = '{}'\"",
        lake.last_day
    );
    Ok(ExitCode::SUCCESS)
}

fn year_before(today: NaiveDate) -> i32 {
    use chrono::Datelike;
    today.year() - 2
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot write `{}`: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, content).map_err(failed)
}

/// What an update read of what there is. False when it failed.
fn told(report: &Option<UpdateReport>) -> bool {
    let Some(report) = report else { return false };
    for flow in &report.flows {
        told_flow(flow);
    }
    report.error.is_none()
}

fn told_flow(flow: &FlowReport) {
    for source in flow
        .sources
        .iter()
        .filter(|s| s.pruned_by_predicate && s.files_total > s.files_scanned)
    {
        println!(
            "   {} read {} of {} files of {} ({} of {})",
            flow.flow,
            text::count(source.files_scanned),
            text::count(source.files_total),
            source.table,
            text::bytes(source.bytes_scanned),
            text::bytes(source.bytes_total)
        );
    }
}
