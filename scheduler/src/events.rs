//! The event log: what happened in an update, one row per event, in a Delta table at
//! `<storage>/system/events`.
//!
//! All events of an update are written in one commit at its end. Until then a note under
//! `system/pending` says which update is under way and which targets it writes to; if the process
//! dies, the next update finds the note, reads from the targets' own logs what was committed, and
//! writes the events that are missing. Column names are those that users of such event logs know.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use chrono::{DateTime, Utc};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::session_state::SessionState;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;
use windrow_delta::changes;
use windrow_delta::commit::{Commit, Outcome, checkpoint, checkpoint_is_due};
use windrow_delta::protocol::protocol_for;
use windrow_delta::schema::{Column, TableSchema};
use windrow_delta::{Location, StoreOptions, Table, TableError};
use windrow_executor::local;
use windrow_executor::stage::StageSpec;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    Info,
    Warn,
    Error,
}

impl Level {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    pub id: String,
    pub sequence: u64,
    pub timestamp: DateTime<Utc>,
    pub origin: Value,
    pub message: String,
    pub level: Level,
    pub event_type: String,
    /// One key, the event's type.
    pub details: Value,
    pub error: Option<Value>,
}

/// Gathers the events of one update, in order.
#[derive(Debug, Clone)]
pub struct Recorder {
    pub pipeline: String,
    pub update_id: String,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    pub fn new(pipeline: &str, update_id: &str) -> Self {
        Self {
            pipeline: pipeline.into(),
            update_id: update_id.into(),
            events: Arc::default(),
        }
    }

    /// Adds an event of the update as a whole, or of one flow and its target.
    pub fn add(
        &self,
        event_type: &str,
        flow: Option<(&str, &str)>,
        level: Level,
        message: String,
        details: Value,
    ) {
        self.add_with_error(event_type, flow, level, message, details, None);
    }

    pub fn add_with_error(
        &self,
        event_type: &str,
        flow: Option<(&str, &str)>,
        level: Level,
        message: String,
        details: Value,
        error: Option<Value>,
    ) {
        let mut origin = json!({"pipeline_name": self.pipeline, "update_id": self.update_id});
        if let Some((flow, dataset)) = flow {
            origin["flow_name"] = json!(flow);
            origin["dataset_name"] = json!(dataset);
        }
        let mut events = self.events.lock().unwrap_or_else(|e| e.into_inner());
        let sequence = events.len() as u64;
        events.push(Event {
            id: uuid::Uuid::now_v7().to_string(),
            sequence,
            timestamp: Utc::now(),
            origin,
            message,
            level,
            event_type: event_type.into(),
            details: json!({ event_type: details }),
            error,
        });
    }

    /// The events behind the first `skip`.
    pub(crate) fn events_from(&self, skip: usize) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(|e| e.into_inner());
        events.get(skip..).unwrap_or_default().to_vec()
    }

    pub fn events(&self) -> Vec<Event> {
        self.events
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clone()
    }
}

/// An event with the columns of the log, as one reads it back.
pub(crate) fn event_json(event: &Event) -> Value {
    json!({"id": event.id, "sequence": sequence(event), "origin": event.origin,
        "timestamp": event.timestamp.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
        "message": event.message, "level": event.level.word(), "maturity_level": "STABLE",
        "error": event.error, "details": event.details, "event_type": event.event_type})
}

fn sequence(event: &Event) -> Value {
    json!({"control_plane_seq_no": event.sequence})
}

pub(crate) fn below(storage: &Url, folder: &str) -> Url {
    let mut url = storage.clone();
    url.set_path(&format!("{}{folder}/", storage.path()));
    url
}

/// Where the event log of a storage root lies.
pub fn log_location(storage: &Url, options: &StoreOptions) -> Result<Location, TableError> {
    Location::open(&below(storage, "system/events"), options)
}

fn schema(url: &str) -> Result<TableSchema, TableError> {
    let text = DataType::Utf8;
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = [
        ("id", text.clone()),
        ("sequence", text.clone()),
        ("origin", text.clone()),
        ("timestamp", time),
        ("message", text.clone()),
        ("level", text.clone()),
        ("maturity_level", text.clone()),
        ("error", text.clone()),
        ("details", text.clone()),
        ("event_type", text),
    ];
    let columns = columns
        .into_iter()
        .map(|(name, t)| Column::new(name, t, true))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|reason| TableError::Damaged {
            url: url.to_string(),
            reason,
        })?;
    Ok(TableSchema {
        columns,
        partition_columns: Vec::new(),
    })
}

fn batch(
    events: &[Event],
    schema: SchemaRef,
) -> Result<RecordBatch, datafusion::error::DataFusionError> {
    let text = |f: &dyn Fn(&Event) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(events.iter().map(f)))
    };
    let times = TimestampMicrosecondArray::from_iter_values(
        events.iter().map(|e| e.timestamp.timestamp_micros()),
    )
    .with_timezone("UTC");
    let columns: Vec<ArrayRef> = vec![
        text(&|e| Some(e.id.clone())),
        text(&|e| Some(sequence(e).to_string())),
        text(&|e| Some(e.origin.to_string())),
        Arc::new(times),
        text(&|e| Some(e.message.clone())),
        text(&|e| Some(e.level.word().into())),
        text(&|_| Some("STABLE".into())),
        text(&|e| e.error.as_ref().map(Value::to_string)),
        text(&|e| Some(e.details.to_string())),
        text(&|e| Some(e.event_type.clone())),
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Appends events to the log as one commit.
pub async fn append(
    state: &SessionState,
    location: &Location,
    update_id: &str,
    events: &[Event],
) -> Result<(), TableError> {
    let url = location.shown();
    let query = |e| TableError::Query {
        url: url.clone(),
        source: Box::new(e),
    };
    if events.is_empty() {
        return Ok(());
    }
    let schema = schema(&url)?;
    let arrow = schema.arrow();
    let rows = batch(events, arrow.clone()).map_err(query)?;
    let input =
        MemorySourceConfig::try_new_exec(&[vec![rows]], arrow.clone(), None).map_err(query)?;
    state
        .runtime_env()
        .register_object_store(&location.store_url(), location.root_store());
    let spec = StageSpec {
        store_url: location.store_url().to_string(),
        table_path: location.root_path()?.to_string(),
        partition_columns: Vec::new(),
        stats_columns: vec![
            "timestamp".into(),
            "event_type".into(),
            "level".into(),
            "id".into(),
        ],
        target_file_size: 128 << 20,
        file_prefix: crate::stager::file_prefix(update_id, 0),
        attempt: 0,
    };
    let plan = local::stage_plan(input, spec, Vec::new(), 1).map_err(query)?;
    let staged = local::run_stage(state, plan).await.map_err(query)?;
    let run_id = format!("{update_id}-{}", uuid::Uuid::new_v4().simple());
    for _ in 0..100 {
        let table = Table::open(location, None).await?;
        let mut actions = Vec::new();
        if table.is_none() {
            actions.push(json!({"protocol": protocol_for(&schema, &[])}));
            actions.push(
                json!({"metaData": {"id": uuid::Uuid::new_v4().to_string(), "name": "events",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.to_schema_string(), "partitionColumns": [],
                "configuration": {}, "createdTime": Utc::now().timestamp_millis()}}),
            );
        }
        actions.extend(staged.iter().map(|f| f.add.clone()));
        let commit = Commit {
            run_id: run_id.clone(),
            operation: "WRITE".into(),
            parameters: vec![("mode".into(), "Append".into())],
            info: json!({"update": update_id}),
            metrics: vec![("numOutputRows".into(), events.len() as u64)],
            actions,
        };
        let version = table.as_ref().map_or(0, |t| t.version() + 1);
        if commit.attempt(location, version).await? == Outcome::Committed {
            if table.is_some_and(|t| checkpoint_is_due(&t, version, commit.actions.len())) {
                checkpoint(&Table::open_existing(location, Some(version)).await?).await;
            }
            return Ok(());
        }
    }
    Err(TableError::Refused {
        code: "COMMIT_CONFLICTS",
        url,
        reason: "the event log was committed to by others too often".into(),
    })
}

/// A note about an update under way.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pending {
    pub update_id: String,
    pub pipeline: String,
    /// The process, so that a running update is told from a dead one.
    pub host: String,
    pub process: u32,
    pub started: DateTime<Utc>,
    /// The event log's version before the update, -1 for none.
    pub log_version: i64,
    pub targets: Vec<PendingTarget>,
    pub events: Vec<Event>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PendingTarget {
    pub flow: String,
    pub dataset: String,
    pub url: String,
    /// The target's version before the update, -1 for none.
    pub version: i64,
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|h| h.trim().to_string())
        .unwrap_or_default()
}

impl Pending {
    pub fn new(recorder: &Recorder, log_version: i64, targets: Vec<PendingTarget>) -> Self {
        Self {
            update_id: recorder.update_id.clone(),
            pipeline: recorder.pipeline.clone(),
            host: host(),
            process: std::process::id(),
            started: Utc::now(),
            log_version,
            targets,
            events: recorder.events(),
        }
    }

    fn is_running(&self) -> bool {
        if self.host == host() && self.process == std::process::id() {
            return RunningHere::holds(&self.update_id);
        }
        if self.host == host() {
            return std::path::Path::new(&format!("/proc/{}", self.process)).exists();
        }
        // Another machine can't be asked; no update runs for longer than this.
        Utc::now() - self.started < chrono::TimeDelta::days(3)
    }
}

/// An update of this process, from its beginning until nothing holds it any more. A scheduler runs
/// many, and must not take one of its own for dead.
#[derive(Debug)]
pub(crate) struct RunningHere(String);

static HERE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl RunningHere {
    pub(crate) fn new(update_id: &str) -> Self {
        Self::all().insert(update_id.to_string());
        Self(update_id.to_string())
    }

    pub(crate) fn holds(update_id: &str) -> bool {
        Self::all().contains(update_id)
    }

    fn all() -> MutexGuard<'static, BTreeSet<String>> {
        HERE.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for RunningHere {
    fn drop(&mut self) {
        Self::all().remove(&self.0);
    }
}

fn notes(storage: &Url, options: &StoreOptions) -> Result<Location, TableError> {
    Location::open(&below(storage, "system/pending"), options)
}

/// Leaves the note, before the first commit of an update.
///
/// On the way it finds out whether the store keeps its word about "only if there is none yet", on
/// which every commit rests: the note is put a second time, which must be refused. A store that takes
/// it (old S3 servers ignore the header) would let two writers both believe in their version.
///
/// # Errors
/// `STORE_WITHOUT_CONDITIONAL_PUT`, or what the store says.
pub async fn leave_note(
    storage: &Url,
    options: &StoreOptions,
    pending: &Pending,
) -> Result<(), TableError> {
    let location = notes(storage, options)?;
    let body = serde_json::to_vec(pending).map_err(|e| TableError::Damaged {
        url: location.shown(),
        reason: e.to_string(),
    })?;
    let path = Path::from(format!("{}.json", pending.update_id));
    let put = || async {
        location
            .store()
            .put_opts(
                &path,
                PutPayload::from(body.clone()),
                PutOptions::from(PutMode::Create),
            )
            .await
    };
    let failed = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    let unsafe_store = || {
        TableError::Refused {
        code: "STORE_WITHOUT_CONDITIONAL_PUT",
        url: location.shown(),
        reason: "the store takes an object that is there already although it was told not to \
                 (PUT with If-None-Match: *); two writers could lose each other's commits, so nothing is written here. \
                 Use a store or a newer server that has conditional writes"
            .into(),
    }
    };
    match put().await {
        // The name is this update's alone: what is there is our own put, whose answer was lost.
        Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
        Err(
            object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. },
        ) => {
            return Err(unsafe_store());
        }
        Err(source) => return Err(failed(source)),
    }
    if storage.scheme() == "file" {
        return Ok(());
    }
    match put().await {
        Err(
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
        ) => Ok(()),
        Ok(_) => {
            take_note(storage, options, &pending.update_id).await?;
            Err(unsafe_store())
        }
        Err(source) => Err(failed(source)),
    }
}

/// An update that is under way on this storage, as far as can be known.
#[derive(Debug, Clone)]
pub struct RunningUpdate {
    pub id: String,
    pub pipeline: String,
    pub started: DateTime<Utc>,
}

/// The updates under way, the oldest first.
pub async fn running(
    storage: &Url,
    options: &StoreOptions,
) -> Result<Vec<RunningUpdate>, TableError> {
    let mut found: Vec<RunningUpdate> = read_notes(storage, options)
        .await?
        .into_iter()
        .filter(Pending::is_running)
        .map(|p| RunningUpdate {
            id: p.update_id,
            pipeline: p.pipeline,
            started: p.started,
        })
        .collect();
    found.sort_by_key(|u| u.started);
    Ok(found)
}

async fn read_notes(storage: &Url, options: &StoreOptions) -> Result<Vec<Pending>, TableError> {
    let location = notes(storage, options)?;
    let store = location.store();
    let failed = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    let found: Vec<Path> = match store.list(None).map_ok(|m| m.location).try_collect().await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => Vec::new(),
        Err(source) => return Err(failed(source)),
    };
    let mut notes = Vec::new();
    for path in found {
        let bytes = match store.get(&path).await {
            Ok(got) => got.bytes().await,
            Err(object_store::Error::NotFound { .. }) => continue,
            Err(e) => Err(e),
        }
        .map_err(failed)?;
        match serde_json::from_slice::<Pending>(&bytes) {
            Ok(pending) => notes.push(pending),
            Err(_) => {
                tracing::warn!(%path, "a note about an update can't be read and is left alone");
            }
        }
    }
    Ok(notes)
}

/// Takes the note away, after the events are written.
pub async fn take_note(
    storage: &Url,
    options: &StoreOptions,
    update_id: &str,
) -> Result<(), TableError> {
    let location = notes(storage, options)?;
    match location
        .store()
        .delete(&Path::from(format!("{update_id}.json")))
        .await
    {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(source) => Err(TableError::Storage {
            url: location.shown(),
            source,
        }),
    }
}

/// Two updates of one process that begin side by side must not both write what a dead one left.
static RECOVERING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How an update ended that could not say so itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) state: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) level: Level,
    pub(crate) message: &'static str,
}

const PROCESS_ENDED: Ending = Ending {
    state: "FAILED",
    cause: "PROCESS_ENDED",
    level: Level::Error,
    message: "the update's process ended before the update did",
};

/// Writes the events of updates whose process died. Gives their ids.
pub async fn recover(
    state: &SessionState,
    storage: &Url,
    options: &StoreOptions,
) -> Result<Vec<String>, TableError> {
    let _alone = RECOVERING.lock().await;
    let mut recovered = Vec::new();
    for pending in read_notes(storage, options).await? {
        if pending.is_running() {
            continue;
        }
        recover_one(state, storage, options, &pending, PROCESS_ENDED).await?;
        take_note(storage, options, &pending.update_id).await?;
        recovered.push(pending.update_id);
    }
    Ok(recovered)
}

/// Writes the events of one update of which it is known that it does not run any more. `told` are its
/// own events, where they outlived it.
pub(crate) async fn close(
    state: &SessionState,
    storage: &Url,
    options: &StoreOptions,
    update_id: &str,
    told: Option<Vec<Event>>,
    ending: Ending,
) -> Result<(), TableError> {
    let _alone = RECOVERING.lock().await;
    let notes = read_notes(storage, options).await?;
    let Some(mut pending) = notes.into_iter().find(|n| n.update_id == update_id) else {
        return Ok(());
    };
    if let Some(told) = told {
        pending.events = told;
    }
    recover_one(state, storage, options, &pending, ending).await?;
    take_note(storage, options, update_id).await
}

/// A commit of an update, found in its target's log.
#[derive(Debug, Clone)]
pub(crate) struct FoundCommit {
    pub(crate) flow: String,
    pub(crate) dataset: String,
    pub(crate) url: String,
    pub(crate) version: i64,
    pub(crate) files_added: u64,
    pub(crate) files_removed: u64,
}

/// The commits of an update that has left a note, the newest of each flow.
pub(crate) async fn committed(
    storage: &Url,
    options: &StoreOptions,
    update_id: &str,
) -> Result<Vec<FoundCommit>, TableError> {
    let mut found = Vec::new();
    let notes = read_notes(storage, options).await?;
    if let Some(pending) = notes.into_iter().find(|n| n.update_id == update_id) {
        for target in &pending.targets {
            let commits = commits_of(target, options, update_id).await?;
            found.extend(commits.last().map(|commit| FoundCommit {
                flow: target.flow.clone(),
                dataset: target.dataset.clone(),
                url: target.url.clone(),
                version: commit.version,
                files_added: commit.added.len() as u64,
                files_removed: commit.removed.len() as u64,
            }));
        }
    }
    Ok(found)
}

async fn commits_of(
    target: &PendingTarget,
    options: &StoreOptions,
    update_id: &str,
) -> Result<Vec<changes::CommitChanges>, TableError> {
    let Ok(url) = Url::parse(&target.url) else {
        return Ok(Vec::new());
    };
    let location = Location::open(&url, options)?;
    let Some(table) = Table::open(&location, None).await? else {
        return Ok(Vec::new());
    };
    let commits = changes::between(&location, target.version, table.version()).await?;
    let own = commits.into_iter().flatten();
    Ok(own
        .filter(|c| is_of(c.windrow.as_ref(), update_id))
        .collect())
}

async fn recover_one(
    state: &SessionState,
    storage: &Url,
    options: &StoreOptions,
    pending: &Pending,
    ending: Ending,
) -> Result<(), TableError> {
    let log = log_location(storage, options)?;
    if let Some(table) = Table::open(&log, None).await? {
        let since = changes::between(&log, pending.log_version, table.version()).await?;
        let written = since
            .into_iter()
            .flatten()
            .any(|c| is_of(c.windrow.as_ref(), &pending.update_id));
        if written {
            return Ok(());
        }
    }
    let recorder = Recorder::new(&pending.pipeline, &pending.update_id);
    *recorder.events.lock().unwrap_or_else(|e| e.into_inner()) = pending.events.clone();
    for target in &pending.targets {
        for commit in commits_of(target, options, &pending.update_id).await? {
            let flow = Some((target.flow.as_str(), target.dataset.as_str()));
            if tells_commit(&pending.events, &target.dataset, commit.version) {
                continue;
            }
            recorder.add(
                "commit",
                flow,
                Level::Info,
                format!("version {} of {}", commit.version, target.dataset),
                json!({"version": commit.version, "files_added": commit.added.len(),
                    "files_removed": commit.removed.len(),
                    "bytes_added": commit.added.iter().map(|f| f.size).sum::<i64>(),
                    "info": commit.windrow}),
            );
            recorder.add(
                "flow_progress",
                flow,
                Level::Info,
                format!(
                    "flow {} is COMPLETED (found in the target's log)",
                    target.flow
                ),
                json!({"status": "COMPLETED", "recovered": true}),
            );
        }
    }
    recorder.add(
        "update_progress",
        None,
        ending.level,
        ending.message.into(),
        json!({"state": ending.state, "cause": ending.cause}),
    );
    append(state, &log, &pending.update_id, &recorder.events()).await
}

fn tells_commit(events: &[Event], dataset: &str, version: i64) -> bool {
    events.iter().any(|event| {
        event.event_type == "commit"
            && event.origin.get("dataset_name").and_then(Value::as_str) == Some(dataset)
            && event
                .details
                .pointer("/commit/version")
                .and_then(Value::as_i64)
                == Some(version)
    })
}

fn is_of(windrow: Option<&Value>, update_id: &str) -> bool {
    windrow
        .and_then(|w| w.get("update"))
        .and_then(Value::as_str)
        == Some(update_id)
}
