//! What Windrow is held against, run as a process of its own: plain DataFusion that reads the same
//! files and writes the same rows, and delta-rs that opens the same tables.
//!
//! DataFusion is used at its best: the files are pruned and their schema is known beforehand, and
//! nothing is committed.

use std::error::Error;
use std::path::Path;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::config::TableParquetOptions;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use deltalake::kernel::engine::arrow_conversion::TryIntoArrow;
use serde_json::{Value, json};
use url::Url;

/// The hidden first argument that makes the bench a baseline.
pub const COMMAND: &str = "__baseline";

/// A query over a few Parquet files of one Delta table, and the folder for its rows.
pub struct QueryTask<'a> {
    pub table: &'a str,
    pub files: &'a [String],
    /// The table's schema as the Delta log has it, without its partition columns.
    pub schema: &'a Value,
    pub sql: &'a str,
    pub out: &'a Path,
    pub partition_by: &'a [&'a str],
}

impl QueryTask<'_> {
    pub fn to_json(&self) -> Value {
        json!({"kind": "query", "table": self.table, "files": self.files, "schema": self.schema,
            "sql": self.sql, "out": self.out, "partition_by": self.partition_by})
    }
}

/// Opens Delta tables and counts their files.
pub fn open_task(tables: &[&Path]) -> Value {
    json!({"kind": "open", "tables": tables})
}

/// Does the task in `task_file` and prints one number: rows written, or files found.
///
/// # Errors
/// If the task can't be read or done.
pub fn run(task_file: &str) -> Result<(), Box<dyn Error>> {
    let task: Value = serde_json::from_slice(&std::fs::read(task_file)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let count = runtime.block_on(async {
        match task["kind"].as_str() {
            Some("query") => query(&task).await,
            _ => open(&task).await,
        }
    })?;
    println!("{count}");
    Ok(())
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_string))
        .collect()
}

fn text<'a>(task: &'a Value, key: &str) -> Result<&'a str, Box<dyn Error>> {
    Ok(task[key]
        .as_str()
        .ok_or_else(|| format!("the task has no `{key}`"))?)
}

async fn query(task: &Value) -> Result<u64, Box<dyn Error>> {
    let schema: deltalake::kernel::StructType = serde_json::from_value(task["schema"].clone())?;
    let schema: datafusion::arrow::datatypes::Schema = (&schema).try_into_arrow()?;
    let mut config = SessionConfig::new();
    // As Windrow reads: strings stay what they are in the table's schema.
    config
        .options_mut()
        .execution
        .parquet
        .schema_force_view_types = false;
    let context = SessionContext::new_with_config(config);
    let options = ParquetReadOptions {
        schema: Some(&schema),
        ..ParquetReadOptions::default()
    };
    let files = context.read_parquet(texts(&task["files"]), options).await?;
    context.register_table(text(task, "table")?, files.into_view())?;
    let mut parquet = TableParquetOptions::default();
    parquet.global.compression = Some("zstd(1)".into());
    let written = context
        .sql(text(task, "sql")?)
        .await?
        .write_parquet(
            text(task, "out")?,
            DataFrameWriteOptions::new().with_partition_by(texts(&task["partition_by"])),
            Some(parquet),
        )
        .await?;
    Ok(written
        .iter()
        .filter_map(|batch| batch.column(0).as_primitive_opt::<UInt64Type>())
        .flat_map(|counts| counts.values().iter())
        .sum())
}

async fn open(task: &Value) -> Result<u64, Box<dyn Error>> {
    let mut files = 0;
    for table in texts(&task["tables"]) {
        let url = Url::from_directory_path(&table).map_err(|()| format!("`{table}` is no path"))?;
        let table = deltalake::open_table(url).await?;
        files += table.snapshot()?.log_data().num_files() as u64;
    }
    Ok(files)
}
