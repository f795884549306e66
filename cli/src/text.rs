//! Reports as text for people.

use std::fmt::Write;

use owo_colors::OwoColorize;
use windrow_flows::refresh::Technique;
use windrow_scheduler::report::{FlowReport, FlowStatus, SliceOutcome, SourceReport, UpdateReport};

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Bytes in the unit that leaves the fewest digits.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{number} B")
    } else if value < 10.0 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

fn plural(number: u64, word: &str) -> String {
    format!(
        "{} {word}{}",
        count(number),
        if number == 1 { "" } else { "s" }
    )
}

fn place(location: &str) -> String {
    location
        .trim_start_matches("file://")
        .trim_end_matches('/')
        .to_string()
}

fn source(report: &SourceReport, width: usize) -> String {
    let version = report
        .version
        .map_or_else(|| "-".into(), |v| format!("v{v}"));
    let files = if report.files_scanned == report.files_total {
        format!("all {}", plural(report.files_total, "file"))
    } else {
        format!(
            "{} of {}",
            count(report.files_scanned),
            plural(report.files_total, "file")
        )
    };
    if report.files_total == 0 && report.files_scanned == 0 {
        // Nothing was planned to be read.
        let note = report
            .note
            .as_deref()
            .unwrap_or("nothing new in the window's reach");
        return format!("{:width$}  {version:<6} {note}", report.table);
    }
    let pruning = if report.pruned_by_predicate {
        "pruned by the window"
    } else {
        report.note.as_deref().unwrap_or("")
    };
    format!(
        "{:width$}  {version:<6} {files:<24} {:>9}   {pruning}",
        report.table,
        bytes(report.bytes_scanned)
    )
}

/// The plan of an update.
pub fn plan(report: &UpdateReport) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Update plan for pipeline {}   now = {} (fixed for this update)",
        report.pipeline.bold(),
        report.now
    );
    for flow in &report.flows {
        let _ = writeln!(out);
        let _ = write!(
            out,
            "flow {} -> {}   {}",
            flow.flow.bold(),
            place(&flow.location),
            flow.kind.replace('_', " ")
        );
        if let Some(written) = &flow.predicate_as_written {
            let _ = write!(out, " {written}");
        }
        let _ = writeln!(out);
        if let Some(error) = &flow.error {
            let _ = writeln!(out, "  {} {}: {}", "error".red(), error.code, error.message);
            continue;
        }
        if let Some(predicate) = &flow.predicate {
            let target = flow.table_version.map_or_else(
                || "the target is new".into(),
                |v| format!("target at version {v}"),
            );
            let _ = writeln!(out, "  window     {predicate}   ({target})");
        }
        let width = flow
            .sources
            .iter()
            .map(|s| s.table.len())
            .max()
            .unwrap_or(0);
        for (i, s) in flow.sources.iter().enumerate() {
            let label = if i == 0 { "reads" } else { "" };
            let _ = writeln!(out, "  {label:<9}  {}", source(s, width));
        }
        if let Some(technique) = flow.technique {
            let _ = writeln!(
                out,
                "  technique  {}{}",
                technique.word(),
                costs(flow, technique)
            );
            for read in &flow.change_data {
                let _ = writeln!(
                    out,
                    "             the change of {} is in {} of change data, {}",
                    read.table,
                    plural(read.files, "file"),
                    bytes(read.bytes)
                );
            }
            for considered in &flow.considered {
                for issue in &considered.issues {
                    let _ = writeln!(
                        out,
                        "             not {}: {}",
                        considered.technique.word(),
                        issue.words
                    );
                }
            }
            for reason in &flow.fallback_reasons {
                let _ = writeln!(
                    out,
                    "             {}: {}",
                    reason.word(),
                    reason_words(reason.word())
                );
            }
        }
        let _ = writeln!(out, "  effect     {}", effect(flow));
        if !flow.after.is_empty() {
            let _ = writeln!(
                out,
                "  note       planned over {} as it is now; this update will change it first",
                flow.after.join(", ")
            );
        }
    }
    out
}

/// What the chosen technique costs beside the whole window, and what past runs had to say about it.
fn costs(flow: &FlowReport, technique: Technique) -> String {
    let of = |technique: Technique| flow.considered.iter().find(|c| c.technique == technique);
    let whole = of(Technique::CompleteRecompute).and_then(|c| c.cost);
    let own = flow
        .considered
        .iter()
        .find(|c| c.technique == technique && c.is_chosen);
    let (Some(own), Some(whole)) = (own, whole) else {
        return String::new();
    };
    let (Some(cost), true) = (own.cost, technique != Technique::CompleteRecompute) else {
        return String::new();
    };
    let corrected = match (own.estimated_cost, own.past_runs) {
        (Some(estimated), Some(runs)) if estimated > 0 => format!(
            " (estimated {}, corrected x{:.1} by {})",
            bytes(estimated),
            cost as f64 / estimated as f64,
            plural(runs, "past run")
        ),
        _ => String::new(),
    };
    format!(
        "   about {} read and written{corrected}, {} for the whole",
        bytes(cost),
        bytes(whole)
    )
}

fn effect(flow: &FlowReport) -> String {
    if flow.technique == Some(Technique::NoOp) {
        return "nothing changed that can reach the window; nothing is written".into();
    }
    if flow.technique == Some(Technique::AppendOnly) {
        return "adds rows; all files of the target stay as they are".into();
    }
    match &flow.effect {
        None => "makes the table".into(),
        Some(e) => {
            let mut text = format!(
                "replaces {} in {}",
                plural(flow.metrics.num_deleted_rows, "row"),
                plural(e.files_removed, "file")
            );
            if e.files_looked_into > 0 {
                let _ = write!(
                    text,
                    ", looks into {} that may lie partly in the window",
                    plural(e.files_looked_into, "file")
                );
            }
            let _ = write!(text, "; {} stay as they are", plural(e.files_kept, "file"));
            text
        }
    }
}

/// What a fallback reason means, and what to do about it.
fn reason_words(reason: &str) -> &'static str {
    match reason {
        "CHANGE_SET_MISSING" => "the flow has no earlier refresh by its own predicate",
        "QUERY_FINGERPRINT_CHANGED" => "the query or its columns are not those of the last refresh",
        "UNSUPPORTED_REPLACE_WHERE_PREDICATE" => {
            "the window is an override, holds rows that the last one did not, or reaches no changed source"
        }
        "REPLACE_WHERE_NOT_DETERMINISTIC" => "the predicate gives another window each time",
        "EXTERNAL_CHANGE_IN_REPLACE_WINDOW" => "somebody else changed rows of the window",
        "PLAN_NOT_DETERMINISTIC" => "the query asks for the time or for chance",
        "DATA_FILE_MISSING" => "a source's log no longer reaches back to the last refresh",
        "DATA_SCHEMA_CHANGED" => {
            "a source's columns or properties are not those of the last refresh"
        }
        "INPUT_NOT_IN_DELTA" => "a source is no Delta table, so its changes can't be told",
        "TIME_ZONE_CHANGED" => "the session's time zone is another one",
        "FULL_REFRESH_REQUESTED" => "a full refresh was asked for",
        "PRIOR_REPLACE_WHERE_NOT_DETERMINISTIC" => {
            "the predicate of the last refresh gave another window each time"
        }
        "INCREMENTAL_PLAN_REJECTED_BY_COST_MODEL" => {
            "computing the window is estimated to be cheaper than any part of it; REFRESH POLICY INCREMENTAL forbids that"
        }
        "PLAN_NOT_INCREMENTALIZABLE" => "a change may touch every row of the result",
        _ => "no cheaper technique of this version applies",
    }
}

/// One line for a slice of a backfill that ended.
pub fn slice_line(slice: &SliceOutcome) -> String {
    let span = format!("  {} to {}", slice.from, slice.to);
    match (&slice.error, slice.rows) {
        (Some(error), _) => format!(
            "{span}: {} {}: {}",
            "FAILED".red(),
            error.code,
            error.message
        ),
        (None, Some(rows)) => format!("{span}: {} written", plural(rows, "row")),
        (None, None) => span,
    }
}

/// One line for a flow that ended.
pub fn flow_line(flow: &FlowReport) -> String {
    let status = match flow.status {
        FlowStatus::Completed => "COMPLETED".green().to_string(),
        FlowStatus::Failed => "FAILED".red().to_string(),
        FlowStatus::Skipped => "SKIPPED".yellow().to_string(),
        FlowStatus::Canceled => "CANCELED".yellow().to_string(),
        FlowStatus::Planned => "PLANNED".to_string(),
    };
    let mut line = format!("{status} {}", flow.flow.bold());
    match flow.status {
        FlowStatus::Completed => {
            let technique = flow.technique.map(Technique::word).unwrap_or_default();
            let m = &flow.metrics;
            let version = flow
                .table_version
                .map(|v| format!(", version {v}"))
                .unwrap_or_default();
            if flow.technique == Some(Technique::NoOp) {
                let _ = write!(line, "  {technique}: nothing to do{version}");
            } else {
                let _ = write!(
                    line,
                    "  {technique}: {} written, {} replaced, {} added, {} removed{version}, {:.1} s",
                    plural(m.num_output_rows, "row"),
                    count(m.num_deleted_rows),
                    plural(m.num_files_added, "file"),
                    count(m.num_files_removed),
                    m.duration_ms as f64 / 1000.0
                );
                if m.num_copied_rows > 0 {
                    let _ = write!(
                        line,
                        " ({} outside the window copied)",
                        plural(m.num_copied_rows, "row")
                    );
                }
            }
        }
        _ => {
            if let Some(error) = &flow.error {
                let _ = write!(line, "  {}: {}", error.code, error.message);
                if let Some(help) = &error.help {
                    let _ = write!(line, "\n  = help: {help}");
                }
            }
        }
    }
    line
}

/// The last line of an update.
pub fn summary(report: &UpdateReport) -> String {
    let done = report
        .flows
        .iter()
        .filter(|f| f.status == FlowStatus::Completed)
        .count();
    let rows: u64 = report.flows.iter().map(|f| f.metrics.num_output_rows).sum();
    let read: u64 = report.flows.iter().map(|f| f.metrics.bytes_scanned).sum();
    format!(
        "update {} {}: {done} of {}, {} written, {} read",
        report.update_id,
        report.state.word(),
        plural(report.flows.len() as u64, "flow"),
        plural(rows, "row"),
        bytes(read)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_204_551), "1,204,551");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(41 << 20), "41 MiB");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
