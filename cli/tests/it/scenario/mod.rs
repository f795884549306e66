//! Scenarios: what must hold, written as plain text. `tests/scenarios/README.md` describes the form;
//! `read` takes the text apart, `play` does what it says.

mod expect;
mod play;
mod read;

use std::path::PathBuf;

pub use play::{Ground, play};

/// Where the scenarios are.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Plays a scenario in a folder of its own; panics with file and line of what did not hold.
pub fn run(name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if let Err(failure) = runtime.block_on(play(name, Ground::Folder)) {
        panic!("{failure}");
    }
}
