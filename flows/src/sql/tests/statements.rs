//! What each form of statement gives.

use std::collections::BTreeMap;

use super::{flow, one, parse, statements, table, view, warning_codes};
use crate::definition::{ClusterBy, FlowKind, Name, OnViolation, Statement, TableKind};
use crate::sql::parse_predicate;

fn names(names: &[Name]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn streaming_table_alone_has_no_flow() {
    for text in [
        "CREATE STREAMING TABLE t",
        "create or refresh streaming table t;",
        "CREATE OR REFRESH STREAMING TABLE t; -- the end",
        "/* a /* nested */ comment */ CREATE STREAMING TABLE t -- x\n;",
    ] {
        let (table, flow) = table(text);
        assert_eq!(
            (table.name.to_string().as_str(), table.kind),
            ("t", TableKind::StreamingTable)
        );
        assert!(flow.is_none() && table.columns.is_empty(), "{text}");
    }
}

#[test]
fn query_of_a_streaming_table_is_an_append_flow_with_the_tables_name() {
    let (table, flow) =
        table("CREATE STREAMING TABLE Gold.Copy AS SELECT * FROM STREAM(main.sales.named);");
    let flow = flow.expect("a flow");
    assert_eq!(table.name.parts, ["Gold", "Copy"]);
    assert_eq!(
        (flow.name.to_string(), flow.target.to_string()),
        ("Gold.Copy".into(), "Gold.Copy".into())
    );
    match flow.kind {
        FlowKind::Append { once: false, query } => {
            assert_eq!(query.text, "SELECT * FROM STREAM(main.sales.named)");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn columns_constraints_and_clauses_of_a_table() {
    let (table, flow) = table(
        "CREATE OR REFRESH STREAMING TABLE t (
           id BIGINT NOT NULL COMMENT 'the ''key''',
           `order date` DATE,
           m MAP<STRING, ARRAY<INT>>, s STRUCT<a: INT, b: DECIMAL(10, 2)>,
           y INT GENERATED ALWAYS AS (year(`order date`) + 1),
           CONSTRAINT kept EXPECT (id > 0),
           CONSTRAINT dropped EXPECT (id IS NOT NULL AND y IN (1, 2)) ON VIOLATION DROP ROW,
           CONSTRAINT failed EXPECT (coalesce(id, 0) < 100) ON VIOLATION FAIL UPDATE
         )
         TBLPROPERTIES ('quality' = \"gold\", delta.appendOnly = false, 'n' 5, pipelines.`x` = -1.5)
         PARTITIONED BY (id, `order date`) COMMENT 'sales, it''s all' USING DELTA;",
    );
    assert!(flow.is_none());
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|c| {
            (
                c.name.last(),
                c.data_type
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("id", "BIGINT".to_string()),
            ("order date", "DATE".to_string()),
            ("m", "Map(STRING, ARRAY<INT>)".to_string()),
            ("s", "STRUCT<a INT, b DECIMAL(10,2)>".to_string()),
            ("y", "INT".to_string()),
        ]
    );
    assert!(table.columns[0].not_null && !table.columns[1].not_null);
    assert_eq!(table.columns[0].comment.as_deref(), Some("the 'key'"));
    let generated = table.columns[4].generated.as_ref().expect("generated");
    assert_eq!(generated.text, "year(`order date`) + 1");
    let expectations: Vec<_> = table
        .expectations
        .iter()
        .map(|e| (e.name.last(), e.condition.text.as_str(), e.on_violation))
        .collect();
    assert_eq!(
        expectations,
        [
            ("kept", "id > 0", OnViolation::Keep),
            (
                "dropped",
                "id IS NOT NULL AND y IN (1, 2)",
                OnViolation::DropRow
            ),
            ("failed", "coalesce(id, 0) < 100", OnViolation::FailUpdate),
        ]
    );
    assert_eq!(names(&table.partitioned_by), ["id", "order date"]);
    assert_eq!(table.comment.as_deref(), Some("sales, it's all"));
    let properties: Vec<_> = table
        .properties
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        properties,
        [
            ("quality", "gold"),
            ("delta.appendOnly", "false"),
            ("n", "5"),
            ("pipelines.x", "-1.5")
        ]
    );
}

#[test]
fn constraints_need_no_columns_beside_them() {
    let (table, flow) = table(
        "CREATE STREAMING TABLE t (CONSTRAINT positive EXPECT (total > 0) ON VIOLATION DROP ROW)
         FLOW REPLACE USING (id) SEQUENCE BY n BY NAME SELECT * FROM STREAM(s);",
    );
    assert!(table.columns.is_empty());
    assert_eq!(table.expectations.len(), 1);
    assert_eq!(flow.map(|flow| flow.kind.word()), Some("REPLACE_USING"));
}

#[test]
fn cluster_by_columns_or_auto() {
    let (columns, _) = table("CREATE STREAMING TABLE c CLUSTER BY (d, s.x) USING DELTA");
    assert!(matches!(columns.cluster_by, Some(ClusterBy::Columns(c)) if names(&c) == ["d", "s.x"]));
    let (auto, _) = table("CREATE MATERIALIZED VIEW c CLUSTER BY AUTO AS SELECT 1 AS x");
    assert!(matches!(auto.cluster_by, Some(ClusterBy::Auto)));
}

#[test]
fn replace_where_inline_and_in_the_long_form() {
    for text in [
        "CREATE STREAMING TABLE t FLOW REPLACE WHERE `date` >= date_add(current_date(), -7) AND k <> 'it''s' BY NAME SELECT a, b FROM s GROUP BY ALL;",
        "CREATE FLOW f COMMENT 'c' AS INSERT INTO t BY NAME REPLACE WHERE `date` >= date_add(current_date(), -7) AND k <> 'it''s' SELECT a, b FROM s GROUP BY ALL;",
        "create flow f as insert into t replace where `date` >= date_add(current_date(), -7) AND k <> 'it''s' by name SELECT a, b FROM s GROUP BY ALL",
    ] {
        let flow = flow(text);
        assert_eq!(flow.target.to_string(), "t");
        match flow.kind {
            FlowKind::ReplaceWhere { predicate, query } => {
                assert_eq!(
                    predicate.text,
                    "`date` >= date_add(current_date(), -7) AND k <> 'it''s'"
                );
                assert_eq!(query.text, "SELECT a, b FROM s GROUP BY ALL");
                assert_eq!(query.ast.to_string(), query.text);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn predicate_ends_where_the_query_begins() {
    for (predicate, query) in [
        ("d >= DATE'2026-03-05'", "SELECT * FROM s"),
        (
            "d >= current_date - INTERVAL 7 DAYS",
            "WITH a AS (SELECT 1 AS d) SELECT * FROM a",
        ),
        ("d IN ('a', 'b') OR d IS NULL", "VALUES (1), (2)"),
        ("(a = 1 AND b = 2)", "(SELECT 1) UNION ALL (SELECT 2)"),
        (
            "x >= 'a'",
            "SELECT x FROM s1 UNION ALL BY NAME SELECT x FROM s2",
        ),
        ("a IS DISTINCT FROM b", "FROM s SELECT x"),
        (
            "ts BETWEEN '2024-01-01' AND CAST(x AS TIMESTAMP)",
            "SELECT 1",
        ),
    ] {
        for text in [
            format!("CREATE STREAMING TABLE t FLOW REPLACE WHERE {predicate} BY NAME {query}"),
            format!("CREATE FLOW f AS INSERT INTO t BY NAME REPLACE WHERE {predicate} {query}"),
            format!("CREATE FLOW f AS INSERT INTO t REPLACE WHERE {predicate} BY NAME {query};"),
        ] {
            match flow(&text).kind {
                FlowKind::ReplaceWhere {
                    predicate: p,
                    query: q,
                } => {
                    assert_eq!(
                        (p.text.as_str(), q.text.as_str()),
                        (predicate, query),
                        "{text}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn replace_using_in_all_orders() {
    for text in [
        "CREATE STREAMING TABLE t FLOW REPLACE USING (region, Account_Id) SEQUENCE BY major * 100 + minor BY NAME SELECT * FROM STREAM(s)",
        "CREATE FLOW f AS INSERT INTO t BY NAME REPLACE USING (region, Account_Id) SEQUENCE BY major * 100 + minor SELECT * FROM STREAM(s)",
        "CREATE FLOW f AS INSERT INTO t REPLACE USING (region, Account_Id) SEQUENCE BY major * 100 + minor BY NAME SELECT * FROM STREAM(s)",
    ] {
        match flow(text).kind {
            FlowKind::ReplaceUsing {
                keys,
                sequence_by,
                query,
            } => {
                assert_eq!(names(&keys), ["region", "Account_Id"]);
                assert_eq!(sequence_by.text, "major * 100 + minor");
                assert_eq!(query.text, "SELECT * FROM STREAM(s)");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn append_flows_once_or_not() {
    for (text, name, target, expected) in [
        (
            "CREATE STREAMING TABLE t FLOW INSERT BY NAME SELECT 1",
            "t",
            "t",
            false,
        ),
        (
            "CREATE STREAMING TABLE t FLOW INSERT ONCE BY NAME SELECT 1",
            "t",
            "t",
            true,
        ),
        (
            "CREATE TABLE t FLOW INSERT BY NAME SELECT 1",
            "t",
            "t",
            false,
        ),
        (
            "CREATE FLOW f AS INSERT INTO t BY NAME SELECT 1",
            "f",
            "t",
            false,
        ),
        (
            "CREATE FLOW f AS INSERT INTO ONCE a.t BY NAME SELECT 1",
            "f",
            "a.t",
            true,
        ),
        (
            "CREATE FLOW f AS INSERT ONCE INTO t BY NAME SELECT 1",
            "f",
            "t",
            true,
        ),
        (
            "CREATE FLOW f AS INSERT INTO once BY NAME SELECT 1",
            "f",
            "once",
            false,
        ),
        (
            "CREATE FLOW live AS INSERT INTO live BY NAME SELECT 1",
            "live",
            "live",
            false,
        ),
    ] {
        let flow = flow(text);
        assert_eq!(
            (
                flow.name.to_string().as_str(),
                flow.target.to_string().as_str()
            ),
            (name, target)
        );
        assert!(
            matches!(flow.kind, FlowKind::Append { once, .. } if once == expected),
            "{text}"
        );
    }
}

#[test]
fn flow_comment_is_kept() {
    let flow = flow("CREATE FLOW f COMMENT \"latest row\" AS INSERT INTO t BY NAME SELECT 1");
    assert_eq!(flow.comment.as_deref(), Some("latest row"));
}

#[test]
fn auto_cdc_in_all_its_forms() {
    for (text, kind) in [
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(cdc) KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY seq COLUMNS * EXCEPT (op, seq);",
            "AUTO_CDC",
        ),
        (
            "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(cdc) KEYS (id, `a b`) SEQUENCE BY struct(a, b) COLUMNS (id, v) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (x);",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS APPLY CHANGES INTO t FROM STREAM cdc KEYS (id) APPLY AS DELETE WHEN op = \"D\" APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY seq COLUMNS id, v STORED AS SCD TYPE 1",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(cdc) KEYS (id) IGNORE NULL UPDATES ON * EXCEPT (b) SEQUENCE BY seq",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(cdc) KEYS (id) STORED AS SCD TYPE 2 SEQUENCE BY seq TRACK HISTORY ON (a) IGNORE NULL UPDATES",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC ONCE INTO c FROM stream(legacy.customers) KEYS (id) SEQUENCE BY ver",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC ONCE INTO c FROM legacy VERSION AS OF 3 KEYS (id) SEQUENCE BY ver",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC INTO c FROM STREAM read_files('x', format => 'json') KEYS (id) SEQUENCE BY ver",
            "AUTO_CDC",
        ),
        (
            "CREATE FLOW f AS AUTO CDC FROM SNAPSHOT INTO c FROM snap WITH VERSION (SELECT max(v) FROM version) KEYS (id) STORED AS SCD TYPE 1;",
            "AUTO_CDC_FROM_SNAPSHOT",
        ),
        (
            "CREATE FLOW f AS AUTO CDC ONCE FROM SNAPSHOT INTO c FROM main.legacy.snap WITH VERSION (SELECT CAST('2025-01-01T00:00:00Z' AS TIMESTAMP)) KEYS (Id)",
            "AUTO_CDC_FROM_SNAPSHOT",
        ),
        (
            "CREATE FLOW f AS AUTO CDC FROM SNAPSHOT INTO c FROM (SELECT * FROM a) KEYS (id) STORED AS SCD TYPE 2 TRACK HISTORY ON (a, b)",
            "AUTO_CDC_FROM_SNAPSHOT",
        ),
        (
            "CREATE FLOW f AS AUTO CDC ONCE INTO c FROM SNAPSHOT (SELECT * FROM a) WITH VERSION (SELECT 1) KEYS (id)",
            "AUTO_CDC_FROM_SNAPSHOT",
        ),
    ] {
        assert_eq!(flow(text).kind.word(), kind, "{text}");
    }
}

#[test]
fn apply_changes_alone_is_a_flow_named_after_its_target() {
    let text = "APPLY CHANGES INTO LIVE.t FROM STREAM(LIVE.s) KEYS (id) SEQUENCE BY n;";
    let flow = flow(text);
    assert_eq!((flow.name.last(), flow.target.last()), ("t", "t"));
    assert_eq!(
        warning_codes(text),
        [
            "LIVE_PREFIX_DEPRECATED",
            "LIVE_PREFIX_DEPRECATED",
            "FLOW_WITHOUT_CREATE_DEPRECATED"
        ]
    );
}

#[test]
fn materialized_view_has_its_query_as_a_flow() {
    let (table, flow) = table(
        "CREATE OR REFRESH MATERIALIZED VIEW mv (CONSTRAINT ok EXPECT (v > 0)) COMMENT 'c' AS
         SELECT a FROM t",
    );
    assert_eq!(
        (table.kind, table.comment.as_deref()),
        (TableKind::MaterializedView, Some("c"))
    );
    let flow = flow.expect("a flow");
    assert_eq!(flow.target.to_string(), "mv");
    assert!(
        matches!(flow.kind, FlowKind::MaterializedView { query } if query.text == "SELECT a FROM t")
    );
}

#[test]
fn views_with_and_without_columns() {
    for text in [
        "CREATE TEMPORARY VIEW v (a COMMENT 'x', `b c`) COMMENT 'y' AS SELECT * FROM STREAM(s) WHERE n > 1",
        "CREATE PRIVATE VIEW v (a COMMENT 'x', `b c`) COMMENT 'y' AS SELECT * FROM STREAM(s) WHERE n > 1",
        "CREATE OR REFRESH TEMP VIEW v (a COMMENT 'x', `b c`) COMMENT 'y' AS SELECT * FROM STREAM(s) WHERE n > 1;",
        "CREATE VIEW v (a COMMENT 'x', `b c`) COMMENT 'y' AS SELECT * FROM STREAM(s) WHERE n > 1;",
    ] {
        let view = view(text);
        let columns: Vec<_> = view
            .columns
            .iter()
            .map(|c| (c.name.last(), c.comment.as_deref()))
            .collect();
        assert_eq!(columns, [("a", Some("x")), ("b c", None)]);
        assert!(view.columns.iter().all(|column| column.data_type.is_none()));
        assert_eq!(view.comment.as_deref(), Some("y"));
        assert_eq!(view.query.text, "SELECT * FROM STREAM(s) WHERE n > 1");
    }
}

#[test]
fn settings_and_defaults() {
    for (text, key, value) in [
        (
            "SET spark.sql.session.timeZone = 'UTC'",
            "spark.sql.session.timeZone",
            "UTC",
        ),
        ("SET `a b` = 'x;y';", "a b", "x;y"),
        ("set a-b.c:d = 1 + two", "a-b.c:d", "1 + two"),
        ("SET year = ${begin_year};", "year", "2025"),
    ] {
        match one(text) {
            Statement::Set {
                key: k,
                value: v,
                place,
            } => {
                assert_eq!((k.as_str(), v.as_str(), place.column), (key, value, 5));
            }
            other => panic!("{other:?}"),
        }
    }
    let defaults = statements("USE CATALOG main; USE SCHEMA `my sales`;");
    assert!(matches!(&defaults[0], Statement::UseCatalog(name) if name.parts == ["main"]));
    assert!(matches!(&defaults[1], Statement::UseSchema(name) if name.parts == ["my sales"]));
}

#[test]
fn deprecated_forms_are_read_as_modern_ones_with_a_warning() {
    for (text, codes, kind) in [
        (
            "CREATE OR REPLACE STREAMING TABLE t AS SELECT 1",
            vec!["OR_REPLACE_DEPRECATED"],
            TableKind::StreamingTable,
        ),
        (
            "CREATE OR REFRESH STREAMING LIVE TABLE t AS SELECT 1",
            vec!["LIVE_DEPRECATED"],
            TableKind::StreamingTable,
        ),
        (
            "CREATE LIVE TABLE t AS SELECT * FROM LIVE.a",
            vec!["LIVE_DEPRECATED", "LIVE_PREFIX_DEPRECATED"],
            TableKind::MaterializedView,
        ),
        (
            "CREATE STREAMING TABLE LIVE.t SCHEDULE EVERY 2 HOURS AS SELECT 1",
            vec!["LIVE_PREFIX_DEPRECATED", "SCHEDULE_NOT_ACTED_ON"],
            TableKind::StreamingTable,
        ),
        (
            "CREATE STREAMING TABLE t SCHEDULE REFRESH CRON '0 0 * * *' AT TIME ZONE 'UTC'",
            vec!["SCHEDULE_NOT_ACTED_ON"],
            TableKind::StreamingTable,
        ),
    ] {
        let (table, _) = table(text);
        assert_eq!(
            (table.name.to_string().as_str(), table.kind),
            ("t", kind),
            "{text}"
        );
        assert_eq!(warning_codes(text), codes, "{text}");
    }
}

#[test]
fn a_text_without_statements_gives_nothing() {
    for text in [
        "",
        "  \n",
        ";;",
        "-- only a comment",
        "/* ; */ ; -- ${nothing}",
    ] {
        let parsed = parse(text);
        assert!(
            parsed.statements.is_empty() && parsed.faults.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn semicolons_in_strings_names_and_comments_end_nothing() {
    let all = statements(
        "CREATE MATERIALIZED VIEW `a;b` COMMENT ';' AS SELECT \";\" AS x -- ;\n/* ; */ FROM t;
         CREATE STREAMING TABLE b",
    );
    assert_eq!(all.len(), 2);
    assert!(matches!(&all[0], Statement::Table { table, .. } if table.name.parts == ["a;b"]));
}

#[test]
fn names_in_backticks_hold_anything() {
    let (table, _) = table("CREATE STREAMING TABLE `größe.x`.`a``b` (`select` INT)");
    assert_eq!(table.name.parts, ["größe.x", "a`b"]);
    assert_eq!(table.columns[0].name.parts, ["select"]);
    assert_eq!(table.name.place.column, 24);
    assert_eq!(table.name.place.end_column, 40);
}

#[test]
fn values_of_the_configuration_are_filled_in() {
    let flow = flow(
        "CREATE MATERIALIZED VIEW one AS SELECT id, '${label}' AS l -- ${none}\n FROM src WHERE year >= ${ begin_year } /* ${none} */ AND x = '$${'",
    );
    match flow.kind {
        FlowKind::MaterializedView { query } => assert_eq!(
            query.ast.to_string(),
            "SELECT id, 'it' AS l FROM src WHERE year >= 2025 AND x = '$${'"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn predicate_alone() {
    let predicate = parse_predicate(
        "--replace-where t",
        " date >= '2026-01-01' AND k = 1 ",
        &BTreeMap::new(),
    )
    .expect("a predicate");
    assert_eq!(predicate.text, "date >= '2026-01-01' AND k = 1");
    assert_eq!(predicate.place.source.name, "--replace-where t");
    assert_eq!(
        (predicate.place.column, predicate.place.end_column),
        (2, 32)
    );
}
