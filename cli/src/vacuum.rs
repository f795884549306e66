//! `vacuum`: the targets and the event log of a pipeline, without the files that nothing names.

use std::process::ExitCode;
use std::time::Duration;

use anstream::{eprintln, println};
use chrono::Utc;
use serde_json::json;
use windrow_delta::{Location, Table, TableError, vacuum};
use windrow_flows::fault::Fault;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::events;
use windrow_scheduler::project::Project;

use crate::args::{Output, VacuumArgs};
use crate::text;
use crate::update::{FAILED, load, refuse};

/// Allowed for between the clocks of machines and the store.
const CLOCKS: Duration = Duration::from_secs(300);

pub async fn run(args: &VacuumArgs) -> ExitCode {
    let config = match load(&args.pipeline) {
        Ok((config, _)) => config,
        Err(faults) => {
            return refuse(
                args.pipeline.output,
                &args.pipeline.pipeline.display().to_string(),
                &faults,
            );
        }
    };
    let retention = Duration::from_secs(args.retention_hours.saturating_mul(3600));
    let guarded = async {
        if !args.force && !args.dry_run {
            refuse_while_running(&config, retention).await?;
        }
        locations(config)
    };
    let locations = match guarded.await {
        Ok(locations) => locations,
        Err(faults) => {
            return refuse(
                args.pipeline.output,
                &args.pipeline.pipeline.display().to_string(),
                &faults,
            );
        }
    };
    let mut tables = Vec::new();
    let mut failed = false;
    for (name, location) in locations {
        match one(&location, retention, args.dry_run).await {
            Ok(None) => {}
            Ok(Some(files)) => {
                if args.pipeline.output == Output::Text {
                    let verb = if args.dry_run {
                        "would remove"
                    } else {
                        "removed"
                    };
                    println!("{name}: {verb} {} files", text::count(files.len() as u64));
                    for file in &files {
                        println!("  {file}");
                    }
                }
                tables.push(json!({"table": name, "files": files, "error": null}));
            }
            Err(error) => {
                failed = true;
                eprintln!("error[{}]: {error}", error.code());
                tables.push(json!({"table": name, "files": [],
                    "error": {"code": error.code(), "message": error.to_string()}}));
            }
        }
    }
    if args.pipeline.output == Output::Json {
        println!("{}", json!({"dry_run": args.dry_run, "tables": tables}));
    }
    if failed {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    }
}

/// Files of an update under way have no commit yet: a retention below its age would take them.
async fn refuse_while_running(
    config: &PipelineConfig,
    retention: Duration,
) -> Result<(), Vec<Fault>> {
    let running = events::running(&config.storage, &config.store_options)
        .await
        .map_err(|e| vec![Fault::new(e.code(), e.to_string())])?;
    let Some(oldest) = running.first() else {
        return Ok(());
    };
    let age = (Utc::now() - oldest.started).to_std().unwrap_or_default();
    // A clock that is a little off must not decide.
    if age + CLOCKS < retention {
        return Ok(());
    }
    Err(vec![
        Fault::new(
            "VACUUM_UPDATE_RUNNING",
            format!(
                "update {} of pipeline {} has been running for {} minutes; a retention of {} hours could take its new files",
                oldest.id,
                oldest.pipeline,
                age.as_secs() / 60,
                retention.as_secs() / 3600
            ),
        )
        .help("wait for its end, give a longer --retention-hours, or, if it is surely dead, --force"),
    ])
}

fn locations(config: PipelineConfig) -> Result<Vec<(String, Location)>, Vec<Fault>> {
    let (project, faults) = Project::read(config);
    if !faults.is_empty() {
        return Err(faults);
    }
    let options = &project.config.store_options;
    let opened = |e: TableError| vec![Fault::new(e.code(), e.to_string())];
    let mut found = Vec::new();
    for table in &project.tables {
        found.push((
            table.shown.clone(),
            Location::open(&table.location, options).map_err(opened)?,
        ));
    }
    let log = events::log_location(&project.config.storage, options).map_err(opened)?;
    found.push(("event log".into(), log));
    Ok(found)
}

async fn one(
    location: &Location,
    retention: Duration,
    dry_run: bool,
) -> Result<Option<Vec<String>>, TableError> {
    if Table::open(location, None).await?.is_none() {
        return Ok(None);
    }
    vacuum::vacuum(location, retention, dry_run).await.map(Some)
}
