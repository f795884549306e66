//! `executor`: this process runs tasks for a scheduler.

use std::process::ExitCode;
use std::time::Duration;

use anstream::{eprintln, println};
use windrow_executor::link::{Link, LinkError, TlsFiles};
use windrow_executor::process::{self, ExecutorOptions};
use windrow_scheduler::service::server::choose_cryptography;

use crate::args::{ExecutorArgs, LinkArgs};
use crate::update::{FAILED, REFUSED};

/// Bytes of stack for each thread of tasks, whose runtime is not ours to make.
#[cfg(unix)]
const TASK_STACK: &str = "67108864";

/// Starts this process anew with larger stacks for all threads: long expressions are evaluated by
/// recursion. The process keeps its number.
#[cfg(unix)]
fn with_large_stacks() {
    use std::os::unix::process::CommandExt;
    const SETTING: &str = "RUST_MIN_STACK";
    if std::env::var_os(SETTING).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let error = std::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(SETTING, TASK_STACK)
        .exec();
    tracing::debug!(%error, "threads have stacks of the usual size");
}

#[cfg(not(unix))]
fn with_large_stacks() {}

/// The way to other processes that arguments and environment describe.
///
/// # Errors
/// As [`Link::new`], or if the token's file can't be read.
pub fn link(args: &LinkArgs) -> Result<Link, LinkError> {
    let token = match &args.token_file {
        Some(path) => Some(
            std::fs::read_to_string(path).map_err(|source| LinkError::File {
                what: "the token",
                path: path.clone(),
                source,
            })?,
        ),
        None => std::env::var("WINDROW_TOKEN").ok(),
    };
    let files = TlsFiles {
        ca: args.tls_ca.clone(),
        certificate: args.tls_cert.clone(),
        key: args.tls_key.clone(),
        name: args.tls_name.clone(),
    };
    Link::new(&files, token.as_deref())
}

fn refused(message: &str) -> ExitCode {
    eprintln!("error[WRONG_OPTION]: {message}");
    ExitCode::from(REFUSED)
}

/// `windrow executor`.
pub async fn run(args: &ExecutorArgs) -> ExitCode {
    with_large_stacks();
    choose_cryptography();
    let memory_limit = match &args.memory_limit {
        None => None,
        Some(text) => match windrow_scheduler::selection::bytes(text) {
            Some(bytes) if bytes > 0 => Some(bytes as usize),
            _ => return refused(&format!("--memory-limit `{text}` is no number of bytes")),
        },
    };
    let link = match link(&args.link) {
        Ok(link) => link,
        Err(error) => {
            eprintln!("error[LINK_NOT_USABLE]: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    if !args.bind.ip().is_loopback() && !link.has_tls() && !args.insecure_remote {
        return refused(&format!(
            "--bind {} is reached from other machines, and without certificates anybody there can read what tasks made; \
             give --tls-ca, --tls-cert and --tls-key, or say --insecure-remote",
            args.bind
        ));
    }
    let options = ExecutorOptions {
        scheduler: args.scheduler.clone(),
        link,
        http: args.http,
        bind: args.bind,
        advertise: args.advertise.clone(),
        slots: args
            .slots
            .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
            .unwrap_or(1),
        work_dir: args
            .work_dir
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join("windrow")),
        memory_limit,
        drain: Duration::from_secs(args.drain_seconds),
    };
    #[cfg(unix)]
    let _kept = no_death_by_large_files();
    let listening = |address| println!("executor listening on {address}");
    match process::run(&options, listening, stop_asked_for()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error[{}]: {error}", error.code());
            ExitCode::from(FAILED)
        }
    }
}

/// As long as this is there, a file that may not grow further fails the task that writes it instead of
/// ending the process.
#[cfg(unix)]
fn no_death_by_large_files() -> Option<tokio::signal::unix::Signal> {
    use tokio::signal::unix::{SignalKind, signal};
    // SIGXFSZ has this number on Linux and on the BSDs alike.
    signal(SignalKind::from_raw(25)).ok()
}

/// Ends when the process is asked to stop.
pub async fn stop_asked_for() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
