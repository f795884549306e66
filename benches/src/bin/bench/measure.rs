//! Runs a process and tells how long it took and how much memory it held at most.
//!
//! The peak is read from `/proc` every few milliseconds while the process runs: what it takes in its
//! very last moment may be missed, for all processes alike. Without `/proc` the peak is zero.

use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(3);

/// What one run of a process came to.
#[derive(Debug, Clone)]
pub struct Sample {
    pub wall: Duration,
    /// The largest resident set.
    pub peak_bytes: u64,
    pub stdout: String,
    /// Rows written, where the caller found out.
    pub rows: Option<u64>,
    /// Bytes of the sources' files that were read, likewise.
    pub bytes_read: Option<u64>,
    /// Files that went from the target, likewise.
    pub files_removed: Option<u64>,
}

/// Runs `command` to its end.
///
/// # Errors
/// If it can't be started, or ends with another status than 0; then the error carries its stderr.
pub fn run(command: &mut Command) -> io::Result<Sample> {
    let started = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let ended = Arc::new(AtomicBool::new(false));
    let poller = std::thread::spawn({
        let ended = ended.clone();
        move || {
            let mut peak = 0;
            while !ended.load(Ordering::Relaxed) {
                peak = peak.max(high_water_mark(&status_file).unwrap_or(0));
                std::thread::sleep(POLL);
            }
            peak
        }
    });
    let output = child.wait_with_output();
    let wall = started.elapsed();
    ended.store(true, Ordering::Relaxed);
    let peak_bytes = poller.join().unwrap_or(0);
    let output = output?;
    if output.status.success() {
        Ok(Sample {
            wall,
            peak_bytes,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            rows: None,
            bytes_read: None,
            files_removed: None,
        })
    } else {
        Err(io::Error::other(format!(
            "{:?} ended with {}: {}{}",
            command.get_program(),
            output.status,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout),
        )))
    }
}

/// `VmHWM` of a status file, in bytes.
fn high_water_mark(status_file: &str) -> Option<u64> {
    let status = std::fs::read_to_string(status_file).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The middle one of some figures; of an even number the upper of the two in the middle.
pub fn median<T: Ord + Copy>(figures: impl IntoIterator<Item = T>) -> Option<T> {
    let mut figures: Vec<T> = figures.into_iter().collect();
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied()
}
