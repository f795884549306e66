//! Delta tables as other people make, change and read them: with the deltalake library and its own
//! DataFusion provider, never with Windrow's code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::prelude::SessionContext;
use deltalake::kernel::StructField;
use deltalake::operations::optimize::OptimizeType;
use deltalake::operations::vacuum::VacuumMode;
use deltalake::protocol::SaveMode;
use deltalake::{DeltaTable, DeltaTableBuilder};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;

use crate::{Outcome, cells, words};

/// A folder or bucket with tables.
#[derive(Debug, Clone)]
pub struct Lake {
    /// Ends with a slash.
    pub root: Url,
    /// How to get at it: none for a folder, `AWS_*` for S3. Windrow gets the same as variables.
    pub options: HashMap<String, String>,
}

/// A column as a scenario defines it.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    /// The type as Delta names it.
    pub delta_type: String,
    pub nullable: bool,
}

/// A new table.
#[derive(Debug, Clone, Default)]
pub struct NewTable {
    pub columns: Vec<Column>,
    pub partitioned_by: Vec<String>,
    pub properties: Vec<(String, String)>,
}

impl Lake {
    pub fn folder(path: &std::path::Path) -> Outcome<Self> {
        let root = Url::from_directory_path(path)
            .map_err(|()| format!("{} is not absolute", path.display()))?;
        Ok(Self {
            root,
            options: HashMap::new(),
        })
    }

    /// The place of a path relative to the root.
    pub fn url(&self, relative: &str) -> Url {
        let mut url = self.root.clone();
        if !relative.is_empty() {
            url.set_path(&format!(
                "{}{}/",
                self.root.path(),
                relative.trim_end_matches('/')
            ));
        }
        url
    }

    /// As a pipeline file names it.
    pub fn location(&self, relative: &str) -> String {
        let url = self.url(relative);
        match url.to_file_path() {
            Ok(path) => path.to_string_lossy().trim_end_matches('/').to_string(),
            Err(()) => url.as_str().trim_end_matches('/').to_string(),
        }
    }

    fn builder(&self, relative: &str) -> Outcome<DeltaTableBuilder> {
        let builder = DeltaTableBuilder::from_url(self.url(relative)).map_err(words)?;
        Ok(builder.with_storage_options(self.options.clone()))
    }

    pub async fn open(&self, relative: &str) -> Outcome<DeltaTable> {
        self.builder(relative)?.load().await.map_err(words)
    }

    pub async fn open_at(&self, relative: &str, version: u64) -> Outcome<DeltaTable> {
        self.builder(relative)?
            .with_version(version)
            .load()
            .await
            .map_err(words)
    }

    pub fn store(&self) -> Outcome<Arc<dyn ObjectStore>> {
        if let Ok(path) = self.root.to_file_path() {
            std::fs::create_dir_all(&path).map_err(words)?;
        }
        Ok(self
            .builder("")?
            .build_storage()
            .map_err(words)?
            .object_store(None))
    }

    /// Paths of the objects below a folder, relative to the root, with their sizes.
    pub async fn objects(&self, folder: &str) -> Outcome<BTreeMap<String, u64>> {
        let found = self.store()?.list(Some(&Path::from(folder)));
        found
            .map_ok(|meta| (meta.location.to_string(), meta.size))
            .try_collect()
            .await
            .map_err(words)
    }

    pub async fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        let found = self.store()?.get(&Path::from(path)).await.map_err(words)?;
        Ok(found.bytes().await.map_err(words)?.to_vec())
    }

    pub async fn write(&self, path: &str, bytes: Vec<u8>) -> Outcome {
        self.store()?
            .put(&Path::from(path), bytes.into())
            .await
            .map(|_| ())
            .map_err(words)
    }

    pub async fn remove(&self, path: &str) -> Outcome {
        self.store()?.delete(&Path::from(path)).await.map_err(words)
    }

    /// The newest versions of all tables below a folder, by the tables' paths.
    pub async fn versions(&self, folder: &str) -> Outcome<BTreeMap<String, u64>> {
        let mut versions = BTreeMap::new();
        for path in self.objects(folder).await?.keys() {
            let Some((table, entry)) = path.split_once("/_delta_log/") else {
                continue;
            };
            let Some(version) = entry
                .strip_suffix(".json")
                .and_then(|v| v.parse::<u64>().ok())
            else {
                continue;
            };
            let newest = versions.entry(table.to_string()).or_insert(version);
            *newest = version.max(*newest);
        }
        Ok(versions)
    }

    pub async fn create(&self, relative: &str, new: &NewTable) -> Outcome<DeltaTable> {
        if let Ok(path) = self.url(relative).to_file_path() {
            std::fs::create_dir_all(path).map_err(words)?;
        }
        let fields = new
            .columns
            .iter()
            .map(|column| {
                let data_type: deltalake::kernel::DataType =
                    serde_json::from_value(serde_json::Value::String(column.delta_type.clone()))
                        .map_err(|e| format!("type of {}: {e}", column.name))?;
                Ok(StructField::new(
                    column.name.clone(),
                    data_type,
                    column.nullable,
                ))
            })
            .collect::<Outcome<Vec<_>>>()?;
        self.builder(relative)?
            .build()
            .map_err(words)?
            .create()
            .with_columns(fields)
            .with_partition_columns(new.partitioned_by.clone())
            .with_configuration(
                new.properties
                    .iter()
                    .map(|(k, v)| (k.clone(), Some(v.clone()))),
            )
            .with_raise_if_key_not_exists(false)
            .await
            .map_err(words)
    }

    pub async fn append(&self, relative: &str, rows: RecordBatch) -> Outcome {
        let table = self.open(relative).await?;
        table
            .write(vec![rows])
            .with_save_mode(SaveMode::Append)
            .await
            .map(|_| ())
            .map_err(words)
    }

    pub async fn overwrite(&self, relative: &str, rows: RecordBatch) -> Outcome {
        self.delete(relative, None).await?;
        if rows.num_rows() > 0 {
            self.append(relative, rows).await
        } else {
            Ok(())
        }
    }

    pub async fn delete(&self, relative: &str, condition: Option<&str>) -> Outcome {
        let mut delete = self.open(relative).await?.delete();
        if let Some(condition) = condition {
            delete = delete.with_predicate(condition);
        }
        delete.await.map(|_| ()).map_err(words)
    }

    pub async fn update(
        &self,
        relative: &str,
        set: &[(String, String)],
        condition: Option<&str>,
    ) -> Outcome {
        let mut update = self.open(relative).await?.update();
        for (column, value) in set {
            update = update.with_update(column.as_str(), value.as_str());
        }
        if let Some(condition) = condition {
            update = update.with_predicate(condition);
        }
        update.await.map(|_| ()).map_err(words)
    }

    /// Rows whose key is there replace those, others are added.
    pub async fn merge(&self, relative: &str, rows: RecordBatch, key: &str) -> Outcome {
        let context = SessionContext::new();
        let names: Vec<String> = rows
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let source = context.read_batch(rows).map_err(words)?;
        let merge = self
            .open(relative)
            .await?
            .merge(source, format!("t.{key} = s.{key}"))
            .with_source_alias("s")
            .with_target_alias("t");
        let set = |name: &String| (name.clone(), format!("s.{name}"));
        let merge = merge
            .when_matched_update(|mut update| {
                for (name, value) in names.iter().filter(|n| *n != key).map(set) {
                    update = update.update(name, value);
                }
                update
            })
            .map_err(words)?
            .when_not_matched_insert(|mut insert| {
                for (name, value) in names.iter().map(set) {
                    insert = insert.set(name, value);
                }
                insert
            })
            .map_err(words)?;
        merge.await.map(|_| ()).map_err(words)
    }

    pub async fn add_column(&self, relative: &str, name: &str, delta_type: &str) -> Outcome {
        let data_type: deltalake::kernel::DataType =
            serde_json::from_value(serde_json::Value::String(delta_type.into())).map_err(words)?;
        let add = self.open(relative).await?.add_columns();
        add.with_fields(vec![StructField::new(name, data_type, true)])
            .await
            .map(|_| ())
            .map_err(words)
    }

    /// Compacts, or orders by columns. Gives how many files went.
    pub async fn optimize(&self, relative: &str, order_by: &[String]) -> Outcome<u64> {
        let mut optimize = self.open(relative).await?.optimize();
        if !order_by.is_empty() {
            optimize = optimize.with_type(OptimizeType::ZOrder(order_by.to_vec()));
        }
        let (_, metrics) = optimize.await.map_err(words)?;
        Ok(metrics.num_files_removed)
    }

    pub async fn restore(&self, relative: &str, version: u64) -> Outcome {
        let restore = self
            .open(relative)
            .await?
            .restore()
            .with_version_to_restore(version);
        restore.await.map(|_| ()).map_err(words)
    }

    pub async fn checkpoint(&self, relative: &str) -> Outcome {
        let table = self.open(relative).await?;
        deltalake::checkpoints::create_checkpoint(&table, None)
            .await
            .map_err(words)
    }

    /// Removes all data files that the newest version does not name.
    pub async fn vacuum(&self, relative: &str) -> Outcome {
        let vacuum = self.open(relative).await?.vacuum();
        vacuum
            .with_mode(VacuumMode::Full)
            .with_retention_period(chrono::TimeDelta::zero())
            .with_enforce_retention_duration(false)
            .await
            .map(|_| ())
            .map_err(words)
    }

    pub async fn schema(&self, relative: &str) -> Outcome<SchemaRef> {
        arrow_schema(&self.open(relative).await?)
    }

    /// Rows of a query over the table `t`, with the types of its columns.
    pub async fn rows(
        &self,
        table: &DeltaTable,
        columns: &[String],
    ) -> Outcome<(Vec<DataType>, Vec<cells::Row>)> {
        let context = SessionContext::new();
        register(&context, "t", table).await?;
        let schema = arrow_schema(table)?;
        let mut chosen = Vec::new();
        for name in columns {
            let field = schema
                .fields()
                .iter()
                .find(|f| f.name().eq_ignore_ascii_case(name));
            let field = field.ok_or_else(|| {
                let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
                format!(
                    "it has no column `{name}`, its columns are {}",
                    names.join(", ")
                )
            })?;
            chosen.push(quoted(field.name()));
        }
        query(&context, &format!("SELECT {} FROM t", chosen.join(", "))).await
    }

    /// All rows with all columns, in the order of the columns.
    pub async fn all_rows(&self, relative: &str) -> Outcome<Vec<cells::Row>> {
        let table = self.open(relative).await?;
        let names: Vec<String> = arrow_schema(&table)?
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let mut rows = self.rows(&table, &names).await?.1;
        rows.sort();
        Ok(rows)
    }
}

pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn arrow_schema(table: &DeltaTable) -> Outcome<SchemaRef> {
    Ok(table.snapshot().map_err(words)?.snapshot().arrow_schema())
}

/// Paths of the data files of a version, relative to the table.
pub fn files(table: &DeltaTable) -> Outcome<BTreeSet<String>> {
    let root = table.table_url().to_string();
    let root = root.trim_end_matches('/');
    let uris = table.get_file_uris().map_err(words)?;
    Ok(uris
        .map(|uri| {
            let path = uri
                .strip_prefix(root)
                .or_else(|| uri.strip_prefix(table.table_url().path().trim_end_matches('/')));
            path.unwrap_or(&uri).trim_start_matches('/').to_string()
        })
        .collect())
}

pub async fn register(context: &SessionContext, name: &str, table: &DeltaTable) -> Outcome {
    let provider = table.table_provider().await.map_err(words)?;
    context
        .register_table(datafusion::common::TableReference::bare(name), provider)
        .map(|_| ())
        .map_err(words)
}

pub async fn batches(context: &SessionContext, sql: &str) -> Outcome<Vec<RecordBatch>> {
    context
        .sql(sql)
        .await
        .map_err(words)?
        .collect()
        .await
        .map_err(words)
}

pub async fn query(
    context: &SessionContext,
    sql: &str,
) -> Outcome<(Vec<DataType>, Vec<cells::Row>)> {
    let frame = context.sql(sql).await.map_err(words)?;
    let types = frame
        .schema()
        .fields()
        .iter()
        .map(|f| f.data_type().clone())
        .collect();
    Ok((types, cells::rows(&frame.collect().await.map_err(words)?)?))
}
