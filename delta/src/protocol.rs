//! Which tables this version may read and write, and the protocol of the tables it makes.
//!
//! Rules: Delta protocol, "Table Features" and "Valid Feature Names in Table Features". A feature
//! that is not named here is refused, never ignored.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::error::TableError;
use crate::schema::{GENERATION_EXPRESSION, TableSchema};
use crate::table::Table;

const READ: &[&str] = &[
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    // Often named without a column that needs it; such a column's type is unknown here.
    "variantType",
    "variantType-preview",
];

/// Deletion vectors are accepted, never made; change data is derived by readers from whole files.
const WRITE: &[&str] = &[
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
];

fn features(protocol: &Value, key: &str) -> Vec<String> {
    protocol
        .get(key)
        .and_then(Value::as_array)
        .map(|list| {
            list.iter()
                .filter_map(Value::as_str)
                .map(str::to_string)
                .collect()
        })
        .unwrap_or_default()
}

fn unknown(protocol: &Value, key: &str, known: &[&str]) -> Option<String> {
    let unknown: Vec<String> = features(protocol, key)
        .into_iter()
        .filter(|f| !known.contains(&f.as_str()))
        .collect();
    (!unknown.is_empty()).then(|| unknown.join(", "))
}

fn number(protocol: &Value, key: &str) -> i64 {
    protocol.get(key).and_then(Value::as_i64).unwrap_or(0)
}

/// Refuses a table that must be read in a way that this version does not know.
pub(crate) fn check_readable(table: &Table) -> Result<(), TableError> {
    let protocol = table.protocol_json()?;
    let refuse = |features: String| {
        Err(TableError::ReaderFeature {
            url: table.location().shown(),
            features,
        })
    };
    if number(&protocol, "minReaderVersion") > 3 {
        return refuse(format!(
            "minReaderVersion {}",
            number(&protocol, "minReaderVersion")
        ));
    }
    match unknown(&protocol, "readerFeatures", READ) {
        Some(features) => refuse(features),
        None => Ok(()),
    }
}

/// Refuses a target whose rules this version does not keep.
pub fn check_writable(table: &Table) -> Result<(), TableError> {
    let protocol = table.protocol_json()?;
    let refuse = |features: String| {
        Err(TableError::WriterFeature {
            url: table.location().shown(),
            features,
        })
    };
    if number(&protocol, "minWriterVersion") > 7 {
        return refuse(format!(
            "minWriterVersion {}",
            number(&protocol, "minWriterVersion")
        ));
    }
    if let Some(features) = unknown(&protocol, "writerFeatures", WRITE) {
        return refuse(features);
    }
    let mode = table
        .properties()
        .get("delta.columnMapping.mode")
        .map(String::as_str);
    if mode.is_some_and(|m| m != "none") {
        return refuse("columnMapping".into());
    }
    for column in &table.schema().columns {
        if column
            .metadata
            .keys()
            .any(|k| k.starts_with("delta.identity."))
        {
            return refuse(format!("identityColumns (column `{}`)", column.name));
        }
    }
    Ok(())
}

/// The protocol action that a table with these columns and properties needs at least.
pub fn protocol_for(schema: &TableSchema, properties: &[(String, String)]) -> Value {
    let mut needed: BTreeSet<&str> = BTreeSet::new();
    if properties
        .iter()
        .any(|(k, _)| k.starts_with("delta.constraints."))
    {
        needed.insert("checkConstraints");
    }
    if schema
        .columns
        .iter()
        .any(|c| c.metadata.contains_key(GENERATION_EXPRESSION))
    {
        needed.insert("generatedColumns");
    }
    let on = |key: &str| {
        properties
            .iter()
            .any(|(k, v)| k == key && v.eq_ignore_ascii_case("true"))
    };
    if on("delta.enableChangeDataFeed") {
        needed.insert("changeDataFeed");
    }
    let vectors = on("delta.enableDeletionVectors");
    if !schema.has_timestamp_ntz() && !vectors {
        let version = if needed.contains("generatedColumns") || needed.contains("changeDataFeed") {
            4
        } else if needed.contains("checkConstraints") {
            3
        } else {
            2
        };
        return json!({"minReaderVersion": 1, "minWriterVersion": version});
    }
    let mut reader: BTreeSet<&str> = BTreeSet::new();
    if schema.has_timestamp_ntz() {
        reader.insert("timestampNtz");
    }
    if vectors {
        reader.insert("deletionVectors");
    }
    needed.extend(reader.iter());
    needed.extend(["appendOnly", "invariants"]);
    json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": needed})
}

/// The protocol that a table needs after columns were added, or `None` when it has it already.
pub fn upgraded(current: &Value, schema: &TableSchema) -> Option<Value> {
    if !schema.has_timestamp_ntz()
        || features(current, "readerFeatures")
            .iter()
            .any(|f| f == "timestampNtz")
    {
        return None;
    }
    let mut reader: BTreeSet<String> = features(current, "readerFeatures").into_iter().collect();
    let mut writer: BTreeSet<String> = features(current, "writerFeatures").into_iter().collect();
    // Below version 7 the features are implied by the number; they must now be spelt out.
    let version = number(current, "minWriterVersion");
    if version < 7 {
        writer.extend(["appendOnly".to_string(), "invariants".to_string()]);
        if version >= 3 {
            writer.insert("checkConstraints".into());
        }
        if version >= 4 {
            writer.extend(["changeDataFeed".to_string(), "generatedColumns".to_string()]);
        }
        if version >= 5 {
            writer.insert("columnMapping".into());
        }
    }
    if number(current, "minReaderVersion") == 2 {
        reader.insert("columnMapping".into());
    }
    reader.insert("timestampNtz".into());
    writer.insert("timestampNtz".into());
    Some(
        json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}),
    )
}
