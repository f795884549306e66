//! `events`: the event log, oldest first.

use std::process::ExitCode;

use anstream::println;
use owo_colors::OwoColorize;
use serde_json::Value;
use windrow_flows::fault::Fault;
use windrow_scheduler::event_reader::{EventFilter, read};

use crate::args::{EventsArgs, Output};
use crate::remote;
use crate::update::{load, refuse, refuse_all};

pub async fn show(args: &EventsArgs) -> ExitCode {
    let shown = args.pipeline.pipeline.display().to_string();
    let config = match load(&args.pipeline) {
        Ok((config, _)) => config,
        Err(faults) => return refuse(args.pipeline.output, &shown, &faults),
    };
    if let Some(scheduler) = args.remote.url() {
        return match remote::events::list(args, &config, scheduler).await {
            Ok(events) => print(args.pipeline.output, &events),
            Err(fault) => refuse_all(args.pipeline.output, &shown, &[fault]),
        };
    }
    let filter = EventFilter {
        flow: args.flow.clone(),
        update: args.update.clone(),
        event_type: args.event_type.clone(),
        level: args.level.as_ref().map(|l| l.to_uppercase()),
        before: None,
        last: args.last,
    };
    let events = match read(&config, &filter).await {
        Ok(events) => events,
        Err(error) => {
            let fault = Fault::new(error.code(), error.to_string());
            return refuse(args.pipeline.output, &shown, &[fault]);
        }
    };
    print(args.pipeline.output, &events)
}

fn print(output: Output, events: &[Value]) -> ExitCode {
    for event in events {
        match output {
            Output::Json => println!("{event}"),
            Output::Text => println!("{}", line(event)),
        }
    }
    if events.is_empty() && output == Output::Text {
        println!("no such events");
    }
    ExitCode::SUCCESS
}

fn line(event: &Value) -> String {
    let text = |key: &str| {
        event
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let level = match text("level").as_str() {
        "ERROR" => "ERROR".red().to_string(),
        "WARN" => "WARN ".yellow().to_string(),
        other => format!("{other:<5}"),
    };
    format!(
        "{}  {level}  {:<20}  {}",
        text("timestamp"),
        text("event_type"),
        text("message")
    )
}
