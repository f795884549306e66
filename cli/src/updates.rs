//! `updates`: which updates a pipeline had, and an end to one that runs.
//!
//! Without a scheduler they are read from the event log. An update that another process runs is
//! stopped where it runs, or by its scheduler.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anstream::println;
use owo_colors::OwoColorize;
use serde_json::{Value, json};
use windrow_flows::fault::Fault;
use windrow_scheduler::config::PipelineConfig;
use windrow_scheduler::event_reader::{EventFilter, read};
use windrow_scheduler::events::running;

use crate::args::{Output, UpdatesAction, UpdatesArgs, UpdatesCommand};
use crate::remote;
use crate::update::{load, refuse, refuse_all};

/// An update in a list.
pub struct Line {
    pub update_id: String,
    pub pipeline: String,
    pub state: String,
    pub created: String,
    pub ended: Option<String>,
}

impl Line {
    fn json(&self) -> Value {
        json!({"update_id": self.update_id, "pipeline": self.pipeline, "state": self.state,
            "created": self.created, "ended": self.ended})
    }

    fn text(&self) -> String {
        let padded = format!("{:<12}", self.state);
        let state = match self.state.as_str() {
            "COMPLETED" => padded.green().to_string(),
            "FAILED" => padded.red().to_string(),
            "CANCELED" => padded.yellow().to_string(),
            _ => padded,
        };
        let ended = self.ended.as_deref().unwrap_or("-");
        format!(
            "{}  {state}  {:<24}  {ended:<24}  {}",
            self.update_id, self.created, self.pipeline
        )
    }
}

pub async fn command(command: &UpdatesCommand) -> ExitCode {
    match &command.action {
        None => list(&command.list).await,
        Some(UpdatesAction::Stop { id, remote, output }) => stop(id, remote.url(), *output).await,
    }
}

async fn list(args: &UpdatesArgs) -> ExitCode {
    let output = args.pipeline.output;
    let shown = args.pipeline.pipeline.display().to_string();
    let config = match load(&args.pipeline) {
        Ok((config, _)) => config,
        Err(faults) => return refuse(output, &shown, &faults),
    };
    let lines = match args.remote.url() {
        Some(scheduler) => match remote::updates::list(&config, args.last, scheduler).await {
            Ok(lines) => lines,
            Err(fault) => return refuse_all(output, &shown, &[fault]),
        },
        None => match from_log(&config, args.last).await {
            Ok(lines) => lines,
            Err(error) => {
                let fault = Fault::new(error.code(), error.to_string());
                return refuse(output, &shown, &[fault]);
            }
        },
    };
    match output {
        Output::Json => {
            let all: Vec<Value> = lines.iter().map(Line::json).collect();
            println!("{}", json!({ "updates": all }));
        }
        Output::Text if lines.is_empty() => println!("no updates"),
        Output::Text => {
            for line in lines {
                println!("{}", line.text());
            }
        }
    }
    ExitCode::SUCCESS
}

async fn from_log(
    config: &PipelineConfig,
    last: usize,
) -> Result<Vec<Line>, windrow_delta::TableError> {
    let mut found: BTreeMap<String, Line> = BTreeMap::new();
    for update in running(&config.storage, &config.store_options).await? {
        let line = Line {
            update_id: update.id.clone(),
            pipeline: update.pipeline,
            state: "RUNNING".into(),
            created: update
                .started
                .to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
            ended: None,
        };
        found.insert(update.id, line);
    }
    for event_type in ["create_update", "update_progress"] {
        let filter = EventFilter {
            event_type: Some(event_type.into()),
            last: usize::MAX,
            ..EventFilter::default()
        };
        for event in read(config, &filter).await? {
            add(&mut found, &event);
        }
    }
    // Ids begin with the time at which they were made.
    let mut lines: Vec<Line> = found.into_values().rev().collect();
    lines.retain(|line| line.pipeline == config.name);
    lines.truncate(last);
    Ok(lines)
}

fn add(found: &mut BTreeMap<String, Line>, event: &Value) {
    let text = |pointer: &str| {
        let text = event.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_string()
    };
    let id = text("/origin/update_id");
    let line = found.entry(id.clone()).or_insert_with(|| Line {
        update_id: id,
        pipeline: text("/origin/pipeline_name"),
        state: "RUNNING".into(),
        created: text("/timestamp"),
        ended: None,
    });
    let state = text("/details/update_progress/state");
    if matches!(state.as_str(), "COMPLETED" | "FAILED" | "CANCELED") {
        line.state = state;
        line.ended = Some(text("/timestamp"));
    }
}

async fn stop(id: &str, scheduler: Option<&str>, output: Output) -> ExitCode {
    let Some(scheduler) = scheduler else {
        let fault = Fault::new(
            "UPDATE_NOT_STOPPABLE",
            format!("update {id} can't be stopped from here"),
        )
        .help("end `windrow run` where it runs (ctrl-c); with --scheduler, the updates of that scheduler can be stopped");
        return refuse(output, id, &[fault]);
    };
    match remote::updates::stop(id, scheduler).await {
        Ok(line) => {
            match output {
                Output::Json => println!("{}", line.json()),
                Output::Text => println!("update {} is {}", line.update_id, line.state),
            }
            ExitCode::SUCCESS
        }
        Err(fault) => refuse_all(output, id, &[fault]),
    }
}
