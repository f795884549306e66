//! Windrow from outside: these tests make Delta tables with another writer, call the `windrow`
//! program, and read what came of it with another reader.
//!
//! What must hold for tables and flows is written as scenarios (`tests/scenarios`), plain text that
//! `scenario` plays. Crashes, object storage, the law of REPLACE WHERE and that of incremental refresh
//! have modules of their own.

mod cells;
mod certificates;
mod chaos;
mod cluster;
mod crash;
mod deploy;
mod faults;
mod foreign;
mod histories;
mod inside;
mod lake;
mod law;
mod pipeline;
mod program;
mod python;
mod reach;
mod s3;
mod scenario;
mod scenarios;
mod scheduler;
mod spark;

/// Windrow's allocator: much of what these tests do is Windrow in their own process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What went wrong, in words; tests panic with it at their outermost level.
type Outcome<T = ()> = Result<T, String>;

/// For `map_err`: an error with what lies behind it.
fn words(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(&format!(": {inner_text}"));
        }
        source = inner.source();
    }
    text
}
