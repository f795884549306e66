//! Which files of the target a window takes away: whole ones unread, straddling ones rewritten
//! without the window's rows, all others not at all.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};
use futures::TryStreamExt;
use windrow_delta::prune::{Pruner, Verdict, record_count};
use windrow_delta::{DataFile, Table, TableError};
use windrow_executor::local;
use windrow_executor::predicate::TypedPredicate;
use windrow_executor::scan::{DeltaSource, FILE_COLUMN, ScanLog, query_name};

use crate::flow::FlowPlan;
use crate::incremental::keys::HIT;

/// What happens to the target's files.
#[derive(Debug, Default)]
pub struct Removal {
    /// Files that go, none of whose rows stay.
    pub remove: Vec<DataFile>,
    /// Files that go, of which some rows are copied.
    pub rewrite: Vec<DataFile>,
    pub files_total: u64,
    /// Files of which the log alone does not tell.
    pub looked_into: u64,
    /// Bytes of those files.
    pub looked_into_bytes: u64,
    /// Bytes of the files of which the log tells that they go.
    pub whole_bytes: u64,
    /// Rows of the window that go, as far as the statistics count rows.
    pub deleted_rows: u64,
    /// Rows of `rewrite` that stay.
    pub copied_rows: u64,
}

/// What reading told about a file, kept so that a second planning reads only new files.
#[derive(Debug, Clone, Copy)]
struct Counted {
    rows: u64,
    matching: u64,
}

/// Plans removals for one flow, again and again as the target moves on.
#[derive(Debug, Default)]
pub struct RemovalPlanner {
    counted: HashMap<(String, Option<String>), Counted>,
    read: u64,
}

fn key(file: &DataFile) -> (String, Option<String>) {
    let vector = file
        .deletion_vector
        .as_ref()
        .map(|v| v.to_json().to_string());
    (file.log_path.clone(), vector)
}

fn bytes_of(files: &[DataFile]) -> u64 {
    files.iter().map(|f| f.size.unsigned_abs()).sum()
}

/// Rows of a file that are there, by the log.
fn live_rows(file: &DataFile) -> Option<u64> {
    let gone = file
        .deletion_vector
        .as_ref()
        .map_or(0, |v| v.cardinality.unsigned_abs());
    Some(record_count(file.stats.as_deref())?.saturating_sub(gone))
}

impl RemovalPlanner {
    /// By the log alone, for a plan that is only shown: `looked_into` files stay undecided.
    pub async fn preview(plan: &FlowPlan, target: &Table) -> Result<Removal, TableError> {
        let (removal, unclear) = by_the_log(plan, target).await?;
        Ok(Removal {
            looked_into: unclear.len() as u64,
            looked_into_bytes: bytes_of(&unclear),
            ..removal
        })
    }

    /// Decides about every file of `target`, reading the predicate's columns where the log does
    /// not tell.
    pub async fn plan(
        &mut self,
        plan: &FlowPlan,
        target: &Table,
    ) -> Result<Removal, DataFusionError> {
        let (mut removal, unclear) = by_the_log(plan, target)
            .await
            .map_err(|e| DataFusionError::External(Box::new(e)))?;
        removal.looked_into = unclear.len() as u64;
        removal.looked_into_bytes = bytes_of(&unclear);
        let unread: Vec<DataFile> = unclear
            .iter()
            .filter(|f| !self.counted.contains_key(&key(f)))
            .cloned()
            .collect();
        self.count(plan, target, unread).await?;
        for file in unclear {
            match self.counted.get(&key(&file)) {
                Some(c) if c.matching == 0 => {}
                Some(c) if c.matching == c.rows => {
                    removal.deleted_rows += c.matching;
                    removal.remove.push(file);
                }
                Some(c) => {
                    removal.deleted_rows += c.matching;
                    removal.copied_rows += c.rows - c.matching;
                    removal.rewrite.push(file);
                }
                // A file without any row left: nothing of it can be in the window.
                None => {}
            }
        }
        Ok(removal)
    }

    /// Bytes that were read to look into files so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    async fn count(
        &mut self,
        plan: &FlowPlan,
        target: &Table,
        files: Vec<DataFile>,
    ) -> Result<(), DataFusionError> {
        let Some(effective) = plan.effective().filter(|_| !files.is_empty()) else {
            return Ok(());
        };
        let source = DeltaSource::of_files(target.clone(), files.clone(), ScanLog::default())?;
        let scan = LogicalPlanBuilder::scan("target", provider_as_source(Arc::new(source)), None)?
            .build()?;
        let rows = marked(plan, existing_rows(plan, target, scan, true)?)?;
        let matching = when(goes(plan, effective), lit(1i64)).end()?;
        let counts = LogicalPlanBuilder::from(rows)
            .aggregate(
                vec![Expr::Column(Column::new_unqualified(FILE_COLUMN))],
                vec![count(lit(1i64)).alias("n"), count(matching).alias("m")],
            )?
            .build()?;
        let physical = local::physical(&plan.bound.state, &counts).await?;
        let batches = local::collect(&plan.bound.state, physical.clone()).await?;
        let read = local::bytes_read(&physical).unwrap_or_else(|| bytes_of(&files));
        self.read += read;
        for batch in batches {
            let (index, rows, matching) = (
                batch.column(0).as_primitive::<Int64Type>(),
                batch.column(1).as_primitive::<Int64Type>(),
                batch.column(2).as_primitive::<Int64Type>(),
            );
            for i in 0..batch.num_rows() {
                let file = usize::try_from(index.value(i))
                    .ok()
                    .and_then(|i| files.get(i));
                if let Some(file) = file {
                    self.counted.insert(
                        key(file),
                        Counted {
                            rows: rows.value(i).unsigned_abs(),
                            matching: matching.value(i).unsigned_abs(),
                        },
                    );
                }
            }
        }
        Ok(())
    }
}

async fn by_the_log(
    plan: &FlowPlan,
    target: &Table,
) -> Result<(Removal, Vec<DataFile>), TableError> {
    let url = target.location().shown();
    let everything = plan.full_refresh || plan.effective().is_none();
    let pruner = match plan.effective().filter(|_| !everything) {
        Some(effective) => {
            let predicate =
                effective
                    .for_files(&plan.bound.state)
                    .map_err(|e| TableError::Query {
                        url: url.clone(),
                        source: Box::new(e),
                    })?;
            Some(Pruner::new(target.schema().clone(), predicate))
        }
        None => None,
    };
    let mut removal = Removal::default();
    let mut unclear = Vec::new();
    let mut batches = std::pin::pin!(target.files());
    while let Some(files) = batches.try_next().await? {
        removal.files_total += files.len() as u64;
        let verdicts = match &pruner {
            Some(pruner) => pruner.verdicts(&files, &url)?,
            None => vec![Verdict::EveryRow; files.len()],
        };
        for (file, verdict) in files.iter().zip(verdicts) {
            if verdict == Verdict::NoRow {
                continue;
            }
            let file = DataFile::clone(file);
            match verdict {
                Verdict::NoRow => {}
                // Which rows have a key of the scope is not in the log.
                Verdict::EveryRow if plan.scope.keys.is_some() => unclear.push(file),
                Verdict::EveryRow => {
                    removal.deleted_rows += live_rows(&file).unwrap_or(0);
                    removal.whole_bytes += file.size.unsigned_abs();
                    removal.remove.push(file);
                }
                Verdict::Unclear => unclear.push(file),
            }
        }
    }
    Ok((removal, unclear))
}

/// The rows of a scan of the existing target as rows of the target's columns after this update:
/// columns that are new are null.
pub fn existing_rows(
    plan: &FlowPlan,
    target: &Table,
    scan: LogicalPlan,
    with_file: bool,
) -> Result<LogicalPlan, DataFusionError> {
    let mut exprs = Vec::new();
    for field in plan.target_schema.fields() {
        let stored = target
            .schema()
            .columns
            .iter()
            .find(|c| query_name(&c.name) == *field.name());
        let column = Expr::Column(Column::new_unqualified(field.name()));
        exprs.push(match stored {
            None => lit(ScalarValue::try_from(field.data_type())?).alias(field.name()),
            Some(c) if c.data_type == *field.data_type() => column,
            Some(_) => cast(column, field.data_type().clone()).alias(field.name()),
        });
    }
    if with_file {
        exprs.push(Expr::Column(Column::new_unqualified(FILE_COLUMN)));
    }
    LogicalPlanBuilder::from(scan).project(exprs)?.build()
}

/// The rows that stay of the files that are rewritten.
pub fn kept_rows(
    plan: &FlowPlan,
    target: &Table,
    files: Vec<DataFile>,
) -> Result<Option<LogicalPlan>, DataFusionError> {
    let Some(effective) = plan.effective().filter(|_| !files.is_empty()) else {
        return Ok(None);
    };
    let source = DeltaSource::of_files(target.clone(), files, ScanLog::default())?;
    let scan =
        LogicalPlanBuilder::scan("target", provider_as_source(Arc::new(source)), None)?.build()?;
    let rows = marked(plan, existing_rows(plan, target, scan, false)?)?;
    // Rows for which the predicate is null are outside the window.
    let stays = Expr::IsNotTrue(Box::new(goes(plan, effective)));
    let columns: Vec<Expr> = plan
        .target_schema
        .fields()
        .iter()
        .map(|f| Expr::Column(Column::new_unqualified(f.name())))
        .collect();
    Ok(Some(
        LogicalPlanBuilder::from(rows)
            .filter(stays)?
            .project(columns)?
            .build()?,
    ))
}

/// Rows of the target, told apart by the keys of the scope.
fn marked(plan: &FlowPlan, rows: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    match &plan.scope.keys {
        Some(keys) => keys.marked(rows),
        None => Ok(rows),
    }
}

/// TRUE for the rows that are replaced.
fn goes(plan: &FlowPlan, effective: &TypedPredicate) -> Expr {
    let inside = effective.expr.clone().is_true();
    match &plan.scope.keys {
        Some(_) => inside.and(Expr::Column(Column::new_unqualified(HIT)).is_not_null()),
        None => inside,
    }
}
