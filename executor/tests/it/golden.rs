//! Compares Windrow with real Spark, expression by expression: `golden.tsv` holds what Spark gave.
//!
//! A line of kind `value` must give the same type and value, one of kind `error` must fail, and one
//! of kind `refused` (Spark has an answer) must be refused rather than answered otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::sql::parser::Statement as DataFusionStatement;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use serde_json::{Value, json};
use sqlparser::ast::Statement;
use sqlparser::dialect::Dialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};
use windrow_executor::codec::WindrowCodec;
use windrow_executor::session::{Engine, EngineOptions};
use windrow_flows::dialect::{SparkDialect, rewrite_query};

pub(crate) fn session(zone: &str) -> SessionState {
    let options = EngineOptions {
        partitions: Some(1),
        ..EngineOptions::default()
    };
    let now = "2026-03-10T02:30:00Z".parse().unwrap();
    Engine::new(&options)
        .unwrap()
        .session(now, zone, false)
        .unwrap()
}

/// Parses as the planner does: all identifiers in lower case.
pub(crate) fn parse(sql: &str) -> Result<Statement, String> {
    let dialect: &dyn Dialect = &SparkDialect;
    let tokens = Tokenizer::new(dialect, sql)
        .tokenize_with_location()
        .map_err(|e| e.to_string())?;
    let tokens = tokens
        .into_iter()
        .map(|mut token| {
            if let Token::Word(word) = &mut token.token {
                word.value = word.value.to_lowercase();
            }
            token
        })
        .collect();
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens);
    let mut statement = parser
        .parse_statement()
        .map_err(|error| error.to_string())?;
    if parser.peek_token().token != Token::EOF {
        return Err(format!("{} is left over", parser.peek_token()));
    }
    let Statement::Query(query) = &mut statement else {
        return Err("no query".into());
    };
    let faults = rewrite_query(query);
    match faults.first() {
        Some(fault) => Err(format!("{}: {}", fault.code, fault.message)),
        None => Ok(statement),
    }
}

pub(crate) async fn run(state: &SessionState, sql: &str) -> Result<Vec<RecordBatch>, String> {
    let statement = DataFusionStatement::Statement(Box::new(parse(sql)?));
    let plan = state
        .statement_to_plan(statement)
        .await
        .map_err(|error| error.to_string())?;
    let physical = state
        .create_physical_plan(&plan)
        .await
        .map_err(|error| error.to_string())?;
    let context = state.task_ctx();
    let wired = over_the_wire(&physical, &context)?;
    let batches = collect(physical, context.clone())
        .await
        .map_err(|error| error.to_string())?;
    let again = collect(wired, context)
        .await
        .map_err(|error| format!("over the wire: {error}"))?;
    if !volatile(sql) && outcome(&batches) != outcome(&again) {
        return Err(format!("over the wire: {:?}", outcome(&again)));
    }
    // The types say more than the rows, so there must be one batch at least.
    if batches.is_empty() {
        let schema = plan.schema().inner().clone();
        return Ok(vec![RecordBatch::new_empty(schema)]);
    }
    Ok(batches)
}

/// What another process would run.
fn over_the_wire(
    plan: &Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>, String> {
    PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), &WindrowCodec::default())
        .and_then(|node| node.try_into_physical_plan(context, &WindrowCodec::default()))
        .map_err(|error| format!("over the wire: {error}"))
}

fn volatile(sql: &str) -> bool {
    ["rand", "uuid"].iter().any(|name| sql.contains(name))
}

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "int".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Float32 => "float".into(),
        DataType::Float64 => "double".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Utf8 => "string".into(),
        DataType::Binary => "binary".into(),
        DataType::Date32 => "date".into(),
        DataType::Null => "void".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            "timestamp".into()
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz".into(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::List(field) => format!("array<{}>", type_name(field.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{}:{}", field.name(), type_name(field.data_type())))
                .collect();
            format!("struct<{}>", fields.join(","))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => format!(
                "map<{},{}>",
                type_name(fields[0].data_type()),
                type_name(fields[1].data_type())
            ),
            other => format!("?{other}"),
        },
        DataType::Duration(_) => "interval day to second".into(),
        other => format!("?{other}"),
    }
}

fn float(value: f64) -> Value {
    match value {
        nan if nan.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        other => json!(format!("bits:{:016x}", other.to_bits())),
    }
}

fn plain(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            json!(
                cast(array, &DataType::Int64)
                    .unwrap()
                    .as_primitive::<Int64Type>()
                    .value(row)
            )
        }
        DataType::Float32 | DataType::Float64 => float(
            cast(array, &DataType::Float64)
                .unwrap()
                .as_primitive::<Float64Type>()
                .value(row),
        ),
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => {
            let bytes = array.as_binary::<i32>().value(row);
            json!(
                bytes
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
            )
        }
        DataType::Decimal128(..) => {
            json!(array.as_primitive::<Decimal128Type>().value_as_string(row))
        }
        DataType::Timestamp(..) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let instant = chrono::DateTime::from_timestamp_micros(micros).unwrap();
            json!(instant.format("%Y-%m-%d %H:%M:%S.%6f").to_string())
        }
        DataType::Date32 => {
            let text = cast(array, &DataType::Utf8).unwrap();
            json!(text.as_string::<i32>().value(row))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|row| plain(&items, row)).collect())
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let pairs = (0..entries.len()).map(|at| json!([plain(keys, at), plain(values, at)]));
            Value::Array(pairs.collect())
        }
        DataType::Duration(_) => {
            let micros = cast(array, &DataType::Duration(TimeUnit::Microsecond)).unwrap();
            let micros = micros.as_primitive::<DurationMicrosecondType>().value(row);
            json!(format!("interval {micros}"))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let pairs = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| (field.name().clone(), plain(column, row)));
            Value::Object(pairs.collect())
        }
        other => json!(format!("?{other}")),
    }
}

/// The names of the columns' types, as Spark has them.
pub(crate) fn column_types(batches: &[RecordBatch]) -> String {
    let types: Vec<String> = batches.first().map_or(vec![], |batch| {
        let schema = batch.schema();
        let fields = schema.fields().iter();
        fields.map(|field| type_name(field.data_type())).collect()
    });
    types.join(", ")
}

/// Each row as a list of values.
pub(crate) fn row_values(batch: &RecordBatch) -> impl Iterator<Item = Value> {
    (0..batch.num_rows()).map(move |row| {
        let columns = batch.columns().iter();
        Value::Array(columns.map(|column| plain(column, row)).collect())
    })
}

pub(crate) fn outcome(batches: &[RecordBatch]) -> (String, String) {
    let mut rows: Vec<String> = batches
        .iter()
        .flat_map(row_values)
        .map(|row| row.to_string())
        .collect();
    rows.sort();
    (column_types(batches), format!("[{}]", rows.join(",")))
}

/// What differs from Spark in one line of the file.
/// The rows of an answer in the order of `outcome`.
pub(crate) fn sorted_rows(rows: &str) -> String {
    let mut rows: Vec<String> = serde_json::from_str::<Vec<Value>>(rows)
        .unwrap_or_default()
        .iter()
        .map(Value::to_string)
        .collect();
    rows.sort();
    format!("[{}]", rows.join(","))
}

/// A type as far as it is held here: intervals do not know their fields.
fn spark_type(name: &str) -> String {
    const DAY_TIME: [&str; 4] = [
        "interval day to",
        "interval day",
        "interval hour",
        "interval minute",
    ];
    match DAY_TIME.iter().any(|begin| name.starts_with(begin)) || name == "interval second" {
        true => "interval day to second".into(),
        false => name.into(),
    }
}

/// Whether a line calls a function whose last digit no standard fixes.
fn inexact(sql: &str) -> bool {
    const NAMES: [&str; 21] = [
        "sin(", "cos(", "tan(", "asin(", "acos(", "atan(", "sinh(", "cosh(", "tanh(", "asinh(",
        "acosh(", "atanh(", "cot(", "csc(", "sec(", "exp(", "expm1(", "cbrt(", "log", "ln(",
        "power(",
    ];
    NAMES.iter().any(|name| sql.starts_with(name))
}

/// The same but for the last digits of floats.
fn nearly(found: &str, wanted: &str) -> bool {
    let (found, wanted): (Vec<&str>, Vec<&str>) =
        (found.split('"').collect(), wanted.split('"').collect());
    found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(one, other)| {
            one == other
                || matches!(
                    (float_bits(one), float_bits(other)),
                    (Some(one), Some(other)) if one.abs_diff(other) <= 4
                )
        })
}

fn float_bits(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("bits:")?, 16).ok()
}

async fn difference(state: &SessionState, line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [_, kind, sql, types, expected] = fields.as_slice() else {
        return Some(format!("a line of {} fields: {line}", fields.len()));
    };
    let is_query = ["SELECT ", "WITH ", "FROM "]
        .iter()
        .any(|begin| sql.starts_with(begin));
    let query = if is_query {
        sql.to_string()
    } else {
        format!("SELECT {sql} AS v")
    };
    let found = run(state, &query).await;
    match (*kind, found) {
        ("value", Ok(batches)) => {
            let (found_types, found_rows) = outcome(&batches);
            let rows = sorted_rows(expected);
            let same = found_types == spark_type(types)
                && (found_rows == rows || (inexact(sql) && nearly(&found_rows, &rows)));
            (!same).then(|| {
                format!("{sql}\n   Spark: {types} {rows}\n   found: {found_types} {found_rows}")
            })
        }
        ("value", Err(error)) => Some(format!(
            "{sql}\n   Spark: {types} {expected}\n   found: {error}"
        )),
        (_, Ok(batches)) => Some(format!(
            "{sql}\n   wanted: {kind} ({expected})\n   found: {:?}",
            outcome(&batches)
        )),
        (_, Err(_)) => None,
    }
}

/// What differs from Spark in a file.
async fn differences(path: &str) -> Vec<String> {
    let mut found = vec![];
    let mut sessions = HashMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let zone = line.split('\t').next().unwrap_or_default();
        let state = sessions
            .entry(zone.to_string())
            .or_insert_with(|| session(zone));
        found.extend(difference(state, line).await);
    }
    found
}

async fn compare(path: &str) {
    let found = differences(path).await;
    let count = found.len();
    assert!(
        count == 0,
        "{count} differ from Spark:\n{}",
        found.join("\n")
    );
}

#[tokio::test]
async fn every_line_gives_what_spark_gives() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/golden.tsv");
    compare(&std::env::var("WINDROW_GOLDEN").unwrap_or_else(|_| own.into())).await;
}

/// Made by fuzz.py: trees of operators and functions over columns.
#[tokio::test]
async fn random_expressions_give_what_spark_gives() {
    compare(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/fuzz.tsv"
    ))
    .await;
}
