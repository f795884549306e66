//! Calls the `windrow` program under test: the one that was built with the tests, or the one that
//! `WINDROW_TEST_PROGRAM` names.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::Outcome;

/// No call in these tests takes longer, whatever the machine does besides.
const LIMIT: Duration = Duration::from_secs(180);

/// What came of a call.
#[derive(Debug)]
pub struct Ended {
    /// `None` when a signal ended it.
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The JSON object on stdout.
    pub fn report(&self) -> Outcome<Value> {
        serde_json::from_str(self.stdout.trim())
            .map_err(|e| format!("stdout is no JSON object: {e}\n{}", self.told()))
    }

    /// All that it said, for failures.
    pub fn told(&self) -> String {
        let indented = |text: &str| {
            text.lines()
                .map(|l| format!("\n    {l}"))
                .collect::<String>()
        };
        format!(
            "exit {:?}{}{}",
            self.exit,
            indented(&self.stdout),
            indented(&self.stderr)
        )
    }

    pub fn expect_exit(self, code: i32) -> Outcome<Self> {
        if self.exit == Some(code) {
            Ok(self)
        } else {
            Err(format!("expected exit {code}: {}", self.told()))
        }
    }
}

/// Starts a call. The process is ended when its handle is dropped.
pub fn start(
    folder: &Path,
    arguments: &[&str],
    variables: &HashMap<String, String>,
) -> Outcome<Child> {
    let named = std::env::var_os("WINDROW_TEST_PROGRAM");
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_windrow").into()));
    for (name, _) in
        std::env::vars().filter(|(n, _)| n.starts_with("WINDROW_") || n.starts_with("AWS_"))
    {
        command.env_remove(name);
    }
    // Everything can be played through a scheduler that was started by hand.
    if let Some(scheduler) = std::env::var_os("WINDROW_TEST_SCHEDULER") {
        command.env("WINDROW_SCHEDULER", scheduler);
    }
    command
        .args(arguments)
        .current_dir(folder)
        .envs(variables)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("windrow was not started: {e}"))
}

/// Waits for the end of a call.
pub async fn end(child: Child) -> Outcome<Ended> {
    let output = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .map_err(|_| format!("windrow ran for more than {} s", LIMIT.as_secs()))?
        .map_err(|e| e.to_string())?;
    Ok(Ended {
        exit: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
