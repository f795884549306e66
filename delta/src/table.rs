//! A table at one version: its columns, its properties, and its files as a stream.
//!
//! Log replay is the Delta kernel's; which of the files matter is decided in [`crate::prune`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion::arrow::array::{Array, AsArray, MapArray, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use deltalake::kernel::Snapshot;
use deltalake::{DeltaTableError, ObjectStoreError};
use futures::{Stream, StreamExt, TryStreamExt};
use object_store::path::Path;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::error::TableError;
use crate::schema::TableSchema;
use crate::store::Location;

/// A Delta table at one version.
#[derive(Clone)]
pub struct Table {
    location: Location,
    snapshot: Arc<Snapshot>,
    schema: Arc<TableSchema>,
    properties: Arc<HashMap<String, String>>,
    /// Transactions that were looked up: each look reads the log, and this version never changes.
    transactions: Arc<Mutex<HashMap<String, Option<i64>>>>,
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
        match Snapshot::try_new(location.log_store().as_ref(), asked).await {
            Ok(snapshot) => Ok(Some(Self::new(location.clone(), Arc::new(snapshot))?)),
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
        let snapshot = self
            .snapshot
            .clone()
            .update(self.location.log_store().engine(None), None)
            .await
            .map_err(|e| TableError::Log {
                url: self.location.shown(),
                source: Box::new(e),
            })?;
        Self::new(self.location.clone(), snapshot)
    }

    fn new(location: Location, snapshot: Arc<Snapshot>) -> Result<Self, TableError> {
        let metadata = snapshot.metadata();
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
            snapshot,
            schema: Arc::new(schema),
            properties: Arc::new(properties),
            transactions: Arc::default(),
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
        self.snapshot.metadata().id()
    }

    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    pub fn properties(&self) -> &HashMap<String, String> {
        &self.properties
    }

    pub fn comment(&self) -> Option<&str> {
        self.snapshot.metadata().description()
    }

    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The metadata action as JSON, for a commit that changes a part of it.
    pub fn metadata_json(&self) -> Result<Value, TableError> {
        serde_json::to_value(self.snapshot.metadata()).map_err(|e| TableError::Damaged {
            url: self.location.shown(),
            reason: e.to_string(),
        })
    }

    /// The protocol action as JSON.
    pub fn protocol_json(&self) -> Result<Value, TableError> {
        serde_json::to_value(self.snapshot.protocol()).map_err(|e| TableError::Damaged {
            url: self.location.shown(),
            reason: e.to_string(),
        })
    }

    /// The version that `app_id` recorded with its last commit.
    pub async fn transaction_version(&self, app_id: &str) -> Result<Option<i64>, TableError> {
        if let Some(known) = self.transactions().get(app_id) {
            return Ok(*known);
        }
        let found = self.read_transaction_version(app_id).await?;
        self.transactions().insert(app_id.to_string(), found);
        Ok(found)
    }

    fn transactions(&self) -> MutexGuard<'_, HashMap<String, Option<i64>>> {
        self.transactions.lock().unwrap_or_else(|e| e.into_inner())
    }

    async fn read_transaction_version(&self, app_id: &str) -> Result<Option<i64>, TableError> {
        let engine = self.location.log_store().engine(None);
        let (url, version, app_id) = (
            self.location.url().clone(),
            self.snapshot.version(),
            app_id.to_string(),
        );
        let read = tokio::task::spawn_blocking(move || {
            let snapshot = delta_kernel::Snapshot::builder_for(url)
                .at_version(version)
                .build(engine.as_ref())?;
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

    /// The active files, a bounded batch at a time.
    pub fn files(&self) -> impl Stream<Item = Result<Vec<DataFile>, TableError>> + Send + use<> {
        let url = self.location.shown();
        let batches = self
            .snapshot
            .files(self.location.log_store().as_ref(), None);
        batches
            .map_err({
                let url = url.clone();
                move |e| TableError::Log {
                    url: url.clone(),
                    source: Box::new(e),
                }
            })
            .map(move |batch| {
                files_of(&batch?).map_err(|reason| TableError::Damaged {
                    url: url.clone(),
                    reason,
                })
            })
    }
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
    let entries = map.value(row);
    (0..entries.len())
        .filter_map(|i| {
            let key = text(entries.column(0).as_ref(), i)?.to_string();
            Some((key, text(entries.column(1).as_ref(), i).map(str::to_string)))
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
