//! The staged-file writer: a plan node that writes its input as Parquet files which no reader sees
//! yet, and gives one row per file, with the `add` action that would make it visible.
//!
//! One partition of the input is one task. Rows of one partition value must come together (the plan
//! sorts them so); a file holds one partition value and is closed at the target size. Rows that
//! break a rule of the table stop the task; a task that stops removes what it wrote.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use datafusion::arrow::compute::partition;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::AsyncArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::json;
use windrow_delta::partition as partition_value;
use windrow_delta::stats::StatsCollector;

/// A rule that every staged row must keep.
#[derive(Debug, Clone)]
pub struct RowRule {
    /// The constraint's or column's name, for the message.
    pub name: String,
    pub kind: RuleKind,
    /// Boolean, over the staged columns. Only TRUE keeps the rule.
    pub expr: Arc<dyn PhysicalExpr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// A CHECK constraint of the target.
    Check,
    /// A NOT NULL column of the target.
    NotNull,
    /// A generated column that the query gives another value than its expression.
    Generated,
    /// The window: a row outside it would be a fault of ours.
    Window,
}

/// Where and how to stage.
#[derive(Debug, Clone, PartialEq)]
pub struct StageSpec {
    /// `scheme://bucket/`, under which the runtime knows the store.
    pub store_url: String,
    /// The table's folder in that store.
    pub table_path: String,
    /// Partition columns, by position in the input; they are not written into the files.
    pub partition_columns: Vec<usize>,
    /// Names of the columns that get statistics.
    pub stats_columns: Vec<String>,
    /// Bytes at which a file is closed.
    pub target_file_size: u64,
    /// First part of each file's name: update and slice. The attempt and the task follow.
    pub file_prefix: String,
    /// Which try of the same work this is: files of another try never have the same name.
    pub attempt: u32,
}

/// What a row of the node's output says.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedFile {
    pub task: u32,
    /// Path relative to the table's folder.
    pub path: String,
    pub bytes: i64,
    pub rows: i64,
    /// The `add` action as JSON.
    pub add: serde_json::Value,
}

fn output_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("task", DataType::UInt32, false),
        Field::new("path", DataType::Utf8, false),
        Field::new("bytes", DataType::Int64, false),
        Field::new("rows", DataType::Int64, false),
        Field::new("add", DataType::Utf8, false),
    ]))
}

impl StagedFile {
    /// Reads the rows that a [`StageExec`] gave.
    pub fn from_batch(batch: &RecordBatch) -> Result<Vec<Self>> {
        use datafusion::common::cast::{as_int64_array, as_string_array, as_uint32_array};
        let tasks = as_uint32_array(batch.column(0))?;
        let paths = as_string_array(batch.column(1))?;
        let bytes = as_int64_array(batch.column(2))?;
        let rows = as_int64_array(batch.column(3))?;
        let adds = as_string_array(batch.column(4))?;
        (0..batch.num_rows())
            .map(|i| {
                Ok(Self {
                    task: tasks.value(i),
                    path: paths.value(i).to_string(),
                    bytes: bytes.value(i),
                    rows: rows.value(i),
                    add: serde_json::from_str(adds.value(i))
                        .map_err(|e| DataFusionError::External(Box::new(e)))?,
                })
            })
            .collect()
    }

    fn to_batch(files: &[Self]) -> Result<RecordBatch> {
        let text = |f: &dyn Fn(&Self) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(files.iter().map(f)))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(files.iter().map(|f| f.task))),
            text(&|f| f.path.clone()),
            Arc::new(Int64Array::from_iter_values(files.iter().map(|f| f.bytes))),
            Arc::new(Int64Array::from_iter_values(files.iter().map(|f| f.rows))),
            text(&|f| f.add.to_string()),
        ];
        Ok(RecordBatch::try_new(output_schema(), columns)?)
    }
}

/// A row that breaks a rule of its target.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.message())]
pub struct RuleBroken {
    pub kind: RuleKind,
    pub name: String,
    /// The first such row, column by column.
    pub row: String,
}

impl RuleBroken {
    pub fn code(&self) -> &'static str {
        match self.kind {
            RuleKind::Check => "CHECK_CONSTRAINT_VIOLATED",
            RuleKind::NotNull => "NOT_NULL_VIOLATED",
            RuleKind::Generated => "GENERATED_COLUMN_MISMATCH",
            RuleKind::Window => "ROW_OUTSIDE_WINDOW",
        }
    }

    fn message(&self) -> String {
        let (name, row) = (&self.name, &self.row);
        match self.kind {
            RuleKind::Check => format!("a row breaks the table's constraint `{name}`: {row}"),
            RuleKind::NotNull => {
                format!("column `{name}` is NOT NULL, but a row has no value: {row}")
            }
            RuleKind::Generated => {
                format!("generated column `{name}` has another value than its expression: {row}")
            }
            RuleKind::Window => format!("a row lies outside the window {name}: {row}"),
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct StageExec {
    spec: StageSpec,
    rules: Vec<RowRule>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StageExec {
    pub fn new(spec: StageSpec, rules: Vec<RowRule>, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(output_schema()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Self {
            spec,
            rules,
            input,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub fn spec(&self) -> &StageSpec {
        &self.spec
    }

    /// The same work as another try.
    #[must_use]
    pub fn with_attempt(&self, attempt: u32) -> Self {
        let spec = StageSpec {
            attempt,
            ..self.spec.clone()
        };
        Self::new(spec, self.rules.clone(), self.input.clone())
    }

    pub fn rules(&self) -> &[RowRule] {
        &self.rules
    }

    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

impl DisplayAs for StageExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StageExec: {}, rules={}",
            self.spec.table_path,
            self.rules.len()
        )
    }
}

impl ExecutionPlan for StageExec {
    fn name(&self) -> &str {
        "StageExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for rule in &self.rules {
            if f(&rule.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(
                self.spec.clone(),
                self.rules.clone(),
                input,
            ))),
            Err(_) => Err(DataFusionError::Internal("StageExec has one input".into())),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context.clone())?;
        let url = url::Url::parse(&self.spec.store_url)
            .map_err(|e| DataFusionError::External(Box::new(e)))?;
        let store = context
            .runtime_env()
            .object_store_registry
            .get_store(&url)?;
        let schema = input.schema();
        let (task, label) = match context.task_id().as_deref().and_then(remote_task) {
            Some((task, label)) => (task, label),
            None => (partition as u32, partition.to_string()),
        };
        let task = StageTask {
            spec: self.spec.clone(),
            rules: self.rules.clone(),
            task,
            label,
            store,
            file_schema: file_schema(&schema, &self.spec.partition_columns),
            schema,
            open: None,
            done: Vec::new(),
            rows: MetricBuilder::new(&self.metrics).counter("rows_staged", partition),
            bytes: MetricBuilder::new(&self.metrics).counter("bytes_staged", partition),
        };
        let stream = futures::stream::once(task.run(input));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            output_schema(),
            stream,
        )))
    }
}

/// The number and the name of a task of the distributed runtime, which calls it
/// `TID job/stage.attempt/task.attempt`. Each of its tasks sees its partition as the first one.
fn remote_task(id: &str) -> Option<(u32, String)> {
    let mut parts = id.strip_prefix("TID ")?.split('/').skip(1);
    let (stage, task) = (parts.next()?, parts.next()?);
    let number = task.split('.').next()?.parse().ok()?;
    Some((number, format!("{task}-{stage}")))
}

fn file_schema(schema: &Schema, partition_columns: &[usize]) -> SchemaRef {
    Arc::new(Schema::new(
        schema
            .fields()
            .iter()
            .enumerate()
            .filter(|(i, _)| !partition_columns.contains(i))
            .map(|(_, f)| f.as_ref().clone())
            .collect::<Vec<_>>(),
    ))
}

struct OpenFile {
    values: Vec<Option<String>>,
    path: String,
    writer: AsyncArrowWriter<BufWriter>,
    stats: StatsCollector,
}

struct StageTask {
    spec: StageSpec,
    rules: Vec<RowRule>,
    task: u32,
    label: String,
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    file_schema: SchemaRef,
    open: Option<OpenFile>,
    done: Vec<StagedFile>,
    rows: Count,
    bytes: Count,
}

impl StageTask {
    async fn run(mut self, input: SendableRecordBatchStream) -> Result<RecordBatch> {
        match self.write_all(input).await {
            Ok(()) => StagedFile::to_batch(&self.done),
            Err(error) => {
                self.discard().await;
                Err(error)
            }
        }
    }

    async fn write_all(&mut self, mut input: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = input.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            self.check(&batch)?;
            if self.spec.partition_columns.is_empty() {
                self.write(Vec::new(), &batch).await?;
                continue;
            }
            let keys: Vec<ArrayRef> = self
                .spec
                .partition_columns
                .iter()
                .map(|i| batch.column(*i).clone())
                .collect();
            for range in partition(&keys)?.ranges() {
                let values = keys
                    .iter()
                    .zip(&self.spec.partition_columns)
                    .map(|(key, column)| {
                        partition_value::value_text(key, range.start).map_err(|reason| {
                            execution(format!(
                                "partition column `{}`: {reason} (row {})",
                                self.schema.field(*column).name(),
                                row_text(&batch, range.start)
                            ))
                        })
                    })
                    .collect::<Result<Vec<_>>>()?;
                self.write(values, &batch.slice(range.start, range.end - range.start))
                    .await?;
            }
        }
        self.close().await
    }

    fn check(&self, batch: &RecordBatch) -> Result<()> {
        for rule in &self.rules {
            let verdict = rule.expr.evaluate(batch)?.into_array(batch.num_rows())?;
            let verdict = as_boolean_array(&verdict)?;
            if verdict.true_count() == batch.num_rows() {
                continue;
            }
            let broken = (0..batch.num_rows()).find(|row| {
                !verdict.value(*row) || datafusion::arrow::array::Array::is_null(verdict, *row)
            });
            if let Some(row) = broken {
                return Err(DataFusionError::External(Box::new(RuleBroken {
                    kind: rule.kind,
                    name: rule.name.clone(),
                    row: row_text(batch, row),
                })));
            }
        }
        Ok(())
    }

    async fn write(&mut self, values: Vec<Option<String>>, batch: &RecordBatch) -> Result<()> {
        if self.open.as_ref().is_some_and(|f| f.values != values) {
            self.close().await?;
        }
        if self.open.is_none() {
            self.open = Some(self.start(values)?);
        }
        let Some(file) = self.open.as_mut() else {
            return Ok(());
        };
        let kept: Vec<usize> = (0..batch.num_columns())
            .filter(|i| !self.spec.partition_columns.contains(i))
            .collect();
        let batch = RecordBatch::try_new(
            self.file_schema.clone(),
            batch.project(&kept)?.columns().to_vec(),
        )?;
        file.stats.update(&batch)?;
        file.writer.write(&batch).await?;
        self.rows.add(batch.num_rows());
        let size = file.writer.bytes_written() + file.writer.in_progress_size();
        if size as u64 >= self.spec.target_file_size {
            self.close().await?;
        }
        Ok(())
    }

    fn start(&self, values: Vec<Option<String>>) -> Result<OpenFile> {
        let mut path = String::new();
        for (value, column) in values.iter().zip(&self.spec.partition_columns) {
            path.push_str(&partition_value::folder(
                self.schema.field(*column).name(),
                value.as_deref(),
            ));
            path.push('/');
        }
        path.push_str(&format!(
            "{}-a{}-t{}-{:05}.zstd.parquet",
            self.spec.file_prefix,
            self.spec.attempt,
            self.label,
            self.done.len()
        ));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            // Bounds are exact in the log, so they may be exact in the file.
            .set_statistics_truncate_length(None)
            .set_created_by(concat!("windrow ", env!("CARGO_PKG_VERSION")).to_string())
            .build();
        let writer = BufWriter::new(self.store.clone(), self.object_path(&path)?);
        Ok(OpenFile {
            values,
            path,
            writer: AsyncArrowWriter::try_new(writer, self.file_schema.clone(), Some(properties))?,
            stats: StatsCollector::new(&self.file_schema, &self.spec.stats_columns),
        })
    }

    fn object_path(&self, relative: &str) -> Result<Path> {
        let full = match self.spec.table_path.as_str() {
            "" => relative.to_string(),
            folder => format!("{folder}/{relative}"),
        };
        Path::parse(full).map_err(|e| DataFusionError::External(Box::new(e)))
    }

    async fn close(&mut self) -> Result<()> {
        let Some(mut file) = self.open.take() else {
            return Ok(());
        };
        file.writer.finish().await?;
        let bytes = file.writer.bytes_written() as i64;
        self.bytes.add(bytes as usize);
        let rows = file.stats.rows() as i64;
        let partition_values: serde_json::Map<String, serde_json::Value> = file
            .values
            .iter()
            .zip(&self.spec.partition_columns)
            .map(|(value, column)| (self.schema.field(*column).name().clone(), json!(value)))
            .collect();
        let add = json!({"add": {
            "path": partition_value::path_in_log(&file.path),
            "partitionValues": partition_values,
            "size": bytes,
            "modificationTime": chrono::Utc::now().timestamp_millis(),
            "dataChange": true,
            "stats": file.stats.finish(),
        }});
        self.done.push(StagedFile {
            task: self.task,
            path: file.path,
            bytes,
            rows,
            add,
        });
        Ok(())
    }

    async fn discard(&mut self) {
        if let Some(file) = self.open.take() {
            let mut writer = file.writer.into_inner();
            if let Err(error) = writer.abort().await {
                tracing::debug!(%error, path = file.path, "an upload was not aborted");
            }
        }
        for file in &self.done {
            let Ok(path) = self.object_path(&file.path) else {
                continue;
            };
            if let Err(error) = self.store.delete(&path).await {
                tracing::debug!(%error, path = file.path, "a staged file was not removed");
            }
        }
    }
}

fn execution(message: String) -> DataFusionError {
    DataFusionError::Execution(message)
}

/// A row as `a=1, b=x`, at most twenty columns of it.
pub fn row_text(batch: &RecordBatch, row: usize) -> String {
    use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
    let options = FormatOptions::default().with_null("NULL");
    batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .take(20)
        .map(
            |(field, column)| match ArrayFormatter::try_new(column.as_ref(), &options) {
                Ok(formatter) => format!("{}={}", field.name(), formatter.value(row)),
                Err(_) => format!("{}=?", field.name()),
            },
        )
        .collect::<Vec<_>>()
        .join(", ")
}
