//! The Python environment of the tests and the checker of Delta tables that runs in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Outcome;

/// The folder `tests` at the root of the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

/// The interpreter, with all that the readers and the S3 server need. Made by the first call.
pub fn interpreter() -> Outcome<PathBuf> {
    static MADE: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| set_up(&[])).clone()
}

/// The interpreter of another environment that `tests/setup-python` knows.
pub fn interpreter_for(environment: &str) -> Outcome<PathBuf> {
    set_up(&[environment])
}

fn set_up(arguments: &[&str]) -> Outcome<PathBuf> {
    let made = Command::new(folder().join("setup-python"))
        .args(arguments)
        .output()
        .map_err(|e| e.to_string())?;
    if !made.status.success() {
        return Err(format!(
            "tests/setup-python failed: {}",
            String::from_utf8_lossy(&made.stderr)
        ));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()))
}

/// Checks Delta tables with two foreign readers: rows, statistics, log, checkpoints.
pub fn check_tables(uris: &[String], options: &[&str], variables: &[(String, String)]) -> Outcome {
    let checked = Command::new(interpreter()?)
        .arg(folder().join("readers/check_tables.py"))
        .args(options)
        .args(uris)
        .envs(variables.iter().map(|(k, v)| (k, v)))
        .output()
        .map_err(|e| e.to_string())?;
    if checked.status.success() {
        return Ok(());
    }
    Err(format!(
        "check_tables.py {}:\n{}{}",
        options.join(" "),
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    ))
}
