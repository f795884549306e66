//! Queries: Spark's forms in the syntax tree, streams, and places of its parts.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArg, SetExpr, Spanned, TableFactor, Visit, Visitor, visit_expressions,
};

use super::{parse, query, warning_codes};
use crate::sql::{Origin, files_of, stream_of};

#[derive(Default)]
struct Factors(Vec<TableFactor>);

impl Visitor for Factors {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.0.push(factor.clone());
        ControlFlow::Continue(())
    }
}

fn factors(text: &str) -> Vec<TableFactor> {
    let mut factors = Factors::default();
    let _ = query(text).ast.visit(&mut factors);
    factors.0
}

/// A stream as text: what it reads, then its options.
fn streams(text: &str) -> Vec<String> {
    let names = |args: &[FunctionArg]| {
        args.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    factors(text)
        .iter()
        .filter_map(|factor| {
            let stream = stream_of(factor)?;
            let origin = match stream.origin {
                Origin::Table(parts) => parts
                    .iter()
                    .map(|part| part.value.clone())
                    .collect::<Vec<_>>()
                    .join("/"),
                Origin::Files(args) => format!("files({})", names(args)),
                Origin::Function(name, args) => format!("{name}({})", names(args)),
                Origin::Other => "?".to_string(),
            };
            let options: Vec<_> = stream
                .options
                .iter()
                .map(|(key, value)| format!(" {}={value}", key.value))
                .collect();
            Some(origin + &options.concat())
        })
        .collect()
}

#[test]
fn forms_that_are_read_as_they_stand() {
    for text in [
        "SELECT INTERVAL '1 day', INTERVAL 1 DAY, INTERVAL '1' DAY, d - INTERVAL 2 WEEKS",
        "SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x LEFT ANTI JOIN c ON a.x = c.x",
        "SELECT a RLIKE 'x', a NOT RLIKE 'x', a <=> b, a ILIKE 'b', !a",
        "SELECT a, sum(b) FROM t GROUP BY ALL HAVING sum(b) > 1 QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1 ORDER BY ALL",
        "SELECT a, b, sum(c) FROM t GROUP BY ROLLUP (a, b)",
        "SELECT a, b, sum(c) FROM t GROUP BY GROUPING SETS ((a), (b), ())",
        "SELECT id, x FROM t LATERAL VIEW OUTER explode(xs) e AS x",
        "SELECT * FROM t VERSION AS OF 3",
        "SELECT * FROM t TIMESTAMP AS OF '2026-01-01'",
        "SELECT * FROM read_files('a', format => 'json', header => true) AS f",
        "SELECT a FROM x UNION ALL BY NAME SELECT b FROM y",
        "SELECT a FROM x MINUS SELECT b FROM y",
        "WITH a AS (SELECT 1 AS x) SELECT * FROM a",
        "VALUES (1), (2)",
        "FROM t SELECT a WHERE a > 1",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT transform(xs, x -> x + 1), aggregate(xs, 0, (acc, x) -> acc + x)",
        "SELECT s.a.b, m['k'], xs[0].y, x::DOUBLE, TRY_CAST(b AS DATE)",
        "SELECT * EXCEPT (a, b), count(*) FILTER (WHERE x > 1) FROM t",
        "SELECT a.date, a.user, year, month, date FROM a",
        "SELECT f(x)._y FROM a, LATERAL explode(a.xs) AS e (x)",
    ] {
        assert_eq!(query(text).ast.to_string(), text);
    }
}

#[test]
fn forms_that_are_rewritten() {
    for (text, read_as) in [
        (
            "SELECT 0.0D, -0.0D, 1e3D",
            "SELECT CAST(0.0 AS DOUBLE), -CAST(0.0 AS DOUBLE), CAST(1e3 AS DOUBLE)",
        ),
        (
            "SELECT 10L, 10l, 5S, -128Y",
            "SELECT 10L, 10L, CAST(5 AS SMALLINT), CAST(-128 AS TINYINT)",
        ),
        (
            "SELECT 3 -1Y, x -1Y",
            "SELECT 3 - CAST(1 AS TINYINT), x - CAST(1 AS TINYINT)",
        ),
        (
            "SELECT 1.50BD, 2F",
            "SELECT CAST(1.50 AS DECIMAL(3,2)), CAST(2 AS FLOAT)",
        ),
        (
            "SELECT DATE'2026-03-05', TIMESTAMP'2026-03-05 00:00:00'",
            "SELECT DATE '2026-03-05', TIMESTAMP '2026-03-05 00:00:00'",
        ),
        (
            "SELECT INTERVAL 1 DAY 2 HOURS",
            "SELECT (INTERVAL 1 DAY + INTERVAL 2 HOURS)",
        ),
        (
            "SELECT 'a' \"b\" 'c', \"x\"\"y\", 'it\\'s'",
            "SELECT 'abc', 'x\"y', 'it''s'",
        ),
        (
            r"SELECT r'\d+', '\\d\u0041\101', '50\%'",
            r"SELECT '\d+', '\dAA', '50\%'",
        ),
        (
            "SELECT 10 DIV 3 + 1, a == b, a != b",
            "SELECT 10 DIV 3 + 1, a = b, a <> b",
        ),
        (
            "SELECT k FROM t LATERAL VIEW explode(f(m)) AS k",
            "SELECT k FROM t LATERAL VIEW explode(f(m)) __windrow_lateral AS k",
        ),
        (
            "SELECT to_json(struct(*)) FROM 2024_events",
            "SELECT to_json(`struct`(*)) FROM 2024_events",
        ),
        (
            "SELECT CAST(x AS MAP<STRING, MAP<STRING, LONG>>)",
            "SELECT CAST(x AS Map(STRING, Map(STRING, BIGINT)))",
        ),
        (
            "SELECT * FROM LIVE.o JOIN live.c ON LIVE.o.x = c.x",
            "SELECT * FROM o JOIN c ON o.x = c.x",
        ),
        (
            "SELECT live.id, extract(year FROM live.ts) FROM live",
            "SELECT live.id, EXTRACT(YEAR FROM live.ts) FROM live",
        ),
    ] {
        assert_eq!(query(text).ast.to_string(), read_as);
    }
}

#[test]
fn div_binds_like_division() {
    let query = query("SELECT 10 DIV 3 + 1");
    let SetExpr::Select(select) = query.ast.body.as_ref() else {
        panic!("no select")
    };
    let Some(Expr::BinaryOp { right, .. }) =
        select.projection.first().and_then(|item| match item {
            sqlparser::ast::SelectItem::UnnamedExpr(expr) => Some(expr),
            _ => None,
        })
    else {
        panic!("no operator")
    };
    assert_eq!(right.to_string(), "1");
}

#[test]
fn streams_are_found_in_the_tree() {
    for (text, expected) in [
        ("SELECT * FROM STREAM(t)", vec!["t"]),
        (
            "SELECT * FROM stream(main.sales.`a b`) x",
            vec!["main/sales/a b"],
        ),
        (
            "SELECT * FROM STREAM t AS s JOIN d ON s.x = d.x, STREAM u WHERE 1 = 1",
            vec!["t", "u"],
        ),
        ("SELECT * FROM (SELECT * FROM STREAM user) q", vec!["user"]),
        (
            "SELECT * FROM STREAM read_files('a', format => 'json') f",
            vec!["files('a', format => 'json')"],
        ),
        ("SELECT * FROM STREAM(read_files('a'))", vec!["files('a')"]),
        (
            "SELECT * FROM STREAM read_stream(\"a.b\", skipChangeCommits => true)",
            vec!["a/b skipChangeCommits=true"],
        ),
        (
            "SELECT * FROM STREAM t WITH (SkipChangeCommits = TRUE, startingVersion = 3) AS x",
            vec!["t SkipChangeCommits=true startingVersion=3"],
        ),
        (
            "SELECT * FROM STREAM(t) WITH (skipChangeCommits = true)",
            vec!["t skipChangeCommits=true"],
        ),
        ("SELECT * FROM STREAM range(1, 3)", vec!["range(1, 3)"]),
        ("SELECT * FROM STREAM LIVE.t", vec!["t"]),
        (
            "SELECT stream, x AS stream FROM stream JOIN b ON stream.x = b.x",
            vec![],
        ),
        (
            "SELECT * FROM t WHERE x IN (SELECT y FROM STREAM(z))",
            vec!["z"],
        ),
    ] {
        assert_eq!(streams(text), expected, "{text}");
    }
}

#[test]
fn files_without_stream_are_found_in_the_tree() {
    let all =
        factors("SELECT * FROM read_files('p', format => 'csv') a JOIN STREAM read_files('q') b");
    let found: Vec<_> = all
        .iter()
        .map(|factor| files_of(factor).map(<[_]>::len))
        .collect();
    assert_eq!(found, [Some(2), None]);
}

#[test]
fn live_prefix_is_warned_about_once_for_each_relation() {
    let text = "CREATE MATERIALIZED VIEW v AS SELECT LIVE.a.x FROM LIVE.a, LIVE.b";
    assert_eq!(
        warning_codes(text),
        ["LIVE_PREFIX_DEPRECATED", "LIVE_PREFIX_DEPRECATED"]
    );
}

#[test]
fn spans_lead_back_to_the_file() {
    // The value is longer than its name, and the words before it are not ASCII.
    let query = query("SELECT 'größer' AS x,\n  '${label}${begin_year}' AS y, amuont\nFROM t");
    let mut found = None;
    let _ = visit_expressions(&query.ast, |expr| {
        if let Expr::Identifier(ident) = expr {
            found = query.place_of(ident.span);
        }
        ControlFlow::<()>::Continue(())
    });
    let place = found.expect("a place");
    assert_eq!(
        (place.line, place.column, place.end_line, place.end_column),
        (2, 33, 2, 39)
    );
    let line = place.source.text.lines().nth(1).expect("a line");
    assert_eq!(line.chars().skip(32).take(6).collect::<String>(), "amuont");

    let whole = query.place_of(query.ast.span()).expect("a place");
    assert_eq!((whole.line, whole.end_line), (1, 3));
    assert_eq!(query.place_of(sqlparser::tokenizer::Span::empty()), None);
}

#[test]
fn a_substituted_value_has_the_place_of_its_reference() {
    let query = query("SELECT a FROM t WHERE year >= ${begin_year}");
    let mut found = None;
    let _ = visit_expressions(&query.ast, |expr| {
        if let Expr::Value(value) = expr {
            found = query.place_of(value.span);
        }
        ControlFlow::<()>::Continue(())
    });
    let place = found.expect("a place");
    assert_eq!((place.column, place.end_column), (61, 74));
}

#[test]
fn long_lists_are_read_and_endless_chains_refused() {
    let list = (0..20_000)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    query(&format!("SELECT a FROM t WHERE a IN ({list})"));
    for chain in [
        format!("SELECT 1{}", " + 1".repeat(50_000)),
        format!("SELECT a{} FROM t", "::INT".repeat(50_000)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(10_000)),
        format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("SELECT {}a", "NOT ".repeat(50_000)),
        format!("SELECT {}a", "- ".repeat(50_000)),
        format!(
            "SELECT CAST(a AS {}INT{})",
            "ARRAY<".repeat(2_000),
            ">".repeat(2_000)
        ),
    ] {
        let parsed = parse(&format!("CREATE MATERIALIZED VIEW v AS {chain}"));
        assert_eq!(parsed.faults.len(), 1, "{}", &chain[..40]);
    }
}
