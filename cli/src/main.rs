//! The `windrow` command: reads arguments, calls the scheduler, prints what came of it.

mod args;
mod backfill;
mod demo;
mod events;
mod executor;
mod init;
mod remote;
mod scheduler;
mod telemetry;
mod text;
mod update;
mod updates;
mod vacuum;
mod verify;

use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;

use anstream::{eprintln, println};
use clap::Parser;

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Plans of long queries are walked by recursion; the space is only used where it is needed.
    let started = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .thread_stack_size(STACK)
                .build()?;
            let telemetry = {
                let _inside = runtime.enter();
                telemetry::begin(role(&cli.command))
            };
            leave(match telemetry {
                // What is still to be told is told before it leaves.
                Ok(_telling) => runtime.block_on(run(&cli)),
                Err(error) => {
                    eprintln!("error[WRONG_OPTION]: {error}");
                    ExitCode::from(update::REFUSED)
                }
            })
        });
    match started.map(std::thread::JoinHandle::<std::io::Result<Infallible>>::join) {
        Ok(Ok(Err(error))) | Err(error) => {
            eprintln!("error[RUNTIME_NOT_STARTED]: {error}");
            ExitCode::from(update::FAILED)
        }
        // The panic itself is on stderr already.
        Ok(Err(_)) => ExitCode::from(update::FAILED),
    }
}

/// The part that a process plays for long, as logs and traces name it.
fn role(command: &Command) -> &'static str {
    match command {
        Command::Scheduler(_) => "scheduler",
        Command::Executor(_) => "executor",
        _ => "",
    }
}

/// Ends the process at once. Work that was cancelled must not keep it, and giving back the memory
/// piece by piece takes longer than a small update.
fn leave(code: ExitCode) -> ! {
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().flush();
    let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    signal_hook::low_level::exit(number.unwrap_or(update::FAILED).into())
}

/// Bytes of stack for each thread.
const STACK: usize = 256 << 20;

async fn run(cli: &Cli) -> ExitCode {
    match &cli.command {
        Command::Init { name } => {
            match init::create(
                std::path::Path::new("."),
                name,
                chrono::Utc::now().date_naive(),
            ) {
                Ok(folder) => {
                    println!(
                        "made {}; now: windrow run {}",
                        folder.display(),
                        folder.display()
                    );
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("error[INIT]: {}", with_sources(&error));
                    ExitCode::from(update::REFUSED)
                }
            }
        }
        Command::Demo { dir, scale } => demo::run(dir, *scale).await,
        Command::Run(args) => update::run(args).await,
        Command::Plan(args) => update::plan(args).await,
        Command::Validate(args) => update::validate(args).await,
        Command::Events(args) => events::show(args).await,
        Command::Vacuum(args) => vacuum::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Backfill(args) => backfill::command(args).await,
        Command::Updates(args) => updates::command(args).await,
        Command::Scheduler(args) => scheduler::run(args).await,
        Command::Executor(args) => executor::run(args).await,
    }
}

/// An error with what lies behind it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}
