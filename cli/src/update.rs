//! `run`, `plan` and `validate`.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anstream::{eprintln, println};
use chrono::{DateTime, Utc};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;
use tracing::Instrument;
use windrow_flows::calendar::Unit;
use windrow_flows::fault::Fault;
use windrow_scheduler::config::{ConfigOverrides, PipelineConfig};
use windrow_scheduler::report::{FaultReport, FlowReport, SliceOutcome, UpdateReport, UpdateState};
use windrow_scheduler::slicing::Slicing;
use windrow_scheduler::spans;
use windrow_scheduler::update::{Progress, RowsAtRisk, Update, UpdateOptions};

use crate::args::{Output, PipelineArgs, UpdateArgs, ValidateArgs};
use crate::{remote, text};

/// The pipeline, an option or a name is wrong; nothing was written.
pub const REFUSED: u8 = 2;
/// An update ran and a flow failed.
pub const FAILED: u8 = 1;

/// Cancelled, by the one who called or by somebody else.
pub const CANCELED: u8 = 130;

/// Prints faults; in JSON also one object on stdout.
pub fn refuse(output: Output, pipeline: &str, faults: &[Fault]) -> ExitCode {
    let faults: Vec<FaultReport> = faults.iter().map(FaultReport::from).collect();
    refuse_all(output, pipeline, &faults)
}

/// The same for faults that were found elsewhere.
pub fn refuse_all(output: Output, pipeline: &str, faults: &[FaultReport]) -> ExitCode {
    for fault in faults {
        eprintln!("{}", fault.rendered);
    }
    if faults.len() > 1 {
        eprintln!("{} faults; nothing was written", faults.len());
    }
    if output == Output::Json {
        let error = faults
            .first()
            .map(|f| json!({"code": f.code, "message": f.message, "help": f.help}));
        let all: Vec<_> = faults
            .iter()
            .map(|f| {
                json!({"code": f.code, "message": f.message, "help": f.help,
                    "file": f.place.as_ref().map(|p| &p.file),
                    "line": f.place.as_ref().map(|p| p.line),
                    "column": f.place.as_ref().map(|p| p.column)})
            })
            .collect();
        println!(
            "{}",
            json!({"update_id": null, "pipeline": pipeline, "state": "FAILED", "flows": [],
                "error": error, "faults": all})
        );
    }
    // Nothing is wrong with the pipeline when only its time is bad.
    if faults.iter().any(|f| MAY_PASS.contains(&f.code.as_str())) {
        return ExitCode::from(FAILED);
    }
    ExitCode::from(REFUSED)
}

/// Refusals by a scheduler that say nothing about the pipeline: the same call may do later.
const MAY_PASS: [&str; 7] = [
    "NOT_LEADING",
    "SCHEDULER_NOT_REACHABLE",
    "SCHEDULER_REQUEST_FAILED",
    "SCHEDULER_FULL",
    "SCHEDULER_STOPPING",
    "UPDATE_ALREADY_RUNNING",
    "RECORD_CONTENDED",
];

/// Reads the pipeline and the clock from the arguments.
pub fn load(args: &PipelineArgs) -> Result<(PipelineConfig, Option<DateTime<Utc>>), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut configuration = Vec::new();
    for pair in &args.conf {
        match pair.split_once('=') {
            Some((key, value)) => configuration.push((key.to_string(), value.to_string())),
            None => faults.push(Fault::new(
                "WRONG_OPTION",
                format!("--conf `{pair}` is no KEY=VALUE"),
            )),
        }
    }
    let now = args.now.as_ref().and_then(|text| match clock(text) {
        Some(now) => Some(now),
        None => {
            faults.push(
                Fault::new("WRONG_OPTION", format!("--now `{text}` is no time"))
                    .help("write it as RFC 3339, for example 2026-11-29T00:00:00Z"),
            );
            None
        }
    });
    let overrides = ConfigOverrides {
        storage: args.storage.clone(),
        configuration,
    };
    match PipelineConfig::load(&args.pipeline, &overrides) {
        Ok(config) if faults.is_empty() => Ok((config, now)),
        Ok(_) => Err(faults),
        Err(more) => {
            faults.extend(more);
            Err(faults)
        }
    }
}

/// A full time, or a day for its first instant in UTC.
fn clock(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text)
        .map(|t| t.with_timezone(&Utc))
        .ok()
        .or_else(|| {
            chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d")
                .ok()?
                .and_hms_opt(0, 0, 0)
                .map(|t| t.and_utc())
        })
}

pub fn options(args: &UpdateArgs, now: Option<DateTime<Utc>>) -> Result<UpdateOptions, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut replace_where = Vec::new();
    for pair in &args.replace_where {
        match pair.split_once('=') {
            Some((flow, predicate)) if !flow.trim().is_empty() && !predicate.trim().is_empty() => {
                replace_where.push((flow.trim().to_string(), predicate.trim().to_string()));
            }
            _ => faults.push(
                Fault::new(
                    "WRONG_OPTION",
                    format!("--replace-where `{pair}` is no FLOW=PREDICATE"),
                )
                .help("for example --replace-where \"orders=date >= '2026-01-01'\""),
            ),
        }
    }
    let by = args.by.as_ref().and_then(|word| {
        let unit = Unit::of_word(word);
        if unit.is_none() {
            faults.push(Fault::new(
                "WRONG_OPTION",
                format!("--by `{word}` is not {}", Unit::WORDS),
            ));
        }
        unit
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(UpdateOptions {
        slicing: Slicing {
            by,
            parallel: args.parallel,
        },
        refresh: args.refresh.clone(),
        full_refresh: args.full_refresh.clone(),
        full_refresh_all: args.full_refresh_all,
        replace_where,
        now,
        yes: args.yes,
        ..UpdateOptions::default()
    })
}

/// `windrow validate`.
pub async fn validate(args: &ValidateArgs) -> ExitCode {
    if let Some(scheduler) = args.remote.url() {
        return remote::update::validate(&args.pipeline, scheduler).await;
    }
    let args = &args.pipeline;
    let prepared = match load(args) {
        Ok((config, now)) => {
            let name = config.name.clone();
            let options = UpdateOptions {
                now,
                ..UpdateOptions::default()
            };
            Update::prepare(config, &options).await.map(|u| (name, u))
        }
        Err(faults) => Err(faults),
    };
    match prepared {
        Ok((name, update)) => valid(args.output, &name, &update.warnings),
        Err(faults) => refuse(args.output, &args.pipeline.display().to_string(), &faults),
    }
}

pub fn valid(output: Output, name: &str, warnings: &[String]) -> ExitCode {
    for warning in warnings {
        eprintln!("{warning}");
    }
    match output {
        Output::Text => println!("pipeline {name} is valid"),
        Output::Json => println!(
            "{}",
            json!({"pipeline": name, "state": "VALID", "error": null})
        ),
    }
    ExitCode::SUCCESS
}

/// `windrow plan`.
pub async fn plan(args: &UpdateArgs) -> ExitCode {
    if let Some(scheduler) = args.remote.url() {
        return remote::update::plan(args, scheduler).await;
    }
    let update = match prepare(args, None).await {
        Ok(update) => update,
        Err(faults) => {
            return refuse(
                args.pipeline.output,
                &args.pipeline.pipeline.display().to_string(),
                &faults,
            );
        }
    };
    planned(args.pipeline.output, &update.explain().await)
}

pub fn planned(output: Output, report: &UpdateReport) -> ExitCode {
    for warning in &report.warnings {
        eprintln!("{warning}");
    }
    match output {
        Output::Text => print_text(&text::plan(report)),
        Output::Json => println!("{}", json!(report)),
    }
    if report.error.is_some() {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    }
}

fn print_text(text: &str) {
    let mut out = anstream::stdout();
    let _ = out.write_all(text.as_bytes());
}

async fn prepare(args: &UpdateArgs, id: Option<String>) -> Result<Update, Vec<Fault>> {
    let (config, now) = load(&args.pipeline)?;
    tracing::Span::current().record("pipeline", &config.name);
    let options = UpdateOptions {
        id,
        ..options(args, now)?
    };
    Update::prepare(config, &options).await
}

/// An update for the demo: as `windrow run` shows it, with the report.
pub async fn run_for_report(args: &UpdateArgs) -> Option<UpdateReport> {
    let update = match prepare(args, None).await {
        Ok(update) => update,
        Err(faults) => {
            refuse(
                args.pipeline.output,
                &args.pipeline.pipeline.display().to_string(),
                &faults,
            );
            return None;
        }
    };
    let progress = Arc::new(Shown::new(args.pipeline.output));
    let report = update.run(progress.clone()).await;
    progress.clear();
    println!("{}", text::summary(&report));
    Some(report)
}

/// `windrow run`.
pub async fn run(args: &UpdateArgs) -> ExitCode {
    if let Some(scheduler) = args.remote.url() {
        return remote::update::run(args, scheduler).await;
    }
    let id = uuid::Uuid::now_v7().to_string();
    let span = spans::update(&id);
    embedded(args, id).instrument(span).await
}

async fn embedded(args: &UpdateArgs, id: String) -> ExitCode {
    let pipeline = args.pipeline.pipeline.display().to_string();
    let output = args.pipeline.output;
    let update = match prepare(args, Some(id)).await {
        Ok(update) => update,
        Err(faults) => return refuse(output, &pipeline, &faults),
    };
    for warning in &update.warnings {
        eprintln!("{warning}");
    }
    if !args.yes {
        match update.rows_at_risk().await {
            Ok(at_risk) => {
                if let Err(fault) = agree(&at_risk) {
                    return refuse(output, &pipeline, &[fault]);
                }
            }
            Err(problem) => {
                let fault = Fault::new("FULL_REFRESH_NOT_CHECKED", problem.message);
                return refuse(output, &pipeline, &[fault]);
            }
        }
    }
    let progress = Arc::new(Shown::new(output));
    let report = tokio::select! {
        report = update.run(progress.clone()) => report,
        _ = tokio::signal::ctrl_c() => {
            progress.clear();
            eprintln!("cancelled; flows that had not committed changed nothing");
            return ExitCode::from(CANCELED);
        }
    };
    progress.clear();
    tracing::Span::current().record("state", report.state.word());
    ended(output, &report)
}

/// Shows what came of an update.
pub fn ended(output: Output, report: &UpdateReport) -> ExitCode {
    if report
        .backfill
        .as_ref()
        .is_some_and(|b| b.slices.is_empty())
    {
        eprintln!("nothing of the range is open");
    }
    match output {
        Output::Text => {
            println!("{}", text::summary(report));
            if let (Some(error), true) = (&report.error, report.flows.is_empty()) {
                eprintln!("error[{}]: {}", error.code, error.message);
            }
        }
        Output::Json => println!("{}", json!(report)),
    }
    match report.state {
        UpdateState::Completed => ExitCode::SUCCESS,
        UpdateState::Canceled => ExitCode::from(CANCELED),
        // It ended before the first flow began: nothing was written.
        _ if report.flows.is_empty() => ExitCode::from(REFUSED),
        _ => ExitCode::from(FAILED),
    }
}

/// Rows that a full refresh takes away for good must be agreed to.
pub fn agree(at_risk: &[RowsAtRisk]) -> Result<(), Fault> {
    if at_risk.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = at_risk
        .iter()
        .map(|r| {
            format!(
                "{} rows of `{}` outside its window",
                text::count(r.rows),
                r.table
            )
        })
        .collect();
    let words = format!(
        "the full refresh takes away {} for good",
        lines.join(" and ")
    );
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        eprintln!("{words}. Go on? [y/N] ");
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        return Err(Fault::new(
            "FULL_REFRESH_NOT_AGREED",
            format!("{words}; nothing was written"),
        ));
    }
    Err(Fault::new("FULL_REFRESH_NOT_AGREED", words).help("add --yes if they may go"))
}

/// A live line per flow on a terminal, plain lines elsewhere.
pub struct Shown {
    bars: MultiProgress,
    running: Mutex<Vec<(String, ProgressBar)>>,
    output: Output,
}

impl Shown {
    pub fn new(output: Output) -> Self {
        Self {
            bars: MultiProgress::new(),
            running: Mutex::default(),
            output,
        }
    }

    fn say(&self, line: &str) {
        self.bars.suspend(|| match self.output {
            Output::Text => println!("{line}"),
            Output::Json => eprintln!("{line}"),
        });
    }

    /// A word beside what is asked for.
    pub fn note(&self, line: &str) {
        self.bars.suspend(|| eprintln!("{line}"));
    }

    pub fn clear(&self) {
        let _ = self.bars.clear();
    }
}

impl Progress for Shown {
    fn flow_started(&self, flow: &str) {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = self.bars.add(ProgressBar::new_spinner().with_style(style));
        bar.set_message(format!("{flow} is running"));
        bar.enable_steady_tick(Duration::from_millis(120));
        self.running
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push((flow.to_string(), bar));
    }

    fn flow_ended(&self, report: &FlowReport) {
        let mut running = self.running.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(at) = running.iter().position(|(f, _)| *f == report.flow) {
            running.swap_remove(at).1.finish_and_clear();
        }
        self.say(&text::flow_line(report));
    }

    fn slice_ended(&self, _flow: &str, slice: &SliceOutcome) {
        self.say(&text::slice_line(slice));
    }
}
