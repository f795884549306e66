//! The queries of TPC-DS give Spark's results on generated data. Tables and queries are made by
//! tpcds/make.py, `answers.tsv` there (hashes of the rows) by answers.py over the same tables.
//!
//! `WINDROW_TPCDS_ROWS` names a folder where the rows of each query are written, to be compared
//! with those that answers.py writes when asked for; `WINDROW_TPCDS_ONLY` lists queries by number.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::TableReference;
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionState;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use futures::{StreamExt, stream};
use serde_json::Value;
use windrow_executor::session::register_table;

use crate::golden::{column_types, row_values, run, session};

/// A line of `answers.tsv`.
struct Answer {
    query: String,
    kind: String,
    types: String,
    rows: usize,
    digest: String,
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tpcds")
}

fn answers() -> Vec<Answer> {
    let only = std::env::var("WINDROW_TPCDS_ONLY").ok();
    let only: Option<Vec<&str>> = only.as_deref().map(|list| list.split(',').collect());
    std::fs::read_to_string(here().join("answers.tsv"))
        .unwrap()
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [query, kind, types, rows, digest] = fields.as_slice() else {
                panic!("a line of {} fields: {line}", fields.len());
            };
            Answer {
                query: query.to_string(),
                kind: kind.to_string(),
                types: types.to_string(),
                rows: rows.parse().unwrap(),
                digest: digest.to_string(),
            }
        })
        .filter(|answer| {
            only.as_ref()
                .is_none_or(|only| only.contains(&answer.query.as_str()))
        })
        .collect()
}

/// The last line that a command prints.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().last().unwrap_or_default().to_string()
}

fn folder() -> PathBuf {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/setup-python");
    let python = printed(Command::new(setup).arg("tpcds"));
    PathBuf::from(printed(Command::new(python).arg(here().join("make.py"))))
}

fn read(path: &Path) -> MemTable {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap())
        .unwrap()
        .with_batch_size(8192)
        .build()
        .unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    MemTable::try_new(batches[0].schema(), vec![batches]).unwrap()
}

fn state_with_tables(folder: &Path) -> SessionState {
    let state = session("UTC");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "parquet") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            register_table(&state, &TableReference::bare(name), Arc::new(read(&path))).unwrap();
        }
    }
    state
}

/// The value with floats as answers.py writes them.
fn rounded(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(rounded).collect()),
        Value::String(text) => match text.strip_prefix("bits:") {
            Some(bits) => {
                let bits = u64::from_str_radix(bits, 16).unwrap();
                Value::String(format!("{:.9e}", f64::from_bits(bits) + 0.0))
            }
            None => Value::String(text),
        },
        other => other,
    }
}

fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows: Vec<String> = batches
        .iter()
        .flat_map(row_values)
        .map(|row| rounded(row).to_string())
        .collect();
    rows.sort();
    rows
}

/// FNV-1a of 128 bits.
fn digest(text: &str) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = text.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    format!("{hash:032x}")
}

async fn difference(state: &SessionState, folder: &Path, answer: &Answer) -> Option<String> {
    let name = format!("q{}", answer.query);
    let path = folder.join("queries").join(format!("{}.sql", answer.query));
    let text = std::fs::read_to_string(path).unwrap();
    let begun = std::time::Instant::now();
    let found = run(state, &text).await;
    eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    let batches = match found {
        Err(_) if answer.kind == "error" => return None,
        Err(error) => return Some(format!("{name}: {error}")),
        Ok(batches) => batches,
    };
    let (types, rows) = (column_types(&batches), rows(&batches));
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    if let Some(folder) = std::env::var_os("WINDROW_TPCDS_ROWS") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            Path::new(&folder).join(format!("{}.txt", answer.query)),
            &text,
        )
        .unwrap();
    }
    let same = answer.kind == "value"
        && types == answer.types
        && rows.len() == answer.rows
        && digest(&text) == answer.digest;
    (!same).then(|| {
        format!(
            "{name}\n   Spark: {} {} rows, {}\n   found: {} rows, {types}",
            answer.kind,
            answer.rows,
            answer.types,
            rows.len()
        )
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tpcds_queries_give_what_spark_gives() {
    let folder = folder();
    let state = state_with_tables(&folder);
    let answers = answers();
    let found: Vec<Option<String>> = stream::iter(&answers)
        .map(|answer| difference(&state, &folder, answer))
        .buffer_unordered(2)
        .collect()
        .await;
    let found: Vec<String> = found.into_iter().flatten().collect();
    assert!(
        found.is_empty(),
        "{} of {} differ:\n{}",
        found.len(),
        answers.len(),
        found.join("\n")
    );
}
