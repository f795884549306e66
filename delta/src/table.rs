//! A table at one version: its columns, its properties, and its files as a stream.
//!
//! Log replay is the Delta kernel's; which of the files matter is decided in [`crate::prune`].

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, MapArray, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::{ScanBuilder, ScanMetadata, StatsOptions};
use delta_kernel::snapshot::{Snapshot, SnapshotBuilder, SnapshotRef};
use deltalake::{DeltaTableError, ObjectStoreError};
use futures::{FutureExt, Stream, StreamExt};
use object_store::path::Path;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::batch::FileBatch;
use crate::commit;
use crate::engine::LogEngine;
use crate::error::TableError;
use crate::live::{Kept, LiveFiles};
use crate::schema::TableSchema;
use crate::store::Location;

/// A Delta table at one version.
#[derive(Clone)]
pub struct Table {
    location: Location,
    engine: Arc<LogEngine>,
    snapshot: SnapshotRef,
    schema: Arc<TableSchema>,
    properties: Arc<HashMap<String, String>>,
    kept: Arc<Kept>,
    mark: Arc<tokio::sync::OnceCell<Option<String>>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({}@{})", self.location.shown(), self.version())
    }
}

/// A deletion vector as the log describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletionVector {
    pub storage_type: String,
    pub path_or_inline: String,
    pub offset: Option<i32>,
    pub size_in_bytes: i32,
    pub cardinality: i64,
}

impl DeletionVector {
    pub fn to_json(&self) -> Value {
        let mut value = json!({"storageType": self.storage_type, "pathOrInlineDv": self.path_or_inline,
            "sizeInBytes": self.size_in_bytes, "cardinality": self.cardinality});
        if let Some(offset) = self.offset {
            value["offset"] = json!(offset);
        }
        value
    }
}

/// One active file of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct DataFile {
    /// The path exactly as the log has it; a remove action must repeat it to the letter.
    pub log_path: String,
    pub size: i64,
    pub modification_time: i64,
    /// By physical column name.
    pub partition_values: HashMap<String, Option<String>>,
    /// Statistics as JSON text.
    pub stats: Option<String>,
    pub deletion_vector: Option<DeletionVector>,
}

impl DataFile {
    /// The object's path relative to the table's folder.
    pub fn path(&self) -> Result<Path, String> {
        if self.log_path.contains("://") || self.log_path.starts_with("file:/") {
            return Err(format!(
                "file `{}` lies outside the table's folder",
                self.log_path
            ));
        }
        let decoded = percent_decode_str(&self.log_path)
            .decode_utf8()
            .map_err(|_| format!("path `{}` is no UTF-8", self.log_path))?;
        Ok(Path::parse(decoded.as_ref()).unwrap_or_else(|_| Path::from(decoded.as_ref())))
    }

    /// The `remove` action that takes this file out of the table.
    pub fn remove_action(&self, now_ms: i64, data_change: bool) -> Value {
        let mut remove = json!({"path": self.log_path, "deletionTimestamp": now_ms,
            "dataChange": data_change, "extendedFileMetadata": true,
            "partitionValues": self.partition_values, "size": self.size});
        if let Some(dv) = &self.deletion_vector {
            remove["deletionVector"] = dv.to_json();
        }
        json!({"remove": remove})
    }
}

impl Table {
    /// Opens the newest version, or the one asked for. `None` when there is no table there.
    pub async fn open(
        location: &Location,
        version: Option<i64>,
    ) -> Result<Option<Self>, TableError> {
        let asked = match version {
            None => None,
            Some(v) => Some(u64::try_from(v).map_err(|_| TableError::VersionGone {
                url: location.shown(),
                version: v,
                reason: "versions count from 0".into(),
            })?),
        };
        let engine = Arc::new(LogEngine::new(location));
        let mut builder = Snapshot::builder_for(location.url());
        if let Some(version) = asked {
            builder = builder.at_version(version);
        }
        match build(builder, engine.clone()).await {
            Ok(snapshot) => Ok(Some(Self::new(
                location.clone(),
                engine,
                snapshot,
                Kept::default(),
            )?)),
            Err(error) if is_absent(&error) || !has_log(location).await? => match version {
                None => Ok(None),
                Some(version) => Err(TableError::VersionGone {
                    url: location.shown(),
                    version,
                    reason: "there is no such table any more".into(),
                }),
            },
            Err(error) => Err(match version {
                Some(version) if !is_storage(&error) => TableError::VersionGone {
                    url: location.shown(),
                    version,
                    reason: crate::error::plain(&error),
                },
                _ => TableError::Log {
                    url: location.shown(),
                    source: Box::new(error),
                },
            }),
        }
    }

    /// As [`Table::open`], but an absent table is an error.
    pub async fn open_existing(
        location: &Location,
        version: Option<i64>,
    ) -> Result<Self, TableError> {
        Self::open(location, version)
            .await?
            .ok_or_else(|| TableError::NotATable {
                url: location.shown(),
            })
    }

    /// The same table at its newest version; cheap when nothing was committed since.
    pub async fn refreshed(&self) -> Result<Self, TableError> {
        let builder = Snapshot::builder_from(self.snapshot.clone());
        let snapshot = build(builder, self.engine.clone())
            .await
            .map_err(|e| TableError::Log {
                url: self.location.shown(),
                source: Box::new(e),
            })?;
        if snapshot.version() == self.snapshot.version() {
            return Ok(self.clone());
        }
        let kept = self.kept.carried(self.version());
        Self::new(self.location.clone(), self.engine.clone(), snapshot, kept)
    }

    fn new(
        location: Location,
        engine: Arc<LogEngine>,
        snapshot: SnapshotRef,
        kept: Kept,
    ) -> Result<Self, TableError> {
        let metadata = snapshot.table_configuration().metadata();
        let raw = serde_json::to_value(metadata).map_err(|e| TableError::Damaged {
            url: location.shown(),
            reason: e.to_string(),
        })?;
        let schema_string = raw
            .get("schemaString")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let schema =
            TableSchema::parse(schema_string, metadata.partition_columns()).map_err(|reason| {
                TableError::Damaged {
                    url: location.shown(),
                    reason,
                }
            })?;
        let properties = metadata.configuration().clone();
        let table = Self {
            location,
            engine,
            snapshot: snapshot.clone(),
            schema: Arc::new(schema),
            properties: Arc::new(properties),
            kept: Arc::new(kept),
            mark: Arc::default(),
        };
        crate::protocol::check_readable(&table)?;
        Ok(table)
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    pub fn version(&self) -> i64 {
        i64::try_from(self.snapshot.version()).unwrap_or(i64::MAX)
    }

    /// The table's identity: another one at the same place has another id.
    pub fn id(&self) -> &str {
        self.snapshot.table_configuration().metadata().id()
    }

    /// What tells the log entry of this version from others of its name: [`commit::mark`].
    pub async fn mark(&self) -> Result<Option<String>, TableError> {
        let read = || commit::mark(&self.location, self.version());
        Ok(self.mark.get_or_try_init(read).await?.clone())
    }

    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    pub fn properties(&self) -> &HashMap<String, String> {
        &self.properties
    }

    pub fn comment(&self) -> Option<&str> {
        self.snapshot.table_configuration().metadata().description()
    }

    /// The metadata action as JSON, for a commit that changes a part of it.
    pub fn metadata_json(&self) -> Result<Value, TableError> {
        serde_json::to_value(self.snapshot.table_configuration().metadata()).map_err(|e| {
            TableError::Damaged {
                url: self.location.shown(),
                reason: e.to_string(),
            }
        })
    }

    /// The protocol action as JSON.
    pub fn protocol_json(&self) -> Result<Value, TableError> {
        serde_json::to_value(self.snapshot.table_configuration().protocol()).map_err(|e| {
            TableError::Damaged {
                url: self.location.shown(),
                reason: e.to_string(),
            }
        })
    }

    /// The version that `app_id` recorded with its last commit.
    pub async fn transaction_version(&self, app_id: &str) -> Result<Option<i64>, TableError> {
        let known = self
            .kept
            .transaction(app_id, &self.location, self.version());
        if let Some(known) = known.await {
            return Ok(known);
        }
        let found = self.read_transaction_version(app_id).await?;
        self.kept.learn(app_id, found);
        Ok(found)
    }

    async fn read_transaction_version(&self, app_id: &str) -> Result<Option<i64>, TableError> {
        let (engine, snapshot) = (self.engine.clone(), self.snapshot.clone());
        let app_id = app_id.to_string();
        let read = tokio::task::spawn_blocking(move || {
            snapshot.get_app_id_version(&app_id, engine.as_ref())
        });
        let damaged = |reason: String| TableError::Damaged {
            url: self.location.shown(),
            reason,
        };
        read.await
            .map_err(|e| damaged(crate::error::plain(&e)))?
            .map_err(|e| damaged(crate::error::plain(&e)))
    }

    /// Writes a checkpoint of this version.
    pub(crate) async fn write_checkpoint(&self) -> Result<(), TableError> {
        let (engine, snapshot) = (self.engine.clone(), self.snapshot.clone());
        let written =
            tokio::task::spawn_blocking(move || snapshot.checkpoint(engine.as_ref(), None))
                .await
                .map_err(|e| DeltaTableError::Generic(e.to_string()));
        let log = |e: DeltaTableError| TableError::Log {
            url: self.location.shown(),
            source: Box::new(e),
        };
        written.map_err(log)?.map_err(|e| log(e.into()))?;
        Ok(())
    }

    /// The active files, a bounded batch at a time.
    pub fn files(&self) -> impl Stream<Item = Result<Arc<FileBatch>, TableError>> + Send + use<> {
        let table = self.clone();
        let known = async move {
            let known = table.kept.files(&table.location, table.version());
            match known.await {
                Some(live) => {
                    let batches = match table.check(&live).await {
                        Ok(()) => live.batches.iter().cloned().map(Ok).collect(),
                        Err(error) => vec![Err(error)],
                    };
                    futures::stream::iter(batches).left_stream()
                }
                None => table.replayed().right_stream(),
            }
        };
        known.flatten_stream()
    }

    /// Builds for tests hold the files that were carried over against the log.
    async fn check(&self, live: &LiveFiles) -> Result<(), TableError> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let mut replayed = Vec::new();
        let mut batches = std::pin::pin!(self.replayed());
        while let Some(batch) = batches.next().await {
            replayed.extend(batch?.iter().cloned());
        }
        let mut carried: Vec<_> = live
            .batches
            .iter()
            .flat_map(|b| b.iter().cloned())
            .collect();
        for files in [&mut replayed, &mut carried] {
            files.sort_by(|a, b| a.log_path.cmp(&b.log_path));
        }
        let differing = replayed.iter().zip(&carried).find(|(a, b)| a != b);
        if replayed.len() == carried.len() && differing.is_none() {
            return Ok(());
        }
        Err(TableError::Damaged {
            url: self.location.shown(),
            reason: format!(
                "{} files were carried over to version {}, {} are in its log; {differing:?}",
                carried.len(),
                self.version(),
                replayed.len()
            ),
        })
    }

    /// The active files as the log has them; they are kept when they were asked for before.
    fn replayed(&self) -> impl Stream<Item = Result<Arc<FileBatch>, TableError>> + Send + use<> {
        let url = self.location.shown();
        let (engine, snapshot) = (self.engine.clone(), self.snapshot.clone());
        let kept = self.kept.clone();
        let mut live = kept.is_asked_again().then(LiveFiles::default);
        let (sender, receiver) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
        tokio::task::spawn_blocking(move || {
            let batches = scan(&snapshot, &engine).map_err(DeltaTableError::from);
            let log = |e: DeltaTableError| TableError::Log {
                url: url.clone(),
                source: Box::new(e),
            };
            let batches = match batches {
                Ok(batches) => batches,
                Err(error) => {
                    let _ = sender.blocking_send(Err(log(error)));
                    return;
                }
            };
            for batch in batches {
                let files = batch.and_then(rows).map_err(|e| log(e.into()));
                let files = files.and_then(|batch| {
                    files_of(&batch).map_err(|reason| TableError::Damaged {
                        url: url.clone(),
                        reason,
                    })
                });
                let batch = files.map(|files| Arc::new(FileBatch::new(files)));
                let is_last = batch.is_err();
                if let (Some(files), Ok(batch)) = (&mut live, &batch)
                    && !files.add(batch)
                {
                    live = None;
                }
                // A receiver that is gone wants no more.
                if sender.blocking_send(batch).is_err() || is_last {
                    return;
                }
            }
            if let Some(files) = live {
                kept.keep(files);
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|batch| (batch, receiver))
        })
    }
}

/// Batches of files that are read ahead of their use.
const BATCHES_AHEAD: usize = 2;

async fn build(
    builder: SnapshotBuilder,
    engine: Arc<LogEngine>,
) -> Result<SnapshotRef, DeltaTableError> {
    let built = tokio::task::spawn_blocking(move || builder.build(engine.as_ref()))
        .await
        .map_err(|e| DeltaTableError::Generic(e.to_string()))?;
    built.map_err(|error| {
        let text = error.to_string();
        if text.contains("No files in log segment") {
            DeltaTableError::NotATable(text)
        } else {
            error.into()
        }
    })
}

/// The active files with their statistics as the log has them.
fn scan(
    snapshot: &SnapshotRef,
    engine: &LogEngine,
) -> delta_kernel::DeltaResult<impl Iterator<Item = delta_kernel::DeltaResult<ScanMetadata>>> {
    ScanBuilder::new(snapshot.clone())
        .with_stats(StatsOptions::json_only())
        .without_row_transforms()
        .build()?
        .scan_metadata(engine)
}

fn rows(batch: ScanMetadata) -> delta_kernel::DeltaResult<RecordBatch> {
    let selected = batch.scan_files.apply_selection_vector()?;
    Ok((*ArrowEngineData::try_from_engine_data(selected)?).into())
}

/// Whether anything lies in the table's log folder.
async fn has_log(location: &Location) -> Result<bool, TableError> {
    let store = location.store();
    let mut entries = store.list(Some(&Path::from("_delta_log")));
    match entries.next().await {
        None | Some(Err(object_store::Error::NotFound { .. })) => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(source)) => Err(TableError::Storage {
            url: location.shown(),
            source,
        }),
    }
}

fn is_absent(error: &DeltaTableError) -> bool {
    matches!(
        error,
        DeltaTableError::NotATable(_)
            | DeltaTableError::ObjectStore {
                source: ObjectStoreError::NotFound { .. }
            }
    ) || error.to_string().contains("No files in log segment")
}

fn is_storage(error: &DeltaTableError) -> bool {
    matches!(error, DeltaTableError::ObjectStore { source }
        if !matches!(source, ObjectStoreError::NotFound { .. }))
}

fn files_of(batch: &RecordBatch) -> Result<Vec<DataFile>, String> {
    let column = |name: &str| {
        batch
            .column_by_name(name)
            .ok_or_else(|| format!("log replay gave no column `{name}`"))
    };
    let paths = column("path")?;
    let sizes = column("size")?
        .as_primitive_opt::<Int64Type>()
        .ok_or("`size` is no long")?;
    let times = column("modificationTime")?
        .as_primitive_opt::<Int64Type>()
        .ok_or("`modificationTime` is no long")?;
    let stats = column("stats")?;
    let constants = column("fileConstantValues")?.as_struct_opt();
    let partitions: Option<&MapArray> = constants
        .and_then(|c| c.column_by_name("partitionValues"))
        .and_then(|c| c.as_map_opt());
    let vectors = batch
        .column_by_name("deletionVector")
        .and_then(|c| c.as_struct_opt());
    (0..batch.num_rows())
        .map(|row| {
            Ok(DataFile {
                log_path: text(paths.as_ref(), row)
                    .ok_or("a file without a path")?
                    .to_string(),
                size: sizes.value(row),
                modification_time: times.value(row),
                partition_values: partitions.map(|p| map_of(p, row)).unwrap_or_default(),
                stats: text(stats.as_ref(), row).map(str::to_string),
                deletion_vector: vectors.and_then(|v| vector_of(v, row)),
            })
        })
        .collect()
}

fn text(array: &dyn Array, row: usize) -> Option<&str> {
    if array.is_null(row) {
        return None;
    }
    if let Some(a) = array.as_string_opt::<i32>() {
        return Some(a.value(row));
    }
    if let Some(a) = array.as_string_view_opt() {
        return Some(a.value(row));
    }
    array.as_string_opt::<i64>().map(|a| a.value(row))
}

fn map_of(map: &MapArray, row: usize) -> HashMap<String, Option<String>> {
    if map.is_null(row) {
        return HashMap::new();
    }
    let offsets = map.value_offsets();
    let (keys, values) = (map.keys().as_ref(), map.values().as_ref());
    (offsets[row] as usize..offsets[row + 1] as usize)
        .filter_map(|i| {
            Some((
                text(keys, i)?.to_string(),
                text(values, i).map(str::to_string),
            ))
        })
        .collect()
}

fn vector_of(vectors: &StructArray, row: usize) -> Option<DeletionVector> {
    if vectors.is_null(row) {
        return None;
    }
    let string = |name: &str| {
        vectors
            .column_by_name(name)
            .and_then(|c| text(c.as_ref(), row))
            .map(str::to_string)
    };
    let int = |name: &str| {
        let column = vectors
            .column_by_name(name)?
            .as_primitive_opt::<Int32Type>()?;
        column.is_valid(row).then(|| column.value(row))
    };
    let long = |name: &str| {
        let column = vectors
            .column_by_name(name)?
            .as_primitive_opt::<Int64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    };
    Some(DeletionVector {
        storage_type: string("storageType")?,
        path_or_inline: string("pathOrInlineDv")?,
        offset: int("offset"),
        size_in_bytes: int("sizeInBytes").unwrap_or_default(),
        cardinality: long("cardinality").unwrap_or_default(),
    })
}
