//! Commits that other engines make and the deltalake library can't: deletion vectors, change data in
//! which no row is missing, and columns of a mapped table that are renamed, dropped or added. Log entries are written by hand, by the
//! letter of the Delta protocol. Tables in folders only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use deltalake::parquet::arrow::ArrowWriter;
use deltalake::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::lake::{Lake, arrow_schema, batches, quoted, register};
use crate::{Outcome, cells, words};

/// A hand that writes into logs and remembers what it has deleted.
#[derive(Debug, Default)]
pub struct Hand {
    /// Rows gone, by table and file.
    gone: BTreeMap<(String, String), BTreeSet<u32>>,
}

/// All actions of a table's log, oldest first, and the newest version.
async fn actions(lake: &Lake, table: &str) -> Outcome<(Vec<Value>, u64)> {
    let newest = lake
        .versions(table)
        .await?
        .get(table)
        .copied()
        .ok_or("there is no log")?;
    let mut found = Vec::new();
    for version in 0..=newest {
        let entry = lake
            .read(&format!("{table}/_delta_log/{version:020}.json"))
            .await?;
        for line in String::from_utf8_lossy(&entry).lines() {
            found.push(serde_json::from_str(line).map_err(words)?);
        }
    }
    Ok((found, newest))
}

async fn commit(
    lake: &Lake,
    table: &str,
    version: u64,
    operation: &str,
    actions: Vec<Value>,
) -> Outcome {
    let info = json!({"commitInfo": {"timestamp": chrono::Utc::now().timestamp_millis(), "operation": operation}});
    let mut text = info.to_string();
    for action in actions {
        text.push('\n');
        text.push_str(&action.to_string());
    }
    text.push('\n');
    lake.write(
        &format!("{table}/_delta_log/{version:020}.json"),
        text.into_bytes(),
    )
    .await
}

/// A change of one column of a mapped table.
#[derive(Debug, Clone)]
pub enum Alteration {
    Rename(String, String),
    Drop(String),
    Add(String, String),
}

/// Changes a column of a table with column mapping by name; no data file is touched.
pub async fn alter(lake: &Lake, table: &str, alteration: &Alteration) -> Outcome {
    let (actions, newest) = actions(lake, table).await?;
    let mut metadata = actions
        .iter()
        .rev()
        .find_map(|a| a.get("metaData"))
        .cloned()
        .ok_or("the log has no metaData")?;
    let text = metadata["schemaString"]
        .as_str()
        .ok_or("the log has no schema")?;
    let mut schema: Value = serde_json::from_str(text).map_err(words)?;
    let fields = schema["fields"]
        .as_array_mut()
        .ok_or("the schema has no fields")?;
    let at = |fields: &[Value], name: &str| {
        fields
            .iter()
            .position(|f| f["name"] == name)
            .ok_or(format!("there is no column {name}"))
    };
    match alteration {
        Alteration::Rename(old, new) => {
            let index = at(fields, old)?;
            fields[index]["name"] = json!(new);
        }
        Alteration::Drop(name) => {
            let index = at(fields, name)?;
            fields.remove(index);
        }
        Alteration::Add(name, delta_type) => {
            let last = metadata["configuration"]["delta.columnMapping.maxColumnId"].as_str();
            let id = last
                .and_then(|id| id.parse::<u64>().ok())
                .ok_or("the table is not mapped")?
                + 1;
            fields.push(
                json!({"name": name, "type": delta_type, "nullable": true, "metadata": {
                "delta.columnMapping.id": id,
                "delta.columnMapping.physicalName": format!("col-{}", uuid_like(id))}}),
            );
            metadata["configuration"]["delta.columnMapping.maxColumnId"] = json!(id.to_string());
        }
    }
    metadata["schemaString"] = json!(schema.to_string());
    commit(
        lake,
        table,
        newest + 1,
        "ALTER TABLE",
        vec![json!({"metaData": metadata})],
    )
    .await
}

fn uuid_like(id: u64) -> String {
    format!("{id:08x}-0000-4000-8000-{id:012x}")
}

/// Updates rows of a table without partitions that has a change data feed, and writes all of their
/// images as the protocol has it: the library's own leave out rows that become equal to others.
pub async fn update_with_changes(
    lake: &Lake,
    table: &str,
    set: &[(String, String)],
    condition: Option<&str>,
) -> Outcome {
    let newest = actions(lake, table).await?.1;
    let delta = lake.open(table).await?;
    let schema = arrow_schema(&delta)?;
    let context = SessionContext::new();
    register(&context, "t", &delta).await?;
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("_change_type", DataType::Utf8, true)));
    let file_schema = Arc::new(Schema::new(fields));
    let mut writer = ArrowWriter::try_new(Vec::new(), file_schema.clone(), None).map_err(words)?;
    let mut rows = 0;
    for word in ["update_preimage", "update_postimage"] {
        let items: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| {
                let name = quoted(field.name());
                let new = set.iter().find(|(column, _)| column == field.name());
                match new {
                    Some((_, value)) if word == "update_postimage" => format!("{value} AS {name}"),
                    _ => name,
                }
            })
            .collect();
        let sql = format!(
            "SELECT {} FROM t WHERE {}",
            items.join(", "),
            condition.unwrap_or("true")
        );
        for batch in batches(&context, &sql).await? {
            let mut columns = batch
                .columns()
                .iter()
                .zip(schema.fields())
                .map(|(column, field)| cells::cast(column, field.data_type()))
                .collect::<Outcome<Vec<_>>>()?;
            columns.push(Arc::new(StringArray::from(vec![word; batch.num_rows()])));
            rows += batch.num_rows();
            let batch = RecordBatch::try_new(file_schema.clone(), columns).map_err(words)?;
            writer.write(&batch).map_err(words)?;
        }
    }
    let bytes = writer.into_inner().map_err(words)?;
    lake.update(table, set, condition).await?;
    let version = actions(lake, table).await?.1;
    if version == newest || rows == 0 {
        return Ok(());
    }
    let log = format!("{table}/_delta_log/{version:020}.json");
    let entry = lake.read(&log).await?;
    let mut kept = Vec::new();
    for line in String::from_utf8_lossy(&entry).lines() {
        let action: Value = serde_json::from_str(line).map_err(words)?;
        if action.get("add").is_some() || action.get("remove").is_some() {
            kept.push(action);
        }
    }
    let path = format!("_change_data/cdc-{version}.parquet");
    kept.push(json!({"cdc": {"path": path, "partitionValues": {}, "size": bytes.len(), "dataChange": false}}));
    lake.write(&format!("{table}/{path}"), bytes).await?;
    lake.remove(&log).await?;
    commit(lake, table, version, "UPDATE", kept).await
}

impl Hand {
    /// Deletes rows by deletion vectors: files stay, their rows are marked.
    pub async fn soft_delete(&mut self, lake: &Lake, table: &str, condition: &str) -> Outcome {
        let (actions, newest) = actions(lake, table).await?;
        let mut live: BTreeMap<String, Value> = BTreeMap::new();
        for action in &actions {
            if let Some(path) = action.pointer("/remove/path").and_then(Value::as_str) {
                live.remove(path);
            }
            if let Some(add) = action.get("add") {
                live.insert(
                    add["path"]
                        .as_str()
                        .ok_or("an add without path")?
                        .to_string(),
                    add.clone(),
                );
            }
        }
        let protocol = actions
            .iter()
            .rev()
            .find_map(|a| a.get("protocol"))
            .ok_or("the log has no protocol")?;
        if !protocol["readerFeatures"]
            .as_array()
            .is_some_and(|f| f.contains(&json!("deletionVectors")))
        {
            return Err(
                "the table takes no deletion vectors: set delta.enableDeletionVectors".into(),
            );
        }
        let mut changes = Vec::new();
        for (path, add) in live {
            let rows = matching(lake, table, &path, condition).await?;
            let known = self
                .gone
                .entry((table.to_string(), path.clone()))
                .or_default();
            // A restore may have brought rows back.
            if add.get("deletionVector").is_none_or(Value::is_null) {
                known.clear();
            }
            let before = known.len();
            known.extend(rows);
            if known.len() == before {
                continue;
            }
            let mut remove = json!({"path": path, "dataChange": true, "size": add["size"],
                "deletionTimestamp": chrono::Utc::now().timestamp_millis(), "extendedFileMetadata": true,
                "partitionValues": add["partitionValues"]});
            if let Some(vector) = add.get("deletionVector").filter(|v| !v.is_null()) {
                remove["deletionVector"] = vector.clone();
            }
            changes.push(json!({"remove": remove}));
            let mut marked = add.clone();
            marked["deletionVector"] = vector(known);
            marked["dataChange"] = json!(true);
            changes.push(json!({"add": marked}));
        }
        if changes.is_empty() {
            return Err(format!("no row is {condition}"));
        }
        commit(lake, table, newest + 1, "DELETE", changes).await
    }
}

/// Positions of the rows of a data file that satisfy a condition over its columns.
async fn matching(lake: &Lake, table: &str, path: &str, condition: &str) -> Outcome<Vec<u32>> {
    let file = format!("{}/{path}", lake.location(table));
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).map_err(words)?)
        .and_then(|builder| builder.build())
        .map_err(words)?;
    let schema = datafusion::arrow::array::RecordBatchReader::schema(&reader);
    let parts = reader.collect::<Result<Vec<_>, _>>().map_err(words)?;
    let rows = concat_batches(&schema, &parts).map_err(words)?;
    let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows.num_rows() as i64));
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("__position", DataType::Int64, false)));
    let mut columns = rows.columns().to_vec();
    columns.push(positions);
    let schema = Arc::new(Schema::new(fields));
    let numbered = RecordBatch::try_new(schema.clone(), columns).map_err(words)?;
    let context = SessionContext::new();
    let memory = MemTable::try_new(schema, vec![vec![numbered]]).map_err(words)?;
    context
        .register_table("f", Arc::new(memory))
        .map_err(words)?;
    let found = batches(
        &context,
        &format!("SELECT __position FROM f WHERE {condition}"),
    )
    .await?;
    Ok(found
        .iter()
        .flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec())
        .map(|position| position as u32)
        .collect())
}

/// A deletion vector stored in the log itself: a Roaring bitmap of one array container.
fn vector(rows: &BTreeSet<u32>) -> Value {
    let mut bytes = Vec::new();
    bytes.extend(1_681_511_377u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(12_346u32.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend((rows.len() as u16 - 1).to_le_bytes());
    bytes.extend(16u32.to_le_bytes());
    for row in rows {
        bytes.extend((*row as u16).to_le_bytes());
    }
    json!({"storageType": "i", "pathOrInlineDv": z85(&bytes), "sizeInBytes": bytes.len(),
        "cardinality": rows.len()})
}

fn z85(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 85] =
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().div_ceil(4) * 4, 0);
    let mut text = String::new();
    for four in padded.chunks(4) {
        let mut value = four
            .iter()
            .fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        let mut five = [0u8; 5];
        for digit in five.iter_mut().rev() {
            *digit = ALPHABET[(value % 85) as usize];
            value /= 85;
        }
        text.extend(five.iter().map(|d| char::from(*d)));
    }
    text
}
