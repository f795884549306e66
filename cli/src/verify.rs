//! `verify`: checks the window of a flow against its query, and shows what differs.

use std::process::ExitCode;

use anstream::{eprintln, println};
use owo_colors::OwoColorize;
use serde_json::json;
use windrow_scheduler::verify::{Example, Side, SliceReport, VerifyOptions, VerifyReport, verify};

use crate::args::{Output, VerifyArgs};
use crate::text::count;
use crate::update::{FAILED, load, refuse};

/// Slices that are checked when nothing is said about their number.
const SAMPLE: usize = 10;

pub async fn run(args: &VerifyArgs) -> ExitCode {
    let output = args.pipeline.output;
    let pipeline = args.pipeline.pipeline.display().to_string();
    let (config, now) = match load(&args.pipeline) {
        Ok(loaded) => loaded,
        Err(faults) => return refuse(output, &pipeline, &faults),
    };
    let options = VerifyOptions {
        flow: args.flow.clone(),
        sample: (!args.all).then_some(args.sample.unwrap_or(SAMPLE)),
        as_committed: args.as_committed,
        now,
    };
    let told = |slice: &SliceReport| {
        if output == Output::Text {
            println!("{}", line(slice));
        }
    };
    let report = match verify(config, &options, told).await {
        Ok(report) => report,
        Err(faults) => return refuse(output, &pipeline, &faults),
    };
    for warning in &report.warnings {
        eprintln!("{warning}");
    }
    match output {
        Output::Text => println!("{}", summary(&report)),
        Output::Json => println!("{}", json!(report)),
    }
    if report.equal {
        ExitCode::SUCCESS
    } else {
        eprintln!(
            "`{}` is not what its query gives; {}",
            report.target,
            way_out(&report)
        );
        ExitCode::from(FAILED)
    }
}

/// One slice: a line, and the rows that differ below it.
fn line(slice: &SliceReport) -> String {
    let rounded = match slice.rows_rounded {
        0 => String::new(),
        n => format!(", {} equal but for the last digits of floats", count(n)),
    };
    if !slice.differs() {
        return format!(
            "{}  {}: {} rows{rounded}",
            "equal".green(),
            slice.slice,
            count(slice.rows_stored)
        );
    }
    let mut text = format!(
        "{}  {}: {} rows where the query gives {}; {} missing, {} too many{rounded}",
        "DIFFERS".red(),
        slice.slice,
        count(slice.rows_stored),
        count(slice.rows_computed),
        count(slice.rows_missing),
        count(slice.rows_surplus)
    );
    for example in &slice.examples {
        text.push_str(&format!("\n    {}", row(example)));
    }
    text
}

fn row(example: &Example) -> String {
    let sign = match example.side {
        Side::Missing => "missing ",
        Side::Surplus => "too many",
    };
    let copies = match example.copies {
        1 => String::new(),
        n => format!(" ({} copies)", count(n)),
    };
    let cells: Vec<String> = example
        .row
        .iter()
        .map(|(name, value)| format!("{name}={}", value.as_deref().unwrap_or("null")))
        .collect();
    format!("{sign} {}{copies}", cells.join(" | "))
}

fn summary(report: &VerifyReport) -> String {
    let differing = report.slices.iter().filter(|s| s.differs()).count() as u64;
    let sources: Vec<String> = report
        .sources
        .iter()
        .map(|s| format!("{} at version {}", s.table, s.version))
        .collect();
    let rows: u64 = report.slices.iter().map(|s| s.rows_stored).sum();
    let mut text = format!(
        "{} of {} slices of {} (version {}) checked against {}: {} rows, {}",
        count(report.slices.len() as u64),
        count(report.slices_total),
        report.target,
        report.target_version,
        if sources.is_empty() {
            "its query".into()
        } else {
            sources.join(", ")
        },
        count(rows),
        match differing {
            0 => "no difference".to_string(),
            n => format!("{} differ", count(n)),
        }
    );
    if let Some(predicate) = &report.predicate {
        text.push_str(&format!("\nwindow: {predicate}"));
    }
    text
}

fn way_out(report: &VerifyReport) -> String {
    let later: Vec<String> = report
        .later_commits
        .iter()
        .map(|c| format!("version {} by {}", c.version, c.by))
        .collect();
    if later.is_empty() || report.target_version == report.refresh_version {
        return "nobody else wrote to it since the refresh; please report this".into();
    }
    format!(
        "it was changed since that refresh (version {}): {}; --as-committed checks what the refresh wrote, \
         and the next update computes what others changed in the window anew",
        report.refresh_version,
        later.join(", ")
    )
}
