//! Predicates must end as plain comparisons of a column with a literal, so that files and
//! partitions can be passed over; and errors must say which expression and value they are about.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DataFusionStatement;

use crate::golden::{parse, run, session};

fn session_with_table(zone: &str) -> SessionState {
    let state = session(zone);
    let schema = Arc::new(Schema::new(vec![
        Field::new("d", DataType::Date32, true),
        Field::new(
            "ts",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            true,
        ),
        Field::new(
            "local",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            true,
        ),
        Field::new("n", DataType::Int64, true),
        Field::new("small", DataType::Int16, true),
        Field::new("f", DataType::Float64, true),
        Field::new("m", DataType::Decimal128(10, 2), true),
        Field::new("s", DataType::Utf8, true),
    ]));
    let table = MemTable::try_new(schema, vec![vec![]]).unwrap();
    // The context shares the catalogue of the state.
    SessionContext::new_with_state(state.clone())
        .register_table("t", Arc::new(table))
        .unwrap();
    state
}

async fn optimized(zone: &str, predicate: &str) -> String {
    let state = session_with_table(zone);
    let statement = parse(&format!("SELECT d FROM t WHERE {predicate}")).unwrap();
    let plan = state
        .statement_to_plan(DataFusionStatement::Statement(Box::new(statement)))
        .await;
    let plan = plan.and_then(|plan| state.optimize(&plan));
    match plan {
        Ok(plan) => plan.display_indent().to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn predicates_end_as_comparisons_with_literals() {
    let utc = "UTC";
    let new_york = "America/New_York";
    let cases = [
        (
            utc,
            "d >= date_add(current_date(), -7)",
            r#"t.d >= Date32("2026-03-03")"#,
        ),
        (
            utc,
            "d >= current_date - 7",
            r#"t.d >= Date32("2026-03-03")"#,
        ),
        (
            utc,
            "d >= current_date() - INTERVAL 7 DAYS",
            r#"t.d >= Date32("2026-03-03")"#,
        ),
        // It is still the ninth there.
        (
            new_york,
            "d >= date_sub(current_date(), 7)",
            r#"t.d >= Date32("2026-03-02")"#,
        ),
        (utc, "d >= '2026-03-05'", r#"t.d >= Date32("2026-03-05")"#),
        (
            utc,
            "d >= DATE'2026-03-05'",
            r#"t.d >= Date32("2026-03-05")"#,
        ),
        (utc, "'2026-03-05' <= d", r#"t.d >= Date32("2026-03-05")"#),
        (
            utc,
            "d BETWEEN '2020-01-01' AND '2024-12-31'",
            r#"t.d >= Date32("2020-01-01") AND t.d <= Date32("2024-12-31")"#,
        ),
        (
            utc,
            "d IN ('2020-01-01', '2020-01-05')",
            r#"t.d = Date32("2020-01-01") OR t.d = Date32("2020-01-05")"#,
        ),
        (
            new_york,
            "ts BETWEEN '2024-11-01' AND '2024-11-02'",
            r#"t.ts >= TimestampMicrosecond(1730433600000000, Some("UTC")) AND t.ts <= TimestampMicrosecond(1730520000000000, Some("UTC"))"#,
        ),
        (
            new_york,
            "ts >= TIMESTAMP'2025-03-01 00:00:00'",
            r#"t.ts >= TimestampMicrosecond(1740805200000000, Some("UTC"))"#,
        ),
        (
            new_york,
            "ts >= DATE'2025-03-01'",
            r#"t.ts >= TimestampMicrosecond(1740805200000000, Some("UTC"))"#,
        ),
        (
            utc,
            "ts >= current_timestamp() - INTERVAL 1 DAY",
            r#"t.ts >= TimestampMicrosecond(1773023400000000, Some("UTC"))"#,
        ),
        (
            utc,
            "local >= '2025-03-01'",
            r#"t.local >= TimestampMicrosecond(1740787200000000, None)"#,
        ),
        (utc, "n > 5", "t.n > Int64(5)"),
        (utc, "n > '5'", "t.n > Int64(5)"),
        (utc, "n = 2 + 3", "t.n = Int64(5)"),
        (utc, "small = 1", "t.small = Int16(1)"),
        (
            utc,
            "small IN (1, 2)",
            "t.small = Int16(1) OR t.small = Int16(2)",
        ),
        (utc, "m > 1", "t.m > Decimal128(1.00,10,2)"),
        (utc, "s = 'x'", r#"t.s = Utf8("x")"#),
        (
            utc,
            "d >= trunc(current_date(), 'MM')",
            r#"t.d >= Date32("2026-03-01")"#,
        ),
        (
            utc,
            "year(d) = 2024",
            r#"t.d >= Date32("2024-01-01") AND t.d < Date32("2025-01-01")"#,
        ),
        (utc, "year(d) > '2024'", r#"t.d >= Date32("2025-01-01")"#),
        (
            utc,
            "year(d) IN (2020, 2022)",
            r#"t.d >= Date32("2020-01-01") AND t.d < Date32("2021-01-01") OR t.d >= Date32("2022-01-01") AND t.d < Date32("2023-01-01")"#,
        ),
        (
            new_york,
            "year(ts) >= 2025",
            r#"t.ts >= TimestampMicrosecond(1735707600000000, Some("UTC"))"#,
        ),
        (
            new_york,
            "date_trunc('month', ts) >= TIMESTAMP'2025-03-01 00:00:00'",
            r#"t.ts >= TimestampMicrosecond(1740805200000000, Some("UTC"))"#,
        ),
        // Within a month no month begins.
        (
            utc,
            "date_trunc('month', ts) >= '2025-03-02'",
            r#"t.ts >= TimestampMicrosecond(1743465600000000, Some("UTC"))"#,
        ),
        (
            utc,
            "date_trunc('month', d) = '2025-03-01'",
            r#"t.d >= Date32("2025-03-01") AND t.d < Date32("2025-04-01")"#,
        ),
        (
            utc,
            "trunc(d, 'MM') <= DATE'2025-03-01'",
            r#"t.d < Date32("2025-04-01")"#,
        ),
        (
            new_york,
            "to_date(ts) = '2025-03-01'",
            r#"t.ts >= TimestampMicrosecond(1740805200000000, Some("UTC")) AND t.ts < TimestampMicrosecond(1740891600000000, Some("UTC"))"#,
        ),
        (
            utc,
            "CAST(local AS DATE) >= DATE'2025-03-01'",
            "t.local >= TimestampMicrosecond(1740787200000000, None)",
        ),
        (
            utc,
            "date_format(ts, 'yyyy-MM') = '2025-03'",
            r#"t.ts >= TimestampMicrosecond(1740787200000000, Some("UTC")) AND t.ts < TimestampMicrosecond(1743465600000000, Some("UTC"))"#,
        ),
        // A minute after midnight the clock was set back to the day before.
        (
            "America/St_Johns",
            "to_date(ts) > '2006-10-28'",
            r#"t.ts >= TimestampMicrosecond(1162002600000000, Some("UTC")) AND spark_cast(t.ts, Utf8("date"), Utf8("America/St_Johns")) > Date32("2006-10-28")"#,
        ),
        (
            utc,
            "f <= 5",
            "t.f <= Float64(5) AND spark_normalize(t.f) <= Float64(5)",
        ),
        // NaN is greater, and may be written with a sign.
        (utc, "f > 5", "spark_normalize(t.f) > Float64(5)"),
        (
            utc,
            "d >= last_day(add_months(current_date(), -1))",
            r#"t.d >= Date32("2026-02-28")"#,
        ),
    ];
    let mut differences = vec![];
    for (zone, predicate, expected) in cases {
        let plan = optimized(zone, predicate).await;
        if !plan.contains(&format!("Filter: {expected}\n")) {
            differences.push(format!("{predicate}\n  wanted {expected}\n  found {plan}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test]
async fn errors_name_the_expression_and_the_value() {
    let state = session("UTC");
    let cases: [(&str, &[&str]); 9] = [
        (
            "SELECT CAST(x AS INT) FROM VALUES ('x') t(x)",
            &["cast", "'x'", "INT"],
        ),
        ("SELECT CAST('x' AS INT)", &["cast", "'x'", "INT"]),
        (
            "SELECT sum(x) FROM VALUES (9223372036854775807), (1) t(x)",
            &["overflow", "sum"],
        ),
        (
            "SELECT x + 1 FROM VALUES (2147483647) t(x)",
            &["overflow", "+ a literal", "2147483647"],
        ),
        ("SELECT 1 / x FROM VALUES (0) t(x)", &["zero", "1 / 0"]),
        (
            "SELECT CAST(x AS DECIMAL(5,2)) FROM VALUES (1000.000) t(x)",
            &["cast", "1000.000", "DECIMAL(5,2)"],
        ),
        ("SELECT uper('x')", &["FUNCTION_NOT_FOUND", "uper"]),
        (
            "SELECT approx_count_distinct(1)",
            &["FUNCTION_NOT_AVAILABLE", "approx_count_distinct"],
        ),
        (
            "SELECT DATE'2024-01-01' = 1",
            &["DATATYPE_MISMATCH", "DATE", "INT"],
        ),
    ];
    for (sql, parts) in cases {
        let error = run(&state, sql).await.map(|_| ()).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{sql}: {error} does not say {part}");
        }
    }
}

#[tokio::test]
async fn columns_without_alias_have_sparks_names() {
    let state = session("UTC");
    let cases = [
        (
            "SELECT sum(x), count(*), x + 1, upper('a') FROM VALUES (1) t(x) GROUP BY x",
            "sum(x), count(1), (x + 1), upper(a)",
        ),
        (
            "SELECT CAST(x AS STRING), -x, x IS NULL FROM VALUES (1) t(x)",
            "CAST(x AS STRING), (- x), (x IS NULL)",
        ),
        ("SELECT x, t.x AS y, 1 FROM VALUES (1) t(x)", "x, y, 1"),
    ];
    for (sql, expected) in cases {
        let batches = run(&state, sql).await.unwrap();
        let names: Vec<String> = batches[0]
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        assert_eq!(names.join(", "), expected);
    }
}

/// Sums travel between stages as partial states; these must merge to the same result.
#[tokio::test]
async fn sums_of_several_partitions_merge() {
    let state = session("UTC");
    let schema = Arc::new(Schema::new(vec![
        Field::new("f", DataType::Float64, true),
        Field::new("n", DataType::Int64, true),
    ]));
    let batch = |floats: Vec<Option<f64>>, numbers: Vec<i64>| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(floats)),
            Arc::new(Int64Array::from(numbers)),
        ];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let partitions = vec![
        vec![batch(
            vec![Some(0.0), Some(f64::NAN), None],
            vec![i64::MAX, 2, 3],
        )],
        vec![batch(
            vec![Some(-0.0), Some(-f64::NAN), None],
            vec![-1, 20, 30],
        )],
    ];
    let table = MemTable::try_new(Arc::clone(&schema), partitions).unwrap();
    SessionContext::new_with_state(state.clone())
        .register_table("t", Arc::new(table))
        .unwrap();
    let sql = "SELECT f, sum(n) AS n, count(*) AS c FROM t GROUP BY f ORDER BY f";
    let batches = run(&state, sql).await.unwrap();
    let found = pretty_format_batches(&batches).unwrap().to_string();
    let rows: Vec<String> = found
        .lines()
        .skip(3)
        .map(|line| line.replace(' ', ""))
        .collect();
    assert_eq!(
        rows[..3],
        ["||33|2|", "|0.0|9223372036854775806|2|", "|NaN|22|2|"]
    );
    let error = run(&state, "SELECT sum(n + 0) FROM t WHERE n > 0")
        .await
        .unwrap_err();
    assert!(error.contains("overflow"), "{error}");
}

#[tokio::test]
async fn subqueries_compare_by_sparks_rules() {
    let state = session("UTC");
    let counts = [
        (
            "SELECT x FROM VALUES (-0.0D), (1D) t(x) WHERE x IN (SELECT y FROM VALUES (0.0D) u(y))",
            1,
        ),
        (
            "SELECT x FROM VALUES (DATE'2024-01-01') t(x) WHERE x IN (SELECT y FROM VALUES ('2024-1-1') u(y))",
            1,
        ),
        (
            "SELECT x FROM VALUES (1) t(x) WHERE x NOT IN (SELECT y FROM VALUES (2), (NULL) u(y))",
            0,
        ),
        (
            "SELECT x FROM VALUES (1), (NULL) t(x) WHERE x NOT IN (SELECT y FROM VALUES (2) u(y) WHERE FALSE)",
            2,
        ),
    ];
    for (sql, expected) in counts {
        let batches = run(&state, sql).await.unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, expected, "{sql}");
    }
}
