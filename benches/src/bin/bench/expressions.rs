//! Common expressions over rows in memory: each as Windrow plans Spark's meaning of it, against the
//! nearest thing that plain DataFusion has. One process, one thread, the two in turn; what is measured is a
//! projection of the expression alone.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use datafusion::common::TableReference;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::parser::Parser;
use futures::StreamExt;
use windrow_executor::session::{Engine, EngineOptions, register_table};
use windrow_flows::dialect::{SparkDialect, rewrite_query};

use crate::measure::Sample;
use crate::report::{Measurement, Target};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH_ROWS: usize = 8192;
/// Batches that differ; a table repeats them, so that it needs little memory.
const BATCHES: usize = 64;
const TARGET_RATIO: f64 = 1.2;

/// What it is called, Spark's expression, and DataFusion's.
const EXPRESSIONS: [(&str, &str, &str); 34] = [
    ("bigint + bigint", "l + m", "l + m"),
    ("int + literal", "i + 1", "i + 1"),
    ("bigint - bigint", "l - m", "l - m"),
    ("bigint * literal", "l * 3", "l * 3"),
    ("bigint % literal", "l % 7", "l % 7"),
    ("double * double", "d * e", "d * e"),
    ("double / double", "d / e", "d / e"),
    ("decimal + decimal", "p + q", "p + q"),
    ("decimal * (1 - decimal)", "p * (1 - q)", "p * (1 - q)"),
    ("decimal / decimal", "p / q", "p / q"),
    ("bigint > bigint", "l > m", "l > m"),
    ("double > double", "d > e", "d > e"),
    ("double > literal", "d > 500.5D", "d > 500.5"),
    ("decimal > literal", "p > 100", "p > 100"),
    (
        "text = literal",
        "s = 'row 17 of all'",
        "s = 'row 17 of all'",
    ),
    ("bigint to int", "cast(l as int)", "cast(l as int)"),
    (
        "decimal to double",
        "cast(p as double)",
        "cast(p as double)",
    ),
    (
        "double to decimal",
        "cast(d as decimal(12, 2))",
        "cast(d as decimal(12, 2))",
    ),
    ("int to text", "cast(i as string)", "cast(i as varchar)"),
    ("text to int", "cast(w as int)", "cast(w as int)"),
    ("text to date", "cast(v as date)", "cast(v as date)"),
    ("year of a date", "year(a)", "date_part('year', a)"),
    (
        "date + days",
        "date_add(a, 7)",
        "arrow_cast(arrow_cast(a, 'Int32') + arrow_cast(7, 'Int32'), 'Date32')",
    ),
    (
        "days between",
        "datediff(a, b)",
        "arrow_cast(a, 'Int32') - arrow_cast(b, 'Int32')",
    ),
    (
        "month of a timestamp",
        "date_trunc('month', u)",
        "date_trunc('month', u)",
    ),
    ("hour of a timestamp", "hour(u)", "date_part('hour', u)"),
    ("upper", "upper(s)", "upper(s)"),
    ("substring", "substring(s, 2, 4)", "substr(s, 2, 4)"),
    ("concat", "concat(s, '-', w)", "concat(s, '-', w)"),
    ("trim", "trim(s)", "btrim(s)"),
    ("length", "length(s)", "character_length(s)"),
    ("round", "round(d, 2)", "round(d, 2)"),
    ("coalesce", "coalesce(n, 0)", "coalesce(n, 0)"),
    ("if", "if(n > 5, l, m)", "case when n > 5 then l else m end"),
];

/// The measurements over so many rows.
///
/// # Errors
/// If an expression is not planned or fails, or the two sides gave different numbers of rows.
pub async fn run(rows: usize, repeat: usize) -> Outcome<Vec<Measurement>> {
    let table = Arc::new(table(rows)?);
    let windrow = Windrow::new(&table)?;
    let baseline = Baseline::new(&table)?;
    let mut measurements = Vec::with_capacity(EXPRESSIONS.len());
    for (name, spark, native) in EXPRESSIONS {
        let ours = windrow.plan(&format!("select {spark} as v from t")).await?;
        let theirs = baseline
            .plan(&format!("select {native} as v from t"))
            .await?;
        let mut samples = (vec![], vec![]);
        for round in 0..=repeat {
            let (one, other) = match round % 2 {
                0 => {
                    let one = timed(&ours, windrow.context()).await?;
                    (one, timed(&theirs, baseline.context()).await?)
                }
                _ => {
                    let other = timed(&theirs, baseline.context()).await?;
                    (timed(&ours, windrow.context()).await?, other)
                }
            };
            if one.1 != other.1 {
                return Err(format!("{name}: {} rows here, {} there", one.1, other.1).into());
            }
            // The first round warms up.
            if round > 0 {
                samples.0.push(sample(one));
                samples.1.push(sample(other));
            }
        }
        measurements.push(Measurement {
            name: name.to_string(),
            against: native,
            windrow: samples.0,
            baseline: samples.1,
            target: Target {
                ratio: Some(TARGET_RATIO),
                ..Target::default()
            },
            more: vec![],
        });
    }
    Ok(measurements)
}

fn sample((wall, rows): (Duration, u64)) -> Sample {
    Sample {
        wall,
        peak_bytes: 0,
        stdout: String::new(),
        rows: Some(rows),
        bytes_read: None,
        files_removed: None,
    }
}

async fn timed(
    plan: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Outcome<(Duration, u64)> {
    let started = Instant::now();
    let mut stream = execute_stream(Arc::clone(plan), context)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows() as u64;
    }
    Ok((started.elapsed(), rows))
}

struct Windrow {
    state: datafusion::execution::session_state::SessionState,
}

impl Windrow {
    fn new(table: &Arc<MemTable>) -> Outcome<Self> {
        let options = EngineOptions {
            partitions: Some(1),
            ..EngineOptions::default()
        };
        let state = Engine::new(&options)?.session(DateTime::<Utc>::UNIX_EPOCH, "UTC", false)?;
        register_table(&state, &TableReference::bare("t"), table.clone())?;
        Ok(Self { state })
    }

    async fn plan(&self, sql: &str) -> Outcome<Arc<dyn ExecutionPlan>> {
        let mut statements = Parser::parse_sql(&SparkDialect, sql)?;
        let Some(Statement::Query(mut query)) = statements.pop() else {
            return Err(format!("`{sql}` is no query").into());
        };
        if let Some(fault) = rewrite_query(&mut query).first() {
            return Err(format!("`{sql}`: {}", fault.message).into());
        }
        let statement = PlannerStatement::Statement(Box::new(Statement::Query(query)));
        let plan = self.state.statement_to_plan(statement).await?;
        Ok(self.state.create_physical_plan(&plan).await?)
    }

    fn context(&self) -> Arc<TaskContext> {
        self.state.task_ctx()
    }
}

struct Baseline {
    session: SessionContext,
}

impl Baseline {
    fn new(table: &Arc<MemTable>) -> Outcome<Self> {
        let config = SessionConfig::new().with_target_partitions(1);
        let session = SessionContext::new_with_config(config);
        session.register_table("t", table.clone())?;
        Ok(Self { session })
    }

    async fn plan(&self, sql: &str) -> Outcome<Arc<dyn ExecutionPlan>> {
        let frame = self.session.sql(sql).await?;
        Ok(frame.create_physical_plan().await?)
    }

    fn context(&self) -> Arc<TaskContext> {
        self.session.task_ctx()
    }
}

/// The rows, all different within a batch and with a null here and there in one column.
fn table(rows: usize) -> Outcome<MemTable> {
    let distinct: Vec<RecordBatch> = (0..BATCHES.min(rows.div_ceil(BATCH_ROWS)))
        .map(batch)
        .collect::<Outcome<_>>()?;
    let Some(first) = distinct.first() else {
        return Err("there must be a row at least".into());
    };
    let schema = first.schema();
    let mut left = rows;
    let mut batches = Vec::with_capacity(rows.div_ceil(BATCH_ROWS));
    for batch in distinct.iter().cycle() {
        if left == 0 {
            break;
        }
        let taken = left.min(BATCH_ROWS);
        batches.push(batch.slice(0, taken));
        left -= taken;
    }
    Ok(MemTable::try_new(schema, vec![batches])?)
}

fn batch(number: usize) -> Outcome<RecordBatch> {
    const DAY_MICROS: i64 = 86_400_000_000;
    let first = (number * BATCH_ROWS) as i64;
    let rows = || first..first + BATCH_ROWS as i64;
    // Spread, but the same in each run.
    let spread = |row: i64, below: i64| (row.wrapping_mul(2_654_435_761) >> 7).rem_euclid(below);
    let day = |row: i64| 19_000 + spread(row, 1_500) as i32;
    let text = |write: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(rows().map(|row| Some(write(row))).collect::<StringArray>())
    };
    let decimal = |least: i64, below: i64| -> Outcome<ArrayRef> {
        let values = rows().map(|row| i128::from(least + spread(row, below)));
        let array = Decimal128Array::from_iter_values(values);
        Ok(Arc::new(array.with_precision_and_scale(12, 2)?))
    };
    let doubles = |below: i64| -> ArrayRef {
        let values = rows().map(|row| (spread(row, below) + 1) as f64 / 128.0);
        Arc::new(Float64Array::from_iter_values(values))
    };
    let ints = |below: i64| rows().map(move |row| spread(row, below) as i32);
    let longs = |by: i64| rows().map(move |row| spread(row * by, 1 << 30));
    let nullable = ints(10).map(|value| (value != 7).then_some(value));
    let instants = rows().map(|row| i64::from(day(row)) * DAY_MICROS + spread(row, DAY_MICROS));
    let of_dates = |by: i64| -> ArrayRef {
        Arc::new(Date32Array::from_iter_values(
            rows().map(|row| day(row * by)),
        ))
    };
    let calendar = |row: i64| {
        let (year, month, day) = (10 + row % 15, 1 + row % 12, 1 + row % 28);
        format!("20{year:02}-{month:02}-{day:02}")
    };
    let instants = TimestampMicrosecondArray::from_iter_values(instants).with_timezone("UTC");
    let columns = [
        (
            "i",
            Arc::new(Int32Array::from_iter_values(ints(1 << 20))) as ArrayRef,
        ),
        (
            "l",
            Arc::new(Int64Array::from_iter_values(longs(1))) as ArrayRef,
        ),
        (
            "m",
            Arc::new(Int64Array::from_iter_values(longs(3))) as ArrayRef,
        ),
        ("n", Arc::new(nullable.collect::<Int32Array>()) as ArrayRef),
        ("d", doubles(128_000)),
        ("e", doubles(90_001)),
        ("p", decimal(100, 100_000)?),
        ("q", decimal(1, 100)?),
        (
            "s",
            text(&|row| format!("row {} of all", spread(row, 1 << 16))),
        ),
        ("w", text(&|row| spread(row, 1 << 24).to_string())),
        ("v", text(&calendar)),
        ("a", of_dates(1)),
        ("b", of_dates(7)),
        ("u", Arc::new(instants) as ArrayRef),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
