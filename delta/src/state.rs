//! Flow state: what a flow remembers between updates, stored so that it becomes true in the same
//! commit as the rows.
//!
//! A state is a JSON file below the target's `_windrow/state/<flow>/`, written before the commit
//! under a name that carries its sequence and run id. The commit's `txn` raises the flow's sequence
//! and its commit info names the file. What the log does not name never happened: a file of a run
//! that died before its commit is passed over and later removed.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windrow_flows::ranges::Ranges;

use crate::commit;
use crate::error::TableError;
use crate::partition;
use crate::store::Location;
use crate::table::Table;

/// Raised when a state of an older version of Windrow can't be read as it is.
const FORMAT: u32 = 1;

/// A source as one refresh read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// Resolved name in the pipeline.
    pub name: String,
    pub url: String,
    /// The table's id: a table made anew at the same place has another.
    pub table_id: String,
    pub version: i64,
    /// What tells that version from another of the same number, which a table has that was restored
    /// from a copy; states of before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Short for the table's columns at that version: names, types and mapping.
    #[serde(default)]
    pub columns: String,
}

/// What was true after a refresh of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowState {
    pub format: u32,
    pub flow: String,
    pub sequence: i64,
    pub run_id: String,
    /// The state of the last refresh by the defined predicate. `None` as long as there were only
    /// overrides.
    pub defined: Option<DefinedRefresh>,
    /// What of the past was processed, by whatever refresh.
    #[serde(default)]
    pub history: History,
    /// The last refreshes by the defined predicate, oldest first: what each was estimated to cost and
    /// did cost. States of before have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<PastRun>,
}

/// What one refresh was estimated to read and write, and what it did, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PastRun {
    /// How it was done, by the word that reports have.
    pub technique: String,
    pub estimated_read: u64,
    pub estimated_written: u64,
    /// `None` where it was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    pub written: u64,
    /// From the beginning of the staging to the commit. It is kept for people; nothing hangs on it.
    #[serde(default)]
    pub duration_ms: u64,
}

/// What a flow has processed since its table was computed from the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// When that was, in milliseconds; `None` when it was under a version that did not say.
    pub since: Option<i64>,
    /// By column of time, as days or microseconds.
    pub columns: BTreeMap<String, Ranges>,
}

/// A refresh by the flow's own predicate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinedRefresh {
    /// Of the query, its views and its columns.
    pub fingerprint: String,
    /// The predicate with its time pinned; `true` for a window that is the whole table.
    pub predicate: String,
    /// False when the predicate used rand and the like, so that it selects other rows each time.
    #[serde(default = "yes")]
    pub predicate_deterministic: bool,
    pub time_zone: String,
    /// The clock of the refresh, as RFC 3339; empty in states of older versions.
    #[serde(default)]
    pub clock: String,
    /// Set when the query itself depends on the clock: the clock then, as RFC 3339.
    pub query_clock: Option<String>,
    pub sources: Vec<SourceState>,
    /// False when some source has no version (files), so that a change can't be seen.
    pub sources_versioned: bool,
    /// The target's version that this refresh made.
    pub target_version: i64,
}

fn yes() -> bool {
    true
}

/// The transaction id under which a flow's commits are counted.
pub fn app_id(flow: &str) -> String {
    format!("windrow:{flow}")
}

fn folder(flow: &str) -> Path {
    Path::from_iter(["_windrow", "state", &partition::folder("flow", Some(flow))])
}

fn file_name(sequence: i64, run_id: &str) -> String {
    format!("{sequence:020}-{run_id}.json")
}

impl FlowState {
    pub fn new(
        flow: &str,
        sequence: i64,
        run_id: &str,
        defined: Option<DefinedRefresh>,
        history: History,
    ) -> Self {
        Self {
            format: FORMAT,
            flow: flow.to_string(),
            sequence,
            run_id: run_id.to_string(),
            defined,
            history,
            runs: Vec::new(),
        }
    }

    /// The same state with a record of past refreshes.
    #[must_use]
    pub fn with_runs(mut self, runs: Vec<PastRun>) -> Self {
        self.runs = runs;
        self
    }

    /// Writes the file that the commit will name, and gives the actions and the commit info for it.
    pub async fn stage(&self, location: &Location) -> Result<StagedState, TableError> {
        let damaged = |e: serde_json::Error| TableError::Damaged {
            url: location.shown(),
            reason: e.to_string(),
        };
        let name = file_name(self.sequence, &self.run_id);
        let path = folder(&self.flow).join(name.clone());
        let body = Bytes::from(serde_json::to_vec_pretty(self).map_err(damaged)?);
        let options = PutOptions {
            mode: PutMode::Overwrite,
            ..Default::default()
        };
        location
            .store()
            .put_opts(&path, PutPayload::from(body), options)
            .await
            .map_err(|source| TableError::Storage {
                url: location.shown(),
                source,
            })?;
        let txn = json!({"txn": {"appId": app_id(&self.flow), "version": self.sequence,
            "lastUpdated": chrono::Utc::now().timestamp_millis()}});
        Ok(StagedState { txn, file: name })
    }

    /// The state that the table's log names, or `None` when the flow has none.
    pub async fn load(table: &Table, flow: &str) -> Result<Option<Self>, TableError> {
        let Some(sequence) = table.transaction_version(&app_id(flow)).await? else {
            return Ok(None);
        };
        let location = table.location();
        let storage = |source| TableError::Storage {
            url: location.shown(),
            source,
        };
        let store = location.store();
        let prefix = format!("{sequence:020}-");
        let candidates: Vec<Path> = list(store.as_ref(), flow)
            .await
            .map_err(storage)?
            .into_iter()
            .filter(|p| p.filename().is_some_and(|n| n.starts_with(&prefix)))
            .collect();
        let chosen = match candidates.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => {
                let named = named_file(table, flow, sequence).await?;
                several
                    .iter()
                    .find(|p| p.filename().is_some() && p.filename() == named.as_deref())
                    .cloned()
            }
        };
        let Some(path) = chosen else { return Ok(None) };
        let bytes = match store.get(&path).await {
            Ok(found) => found.bytes().await.map_err(storage)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(storage(source)),
        };
        // A state of a newer format is as good as none: the window is then computed in full.
        Ok(serde_json::from_slice::<Self>(&bytes)
            .ok()
            .filter(|s| s.format == FORMAT))
    }

    /// Removes the flow's older state files. Only tidiness hangs on it.
    pub async fn forget_older(&self, location: &Location) {
        let store = location.store();
        let kept = file_name(self.sequence, &self.run_id);
        let Ok(paths) = list(store.as_ref(), &self.flow).await else {
            return;
        };
        for path in paths {
            let old = path.filename().is_some_and(|name| {
                name != kept
                    && name
                        .split_once('-')
                        .and_then(|(n, _)| n.parse::<i64>().ok())
                        .is_some_and(|n| n <= self.sequence)
            });
            if old && let Err(error) = store.delete(&path).await {
                tracing::debug!(%error, %path, "an old flow state was not removed");
            }
        }
    }
}

/// A state file that is written but not yet named by the log.
#[derive(Debug, Clone)]
pub struct StagedState {
    /// The `txn` action.
    pub txn: Value,
    /// Name for the commit info.
    pub file: String,
}

async fn list(store: &dyn ObjectStore, flow: &str) -> Result<Vec<Path>, object_store::Error> {
    store
        .list(Some(&folder(flow)))
        .map_ok(|m| m.location)
        .try_collect()
        .await
}

/// Two runs wrote a state of one sequence and one of them died: the log knows which one counts.
async fn named_file(
    table: &Table,
    flow: &str,
    sequence: i64,
) -> Result<Option<String>, TableError> {
    let mut version = table.version();
    while version >= 0 {
        let Some(entry) = commit::read(table.location(), version).await? else {
            return Ok(None);
        };
        for action in commit::actions(&entry).filter_map(Result::ok) {
            let info = action.pointer("/commitInfo/windrow");
            let is_it = info.is_some_and(|i| {
                i.get("flow").and_then(Value::as_str) == Some(flow)
                    && i.get("sequence").and_then(Value::as_i64) == Some(sequence)
            });
            if is_it {
                return Ok(info
                    .and_then(|i| i.get("state"))
                    .and_then(Value::as_str)
                    .map(str::to_string));
            }
        }
        version -= 1;
    }
    Ok(None)
}
