//! Named places at which a test makes the process die, as a crash would, or wait. Development
//! builds only.

use std::time::Duration;

/// Kills this process without any clean-up when `WINDROW_DIE_AT` names `step`; waits there when
/// `WINDROW_HOLD_AT` names it, until the file `WINDROW_HOLD_WHILE` is gone.
pub fn reached(step: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    let named = |variable: &str| std::env::var_os(variable).is_some_and(|v| v == step);
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
