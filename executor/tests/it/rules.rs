//! DataFusion's optimizer rules that sessions leave out, and what they would do to a query.
//!
//! Each of them must still go wrong when it is on: a version of DataFusion that has mended it makes
//! this test fail, and then the rule belongs into the session again.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
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
    let table = |columns: [(&str, Vec<i64>); 3]| {
        let columns = columns.map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as _));
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true)));
        let batch = batch.unwrap();
        Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
    };
    let a = table([("g", vec![1, 2]), ("f", vec![0, 9]), ("d", vec![7, 7])]);
    let b = table([("g", vec![1, 2]), ("f", vec![9, 0]), ("d", vec![7, 7])]);
    context.register_table("a", a).unwrap();
    context.register_table("b", b).unwrap();
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

#[tokio::test]
async fn explore() {
    let engine = Engine::new(&EngineOptions::default()).unwrap();
    let now = "2026-03-10T02:30:00Z".parse().unwrap();
    let ours = with_tables(engine.session(now, "UTC", false).unwrap());
    let queries = [
        "SELECT a.g AS g, b.d AS d, b.f AS bf FROM a RIGHT JOIN b ON a.g = b.g WHERE abs(a.f) > 1",
        "SELECT a.g AS g, b.d AS d, b.f AS bf FROM a RIGHT JOIN b ON a.g = b.g WHERE abs(a.f) > 1 AND b.d > 5",
        "SELECT * FROM (SELECT b.d AS d, b.f AS bf, abs(a.f) AS af FROM a FULL JOIN b ON a.g = b.g) WHERE af > bf AND d > 5",
        "SELECT * FROM (SELECT b.d AS d, b.f AS bf, abs(a.f) AS af, abs(b.f) as abf FROM a FULL JOIN b ON a.g = b.g) WHERE af > abf AND d > 5",
        "SELECT a.f AS af, b.f AS bf FROM a LEFT JOIN b ON a.g = b.g WHERE coalesce(b.f, 1) > 0",
        "SELECT named_struct('x', a.f).x AS af, named_struct('x', b.f).x AS bf FROM a FULL JOIN b ON a.g = b.g",
    ];
    for sql in queries {
        println!("=== {sql}");
        println!("ours\n{}", rows(&ours, sql).await);
        for on in LEFT_OUT {
            let left_out: Vec<&str> = LEFT_OUT.into_iter().filter(|r| *r != on).collect();
            println!("{on}\n{}", rows(&session_without(&left_out), sql).await);
        }
        println!("all\n{}", rows(&session_without(&[]), sql).await);
    }
}
