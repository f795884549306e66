//! Planning one flow: its query over pinned sources, its target's columns, its window, and how it
//! will be refreshed. Nothing is written here.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use windrow_delta::Table;
use windrow_delta::protocol::check_writable;
use windrow_executor::predicate::{TypedPredicate, typed};
use windrow_executor::scan::query_name;
use windrow_executor::session::Engine;
use windrow_executor::store_cast::store_cast;
use windrow_flows::definition::{ExprText, FlowKind, QueryText, TableKind};
use windrow_flows::fault::Fault;
use windrow_flows::render;
use windrow_flows::window::Window;

use crate::bind::{Binder, Bound, ReadKind, Sources, Upstream, fault_of};
use crate::evolve::{Evolved, Fill, evolve};
use crate::incremental::keys::Keys;
use crate::predicate::{Pinned, pin};
use crate::project::{Project, ProjectFlow, ProjectTable};
use crate::report::SourceReport;

/// The table property that names the pipeline to which a target belongs.
pub const OWNER: &str = "windrow.pipeline";
/// The table property that tells a streaming table from a materialized view.
pub const KIND: &str = "windrow.kind";

/// The word of a table's kind in [`KIND`].
pub fn kind_word(kind: TableKind) -> &'static str {
    match kind {
        TableKind::StreamingTable => "streaming_table",
        TableKind::MaterializedView => "materialized_view",
    }
}

/// Properties of Delta tables that change nothing that a writer must keep, or that this version
/// keeps.
const DELTA_PROPERTIES: &[&str] = &[
    "delta.appendOnly",
    "delta.checkpointInterval",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.parquet.compression.codec",
    "delta.randomizeFilePrefixes",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
];

fn check_properties(table: &ProjectTable, existing: Option<&Table>) -> Result<(), Fault> {
    let place = || table.definition.name.place.clone();
    for (key, value) in &table.definition.properties {
        let off = value.eq_ignore_ascii_case("false") || value.eq_ignore_ascii_case("none");
        if key.starts_with("windrow.") {
            return Err(Fault::new(
                "PROPERTY_NOT_SUPPORTED",
                format!("the property `{key}` of `{}` is Windrow's own", table.shown),
            )
            .at(place()));
        }
        if key == "delta.appendOnly" && !off {
            return Err(Fault::new(
                "TARGET_APPEND_ONLY",
                format!(
                    "`{}` can't have delta.appendOnly: its rows are replaced",
                    table.shown
                ),
            )
            .at(place()));
        }
        if let Some(name) = key.strip_prefix("delta.constraints.") {
            let is_known = existing.is_none_or(|t| t.properties().get(key) == Some(value));
            if !is_known {
                return Err(Fault::new(
                    "CONSTRAINT_ADDED_LATER",
                    format!(
                        "constraint `{name}` of `{}` is new, and its older rows may break it",
                        table.shown
                    ),
                )
                .at(place())
                .help(format!(
                    "do a full refresh: windrow run --full-refresh {}",
                    table.shown
                )));
            }
            continue;
        }
        let known =
            DELTA_PROPERTIES.iter().any(|k| k == key) || key.starts_with("delta.autoOptimize.");
        if key.starts_with("delta.") && !known && !off {
            return Err(Fault::new(
                "PROPERTY_NOT_SUPPORTED",
                format!(
                    "`{}` has the property `{key}`, which this version does not know how to keep",
                    table.shown
                ),
            )
            .hint(windrow_flows::name::did_you_mean(
                key,
                DELTA_PROPERTIES.iter().copied(),
            ))
            .at(place())
            .help("leave it out"));
        }
    }
    Ok(())
}

/// What planning a flow needs from the update around it.
pub struct FlowContext<'a> {
    pub project: &'a Project,
    pub engine: &'a Engine,
    pub clock: DateTime<Utc>,
    pub sources: &'a Sources,
    pub upstream: &'a BTreeMap<usize, Upstream>,
}

/// What the update asks of this flow.
#[derive(Debug, Clone, Default)]
pub struct FlowRequest {
    pub override_predicate: Option<ExprText>,
    pub full_refresh: bool,
    /// Use joins that spill, at some cost of speed.
    pub spilling_joins: bool,
}

/// A planned flow.
pub struct FlowPlan {
    pub flow: usize,
    pub existing: Option<Table>,
    pub evolved: Evolved,
    /// The target's columns as queries know them.
    pub target_schema: SchemaRef,
    pub bound: Bound,
    /// The query's rows in the target's columns, before the window.
    pub rows: LogicalPlan,
    /// `None` for a materialized view.
    pub pinned: Option<Pinned>,
    pub window: Window,
    /// What of the window is computed anew.
    pub scope: Scope,
    /// The predicate as written.
    pub written: Option<String>,
    pub is_override: bool,
    pub full_refresh: bool,
}

/// What of the window an update computes anew; by default all of it.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The window and a condition.
    pub part: Option<TypedPredicate>,
    /// Only rows that have one of these keys.
    pub keys: Option<Keys>,
    /// Rows are added and none removed.
    pub appends: bool,
}

impl FlowPlan {
    /// The window's predicate as text.
    pub fn predicate_text(&self) -> Option<String> {
        self.pinned.as_ref().map(|p| render::sql(&p.typed.expr))
    }

    /// What is replaced: the window, or a part of it. `None` for the whole table. With keys in the
    /// scope, only those rows of it that have one of them.
    pub fn effective(&self) -> Option<&TypedPredicate> {
        self.scope
            .part
            .as_ref()
            .or(self.pinned.as_ref().map(|p| &p.typed))
    }

    /// The scope in which only the rows of the window for which `condition` holds are computed anew.
    pub fn part(&self, condition: Expr) -> Result<Scope, DataFusionError> {
        let expr = match &self.pinned {
            Some(pinned) => pinned.typed.expr.clone().and(condition),
            None => condition,
        };
        Ok(Scope {
            part: Some(typed(&self.bound.state, &self.target_schema, expr)?),
            ..Scope::default()
        })
    }

    /// The rows of what is replaced.
    pub fn windowed(&self) -> Result<LogicalPlan, DataFusionError> {
        let rows = match self.effective() {
            Some(typed) if !typed.is_true() => LogicalPlanBuilder::from(self.rows.clone())
                .filter(typed.expr.clone())?
                .build()?,
            _ => self.rows.clone(),
        };
        match &self.scope.keys {
            Some(keys) => keys.only(rows),
            None => Ok(rows),
        }
    }

    /// Everything on which the query's meaning rests besides its sources' rows.
    pub fn fingerprint(&self) -> String {
        let columns: Vec<String> = self
            .evolved
            .schema
            .columns
            .iter()
            .zip(&self.evolved.fills)
            .filter(|(_, fill)| !matches!(fill, Fill::Null))
            .map(|(c, fill)| format!("{} {} {fill:?}", query_name(&c.name), c.data_type))
            .collect();
        format!("{}--\n{}", self.bound.fingerprint, columns.join("\n"))
    }
}

/// The flow's own query.
pub fn query_of(flow: &ProjectFlow) -> Option<&QueryText> {
    match &flow.definition.kind {
        FlowKind::ReplaceWhere { query, .. }
        | FlowKind::ReplaceUsing { query, .. }
        | FlowKind::Append { query, .. }
        | FlowKind::MaterializedView { query } => Some(query),
        FlowKind::AutoCdc | FlowKind::AutoCdcFromSnapshot => None,
    }
}

/// Plans a flow. `existing` is the target as it is now.
pub async fn plan_flow(
    context: &FlowContext<'_>,
    index: usize,
    existing: Option<Table>,
    request: &FlowRequest,
) -> Result<FlowPlan, Vec<Fault>> {
    let flow = &context.project.flows[index];
    let table = &context.project.tables[flow.table];
    let Some(query) = query_of(flow) else {
        return Err(vec![Fault::new(
            "FLOW_KIND_NOT_AVAILABLE",
            format!(
                "{} flows are not available in this version",
                flow.definition.kind.word()
            ),
        )]);
    };
    if let Some(existing) = &existing {
        check_owner(context.project, table, existing).map_err(|f| vec![f])?;
    }
    let kept = existing.as_ref().filter(|_| !request.full_refresh);
    check_properties(table, kept).map_err(|f| vec![f])?;
    let binder = Binder {
        project: context.project,
        engine: context.engine,
        clock: context.clock,
        sources: context.sources,
        upstream: context.upstream,
    };
    let mut bound = binder
        .bind(query, &flow.defaults, request.spilling_joins)
        .await?;
    let is_view = table.definition.kind == TableKind::MaterializedView;
    let base = existing
        .as_ref()
        .filter(|_| !request.full_refresh)
        .map(|t| t.schema().as_ref());
    let evolved = evolve(
        &table.shown,
        base,
        &table.definition,
        &bound.outputs,
        is_view,
    )
    .map_err(|f| {
        let place = f.place.clone().unwrap_or_else(|| query.place.clone());
        vec![f.at(place)]
    })?;
    let target_schema = Arc::new(Schema::new(
        evolved
            .schema
            .columns
            .iter()
            .map(|c| Field::new(query_name(&c.name), c.data_type.clone(), true))
            .collect::<Vec<_>>(),
    ));
    let rows =
        target_rows(&bound, &evolved, &target_schema).map_err(|e| vec![fault_of(&e, query)])?;
    bound.nondeterministic |= is_volatile(&rows).map_err(|e| vec![fault_of(&e, query)])?;
    let (pinned, written) = match &flow.definition.kind {
        FlowKind::ReplaceWhere { predicate, .. } => {
            let predicate = request.override_predicate.as_ref().unwrap_or(predicate);
            let pinned = pin(&bound.state, &target_schema, &table.shown, predicate, query)?;
            (Some(pinned), Some(predicate.text.clone()))
        }
        _ => (None, None),
    };
    let always = lit(true);
    let properties = &table.definition.properties;
    for (key, sql) in properties
        .iter()
        .filter(|(k, _)| k.starts_with("delta.constraints."))
    {
        let checked = planned(&bound, &target_schema, sql)
            .and_then(|e| typed(&bound.state, &target_schema, e));
        if let Err(error) = checked {
            let (_, message) = crate::bind::words_of(&error);
            return Err(vec![
                Fault::new(
                    "CONSTRAINT_NOT_VALID",
                    format!("`{key}` of `{}`: {message}", table.shown),
                )
                .at(table.definition.name.place.clone()),
            ]);
        }
    }
    let window = Window::of(pinned.as_ref().map_or(&always, |p| &p.typed.expr));
    Ok(FlowPlan {
        flow: index,
        existing,
        evolved,
        target_schema,
        bound,
        rows,
        pinned,
        window,
        scope: Scope::default(),
        written,
        is_override: request.override_predicate.is_some(),
        full_refresh: request.full_refresh,
    })
}

/// Whether some expression of the plan gives another value each time.
fn is_volatile(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.expressions().iter().any(Expr::is_volatile);
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(found)
}

/// A target belongs to the pipeline that made it.
fn check_owner(project: &Project, table: &ProjectTable, existing: &Table) -> Result<(), Fault> {
    let place = table.definition.name.place.clone();
    match existing.properties().get(OWNER) {
        Some(owner) if *owner == project.config.name => {}
        Some(owner) => {
            return Err(Fault::new(
                "TARGET_NOT_OWNED",
                format!(
                    "table `{}` at {} belongs to pipeline `{owner}`",
                    table.shown,
                    existing.location().shown()
                ),
            )
            .at(place)
            .help("give this pipeline another storage, or the table another name"));
        }
        None => {
            return Err(Fault::new(
                "TARGET_NOT_OWNED",
                format!(
                    "there is a Delta table at {} that no pipeline made; `{}` will not take it over",
                    existing.location().shown(),
                    table.shown
                ),
            )
            .at(place)
            .help("move it away, and read it as a source through `tables`"));
        }
    }
    let kind = kind_word(table.definition.kind);
    if let Some(old) = existing.properties().get(KIND)
        && old != kind
    {
        return Err(Fault::new(
            "TARGET_KIND_CHANGED",
            format!(
                "`{}` is a {} and is now defined as a {}",
                table.shown,
                old.replace('_', " "),
                kind.replace('_', " ")
            ),
        )
        .at(place)
        .help("give the new one another name, or remove the old table's folder"));
    }
    check_writable(existing).map_err(|e| Fault::new(e.code(), e.to_string()).at(place.clone()))?;
    if existing
        .properties()
        .get("delta.appendOnly")
        .is_some_and(|v| v.eq_ignore_ascii_case("true"))
    {
        return Err(Fault::new(
            "TARGET_APPEND_ONLY",
            format!(
                "table `{}` has delta.appendOnly = true, so nothing in it can be replaced",
                table.shown
            ),
        )
        .at(place));
    }
    Ok(())
}

/// The query's result as the target's columns: by name, cast, missing ones null, generated ones
/// computed.
fn target_rows(
    bound: &Bound,
    evolved: &Evolved,
    target: &SchemaRef,
) -> Result<LogicalPlan, DataFusionError> {
    let columns = bound.plan.schema().columns();
    let fields = bound.plan.schema().fields();
    let mut exprs = Vec::new();
    for (fill, field) in evolved.fills.iter().zip(target.fields()) {
        let expr = match fill {
            Fill::Query { index, exact } => {
                let column = Expr::Column(columns[*index].clone());
                if fields[*index].data_type() == field.data_type() {
                    column
                } else if *exact {
                    store_cast(column, field.name(), field.data_type())
                } else {
                    cast(column, field.data_type().clone())
                }
            }
            Fill::Null | Fill::Generated(_) => lit(ScalarValue::try_from(field.data_type())?),
        };
        exprs.push(expr.alias(field.name()));
    }
    let plan = LogicalPlanBuilder::from(bound.plan.clone())
        .project(exprs)?
        .build()?;
    if !evolved
        .fills
        .iter()
        .any(|f| matches!(f, Fill::Generated(_)))
    {
        return Ok(plan);
    }
    let mut exprs = Vec::new();
    for (fill, field) in evolved.fills.iter().zip(target.fields()) {
        exprs.push(match fill {
            Fill::Generated(sql) => {
                let expr = planned(bound, target, sql)?;
                cast(expr, field.data_type().clone()).alias(field.name())
            }
            _ => Expr::Column(datafusion::common::Column::new_unqualified(field.name())),
        });
    }
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

/// An expression that the table itself carries (a constraint, a generated column), over its columns.
pub fn planned(bound: &Bound, target: &SchemaRef, sql: &str) -> Result<Expr, DataFusionError> {
    let parsed = windrow_flows::sql::parse_predicate("table property", sql, &BTreeMap::new())
        .map_err(|f| DataFusionError::Plan(f.message))?;
    let mut ast = parsed.normalised;
    if let Some(fault) = windrow_flows::dialect::rewrite_expr(&mut ast)
        .into_iter()
        .next()
    {
        return Err(DataFusionError::Plan(format!("`{sql}`: {}", fault.message)));
    }
    let schema = datafusion::common::DFSchema::try_from(target.as_ref().clone())?;
    bound.state.create_logical_expr_from_sql_expr(
        datafusion::sql::sqlparser::ast::ExprWithAlias {
            expr: ast,
            alias: None,
        },
        &schema,
    )
}

/// The filters that reach each scan of each source, with and without the window.
#[derive(Debug)]
pub struct ScanFilters {
    with_window: FiltersByScan,
    without: FiltersByScan,
    /// The optimized plan of the window's rows.
    optimized: LogicalPlan,
}

/// By the scan's table name; one list for each scan of it.
type FiltersByScan = BTreeMap<String, Vec<Vec<Expr>>>;

impl ScanFilters {
    /// Optimizes the plan both ways, side by side, and looks at its scans.
    pub async fn of(plan: &FlowPlan) -> Result<Self, DataFusionError> {
        let optimized = |logical: LogicalPlan| {
            let state = plan.bound.state.clone();
            let run = tokio::task::spawn_blocking(move || state.optimize(&logical));
            async move {
                run.await
                    .map_err(|e| DataFusionError::External(Box::new(e)))?
            }
        };
        let (with_window, without) = (optimized(plan.windowed()?), optimized(plan.rows.clone()));
        let (with_window, without) = futures::try_join!(with_window, without)?;
        Ok(Self {
            with_window: filters_of(&with_window)?,
            without: filters_of(&without)?,
            optimized: with_window,
        })
    }

    /// The optimized plan of the window's rows, where these are what `plan` computes anew.
    pub fn optimized(&self, plan: &FlowPlan) -> Option<LogicalPlan> {
        let Scope {
            part,
            keys,
            appends,
        } = &plan.scope;
        let is_whole = part.is_none() && keys.is_none() && !appends;
        is_whole.then(|| self.optimized.clone())
    }

    /// Whether the window puts a filter on every scan of the source.
    pub fn reaches(&self, source: &str) -> bool {
        let mut found = false;
        for (table, lists) in self
            .with_window
            .iter()
            .filter(|(t, _)| same_table(t, source))
        {
            found = true;
            let old = self.without.get(table);
            let all = lists.iter().enumerate().all(|(i, list)| {
                let before = old.and_then(|o| o.get(i));
                list.iter().any(|f| before.is_none_or(|b| !b.contains(f)))
            });
            if !all {
                return false;
            }
        }
        found
    }

    /// Whether the window puts a filter on some scan of the source.
    pub fn reaches_some(&self, source: &str) -> bool {
        self.with_window
            .iter()
            .filter(|(table, _)| same_table(table, source))
            .any(|(table, lists)| {
                let old = self.without.get(table);
                lists.iter().enumerate().any(|(i, list)| {
                    let before = old.and_then(|o| o.get(i));
                    list.iter().any(|f| before.is_none_or(|b| !b.contains(f)))
                })
            })
    }

    /// The filter lists of the scans of a source.
    pub fn on(&self, source: &str) -> Vec<&Vec<Expr>> {
        self.with_window
            .iter()
            .filter(|(t, _)| same_table(t, source))
            .flat_map(|(_, lists)| lists)
            .collect()
    }
}

/// How many filters reach the scans of a plan.
pub fn count_scan_filters(
    plan: &FlowPlan,
    logical: &LogicalPlan,
) -> Result<usize, DataFusionError> {
    let filters = filters_of(&plan.bound.state.optimize(logical)?)?;
    Ok(filters.values().flatten().map(Vec::len).sum())
}

/// The filters on the scans of an optimized plan.
fn filters_of(optimized: &LogicalPlan) -> Result<FiltersByScan, DataFusionError> {
    let mut found = FiltersByScan::new();
    optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found
                .entry(scan.table_name.to_string())
                .or_default()
                .push(scan.filters.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// A report line for each source, from the scans of a planned query, and the bytes of all of its
/// scans.
pub fn source_reports(plan: &FlowPlan, filters: &ScanFilters) -> (Vec<SourceReport>, u64) {
    let records = plan.bound.log.take();
    let scanned = records.iter().map(|r| r.bytes_scanned).sum();
    let mut reports: Vec<SourceReport> = Vec::new();
    for read in &plan.bound.reads {
        if reports.iter().any(|r| r.table == read.shown) {
            continue;
        }
        let version = match &read.kind {
            ReadKind::Delta(table) => Some(table.version()),
            ReadKind::Planned | ReadKind::Files => None,
        };
        let mut report = SourceReport {
            table: read.shown.clone(),
            version,
            files_total: 0,
            files_scanned: 0,
            bytes_total: 0,
            bytes_scanned: 0,
            pruned_by_predicate: plan.pinned.is_some() && filters.reaches(&read.shown),
            note: None,
        };
        for record in records.iter().filter(|r| r.source == read.shown) {
            report.files_total = report.files_total.max(record.files_total);
            report.bytes_total = report.bytes_total.max(record.bytes_total);
            report.files_scanned += record.files_scanned;
            report.bytes_scanned += record.bytes_scanned;
        }
        let read_at_all = report.files_total > 0;
        report.note = match read.kind {
            ReadKind::Planned => Some("made by this update".into()),
            _ if !read_at_all || plan.pinned.is_none() || report.pruned_by_predicate => None,
            ReadKind::Files => Some("not pruned: files have no statistics in a log".into()),
            ReadKind::Delta(_) => {
                Some("not pruned: the predicate reaches none of its columns".into())
            }
        };
        reports.push(report);
    }
    (reports, scanned)
}

/// Whether a scan's table name is a source's name; either may have more parts.
pub fn same_table(scanned: &str, shown: &str) -> bool {
    let (a, b) = (scanned.to_lowercase(), shown.to_lowercase());
    a == b || a.ends_with(&format!(".{b}")) || b.ends_with(&format!(".{a}"))
}
