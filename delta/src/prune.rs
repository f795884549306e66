//! Which files of a table can hold rows that a predicate selects, told from the log alone.
//!
//! What the log can't tell is answered by reading, elsewhere; what it says of a column is read out in
//! [`crate::batch`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use crate::batch::{ColumnBounds, ColumnKey, FileBatch};
use crate::error::TableError;
pub use crate::file_statistics::record_count;
use crate::schema::TableSchema;

/// A predicate over a table, ready to be held against the log.
///
/// Both expressions are over `schema` (the table's columns, with the names used in queries), typed
/// and simplified. `fails` is true for at least all rows for which `holds` is false; rows for which
/// `holds` is null are left to the null counts.
#[derive(Debug, Clone)]
pub struct FilePredicate {
    pub schema: SchemaRef,
    pub holds: Arc<dyn PhysicalExpr>,
    pub fails: Arc<dyn PhysicalExpr>,
}

/// What the log says about a file and a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No row satisfies the predicate.
    NoRow,
    /// Every row satisfies the predicate.
    EveryRow,
    /// Some rows may; only reading tells.
    Unclear,
}

/// Holds a [`FilePredicate`] against files, a batch at a time.
pub struct Pruner {
    schema: Arc<TableSchema>,
    predicate: FilePredicate,
    holds: Option<PruningPredicate>,
    fails: Option<PruningPredicate>,
    /// Indices into `predicate.schema` of the columns that the predicate names.
    columns: Vec<usize>,
    partition_only: bool,
}

impl Pruner {
    pub fn new(schema: Arc<TableSchema>, predicate: FilePredicate) -> Self {
        let columns: Vec<usize> = collect_columns(&predicate.holds)
            .iter()
            .map(|c| c.index())
            .collect();
        // What is another value at each call is decided row by row.
        let partition_only = !is_volatile(&predicate.holds)
            && columns
                .iter()
                .all(|i| schema.is_partition_column(predicate.schema.field(*i).name()));
        // A predicate that can't be turned into one over statistics prunes nothing.
        let build = |expr: &Arc<dyn PhysicalExpr>| {
            PruningPredicateBuilder::new()
                .with_file_schema(predicate.schema.clone())
                .try_build(expr.clone())
                .ok()
        };
        let (holds, fails) = (build(&predicate.holds), build(&predicate.fails));
        Self {
            schema,
            predicate,
            holds,
            fails,
            columns,
            partition_only,
        }
    }

    /// For each file, whether it may hold a row that satisfies the predicate.
    pub fn may_match(&self, batch: &FileBatch, url: &str) -> Result<Vec<bool>, TableError> {
        if self.partition_only {
            return Ok(self
                .exact(batch, url)?
                .into_iter()
                .map(|v| v != Verdict::NoRow)
                .collect());
        }
        let Some(holds) = self.holds.as_ref().filter(|_| !batch.is_empty()) else {
            return Ok(vec![true; batch.len()]);
        };
        holds
            .prune(&self.statistics(batch))
            .map_err(|e| query_error(url, e))
    }

    /// For each file, what the log says about all of its rows.
    pub fn verdicts(&self, batch: &FileBatch, url: &str) -> Result<Vec<Verdict>, TableError> {
        if self.partition_only {
            return self.exact(batch, url);
        }
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let statistics = self.statistics(batch);
        let prune = |p: &Option<PruningPredicate>| match p {
            Some(p) => p.prune(&statistics).map_err(|e| query_error(url, e)),
            None => Ok(vec![true; batch.len()]),
        };
        let (may_hold, may_fail) = (prune(&self.holds)?, prune(&self.fails)?);
        let all_told = statistics.columns.len() == self.columns.len();
        let no_nulls = |row: usize| {
            all_told
                && statistics
                    .columns
                    .values()
                    .all(|c| c.null_counts.is_valid(row) && c.null_counts.value(row) == 0)
        };
        Ok((0..batch.len())
            .map(|row| match (may_hold[row], may_fail[row]) {
                (false, _) => Verdict::NoRow,
                (true, false) if no_nulls(row) => Verdict::EveryRow,
                _ => Verdict::Unclear,
            })
            .collect())
    }

    /// Partition values decide alone: the predicate is evaluated on them, one row per file.
    fn exact(&self, batch: &FileBatch, url: &str) -> Result<Vec<Verdict>, TableError> {
        let damaged = |reason: String| TableError::Damaged {
            url: url.to_string(),
            reason,
        };
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let named = self.named();
        let keys: Vec<ColumnKey> = named.iter().map(|field| self.key(field)).collect();
        let mut values = HashMap::new();
        for (field, bounds) in named.iter().zip(batch.bounds(&keys)) {
            values.insert(field.name(), bounds.map_err(damaged)?.min.clone());
        }
        let columns: Vec<ArrayRef> = self
            .predicate
            .schema
            .fields()
            .iter()
            .map(|field| match values.remove(field.name()) {
                Some(values) => values,
                None => new_null_array(field.data_type(), batch.len()),
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        let nullable = Arc::new(Schema::new(
            self.predicate
                .schema
                .fields()
                .iter()
                .map(|f| f.as_ref().clone().with_nullable(true))
                .collect::<Vec<_>>(),
        ));
        let verdicts = RecordBatch::try_new_with_options(nullable, columns, &options)
            .map_err(DataFusionError::from)
            .and_then(|batch| self.predicate.holds.evaluate(&batch))
            .and_then(|value| value.into_array(batch.len()))
            .map_err(|e| query_error(url, e))?;
        let verdicts = verdicts.as_boolean();
        Ok(verdicts
            .iter()
            .map(|v| {
                if v == Some(true) {
                    Verdict::EveryRow
                } else {
                    Verdict::NoRow
                }
            })
            .collect())
    }

    /// A column of the predicate as the log has it.
    fn key(&self, field: &Field) -> ColumnKey {
        let column = self.schema.column(field.name());
        ColumnKey {
            physical_name: column
                .map_or(field.name(), |c| &c.physical_name)
                .to_string(),
            data_type: field.data_type().clone(),
            is_partition: self.schema.is_partition_column(field.name()),
        }
    }

    /// The columns that the predicate names.
    fn named(&self) -> Vec<&Field> {
        let field = |index: &usize| self.predicate.schema.field(*index);
        self.columns.iter().map(field).collect()
    }

    /// Columns of which nothing can be told are left out.
    fn statistics<'a>(&self, batch: &'a FileBatch) -> Statistics<'a> {
        let mut named = self.named();
        named.retain(|field| self.schema.column(field.name()).is_some());
        let keys: Vec<ColumnKey> = named.iter().map(|field| self.key(field)).collect();
        let told = named.iter().zip(batch.bounds(&keys));
        let columns = told.filter_map(|(field, found)| Some((field.name().clone(), found.ok()?)));
        Statistics {
            batch,
            columns: columns.collect(),
        }
    }
}

fn query_error(url: &str, source: DataFusionError) -> TableError {
    TableError::Query {
        url: url.to_string(),
        source: Box::new(source),
    }
}

/// The columns of a batch of files that a predicate names.
struct Statistics<'a> {
    batch: &'a FileBatch,
    columns: BTreeMap<String, Arc<ColumnBounds>>,
}

impl PruningStatistics for Statistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.columns.get(column.name())?.min.clone())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.columns.get(column.name())?.max.clone())
    }

    fn num_containers(&self) -> usize {
        self.batch.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = &self.columns.get(column.name())?.null_counts;
        Some(Arc::new(counts.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.batch.rows().clone()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, TimeUnit};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{Expr, col, lit, not};
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::schema::Column as TableColumn;
    use crate::table::DataFile;

    fn pruner(columns: &[(&str, DataType)], partitions: &[&str], holds: Expr) -> Pruner {
        let schema = Arc::new(TableSchema {
            columns: columns
                .iter()
                .map(|(n, t)| TableColumn::new(*n, t.clone(), true).unwrap())
                .collect(),
            partition_columns: partitions.iter().map(|p| p.to_string()).collect(),
        });
        let arrow = Arc::new(Schema::new(
            columns
                .iter()
                .map(|(n, t)| Field::new(*n, t.clone(), true))
                .collect::<Vec<_>>(),
        ));
        let df_schema = DFSchema::try_from(arrow.as_ref().clone()).unwrap();
        let state = SessionContext::new().state();
        let physical = |e: Expr| {
            let context = datafusion::optimizer::simplify_expressions::SimplifyContext::builder()
                .with_schema(Arc::new(df_schema.clone()))
                .build();
            let simplifier =
                datafusion::optimizer::simplify_expressions::ExprSimplifier::new(context);
            let e = simplifier.coerce(e, &df_schema).unwrap();
            state
                .create_physical_expr(simplifier.simplify(e).unwrap(), &df_schema)
                .unwrap()
        };
        let predicate = FilePredicate {
            schema: arrow,
            holds: physical(holds.clone()),
            fails: physical(not(holds)),
        };
        Pruner::new(schema, predicate)
    }

    fn file(stats: &str, partition: Option<(&str, Option<&str>)>) -> DataFile {
        DataFile {
            log_path: "f".into(),
            size: 1,
            modification_time: 0,
            partition_values: partition
                .into_iter()
                .map(|(k, v)| (k.to_string(), v.map(str::to_string)))
                .collect(),
            stats: Some(stats.to_string()),
            deletion_vector: None,
        }
    }

    fn verdict(pruner: &Pruner, stats: &str) -> Verdict {
        pruner
            .verdicts(&FileBatch::new([file(stats, None)]), "t")
            .unwrap()[0]
    }

    #[test]
    fn bounds_tell_inside_outside_and_straddling() {
        let p = pruner(&[("x", DataType::Int64)], &[], col("x").gt_eq(lit(10i64)));
        let stats = |min: i64, max: i64, nulls: i64| {
            format!(
                r#"{{"numRecords":5,"minValues":{{"x":{min}}},"maxValues":{{"x":{max}}},"nullCount":{{"x":{nulls}}}}}"#
            )
        };
        assert_eq!(verdict(&p, &stats(0, 9, 0)), Verdict::NoRow);
        assert_eq!(verdict(&p, &stats(10, 99, 0)), Verdict::EveryRow);
        assert_eq!(verdict(&p, &stats(10, 99, 1)), Verdict::Unclear);
        assert_eq!(verdict(&p, &stats(0, 99, 0)), Verdict::Unclear);
        assert_eq!(verdict(&p, r#"{"numRecords":5}"#), Verdict::Unclear);
    }

    #[test]
    fn nan_may_hide_behind_every_greatest_number() {
        let stats =
            r#"{"numRecords":3,"minValues":{"x":1.0},"maxValues":{"x":50.0},"nullCount":{"x":0}}"#;
        let above = pruner(&[("x", DataType::Float64)], &[], col("x").gt(lit(100.0)));
        assert_eq!(verdict(&above, stats), Verdict::Unclear);
        let below = pruner(&[("x", DataType::Float64)], &[], col("x").lt_eq(lit(100.0)));
        assert_eq!(verdict(&below, stats), Verdict::Unclear);
        let low = pruner(&[("x", DataType::Float64)], &[], col("x").lt(lit(0.5)));
        assert_eq!(verdict(&low, stats), Verdict::NoRow);
    }

    #[test]
    fn a_timestamp_cut_to_milliseconds_is_widened() {
        let zone: Arc<str> = "UTC".into();
        let kind = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.clone()));
        let at = |us| {
            lit(ScalarValue::TimestampMicrosecond(
                Some(us),
                Some(zone.clone()),
            ))
        };
        let stats = |max: &str| {
            format!(
                r#"{{"numRecords":1,"minValues":{{"t":"1970-01-01T00:00:00.807Z"}},"maxValues":{{"t":"{max}"}},"nullCount":{{"t":0}}}}"#
            )
        };
        let p = pruner(&[("t", kind)], &[], col("t").gt_eq(at(807_126)));
        assert_eq!(
            verdict(&p, &stats("1970-01-01T00:00:00.807Z")),
            Verdict::Unclear
        );
        assert_eq!(
            verdict(&p, &stats("1970-01-01T00:00:00.807125Z")),
            Verdict::NoRow
        );
    }

    #[test]
    fn a_decimal_that_went_through_a_double_is_no_bound() {
        let kind = DataType::Decimal128(38, 4);
        let p = pruner(
            &[("m", kind)],
            &[],
            col("m").gt(lit(ScalarValue::Decimal128(Some(10_000_000), 38, 4))),
        );
        let stats = |max: &str| {
            format!(
                r#"{{"numRecords":1,"minValues":{{"m":1}},"maxValues":{{"m":{max}}},"nullCount":{{"m":0}}}}"#
            )
        };
        assert_eq!(verdict(&p, &stats("999.9")), Verdict::NoRow);
        assert_eq!(verdict(&p, &stats("1.2345678901234567")), Verdict::Unclear);
        assert_eq!(verdict(&p, &stats("1e2")), Verdict::Unclear);
    }

    #[test]
    fn partition_values_decide_alone_nulls_included() {
        let p = pruner(&[("r", DataType::Utf8)], &["r"], col("r").is_null());
        let files = FileBatch::new([
            file("{}", Some(("r", None))),
            file("{}", Some(("r", Some("eu")))),
            file("{}", Some(("r", Some("")))),
        ]);
        assert_eq!(
            p.verdicts(&files, "t").unwrap(),
            [Verdict::EveryRow, Verdict::NoRow, Verdict::EveryRow]
        );
        assert_eq!(p.may_match(&files, "t").unwrap(), [true, false, true]);
    }
}
