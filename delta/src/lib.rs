//! Delta tables on object storage, as Windrow needs them.
//!
//! Opening a table at a version, telling from its log which files matter, what changed between two
//! versions, and committing with a known outcome. Log replay and checkpoints are the Delta kernel's;
//! running queries is left to the executor, and what to commit to the scheduler. Requests to stores are
//! counted (`traffic`, `figures`).

pub mod batch;
pub mod changes;
pub mod commit;
mod engine;
pub mod error;
pub mod figures;
mod file_statistics;
mod live;
pub mod partition;
pub mod protocol;
pub mod prune;
mod s3;
pub mod schema;
pub mod state;
pub mod stats;
pub mod store;
pub mod table;
pub mod traffic;
pub mod vacuum;
pub mod vector;

pub use error::TableError;
pub use store::{Location, StoreOptions};
pub use table::{DataFile, Table};
