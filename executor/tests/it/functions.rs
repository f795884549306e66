//! `docs/functions.md` says which functions there are and how often each is compared with Spark; it
//! is made here, and must be what is made.

use std::collections::HashMap;
use std::fmt::Write;

use datafusion::execution::FunctionRegistry;
use windrow_flows::dialect::functions;

use crate::golden::session;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/functions.md");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/golden.tsv");

/// In how many lines of the golden file each function is called.
fn calls() -> HashMap<String, usize> {
    let text = std::fs::read_to_string(GOLDEN).unwrap();
    let mut calls = HashMap::new();
    for line in text.lines() {
        let sql = line.split('\t').nth(2).unwrap_or_default().to_lowercase();
        let mut found: Vec<&str> = sql
            .match_indices('(')
            .filter_map(|(at, _)| {
                let before = sql[..at].trim_end();
                let start = before
                    .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .map_or(0, |at| at + 1);
                Some(&before[start..]).filter(|name| !name.is_empty())
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        for name in found {
            *calls.entry(name.to_string()).or_insert(0) += 1;
        }
    }
    calls
}

fn made() -> (String, usize) {
    let calls = calls();
    let all = functions();
    let available: Vec<_> = all
        .iter()
        .filter_map(|(name, kind)| Some((*name, (*kind)?)))
        .collect();
    let refused: Vec<&str> = all
        .iter()
        .filter(|(_, kind)| kind.is_none())
        .map(|(name, _)| *name)
        .collect();
    let count = |name: &str| calls.get(name).copied().unwrap_or(0);
    let right = available.iter().filter(|(name, _)| count(name) > 0).count();
    let mut text = String::from(
        "# Functions\n\n\
         Which of Spark's functions Windrow has. `right` is what gives Spark's result (ANSI mode) in every line of\n\
         `executor/tests/golden/golden.tsv` that calls it; the number says how many lines do. `untested` is available, but no line\n\
         calls it. A function that is refused is refused by name, with `FUNCTION_NOT_AVAILABLE`.\n\n\
         Of functions like `sin`, `exp` or `cbrt`, for which no standard fixes the last digit, the last digit may differ.\n\n\
         This page is made by a test; `WINDROW_WRITE_DOCS=1 cargo test -p windrow-executor --test it functions` writes it anew.\n\n",
    );
    let _ = writeln!(
        text,
        "{} right, {} untested, {} refused.\n",
        right,
        available.len() - right,
        refused.len()
    );
    text.push_str("| function | kind | state | lines |\n| --- | --- | --- | --- |\n");
    for (name, kind) in &available {
        let lines = count(name);
        let state = if lines > 0 { "right" } else { "untested" };
        let _ = writeln!(text, "| `{name}` | {kind} | {state} | {lines} |");
    }
    text.push_str("\n## Refused\n\n");
    let names: Vec<String> = refused.iter().map(|name| format!("`{name}`")).collect();
    for line in names.chunks(8) {
        let _ = writeln!(text, "{},", line.join(", "));
    }
    let text = text.trim_end().trim_end_matches(',').to_string() + "\n";
    (text, right)
}

#[test]
fn the_page_of_functions_is_what_there_is() {
    let (made, right) = made();
    if std::env::var_os("WINDROW_WRITE_DOCS").is_some() {
        std::fs::write(DOCS, &made).unwrap();
    }
    let found = std::fs::read_to_string(DOCS).unwrap_or_default();
    assert!(
        found == made,
        "docs/functions.md is not what there is; write it anew"
    );
    assert!(
        right >= 250,
        "only {right} functions are compared with Spark"
    );
}

#[test]
fn no_refused_function_is_left_in_the_lists_of_available_ones() {
    let mut names: Vec<&str> = functions().iter().map(|(name, _)| *name).collect();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a function is both available and refused");
    // The registry that executors share has the engine's own functions.
    let state = session("UTC");
    for name in ["spark_cast", "spark_explode", "array_union", "from_json"] {
        assert!(state.udf(name).is_ok(), "{name}");
    }
}
