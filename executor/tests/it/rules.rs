//! DataFusion's optimizer rules that sessions leave out, and what they would do to a query.
//!
//! Each of them must still go wrong when it is on: a version of DataFusion that has mended it makes
//! this test fail, and then the rule belongs into the session again.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{DataType, Field};
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
    let table = |g: [i64; 2], f: [i64; 2]| {
        let x = Arc::new(Field::new("x", DataType::Int64, true));
        let s: ArrayRef = Arc::new(StructArray::from(vec![(x, numbers(f))]));
        let columns = [
            ("g", numbers(g)),
            ("f", numbers(f)),
            ("d", numbers([7, 7])),
            ("s", s),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true)));
        let batch = batch.unwrap();
        Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
    };
    context.register_table("a", table([1, 2], [0, 9])).unwrap();
    context.register_table("b", table([1, 2], [9, 0])).unwrap();
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

#[tokio::test]
async fn explore() {
    let queries = [
        "SELECT a.s.x AS ax, b.s.x AS bx FROM a JOIN b ON a.g = b.g WHERE a.s.x > 0 AND b.s.x >= 0",
        "SELECT a.s.x AS ax, b.s.x AS bx FROM a FULL JOIN b ON a.g = b.g WHERE a.s.x > b.s.x",
        "SELECT a.s.x + b.s.x AS t FROM a LEFT JOIN b ON a.s.x = b.s.x",
        "SELECT l.s.x AS lx, r.s.x AS rx FROM a l LEFT JOIN a r ON l.g = r.g WHERE l.s.x > 0",
        "SELECT * FROM (SELECT a.s AS s, b.s AS t, a.g AS g FROM a FULL JOIN b ON a.g = b.g) WHERE s.x > t.x",
        "SELECT * FROM (SELECT a.s.x AS ax, b.s.x AS bx, a.g AS g FROM a FULL JOIN b ON a.g = b.g) WHERE ax > bx AND g > 0",
        "SELECT a.g AS g FROM a RIGHT JOIN b ON a.g = b.g WHERE a.s.x IS NOT NULL AND b.s.x > 5",
        "SELECT a.s.x AS k, sum(b.s.x) AS v FROM a LEFT JOIN b ON a.g = b.g GROUP BY a.s.x ORDER BY k",
        "SELECT a.s.x AS ax FROM a LEFT JOIN b ON a.g = b.g AND a.s.x > b.s.x",
        "SELECT abs(a.s.x) AS ax, abs(b.s.x) AS bx FROM a FULL JOIN b ON a.g = b.g WHERE abs(a.s.x) > 1 AND b.d > 5",
        "SELECT s, x FROM (SELECT a.s AS s, b.s.x AS x FROM a FULL JOIN b ON a.g = b.g) WHERE s.x > 1 AND x >= 0",
        "SELECT a.s.x AS ax, b.s.x AS bx FROM (SELECT g, s FROM a WHERE s.x >= 0) a FULL JOIN (SELECT g, s FROM b WHERE s.x >= 0) b ON a.g = b.g WHERE a.s.x > b.s.x",
        "SELECT a.s.x AS ax FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.s.x = a.s.x AND b.g > 0)",
        "SELECT a.s.x AS ax, b.s.x AS bx, row_number() OVER (PARTITION BY a.s.x ORDER BY b.s.x) AS n FROM a JOIN b ON a.s.x = b.s.x",
    ];
    for sql in queries {
        let right = ours(sql).await;
        println!("=== {sql}\n{right}");
        for on in &LEFT_OUT[..2] {
            let found = rows(&session_with(on), sql).await;
            if found != right {
                println!("!!! {on}\n{found}");
            }
        }
        let found = rows(&session_without(&["FilterPushdown"]), sql).await;
        if found != right {
            println!("!!! both\n{found}");
        }
    }
}
