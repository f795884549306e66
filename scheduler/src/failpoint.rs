//! Named places at which a test makes the process die, as a crash would. Development builds only.

/// Kills this process without any clean-up when `WINDROW_DIE_AT` names `step`.
pub fn reached(step: &str) {
    if cfg!(debug_assertions) && std::env::var_os("WINDROW_DIE_AT").is_some_and(|v| v == step) {
        let pid = std::process::id().to_string();
        // The same end as `kill -9` from outside: no destructor runs.
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid])
            .status();
        tracing::error!(?killed, step, "the process did not die at its fail point");
        std::process::abort();
    }
}
