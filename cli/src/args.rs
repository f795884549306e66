//! What the command line takes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(
    name = "windrow",
    version,
    about = "Declarative lakehouse pipelines on object storage",
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a small pipeline with sample data that runs at once
    Init {
        /// Name of the pipeline and of its folder
        name: String,
    },
    /// Make a sample lake and run a pipeline over it, explained
    Demo {
        /// Where lake and pipeline are put
        #[arg(default_value = "windrow-demo")]
        dir: PathBuf,
        /// TPC-H scale factor of the sample lake
        #[arg(long, default_value_t = windrow_benches::lake::demo::SCALE_FACTOR)]
        scale: f64,
    },
    /// Run one update
    Run(UpdateArgs),
    /// Show what an update would do, without writing
    Plan(UpdateArgs),
    /// Parse and resolve everything; exit 2 with each fault in its source line
    Validate(PipelineArgs),
    /// Show the event log
    Events(EventsArgs),
    /// Remove files that no commit names, older than the retention
    Vacuum(VacuumArgs),
    /// Compute slices of a flow's window anew and compare them with the target, without writing
    Verify(VerifyArgs),
}

#[derive(Debug, Args, Clone)]
pub struct PipelineArgs {
    /// A pipeline file, a folder that holds windrow.yml or spark-pipeline.yml, or a .sql file with --storage
    #[arg(default_value = ".")]
    pub pipeline: PathBuf,
    /// Where tables are kept, instead of what the pipeline file says
    #[arg(long, value_name = "DIR")]
    pub storage: Option<String>,
    /// A value of the pipeline's configuration
    #[arg(long, value_name = "K=V")]
    pub conf: Vec<String>,
    /// The update's clock, as RFC 3339; default: now, UTC
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<String>,
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

#[derive(Debug, Args, Clone)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    /// Refresh only this table (repeat for more)
    #[arg(long, value_name = "TABLE")]
    pub refresh: Vec<String>,
    /// Empty this table and compute it from the start (repeat for more)
    #[arg(long, value_name = "TABLE")]
    pub full_refresh: Vec<String>,
    /// Fully refresh all tables
    #[arg(long)]
    pub full_refresh_all: bool,
    /// Another predicate for a REPLACE WHERE flow, for this update only (repeat for more flows)
    #[arg(long, value_name = "FLOW=PREDICATE")]
    pub replace_where: Vec<String>,
    /// Agree to rows that a full refresh takes away for good
    #[arg(long, short = 'y')]
    pub yes: bool,
}

#[derive(Debug, Args, Clone)]
pub struct EventsArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    /// Only events of this flow
    #[arg(long)]
    pub flow: Option<String>,
    /// Only events of this update
    #[arg(long)]
    pub update: Option<String>,
    /// Only events of this type, for example flow_progress
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Only events of this level: INFO, WARN or ERROR
    #[arg(long)]
    pub level: Option<String>,
    /// Show only the newest N events
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub last: usize,
}

#[derive(Debug, Args, Clone)]
pub struct VacuumArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    /// Keep files that are younger than this many hours
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    pub retention_hours: u64,
    /// Only tell what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Go on even though an update that runs is older than the retention, and may lose its new files
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args, Clone)]
pub struct VerifyArgs {
    /// The flow, or its table
    pub flow: String,
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    /// Check so many slices, chosen by chance [default: 10]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub sample: Option<usize>,
    /// Check all slices
    #[arg(long)]
    pub all: bool,
    /// Check the version that the last refresh made, not the newest one
    #[arg(long)]
    pub as_committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}
