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
    Validate(ValidateArgs),
    /// Show the event log
    Events(EventsArgs),
    /// Remove files that no commit names, older than the retention
    Vacuum(VacuumArgs),
    /// Compute slices of a flow's window anew and compare them with the target, without writing
    Verify(VerifyArgs),
    /// Compute a range of a flow's history anew, slice by slice
    Backfill(Box<BackfillCommand>),
    /// List updates, or stop one
    Updates(UpdatesCommand),
    /// Run the scheduler of a cluster: updates of many clients, one after the other or side by side
    Scheduler(SchedulerArgs),
    /// Run tasks for a scheduler, until it is told to stop
    Executor(ExecutorArgs),
}

#[derive(Debug, Args, Clone, Default)]
pub struct RemoteArgs {
    /// Let the scheduler at this address do it, instead of this process
    #[arg(
        long,
        value_name = "URL",
        env = "WINDROW_SCHEDULER",
        hide_env_values = true
    )]
    pub scheduler: Option<String>,
}

impl RemoteArgs {
    /// The scheduler's address; an empty variable is as good as none.
    pub fn url(&self) -> Option<&str> {
        self.scheduler.as_deref().filter(|url| !url.is_empty())
    }
}

#[derive(Debug, Args, Clone)]
pub struct ValidateArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
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
    #[command(flatten)]
    pub remote: RemoteArgs,
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
    /// Compute windows in slices of this unit, committed together: day, week, month, quarter or year [default: slices only where much is read]
    #[arg(long, value_name = "UNIT")]
    pub by: Option<String>,
    /// Slices of a window that are computed at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub parallel: usize,
}

#[derive(Debug, Args, Clone)]
pub struct EventsArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
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
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BackfillCommand {
    #[command(subcommand)]
    pub action: Option<BackfillAction>,
    #[command(flatten)]
    pub run: BackfillArgs,
}

#[derive(Debug, Subcommand, Clone)]
pub enum BackfillAction {
    /// List the backfills of a pipeline, the newest first
    List {
        #[command(flatten)]
        pipeline: PipelineArgs,
        #[command(flatten)]
        remote: RemoteArgs,
        /// Only those of this flow
        #[arg(long)]
        flow: Option<String>,
        /// List the ranges of the flow's past that are not processed instead: never, or not since a backfill failed on them
        #[arg(long, requires = "flow")]
        missing: bool,
        #[command(flatten)]
        range: RangeArgs,
    },
    /// Show one backfill with its slices
    Show(OneBackfill),
    /// Let the slices under way end and begin no other; --resume goes on
    Stop(OneBackfill),
    /// Go on with a backfill that is not done
    Resume {
        #[command(flatten)]
        one: OneBackfill,
        /// Slices that are computed at a time
        #[arg(long, value_name = "N", default_value_t = 1)]
        parallel: usize,
        /// Which slices come first
        #[arg(long, value_enum, default_value_t = Order::Oldest)]
        order: Order,
    },
}

/// Where ranges that are not processed are looked for.
#[derive(Debug, Args, Clone, Default)]
pub struct RangeArgs {
    /// The first day (or time) to look at [default: where what is known begins]
    #[arg(long, value_name = "TIME", requires = "missing")]
    pub from: Option<String>,
    /// The end of the range, which is no longer part of it [default: where what is known ends]
    #[arg(long, value_name = "TIME", requires = "missing")]
    pub to: Option<String>,
    /// The DATE or TIMESTAMP column that the range is about [default: that of the flow's predicate]
    #[arg(long, requires = "missing")]
    pub column: Option<String>,
}

#[derive(Debug, Args, Clone)]
pub struct OneBackfill {
    /// The backfill
    pub id: String,
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Debug, Args, Clone)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct UpdatesCommand {
    #[command(subcommand)]
    pub action: Option<UpdatesAction>,
    #[command(flatten)]
    pub list: UpdatesArgs,
}

#[derive(Debug, Subcommand, Clone)]
pub enum UpdatesAction {
    /// Stop an update: flows that have committed stay, the others change nothing
    Stop {
        /// The update
        id: String,
        #[command(flatten)]
        remote: RemoteArgs,
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

#[derive(Debug, Args, Clone)]
pub struct UpdatesArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Show only the newest N updates
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub last: usize,
}

#[derive(Debug, Args, Clone)]
pub struct SchedulerArgs {
    /// The address and port to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    pub bind: std::net::SocketAddr,
    /// Serve health and metrics there too, in plain HTTP and without a token
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<std::net::SocketAddr>,
    /// Where the scheduler keeps what it must remember: a folder, or a URL
    #[arg(long, value_name = "URL")]
    pub storage: String,
    /// Let pipelines read and write below this place (repeat for more) [default: the storage]
    #[arg(long, value_name = "URL")]
    pub allow_path: Vec<String>,
    /// Updates that run at a time; more wait
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub max_updates: usize,
    /// A file with the token that clients must know [default: WINDROW_TOKEN, else no token]
    #[arg(
        long,
        value_name = "FILE",
        env = "WINDROW_TOKEN_FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// The certificate of the port, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate of this authority
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Listen where others can reach it without TLS, or without a token: the network keeps them out
    #[arg(long)]
    pub insecure_remote: bool,
    /// How long updates may go on when the scheduler is told to end, before they are stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_seconds: u64,
    /// Compute everything in this process instead of on executors
    #[arg(long)]
    pub in_process: bool,
    /// After how long without a sign of life an executor is taken for lost
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub executor_timeout_seconds: u64,
    /// How long work waits for an executor when there is none, before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub no_executor_seconds: u64,
    /// After how long without renewal another scheduler on the same storage may lead
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub lease_seconds: u64,
    /// The name that executors' certificates must have [default: the host's]
    #[arg(long, value_name = "NAME", env = "WINDROW_TLS_NAME")]
    pub tls_name: Option<String>,
}

#[derive(Debug, Args, Clone)]
pub struct BackfillArgs {
    #[command(flatten)]
    pub pipeline: PipelineArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// The REPLACE WHERE flow, or its table
    #[arg(long, required = true)]
    pub flow: Option<String>,
    /// The first day (or time) of the range; with --missing and --only by default where what is known begins
    #[arg(long, value_name = "TIME", required_unless_present_any = ["resume", "missing", "only"])]
    pub from: Option<String>,
    /// The end of the range, which is no longer part of it; with --missing and --only by default where what is known ends
    #[arg(long, value_name = "TIME", required_unless_present_any = ["resume", "missing", "only"])]
    pub to: Option<String>,
    /// Compute only what of the range is not processed: never, or not since a backfill failed on it
    #[arg(long, conflicts_with_all = ["only", "resume"])]
    pub missing: bool,
    /// Compute only this part of the range: missing (as --missing), failed (what a backfill failed on, and nothing processed since) or all
    #[arg(long, value_name = "PART", conflicts_with = "resume")]
    pub only: Option<String>,
    /// Only show the slices that would be computed
    #[arg(long)]
    pub dry_run: bool,
    /// The calendar's unit of a slice: day, week, month, quarter or year [default: day for up to two months, else month]
    #[arg(long, value_name = "UNIT")]
    pub by: Option<String>,
    /// Slices that are computed at a time; their commits come one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub parallel: usize,
    /// One commit for the whole range
    #[arg(long)]
    pub atomic: bool,
    /// The DATE or TIMESTAMP column that the range is about [default: that of the flow's predicate]
    #[arg(long)]
    pub column: Option<String>,
    /// Which slices come first
    #[arg(long, value_enum, default_value_t = Order::Oldest)]
    pub order: Order,
    /// Go on with the flow's newest backfill that is not done, or with the one named
    #[arg(long, value_name = "ID", num_args = 0..=1)]
    pub resume: Option<Option<String>>,
}

impl BackfillArgs {
    /// All of a flow's backfill that is not said by default.
    pub fn of(pipeline: &PipelineArgs, remote: &RemoteArgs, flow: &str) -> Self {
        Self {
            pipeline: pipeline.clone(),
            remote: remote.clone(),
            flow: Some(flow.to_string()),
            from: None,
            to: None,
            missing: false,
            only: None,
            dry_run: false,
            by: None,
            parallel: 1,
            atomic: false,
            column: None,
            order: Order::Oldest,
            resume: None,
        }
    }
}

#[derive(Debug, Args, Clone)]
pub struct ExecutorArgs {
    /// The scheduler to ask for tasks
    #[arg(long, value_name = "HOST:PORT", env = "WINDROW_SCHEDULER")]
    pub scheduler: String,
    /// Tasks that run at the same time [default: the machine's cores]
    #[arg(long, value_name = "N")]
    pub slots: Option<usize>,
    /// Where other executors and the scheduler fetch what tasks made; port 0 is any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub bind: std::net::SocketAddr,
    /// The host name or address under which others reach this executor [default: that of --bind]
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Folder for shuffle and spill files [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// Memory for sorts, aggregates and joins before they spill, for example 4g [default: half of the machine's, at most 4 GiB]
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<String>,
    /// How long running tasks may go on after a stop was asked for
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub drain_seconds: u64,
    /// Serve health and metrics there, in plain HTTP
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<std::net::SocketAddr>,
    /// Bind another address than loopback although there are no certificates: whoever reaches it can read what tasks made
    #[arg(long)]
    pub insecure_remote: bool,
    #[command(flatten)]
    pub link: LinkArgs,
}

/// How the processes of a cluster know each other.
#[derive(Debug, Args, Clone)]
pub struct LinkArgs {
    /// File with the token that the scheduler wants [default: the variable WINDROW_TOKEN]
    #[arg(long, value_name = "FILE", env = "WINDROW_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the certificate authority that other processes' certificates must come from
    #[arg(long, value_name = "FILE", env = "WINDROW_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// File with this process's certificate
    #[arg(long, value_name = "FILE", env = "WINDROW_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate
    #[arg(long, value_name = "FILE", env = "WINDROW_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// The name that other processes' certificates must have [default: the host's]
    #[arg(long, value_name = "NAME", env = "WINDROW_TLS_NAME")]
    pub tls_name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Oldest,
    Newest,
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
