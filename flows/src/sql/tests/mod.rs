//! Tests of the pipeline SQL parser through its public functions.

mod faults;
mod queries;
mod soup;
mod statements;

use std::collections::BTreeMap;

use crate::definition::{
    FlowDefinition, FlowKind, Parsed, QueryText, Statement, TableDefinition, ViewDefinition,
};
use crate::sql::parse_source;

/// Configuration that the tests share.
fn configuration() -> BTreeMap<String, String> {
    [("begin_year", "2025"), ("label", "it"), ("low", "1 -- low")]
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .into()
}

fn parse(text: &str) -> Parsed {
    parse_source("t.sql", text, &configuration())
}

/// The statements of a text that must have no fault.
fn statements(text: &str) -> Vec<Statement> {
    let parsed = parse(text);
    let faults: Vec<String> = parsed.faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{text}\n{}", faults.join("\n"));
    parsed.statements
}

fn one(text: &str) -> Statement {
    let mut all = statements(text);
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

fn table(text: &str) -> (TableDefinition, Option<FlowDefinition>) {
    match one(text) {
        Statement::Table { table, flow } => (*table, flow.map(|flow| *flow)),
        other => panic!("no table: {other:?}"),
    }
}

fn flow(text: &str) -> FlowDefinition {
    match one(text) {
        Statement::Flow(flow) => *flow,
        Statement::Table {
            flow: Some(flow), ..
        } => *flow,
        other => panic!("no flow: {other:?}"),
    }
}

fn view(text: &str) -> ViewDefinition {
    match one(text) {
        Statement::View(view) => *view,
        other => panic!("no view: {other:?}"),
    }
}

/// The query of a materialized view with this text.
fn query(text: &str) -> QueryText {
    match flow(&format!("CREATE MATERIALIZED VIEW v AS {text}")).kind {
        FlowKind::MaterializedView { query } => query,
        other => panic!("no query: {other:?}"),
    }
}

/// Names and codes of the warnings of a text.
fn warning_codes(text: &str) -> Vec<&'static str> {
    parse(text)
        .warnings
        .iter()
        .map(|warning| warning.code)
        .collect()
}
