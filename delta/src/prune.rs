//! Which files of a table can hold rows that a predicate selects, told from the log alone.
//!
//! Sound before sharp: statistics of other writers are widened where they are known to be cut
//! (timestamps to milliseconds, decimals through a double), and a float column never has an upper
//! bound, since NaN is greater than every number and no writer's statistics know of it. What the
//! log can't tell is answered by reading, elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array,
};
use datafusion::arrow::compute::kernels::cast_utils::{Parser, parse_decimal};
use datafusion::arrow::datatypes::{DataType, Date32Type, Decimal128Type, SchemaRef, TimeUnit};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use crate::error::TableError;
use crate::file_statistics::FileStatistics;
pub use crate::file_statistics::record_count;
use crate::partition;
use crate::schema::TableSchema;
use crate::table::DataFile;

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
    pub fn may_match(&self, files: &[DataFile], url: &str) -> Result<Vec<bool>, TableError> {
        if self.partition_only {
            return Ok(self
                .exact(files, url)?
                .into_iter()
                .map(|v| v != Verdict::NoRow)
                .collect());
        }
        let Some(holds) = self.holds.as_ref().filter(|_| !files.is_empty()) else {
            return Ok(vec![true; files.len()]);
        };
        holds
            .prune(&self.statistics(files))
            .map_err(|e| query_error(url, e))
    }

    /// For each file, what the log says about all of its rows.
    pub fn verdicts(&self, files: &[DataFile], url: &str) -> Result<Vec<Verdict>, TableError> {
        if self.partition_only {
            return self.exact(files, url);
        }
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let statistics = self.statistics(files);
        let prune = |p: &Option<PruningPredicate>| match p {
            Some(p) => p.prune(&statistics).map_err(|e| query_error(url, e)),
            None => Ok(vec![true; files.len()]),
        };
        let (may_hold, may_fail) = (prune(&self.holds)?, prune(&self.fails)?);
        let no_nulls = |row: usize| {
            statistics
                .columns
                .values()
                .all(|c| c.null_counts[row] == Some(0))
        };
        Ok((0..files.len())
            .map(|row| match (may_hold[row], may_fail[row]) {
                (false, _) => Verdict::NoRow,
                (true, false) if no_nulls(row) => Verdict::EveryRow,
                _ => Verdict::Unclear,
            })
            .collect())
    }

    /// Partition values decide alone: the predicate is evaluated on them, one row per file.
    fn exact(&self, files: &[DataFile], url: &str) -> Result<Vec<Verdict>, TableError> {
        let damaged = |reason: String| TableError::Damaged {
            url: url.to_string(),
            reason,
        };
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let columns = self
            .predicate
            .schema
            .fields()
            .iter()
            .enumerate()
            .map(|(i, field)| {
                if !self.columns.contains(&i) {
                    return Ok(datafusion::arrow::array::new_null_array(
                        field.data_type(),
                        files.len(),
                    ));
                }
                let values = self
                    .partition_scalars(files, field.name(), field.data_type())
                    .map_err(damaged)?;
                ScalarValue::iter_to_array(values).map_err(|e| query_error(url, e))
            })
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(files.len()));
        let nullable = Arc::new(datafusion::arrow::datatypes::Schema::new(
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
            .and_then(|value| value.into_array(files.len()))
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

    fn partition_scalars(
        &self,
        files: &[DataFile],
        name: &str,
        data_type: &DataType,
    ) -> Result<Vec<ScalarValue>, String> {
        let physical = self
            .schema
            .column(name)
            .map_or(name, |c| c.physical_name.as_str())
            .to_string();
        files
            .iter()
            .map(|file| {
                let text = file
                    .partition_values
                    .get(&physical)
                    .and_then(Option::as_deref);
                partition::value(text, data_type)
            })
            .collect()
    }

    fn statistics(&self, files: &[DataFile]) -> Statistics {
        let mut columns = BTreeMap::new();
        let mut rows = vec![None; files.len()];
        let names: Vec<&str> = self
            .columns
            .iter()
            .filter_map(|index| {
                let name = self.predicate.schema.field(*index).name();
                let column = self.schema.column(name)?;
                Some(column.physical_name.as_str())
            })
            .collect();
        let parsed: Vec<Option<FileStatistics<'_>>> = files
            .iter()
            .map(|f| FileStatistics::of(f.stats.as_deref()?, &names))
            .collect();
        for (row, stats) in parsed.iter().enumerate() {
            rows[row] = stats.as_ref().and_then(|s| s.num_records);
        }
        for index in &self.columns {
            let field = self.predicate.schema.field(*index);
            let data_type = field.data_type();
            let mut column = ColumnStatistics::unknown(data_type, files.len());
            if self.schema.is_partition_column(field.name()) {
                if let Ok(values) = self.partition_scalars(files, field.name(), data_type) {
                    for (row, value) in values.into_iter().enumerate() {
                        column.null_counts[row] = if value.is_null() { rows[row] } else { Some(0) };
                        column.min[row] = value.clone();
                        column.max[row] = value;
                    }
                }
            } else if let Some(table_column) = self.schema.column(field.name()) {
                let at = names
                    .iter()
                    .position(|name| *name == table_column.physical_name);
                for (row, stats) in parsed.iter().enumerate() {
                    let (Some(stats), Some(at)) = (stats, at) else {
                        continue;
                    };
                    column.null_counts[row] =
                        stats.null_count[at].and_then(|raw| raw.get().parse().ok());
                    if let Some(raw) = stats.min_values[at] {
                        column.min[row] = bound(raw.get(), data_type, Side::Min);
                    }
                    if let Some(raw) = stats.max_values[at] {
                        column.max[row] = bound(raw.get(), data_type, Side::Max);
                    }
                }
            }
            columns.insert(field.name().clone(), column);
        }
        Statistics { rows, columns }
    }
}

fn query_error(url: &str, source: DataFusionError) -> TableError {
    TableError::Query {
        url: url.to_string(),
        source: Box::new(source),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Min,
    Max,
}

/// A bound from the log, widened where its writer may have cut it; null when it can't be trusted.
fn bound(raw: &str, data_type: &DataType, side: Side) -> ScalarValue {
    let null = || ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null);
    if raw == "null" {
        return null();
    }
    let text = || serde_json::from_str::<String>(raw).ok();
    let parsed = match data_type {
        DataType::Float32 | DataType::Float64 => {
            let number = match side {
                // NaN would be above it, and the statistics do not say whether there is one.
                Side::Max => return null(),
                Side::Min => raw.parse::<f64>().ok(),
            };
            // Both zeros are one value, and -0.0 is the lower one to arrow.
            let number = number.map(|v| if v == 0.0 { -0.0 } else { v });
            return match (number, data_type) {
                (Some(v), DataType::Float64) => ScalarValue::Float64(Some(v)),
                (Some(v), _) => ScalarValue::Float32(Some((v as f32).next_down())),
                (None, _) => null(),
            };
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = text().and_then(|t| timestamp_bound(&t, side));
            micros.map(|v| ScalarValue::TimestampMicrosecond(Some(v), zone.clone()))
        }
        DataType::Decimal128(precision, scale) => decimal_bound(raw, *precision, *scale)
            .map(|v| ScalarValue::Decimal128(Some(v), *precision, *scale)),
        DataType::Utf8 => text().map(|t| ScalarValue::Utf8(Some(t))),
        DataType::Utf8View => text().map(|t| ScalarValue::Utf8View(Some(t))),
        DataType::Date32 => text()
            .and_then(|t| Date32Type::parse(&t))
            .map(|days| ScalarValue::Date32(Some(days))),
        DataType::Boolean => raw.parse().ok().map(|v| ScalarValue::Boolean(Some(v))),
        DataType::Int8 => raw.parse().ok().map(|v| ScalarValue::Int8(Some(v))),
        DataType::Int16 => raw.parse().ok().map(|v| ScalarValue::Int16(Some(v))),
        DataType::Int32 => raw.parse().ok().map(|v| ScalarValue::Int32(Some(v))),
        DataType::Int64 => raw.parse().ok().map(|v| ScalarValue::Int64(Some(v))),
        _ => None,
    };
    parsed.unwrap_or_else(null)
}

/// Microseconds since the epoch. A text with no more than three digits of a second may have been
/// cut to milliseconds, towards either side for times before 1970.
fn timestamp_bound(text: &str, side: Side) -> Option<i64> {
    let time = chrono::DateTime::parse_from_rfc3339(text)
        .map(|t| t.naive_utc())
        .or_else(|_| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
        .ok()?;
    let micros = time.and_utc().timestamp_micros();
    let digits = text.split_once('.').map_or(0, |(_, rest)| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    Some(match side {
        _ if digits > 3 => micros,
        Side::Min => micros.saturating_sub(999),
        Side::Max => micros.saturating_add(999),
    })
}

/// An exact decimal. Writers that go through a double print up to 17 digits, of which only 15 can
/// be relied on; more digits than that were never a double.
fn decimal_bound(raw: &str, precision: u8, scale: i8) -> Option<i128> {
    let digits = raw.bytes().filter(u8::is_ascii_digit).count();
    if raw.contains(['e', 'E']) || digits == 16 || digits == 17 {
        return None;
    }
    parse_decimal::<Decimal128Type>(raw.trim_matches('"'), precision, scale).ok()
}

struct ColumnStatistics {
    min: Vec<ScalarValue>,
    max: Vec<ScalarValue>,
    null_counts: Vec<Option<u64>>,
}

impl ColumnStatistics {
    fn unknown(data_type: &DataType, files: usize) -> Self {
        let null = ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null);
        Self {
            min: vec![null.clone(); files],
            max: vec![null; files],
            null_counts: vec![None; files],
        }
    }
}

struct Statistics {
    rows: Vec<Option<u64>>,
    columns: BTreeMap<String, ColumnStatistics>,
}

impl PruningStatistics for Statistics {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        ScalarValue::iter_to_array(self.columns.get(column.name())?.min.iter().cloned()).ok()
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        ScalarValue::iter_to_array(self.columns.get(column.name())?.max.iter().cloned()).ok()
    }

    fn num_containers(&self) -> usize {
        self.rows.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = &self.columns.get(column.name())?.null_counts;
        Some(Arc::new(UInt64Array::from(counts.clone())))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from(self.rows.clone())))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{Expr, col, lit, not};
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::schema::Column as TableColumn;

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
        pruner.verdicts(&[file(stats, None)], "t").unwrap()[0]
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
        let files = [
            file("{}", Some(("r", None))),
            file("{}", Some(("r", Some("eu")))),
            file("{}", Some(("r", Some("")))),
        ];
        assert_eq!(
            p.verdicts(&files, "t").unwrap(),
            [Verdict::EveryRow, Verdict::NoRow, Verdict::EveryRow]
        );
        assert_eq!(p.may_match(&files, "t").unwrap(), [true, false, true]);
    }
}
