//! The law of REPLACE WHERE, for tables, predicates and queries that chance makes:
//!
//! after = rows before for which the predicate is not TRUE + rows of the query for which it is TRUE
//!
//! The right-hand side is computed here, in plain Rust over the generated rows, with three truth values.
//! `WINDROW_LAW_CASES` sets how many pipelines of several flows are tried.

use std::cmp::Ordering;

use chrono::{Days, NaiveDate};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::lake::{Column, Lake, NewTable};
use crate::pipeline::{Pipeline, target};
use crate::{Outcome, cells, words};

const CASES: u32 = 4;
const FLOWS: usize = 8;
const COLUMNS: [(&str, &str); 5] = [
    ("id", "long"),
    ("d", "date"),
    ("k", "string"),
    ("x", "double"),
    ("n", "integer"),
];

#[derive(Debug, Clone)]
enum Value {
    Day(u8),
    Text(&'static str),
    Double(f64),
    Int(i32),
}

type Row = [Option<Value>; 4];

fn day(offset: i64) -> NaiveDate {
    let first = NaiveDate::from_ymd_opt(2026, 2, 25).unwrap_or_default();
    first
        .checked_add_days(Days::new(offset.unsigned_abs()))
        .unwrap_or_default()
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Day(a), Value::Day(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        // NaN equals NaN and is greater than any number; the zeros are equal.
        (Value::Double(a), Value::Double(b)) => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (a, b) => a.cmp(&b),
        },
        _ => unreachable!("a column has one type"),
    }
}

fn literal(value: &Option<Value>, dates_as_text: bool) -> String {
    match value {
        None => "NULL".into(),
        Some(Value::Day(d)) => format!(
            "{}'{}'",
            if dates_as_text { "" } else { "DATE" },
            day(i64::from(*d))
        ),
        Some(Value::Text(t)) => format!("'{t}'"),
        Some(Value::Double(x)) if !x.is_finite() => format!("CAST('{x}' AS DOUBLE)"),
        Some(Value::Double(x)) => format!("{x:?}D"),
        Some(Value::Int(n)) => n.to_string(),
    }
}

fn cell(value: &Option<Value>) -> String {
    match value {
        None => "null".into(),
        Some(Value::Day(d)) => day(i64::from(*d)).to_string(),
        Some(Value::Text(t)) => format!("'{t}'"),
        Some(Value::Double(x)) => format!("{x:?}"),
        Some(Value::Int(n)) => n.to_string(),
    }
}

/// A predicate over the columns d, k, x and n (0 to 3).
#[derive(Debug, Clone)]
enum Predicate {
    Compare(usize, &'static str, Option<Value>, bool),
    Null(usize, bool),
    In(usize, Vec<Option<Value>>, bool),
    Between(usize, Option<Value>, Option<Value>),
    And(Box<Predicate>, Box<Predicate>),
    Or(Box<Predicate>, Box<Predicate>),
    Not(Box<Predicate>),
}

fn name(column: usize) -> &'static str {
    COLUMNS[column + 1].0
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|a| !a), b.map(|b| !b)).map(|c| !c)
}

fn holds(a: &Option<Value>, operator: &str, b: &Option<Value>) -> Option<bool> {
    let order = compare(a.as_ref()?, b.as_ref()?);
    Some(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

impl Predicate {
    fn sql(&self) -> String {
        match self {
            Self::Compare(c, op, value, text) => {
                format!("{} {op} {}", name(*c), literal(value, *text))
            }
            Self::Null(c, not) => format!("{} IS {}NULL", name(*c), if *not { "NOT " } else { "" }),
            Self::In(c, list, not) => {
                let list: Vec<String> = list.iter().map(|v| literal(v, false)).collect();
                format!(
                    "{} {}IN ({})",
                    name(*c),
                    if *not { "NOT " } else { "" },
                    list.join(", ")
                )
            }
            Self::Between(c, from, to) => {
                format!(
                    "{} BETWEEN {} AND {}",
                    name(*c),
                    literal(from, false),
                    literal(to, false)
                )
            }
            Self::And(a, b) => format!("({} AND {})", a.sql(), b.sql()),
            Self::Or(a, b) => format!("({} OR {})", a.sql(), b.sql()),
            Self::Not(a) => format!("NOT ({})", a.sql()),
        }
    }

    fn of(&self, row: &Row) -> Option<bool> {
        match self {
            Self::Compare(c, op, value, _) => holds(&row[*c], op, value),
            Self::Null(c, not) => Some(row[*c].is_none() != *not),
            Self::In(c, list, not) => {
                let found = list
                    .iter()
                    .map(|v| holds(&row[*c], "=", v))
                    .fold(Some(false), or);
                found.map(|f| f != *not)
            }
            Self::Between(c, from, to) => {
                and(holds(&row[*c], ">=", from), holds(&row[*c], "<=", to))
            }
            Self::And(a, b) => and(a.of(row), b.of(row)),
            Self::Or(a, b) => or(a.of(row), b.of(row)),
            Self::Not(a) => a.of(row).map(|a| !a),
        }
    }
}

/// One flow, its target as it is and its source.
#[derive(Debug, Clone)]
struct Case {
    predicate: Predicate,
    partitioned_by: Option<&'static str>,
    /// Files of rows.
    before: Vec<Vec<Row>>,
    source: Vec<Vec<Row>>,
    /// The query moves days by so much.
    shift: u8,
    /// The query leaves rows without n out.
    only_with_n: bool,
}

fn value(column: usize) -> BoxedStrategy<Value> {
    match column {
        0 => (0u8..12).prop_map(Value::Day).boxed(),
        1 => prop::sample::select(vec!["a", "b", "c d", "é/%"])
            .prop_map(Value::Text)
            .boxed(),
        2 => prop::sample::select(vec![0.0, -0.0, 1.5, -2.0, 1e300, f64::NAN, f64::INFINITY])
            .prop_map(Value::Double)
            .boxed(),
        _ => prop_oneof![
            (-3i32..4).boxed(),
            prop::sample::select(vec![i32::MIN, i32::MAX]).boxed()
        ]
        .prop_map(Value::Int)
        .boxed(),
    }
}

fn maybe(column: usize) -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(0.8, value(column))
}

fn files() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let row = (maybe(0), maybe(1), maybe(2), maybe(3)).prop_map(|(d, k, x, n)| [d, k, x, n]);
    prop::collection::vec(prop::collection::vec(row, 1..8), 0..5)
}

fn predicate() -> impl Strategy<Value = Predicate> {
    let operator = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
    let mostly = |column| prop::option::weighted(0.95, value(column));
    let leaf = (0usize..4).prop_flat_map(move |c| {
        prop_oneof![
            4 => (operator.clone(), mostly(c), any::<bool>())
                .prop_map(move |(op, v, text)| Predicate::Compare(c, op, v, text)),
            1 => any::<bool>().prop_map(move |not| Predicate::Null(c, not)),
            1 => (prop::collection::vec(mostly(c), 1..4), any::<bool>())
                .prop_map(move |(list, not)| Predicate::In(c, list, not)),
            1 => (mostly(c), mostly(c)).prop_map(move |(from, to)| Predicate::Between(c, from, to)),
        ]
    });
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Predicate::And(a.into(), b.into())),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Predicate::Or(a.into(), b.into())),
            inner.prop_map(|a| Predicate::Not(a.into())),
        ]
    })
}

fn case() -> impl Strategy<Value = Case> {
    let partitions = prop::sample::select(vec![None, None, Some("k"), Some("d")]);
    (
        predicate(),
        partitions,
        files(),
        files(),
        0u8..2,
        any::<bool>(),
    )
        .prop_map(
            |(predicate, partitioned_by, before, source, shift, only_with_n)| Case {
                predicate,
                partitioned_by,
                before,
                source,
                shift,
                only_with_n,
            },
        )
}

/// Rows with ids that are not used elsewhere in the case.
fn numbered(files: &[Vec<Row>], first: usize) -> Vec<Vec<(usize, Row)>> {
    let mut id = first;
    files
        .iter()
        .map(|rows| {
            rows.iter()
                .map(|row| {
                    id += 1;
                    (id, row.clone())
                })
                .collect()
        })
        .collect()
}

impl Case {
    fn sql(&self, index: usize) -> String {
        let partitions = self
            .partitioned_by
            .map(|p| format!(" PARTITIONED BY ({p})"))
            .unwrap_or_default();
        let filter = if self.only_with_n {
            " WHERE n IS NOT NULL"
        } else {
            ""
        };
        format!(
            "CREATE STREAMING TABLE t{index}{partitions} FLOW REPLACE WHERE {} BY NAME \
             SELECT id, date_add(d, {}) AS d, k, x, n FROM s{index}{filter};\n",
            self.predicate.sql(),
            self.shift
        )
    }

    fn after(&self) -> Vec<(usize, Row)> {
        let stay = numbered(&self.before, 0)
            .into_iter()
            .flatten()
            .filter(|(_, r)| self.predicate.of(r) != Some(true));
        let come = numbered(&self.source, 1000)
            .into_iter()
            .flatten()
            .filter(|(_, row)| !self.only_with_n || row[3].is_some())
            .map(|(id, mut row)| {
                if let Some(Value::Day(d)) = &mut row[0] {
                    *d += self.shift;
                }
                (id, row)
            })
            .filter(|(_, row)| self.predicate.of(row) == Some(true));
        stay.chain(come).collect()
    }
}

fn cells_of(rows: &[(usize, Row)]) -> Vec<Vec<String>> {
    rows.iter()
        .map(|(id, row)| {
            [id.to_string()]
                .into_iter()
                .chain(row.iter().map(cell))
                .collect()
        })
        .collect()
}

async fn obeys(cases: &[Case]) -> Outcome {
    let scratch = tempfile::tempdir().map_err(words)?;
    let lake = Lake::folder(&scratch.path().join("lake"))?;
    lake.store()?;
    let folder = scratch.path().join("pipeline");
    std::fs::create_dir_all(&folder).map_err(words)?;
    let sql: String = cases.iter().enumerate().map(|(i, c)| c.sql(i)).collect();
    let mut pipeline = Pipeline::new(&folder, lake).sql(&sql);
    let names: Vec<String> = COLUMNS.iter().map(|(n, _)| n.to_string()).collect();
    let columns: Vec<Column> = COLUMNS
        .iter()
        .map(|(n, t)| Column {
            name: n.to_string(),
            delta_type: t.to_string(),
            nullable: true,
        })
        .collect();
    for index in 0..cases.len() {
        pipeline = pipeline.source(&format!("s{index}"));
        let new = NewTable {
            columns: columns.clone(),
            ..NewTable::default()
        };
        pipeline.lake.create(&format!("src/s{index}"), &new).await?;
    }
    pipeline.call("run", &[]).await?.expect_exit(0)?;
    for (index, case) in cases.iter().enumerate() {
        let places = [
            (target(&format!("t{index}")), numbered(&case.before, 0)),
            (format!("src/s{index}"), numbered(&case.source, 1000)),
        ];
        for (place, files) in places {
            let schema = pipeline.lake.schema(&place).await?;
            for rows in files {
                pipeline
                    .lake
                    .append(&place, cells::batch(&names, &cells_of(&rows), &schema)?)
                    .await?;
            }
        }
    }
    pipeline.call("run", &[]).await?.expect_exit(0)?;
    for (index, case) in cases.iter().enumerate() {
        let table = pipeline.lake.open(&target(&format!("t{index}"))).await?;
        let (types, found) = pipeline.lake.rows(&table, &names).await?;
        let expected = cells_of(&case.after())
            .iter()
            .map(|row| cells::expected(row, &types))
            .collect::<Outcome<Vec<_>>>()?;
        if let Some(difference) = cells::difference(&found, &expected) {
            return Err(format!("t{index}: {}\n  {difference}", case.sql(index)));
        }
    }
    Ok(())
}

#[test]
fn after_is_before_outside_and_query_inside() {
    let cases = std::env::var("WINDROW_LAW_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(CASES);
    let config = Config {
        cases,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&prop::collection::vec(case(), FLOWS), |cases| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        runtime.block_on(obeys(&cases)).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, cases)) => panic!("{reason}\nin {cases:?}"),
        Err(other) => panic!("{other}"),
    }
}
