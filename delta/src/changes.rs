//! What happened to a table between two of its versions, read from the log.
//!
//! Commits that only rearrange data (`dataChange` false) change nothing. Which rows changed is not
//! decided here: this names files, the data files that came and went and, where a writer left them,
//! the change data files that hold the changed rows themselves.

use serde_json::Value;
use std::collections::HashMap;

use crate::commit;
use crate::error::TableError;
use crate::store::Location;
use crate::table::{DataFile, DeletionVector};

/// The column of change data files that tells what happened to a row.
pub const CHANGE_TYPE: &str = "_change_type";

/// One commit, as far as it matters to a reader of the table's rows.
#[derive(Debug, Clone, Default)]
pub struct CommitChanges {
    pub version: i64,
    /// Files that were added with `dataChange`.
    pub added: Vec<DataFile>,
    /// Files that were removed with `dataChange`.
    pub removed: Vec<DataFile>,
    /// Change data files: the rows that the commit took away and brought, each with its
    /// [`CHANGE_TYPE`]. Where there are any they are the whole change; `added` and `removed` then
    /// tell the same with all the rows around it.
    pub change_data: Vec<DataFile>,
    /// Files that were added or removed by a mere rearrangement.
    pub moved_in: Vec<DataFile>,
    pub moved_out: Vec<DataFile>,
    /// Applications whose transactions the commit counts, each with the number it counts to.
    pub transactions: HashMap<String, Option<i64>>,
    /// Whether the commit carries a new protocol or new metadata.
    pub metadata_changed: bool,
    /// Windrow's part of the commit info, when Windrow made the commit.
    pub windrow: Option<Value>,
}

impl CommitChanges {
    pub fn changes_rows(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }
}

/// The commits after `from` up to and including `to`, oldest first. `None` when the log no longer
/// reaches back that far.
pub async fn between(
    location: &Location,
    from: i64,
    to: i64,
) -> Result<Option<Vec<CommitChanges>>, TableError> {
    let mut commits = Vec::new();
    for version in from + 1..=to {
        match at(location, version).await? {
            None => return Ok(None),
            Some(commit) => commits.push(commit),
        }
    }
    Ok(Some(commits))
}

/// The commit that made `version`, or `None` when the log has no such entry.
pub async fn at(location: &Location, version: i64) -> Result<Option<CommitChanges>, TableError> {
    match commit::read(location, version).await? {
        None => Ok(None),
        Some(entry) => parse(location, version, &entry).map(Some),
    }
}

/// As [`at`]; an entry of more than so many bytes is not read and gives `None`.
pub(crate) async fn at_most(
    location: &Location,
    version: i64,
    bytes: u64,
) -> Result<Option<CommitChanges>, TableError> {
    match commit::read_at_most(location, version, bytes).await? {
        None => Ok(None),
        Some(entry) => parse(location, version, &entry).map(Some),
    }
}

fn parse(location: &Location, version: i64, entry: &[u8]) -> Result<CommitChanges, TableError> {
    let mut changes = CommitChanges {
        version,
        ..CommitChanges::default()
    };
    let mut loses_rows = false;
    for action in commit::actions(entry) {
        let action = action.map_err(|e| TableError::Damaged {
            url: location.shown(),
            reason: format!("version {version}: {e}"),
        })?;
        let Some((kind, body)) = action.as_object().and_then(|o| o.iter().next()) else {
            continue;
        };
        let data_change = body
            .get("dataChange")
            .and_then(Value::as_bool)
            .unwrap_or(true);
        match kind.as_str() {
            "add" if data_change => changes.added.push(file(body)),
            "remove" if data_change => changes.removed.push(file(body)),
            "cdc" => changes.change_data.push(file(body)),
            "add" => changes.moved_in.push(file(body)),
            "remove" => changes.moved_out.push(file(body)),
            "txn" => {
                let app_id = body.get("appId").and_then(Value::as_str);
                let counted = body.get("version").and_then(Value::as_i64);
                let transaction = app_id.map(|id| (id.to_string(), counted));
                changes.transactions.extend(transaction);
            }
            "metaData" | "protocol" => changes.metadata_changed = true,
            "commitInfo" => {
                changes.windrow = body.get("windrow").cloned();
                loses_rows |= loses_rows_of_changes(body);
            }
            _ => {}
        }
    }
    if loses_rows {
        changes.change_data.clear();
    }
    Ok(changes)
}

/// Whether the commit's writer is known to leave rows out of its change data: delta-rs writes for an
/// UPDATE the difference of the rows before and after as sets, so that a row which becomes equal to
/// another one is in neither image.
fn loses_rows_of_changes(commit_info: &Value) -> bool {
    let text = |key: &str| commit_info.get(key).and_then(Value::as_str);
    let is_delta_rs = ["engineInfo", "clientVersion"]
        .into_iter()
        .any(|key| text(key).is_some_and(|v| v.starts_with("delta-rs")));
    is_delta_rs && text("operation").is_some_and(|o| o.eq_ignore_ascii_case("UPDATE"))
}

fn file(body: &Value) -> DataFile {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_string);
    let partition_values: HashMap<String, Option<String>> = body
        .get("partitionValues")
        .and_then(Value::as_object)
        .map(|map| {
            map.iter()
                .map(|(k, v)| (k.clone(), v.as_str().map(str::to_string)))
                .collect()
        })
        .unwrap_or_default();
    let deletion_vector = body
        .get("deletionVector")
        .filter(|v| v.is_object())
        .map(|dv| {
            let text = |key: &str| {
                dv.get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_string()
            };
            let int = |key: &str| dv.get(key).and_then(Value::as_i64);
            DeletionVector {
                storage_type: text("storageType"),
                path_or_inline: text("pathOrInlineDv"),
                offset: int("offset").and_then(|v| i32::try_from(v).ok()),
                size_in_bytes: int("sizeInBytes")
                    .and_then(|v| i32::try_from(v).ok())
                    .unwrap_or(0),
                cardinality: int("cardinality").unwrap_or(0),
            }
        });
    DataFile {
        log_path: text("path").unwrap_or_default(),
        size: body.get("size").and_then(Value::as_i64).unwrap_or(0),
        modification_time: body
            .get("modificationTime")
            .and_then(Value::as_i64)
            .unwrap_or(0),
        partition_values,
        stats: text("stats"),
        deletion_vector,
    }
}
