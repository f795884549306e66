//! Spark SQL's semantics (ANSI mode) on DataFusion: the settings, analyzer rules and functions of a
//! session whose queries give Spark's results.
//!
//! Queries must have gone through `windrow_flows::dialect` before, which turns operators and casts
//! into calls of the functions here. No function holds state: an executor that registers the same
//! functions can run any plan.

mod access;
mod aggregate;
mod arithmetic;
mod array;
mod bits;
mod bounds;
mod cast;
mod cast_nested;
mod clock;
mod compare;
mod conditional;
mod datetime;
mod ddl;
mod encode;
mod exact_groups;
mod extremes;
mod floats;
mod functions;
mod generate;
mod hash;
mod interval;
mod json;
mod json_rows;
mod lambda;
mod map;
mod math;
mod moments;
mod multiset;
mod nested;
mod operand;
mod order;
mod pattern;
mod regex;
mod relations;
mod rules;
mod scalar;
mod sequence;
mod short;
mod short_float;
mod signature;
mod stamp;
mod text;
mod time;
mod types;
mod unnest;
mod using;
mod windows;
mod words;

use std::sync::Arc;

pub use access::FieldAccess;
pub use bounds::ColumnBounds;
pub use compare::FloatComparisons;
use datafusion::common::config::{ConfigOptions, Dialect};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::prelude::SessionConfig;
pub use signature::{WrongCall, refused_call};

/// The settings of a session in a time zone.
pub fn session_config(time_zone: &str) -> SessionConfig {
    let mut config = SessionConfig::new();
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::Databricks;
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.default_null_ordering = "nulls_min".into();
    options.execution.time_zone = Some(time_zone.to_string());
    options.execution.parquet.schema_force_view_types = false;
    options.execution.enable_ansi_mode = true;
    options.catalog.information_schema = false;
    config
}

/// What a clock in `zone` shows at an instant; both in microseconds. `None` beyond the calendar, and for
/// an unknown zone.
pub fn local_time(zone: &str, instant: i64) -> Option<i64> {
    time::Zone::find(zone)?.to_local(instant)
}

/// The instant at which a clock in `zone` first shows a local time; both in microseconds.
pub fn instant(zone: &str, local: i64) -> Option<i64> {
    time::Zone::find(zone)?.to_instant(local)
}

/// The analyzer rules of a session: Spark's meaning first, then DataFusion's own, then what makes
/// joins of subqueries.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![Arc::new(rules::SparkSemantics)];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(unnest::Unnest));
    rules
}

/// Registers all functions, over DataFusion's of the same names.
///
/// # Errors
/// If the registry refuses a function.
pub fn register(state: &mut SessionState) -> Result<()> {
    for udf in datafusion_spark::all_default_scalar_functions() {
        let taken = matches!(udf.name(), "sha2" | "sha1" | "crc32" | "hex" | "base64");
        if taken || functions::library_params(udf.name()).is_some() {
            state.register_udf(udf)?;
        }
    }
    for udf in datafusion_spark::all_default_aggregate_functions() {
        if matches!(udf.name(), "collect_list" | "collect_set") {
            state.register_udaf(udf)?;
        }
    }
    for udaf in aggregate::functions()
        .into_iter()
        .chain(extremes::functions())
        .chain(order::functions())
        .chain(moments::functions())
    {
        state.register_udaf(Arc::new(udaf))?;
    }
    for function in windows::functions() {
        state.register_udwf(function)?;
    }
    for function in lambda::functions() {
        state.register_higher_order_function(function)?;
    }
    state.register_relation_planner(Arc::new(relations::Relations))?;
    for udf in functions::all() {
        state.register_udf(udf)?;
    }
    Ok(())
}

/// A message of the planner without what it says of its own ways.
pub fn plain_message(message: &str) -> &str {
    let core = match message.find("coercion failed with: ") {
        Some(at) => &message[at + "coercion failed with: ".len()..],
        None => message,
    };
    let core = core.strip_prefix("Error during planning: ").unwrap_or(core);
    match core.find(" No function matches the given name") {
        Some(at) => core[..at].trim_end_matches('.'),
        None => core,
    }
}

/// The names of the functions that take lambdas.
pub fn lambda_functions() -> impl Iterator<Item = &'static str> {
    lambda::names()
}

/// Gives a planned expression over `schema` Spark's meaning, as the analyzer rules do for a plan.
///
/// # Errors
/// If its operands have no common type.
pub fn resolve_expr(expr: Expr, schema: &DFSchema, config: &ConfigOptions) -> Result<Expr> {
    rules::expression(expr, schema, config)
}
