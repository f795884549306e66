//! `backfill`: a range of a flow's history, slice by slice.

use std::process::ExitCode;
use std::sync::Arc;

use anstream::{eprintln, println};
use serde_json::json;
use windrow_flows::calendar::Unit;
use windrow_flows::fault::Fault;
use windrow_scheduler::backfill::{Backfill, BackfillOptions, Resume};
use windrow_scheduler::report::UpdateState;

use crate::args::{BackfillArgs, Order, Output};
use crate::text;
use crate::update::{FAILED, REFUSED, Shown, load, refuse};

pub async fn run(args: &BackfillArgs) -> ExitCode {
    let output = args.pipeline.output;
    let pipeline = args.pipeline.pipeline.display().to_string();
    let backfill = match prepare(args).await {
        Ok(backfill) => backfill,
        Err(faults) => return refuse(output, &pipeline, &faults),
    };
    for warning in backfill.warnings() {
        eprintln!("{warning}");
    }
    let id = backfill.id().to_string();
    let progress = Arc::new(Shown::new(output));
    let report = tokio::select! {
        report = backfill.run(progress.clone()) => report,
        _ = tokio::signal::ctrl_c() => {
            progress.clear();
            eprintln!("cancelled; slices that were committed stay. Go on with --resume {id}");
            return ExitCode::from(130);
        }
    };
    progress.clear();
    match output {
        Output::Text => {
            println!("{}", text::summary(&report));
            if let (Some(error), true) = (&report.error, report.flows.is_empty()) {
                eprintln!("error[{}]: {}", error.code, error.message);
            }
        }
        Output::Json => println!("{}", json!(report)),
    }
    if report.state == UpdateState::Completed {
        return ExitCode::SUCCESS;
    }
    if report.flows.is_empty() {
        return ExitCode::from(REFUSED);
    }
    eprintln!("backfill {id} is not done; go on with --resume {id}");
    ExitCode::from(FAILED)
}

async fn prepare(args: &BackfillArgs) -> Result<Backfill, Vec<Fault>> {
    let (config, now) = load(&args.pipeline)?;
    let by = match &args.by {
        None => None,
        Some(word) => Some(Unit::of_word(&word.to_lowercase()).ok_or_else(|| {
            vec![
                Fault::new(
                    "WRONG_OPTION",
                    format!("--by `{word}` is no unit of the calendar"),
                )
                .help(format!("write {}", Unit::WORDS)),
            ]
        })?),
    };
    let resume = match &args.resume {
        None => Resume::No,
        Some(None) => Resume::Newest,
        Some(Some(id)) => Resume::Id(id.clone()),
    };
    Backfill::prepare(
        config,
        &BackfillOptions {
            engine: None,
            fence: None,
            flow: args.flow.clone(),
            column: args.column.clone(),
            from: args.from.clone(),
            to: args.to.clone(),
            by,
            parallel: args.parallel,
            atomic: args.atomic,
            newest_first: args.order == Order::Newest,
            resume,
            now,
        },
    )
    .await
}
