//! The changed rows of a source in the place of a scan of it: those of the files that came and went,
//! or those that its change data hold.
//!
//! Rows that are on both sides of a change are left out where they can be told apart exactly. What the
//! changed rows do to a query's result is [`super::affected`]'s.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DataFusionError, Result};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, cast, lit, when};
use windrow_delta::DataFile;
use windrow_delta::changes::CHANGE_TYPE;
use windrow_executor::scan::{DeltaSource, ScanLog};

use crate::changed::ChangedSource;

/// The column that is 1 for a row that came and -1 for one that went.
const SIGN: &str = "__windrow_sign";
/// What stands there for a row of which the change data do not tell: no sum of others makes up for it.
const NEITHER: i64 = 1 << 40;

/// The changed source that a scan reads.
pub fn changed_source<'a>(
    changed: &'a [ChangedSource],
    scan: &TableScan,
) -> Option<&'a ChangedSource> {
    let provider = source_as_provider(&scan.source).ok()?;
    let read = provider.downcast_ref::<DeltaSource>()?.table().clone();
    changed
        .iter()
        .find(|c| c.table.location().url() == read.location().url())
}

/// A scan of `files` in the place of `scan`: the same columns under the same names.
pub fn scan_of_files(
    change: &ChangedSource,
    scan: &TableScan,
    files: &[DataFile],
    log: &ScanLog,
) -> Result<LogicalPlan> {
    let provider = DeltaSource::of_files(change.table.clone(), files.to_vec(), log.clone())?
        .named(&change.shown);
    same_scan(scan, provider)
}

/// A scan of another provider of the same table in the place of `scan`.
pub fn same_scan(scan: &TableScan, provider: DeltaSource) -> Result<LogicalPlan> {
    scan_with(scan, provider, None)
}

/// The same with one more column.
fn scan_with(scan: &TableScan, provider: DeltaSource, more: Option<&str>) -> Result<LogicalPlan> {
    use datafusion::catalog::TableProvider;
    let schema = provider.schema();
    let names = scan.projected_schema.fields().iter().map(|f| f.name());
    let projection = names
        .map(String::as_str)
        .chain(more)
        .map(|name| schema.index_of(name).map_err(DataFusionError::from))
        .collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::scan_with_filters(
        scan.table_name.clone(),
        provider_as_source(Arc::new(provider)),
        Some(projection),
        scan.filters.clone(),
    )?
    .build()
}

/// The rows that a scan would read of what changed, with the scan's column names, unqualified; with
/// `net` without those that are on both sides of the change.
pub fn changed_rows(
    change: &ChangedSource,
    scan: &TableScan,
    log: &ScanLog,
    net: bool,
) -> Result<Option<LogicalPlan>> {
    const COUNT: &str = "__windrow_n";
    let fields = scan.projected_schema.fields();
    let comparable = net && fields.iter().all(|f| groups_exactly(f.data_type()));
    let sides = Sides {
        change,
        scan,
        log,
        signed: comparable,
    };
    let (added, removed, changes) = match &change.change_data {
        Some(found) => (&found.added, &found.removed, found.changes.as_slice()),
        None => (&change.added, &change.removed, [].as_slice()),
    };
    let one_sided = changes.is_empty() && (added.is_empty() || removed.is_empty());
    let parts = [
        sides.of_files(added, 1)?,
        sides.of_files(removed, -1)?,
        sides.of_changes(changes)?,
    ];
    let mut all: Option<LogicalPlan> = None;
    for part in parts.into_iter().flatten() {
        all = Some(match all {
            None => part,
            Some(so_far) => LogicalPlanBuilder::from(so_far).union(part)?.build()?,
        });
    }
    let Some(all) = all else { return Ok(None) };
    let own = || -> Vec<Expr> {
        fields
            .iter()
            .map(|f| Expr::Column(Column::new_unqualified(f.name())))
            .collect()
    };
    if one_sided || !comparable {
        return Ok(Some(all));
    }
    let mut keys = own();
    // Both zeros are one group, yet not one value of a result.
    for field in fields.iter() {
        if matches!(field.data_type(), DataType::Float32 | DataType::Float64) {
            let column = Expr::Column(Column::new_unqualified(field.name()));
            let name = format!("__windrow_text_{}", field.name());
            keys.push(cast(column, DataType::Utf8).alias(name));
        }
    }
    let sign = Expr::Column(Column::new_unqualified(SIGN));
    let net = Expr::Column(Column::new_unqualified(COUNT));
    let changed = LogicalPlanBuilder::from(all)
        .aggregate(keys, vec![sum(sign).alias(COUNT)])?
        .filter(net.not_eq(lit(0i64)))?;
    // Without columns only the number of rows counts.
    if fields.is_empty() {
        return changed.build().map(Some);
    }
    changed.project(own())?.build().map(Some)
}

/// The sides of a change, as rows with the columns of a scan.
struct Sides<'a> {
    change: &'a ChangedSource,
    scan: &'a TableScan,
    log: &'a ScanLog,
    /// Rows have their [`SIGN`].
    signed: bool,
}

impl Sides<'_> {
    fn of_files(&self, files: &[DataFile], sign: i64) -> Result<Option<LogicalPlan>> {
        if files.is_empty() {
            return Ok(None);
        }
        let rows = scan_of_files(self.change, self.scan, files, self.log)?;
        self.project(rows, lit(sign)).map(Some)
    }

    fn of_changes(&self, files: &[DataFile]) -> Result<Option<LogicalPlan>> {
        if files.is_empty() {
            return Ok(None);
        }
        let provider = DeltaSource::of_change_data(
            self.change.table.clone(),
            files.to_vec(),
            self.log.clone(),
        )?
        .named(&self.change.shown);
        let rows = scan_with(self.scan, provider, Some(CHANGE_TYPE))?;
        let is = |word: &str| Expr::Column(Column::from_name(CHANGE_TYPE)).eq(lit(word));
        let sign = when(is("insert").or(is("update_postimage")), lit(1i64))
            .when(is("delete").or(is("update_preimage")), lit(-1i64))
            .otherwise(lit(NEITHER))?;
        self.project(rows, sign).map(Some)
    }

    fn project(&self, rows: LogicalPlan, sign: Expr) -> Result<LogicalPlan> {
        let fields = self.scan.projected_schema.fields();
        let mut rows = LogicalPlanBuilder::from(rows);
        // The filters stand above the scan too, in the plan that is differentiated. Here they keep
        // rows from being compared that no one will ask for; those over other columns are left.
        let own: Vec<Expr> = self
            .scan
            .filters
            .iter()
            .filter(|f| {
                f.column_refs()
                    .iter()
                    .all(|c| fields.iter().any(|field| *field.name() == c.name))
            })
            .cloned()
            .collect();
        if let Some(predicate) = conjunction(own) {
            rows = rows.filter(predicate)?;
        }
        let columns = rows.schema().columns();
        let mut exprs: Vec<Expr> = columns
            .into_iter()
            .filter(|c| fields.iter().any(|field| *field.name() == c.name))
            .map(|c| {
                let name = c.name.clone();
                Expr::Column(c).alias(name)
            })
            .collect();
        if self.signed {
            exprs.push(sign.alias(SIGN));
        }
        rows.project(exprs)?.build()
    }
}

/// Whether rows can be told apart by grouping on a column of this type.
fn groups_exactly(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|f| {
            !matches!(f.data_type(), DataType::Float32 | DataType::Float64)
                && groups_exactly(f.data_type())
        }),
        DataType::List(field) => {
            !matches!(field.data_type(), DataType::Float32 | DataType::Float64)
                && groups_exactly(field.data_type())
        }
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(..)
        | DataType::Decimal128(..)
        | DataType::Null => true,
        _ => false,
    }
}
