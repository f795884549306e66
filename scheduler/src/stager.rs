//! Staging: the files that a flow writes before anybody sees them, and the rules that their rows keep.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::{FutureExt, StreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tracing::Instrument;
use windrow_delta::stats::indexed_columns;
use windrow_delta::{Location, Table};
use windrow_executor::local;
use windrow_executor::stage::{RowRule, RuleKind, StageSpec, StagedFile};

use crate::contents::wanted_properties;
use crate::engine::{StageEngine, StageJob};
use crate::evolve::Fill;
use crate::flow::{FlowPlan, planned};
use crate::project::ProjectTable;
use crate::removal::{Removal, kept_rows};
use crate::run::{RowsForm, RunContext, Stopped, physical};
use crate::spans;

/// Bytes of files that were staged, since the process began.
pub(crate) static STAGED_BYTES: windrow_delta::figures::Counter =
    windrow_delta::figures::Counter::new();

/// The rows of a slice.
pub(crate) enum SliceRows {
    Planned(Arc<dyn ExecutionPlan>),
    /// Planned when its turn comes: of ten thousand slices only those that run take memory.
    ToPlan(LogicalPlan),
}

/// Stages files for one flow and remembers them.
pub(crate) struct Stager<'a> {
    plan: &'a FlowPlan,
    pub(crate) location: Location,
    spec: StageSpec,
    rules: Vec<RowRule>,
    partitions: usize,
    engine: Arc<dyn StageEngine>,
    job: StageJob,
    /// The window's rows.
    pub(crate) files: Vec<StagedFile>,
    /// Everything that was staged, used or not.
    all: Vec<String>,
    copies: u32,
    read: Mutex<Option<u64>>,
    /// A commit that names the files was sent, and no answer says that it was not made.
    pub(crate) may_be_committed: bool,
}

impl<'a> Stager<'a> {
    pub(crate) fn new(
        context: &RunContext<'_>,
        plan: &'a FlowPlan,
        table: &ProjectTable,
        location: &Location,
    ) -> Result<Self, Stopped> {
        let schema = &plan.evolved.schema;
        let partition_columns = schema
            .partition_columns
            .iter()
            .filter_map(|p| schema.columns.iter().position(|c| c.name == *p))
            .collect();
        let properties = wanted_properties(plan, context.project, table);
        let names: Vec<String> = schema
            .file_columns()
            .map(|c| c.physical_name.clone())
            .collect();
        let map = properties.iter().cloned().collect();
        let target_file_size = properties
            .iter()
            .find(|(k, _)| k == "delta.targetFileSize")
            .and_then(|(_, v)| parse_bytes(v))
            .or_else(|| {
                context
                    .project
                    .setting("windrow.targetFileSize")
                    .and_then(parse_bytes)
            })
            .unwrap_or(128 << 20);
        let runtime = plan.bound.state.runtime_env();
        runtime.register_object_store(&location.store_url(), location.root_store());
        Ok(Self {
            plan,
            spec: StageSpec {
                store_url: location.store_url().to_string(),
                table_path: location.root_path()?.to_string(),
                partition_columns,
                stats_columns: indexed_columns(&names, &map),
                target_file_size,
                file_prefix: String::new(),
                attempt: 0,
            },
            rules: rules(plan, &properties)?,
            location: location.clone(),
            partitions: context.partitions,
            engine: context.stages.clone(),
            job: StageJob {
                update: context.update_id.to_string(),
                flow: context.project.flows[plan.flow].name.clone(),
                slice: context.slice.map_or(0, |s| s.number),
                stores: context.project.config.store_options.clone(),
            },
            files: Vec::new(),
            all: Vec::new(),
            copies: 0,
            read: Mutex::new(Some(0)),
            may_be_committed: false,
        }
        .named(context.update_id, context.slice.map_or(0, |s| s.number)))
    }

    fn named(mut self, update_id: &str, slice: usize) -> Self {
        self.spec.file_prefix = file_prefix(update_id, slice);
        self
    }

    /// Stages the window's rows, slice by slice, at most `parallel` of them at a time.
    pub(crate) async fn stage_slices(
        &mut self,
        slices: Vec<SliceRows>,
        form: RowsForm,
        input_bytes: u64,
        parallel: usize,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let count = slices.len();
        let outcomes: Vec<_> = {
            let (this, form) = (&*self, &form);
            let slice = |(number, rows)| async move {
                let rows = match rows {
                    SliceRows::Planned(rows) => rows,
                    SliceRows::ToPlan(rows) => physical(this.plan, form, rows).await?,
                };
                this.slice(number, count, rows, input_bytes).await
            };
            let slices = slices.into_iter().enumerate();
            let running: Vec<_> = slices.map(|part| slice(part).boxed()).collect();
            futures::stream::iter(running)
                .buffered(parallel.max(1))
                .collect()
                .await
        };
        // What the others staged must be known when one of them failed.
        let mut files = Vec::new();
        let mut failed = None;
        for outcome in outcomes {
            match outcome {
                Ok(staged) => files.extend(staged),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.all.extend(files.iter().map(|f| f.path.clone()));
        match failed {
            None => Ok(files),
            Some(error) => Err(error),
        }
    }

    async fn slice(
        &self,
        number: usize,
        count: usize,
        rows: Arc<dyn ExecutionPlan>,
        input_bytes: u64,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let (mut spec, mut job) = (self.spec.clone(), self.job.clone());
        if count > 1 {
            spec.file_prefix = format!("{}.{number}", spec.file_prefix);
            job.slice = number;
        }
        let bytes = input_bytes / count.max(1) as u64;
        self.run(rows, spec, &job, bytes, true).await
    }

    async fn stage(
        &mut self,
        rows: Arc<dyn ExecutionPlan>,
        input_bytes: u64,
        in_window: bool,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let (spec, job) = (self.spec.clone(), self.job.clone());
        let files = self.run(rows, spec, &job, input_bytes, in_window).await?;
        self.all.extend(files.iter().map(|f| f.path.clone()));
        Ok(files)
    }

    /// Bytes that the scans of what was staged have read; `None` when they ran where nobody counts.
    pub(crate) fn bytes_read(&self) -> Option<u64> {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(
        &self,
        rows: Arc<dyn ExecutionPlan>,
        spec: StageSpec,
        job: &StageJob,
        input_bytes: u64,
        in_window: bool,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let by_size = (input_bytes / spec.target_file_size.max(1) + 1)
            .min(self.partitions as u64)
            .max(1) as usize;
        // The rows of a partition value meet in one task: more tasks make no more files.
        let writers = match spec.partition_columns.is_empty() {
            true => by_size,
            false => self.partitions.max(1),
        };
        // Rows that stay are what they were; the rules are for new ones.
        let rules = if in_window {
            self.rules.clone()
        } else {
            Vec::new()
        };
        let named = self.with_table_names(rows)?;
        let plan = local::stage_plan(named, spec, rules, writers)?;
        let span = spans::slice(job.slice);
        let run = self
            .engine
            .run_stage(job, &self.plan.bound.state, plan.clone());
        let staged = run.instrument(span.clone()).await?;
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            *read = read.zip(local::bytes_read(&plan)).map(|(a, b)| a + b);
        }
        let bytes: u64 = staged.iter().map(|f| f.bytes.unsigned_abs()).sum();
        span.record("files", staged.len());
        span.record("bytes", bytes);
        STAGED_BYTES.add(bytes);
        Ok(staged)
    }

    /// Copies the rows that stay of straddling files.
    pub(crate) async fn copy(
        &mut self,
        plan: &FlowPlan,
        target: &Table,
        removal: &Removal,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let Some(rows) = kept_rows(plan, target, removal.rewrite.clone())? else {
            return Ok(Vec::new());
        };
        self.copies += 1;
        let prefix = std::mem::take(&mut self.spec.file_prefix);
        self.spec.file_prefix = format!("{prefix}-c{}", self.copies);
        let bytes = removal.rewrite.iter().map(|f| f.size.unsigned_abs()).sum();
        let physical = local::physical(&plan.bound.state, &rows).await?;
        let staged = self.stage(physical, bytes, false).await;
        self.spec.file_prefix = prefix;
        let staged = staged?;
        let rows: u64 = staged.iter().map(|f| f.rows.unsigned_abs()).sum();
        let is_exact = plan.effective().is_none_or(|p| !p.expr.is_volatile());
        if is_exact && rows != removal.copied_rows {
            return Err(DataFusionError::Internal(format!(
                "{rows} rows were copied where {} stay",
                removal.copied_rows
            )));
        }
        Ok(staged)
    }

    /// The table's own names and exact types, in the table's order.
    fn with_table_names(
        &self,
        rows: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let schema = rows.schema();
        let exprs: Vec<(Arc<dyn PhysicalExpr>, String)> = self
            .plan
            .evolved
            .schema
            .columns
            .iter()
            .enumerate()
            .map(|(i, c)| {
                let column: Arc<dyn PhysicalExpr> =
                    Arc::new(PhysicalColumn::new(schema.field(i).name(), i));
                (column, c.name.clone())
            })
            .collect();
        Ok(Arc::new(ProjectionExec::try_new(exprs, rows)?))
    }

    pub(crate) async fn forget_all_but(&self, kept: &[StagedFile]) {
        let unused: Vec<&String> = self
            .all
            .iter()
            .filter(|p| !self.files.iter().chain(kept).any(|f| f.path == **p))
            .collect();
        self.delete(unused).await;
    }

    /// Removes what was staged for nothing. Files that a commit names stay, and so do those of a commit
    /// of which it is not known whether it was made: `vacuum` finds them where it was not.
    pub(crate) async fn discard(&self) {
        if !self.may_be_committed {
            self.delete(self.all.iter().collect()).await;
        }
    }

    async fn delete(&self, paths: Vec<&String>) {
        let store = self.location.store();
        for path in paths {
            let Ok(object) = Path::parse(path) else {
                continue;
            };
            if let Err(error) = store.delete(&object).await {
                tracing::debug!(%error, path, "a staged file was not removed");
            }
        }
    }
}

/// How the names of staged files begin: with the update and the slice, and with what no other try of that
/// slice has. A flow that is tried again within its update would otherwise stage under the names of before,
/// and a task of before that still runs, and removes what it staged once it fails, would remove those.
pub(crate) fn file_prefix(update_id: &str, slice: usize) -> String {
    let own = uuid::Uuid::new_v4().simple().to_string();
    format!("part-{update_id}-{}-s{slice}", &own[..8])
}

/// The rules that every new row must keep.
fn rules(plan: &FlowPlan, properties: &[(String, String)]) -> Result<Vec<RowRule>, Stopped> {
    let mut rules = Vec::new();
    let schema = &plan.target_schema;
    let df_schema = datafusion::common::DFSchema::try_from(schema.as_ref().clone())?;
    let typed = |expr: Expr| -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
        let typed = windrow_executor::predicate::typed(&plan.bound.state, schema, expr)?;
        plan.bound
            .state
            .create_physical_expr(typed.expr, &df_schema)
    };
    let column = |name: &str| Expr::Column(datafusion::common::Column::new_unqualified(name));
    for (column_def, field) in plan.evolved.schema.columns.iter().zip(schema.fields()) {
        if !column_def.nullable {
            rules.push(RowRule {
                name: column_def.name.clone(),
                kind: RuleKind::NotNull,
                expr: typed(column(field.name()).is_not_null())?,
            });
        }
    }
    for (index, fill) in plan.evolved.fills.iter().enumerate() {
        let column_def = &plan.evolved.schema.columns[index];
        if let (Fill::Query { .. }, Some(sql)) = (fill, column_def.generation_expression()) {
            let computed = datafusion::logical_expr::cast(
                planned(&plan.bound, schema, sql)?,
                column_def.data_type.clone(),
            );
            let own = column(schema.field(index).name());
            let same = datafusion::logical_expr::binary_expr(
                own,
                datafusion::logical_expr::Operator::IsNotDistinctFrom,
                computed,
            );
            rules.push(RowRule {
                name: column_def.name.clone(),
                kind: RuleKind::Generated,
                expr: typed(same)?,
            });
        }
    }
    for (key, sql) in properties {
        if let Some(name) = key.strip_prefix("delta.constraints.") {
            let expr = planned(&plan.bound, schema, sql)?;
            rules.push(RowRule {
                name: name.to_string(),
                kind: RuleKind::Check,
                expr: typed(expr)?,
            });
        }
    }
    // A predicate that selects other rows each time can't be held against its own rows.
    if let Some(effective) = plan.effective().filter(|p| !p.is_true())
        && !effective.expr.is_volatile()
    {
        rules.push(RowRule {
            name: windrow_flows::render::sql(&effective.expr),
            kind: RuleKind::Window,
            expr: plan
                .bound
                .state
                .create_physical_expr(effective.expr.clone(), &df_schema)?,
        });
    }
    Ok(rules)
}

/// A number of bytes, also as `64m` or `4g`.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let number: u64 = digits.trim().parse().ok()?;
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tries_of_a_slice_stage_under_one_name() {
        let (first, second) = (file_prefix("u", 3), file_prefix("u", 3));
        assert_ne!(first, second);
        for prefix in [first, second] {
            assert!(prefix.starts_with("part-u-") && prefix.ends_with("-s3"));
        }
    }
}
