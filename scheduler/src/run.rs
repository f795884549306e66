//! Running one planned flow: stage the window's rows, plan the removal, commit both as one version.
//!
//! After a conflict the commit moves past commits that have nothing to do with the window (`rebase`).
//! Otherwise a refresh of the whole window plans its removal again, without running the query again; any
//! other technique rests on what the target held, so the flow is planned anew. Staged
//! files of a flow that fails are removed, those of a process that died are found by `vacuum`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::common::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::{Value, json};
use windrow_delta::commit::{Commit, Outcome, checkpoint_if_due, checkpoint_is_due};
use windrow_delta::protocol::{protocol_for, upgraded};
use windrow_delta::state::{DefinedRefresh, FlowState, app_id};
use windrow_delta::stats::indexed_columns;
use windrow_delta::{Location, Table, TableError};
use windrow_executor::local;
use windrow_executor::stage::{RowRule, RuleKind, StageSpec, StagedFile};
use windrow_flows::definition::{ClusterBy, TableDefinition};
use windrow_flows::refresh::{Decision, Technique};

use crate::bind::words_of;
use crate::evolve::Fill;
use crate::facts::{self, short_fingerprint};
use crate::failpoint;
use crate::flow::{FlowPlan, KIND, OWNER, ScanFilters, kind_word, planned, source_reports};
use crate::project::{Project, ProjectTable};
use crate::rebase;
use crate::removal::{Removal, RemovalPlanner, kept_rows};
use crate::report::{FlowMetrics, Problem, SourceReport};

/// How often a removal is planned against newer versions before the flow gives up.
const COMMIT_TRIES: u32 = 40;
/// How often a commit is moved past others in a row before it counts as one of these tries.
const MOVES: u32 = 200;

/// What running a flow needs from the update.
pub struct RunContext<'a> {
    pub project: &'a Project,
    pub update_id: &'a str,
    pub clock: DateTime<Utc>,
    pub partitions: usize,
    pub memory_limit: usize,
}

/// A flow that was committed, or had nothing to do.
#[derive(Debug)]
pub struct Done {
    pub table: Table,
    /// The version that the flow made; the current one when it made none.
    pub version: i64,
    pub committed: bool,
    pub metrics: FlowMetrics,
    pub sources: Vec<SourceReport>,
}

/// Why a flow was not run to its end.
#[derive(Debug)]
pub enum Stopped {
    Failed(Problem),
    /// A join may not fit into memory; the flow must be planned again with joins that spill.
    NeedsSpillingJoins,
    /// Others changed the window, which the technique did not expect: the flow must be planned
    /// again, on this newer version.
    WindowChanged(Box<Table>),
}

impl From<TableError> for Stopped {
    fn from(error: TableError) -> Self {
        Self::Failed(Problem {
            code: error.code().into(),
            message: error.to_string(),
            help: None,
        })
    }
}

impl From<DataFusionError> for Stopped {
    fn from(error: DataFusionError) -> Self {
        let (code, message) = words_of(&error);
        Self::Failed(Problem {
            code: code.into(),
            message,
            help: help_for(code),
        })
    }
}

fn help_for(code: &str) -> Option<String> {
    match code {
        "MEMORY_EXHAUSTED" => Some("raise windrow.memoryLimit, or take a smaller window".into()),
        "ROW_OUTSIDE_WINDOW" | "INTERNAL" => {
            Some("this is a fault of Windrow; nothing was written".into())
        }
        _ => None,
    }
}

/// The rows that a flow writes and the window that it takes away.
pub struct Work {
    /// What is staged; `None` when nothing is computed.
    pub rows: Option<LogicalPlan>,
    /// The rows' expressions are typed already.
    pub typed: bool,
    pub decision: Decision,
    /// Bytes that were read to find out what changed.
    pub bytes_read: u64,
}

/// Stages, plans the removal and commits. `state` is the flow's state as it is.
pub async fn run_flow(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: Work,
    state: Option<FlowState>,
    filters: &ScanFilters,
    may_replan: bool,
) -> Result<Done, Stopped> {
    let started = Instant::now();
    let table = &context.project.tables[context.project.flows[plan.flow].table];
    let location = Location::open(&table.location, &context.project.config.store_options)?;
    if work.decision.technique == Technique::NoOp
        && let Some(existing) = &plan.existing
        && !metadata_differs(plan, context.project, table)?
        && !state_moves(plan, state.as_ref())
    {
        let metrics = FlowMetrics {
            bytes_scanned: work.bytes_read,
            duration_ms: started.elapsed().as_millis() as u64,
            ..FlowMetrics::default()
        };
        return Ok(Done {
            version: existing.version(),
            table: existing.clone(),
            committed: false,
            metrics,
            sources: source_reports(plan, filters).0,
        });
    }
    let mut stager = Stager::new(context, plan, table, &location)?;
    let result = stage_and_commit(
        context,
        plan,
        &work,
        state,
        filters,
        &mut stager,
        may_replan,
    )
    .await;
    match result {
        Ok(mut done) => {
            done.metrics.duration_ms = started.elapsed().as_millis() as u64;
            Ok(done)
        }
        Err(stopped) => {
            stager.discard().await;
            Err(stopped)
        }
    }
}

async fn stage_and_commit(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: &Work,
    state: Option<FlowState>,
    filters: &ScanFilters,
    stager: &mut Stager<'_>,
    may_replan: bool,
) -> Result<Done, Stopped> {
    let mut metrics = FlowMetrics {
        bytes_scanned: work.bytes_read,
        ..FlowMetrics::default()
    };
    let mut sources = Vec::new();
    failpoint::reached("before_stage");
    let mut planner = RemovalPlanner::default();
    let mut target = plan.existing.clone();
    let mut planned = None;
    if let Some(rows) = &work.rows {
        let physical = if work.typed {
            local::physical_of_typed(&plan.bound.state, rows.clone()).await?
        } else {
            local::physical(&plan.bound.state, rows).await?
        };
        let scanned;
        (sources, scanned) = source_reports(plan, filters);
        if may_replan && joins_may_not_fit(rows, &sources, context.memory_limit) {
            return Err(Stopped::NeedsSpillingJoins);
        }
        metrics.bytes_scanned += scanned;
        // What goes does not hang on what comes, so both are found out at once.
        let removal = async {
            match &target {
                Some(table) if !plan.scope.appends => planner.plan(plan, table).await.map(Some),
                _ => Ok(None),
            }
        };
        let (staged, removal) = futures::join!(stager.stage(physical, scanned, true), removal);
        let staged = staged?;
        metrics.num_output_rows = staged.iter().map(|f| f.rows.unsigned_abs()).sum();
        stager.files.extend(staged);
        planned = removal?;
    }
    failpoint::reached("after_stage");
    let nothing_goes = work.rows.is_none() || plan.scope.appends;
    let mut copied: Vec<(Vec<String>, Vec<StagedFile>)> = Vec::new();
    let flow_name = &context.project.flows[plan.flow].name;
    let expected = match &target {
        Some(table) => table.transaction_version(&app_id(flow_name)).await?,
        None => None,
    };
    let run_id = format!("{}-{}", context.update_id, uuid::Uuid::new_v4().simple());
    for attempt in 0..COMMIT_TRIES {
        let removal = match (planned.take(), &target) {
            (Some(removal), _) => removal,
            (None, Some(table)) if !nothing_goes => planner.plan(plan, table).await?,
            _ => Removal::default(),
        };
        let rewritten: Vec<String> = removal.rewrite.iter().map(|f| f.log_path.clone()).collect();
        let kept = match copied.iter().position(|(paths, _)| *paths == rewritten) {
            Some(at) => copied[at].1.clone(),
            None => {
                let files = match &target {
                    Some(table) => stager.copy(plan, table, &removal).await?,
                    None => Vec::new(),
                };
                copied.push((rewritten, files.clone()));
                files
            }
        };
        metrics.num_deleted_rows = removal.deleted_rows;
        metrics.num_copied_rows = removal.copied_rows;
        metrics.num_files_added = (stager.files.len() + kept.len()) as u64;
        metrics.num_files_removed = (removal.remove.len() + removal.rewrite.len()) as u64;
        metrics.bytes_written = stager
            .files
            .iter()
            .chain(&kept)
            .map(|f| f.bytes.unsigned_abs())
            .sum();
        let mut version = target.as_ref().map_or(0, |t| t.version() + 1);
        for _ in 0..MOVES {
            let new_state = next_state(
                context,
                plan,
                state.as_ref(),
                expected,
                &run_id,
                flow_name,
                version,
            );
            let staged_state = new_state.stage(&stager.location).await?;
            failpoint::reached("before_commit");
            let commit = commit_of(
                context,
                plan,
                work,
                target.as_ref(),
                &removal,
                &kept,
                stager,
                &new_state,
                &staged_state,
            )?;
            match commit.attempt(&stager.location, version).await? {
                Outcome::Committed => {
                    failpoint::reached("after_commit");
                    stager.forget_all_but(&kept).await;
                    let newest = async {
                        match &target {
                            // Only the new entries of the log are read.
                            Some(target) => target.refreshed().await,
                            None => Table::open_existing(&stager.location, None).await,
                        }
                    };
                    let (table, ()) =
                        futures::join!(newest, new_state.forget_older(&stager.location));
                    let table = table?;
                    if table.version() == version {
                        checkpoint_if_due(&table).await;
                    } else if checkpoint_is_due(&table, version) {
                        let ours = Table::open_existing(&stager.location, Some(version)).await?;
                        checkpoint_if_due(&ours).await;
                    }
                    return Ok(Done {
                        table,
                        version,
                        committed: true,
                        metrics,
                        sources,
                    });
                }
                Outcome::Conflict => {
                    match rebase::past(plan, flow_name, target.as_ref(), version).await? {
                        Some(next) => version = next,
                        None => break,
                    }
                }
            }
        }
        let newer = match &target {
            Some(target) => target.refreshed().await?,
            None => Table::open_existing(&stager.location, None).await?,
        };
        check_unchanged(context, target.as_ref(), &newer, flow_name, expected).await?;
        if work.decision.technique != Technique::CompleteRecompute {
            return Err(Stopped::WindowChanged(Box::new(newer)));
        }
        target = Some(newer);
        tokio::time::sleep(Duration::from_millis(20 * u64::from(attempt.min(20)))).await;
    }
    Err(Stopped::Failed(Problem {
        code: "COMMIT_CONFLICTS".into(),
        message: format!(
            "table {} was committed to by others {COMMIT_TRIES} times while this flow tried to",
            stager.location.shown()
        ),
        help: Some("run the update again when the other writers are done".into()),
    }))
}

/// A foreign commit may change rows, but neither the columns nor the owner.
async fn check_unchanged(
    context: &RunContext<'_>,
    old: Option<&Table>,
    new: &Table,
    flow: &str,
    expected: Option<i64>,
) -> Result<(), Stopped> {
    let failed = |code: &str, message: String, help: &str| {
        Err(Stopped::Failed(Problem {
            code: code.into(),
            message,
            help: Some(help.into()),
        }))
    };
    let shown = new.location().shown();
    if new.properties().get(OWNER) != Some(&context.project.config.name) {
        return failed(
            "TARGET_NOT_OWNED",
            format!("a table that this pipeline did not make appeared at {shown}"),
            "move it away and run the update again",
        );
    }
    let sequence = new.transaction_version(&app_id(flow)).await?;
    if sequence != expected {
        return failed(
            "CONCURRENT_UPDATE",
            format!("another update of flow `{flow}` was committed to {shown} meanwhile"),
            "run one update of a pipeline at a time; this one wrote nothing",
        );
    }
    let same = match old {
        None => false,
        Some(old) => {
            old.metadata_json()? == new.metadata_json()?
                && old.protocol_json()? == new.protocol_json()?
        }
    };
    if !same {
        return failed(
            "CONCURRENT_SCHEMA_CHANGE",
            format!("the columns, properties or protocol of {shown} were changed meanwhile"),
            "run the update again; it starts from the table as it is now",
        );
    }
    Ok(())
}

/// A hash join keeps one side in memory. Compressed bytes are taken eight-fold.
fn joins_may_not_fit(rows: &LogicalPlan, sources: &[SourceReport], memory: usize) -> bool {
    use datafusion::common::tree_node::TreeNodeRecursion;
    let mut joins = false;
    let _ = rows.apply_with_subqueries(|node| {
        joins |= matches!(node, LogicalPlan::Join(_));
        Ok(TreeNodeRecursion::Continue)
    });
    let mut sizes: Vec<u64> = sources.iter().map(|s| s.bytes_scanned).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    joins && sizes.iter().skip(1).sum::<u64>().saturating_mul(8) > memory as u64
}

fn state_moves(plan: &FlowPlan, state: Option<&FlowState>) -> bool {
    let Some(last) = state.and_then(|s| s.defined.as_ref()) else {
        return true;
    };
    facts::source_states(plan).0 != last.sources
}

fn next_state(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    state: Option<&FlowState>,
    expected: Option<i64>,
    run_id: &str,
    flow: &str,
    version: i64,
) -> FlowState {
    let kept = state
        .and_then(|s| s.defined.clone())
        .filter(|_| !plan.full_refresh);
    let defined = if plan.is_override {
        kept
    } else {
        let (sources, sources_versioned) = facts::source_states(plan);
        // A refresh that computed a part leaves what the last one covered as it was, so the
        // window that is covered is this one.
        Some(DefinedRefresh {
            fingerprint: plan.fingerprint(),
            predicate: serde_json::to_string(&plan.window).unwrap_or_default(),
            predicate_deterministic: plan.pinned.as_ref().is_none_or(|p| p.deterministic),
            time_zone: context.project.time_zone().to_string(),
            clock: context.clock.to_rfc3339(),
            query_clock: facts::query_clock(plan, &context.clock),
            sources,
            sources_versioned,
            target_version: version,
        })
    };
    FlowState::new(flow, expected.unwrap_or(0) + 1, run_id, defined)
}

/// Stages files for one flow and remembers them.
struct Stager<'a> {
    plan: &'a FlowPlan,
    location: Location,
    spec: StageSpec,
    rules: Vec<RowRule>,
    partitions: usize,
    /// The window's rows.
    files: Vec<StagedFile>,
    /// Everything that was staged, used or not.
    all: Vec<String>,
    copies: u32,
}

impl<'a> Stager<'a> {
    fn new(
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
            },
            rules: rules(plan, &properties)?,
            location: location.clone(),
            partitions: context.partitions,
            files: Vec::new(),
            all: Vec::new(),
            copies: 0,
        }
        .named(context.update_id))
    }

    fn named(mut self, update_id: &str) -> Self {
        self.spec.file_prefix = format!("part-{update_id}-s0-a0");
        self
    }

    async fn stage(
        &mut self,
        rows: Arc<dyn ExecutionPlan>,
        input_bytes: u64,
        in_window: bool,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        let by_size = (input_bytes / self.spec.target_file_size.max(1) + 1)
            .min(self.partitions as u64)
            .max(1) as usize;
        // The rows of a partition value meet in one task: more tasks make no more files.
        let writers = match self.spec.partition_columns.is_empty() {
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
        let plan = local::stage_plan(named, self.spec.clone(), rules, writers)?;
        let files = local::run_stage(&self.plan.bound.state, plan).await?;
        self.all.extend(files.iter().map(|f| f.path.clone()));
        Ok(files)
    }

    /// Copies the rows that stay of straddling files.
    async fn copy(
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

    async fn forget_all_but(&self, kept: &[StagedFile]) {
        let unused: Vec<&String> = self
            .all
            .iter()
            .filter(|p| !self.files.iter().chain(kept).any(|f| f.path == **p))
            .collect();
        self.delete(unused).await;
    }

    async fn discard(&self) {
        self.delete(self.all.iter().collect()).await;
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

/// The table's properties after this update: those it has, then those of the definition, then ours.
fn wanted_properties(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
) -> Vec<(String, String)> {
    let mut wanted: Vec<(String, String)> = match &plan.existing {
        Some(existing) => existing
            .properties()
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        None => Vec::new(),
    };
    let mut set = |key: &str, value: String| match wanted.iter_mut().find(|(k, _)| k == key) {
        Some((_, old)) => *old = value,
        None => wanted.push((key.to_string(), value)),
    };
    for (key, value) in &table.definition.properties {
        set(key, value.clone());
    }
    set(OWNER, project.config.name.clone());
    set(KIND, kind_word(table.definition.kind).into());
    match &table.definition.cluster_by {
        Some(ClusterBy::Auto) => set("windrow.clusterBy", "auto".into()),
        Some(ClusterBy::Columns(columns)) => {
            let names: Vec<&str> = columns.iter().map(|c| c.last()).collect();
            set("windrow.clusterBy", names.join(","));
        }
        None => {}
    }
    wanted.sort();
    wanted
}

fn wanted_comment<'a>(plan: &'a FlowPlan, definition: &'a TableDefinition) -> Option<&'a str> {
    definition
        .comment
        .as_deref()
        .or_else(|| plan.existing.as_ref().and_then(Table::comment))
}

fn metadata_differs(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
) -> Result<bool, Stopped> {
    let Some(existing) = &plan.existing else {
        return Ok(true);
    };
    let properties = wanted_properties(plan, project, table);
    let mut current: Vec<(String, String)> = existing
        .properties()
        .iter()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    current.sort();
    Ok(
        plan.full_refresh && *existing.schema().as_ref() != plan.evolved.schema
            || plan.evolved.columns_changed && *existing.schema().as_ref() != plan.evolved.schema
            || current != properties
            || existing.comment() != wanted_comment(plan, &table.definition),
    )
}

/// The `metaData` and `protocol` actions, where they are needed.
fn metadata_actions(
    plan: &FlowPlan,
    project: &Project,
    table: &ProjectTable,
    target: Option<&Table>,
) -> Result<Vec<Value>, Stopped> {
    if !metadata_differs(plan, project, table)? {
        return Ok(Vec::new());
    }
    let properties = wanted_properties(plan, project, table);
    let configuration: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect();
    let schema = &plan.evolved.schema;
    let mut actions = Vec::new();
    let mut metadata = match target {
        None => {
            actions.push(json!({"protocol": protocol_for(schema, &properties)}));
            json!({"id": uuid::Uuid::new_v4().to_string(), "name": table.full_name.table,
                "format": {"provider": "parquet", "options": {}},
                "createdTime": Utc::now().timestamp_millis()})
        }
        Some(target) => {
            if let Some(protocol) = upgraded(&target.protocol_json()?, schema) {
                actions.push(json!({"protocol": protocol}));
            }
            target.metadata_json()?
        }
    };
    metadata["schemaString"] = json!(schema.to_schema_string());
    metadata["partitionColumns"] = json!(schema.partition_columns);
    metadata["configuration"] = Value::Object(configuration);
    match wanted_comment(plan, &table.definition) {
        Some(comment) => metadata["description"] = json!(comment),
        None => {
            if let Some(map) = metadata.as_object_mut() {
                map.remove("description");
            }
        }
    }
    actions.push(json!({"metaData": metadata}));
    Ok(actions)
}

fn commit_of(
    context: &RunContext<'_>,
    plan: &FlowPlan,
    work: &Work,
    target: Option<&Table>,
    removal: &Removal,
    kept: &[StagedFile],
    stager: &Stager<'_>,
    state: &FlowState,
    staged_state: &windrow_delta::state::StagedState,
) -> Result<Commit, Stopped> {
    let flow = &context.project.flows[plan.flow];
    let table = &context.project.tables[flow.table];
    let now_ms = Utc::now().timestamp_millis();
    let mut actions = metadata_actions(plan, context.project, table, target)?;
    actions.push(staged_state.txn.clone());
    actions.extend(
        removal
            .remove
            .iter()
            .chain(&removal.rewrite)
            .map(|f| f.remove_action(now_ms, true)),
    );
    actions.extend(stager.files.iter().chain(kept).map(|f| f.add.clone()));
    let predicate = plan.predicate_text();
    let mode = if plan.scope.appends {
        "Append"
    } else {
        "Overwrite"
    };
    let mut parameters = vec![("mode".to_string(), mode.to_string())];
    if let Some(predicate) = &predicate {
        parameters.push(("predicate".into(), predicate.clone()));
    }
    let rows: u64 = stager.files.iter().map(|f| f.rows.unsigned_abs()).sum();
    Ok(Commit {
        run_id: state.run_id.clone(),
        operation: flow.definition.kind.word().replace('_', " "),
        parameters,
        info: json!({"pipeline": context.project.config.name, "update": context.update_id,
            "flow": flow.name, "sequence": state.sequence, "state": staged_state.file,
            "technique": work.decision.technique.word(), "predicate": predicate,
            "override": plan.is_override, "fingerprint": short_fingerprint(&plan.fingerprint())}),
        metrics: vec![
            ("numOutputRows".into(), rows),
            ("numDeletedRows".into(), removal.deleted_rows),
            ("numCopiedRows".into(), removal.copied_rows),
            (
                "numAddedFiles".into(),
                (stager.files.len() + kept.len()) as u64,
            ),
            (
                "numRemovedFiles".into(),
                (removal.remove.len() + removal.rewrite.len()) as u64,
            ),
        ],
        actions,
    })
}
