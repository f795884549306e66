//! Runs partition tasks: pruned scans, the query, staged Delta files.
//!
//! Plan nodes with their wire form, the function registry and Spark's semantics, sessions with a
//! pinned clock, and the engine of this process. What to run and what to commit is decided by the
//! scheduler.

pub mod codec;
mod convert;
pub mod failure;
pub mod files;
mod full_join;
mod keeps_types;
pub mod kept_rows;
pub mod link;
pub mod local;
pub mod one_task;
pub mod predicate;
pub mod process;
mod relabel;
pub mod scan;
pub mod session;
pub mod spark;
pub mod stage;
mod status;
pub mod store_cast;
pub mod stores;
pub mod trace;
mod unkeyed;
