//! Delta tables whose logs are written by hand: a source of many small files, and a target of as
//! many files as one likes, of which only the log is there.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use chrono::{Days, NaiveDate};
use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use url::Url;

/// Rows in each file of [`write_source`].
pub const SOURCE_ROWS: u64 = 100;

/// Files that one commit adds.
const FILES_PER_COMMIT: usize = 10_000;

/// Days over which the files of a target lie.
const TARGET_DAYS: u64 = 2_550;

fn fields() -> Value {
    json!([
        {"name": "day", "type": "date", "nullable": true, "metadata": {}},
        {"name": "id", "type": "long", "nullable": true, "metadata": {}},
        {"name": "amount", "type": "decimal(12,2)", "nullable": true, "metadata": {}},
        {"name": "note", "type": "string", "nullable": true, "metadata": {}},
    ])
}

/// Writes a table's first version, without rows.
fn create(folder: &Path, properties: &Value) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder.join("_delta_log"))?;
    let schema = json!({"type": "struct", "fields": fields()}).to_string();
    let actions = [
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": uuid_of(folder), "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": [], "configuration": properties,
            "createdTime": 1_700_000_000_000_i64}}),
    ];
    append(folder, 0, &actions)
}

/// A table id that is the same for the same folder.
fn uuid_of(folder: &Path) -> String {
    let hash = folder
        .to_string_lossy()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!(
        "{:08x}-0000-4000-8000-{:012x}",
        hash >> 32,
        hash & 0xffff_ffff
    )
}

fn append(folder: &Path, version: usize, actions: &[Value]) -> Result<(), Box<dyn Error>> {
    let mut body = json!({"commitInfo": {"timestamp": 1_700_000_000_000_i64, "operation": "WRITE",
        "operationParameters": {"mode": "Append"}}})
    .to_string();
    for action in actions {
        write!(body, "\n{action}")?;
    }
    let name = format!("_delta_log/{version:020}.json");
    Ok(fs::write(folder.join(name), body)?)
}

fn add(path: &str, size: u64, rows: u64, day: NaiveDate, first_id: u64) -> Value {
    let day = day.to_string();
    let last_id = first_id + rows.saturating_sub(1);
    let stats = json!({"numRecords": rows,
        "minValues": {"day": day, "id": first_id, "amount": 0.25, "note": "note 00"},
        "maxValues": {"day": day, "id": last_id, "amount": 99.75, "note": "note 99"},
        "nullCount": {"day": 0, "id": 0, "amount": 0, "note": 0}});
    json!({"add": {"path": path, "partitionValues": {}, "size": size,
        "modificationTime": 1_700_000_000_000_i64, "dataChange": true, "stats": stats.to_string()}})
}

/// Writes a source of one file a day, the last one on `end`, and a checkpoint.
///
/// # Errors
/// If a file can't be written.
pub async fn write_source(folder: &Path, end: NaiveDate, days: u64) -> Result<(), Box<dyn Error>> {
    write_source_of(folder, end, days, SOURCE_ROWS).await
}

/// As [`write_source`], with so many rows in each file.
///
/// # Errors
/// If a file can't be written.
pub async fn write_source_of(
    folder: &Path,
    end: NaiveDate,
    days: u64,
    rows: u64,
) -> Result<(), Box<dyn Error>> {
    create(folder, &json!({}))?;
    let mut adds = Vec::new();
    for number in 0..days {
        let day = end - Days::new(days - 1 - number);
        adds.push(write_day(folder, day, number, rows)?);
    }
    append(folder, 1, &adds)?;
    checkpoint(folder, 1).await
}

/// Appends a file of so many rows to each of the last days, all in one commit.
///
/// # Errors
/// If a file can't be written.
pub fn append_days(
    folder: &Path,
    version: usize,
    end: NaiveDate,
    days: u64,
    rows: u64,
) -> Result<(), Box<dyn Error>> {
    let mut adds = Vec::new();
    for back in 0..days {
        adds.push(write_day(
            folder,
            end - Days::new(back),
            2_000_000 + back,
            rows,
        )?);
    }
    append(folder, version, &adds)
}

/// Adds another file of the last day to a source of [`write_source`], as version 2.
///
/// # Errors
/// If a file can't be written.
pub fn change_source(folder: &Path, end: NaiveDate) -> Result<(), Box<dyn Error>> {
    let add = write_day(folder, end, 1_000_000, SOURCE_ROWS)?;
    append(folder, 2, &[add])
}

fn write_day(
    folder: &Path,
    day: NaiveDate,
    number: u64,
    rows_in_file: u64,
) -> Result<Value, Box<dyn Error>> {
    let first_id = number * rows_in_file;
    let ids: Vec<i64> = (first_id..first_id + rows_in_file)
        .map(|id| id as i64)
        .collect();
    let rows = ids.len();
    let columns: [(&str, ArrayRef); 4] = [
        (
            "day",
            Arc::new(Date32Array::from(vec![day.to_epoch_days(); rows])),
        ),
        ("id", Arc::new(Int64Array::from(ids))),
        (
            "amount",
            Arc::new(
                (0..rows as i128)
                    .map(|row| Some(25 + (row * 37) % 9_951))
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(12, 2)?,
            ),
        ),
        (
            "note",
            Arc::new(StringArray::from_iter_values(
                (0..rows).map(|row| format!("note {:02}", row % 100)),
            )),
        ),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true)))?;
    let name = format!("part-{number:07}.parquet");
    let mut writer =
        ArrowWriter::try_new(fs::File::create(folder.join(&name))?, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    let size = fs::metadata(folder.join(&name))?.len();
    Ok(add(&name, size, rows_in_file, day, first_id))
}

/// Writes a target's log of `files` files that are not there, days before `before`, and a checkpoint.
///
/// # Errors
/// If a file can't be written.
pub async fn write_target(
    folder: &Path,
    pipeline: &str,
    before: NaiveDate,
    files: usize,
) -> Result<(), Box<dyn Error>> {
    write_log(
        folder,
        &json!({"windrow.pipeline": pipeline}),
        before,
        files,
    )
    .await
}

/// Writes the log of a table of `files` files that are not there, days before `before`, and a
/// checkpoint.
///
/// # Errors
/// If a file can't be written.
pub async fn write_log(
    folder: &Path,
    properties: &Value,
    before: NaiveDate,
    files: usize,
) -> Result<(), Box<dyn Error>> {
    create(folder, properties)?;
    let numbers: Vec<u64> = (0..files as u64).collect();
    let mut version = 0;
    for chunk in numbers.chunks(FILES_PER_COMMIT) {
        version += 1;
        let adds: Vec<Value> = chunk
            .iter()
            .map(|number| {
                let day = before - Days::new(1 + (files as u64 - number) % TARGET_DAYS);
                let path = format!("part-{number:07}-c000.zstd.parquet");
                add(
                    &path,
                    24_000_000 + number % 1_000_000,
                    400_000,
                    day,
                    number * 400_000,
                )
            })
            .collect();
        append(folder, version, &adds)?;
    }
    checkpoint(folder, version).await
}

async fn checkpoint(folder: &Path, version: usize) -> Result<(), Box<dyn Error>> {
    let url = Url::from_directory_path(folder)
        .map_err(|()| format!("`{}` is no absolute path", folder.display()))?;
    let table = deltalake::open_table_with_version(url, version as u64).await?;
    Ok(deltalake::checkpoints::create_checkpoint(&table, None).await?)
}

/// The files of a hand-written or freshly made log whose `column` reaches `from`, with the table's schema.
///
/// # Errors
/// If the log can't be read, or holds a checkpoint.
pub fn files_reaching(
    folder: &Path,
    column: &str,
    from: NaiveDate,
) -> Result<(Vec<String>, Value), Box<dyn Error>> {
    let mut files = Vec::new();
    let mut schema = Value::Null;
    let mut partitions = Value::Null;
    for entry in fs::read_dir(folder.join("_delta_log"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            let action: Value = serde_json::from_str(line)?;
            if let Some(text) = action["metaData"]["schemaString"].as_str() {
                schema = serde_json::from_str(text)?;
                partitions = action["metaData"]["partitionColumns"].clone();
            }
            let Some(file) = action["add"]["path"].as_str() else {
                continue;
            };
            let stats: Value =
                serde_json::from_str(action["add"]["stats"].as_str().unwrap_or("null"))?;
            let last: Option<NaiveDate> = stats["maxValues"][column]
                .as_str()
                .and_then(|day| day.parse().ok());
            if last.is_none_or(|last| last >= from) {
                files.push(folder.join(file).to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    if let Some(fields) = schema["fields"].as_array_mut() {
        let is_partition = |name: &Value| partitions.as_array().is_some_and(|p| p.contains(name));
        fields.retain(|field| !is_partition(&field["name"]));
    }
    Ok((files, schema))
}
