//! Reading a Delta table at one version, pruned.
//!
//! Planning asks the table's log which files can hold rows that the pushed filters select, and
//! hands exactly those to DataFusion's Parquet reader, which goes on with row groups, pages and
//! rows. Deletion vectors become row selections, partition values constant columns, column mapping
//! a renaming projection. Every filter stays in the plan above the scan: pruning may only be
//! coarser than the filter, never finer.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema as FileTableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::TryStreamExt;
use object_store::ObjectMeta;
use windrow_delta::batch::FileBatch;
use windrow_delta::changes::CHANGE_TYPE;
use windrow_delta::prune::{FilePredicate, Pruner, record_count};
use windrow_delta::schema::Column as TableColumn;
use windrow_delta::{DataFile, Table, TableError, partition, vector};

use crate::relabel::relabel;

/// Columns that Windrow keeps for itself begin with this and are seen by no query.
pub const RESERVED_PREFIX: &str = "__windrow_";
/// The column that numbers the files of a scan, where it is asked for.
pub const FILE_COLUMN: &str = "__windrow_file";

/// What one scan of a source came to.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanRecord {
    /// The source's name as the query has it.
    pub source: String,
    pub files_total: u64,
    pub files_scanned: u64,
    pub bytes_total: u64,
    /// Sizes of the files that are scanned.
    pub bytes_scanned: u64,
    /// The filters that reached the source, as text.
    pub filters: Vec<String>,
}

/// Where scans leave their records; one log per planned query.
#[derive(Debug, Clone, Default)]
pub struct ScanLog(Arc<Mutex<Vec<ScanRecord>>>);

impl ScanLog {
    fn add(&self, record: ScanRecord) {
        self.0
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push(record);
    }

    /// The records so far, emptying the log.
    pub fn take(&self) -> Vec<ScanRecord> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// A Delta table at one version as a source of a query.
///
/// Column names are lower-cased: queries are normalised the same way, so that names compare
/// without case.
#[derive(Debug)]
pub struct DeltaSource {
    table: Table,
    name: String,
    log: ScanLog,
    /// Only these files, numbered by [`FILE_COLUMN`]; otherwise all files of the version.
    files: Option<Arc<FileBatch>>,
    /// Files that are left out, as [`file_key`] names them.
    left_out: Option<Arc<HashSet<String>>>,
    columns: Vec<TableColumn>,
    schema: SchemaRef,
}

/// A file of a log with its deletion vector: another vector makes it another set of rows.
pub fn file_key(file: &DataFile) -> String {
    match &file.deletion_vector {
        None => file.log_path.clone(),
        Some(vector) => format!("{} {}", file.log_path, vector.to_json()),
    }
}

/// The name under which queries know a column.
pub fn query_name(name: &str) -> String {
    name.to_lowercase()
}

impl DeltaSource {
    /// All of the table. `name` is used in records and messages.
    pub fn new(table: Table, name: impl Into<String>, log: ScanLog) -> Result<Self> {
        let columns: Vec<TableColumn> = table
            .schema()
            .columns
            .iter()
            .filter(|c| !query_name(&c.name).starts_with(RESERVED_PREFIX))
            .cloned()
            .collect();
        let schema = query_schema(&columns)?;
        Ok(Self {
            table,
            name: name.into(),
            log,
            files: None,
            left_out: None,
            columns,
            schema,
        })
    }

    /// Only `files`, with a column [`FILE_COLUMN`] that holds each row's index in `files`.
    pub fn of_files(table: Table, files: Vec<DataFile>, log: ScanLog) -> Result<Self> {
        let columns = table.schema().columns.clone();
        Self::with_columns(table, columns, files, log)
    }

    /// Only `files`, which are change data files: the same with a column
    /// [`CHANGE_TYPE`](windrow_delta::changes::CHANGE_TYPE). The table has none of that name.
    pub fn of_change_data(table: Table, files: Vec<DataFile>, log: ScanLog) -> Result<Self> {
        let mut columns = table.schema().columns.clone();
        let kind = TableColumn::new(CHANGE_TYPE, DataType::Utf8, true);
        columns.push(kind.map_err(DataFusionError::Plan)?);
        Self::with_columns(table, columns, files, log)
    }

    fn with_columns(
        table: Table,
        columns: Vec<TableColumn>,
        files: Vec<DataFile>,
        log: ScanLog,
    ) -> Result<Self> {
        let mut fields: Vec<FieldRef> = query_schema(&columns)?.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(FILE_COLUMN, DataType::Int64, false)));
        let schema = Arc::new(Schema::new(fields));
        let name = table.location().shown();
        Ok(Self {
            table,
            name,
            log,
            files: Some(Arc::new(FileBatch::new(files))),
            left_out: None,
            columns,
            schema,
        })
    }

    /// The same source under another name in records and messages.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same source without the rows of `files`.
    #[must_use]
    pub fn without(mut self, files: &[DataFile]) -> Self {
        self.left_out = Some(Arc::new(files.iter().map(file_key).collect()));
        self
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    fn column(&self, query_name: &str) -> Option<&TableColumn> {
        let index = self.schema.index_of(query_name).ok()?;
        self.columns.get(index)
    }

    fn is_partition(&self, column: &TableColumn) -> bool {
        self.table.schema().is_partition_column(&column.name)
    }

    /// The files that may hold rows for `filters`, numbered, and how many there are at all.
    async fn pruned(&self, state: &dyn Session, filters: &[Expr]) -> Result<Pruned> {
        let url = self.table.location().shown();
        let pruner = match conjunction(filters.iter().cloned()) {
            None => None,
            Some(predicate) => {
                let df_schema = DFSchema::try_from(self.schema.as_ref().clone())?;
                // What can't be turned into a physical expression alone prunes nothing.
                state
                    .create_physical_expr(unqualified(predicate)?, &df_schema)
                    .ok()
                    .map(|holds| {
                        let fails = lit_true();
                        let schema = self.schema.clone();
                        Pruner::new(
                            self.table.schema().clone(),
                            FilePredicate {
                                schema,
                                holds,
                                fails,
                            },
                        )
                    })
            }
        };
        let mut pruned = Pruned::default();
        let mut take = |files: &FileBatch| -> Result<(), TableError> {
            let keep = match &pruner {
                Some(pruner) => pruner.may_match(files, &url)?,
                None => vec![true; files.len()],
            };
            for (file, keep) in files.iter().zip(keep) {
                let index = pruned.files_total as i64;
                pruned.files_total += 1;
                pruned.bytes_total += file.size.unsigned_abs();
                let left_out = self
                    .left_out
                    .as_ref()
                    .is_some_and(|out| out.contains(&file_key(file)));
                if keep && !left_out {
                    pruned.files.push((index, file.clone()));
                }
            }
            Ok(())
        };
        match &self.files {
            Some(files) => take(files).map_err(external)?,
            None => {
                let mut batches = std::pin::pin!(self.table.files());
                while let Some(batch) = batches.try_next().await.map_err(external)? {
                    take(&batch).map_err(external)?;
                }
            }
        }
        Ok(pruned)
    }

    async fn partitioned_file(&self, index: i64, file: &DataFile) -> Result<PartitionedFile> {
        let location = self.table.location();
        let damaged = |reason: String| {
            external(TableError::Damaged {
                url: location.shown(),
                reason,
            })
        };
        let root = location.root_path().map_err(external)?;
        let relative = file.path().map_err(damaged)?;
        let mut path = root;
        for part in relative.parts() {
            path = path.join(part);
        }
        let mut values = Vec::new();
        for column in self.columns.iter().filter(|c| self.is_partition(c)) {
            let text = file
                .partition_values
                .get(&column.physical_name)
                .and_then(Option::as_deref);
            values.push(partition::value(text, &column.data_type).map_err(damaged)?);
        }
        if self.files.is_some() {
            values.push(ScalarValue::Int64(Some(index)));
        }
        let meta = ObjectMeta {
            location: path,
            last_modified: chrono::DateTime::from_timestamp_millis(file.modification_time)
                .unwrap_or_default(),
            size: file.size.unsigned_abs(),
            e_tag: None,
            version: None,
        };
        let mut partitioned = PartitionedFile::new_from_meta(meta).with_partition_values(values);
        if let Some(dv) = &file.deletion_vector {
            let rows = match record_count(file.stats.as_deref()) {
                Some(rows) => rows,
                None => rows_in_footer(location, &partitioned.object_meta).await?,
            };
            let kept = vector::kept_rows(location, dv, rows)
                .await
                .map_err(external)?;
            partitioned =
                partitioned.with_extension(ParquetRowSelection::new(selection(&kept, rows)));
        }
        Ok(partitioned)
    }

    /// The filters that may go into the Parquet reader: over columns of the files, none of them a
    /// float (row group statistics leave NaN out), with the names inside the files.
    fn reader_predicate(
        &self,
        state: &dyn Session,
        filters: &[Expr],
        file_schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let usable = filters.iter().filter(|f| {
            f.column_refs().iter().all(|c| match self.column(&c.name) {
                Some(column) => {
                    !self.is_partition(column)
                        && !matches!(
                            column.data_type,
                            DataType::Float16 | DataType::Float32 | DataType::Float64
                        )
                        && !column.data_type.is_nested()
                }
                None => false,
            })
        });
        let renamed = usable
            .map(|f| {
                let renamed = f.clone().transform(|e| match e {
                    Expr::Column(c) => {
                        let name = self
                            .column(&c.name)
                            .map_or_else(|| c.name.clone(), |c| c.physical_name.clone());
                        Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                            name,
                        ))))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(renamed.data)
            })
            .collect::<Result<Vec<_>>>()?;
        let Some(predicate) = conjunction(renamed) else {
            return Ok(None);
        };
        let df_schema = DFSchema::try_from(file_schema.clone())?;
        Ok(state.create_physical_expr(predicate, &df_schema).ok())
    }
}

#[derive(Default)]
struct Pruned {
    files: Vec<(i64, Arc<DataFile>)>,
    files_total: u64,
    bytes_total: u64,
}

fn lit_true() -> Arc<dyn PhysicalExpr> {
    datafusion::physical_expr::expressions::lit(true)
}

fn unqualified(expr: Expr) -> Result<Expr> {
    Ok(expr
        .transform(|e| match e {
            Expr::Column(c) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                c.name,
            )))),
            other => Ok(Transformed::no(other)),
        })?
        .data)
}

fn query_schema(columns: &[TableColumn]) -> Result<SchemaRef> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|c| Field::new(query_name(&c.name), c.data_type.clone(), true))
        .collect();
    for (i, field) in fields.iter().enumerate() {
        if fields[..i].iter().any(|f| f.name() == field.name()) {
            return Err(DataFusionError::Plan(format!(
                "two columns are called `{}` when case is left aside",
                field.name()
            )));
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

pub(crate) fn external(error: TableError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn selection(kept: &[std::ops::Range<u64>], rows: u64) -> RowSelection {
    let mut selectors = Vec::with_capacity(kept.len() * 2 + 1);
    let mut at = 0;
    for range in kept {
        if range.start > at {
            selectors.push(RowSelector::skip((range.start - at) as usize));
        }
        selectors.push(RowSelector::select((range.end - range.start) as usize));
        at = range.end;
    }
    if at < rows {
        selectors.push(RowSelector::skip((rows - at) as usize));
    }
    RowSelection::from(selectors)
}

async fn rows_in_footer(location: &windrow_delta::Location, meta: &ObjectMeta) -> Result<u64> {
    let store = location.root_store();
    let metadata = DFParquetMetadata::new(store.as_ref(), meta)
        .fetch_metadata()
        .await?;
    Ok(metadata.file_metadata().num_rows().unsigned_abs())
}

#[async_trait]
impl TableProvider for DeltaSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let pruned = self.pruned(state, filters).await?;
        let bytes_scanned = pruned
            .files
            .iter()
            .map(|(_, f)| f.size.unsigned_abs())
            .sum();
        self.log.add(ScanRecord {
            source: self.name.clone(),
            files_total: pruned.files_total,
            files_scanned: pruned.files.len() as u64,
            bytes_total: pruned.bytes_total,
            bytes_scanned,
            filters: filters.iter().map(ToString::to_string).collect(),
        });
        let wanted: Vec<usize> = projection
            .cloned()
            .unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let out_schema = Arc::new(self.schema.project(&wanted)?);
        if pruned.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(out_schema)));
        }

        let location = self.table.location();
        state
            .runtime_env()
            .register_object_store(&location.store_url(), location.root_store());
        let (in_file, in_path): (Vec<&TableColumn>, Vec<&TableColumn>) =
            self.columns.iter().partition(|c| !self.is_partition(c));
        let file_schema = Arc::new(Schema::new(
            in_file
                .iter()
                .map(|c| Field::new(&c.physical_name, c.physical_type.clone(), true))
                .collect::<Vec<_>>(),
        ));
        let mut partition_fields: Vec<FieldRef> = in_path
            .iter()
            .map(|c| Arc::new(Field::new(query_name(&c.name), c.data_type.clone(), true)))
            .collect();
        if self.files.is_some() {
            partition_fields.push(Arc::new(Field::new(FILE_COLUMN, DataType::Int64, false)));
        }
        let mut source = ParquetSource::new(
            FileTableSchema::builder(file_schema.clone())
                .with_table_partition_cols(partition_fields)
                .build(),
        )
        .with_table_parquet_options(parquet_options(state));
        if let Some(predicate) = self.reader_predicate(state, filters, &file_schema)? {
            source = source.with_predicate(predicate);
        }

        // Where each wanted column stands in the scan: the files' columns, then the constants.
        let positions: Vec<usize> = wanted
            .iter()
            .map(|i| match self.columns.get(*i) {
                None => in_file.len() + in_path.len(),
                Some(column) => match in_file.iter().position(|c| c.name == column.name) {
                    Some(at) => at,
                    None => {
                        in_file.len()
                            + in_path
                                .iter()
                                .position(|c| c.name == column.name)
                                .unwrap_or(0)
                    }
                },
            })
            .collect();

        let mut rows = Some(0u64);
        let mut files = Vec::with_capacity(pruned.files.len());
        for (index, file) in &pruned.files {
            rows = rows
                .zip(record_count(file.stats.as_deref()))
                .map(|(a, b)| a + b);
            files.push(self.partitioned_file(*index, file).await?);
        }
        let groups = balanced(files, state.config().target_partitions());
        // Inexact on purpose: exact counts would let the optimizer answer from statistics alone.
        let mut statistics = Statistics::new_unknown(&Schema::new(
            (0..file_schema.fields().len() + in_path.len() + usize::from(self.files.is_some()))
                .map(|i| Field::new(format!("c{i}"), DataType::Null, true))
                .collect::<Vec<_>>(),
        ));
        statistics.total_byte_size = Precision::Inexact(bytes_scanned as usize);
        if let Some(rows) = rows {
            statistics.num_rows = Precision::Inexact(rows as usize);
        }
        let store_url = ObjectStoreUrl::parse(location.store_url().as_str())?;
        let config = FileScanConfigBuilder::new(store_url, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(positions))?
            .build();
        let scan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
        let scanned = scan.schema();
        if scanned.fields() == out_schema.fields() {
            return Ok(scan);
        }
        let exprs = out_schema
            .fields()
            .iter()
            .enumerate()
            .map(|(i, field)| {
                let column: Arc<dyn PhysicalExpr> =
                    Arc::new(PhysicalColumn::new(scanned.field(i).name(), i));
                let expr = relabel(column, scanned.field(i), field);
                (expr, field.name().clone())
            })
            .collect::<Vec<_>>();
        Ok(Arc::new(ProjectionExec::try_new(exprs, scan)?))
    }
}

/// Files in groups of about equal bytes, so that every partition has work.
fn balanced(mut files: Vec<PartitionedFile>, partitions: usize) -> Vec<FileGroup> {
    files.sort_by_key(|f| std::cmp::Reverse(f.object_meta.size));
    let count = partitions.clamp(1, files.len().max(1));
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = vec![(0, Vec::new()); count];
    for file in files {
        if let Some(group) = groups.iter_mut().min_by_key(|g| g.0) {
            group.0 += file.object_meta.size;
            group.1.push(file);
        }
    }
    groups
        .into_iter()
        .map(|(_, files)| FileGroup::new(files))
        .collect()
}

/// A table of which only the columns are known: one that an earlier flow of the update will make.
#[derive(Debug)]
pub struct PlannedTable {
    schema: SchemaRef,
}

impl PlannedTable {
    /// `schema` with names as queries know them.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema }
    }
}

#[async_trait]
impl TableProvider for PlannedTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        no_rows(&self.schema, projection)
    }
}

/// How Parquet files are read. A source does not take this from the session by itself: times that
/// Spark wrote as 96-bit integers would be read as nanoseconds, and overflow beyond the year 2262.
pub(crate) fn parquet_options(state: &dyn Session) -> TableParquetOptions {
    let mut options = TableParquetOptions::default();
    let session = &state.config_options().execution.parquet;
    options.global.coerce_int96 = session.coerce_int96.clone();
    options
}

/// A scan of a table in which there is nothing.
pub(crate) fn no_rows(
    schema: &SchemaRef,
    projection: Option<&Vec<usize>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = match projection {
        Some(indices) => Arc::new(schema.project(indices)?),
        None => schema.clone(),
    };
    Ok(Arc::new(EmptyExec::new(schema)))
}
