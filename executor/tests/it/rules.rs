//! The optimizer rule of DataFusion that pushes filters through physical plans is left out of
//! sessions, for what it would do to a query.
//!
//! It must still go wrong when it is on: a version of DataFusion that has mended it makes this test
//! fail, and then the rule belongs into the session again.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionContext;
use windrow_executor::session::{Engine, EngineOptions};
use windrow_executor::spark;

use crate::golden::run;

/// Two tables with columns of the same names.
fn with_tables(state: SessionState) -> SessionState {
    let context = SessionContext::new_with_state(state.clone());
    let numbers = |values: [i64; 2]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let table = |f: [i64; 2]| {
        let columns = [
            ("g", numbers([1, 2])),
            ("f", numbers(f)),
            ("d", numbers([7, 7])),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true)));
        let batch = batch.unwrap();
        Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
    };
    context.register_table("a", table([0, 9])).unwrap();
    context.register_table("b", table([9, 0])).unwrap();
    state
}

/// A session with all of DataFusion's rules but those that `left_out` names the beginnings of.
fn session_without(left_out: &[&str]) -> SessionState {
    let keeps = |name: &str| !left_out.iter().any(|rule| name.starts_with(rule));
    let mut config = spark::session_config("UTC");
    config
        .options_mut()
        .optimizer
        .enable_dynamic_filter_pushdown = false;
    let logical = Optimizer::new().rules.into_iter();
    let physical = PhysicalOptimizer::new().rules.into_iter();
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(spark::analyzer_rules())
        .with_optimizer_rules(logical.filter(|rule| keeps(rule.name())).collect())
        .with_physical_optimizer_rules(physical.filter(|rule| keeps(rule.name())).collect())
        .build();
    spark::register(&mut state).unwrap();
    with_tables(state)
}

const LEFT_OUT: [&str; 3] = [
    "extract_leaf_expressions",
    "push_down_leaf_projections",
    "FilterPushdown",
];

async fn rows(state: &SessionState, sql: &str) -> String {
    match run(state, sql).await {
        Ok(batches) => pretty_format_batches(&batches).unwrap().to_string(),
        Err(error) => format!("error: {error}"),
    }
}

async fn ours(sql: &str) -> String {
    let engine = Engine::new(&EngineOptions::default()).unwrap();
    let now = "2026-03-10T02:30:00Z".parse().unwrap();
    let state = with_tables(engine.session(now, "UTC", false).unwrap());
    rows(&state, sql).await
}

/// A session in which only `rule` is on again.
fn session_with(rule: &str) -> SessionState {
    let left_out: Vec<&str> = LEFT_OUT
        .into_iter()
        .filter(|other| *other != rule)
        .collect();
    session_without(&left_out)
}

#[tokio::test]
async fn filters_pushed_by_name_still_reach_the_wrong_side_of_an_outer_join() {
    let sql = "SELECT b.g AS g, b.f AS bf FROM a RIGHT JOIN b ON a.g = b.g \
        WHERE abs(a.f) > 1 AND b.d > 5";
    let right = "+---+----+\n| g | bf |\n+---+----+\n| 2 | 0  |\n+---+----+";
    assert_eq!(ours(sql).await, right);
    assert_ne!(rows(&session_with("FilterPushdown"), sql).await, right);
}
