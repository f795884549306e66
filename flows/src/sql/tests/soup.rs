//! No text may make the parser panic, and every place must lie inside the text.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::configuration;
use crate::definition::{FlowKind, Parsed, Statement};
use crate::fault::{Fault, Place};
use crate::sql::{parse_predicate, parse_source};

const WELL_FORMED: &str = "SET a = 1;
CREATE OR REFRESH STREAMING LIVE TABLE t (a INT NOT NULL COMMENT 'x', CONSTRAINT c EXPECT (a > 0) ON VIOLATION DROP ROW)
  PARTITIONED BY (a) TBLPROPERTIES ('k' = 'v') COMMENT \"größe\"
  FLOW REPLACE WHERE d >= date_add(current_date(), -7) AND x = '${label}' BY NAME
  SELECT a, -0.0D, INTERVAL 1 DAY 2 HOURS, r'\\d' 'x' FROM STREAM(LIVE.s) WITH (skipChangeCommits = true) x GROUP BY ALL;
-- ${comment} /* not nested
CREATE FLOW f COMMENT 'c' AS INSERT INTO ONCE a.`b ``c` BY NAME SELECT * FROM STREAM read_files('x', format => 'json') WHERE y >= ${begin_year};
CREATE FLOW g AS AUTO CDC ONCE FROM SNAPSHOT INTO t FROM s WITH VERSION (SELECT 1) KEYS (id) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (a);
/* a /* nested */ comment */
CREATE TEMPORARY VIEW v (a) AS WITH x AS (SELECT 1) SELECT CASE WHEN a THEN 'ü' ELSE b[0].c END FROM x LATERAL VIEW explode(y) AS z;
USE SCHEMA s";

static WORDS: [&str; 84] = [
    "CREATE",
    "OR",
    "REFRESH",
    "REPLACE",
    "STREAMING",
    "LIVE",
    "TABLE",
    "MATERIALIZED",
    "VIEW",
    "FLOW",
    "AS",
    "INSERT",
    "INTO",
    "ONCE",
    "BY",
    "NAME",
    "WHERE",
    "USING",
    "SEQUENCE",
    "AUTO",
    "CDC",
    "APPLY",
    "CHANGES",
    "FROM",
    "SNAPSHOT",
    "KEYS",
    "STREAM",
    "STREAM(",
    "read_files",
    "WITH",
    "VERSION",
    "SELECT",
    "VALUES",
    "UNION",
    "ALL",
    "INTERVAL",
    "DAY",
    "CAST",
    "DATE",
    "SET",
    "USE",
    "CATALOG",
    "SCHEMA",
    "CONSTRAINT",
    "EXPECT",
    "ON",
    "VIOLATION",
    "COMMENT",
    "PARTITIONED",
    "CLUSTER",
    "TBLPROPERTIES",
    "SCHEDULE",
    "LATERAL",
    "JOIN",
    "GROUP",
    "(",
    ")",
    ",",
    ";",
    ".",
    "=",
    "=>",
    "*",
    "-",
    "<",
    ">",
    "[",
    "]",
    ":",
    "::",
    "->",
    "'a'",
    "\"b\"",
    "`c`",
    "`",
    "'",
    "/*",
    "*/",
    "--",
    "1",
    "1.5D",
    "${label}",
    "${none}",
    "größe",
];

fn check(place: &Place) {
    let lines: Vec<&str> = place.source.text.split('\n').collect();
    for (line, column) in [
        (place.line, place.column),
        (place.end_line, place.end_column),
    ] {
        let text = lines.get(line as usize - 1).expect("a line of the text");
        assert!(
            column >= 1 && column as usize <= text.chars().count() + 1,
            "{place:?}"
        );
    }
    assert!(
        (place.line, place.column) <= (place.end_line, place.end_column),
        "{place:?}"
    );
}

fn check_fault(fault: &Fault) {
    assert!(
        !fault.message.is_empty() && !fault.message.contains("at Line"),
        "{fault}"
    );
    check(fault.place.as_ref().expect("every fault has a place"));
    assert!(!fault.to_string().is_empty());
}

fn check_all(parsed: &Parsed) {
    parsed
        .faults
        .iter()
        .chain(&parsed.warnings)
        .for_each(check_fault);
    for statement in &parsed.statements {
        match statement {
            Statement::Table { table, flow } => {
                check(&table.name.place);
                table
                    .columns
                    .iter()
                    .for_each(|column| check(&column.name.place));
                flow.iter().for_each(|flow| check_kind(&flow.kind));
            }
            Statement::View(view) => check(&view.query.place),
            Statement::Flow(flow) => {
                check(&flow.target.place);
                check_kind(&flow.kind);
            }
            Statement::Set { place, .. } => check(place),
            Statement::UseCatalog(name) | Statement::UseSchema(name) => check(&name.place),
        }
    }
}

fn check_kind(kind: &FlowKind) {
    match kind {
        FlowKind::ReplaceWhere { predicate, query } => {
            check(&predicate.place);
            check(&query.place);
        }
        FlowKind::ReplaceUsing {
            sequence_by, query, ..
        } => {
            check(&sequence_by.place);
            check(&query.place);
        }
        FlowKind::Append { query, .. } | FlowKind::MaterializedView { query } => {
            check(&query.place);
        }
        FlowKind::AutoCdc | FlowKind::AutoCdcFromSnapshot => {}
    }
}

#[test]
fn the_well_formed_text_is_well_formed() {
    let parsed = parse_source("t.sql", WELL_FORMED, &configuration());
    assert_eq!(parsed.faults, []);
    assert_eq!(parsed.statements.len(), 6);
    check_all(&parsed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40), glue in "[ \n]?") {
        let text = words.join(if glue.is_empty() { " " } else { glue.as_str() });
        check_all(&parse_source("t.sql", &text, &configuration()));
        if let Err(fault) = parse_predicate("p", &text, &BTreeMap::new()) {
            check_fault(&fault);
        }
    }

    #[test]
    fn any_words_where_a_query_stands(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..20)) {
        let text = format!("CREATE MATERIALIZED VIEW v AS SELECT a FROM {}", words.concat());
        check_all(&parse_source("t.sql", &text, &configuration()));
    }

    #[test]
    fn any_characters(text in "\\PC{0,60}") {
        check_all(&parse_source("t.sql", &text, &configuration()));
        if let Err(fault) = parse_predicate("p", &text, &BTreeMap::new()) {
            check_fault(&fault);
        }
    }

    #[test]
    fn well_formed_text_with_a_part_replaced(
        from in 0_usize..1500,
        length in 0_usize..30,
        word in prop::sample::select(&WORDS[..]),
    ) {
        let characters: Vec<char> = WELL_FORMED.chars().collect();
        let from = from.min(characters.len());
        let to = (from + length).min(characters.len());
        let text: String = characters[..from].iter().copied()
            .chain(word.chars())
            .chain(characters[to..].iter().copied())
            .collect();
        check_all(&parse_source("t.sql", &text, &configuration()));
    }
}
