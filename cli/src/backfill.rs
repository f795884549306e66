//! `backfill`: a range of a flow's history, slice by slice; and what became of earlier ones.

use std::process::ExitCode;
use std::sync::Arc;

use anstream::{eprintln, println};
use owo_colors::OwoColorize;
use serde_json::{Value, json};
use tracing::Instrument;
use windrow_flows::calendar::{self, Unit};
use windrow_flows::fault::Fault;
use windrow_scheduler::backfill::{Backfill, BackfillOptions, Only, Preview, Resume};
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::events;
use windrow_scheduler::ledger::{Kept, Ledgers, SliceState};
use windrow_scheduler::report::{FaultReport, UpdateState};
use windrow_scheduler::spans;

use crate::args::{
    BackfillAction, BackfillArgs, BackfillCommand, OneBackfill, Order, Output, PipelineArgs,
    RangeArgs, RemoteArgs,
};
use crate::remote;
use crate::update::{CANCELED, Shown, ended, load, refuse, refuse_all};

/// A backfill as it is shown.
pub struct Line {
    pub backfill_id: String,
    pub flow: String,
    pub column: String,
    pub from: String,
    pub to: String,
    pub by: Option<String>,
    pub state: String,
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
    /// Only where one backfill is shown.
    pub slices: Vec<SliceLine>,
}

pub struct SliceLine {
    pub from: String,
    pub to: String,
    pub state: String,
}

impl Line {
    fn json(&self, with_slices: bool) -> Value {
        let mut value = json!({"backfill_id": self.backfill_id, "flow": self.flow, "column": self.column,
            "from": self.from, "to": self.to, "by": self.by, "state": self.state,
            "slices": {"total": self.total, "completed": self.completed, "failed": self.failed}});
        if with_slices {
            let slices = self.slices.iter();
            value["all_slices"] = slices
                .map(|s| json!({"from": s.from, "to": s.to, "state": s.state}))
                .collect();
        }
        value
    }

    fn text(&self) -> String {
        let failed = match self.failed {
            0 => String::new(),
            n => format!(", {n} failed"),
        };
        format!(
            "{}  {}  {}  {} to {}  {} of {} slices{failed}",
            self.backfill_id,
            coloured(&format!("{:<9}", self.state)),
            self.flow,
            self.from,
            self.to,
            self.completed,
            self.total
        )
    }
}

fn coloured(state: &str) -> String {
    match state.trim() {
        "COMPLETED" => state.green().to_string(),
        "FAILED" => state.red().to_string(),
        "STOPPED" => state.yellow().to_string(),
        _ => state.to_string(),
    }
}

pub async fn command(command: &BackfillCommand) -> ExitCode {
    match &command.action {
        None => run(&command.run).await,
        Some(BackfillAction::List {
            pipeline,
            remote,
            flow,
            missing,
            range,
        }) => match flow {
            Some(flow) if *missing => open(pipeline, remote, flow, range).await,
            _ => list(pipeline, remote, flow.as_deref()).await,
        },
        Some(BackfillAction::Show(one)) => show(one).await,
        Some(BackfillAction::Stop(one)) => stop(one).await,
        Some(BackfillAction::Resume {
            one,
            parallel,
            order,
        }) => resume(one, *parallel, *order).await,
    }
}

async fn run(args: &BackfillArgs) -> ExitCode {
    // Without an action the arguments ask for a flow.
    let flow = args.flow.as_deref().unwrap_or_default();
    if args.dry_run {
        return preview(args, flow, Shows::Slices).await;
    }
    if let Some(scheduler) = args.remote.url() {
        if let Err(fault) = part(args) {
            let pipeline = args.pipeline.pipeline.display().to_string();
            return refuse(args.pipeline.output, &pipeline, &[fault]);
        }
        return remote::backfill::run(args, flow, scheduler).await;
    }
    let id = uuid::Uuid::now_v7().to_string();
    let span = spans::update(&id);
    embedded(args, flow, id).instrument(span).await
}

async fn embedded(args: &BackfillArgs, flow: &str, id: String) -> ExitCode {
    let output = args.pipeline.output;
    let pipeline = args.pipeline.pipeline.display().to_string();
    let backfill = match prepare(args, flow, id).await {
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
            return ExitCode::from(CANCELED);
        }
    };
    progress.clear();
    let code = ended(output, &report);
    if report.state != UpdateState::Completed && !report.flows.is_empty() {
        eprintln!("backfill {id} is not done; go on with --resume {id}");
    }
    code
}

/// Which part of the range is asked for.
fn part(args: &BackfillArgs) -> Result<Only, Fault> {
    match &args.only {
        None if args.missing => Ok(Only::Missing),
        None => Ok(Only::All),
        Some(word) => Only::of_word(&word.to_lowercase()).ok_or_else(|| {
            Fault::new(
                "WRONG_OPTION",
                format!("--only `{word}` is no part of a backfill"),
            )
            .help(format!("write {}", Only::WORDS))
        }),
    }
}

/// The same as a scheduler is told, of arguments that are in order.
pub fn part_word(args: &BackfillArgs) -> String {
    part(args).unwrap_or_default().word().to_string()
}

/// What of a preview is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// What is open.
    Open,
    /// What would be computed.
    Slices,
}

/// `backfill list --missing`.
async fn open(
    pipeline: &PipelineArgs,
    remote: &RemoteArgs,
    flow: &str,
    range: &RangeArgs,
) -> ExitCode {
    let args = BackfillArgs {
        from: range.from.clone(),
        to: range.to.clone(),
        column: range.column.clone(),
        missing: true,
        // So coarse that what is open is never too much to be listed.
        by: Some(Unit::Year.word().to_string()),
        dry_run: true,
        ..BackfillArgs::of(pipeline, remote, flow)
    };
    preview(&args, flow, Shows::Open).await
}

async fn preview(args: &BackfillArgs, flow: &str, shows: Shows) -> ExitCode {
    let looked = async {
        part(args).map_err(|fault| refusals(&[fault]))?;
        if let Some(scheduler) = args.remote.url() {
            return remote::backfill::preview(args, flow, scheduler).await;
        }
        let id = uuid::Uuid::now_v7().to_string();
        let backfill = prepare(args, flow, id).await.map_err(|f| refusals(&f))?;
        Ok(PreviewLines::of(backfill.preview()))
    };
    let preview = match looked.await {
        Ok(preview) => preview,
        Err(faults) => return refused(&args.pipeline, &faults),
    };
    for warning in &preview.warnings {
        eprintln!("{warning}");
    }
    match args.pipeline.output {
        Output::Json => println!("{}", preview.json(shows)),
        Output::Text => preview.print(shows),
    }
    ExitCode::SUCCESS
}

/// What a backfill would do, as it is shown.
pub struct PreviewLines {
    pub flow: String,
    pub column: String,
    pub from: String,
    pub to: String,
    pub by: Option<String>,
    pub open: Vec<OpenLine>,
    pub slices: Vec<SliceLine>,
    pub warnings: Vec<String>,
}

pub struct OpenLine {
    pub from: String,
    pub to: String,
    pub state: String,
    pub backfill_id: Option<String>,
}

impl PreviewLines {
    fn of(preview: Preview) -> Self {
        let open = preview.open.into_iter().flatten();
        Self {
            flow: preview.flow,
            column: preview.column,
            from: preview.from,
            to: preview.to,
            by: preview.by,
            open: open
                .map(|o| OpenLine {
                    from: calendar::shown(o.from),
                    to: calendar::shown(o.to),
                    state: o.state.word().to_string(),
                    backfill_id: o.backfill,
                })
                .collect(),
            slices: preview
                .slices
                .into_iter()
                .map(|(from, to, state)| SliceLine {
                    from,
                    to,
                    state: state.map(|s| s.word().to_string()).unwrap_or_default(),
                })
                .collect(),
            warnings: preview.warnings,
        }
    }

    fn json(&self, shows: Shows) -> Value {
        let mut value =
            json!({"flow": self.flow, "column": self.column, "from": self.from, "to": self.to});
        if shows == Shows::Open {
            value["missing"] = self
                .open
                .iter()
                .map(|o| json!({"from": o.from, "to": o.to, "state": o.state, "backfill_id": o.backfill_id}))
                .collect();
            return value;
        }
        value["by"] = json!(self.by);
        value["slices"] = self
            .slices
            .iter()
            .map(|s| match s.state.as_str() {
                "" => json!({"from": s.from, "to": s.to}),
                state => json!({"from": s.from, "to": s.to, "state": state}),
            })
            .collect();
        value
    }

    fn print(&self, shows: Shows) {
        let (flow, column) = (&self.flow, &self.column);
        let range = format!("{} to {}", self.from, self.to);
        if shows == Shows::Open {
            if self.open.is_empty() {
                println!("{flow} by {column}: nothing is open from {range}");
                return;
            }
            println!("{flow} by {column}: open from {range}");
            for open in &self.open {
                let told = open.backfill_id.as_ref();
                let backfill = told.map(|id| format!("  backfill {id}"));
                println!(
                    "  {}  {} to {}{}",
                    coloured(&format!("{:<7}", open.state)),
                    open.from,
                    open.to,
                    backfill.unwrap_or_default()
                );
            }
            return;
        }
        let by = self.by.as_ref().map(|by| format!(" by {by}"));
        let by = by.unwrap_or_default();
        match self.slices.len() {
            0 => println!("{flow} by {column}: no slice would be computed of {range}"),
            1 => println!("{flow} by {column}: 1 slice would be computed of {range}{by}"),
            n => println!("{flow} by {column}: {n} slices would be computed of {range}{by}"),
        }
        for slice in &self.slices {
            let state = match slice.state.as_str() {
                "" => String::new(),
                state => format!("{}  ", coloured(&format!("{state:<7}"))),
            };
            println!("  {state}{} to {}", slice.from, slice.to);
        }
    }
}

async fn prepare(args: &BackfillArgs, flow: &str, id: String) -> Result<Backfill, Vec<Fault>> {
    let (config, now) = load(&args.pipeline)?;
    tracing::Span::current().record("pipeline", &config.name);
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
            flow: flow.to_string(),
            only: part(args).map_err(|fault| vec![fault])?,
            column: args.column.clone(),
            from: args.from.clone(),
            to: args.to.clone(),
            by,
            parallel: args.parallel,
            atomic: args.atomic,
            newest_first: args.order == Order::Newest,
            resume,
            now,
            id: Some(id),
        },
    )
    .await
}

fn refusals(faults: &[Fault]) -> Vec<FaultReport> {
    faults.iter().map(FaultReport::from).collect()
}

fn storage(error: &windrow_delta::TableError) -> Vec<FaultReport> {
    refusals(&[Fault::new(error.code(), error.to_string())])
}

fn not_found(id: &str) -> Vec<FaultReport> {
    refusals(&[
        Fault::new("BACKFILL_NOT_FOUND", format!("there is no backfill `{id}`"))
            .help("`windrow backfill list` shows those that there are"),
    ])
}

/// The ids of updates that run on the storage, as far as can be known.
async fn under_way(config: &PipelineConfig) -> Result<Vec<String>, Vec<FaultReport>> {
    let running = events::running(&config.storage, &config.store_options).await;
    let running = running.map_err(|e| storage(&e))?;
    Ok(running.into_iter().map(|u| u.id).collect())
}

fn line(kept: &Kept, under_way: &[String]) -> Line {
    let ledger = &kept.ledger;
    let slices = ledger.slices.iter();
    Line {
        backfill_id: ledger.id.clone(),
        flow: ledger.flow.clone(),
        column: ledger.column.clone(),
        from: ledger.from.clone(),
        to: ledger.to.clone(),
        by: ledger.by.clone(),
        state: kept.state(under_way.contains(&ledger.update)).to_string(),
        total: ledger.slices.len() as u64,
        completed: ledger.count(SliceState::Completed),
        failed: ledger.count(SliceState::Failed),
        slices: slices
            .map(|s| SliceLine {
                from: s.from.clone(),
                to: s.to.clone(),
                state: s.state.word().to_string(),
            })
            .collect(),
    }
}

async fn list(pipeline: &PipelineArgs, remote: &RemoteArgs, flow: Option<&str>) -> ExitCode {
    let listed = async {
        let (config, _) = load(pipeline).map_err(|faults| refusals(&faults))?;
        if let Some(scheduler) = remote.url() {
            let lines = remote::backfill::list(&config, flow, scheduler).await;
            return lines.map_err(|fault| vec![fault]);
        }
        let under_way = under_way(&config).await?;
        let ledgers = Ledgers::open(&config).map_err(|e| storage(&e))?;
        let mut lines = Vec::new();
        for entry in ledgers.list(flow).await.map_err(|e| storage(&e))? {
            let kept = ledgers.read(&entry).await.map_err(|e| storage(&e))?;
            lines.extend(kept.map(|kept| line(&kept, &under_way)));
        }
        Ok(lines)
    };
    let lines = match listed.await {
        Ok(lines) => lines,
        Err(faults) => return refused(pipeline, &faults),
    };
    match pipeline.output {
        Output::Json => {
            let all: Vec<Value> = lines.iter().map(|line| line.json(false)).collect();
            println!("{}", json!({ "backfills": all }));
        }
        Output::Text if lines.is_empty() => println!("no backfills"),
        Output::Text => {
            for line in lines {
                println!("{}", line.text());
            }
        }
    }
    ExitCode::SUCCESS
}

fn refused(pipeline: &PipelineArgs, faults: &[FaultReport]) -> ExitCode {
    let shown = pipeline.pipeline.display().to_string();
    refuse_all(pipeline.output, &shown, faults)
}

/// The ledger of a backfill, read here or by a scheduler.
async fn one_of(one: &OneBackfill) -> Result<Line, Vec<FaultReport>> {
    let (config, _) = load(&one.pipeline).map_err(|faults| refusals(&faults))?;
    if let Some(scheduler) = one.remote.url() {
        let line = remote::backfill::show(&config, &one.id, scheduler).await;
        return line.map_err(|fault| vec![fault]);
    }
    let ledgers = Ledgers::open(&config).map_err(|e| storage(&e))?;
    let kept = ledgers.find(&one.id).await.map_err(|e| storage(&e))?;
    let kept = kept.ok_or_else(|| not_found(&one.id))?;
    Ok(line(&kept, &under_way(&config).await?))
}

async fn show(one: &OneBackfill) -> ExitCode {
    let line = match one_of(one).await {
        Ok(line) => line,
        Err(faults) => return refused(&one.pipeline, &faults),
    };
    match one.pipeline.output {
        Output::Json => println!("{}", line.json(true)),
        Output::Text => {
            println!("{}", line.text());
            for slice in &line.slices {
                let state = format!("{:<9}", slice.state);
                println!("  {}  {} to {}", coloured(&state), slice.from, slice.to);
            }
        }
    }
    ExitCode::SUCCESS
}

async fn stop(one: &OneBackfill) -> ExitCode {
    let stopped = async {
        let (config, _) = load(&one.pipeline).map_err(|faults| refusals(&faults))?;
        if let Some(scheduler) = one.remote.url() {
            let line = remote::backfill::stop(&config, &one.id, scheduler).await;
            return line.map_err(|fault| vec![fault]);
        }
        let ledgers = Ledgers::open(&config).map_err(|e| storage(&e))?;
        let kept = ledgers.find(&one.id).await.map_err(|e| storage(&e))?;
        let kept = kept.ok_or_else(|| not_found(&one.id))?;
        if !kept.ledger.is_done() {
            let asked = ledgers.request_stop(&kept.ledger).await;
            asked.map_err(|e| storage(&e))?;
        }
        one_of(one).await
    };
    let line = match stopped.await {
        Ok(line) => line,
        Err(faults) => return refused(&one.pipeline, &faults),
    };
    match (one.pipeline.output, line.state.as_str()) {
        (Output::Json, _) => println!("{}", line.json(false)),
        (Output::Text, "RUNNING") => println!(
            "backfill {} stops when the slices under way have ended",
            line.backfill_id
        ),
        (Output::Text, state) => println!("backfill {} is {state}", line.backfill_id),
    }
    ExitCode::SUCCESS
}

async fn resume(one: &OneBackfill, parallel: usize, order: Order) -> ExitCode {
    let line = match one_of(one).await {
        Ok(line) => line,
        Err(faults) => return refused(&one.pipeline, &faults),
    };
    run(&BackfillArgs {
        parallel,
        order,
        resume: Some(Some(one.id.clone())),
        ..BackfillArgs::of(&one.pipeline, &one.remote, &line.flow)
    })
    .await
}
