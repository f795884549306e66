//! Named places at which a test makes the process die, as a crash would, or wait. Development
//! builds only.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How often each step was reached.
static TIMES: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);

/// Kills this process without any clean-up when `WINDROW_DIE_AT` names `step`; waits there when
/// `WINDROW_HOLD_AT` names it, until the file `WINDROW_HOLD_WHILE` is gone. `step#3` is meant the third
/// time only.
pub fn reached(step: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    let times = {
        let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.entry(step.to_string()).or_default();
        *times += 1;
        *times
    };
    let at_this_time = format!("{step}#{times}");
    let named = |variable: &str| {
        let named = std::env::var_os(variable);
        named.is_some_and(|v| v == step || v == at_this_time.as_str())
    };
    if named("WINDROW_DIE_AT") {
        let pid = std::process::id().to_string();
        // The same end as `kill -9` from outside: no destructor runs.
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid])
            .status();
        tracing::error!(?killed, step, "the process did not die at its fail point");
        std::process::abort();
    }
    if let (true, Some(file)) = (
        named("WINDROW_HOLD_AT"),
        std::env::var_os("WINDROW_HOLD_WHILE"),
    ) {
        while std::path::Path::new(&file).exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
