//! Sessions: one DataFusion state per flow, with Spark's semantics, one pinned clock and bounded
//! memory.
//!
//! A state made here must be used as it is: DataFusion's own context would set the clock anew.

use std::sync::{Arc, Mutex};

use ballista_core::extension::SessionConfigExt;
use chrono::{DateTime, Utc};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::full_join::KeysOfFullJoins;
use crate::keeps_types::KeepsTypes;
use crate::spark;
use crate::unkeyed::Unkeyed;

/// Limits of the engine in this process.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Bytes that sorts, aggregates and joins may hold before they spill; default: half of the
    /// machine's memory, at most 4 GiB.
    pub memory_limit: Option<usize>,
    /// Partitions that a query runs in; default: the processor's cores.
    pub partitions: Option<usize>,
    /// Plans must be able to run in several processes, which share nothing.
    pub distributed: bool,
}

/// What all sessions of a process share: memory, spill files, object stores.
#[derive(Debug, Clone)]
pub struct Engine {
    runtime: Arc<RuntimeEnv>,
    partitions: usize,
    memory_limit: usize,
    distributed: bool,
    /// A state without tables, of which the next one of the same settings is a copy.
    pattern: Arc<Mutex<Option<Pattern>>>,
}

#[derive(Debug)]
struct Pattern {
    time_zone: String,
    spilling_joins: bool,
    state: SessionState,
}

impl Engine {
    pub fn new(options: &EngineOptions) -> Result<Self> {
        let memory_limit = options.memory_limit.unwrap_or_else(default_memory);
        let pool = TrackConsumersPool::new(
            FairSpillPool::new(memory_limit),
            std::num::NonZeroUsize::new(5).unwrap_or(std::num::NonZeroUsize::MIN),
        );
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .build_arc()?;
        let partitions = options
            .partitions
            .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
            .unwrap_or(1)
            .max(1);
        Ok(Self {
            runtime,
            partitions,
            memory_limit,
            distributed: options.distributed,
            pattern: Arc::default(),
        })
    }

    pub fn partitions(&self) -> usize {
        self.partitions
    }

    pub fn memory_limit(&self) -> usize {
        self.memory_limit
    }

    /// A state whose clock stands at `clock`.
    ///
    /// `spilling_joins` chooses sort-merge joins, which spill, over hash joins, which do not.
    pub fn session(
        &self,
        clock: DateTime<Utc>,
        time_zone: &str,
        spilling_joins: bool,
    ) -> Result<SessionState> {
        let mut pattern = self.pattern.lock().unwrap_or_else(|e| e.into_inner());
        let known = pattern
            .as_ref()
            .filter(|p| p.time_zone == time_zone && p.spilling_joins == spilling_joins);
        let mut state = match known {
            Some(pattern) => pattern.state.clone(),
            None => {
                let state = self.build(time_zone, spilling_joins)?;
                *pattern = Some(Pattern {
                    time_zone: time_zone.to_string(),
                    spilling_joins,
                    state: state.clone(),
                });
                state
            }
        };
        state.register_catalog_list(catalogs(&state)?);
        pin(&mut state, clock);
        Ok(state)
    }

    fn build(&self, time_zone: &str, spilling_joins: bool) -> Result<SessionState> {
        let mut config = spark::session_config(time_zone);
        if self.distributed {
            config = config.upgrade_for_ballista();
        }
        let mut config = config.with_target_partitions(self.partitions);
        let options = config.options_mut();
        options.optimizer.prefer_hash_join = !spilling_joins;
        // Spark writes times as 96-bit integers by default; they are microseconds to Delta.
        options.execution.parquet.coerce_int96 = Some("us".into());
        options.optimizer.enable_dynamic_filter_pushdown = false;
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(self.runtime.clone())
            .with_default_features()
            .with_expr_planners(expr_planners())
            .with_analyzer_rules(spark::analyzer_rules())
            .with_optimizer_rules(optimizer_rules())
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build();
        spark::register(&mut state)?;
        Ok(state)
    }
}

/// Catalogs of its own for a state: nothing in them but the default schema.
fn catalogs(state: &SessionState) -> Result<Arc<dyn CatalogProviderList>> {
    let defaults = &state.config_options().catalog;
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(
        &defaults.default_schema,
        Arc::new(MemorySchemaProvider::new()),
    )?;
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(defaults.default_catalog.clone(), Arc::new(catalog));
    Ok(Arc::new(list))
}

/// DataFusion's rules and Spark's bounds of columns, but for two rules that take parts of expressions out into projections below joins:
/// they give the parts names that meet again above a join of like-named columns.
fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    const LEFT_OUT: [&str; 2] = ["extract_leaf_expressions", "push_down_leaf_projections"];
    let mut rules: Vec<_> = Optimizer::new()
        .rules
        .into_iter()
        .filter(|rule| !LEFT_OUT.contains(&rule.name()))
        .map(|rule| match rule.name() {
            "single_distinct_aggregation_to_group_by" => KeepsTypes::of(rule),
            _ => Unkeyed::of(rule),
        })
        .collect();
    // Literals are what comparisons of columns need, so they must have been computed.
    let behind = rules
        .iter()
        .position(|rule| rule.name() == "simplify_expressions")
        .map_or(0, |at| at + 1);
    rules.insert(behind, Arc::new(spark::ColumnBounds));
    // Filters reach a join in one pass, and its inputs in the next.
    rules.insert(0, Arc::new(KeysOfFullJoins));
    rules
}

/// DataFusion's rules but for the one that pushes filters through physical plans by the names of
/// columns: through an outer join it takes a column of one side for the like-named one of the
/// other. What filters a scan can use has reached it in the logical plan already.
fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let last: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(spark::FloatComparisons);
    PhysicalOptimizer::new()
        .rules
        .into_iter()
        .filter(|rule| !rule.name().starts_with("FilterPushdown"))
        .map(|rule| match rule.name() {
            "ProjectionPushdown" => Arc::new(BesideLambdas { rule }),
            _ => rule,
        })
        .chain([last])
        .collect()
}

/// A rule that moves expressions over wider rows, done only where there is no lambda: the parameters
/// of one are numbered behind the columns of the rows it was planned over, and would be taken for
/// columns among more of them.
#[derive(Debug)]
struct BesideLambdas {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for BesideLambdas {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        match spark::lambda_functions().any(|name| shown.contains(name)) {
            true => Ok(plan),
            false => self.rule.optimize(plan, config),
        }
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Spark's ways to a field before DataFusion's.
fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    let own: Arc<dyn ExprPlanner> = Arc::new(spark::FieldAccess);
    std::iter::once(own)
        .chain(SessionStateDefaults::default_expr_planners())
        .collect()
}

fn pin(state: &mut SessionState, clock: DateTime<Utc>) {
    state.execution_props_mut().query_execution_start_time = Some(clock);
}

/// Makes `provider` known to queries under `name`, whatever number of parts it has.
pub fn register_table(
    state: &SessionState,
    name: &TableReference,
    provider: Arc<dyn TableProvider>,
) -> Result<()> {
    let defaults = &state.config_options().catalog;
    let resolved = name
        .clone()
        .resolve(&defaults.default_catalog, &defaults.default_schema);
    let catalogs = state.catalog_list();
    let catalog = match catalogs.catalog(&resolved.catalog) {
        Some(catalog) => catalog,
        None => {
            let catalog: Arc<dyn CatalogProvider> = Arc::new(MemoryCatalogProvider::new());
            catalogs.register_catalog(resolved.catalog.to_string(), catalog.clone());
            catalog
        }
    };
    let schema = match catalog.schema(&resolved.schema) {
        Some(schema) => schema,
        None => {
            let schema: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
            catalog.register_schema(&resolved.schema, schema.clone())?;
            schema
        }
    };
    schema
        .register_table(resolved.table.to_string(), provider)
        .map(|_| ())
        .map_err(|e| DataFusionError::Plan(format!("table `{name}` cannot be registered: {e}")))
}

pub(crate) fn default_memory() -> usize {
    const MOST: usize = 4 << 30;
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<usize>().ok()
        });
    total
        .map_or(MOST, |kib| (kib / 2).saturating_mul(1024))
        .min(MOST)
}
