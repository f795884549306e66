//! Writes one sample table in bounded memory.
//!
//! TPC-H's rows come in the order of their keys, which has nothing to do with their dates: every
//! batch holds rows of every month. So rows wait in one bucket per month. A bucket becomes a file, sorted by
//! date, when it is large enough, when it is the largest one and the memory is used up, or at the
//! end. A thread generates rows while others encode files.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{
    SortColumn, concat_batches, lexsort_to_indices, take_record_batch,
};
use datafusion::arrow::datatypes::{Date32Type, SchemaRef};
use datafusion::arrow::error::ArrowError;
use deltalake::DeltaTable;
use deltalake::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake::kernel::transaction::CommitBuilder;
use deltalake::kernel::{Action, Add, StructType};
use deltalake::operations::create::CreateBuilder;
use deltalake::operations::write::WriterStatsConfig;
use deltalake::operations::write::writer::{DeltaWriter, WriterConfig};
use deltalake::protocol::{DeltaOperation, SaveMode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use super::rows::{Rows, Table};
use super::{LakeError, LakeOptions, TableSummary};

/// A bucket of this size becomes a file even if there is memory left.
const MAX_BUCKET_BYTES: usize = 96 << 20;

/// How many batches the generator may be ahead.
const BATCHES_AHEAD: usize = 2;

/// How many files are encoded at once, at most.
const MAX_FILES_AT_ONCE: usize = 4;

/// Creates `table` at `location` and writes its rows in one commit.
pub(super) async fn write_table(
    table: Table,
    location: Url,
    scale_factor: f64,
    options: &LakeOptions,
) -> Result<TableSummary, LakeError> {
    let rows = Rows::new(table, scale_factor, options.end, options.memory_bytes);
    let delta = create(table, &location, &rows.schema(), options).await?;
    let mut sink = Sink::new(table, &delta, rows.schema(), options.memory_bytes)?;

    let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
    let generator = tokio::task::spawn_blocking(move || {
        for batch in rows {
            if sender.blocking_send(batch).is_err() {
                break;
            }
        }
    });
    while let Some(batch) = receiver.recv().await {
        sink.push(batch?).await?;
    }
    // A generator that panicked closes the channel too: that is no end of the rows.
    generator.await.map_err(|error| stopped(table, &error))?;
    let (row_count, partitions) = (sink.rows, sink.buckets.len() as u64);
    let adds = sink.finish().await?;

    let files = adds.len() as u64;
    let bytes = adds.iter().map(|add| add.size.unsigned_abs()).sum();
    let version = commit(table, &delta, adds).await?;
    Ok(TableSummary {
        name: table.name(),
        location,
        version,
        rows: row_count,
        files,
        bytes,
        partitions,
    })
}

/// Creates the table, or takes over an empty one of the same form.
async fn create(
    table: Table,
    location: &Url,
    schema: &SchemaRef,
    options: &LakeOptions,
) -> Result<DeltaTable, LakeError> {
    let struct_type: StructType = schema.as_ref().try_into_kernel()?;
    let partition_columns: Vec<String> = table
        .partition_column()
        .into_iter()
        .map(String::from)
        .collect();
    let delta = CreateBuilder::new()
        .with_location(location.as_str())
        .with_storage_options(options.storage_options.clone())
        .with_save_mode(SaveMode::Ignore)
        .with_columns(struct_type.fields().cloned())
        .with_partition_columns(partition_columns.clone())
        .with_configuration(
            options
                .properties
                .iter()
                .map(|(key, value)| (key.as_str(), Some(value.as_str()))),
        )
        .await?;
    let snapshot = delta.snapshot()?;
    let fresh = snapshot.version() == 0
        && *snapshot.schema() == struct_type
        && *snapshot.metadata().partition_columns() == partition_columns;
    if fresh {
        Ok(delta)
    } else {
        Err(LakeError::TableExists {
            location: location.clone(),
        })
    }
}

async fn commit(table: Table, delta: &DeltaTable, adds: Vec<Add>) -> Result<u64, LakeError> {
    let operation = DeltaOperation::Write {
        mode: SaveMode::Append,
        partition_by: table
            .partition_column()
            .map(|column| vec![column.to_owned()]),
        predicate: None,
    };
    let committed = CommitBuilder::default()
        .with_actions(adds.into_iter().map(Action::Add).collect())
        .build(Some(delta.snapshot()?), delta.log_store(), operation)
        .await?;
    Ok(committed.version())
}

/// Rows of one month that wait for their file.
#[derive(Default)]
struct Bucket {
    batches: Vec<RecordBatch>,
    bytes: usize,
}

/// The buckets of one table and the files that are being written.
struct Sink<'a> {
    table: Table,
    delta: &'a DeltaTable,
    config: WriterConfig,
    schema: SchemaRef,
    memory_bytes: usize,
    buckets: BTreeMap<Option<i32>, Bucket>,
    buffered_bytes: usize,
    rows: u64,
    started_files: usize,
    files_at_once: usize,
    writing: JoinSet<Result<(usize, Vec<Add>), LakeError>>,
    written: Vec<(usize, Vec<Add>)>,
}

impl<'a> Sink<'a> {
    fn new(
        table: Table,
        delta: &'a DeltaTable,
        schema: SchemaRef,
        memory_bytes: usize,
    ) -> Result<Self, LakeError> {
        let snapshot = delta.snapshot()?.snapshot();
        let stats = WriterStatsConfig::from_config(snapshot.table_configuration());
        let config = WriterConfig::new(
            Arc::clone(&schema),
            snapshot.metadata().partition_columns().to_vec(),
            None,
            None,
            None,
            stats.num_indexed_cols,
            stats.stats_columns,
        );
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            table,
            delta,
            config,
            schema,
            memory_bytes,
            buckets: BTreeMap::new(),
            buffered_bytes: 0,
            rows: 0,
            started_files: 0,
            files_at_once: cores.min(MAX_FILES_AT_ONCE),
            writing: JoinSet::new(),
            written: Vec::new(),
        })
    }

    async fn push(&mut self, batch: RecordBatch) -> Result<(), LakeError> {
        self.rows += batch.num_rows() as u64;
        for (month, part) in self.split(batch)? {
            let bytes = part.get_array_memory_size();
            let bucket = self.buckets.entry(month).or_default();
            bucket.bytes += bytes;
            bucket.batches.push(part);
            self.buffered_bytes += bytes;
            if bucket.bytes >= MAX_BUCKET_BYTES {
                self.write_bucket(month).await?;
            }
        }
        while self.buffered_bytes > self.memory_bytes {
            let Some(month) = self.largest_bucket() else {
                break;
            };
            self.write_bucket(month).await?;
        }
        Ok(())
    }

    /// The files of all rows, in the order in which they were begun.
    async fn finish(mut self) -> Result<Vec<Add>, LakeError> {
        let months: Vec<_> = self.buckets.keys().copied().collect();
        for month in months {
            self.write_bucket(month).await?;
        }
        while self.wait_for_file().await? {}
        self.written.sort_by_key(|(number, _)| *number);
        Ok(self
            .written
            .into_iter()
            .flat_map(|(_, adds)| adds)
            .collect())
    }

    /// One batch per month that occurs; the rows keep their order.
    fn split(&self, batch: RecordBatch) -> Result<Vec<(Option<i32>, RecordBatch)>, ArrowError> {
        let Some(column) = self.table.partition_column() else {
            return Ok(vec![(None, batch)]);
        };
        let months = batch
            .column(self.schema.index_of(column)?)
            .as_primitive::<Date32Type>();
        let mut indices: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (row, month) in (0u32..).zip(months.values()) {
            indices.entry(*month).or_default().push(row);
        }
        indices
            .into_iter()
            .map(|(month, rows)| {
                let part = take_record_batch(&batch, &UInt32Array::from(rows))?;
                Ok((Some(month), part))
            })
            .collect()
    }

    fn largest_bucket(&self) -> Option<Option<i32>> {
        self.buckets
            .iter()
            .filter(|(_, bucket)| !bucket.batches.is_empty())
            .max_by_key(|(_, bucket)| bucket.bytes)
            .map(|(month, _)| *month)
    }

    /// Starts a file with the rows of `month`'s bucket; waits if too many are being written.
    async fn write_bucket(&mut self, month: Option<i32>) -> Result<(), LakeError> {
        while self.writing.len() >= self.files_at_once {
            self.wait_for_file().await?;
        }
        let Some(bucket) = self.buckets.get_mut(&month).map(std::mem::take) else {
            return Ok(());
        };
        if bucket.batches.is_empty() {
            return Ok(());
        }
        self.buffered_bytes -= bucket.bytes;
        let number = self.started_files;
        self.started_files += 1;
        let (table, schema) = (self.table, Arc::clone(&self.schema));
        let writer = DeltaWriter::new(self.delta.object_store(), self.config.clone());
        self.writing.spawn(async move {
            let sorted = tokio::task::spawn_blocking(move || sort(table, &schema, bucket.batches))
                .await
                .map_err(|error| stopped(table, &error))??;
            Ok((number, write_file(writer, &sorted).await?))
        });
        Ok(())
    }

    /// Takes the next finished file in; false if none is being written.
    async fn wait_for_file(&mut self) -> Result<bool, LakeError> {
        let Some(outcome) = self.writing.join_next().await else {
            return Ok(false);
        };
        self.written
            .push(outcome.map_err(|error| stopped(self.table, &error))??);
        Ok(true)
    }
}

/// One batch of all rows, sorted by date (customers: by key). Rows of one day keep their order, which is that of their
/// keys, because the position is the second sort column.
fn sort(
    table: Table,
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<RecordBatch, ArrowError> {
    let all = concat_batches(schema, &batches)?;
    drop(batches);
    let by = all.column(schema.index_of(table.sort_column())?);
    let positions: UInt32Array = (0..all.num_rows() as u32).collect::<Vec<_>>().into();
    let indices = lexsort_to_indices(
        &[
            SortColumn {
                values: Arc::clone(by),
                options: None,
            },
            SortColumn {
                values: Arc::new(positions),
                options: None,
            },
        ],
        None,
    )?;
    take_record_batch(&all, &indices)
}

async fn write_file(mut writer: DeltaWriter, rows: &RecordBatch) -> Result<Vec<Add>, LakeError> {
    match writer.write(rows).await {
        Ok(()) => Ok(writer.close().await?),
        Err(error) => {
            // The first error is the one to tell; a failed abort leaves parts that the store expires.
            let _ = writer.abort().await;
            Err(error.into())
        }
    }
}

fn stopped(table: Table, error: &tokio::task::JoinError) -> LakeError {
    LakeError::Stopped {
        table: table.name(),
        reason: error.to_string(),
    }
}
