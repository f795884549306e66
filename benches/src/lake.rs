//! A sample lake: the TPC-H tables orders, lineitem and customer as Delta tables.
//!
//! The rows are those of TPC-H, with two changes that make the lake look like one that is in use
//! today: all dates are moved so that the last order was placed on a day of the caller's choice, and
//! lines that would ship after that day are left out. So "the last seven days" is a window full of
//! rows, with seven years of history behind it.
//!
//! The tables are written with delta-rs, not with Windrow's writer: they stand for tables that
//! somebody else keeps. The same scale factor and end give the same rows in the same files (only the
//! files' names differ). [`demo`] holds a pipeline over the lake.

use std::collections::HashMap;

use chrono::{Datelike, NaiveDate};
use datafusion::arrow::error::ArrowError;
use deltalake::DeltaTableError;
use url::Url;

pub mod demo;
mod rows;
mod sink;

pub use rows::Table;

/// The schema folder of the tables below the lake's root.
pub const SCHEMA: &str = "tpch";

/// Rows that [`make_lake`] holds in memory before it writes files, unless told otherwise.
const DEFAULT_MEMORY_BYTES: usize = 384 << 20;

/// The smallest scale factor for which all tables have rows.
const MIN_SCALE_FACTOR: f64 = 0.001;
const MAX_SCALE_FACTOR: f64 = 1000.0;

/// What [`make_lake`] makes, besides its size.
#[derive(Debug, Clone)]
pub struct LakeOptions {
    /// The day of the last orders and of the last shipped lines.
    pub end: NaiveDate,
    /// How many bytes of rows may wait in memory for their files. More memory makes fewer, larger files.
    pub memory_bytes: usize,
    /// Options for the object store, as delta-rs names them; the environment's `AWS_*` count as well.
    pub storage_options: HashMap<String, String>,
    /// Table properties of all tables, such as `delta.enableChangeDataFeed`.
    pub properties: Vec<(String, String)>,
}

impl LakeOptions {
    /// Options for a lake that ends on `end`, with defaults for the rest.
    pub fn new(end: NaiveDate) -> Self {
        Self {
            end,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            storage_options: HashMap::new(),
            properties: Vec::new(),
        }
    }
}

/// What a lake holds.
#[derive(Debug, Clone, PartialEq)]
pub struct LakeSummary {
    /// The day of the first orders.
    pub first_day: NaiveDate,
    /// The day of the last orders and of the last shipped lines.
    pub last_day: NaiveDate,
    /// The tables, in the order in which they were written.
    pub tables: Vec<TableSummary>,
}

/// What one table of a lake holds.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSummary {
    /// The table's name without its schema.
    pub name: &'static str,
    /// Where the table is.
    pub location: Url,
    /// The version that holds the rows.
    pub version: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of data files.
    pub files: u64,
    /// Size of all data files.
    pub bytes: u64,
    /// Number of partitions; 1 if the table has no partition column.
    pub partitions: u64,
}

/// Why a lake could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The scale factor is no number that makes sense here.
    #[error(
        "scale factor {scale_factor} is out of range: {MIN_SCALE_FACTOR} to {MAX_SCALE_FACTOR} is possible"
    )]
    ScaleFactor {
        /// What was asked for.
        scale_factor: f64,
    },
    /// The last day leaves no room for seven years of four-digit years.
    #[error("the lake cannot end on {end}: the year must be from 1000 to 9990")]
    End {
        /// What was asked for.
        end: NaiveDate,
    },
    /// The lake's root is a URL that can have no folders.
    #[error("`{root}` is no place for tables")]
    Root {
        /// What was asked for.
        root: Url,
    },
    /// There is a table already, and it is not an empty one that an interrupted run left.
    #[error("there is a table at `{location}` already")]
    TableExists {
        /// Where the table is.
        location: Url,
    },
    /// The generator or a writing task ended early.
    #[error("writing `{table}` stopped early: {reason}")]
    Stopped {
        /// The table's name.
        table: &'static str,
        /// What is known about it.
        reason: String,
    },
    /// Rows could not be brought into the table's form.
    #[error("cannot shape the rows of a sample table")]
    Arrow(#[from] ArrowError),
    /// The table could not be created, written or committed.
    #[error("cannot write a sample table")]
    Delta(#[from] DeltaTableError),
}

/// Reads a folder or URL as a lake's root. A local folder is created if it does not exist.
///
/// # Errors
/// [`LakeError::Delta`] if the text is neither a path nor a URL of a known store.
pub fn lake_root(text: &str) -> Result<Url, LakeError> {
    Ok(deltalake::ensure_table_uri(text)?)
}

/// Where `table` is in the lake at `root`.
///
/// # Errors
/// [`LakeError::Root`] for a URL without a path, such as `mailto:x`.
pub fn table_location(root: &Url, table: Table) -> Result<Url, LakeError> {
    let mut location = root.clone();
    location
        .path_segments_mut()
        .map_err(|()| LakeError::Root { root: root.clone() })?
        .pop_if_empty()
        .extend([SCHEMA, table.name(), ""]);
    Ok(location)
}

/// Makes the tables `tpch/orders`, `tpch/lineitem` and `tpch/customer` below `root`.
///
/// Scale factor 1 is 1.5 million orders with nearly 6 million lines. `orders` is partitioned by
/// `o_month`, `lineitem` by `l_month`: the first day of the month of the order or of the shipping. No
/// more than `options.memory_bytes` of rows wait in memory, whatever the scale factor is.
///
/// Each table gets its rows in one commit after the one that creates it, so a table has all its
/// rows or none. After an interrupted run the call can be repeated once the tables that were complete
/// are gone.
///
/// # Errors
/// [`LakeError`] if an argument is out of range, a table exists already, or writing fails.
pub async fn make_lake(
    root: &Url,
    scale_factor: f64,
    options: &LakeOptions,
) -> Result<LakeSummary, LakeError> {
    if !(MIN_SCALE_FACTOR..=MAX_SCALE_FACTOR).contains(&scale_factor) {
        return Err(LakeError::ScaleFactor { scale_factor });
    }
    if !(1000..=9990).contains(&options.end.year()) {
        return Err(LakeError::End { end: options.end });
    }
    let mut tables = Vec::new();
    for table in Table::ALL {
        let location = table_location(root, table)?;
        tables.push(sink::write_table(table, location, scale_factor, options).await?);
    }
    Ok(LakeSummary {
        first_day: rows::first_day(options.end),
        last_day: options.end,
        tables,
    })
}
