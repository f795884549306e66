//! One commit: put `N.json` if nobody has, and know for certain what came of it.
//!
//! A store answers "already exists" when somebody else was faster, when our own first try landed
//! and the retry met it, and (S3, status 409) when nothing landed at all. So the answer is never
//! believed: the log entry is read, and it is ours when it carries our run id. What to do about a
//! conflict is left to the caller, who knows what the commit removes.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde_json::{Value, json};

use crate::error::TableError;
use crate::store::Location;
use crate::table::Table;

/// Commits that another writer was faster than, since the process began.
pub static CONFLICTS: crate::figures::Counter = crate::figures::Counter::new();

/// How long an unclear answer is looked into before the commit is given up as failed.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// What is committed, apart from the version.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Unique for this commit; it is how the commit is recognised in the log.
    pub run_id: String,
    /// As Delta's history shows it, for example `REPLACE WHERE`.
    pub operation: String,
    pub parameters: Vec<(String, String)>,
    /// Windrow's own part of the commit info: update, flow, state file.
    pub info: Value,
    /// Metrics for `DESCRIBE HISTORY`.
    pub metrics: Vec<(String, u64)>,
    /// `protocol`, `metaData`, `txn`, `remove` and `add` actions.
    pub actions: Vec<Value>,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// Another writer has this version.
    Conflict,
}

impl Commit {
    fn body(&self, read_version: Option<i64>, now_ms: i64) -> String {
        let parameters: serde_json::Map<String, Value> = self
            .parameters
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        let metrics: serde_json::Map<String, Value> = self
            .metrics
            .iter()
            .map(|(k, v)| (k.clone(), json!(v.to_string())))
            .collect();
        let mut info = json!({"timestamp": now_ms, "operation": self.operation,
            "operationParameters": parameters, "operationMetrics": metrics,
            "engineInfo": concat!("Windrow/", env!("CARGO_PKG_VERSION")),
            "isBlindAppend": false, "txnId": self.run_id, "windrow": self.info});
        if let Some(version) = read_version {
            info["readVersion"] = json!(version);
        }
        let mut body = json!({"commitInfo": info}).to_string();
        for action in &self.actions {
            body.push('\n');
            body.push_str(&action.to_string());
        }
        body.push('\n');
        body
    }

    /// Tries to make `version`, once for certain.
    pub async fn attempt(&self, location: &Location, version: i64) -> Result<Outcome, TableError> {
        let body = Bytes::from(self.body(
            (version > 0).then(|| version - 1),
            chrono::Utc::now().timestamp_millis(),
        ));
        let store = location.store();
        let path = log_path(version);
        let mut pause = FIRST_PAUSE;
        let mut last = None;
        for _ in 0..TRIES {
            let options = PutOptions {
                mode: PutMode::Create,
                ..Default::default()
            };
            let put = store
                .put_opts(&path, PutPayload::from(body.clone()), options)
                .await;
            match put {
                Ok(_) => return Ok(Outcome::Committed),
                Err(error) => {
                    tracing::debug!(%error, version, "put of a log entry was not acknowledged");
                    last = Some(error);
                }
            }
            match read(location, version).await {
                Ok(Some(entry)) if is_ours(&entry, &self.run_id) => return Ok(Outcome::Committed),
                Ok(Some(_)) => {
                    CONFLICTS.add(1);
                    return Ok(Outcome::Conflict);
                }
                // Nothing landed: the same version may be tried again.
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, version, "log entry could not be read back"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        Err(TableError::Storage {
            url: location.shown(),
            source: last.unwrap_or(object_store::Error::NotImplemented {
                operation: "put".into(),
                implementer: "commit".into(),
            }),
        })
    }
}

fn log_path(version: i64) -> Path {
    Path::from(format!("_delta_log/{version:020}.json"))
}

/// The log entry of `version`, or `None` when there is none.
pub async fn read(location: &Location, version: i64) -> Result<Option<Bytes>, TableError> {
    read_at_most(location, version, u64::MAX).await
}

/// As [`read`]; an entry of more than so many bytes gives `None`, too.
pub(crate) async fn read_at_most(
    location: &Location,
    version: i64,
    bytes: u64,
) -> Result<Option<Bytes>, TableError> {
    let storage = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    match location.store().get(&log_path(version)).await {
        Ok(found) if found.meta.size > bytes => Ok(None),
        Ok(found) => Ok(Some(found.bytes().await.map_err(storage)?)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(storage(source)),
    }
}

/// Bytes of a log entry that tell it from another one: its commit info comes first, with a time.
const MARK_BYTES: u64 = 16 << 10;

/// Tells the log entry of `version` from any other that could have the same name, after a table was
/// restored to an earlier state and has gone another way since. `None` when the log has no such
/// entry any more.
///
/// # Errors
/// If the store can't be read.
pub async fn mark(location: &Location, version: i64) -> Result<Option<String>, TableError> {
    let storage = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    let options = GetOptions {
        range: Some((0..MARK_BYTES).into()),
        ..GetOptions::default()
    };
    let found = match location.store().get_opts(&log_path(version), options).await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(source) => return Err(storage(source)),
    };
    let size = found.meta.size;
    let begin = found.bytes().await.map_err(storage)?;
    // FNV-1a: it must be the same in every version of Windrow.
    let hash = begin.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(Some(format!("{size:x}-{hash:016x}")))
}

/// The actions of a log entry, line by line.
pub fn actions(entry: &[u8]) -> impl Iterator<Item = Result<Value, serde_json::Error>> + '_ {
    entry
        .split(|b| *b == b'\n')
        .filter(|line| !line.iter().all(u8::is_ascii_whitespace))
        .map(serde_json::from_slice)
}

fn is_ours(entry: &[u8], run_id: &str) -> bool {
    actions(entry)
        .filter_map(Result::ok)
        .any(|a| a.pointer("/commitInfo/txnId").and_then(Value::as_str) == Some(run_id))
}

/// A commit of so many actions is followed by a checkpoint: read as JSON, each later opening of the
/// table would pay for it.
const MANY_ACTIONS: usize = 1_000;

/// Whether a checkpoint should follow the commit of `version`, which has so many `actions`: when
/// the table's interval (10 commits without one) asks for it. Where no interval is set, a large
/// commit asks for one too.
pub fn checkpoint_is_due(table: &Table, version: i64, actions: usize) -> bool {
    let set = table
        .properties()
        .get("delta.checkpointInterval")
        .and_then(|v| v.parse::<i64>().ok())
        .filter(|v| *v > 0);
    (version != 0 && version % set.unwrap_or(10) == 0) || (set.is_none() && actions >= MANY_ACTIONS)
}

/// Writes a checkpoint of the table as it was opened. A checkpoint only makes reading faster, so a
/// failure is reported to the log and otherwise passed over.
pub async fn checkpoint(table: &Table) {
    let version = table.version();
    if let Err(error) = table.write_checkpoint().await {
        tracing::warn!(table = %table.location().shown(), version, %error, "no checkpoint was written");
    }
}
