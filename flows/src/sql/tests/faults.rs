//! What is wrong with a text: code, place, words, hint and help.

use std::collections::BTreeMap;

use super::parse;
use crate::sql::parse_predicate;

/// Code and `line:column-end_line:end_column` of each fault.
fn places(text: &str) -> Vec<String> {
    let parsed = parse(text);
    let show = |fault: &crate::fault::Fault| {
        let place = fault.place.as_ref().expect("a place");
        let end = match place.end_line - place.line {
            0 => format!("{}", place.end_column),
            lines => format!("+{lines}:{}", place.end_column),
        };
        format!("{} {}:{}-{end}", fault.code, place.line, place.column)
    };
    parsed.faults.iter().map(show).collect()
}

/// Code of the fault and the text that its carets stand below, for a text of one line.
fn marked(text: &str) -> (&'static str, String) {
    let parsed = parse(text);
    let [fault] = parsed.faults.as_slice() else {
        panic!("{text}: {} faults, not one", parsed.faults.len())
    };
    assert!(parsed.statements.is_empty(), "{text}");
    let place = fault.place.as_ref().expect("a place");
    assert_eq!((place.line, place.end_line), (1, 1), "{text}");
    let length = (place.end_column - place.column) as usize;
    (
        fault.code,
        text.chars()
            .skip(place.column as usize - 1)
            .take(length)
            .collect(),
    )
}

fn shown(text: &str) -> String {
    let faults: Vec<String> = parse(text).faults.iter().map(ToString::to_string).collect();
    faults.join("\n")
}

#[test]
fn headers_with_a_slip() {
    for (text, found) in [
        ("CREATE STREAMNG TABLE t", "STREAMNG"),
        ("CRAETE STREAMING TABLE t", "CRAETE"),
        ("CREATE STREAMING TABEL t", "TABEL"),
        ("CREATE OR REFERSH STREAMING TABLE t", "REFERSH"),
        ("CREATE STREAMING TABLE", ""),
        ("CREATE STREAMING TABLE AS SELECT 1", "AS"),
        ("CREATE STREAMING TABLE a.b.c.d", "a.b.c.d"),
        ("CREATE STREAMING TABLE 't'", "'t'"),
        ("CREATE STREAMING TABLE größe", "ö"),
        ("CREATE STREAMING TABLE t (a INT, b) AS SELECT 1", ")"),
        ("CREATE STREAMING TABLE t (a INT NOT b)", "NOT"),
        ("CREATE STREAMING TABLE t (a INT", "("),
        ("CREATE STREAMING TABLE t ()", ")"),
        (
            "CREATE STREAMING TABLE t (CONSTRAINT c EXPCT (a > 0))",
            "EXPCT",
        ),
        ("CREATE STREAMING TABLE t (CONSTRAINT c EXPECT a > 0)", "a"),
        ("CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (a >))", ")"),
        ("CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (a b))", "b"),
        (
            "CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (a) ON VIOLATION DROP)",
            ")",
        ),
        (
            "CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (a) ON VIOLATION FAIL UPDTE)",
            "UPDTE",
        ),
        ("CREATE STREAMING TABLE t PARTITIOND BY (a)", "PARTITIOND"),
        ("CREATE STREAMING TABLE t PARTITIONED BY a", "a"),
        ("CREATE STREAMING TABLE t PARTITIONED BY (a INT)", "INT"),
        ("CREATE STREAMING TABLE t PARTITIONED BY ()", "()"),
        ("CREATE STREAMING TABLE t COMMENT x", "x"),
        ("CREATE STREAMING TABLE t TBLPROPERTIES ('a' = b)", "b"),
        ("CREATE STREAMING TABLE t SCHEDULE EVERY 1 MINUTE", "MINUTE"),
        ("CREATE STREAMING TABLE t SELECT 1", "SELECT"),
        ("CREATE MATERIALIZED VIEW v", ""),
        ("CREATE MATERIALIZED TABEL v AS SELECT 1", "TABEL"),
        ("CREATE VIEW v (a INT) AS SELECT 1", "INT"),
        ("CREATE FLOW f INSERT INTO t BY NAME SELECT 1", "INSERT"),
        (
            "CREATE FLOW f AS REPLACE WHERE a > 1 BY NAME SELECT 1",
            "REPLACE",
        ),
        ("CREATE FLOW f AS INSERT t BY NAME SELECT 1", "t"),
        ("CREATE STREAMING TABLE t FLOW MERGE", "MERGE"),
        (
            "CREATE STREAMING TABLE t FLOW INSERT INTO t BY NAME SELECT 1",
            "INTO",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE WHERE a > 1 NY NAME SELECT 1",
            "NY",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE WHERE date >= BY NAME SELECT 1",
            "BY",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE WHERE BY NAME SELECT 1",
            "BY",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME REPLACE WHERE SELECT 1",
            "SELECT",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME REPLACE WHERE a > 1",
            "",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME REPLACE a > 1 SELECT 1",
            "a",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQENCE BY b",
            "SEQENCE",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS a SEQUENCE BY b",
            "a",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQUENCE BY b STORED AS SCD TYPE 3",
            "3",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC INTO t FROM STREAM(s) KEYS (a) SEQUENCE BY b",
            "INTO",
        ),
        ("HELLO world", "HELLO"),
        ("SET a", ""),
        ("SET a = ", ""),
        ("SET = 1", "="),
        ("USE s", "s"),
        ("USE CATALOG a.b", "."),
        ("USE SCHEMA s t", "t"),
    ] {
        assert_eq!(marked(text), ("SYNTAX_ERROR", found.to_string()), "{text}");
    }
}

#[test]
fn what_is_known_but_not_built_is_refused_by_its_name() {
    for (text, code, found) in [
        (
            "CREATE STREAMING TABLE t (a INT DEFAULT 3)",
            "COLUMN_DEFAULT_NOT_SUPPORTED",
            "DEFAULT",
        ),
        (
            "CREATE STREAMING TABLE t (PRIMARY KEY (a))",
            "CLAUSE_NOT_SUPPORTED",
            "PRIMARY KEY",
        ),
        (
            "CREATE STREAMING TABLE t (a INT, CONSTRAINT pk PRIMARY KEY (a))",
            "CLAUSE_NOT_SUPPORTED",
            "CONSTRAINT pk",
        ),
        (
            "CREATE STREAMING TABLE t (a INT, FOREIGN KEY (a) REFERENCES b)",
            "CLAUSE_NOT_SUPPORTED",
            "FOREIGN KEY",
        ),
        (
            "CREATE STREAMING TABLE t (a INT PRIMARY KEY)",
            "CLAUSE_NOT_SUPPORTED",
            "PRIMARY",
        ),
        (
            "CREATE STREAMING TABLE t (a STRING MASK f)",
            "CLAUSE_NOT_SUPPORTED",
            "MASK",
        ),
        (
            "CREATE STREAMING TABLE t (a BIGINT GENERATED BY DEFAULT AS IDENTITY)",
            "CLAUSE_NOT_SUPPORTED",
            "GENERATED",
        ),
        (
            "CREATE STREAMING TABLE t (a BIGINT GENERATED ALWAYS AS IDENTITY)",
            "CLAUSE_NOT_SUPPORTED",
            "GENERATED ALWAYS AS",
        ),
        (
            "CREATE STREAMING TABLE t LOCATION 's3://x'",
            "CLAUSE_NOT_SUPPORTED",
            "LOCATION",
        ),
        (
            "CREATE STREAMING TABLE t WITH ROW FILTER f ON (a)",
            "CLAUSE_NOT_SUPPORTED",
            "WITH ROW FILTER",
        ),
        (
            "CREATE STREAMING TABLE t USING ICEBERG",
            "CLAUSE_NOT_SUPPORTED",
            "ICEBERG",
        ),
        (
            "CREATE STREAMING TABLE t TRIGGER ON UPDATE",
            "CLAUSE_NOT_SUPPORTED",
            "TRIGGER ON",
        ),
        (
            "CREATE MATERIALIZED VIEW t REFRESH POLICY SOMETIMES AS SELECT 1",
            "SYNTAX_ERROR",
            "SOMETIMES",
        ),
        (
            "CREATE STREAMING TABLE t DEFAULT COLLATION UTF8_BINARY",
            "CLAUSE_NOT_SUPPORTED",
            "DEFAULT COLLATION",
        ),
        (
            "CREATE STREAMING TABLE IF NOT EXISTS t",
            "CLAUSE_NOT_SUPPORTED",
            "IF NOT EXISTS",
        ),
        (
            "CREATE PRIVATE STREAMING TABLE t",
            "CLAUSE_NOT_SUPPORTED",
            "PRIVATE STREAMING",
        ),
        (
            "CREATE STREAMING VIEW v AS SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "STREAMING",
        ),
        (
            "CREATE VIEW v (CONSTRAINT c EXPECT (a)) AS SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "CONSTRAINT",
        ),
        (
            "CREATE VIEW v TBLPROPERTIES ('a' = 'b') AS SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "TBLPROPERTIES",
        ),
        (
            "CREATE MATERIALIZED VIEW v FLOW INSERT BY NAME SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "FLOW",
        ),
        (
            "CREATE MATERIALIZED VIEW IDENTIFIER(:p) AS SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "IDENTIFIER",
        ),
        (
            "CREATE TABLE t AS SELECT 1",
            "STATEMENT_NOT_SUPPORTED",
            "AS",
        ),
        (
            "CREATE TABLE t FLOW REPLACE WHERE a BY NAME SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "REPLACE",
        ),
        (
            "CREATE TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQUENCE BY b",
            "MANAGED_TABLE_DOES_NOT_SUPPORT_CDC",
            "AUTO",
        ),
        (
            "CREATE FUNCTION f() RETURN 1",
            "STATEMENT_NOT_SUPPORTED",
            "FUNCTION",
        ),
        (
            "CREATE FLOW f AS INSERT OVERWRITE t BY NAME SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "OVERWRITE",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t (a, b) BY NAME SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "(",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME REPLACE ON a = b SELECT 1",
            "CLAUSE_NOT_SUPPORTED",
            "ON",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQUENCE BY b COLUMNS TO UPDATE x",
            "CLAUSE_NOT_SUPPORTED",
            "COLUMNS TO UPDATE",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQUENCE BY b STORED AS BITEMPORAL",
            "CLAUSE_NOT_SUPPORTED",
            "BITEMPORAL",
        ),
        (
            "CREATE FLOW f AS AUTO CDC FROM SNAPSHOT INTO t FROM s KEYS (a) SEQUENCE BY b",
            "CLAUSE_NOT_SUPPORTED",
            "SEQUENCE",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM STREAM(t) WATERMARK a DELAY OF INTERVAL 3 MINUTES",
            "CLAUSE_NOT_SUPPORTED",
            "WATERMARK",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM STREAM(SELECT 1)",
            "CLAUSE_NOT_SUPPORTED",
            "SELECT",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM STREAM t x WITH (a = 1)",
            "CLAUSE_NOT_SUPPORTED",
            "WITH",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE x = :low",
            "CLAUSE_NOT_SUPPORTED",
            ":",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT ? FROM t",
            "CLAUSE_NOT_SUPPORTED",
            "?",
        ),
        (
            "REFRESH STREAMING TABLE t FULL",
            "STATEMENT_NOT_SUPPORTED",
            "REFRESH",
        ),
        ("SELECT 1", "STATEMENT_NOT_SUPPORTED", "SELECT"),
        ("MERGE INTO t USING s", "STATEMENT_NOT_SUPPORTED", "MERGE"),
        ("SET TIME ZONE 'UTC'", "CLAUSE_NOT_SUPPORTED", "TIME ZONE"),
        ("USE DATABASE d", "CLAUSE_NOT_SUPPORTED", "DATABASE"),
    ] {
        assert_eq!(marked(text), (code, found.to_string()), "{text}");
        let message = parse(text).faults.remove(0).message;
        let word = found.split(' ').next().unwrap_or(found);
        let symbol = matches!(word, "(" | "?" | "AS" | "SELECT" | "CONSTRAINT");
        assert!(symbol || message.contains(word), "{message}");
    }
}

#[test]
fn clauses_that_come_twice_or_exclude_each_other() {
    for (text, code, found) in [
        (
            "CREATE STREAMING TABLE t COMMENT 'a' COMMENT 'b'",
            "DUPLICATE_CLAUSE",
            "COMMENT",
        ),
        (
            "CREATE STREAMING TABLE t USING DELTA USING DELTA",
            "DUPLICATE_CLAUSE",
            "USING",
        ),
        (
            "CREATE STREAMING TABLE t TBLPROPERTIES (a = 1) TBLPROPERTIES (b = 1)",
            "DUPLICATE_CLAUSE",
            "TBLPROPERTIES",
        ),
        (
            "CREATE STREAMING TABLE t PARTITIONED BY (a) PARTITIONED BY (a)",
            "DUPLICATE_CLAUSE",
            "PARTITIONED BY",
        ),
        (
            "CREATE STREAMING STREAMING TABLE t",
            "DUPLICATE_CLAUSE",
            "STREAMING",
        ),
        (
            "CREATE STREAMING TABLE t (a INT NOT NULL NOT NULL)",
            "DUPLICATE_CLAUSE",
            "NOT",
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME BY NAME SELECT 1",
            "DUPLICATE_CLAUSE",
            "BY",
        ),
        (
            "CREATE FLOW f AS INSERT ONCE INTO ONCE t BY NAME SELECT 1",
            "DUPLICATE_CLAUSE",
            "ONCE",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (a) KEYS (b) SEQUENCE BY c",
            "DUPLICATE_CLAUSE",
            "KEYS",
        ),
        (
            "CREATE STREAMING TABLE t TBLPROPERTIES ('a' = 'b', 'a' = 'c')",
            "DUPLICATE_PROPERTY",
            "'a'",
        ),
        (
            "CREATE STREAMING TABLE t (a INT, A STRING)",
            "DUPLICATE_COLUMN",
            "A",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE USING (k, K) SEQUENCE BY s BY NAME SELECT 1",
            "DUPLICATE_COLUMN",
            "K",
        ),
        (
            "CREATE STREAMING TABLE t (CONSTRAINT c EXPECT (a), CONSTRAINT C EXPECT (b))",
            "DUPLICATE_CONSTRAINT",
            "C",
        ),
        (
            "CREATE STREAMING TABLE t PARTITIONED BY (a) CLUSTER BY AUTO",
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "CLUSTER BY AUTO",
        ),
        (
            "CREATE FLOW f AS INSERT INTO ONCE t BY NAME REPLACE WHERE a SELECT 1",
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "REPLACE",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (a) SEQUENCE BY b TRACK HISTORY ON (x)",
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "TRACK",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (a) APPLY AS TRUNCATE WHEN x SEQUENCE BY b STORED AS SCD TYPE 2",
            "CLAUSES_EXCLUDE_EACH_OTHER",
            "APPLY",
        ),
    ] {
        assert_eq!(marked(text), (code, found.to_string()), "{text}");
    }
}

#[test]
fn parts_that_are_required() {
    for (text, code, found) in [
        (
            "CREATE FLOW f AS INSERT INTO t SELECT 1",
            "BY_NAME_REQUIRED",
            "SELECT",
        ),
        (
            "CREATE FLOW f AS INSERT INTO ONCE t (SELECT 1)",
            "BY_NAME_REQUIRED",
            "(",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE WHERE d >= '2026-11-22' SELECT 1",
            "BY_NAME_REQUIRED",
            "SELECT",
        ),
        (
            "CREATE STREAMING TABLE t FLOW INSERT WITH a AS (SELECT 1) SELECT * FROM a",
            "BY_NAME_REQUIRED",
            "WITH",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE USING () SEQUENCE BY s BY NAME SELECT 1",
            "KEYS_REQUIRED",
            "()",
        ),
        (
            "CREATE STREAMING TABLE t FLOW REPLACE USING (k) BY NAME SELECT 1",
            "SEQUENCE_BY_REQUIRED",
            "BY",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) SEQUENCE BY b",
            "KEYS_REQUIRED",
            "",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a)",
            "SEQUENCE_BY_REQUIRED",
            "",
        ),
    ] {
        assert_eq!(marked(text), (code, found.to_string()), "{text}");
    }
}

#[test]
fn slips_in_a_query() {
    for (query, found) in [
        ("SELCT * FROM orders", "SELCT"),
        ("SELECT * FROM t WHRE x = 1", "x"),
        ("SELECT a, FROM t", "t"),
        ("SELECT sum(a FROM t", "FROM"),
        ("SELECT a) FROM t", ")"),
        ("SELECT a WHERE", ""),
        ("SELECT größe FROM t", "ö"),
        ("SELECT * FROM t@v3", "@"),
        ("SELECT 1.5X FROM t", "1.5X"),
        ("SELECT * FROM (SELECT a b c FROM t) x", "c"),
        (
            "SELECT * FROM (SELECT 1) x JOIN (SELECT a FROM (SELECT 2 3) y) z",
            "3",
        ),
        (
            "WITH a AS (SELECT 1 FROM t WHERE), b AS (SELECT) SELECT 1",
            ")",
        ),
        ("SELECT 'abc FROM t", "'"),
        ("SELECT `abc FROM t", "`"),
        ("SELECT 1 /* abc", "/*"),
        ("SELECT * FROM a CREATE MATERIALIZED VIEW b", "MATERIALIZED"),
    ] {
        let text = format!("CREATE MATERIALIZED VIEW v AS {query}");
        assert_eq!(marked(&text), ("SYNTAX_ERROR", found.to_string()), "{text}");
    }
}

#[test]
fn one_bad_statement_does_not_hide_the_others() {
    let text = "CREATE STREAMNG TABLE a;\nCREATE STREAMING TABLE b;\n  DROP TABLE c;\nCREATE FLOW d AS INSERT INTO b\n  SELECT 1;";
    assert_eq!(
        places(text),
        [
            "SYNTAX_ERROR 1:8-16",
            "STATEMENT_NOT_SUPPORTED 3:3-7",
            "BY_NAME_REQUIRED 5:3-9"
        ]
    );
    assert_eq!(parse(text).statements.len(), 1);
}

#[test]
fn values_that_are_missing_are_named_and_nothing_else_of_their_statement() {
    let text = "CREATE MATERIALIZED VIEW v AS SELECT 'ä${lable}' FROM t WHRE y = ${begin_yeer} z;
SELECT ${none_of_them};
CREATE STREAMING TABLE t; -- ${comment}";
    assert_eq!(
        places(text),
        [
            "CONFIGURATION_VALUE_MISSING 1:40-48",
            "CONFIGURATION_VALUE_MISSING 1:66-79",
            "CONFIGURATION_VALUE_MISSING 2:8-23",
        ]
    );
    let parsed = parse(text);
    let hints: Vec<_> = parsed
        .faults
        .iter()
        .map(|fault| fault.hint.as_deref())
        .collect();
    assert_eq!(
        hints,
        [
            Some("did you mean `label`?"),
            Some("did you mean `begin_year`?"),
            None
        ]
    );
    assert_eq!(parsed.statements.len(), 1);
}

#[test]
fn places_behind_a_value_are_those_of_the_file() {
    // `${low}` stands for a text with a comment in it, which hides the rest of its line.
    assert_eq!(
        places("CREATE MATERIALIZED VIEW v AS\nSELECT ${begin_year} AS y, ${low} x\n  FROM t u w"),
        ["SYNTAX_ERROR 3:12-13"]
    );
}

#[test]
fn faults_are_shown_with_their_line() {
    assert_eq!(
        shown("CREATE MATERIALIZED VIEW ok AS SELCT * FROM orders;"),
        "error[SYNTAX_ERROR]: expected a query, found `SELCT`
 --> t.sql:1:32
  |
1 | CREATE MATERIALIZED VIEW ok AS SELCT * FROM orders;
  |                                ^^^^^ did you mean `SELECT`?"
    );
    assert_eq!(
        shown(
            "-- x\nCREATE STREAMING TABLE t\n\tFLOW REPLACE WHERE größe >= 1\n\tSELECT * FROM s;"
        ),
        "error[SYNTAX_ERROR]: expected BY NAME and a query, found `ö`
 --> t.sql:3:23
  |
3 | \tFLOW REPLACE WHERE größe >= 1
  | \t                     ^
  = help: a name with letters beyond a to z is written in backticks"
    );
    assert_eq!(
        shown("CREATE FLOW f AS INSERT INTO t REPLACE WHERE `größe` >= 1\n  SELECT * FROM s;"),
        "error[BY_NAME_REQUIRED]: BY NAME is missing before `SELECT`: columns are matched by name only
 --> t.sql:2:3
  |
2 |   SELECT * FROM s;
  |   ^^^^^^ BY NAME is missing here
  = help: write BY NAME before the query"
    );
    assert_eq!(
        shown("CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHRE x = 1"),
        "error[SYNTAX_ERROR]: expected the end of the query, found `x`
 --> t.sql:1:52
  |
1 | CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHRE x = 1
  |                                                    ^ did you mean `WHERE` where `WHRE` stands?"
    );
}

#[test]
fn predicates_with_a_fault() {
    for (text, code, message) in [
        (
            "",
            "SYNTAX_ERROR",
            "expected a predicate, found the end of the statement",
        ),
        (
            "a >",
            "SYNTAX_ERROR",
            "expected an expression, found the end of the statement",
        ),
        (
            "a > 1 b",
            "SYNTAX_ERROR",
            "expected the end of the predicate, found `b`",
        ),
        (
            "a > 1; b",
            "SYNTAX_ERROR",
            "expected the end of the predicate, found `;`",
        ),
        (
            "a > ${x}",
            "CONFIGURATION_VALUE_MISSING",
            "the configuration has no value for `x`",
        ),
        (
            "a = 'x",
            "SYNTAX_ERROR",
            "the string that begins here is not closed",
        ),
    ] {
        let fault = parse_predicate("--replace-where t", text, &BTreeMap::new()).expect_err(text);
        assert_eq!((fault.code, fault.message.as_str()), (code, message));
        assert_eq!(
            fault
                .place
                .map(|place| place.source.name.clone())
                .as_deref(),
            Some("--replace-where t")
        );
    }
}
