//! `windrow verify`: is the window of a flow what its query gives?
//!
//! Slices of the window are computed anew from the sources at the versions that the flow state
//! names, with the clock of that refresh, and compared with the target as multisets. Both sides are
//! counted row by row inside the engine, so memory is bounded; nothing is written anywhere.
//!
//! Zeros of both signs are one value here, and so are all NaN. Floats whose last digits differ are
//! counted apart: sums of floats depend on the order in which rows were read.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::provider_as_source;
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use serde::Serialize;
use windrow_delta::changes;
use windrow_delta::state::{DefinedRefresh, FlowState};
use windrow_delta::{Location, Table, TableError};
use windrow_executor::local;
use windrow_executor::predicate::typed;
use windrow_executor::scan::{DeltaSource, ScanLog};
use windrow_executor::session::Engine;
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::window::Window;

use crate::bind::{ReadKind, Sources, Upstream, fault_words};
use crate::config::PipelineConfig;
use crate::flow::{FlowContext, FlowPlan, FlowRequest, plan_flow};
use crate::project::Project;
use crate::removal::existing_rows;
use crate::selection::{check_settings, engine_options};
use crate::verify_slices::{Slice, slices};

/// Differing rows of a slice that are looked at for rounding; the rest only counts.
const ROWS_PAIRED: usize = 10_000;
/// Differing rows of a slice that are shown.
const EXAMPLES: usize = 5;
const COMPUTED: &str = "__windrow_computed";
const STORED: &str = "__windrow_stored";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    pub flow: String,
    /// So many slices, chosen by chance; `None` for all.
    pub sample: Option<usize>,
    /// Compare the version that the refresh made, not the newest one.
    pub as_committed: bool,
    /// The clock of a refresh whose state does not tell it.
    pub now: Option<DateTime<Utc>>,
}

/// A source as it was read.
#[derive(Debug, Clone, Serialize)]
pub struct VerifiedSource {
    pub table: String,
    pub version: i64,
}

/// A commit to the target after the refresh that was checked.
#[derive(Debug, Clone, Serialize)]
pub struct LaterCommit {
    pub version: i64,
    /// `another writer`, or `override`.
    pub by: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The query gives the row, the target lacks it.
    Missing,
    /// The target has the row, the query does not give it.
    Surplus,
}

/// A row that only one side has, or has more often.
#[derive(Debug, Clone, Serialize)]
pub struct Example {
    pub side: Side,
    /// By how many copies.
    pub copies: u64,
    pub row: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct SliceReport {
    pub slice: String,
    pub rows_computed: u64,
    pub rows_stored: u64,
    pub rows_missing: u64,
    pub rows_surplus: u64,
    /// Pairs of rows that are equal but for the last digits of floats.
    pub rows_rounded: u64,
    pub examples: Vec<Example>,
}

impl SliceReport {
    pub fn differs(&self) -> bool {
        self.rows_missing > 0 || self.rows_surplus > 0
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    pub flow: String,
    pub target: String,
    /// The version that was compared.
    pub target_version: i64,
    /// The version that the refresh made.
    pub refresh_version: i64,
    pub predicate: Option<String>,
    /// The clock of the refresh.
    pub now: String,
    pub sources: Vec<VerifiedSource>,
    pub slices_total: u64,
    pub slices: Vec<SliceReport>,
    pub later_commits: Vec<LaterCommit>,
    pub warnings: Vec<String>,
    pub equal: bool,
}

fn table_fault(error: &TableError) -> Vec<Fault> {
    vec![Fault::new(error.code(), error.to_string())]
}

/// Checks a flow. `on_slice` is told of each slice when it is done.
///
/// # Errors
/// Faults of the pipeline; a flow that has nothing to check, or whose definition is no longer that
/// of its last refresh; sources or files that are gone.
pub async fn verify(
    config: PipelineConfig,
    options: &VerifyOptions,
    on_slice: impl Fn(&SliceReport),
) -> Result<VerifyReport, Vec<Fault>> {
    let (project, mut faults) = Project::read(config);
    check_settings(&project, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let subject = Subject::open(project, options).await?;
    let plan = subject.plan().await?;
    let target = match options.as_committed {
        false => subject.target.clone(),
        true => Table::open_existing(subject.target.location(), Some(subject.last.target_version))
            .await
            .map_err(|e| table_fault(&e))?,
    };
    let check = Check {
        plan: &plan,
        target: &target,
    };
    let failed = |error: DataFusionError| vec![check_fault(&error)];
    let all = slices(&plan, &check.stored(None).map_err(failed)?)
        .await
        .map_err(failed)?;
    let slices_total = all.len() as u64;
    let chosen = match options.sample {
        Some(count) => sampled(all, count, seed()),
        None => all,
    };
    let mut reports = Vec::new();
    for slice in &chosen {
        let report = check.slice(slice).await.map_err(failed)?;
        on_slice(&report);
        reports.push(report);
    }
    let mut warnings = Vec::new();
    if !subject.last.sources_versioned {
        warnings.push(
            "warning: read_files has no versions: its files were read as they are now".to_string(),
        );
    }
    let table = &subject.project.tables[subject.project.flows[subject.flow].table];
    Ok(VerifyReport {
        flow: subject.project.flows[subject.flow].name.clone(),
        target: table.shown.clone(),
        target_version: target.version(),
        refresh_version: subject.last.target_version,
        predicate: plan.predicate_text(),
        now: subject
            .clock
            .to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        sources: subject
            .last
            .sources
            .iter()
            .map(|s| VerifiedSource {
                table: s.name.clone(),
                version: s.version,
            })
            .collect(),
        slices_total,
        equal: !reports.iter().any(SliceReport::differs),
        slices: reports,
        later_commits: subject.later_commits().await,
        warnings,
    })
}

/// A flow with the state that is to be checked.
struct Subject {
    project: Project,
    flow: usize,
    target: Table,
    last: DefinedRefresh,
    clock: DateTime<Utc>,
    /// Whether the state itself tells the clock.
    clock_known: bool,
}

impl Subject {
    async fn open(project: Project, options: &VerifyOptions) -> Result<Self, Vec<Fault>> {
        let wanted = name::key(&options.flow);
        let is_wanted = |shown: &str| name::key(shown) == wanted;
        let found = project.flows.iter().position(|f| is_wanted(&f.name));
        let found = found.or_else(|| {
            let mut flows = project
                .flows
                .iter()
                .enumerate()
                .filter(|(_, f)| is_wanted(&project.tables[f.table].shown));
            flows
                .next()
                .map(|(i, _)| i)
                .filter(|_| flows.next().is_none())
        });
        let Some(flow) = found else {
            let known: Vec<&str> = project.flows.iter().map(|f| f.name.as_str()).collect();
            return Err(vec![
                Fault::new(
                    "FLOW_NOT_FOUND",
                    format!("`{}` is no flow of this pipeline", options.flow),
                )
                .hint(name::did_you_mean(&options.flow, known.iter().copied()))
                .help(format!("its flows are {}", known.join(", "))),
            ]);
        };
        let flow_name = &project.flows[flow].name;
        let table = &project.tables[project.flows[flow].table];
        let location = Location::open(&table.location, &project.config.store_options)
            .map_err(|e| table_fault(&e))?;
        let nothing = |message: String| {
            vec![
                Fault::new("NOTHING_TO_VERIFY", message)
                    .help("run an update first; what it remembers is what is checked"),
            ]
        };
        let target = Table::open(&location, None)
            .await
            .map_err(|e| table_fault(&e))?
            .ok_or_else(|| nothing(format!("table `{}` is not made yet", table.shown)))?;
        let last = FlowState::load(&target, flow_name)
            .await
            .map_err(|e| table_fault(&e))?
            .and_then(|s| s.defined)
            .ok_or_else(|| {
                nothing(format!(
                    "flow `{flow_name}` has no refresh by its own predicate yet"
                ))
            })?;
        let parsed = |text: &str| {
            DateTime::parse_from_rfc3339(text)
                .ok()
                .map(|t| t.with_timezone(&Utc))
        };
        let known = parsed(&last.clock).or_else(|| parsed(last.query_clock.as_deref()?));
        Ok(Self {
            clock: known.or(options.now).unwrap_or_else(Utc::now),
            clock_known: known.is_some(),
            project,
            flow,
            target,
            last,
        })
    }

    /// The flow as its last refresh saw it.
    async fn plan(&self) -> Result<FlowPlan, Vec<Fault>> {
        let project = &self.project;
        let engine = Engine::new(&engine_options(project).map_err(|f| vec![f])?)
            .map_err(|e| vec![Fault::new("ENGINE_NOT_STARTED", e.to_string())])?;
        let mut opened = Vec::new();
        let mut upstream = BTreeMap::new();
        for source in &self.last.sources {
            let url = url::Url::parse(&source.url).map_err(|e| {
                vec![Fault::new(
                    "LOCATION_NOT_USABLE",
                    format!("source `{}` at `{}`: {e}", source.name, source.url),
                )]
            })?;
            let table = match Location::open(&url, &project.config.store_options) {
                Ok(location) => Table::open_existing(&location, Some(source.version)).await,
                Err(error) => Err(error),
            };
            let table = table.map_err(|e| gone(&source.name, source.version, &e))?;
            if table.id() != source.table_id {
                return Err(vec![
                    Fault::new(
                        "SOURCE_HISTORY_UNAVAILABLE",
                        format!(
                            "source `{}` was made anew since the refresh that is to be checked",
                            source.name
                        ),
                    )
                    .help("run an update, then verify"),
                ]);
            }
            let own = project
                .tables
                .iter()
                .position(|t| name::key(&t.shown) == name::key(&source.name));
            if let Some(index) = own {
                upstream.insert(index, Upstream::Existing(table.clone()));
            }
            opened.push(table);
        }
        let sources = Sources::pinned(opened);
        let context = FlowContext {
            project,
            engine: &engine,
            clock: self.clock,
            sources: &sources,
            upstream: &upstream,
        };
        let planned = plan_flow(
            &context,
            self.flow,
            Some(self.target.clone()),
            &FlowRequest::default(),
        )
        .await;
        // A table that the state does not know is a fault without words of its own.
        let plan = planned.map_err(|f| {
            if f.is_empty() {
                self.changed("its query")
            } else {
                f
            }
        })?;
        self.check_same(&plan)?;
        Ok(plan)
    }

    fn changed(&self, what: &str) -> Vec<Fault> {
        let flow = &self.project.flows[self.flow].name;
        vec![
            Fault::new(
                "DEFINITION_CHANGED",
                format!("flow `{flow}` can't be checked: {what} is not that of its last refresh"),
            )
            .help("run an update, then verify"),
        ]
    }

    /// The plan must be that of the refresh in every respect.
    fn check_same(&self, plan: &FlowPlan) -> Result<(), Vec<Fault>> {
        if plan.bound.nondeterministic || plan.pinned.as_ref().is_some_and(|p| !p.deterministic) {
            return Err(vec![Fault::new(
                "PLAN_NOT_DETERMINISTIC",
                format!(
                    "flow `{}` gives other rows each time, so there is nothing to compare with",
                    self.project.flows[self.flow].name
                ),
            )]);
        }
        let same_sources = plan.bound.reads.iter().all(|read| match &read.kind {
            ReadKind::Delta(table) => self.last.sources.iter().any(|last| {
                last.url == table.location().url().as_str() && last.version == table.version()
            }),
            ReadKind::Planned | ReadKind::Files => true,
        });
        if plan.fingerprint() != self.last.fingerprint || !same_sources {
            return Err(self.changed("its query"));
        }
        if self.project.time_zone() != self.last.time_zone {
            return Err(self.changed("the time zone"));
        }
        let old: Option<Window> = serde_json::from_str(&self.last.predicate).ok();
        if old.is_some_and(|old| old != plan.window) {
            return Err(match self.clock_known {
                true => self.changed("its predicate"),
                false => vec![
                    Fault::new(
                        "CLOCK_NOT_KNOWN",
                        "the state of the last refresh does not tell its clock",
                    )
                    .help("say it with --now, or run an update"),
                ],
            });
        }
        Ok(())
    }

    /// Commits of the target since the refresh that changed rows.
    async fn later_commits(&self) -> Vec<LaterCommit> {
        let found = changes::between(
            self.target.location(),
            self.last.target_version,
            self.target.version(),
        )
        .await;
        let Ok(Some(commits)) = found else {
            return Vec::new();
        };
        commits
            .iter()
            .filter(|c| c.changes_rows())
            .map(|c| LaterCommit {
                version: c.version,
                by: match c.windrow {
                    Some(_) => "override",
                    None => "another writer",
                },
            })
            .collect()
    }
}

/// A version of a source that can't be read any more.
fn gone(source: &str, version: i64, error: &TableError) -> Vec<Fault> {
    vec![
        Fault::new(
            error.code(),
            format!("source `{source}` can't be read at version {version}: {error}"),
        )
        .help("older versions go when a table is cleaned up; run an update, then verify"),
    ]
}

fn check_fault(error: &DataFusionError) -> Fault {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        let missing = inner
            .downcast_ref::<object_store::Error>()
            .is_some_and(|e| matches!(e, object_store::Error::NotFound { .. }));
        if missing || inner.to_string().contains("No such file or directory") {
            return Fault::new(
                "SOURCE_HISTORY_UNAVAILABLE",
                format!("a file of an older version is gone: {inner}"),
            )
            .help("a vacuum removes files of older versions; run an update, then verify");
        }
        cause = inner.source();
    }
    let (code, message) = fault_words(error);
    Fault::new(code, message)
}

/// Some of the slices, in their order. The last one, of all that the others leave, is one like them.
fn sampled(mut slices: Vec<Slice>, count: usize, mut seed: u64) -> Vec<Slice> {
    while slices.len() > count.max(1) {
        // The high bits of a linear congruential generator: any choice will do.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % slices.len();
        slices.remove(at);
    }
    slices
}

fn seed() -> u64 {
    Utc::now().timestamp_subsec_nanos().into()
}

struct Check<'a> {
    plan: &'a FlowPlan,
    target: &'a Table,
}

impl Check<'_> {
    /// The window's rows of the target that satisfy a condition.
    fn stored(&self, condition: Option<&Expr>) -> Result<LogicalPlan, DataFusionError> {
        let source = DeltaSource::new(self.target.clone(), "stored", ScanLog::default())?;
        let scan = LogicalPlanBuilder::scan("stored", provider_as_source(Arc::new(source)), None)?
            .build()?;
        let rows = existing_rows(self.plan, self.target, scan, false)?;
        self.filtered(rows, condition)
    }

    fn filtered(
        &self,
        rows: LogicalPlan,
        condition: Option<&Expr>,
    ) -> Result<LogicalPlan, DataFusionError> {
        let window = self.plan.pinned.as_ref().map(|p| p.typed.expr.clone());
        let both = window
            .into_iter()
            .chain(condition.cloned())
            .reduce(Expr::and);
        let Some(both) = both else { return Ok(rows) };
        let typed = typed(&self.plan.bound.state, &self.plan.target_schema, both)?;
        if typed.is_true() {
            return Ok(rows);
        }
        LogicalPlanBuilder::from(rows).filter(typed.expr)?.build()
    }

    /// Rows with their marks: one that is counted for this side, none for the other.
    fn marked(&self, rows: LogicalPlan, computed: bool) -> Result<LogicalPlan, DataFusionError> {
        let mut exprs: Vec<Expr> = rows
            .schema()
            .columns()
            .into_iter()
            .map(|c| {
                let name = c.name.clone();
                Expr::Column(c).alias(name)
            })
            .collect();
        exprs.push(lit(i64::from(computed)).alias(COMPUTED));
        exprs.push(lit(i64::from(!computed)).alias(STORED));
        LogicalPlanBuilder::from(rows).project(exprs)?.build()
    }

    async fn slice(&self, slice: &Slice) -> Result<SliceReport, DataFusionError> {
        let condition = slice.condition.as_ref();
        let computed = self.filtered(self.plan.rows.clone(), condition)?;
        let computed = self.marked(computed, true)?;
        let stored = self.marked(self.stored(condition)?, false)?;
        let mark = |name: &str| Expr::Column(Column::new_unqualified(name));
        let keys: Vec<Expr> = self
            .plan
            .target_schema
            .fields()
            .iter()
            .map(|f| mark(f.name()))
            .collect();
        let counted = LogicalPlanBuilder::from(computed)
            .union(stored)?
            .aggregate(
                keys,
                vec![
                    sum(mark(COMPUTED)).alias("computed"),
                    sum(mark(STORED)).alias("stored"),
                ],
            )?
            .build()?;
        let physical = local::physical(&self.plan.bound.state, &counted).await?;
        let context = Arc::new(TaskContext::from(&self.plan.bound.state));
        let mut stream = execute_stream(physical, context)?;
        let mut found = Differences::default();
        while let Some(batch) = stream.try_next().await? {
            found.take(&batch)?;
        }
        Ok(found.report(slice.label.clone(), self.plan))
    }
}

/// A row whose copies are not as many on both sides.
#[derive(Debug, Clone)]
struct Differing {
    /// Floats are left empty here.
    texts: Vec<Option<String>>,
    floats: Vec<(usize, f64)>,
    copies: u64,
}

#[derive(Debug, Default)]
struct Differences {
    rows_computed: u64,
    rows_stored: u64,
    missing: Vec<Differing>,
    surplus: Vec<Differing>,
    /// Copies beyond the rows that are kept.
    more_missing: u64,
    more_surplus: u64,
}

impl Differences {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let width = batch.num_columns().saturating_sub(2);
        let count = |at: usize| cast_array(batch.column(at), &DataType::Int64);
        let (computed, stored) = (count(width)?, count(width + 1)?);
        let (computed, stored) = (
            computed.as_primitive::<Int64Type>(),
            stored.as_primitive::<Int64Type>(),
        );
        for row in 0..batch.num_rows() {
            let (here, there) = (
                computed.value(row).unsigned_abs(),
                stored.value(row).unsigned_abs(),
            );
            self.rows_computed += here;
            self.rows_stored += there;
            let (list, more, copies) = match here.cmp(&there) {
                std::cmp::Ordering::Equal => continue,
                std::cmp::Ordering::Greater => {
                    (&mut self.missing, &mut self.more_missing, here - there)
                }
                std::cmp::Ordering::Less => {
                    (&mut self.surplus, &mut self.more_surplus, there - here)
                }
            };
            if list.len() < ROWS_PAIRED {
                list.push(differing(&batch.columns()[..width], row, copies)?);
            } else {
                *more += copies;
            }
        }
        Ok(())
    }

    fn report(mut self, slice: String, plan: &FlowPlan) -> SliceReport {
        let rows_rounded = pair(&mut self.missing, &mut self.surplus);
        let copies = |list: &[Differing]| list.iter().map(|d| d.copies).sum::<u64>();
        let names: Vec<&String> = plan
            .target_schema
            .fields()
            .iter()
            .map(|f| f.name())
            .collect();
        let shown = |side: Side, list: &[Differing]| -> Vec<Example> {
            list.iter()
                .take(EXAMPLES)
                .map(|d| Example {
                    side,
                    copies: d.copies,
                    row: names.iter().map(|n| (*n).clone()).zip(d.cells()).collect(),
                })
                .collect()
        };
        let mut examples = shown(Side::Missing, &self.missing);
        examples.extend(shown(Side::Surplus, &self.surplus));
        SliceReport {
            slice,
            rows_computed: self.rows_computed,
            rows_stored: self.rows_stored,
            rows_missing: copies(&self.missing) + self.more_missing,
            rows_surplus: copies(&self.surplus) + self.more_surplus,
            rows_rounded,
            examples,
        }
    }
}

impl Differing {
    fn cells(&self) -> Vec<Option<String>> {
        let mut cells = self.texts.clone();
        for (at, value) in &self.floats {
            if let Some(cell) = cells.get_mut(*at) {
                *cell = Some(format!("{value:?}"));
            }
        }
        cells
    }

    /// Equal but for the last digits of floats.
    fn is_near(&self, other: &Self) -> bool {
        self.floats.len() == other.floats.len()
            && self
                .floats
                .iter()
                .zip(&other.floats)
                .all(|((i, a), (j, b))| i == j && near(*a, *b))
    }
}

fn near(a: f64, b: f64) -> bool {
    const RELATIVE: f64 = 1e-9;
    const ABSOLUTE: f64 = 1e-12;
    let distance = (a - b).abs();
    a == b
        || (a.is_nan() && b.is_nan())
        || distance <= ABSOLUTE
        || distance <= RELATIVE * a.abs().max(b.abs()) && distance.is_finite()
}

fn differing(columns: &[ArrayRef], row: usize, copies: u64) -> Result<Differing, DataFusionError> {
    let mut texts = Vec::with_capacity(columns.len());
    let mut floats = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if column.is_null(row) {
            texts.push(None);
        } else if matches!(column.data_type(), DataType::Float32 | DataType::Float64) {
            let value = cast_array(&column.slice(row, 1), &DataType::Float64)?;
            floats.push((at, value.as_primitive::<Float64Type>().value(0)));
            texts.push(Some(String::new()));
        } else {
            texts.push(Some(array_value_to_string(column, row)?));
        }
    }
    Ok(Differing {
        texts,
        floats,
        copies,
    })
}

/// Takes rows out of both lists that are equal but for rounding; gives their number.
fn pair(missing: &mut Vec<Differing>, surplus: &mut Vec<Differing>) -> u64 {
    let mut by_texts: BTreeMap<Vec<Option<String>>, Vec<usize>> = BTreeMap::new();
    for (at, row) in surplus.iter().enumerate() {
        by_texts.entry(row.texts.clone()).or_default().push(at);
    }
    let mut paired = 0;
    for row in missing.iter_mut().filter(|r| !r.floats.is_empty()) {
        for at in by_texts.get(&row.texts).into_iter().flatten() {
            let other = &mut surplus[*at];
            if row.copies > 0 && other.copies > 0 && row.is_near(other) {
                let copies = row.copies.min(other.copies);
                row.copies -= copies;
                other.copies -= copies;
                paired += copies;
            }
        }
    }
    missing.retain(|r| r.copies > 0);
    surplus.retain(|r| r.copies > 0);
    paired
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, value: f64, copies: u64) -> Differing {
        Differing {
            texts: vec![Some(text.into()), Some(String::new())],
            floats: vec![(1, value)],
            copies,
        }
    }

    #[test]
    fn rows_that_differ_by_rounding_are_pairs() {
        let mut missing = vec![row("a", 0.1 + 0.2, 2), row("b", 1.0, 1)];
        let mut surplus = vec![row("a", 0.3, 1), row("b", 1.01, 1)];
        assert_eq!(pair(&mut missing, &mut surplus), 1);
        assert_eq!(missing.len(), 2);
        assert_eq!(surplus.len(), 1);
        assert!(near(f64::NAN, f64::NAN));
        assert!(!near(f64::INFINITY, 1.0));
        assert!(!near(f64::INFINITY, f64::NEG_INFINITY));
    }

    #[test]
    fn a_sample_keeps_the_order_and_the_number() {
        let slices: Vec<Slice> = (0..20)
            .map(|i| Slice {
                label: format!("{i:02}"),
                condition: None,
            })
            .collect();
        for seed in 0..50 {
            let labels: Vec<String> = sampled(slices.clone(), 5, seed)
                .into_iter()
                .map(|s| s.label)
                .collect();
            let mut sorted = labels.clone();
            sorted.sort();
            assert_eq!(labels.len(), 5);
            assert_eq!(labels, sorted);
        }
    }
}
