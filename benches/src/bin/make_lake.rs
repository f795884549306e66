//! Makes a sample lake: `make_lake DIR SCALE END_DATE`, for example `make_lake lake 0.1 2026-11-29`.
//!
//! DIR is a folder or a URL; the object store is set up by the environment (`AWS_*`). Prints what was
//! written and, where the system tells it, the most memory that was in use.

use std::process::ExitCode;
use std::time::Instant;

use windrow_benches::lake::{LakeOptions, LakeSummary, lake_root, make_lake};

const USAGE: &str = "usage: make_lake DIR SCALE END_DATE    (END_DATE as YYYY-MM-DD)";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [folder, scale, end] = arguments else {
        return Err(USAGE.into());
    };
    let scale_factor: f64 = scale
        .parse()
        .map_err(|_| format!("`{scale}` is no scale factor; {USAGE}"))?;
    let end = end
        .parse()
        .map_err(|_| format!("`{end}` is no date; {USAGE}"))?;
    let started = Instant::now();
    let summary = make_lake(&lake_root(folder)?, scale_factor, &LakeOptions::new(end)).await?;
    report(&summary, started);
    Ok(())
}

fn report(summary: &LakeSummary, started: Instant) {
    println!("orders from {} to {}", summary.first_day, summary.last_day);
    for table in &summary.tables {
        println!(
            "{:<9} {:>11} rows  {:>5} files in {:>3} partitions  {:>8.1} MiB  {}",
            table.name,
            table.rows,
            table.files,
            table.partitions,
            table.bytes as f64 / f64::from(1 << 20),
            table.location,
        );
    }
    let peak = peak_memory().map_or(String::new(), |peak| format!(", peak memory {peak}"));
    println!("took {:.1} s{peak}", started.elapsed().as_secs_f64());
}

/// The most memory that this process had in use, as Linux tells it.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.trim_start_matches("VmHWM:").trim().to_owned())
}
