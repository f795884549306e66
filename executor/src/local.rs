//! The local engine: plans that stage files, run in this process.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::TryStreamExt;

use crate::stage::{RowRule, StageExec, StageSpec, StagedFile};

/// The physical plan that stages the rows of `input`.
///
/// Rows of one partition value meet in one task, so that a value has few files; `writers` bounds
/// the number of tasks, so that a small result does not become many small files.
pub fn stage_plan(
    input: Arc<dyn ExecutionPlan>,
    spec: StageSpec,
    rules: Vec<RowRule>,
    writers: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let keys: Vec<Arc<dyn PhysicalExpr>> = spec
        .partition_columns
        .iter()
        .map(|i| Arc::new(Column::new(schema.field(*i).name(), *i)) as Arc<dyn PhysicalExpr>)
        .collect();
    let many = input.output_partitioning().partition_count();
    let mut plan = input;
    if writers <= 1 {
        if many > 1 {
            plan = Arc::new(CoalescePartitionsExec::new(plan));
        }
    } else if !keys.is_empty() {
        plan = Arc::new(RepartitionExec::try_new(
            plan,
            Partitioning::Hash(keys.clone(), writers),
        )?);
    } else if many != writers {
        plan = Arc::new(RepartitionExec::try_new(
            plan,
            Partitioning::RoundRobinBatch(writers),
        )?);
    }
    let ordering = LexOrdering::new(
        keys.into_iter()
            .map(PhysicalSortExpr::new_default)
            .collect::<Vec<_>>(),
    );
    if let Some(ordering) = ordering {
        plan = Arc::new(SortExec::new(ordering, plan).with_preserve_partitioning(true));
    }
    Ok(Arc::new(StageExec::new(spec, rules, plan)))
}

/// Plans `logical` for this machine. The state's clock and catalog are used as they are.
pub async fn physical(
    state: &SessionState,
    logical: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    state.create_physical_plan(logical).await
}

/// Plans `optimized`, which the optimizer has made of a logical plan, for this machine.
pub async fn physical_of_optimized(
    state: &SessionState,
    optimized: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    state
        .query_planner()
        .create_physical_plan(optimized, state)
        .await
}

/// Plans `logical`, all of whose expressions are typed already, for this machine: the analyzer is
/// left out, the optimizer is not.
pub async fn physical_of_typed(
    state: &SessionState,
    logical: LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = state.optimizer().optimize(logical, state, |_, _| {})?;
    physical_of_optimized(state, &optimized).await
}

/// The bytes that the scans of a plan have read of their files since it began to run; `None` when that
/// was not counted, which is so for a plan that ran elsewhere.
pub fn bytes_read(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let mut total = 0u64;
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
        && scan
            .data_source()
            .downcast_ref::<FileScanConfig>()
            .is_some()
    {
        let counted = scan.metrics()?.sum_by_name("bytes_scanned")?;
        total += counted.as_usize() as u64;
    }
    for child in plan.children() {
        total += bytes_read(child)?;
    }
    Some(total)
}

/// Runs a plan and gives up, with `None`, once it has more than `rows` rows or `bytes` bytes.
pub async fn collect_at_most(
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
    rows: usize,
    bytes: usize,
) -> Result<Option<Vec<RecordBatch>>> {
    let mut stream = execute_stream(plan, Arc::new(TaskContext::from(state)))?;
    let (mut batches, mut rows_so_far, mut bytes_so_far) = (Vec::new(), 0, 0);
    while let Some(batch) = stream.try_next().await? {
        rows_so_far += batch.num_rows();
        bytes_so_far += batch.get_array_memory_size();
        if rows_so_far > rows || bytes_so_far > bytes {
            return Ok(None);
        }
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
    Ok(Some(batches))
}

/// Runs a plan whose result is small.
pub async fn collect(
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Vec<RecordBatch>> {
    execute_stream(plan, Arc::new(TaskContext::from(state)))?
        .try_collect()
        .await
}

/// Runs a plan whose root is a [`StageExec`] and gives what it staged.
pub async fn run_stage(
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Vec<StagedFile>> {
    let batches = collect(state, plan).await?;
    let mut files = Vec::new();
    for batch in &batches {
        files.extend(StagedFile::from_batch(batch)?);
    }
    Ok(files)
}
