//! The ledgers of backfills: which slices a range has, what became of each, and whether somebody
//! asked for a stop.
//!
//! A ledger is one JSON file, `<storage>/system/backfills/flow=<flow>/<id>.json`; a stop is asked for
//! by a file of the same name that ends in `.stop`. What the slices mean is `backfill`'s.

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};
use serde_json::json;
use windrow_delta::{Location, TableError, partition};

use crate::config::PipelineConfig;
use crate::events::below;

pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SliceState {
    Pending,
    Completed,
    Failed,
}

impl SliceState {
    pub(crate) fn of(completed: bool) -> Self {
        if completed {
            Self::Completed
        } else {
            Self::Failed
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LedgerSlice {
    pub from: String,
    pub to: String,
    pub state: SliceState,
    /// When it was done, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<DateTime<Utc>>,
    /// The clock of the update that tried it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<DateTime<Utc>>,
    /// The target's version when it had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<i64>,
}

impl LedgerSlice {
    pub(crate) fn new(from: String, to: String) -> Self {
        Self {
            from,
            to,
            state: SliceState::Pending,
            ended: None,
            clock: None,
            version: None,
        }
    }
}

/// What the slices rest on: resuming with another meaning would leave two halves that do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    pub(crate) query: String,
    pub(crate) columns: String,
}

/// A backfill as its file tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ledger {
    pub(crate) format: u32,
    pub id: String,
    pub flow: String,
    pub column: String,
    pub from: String,
    pub to: String,
    /// `None` for one slice.
    pub by: Option<String>,
    pub(crate) definition: Definition,
    /// The target's version before the first slice, -1 for none.
    pub(crate) target_version: i64,
    /// The update that ran it last.
    #[serde(default)]
    pub update: String,
    pub slices: Vec<LedgerSlice>,
}

impl Ledger {
    pub fn is_done(&self) -> bool {
        self.slices.iter().all(|s| s.state == SliceState::Completed)
    }

    /// When it was begun, as its id tells; long ago when that tells nothing.
    pub(crate) fn begun(&self) -> DateTime<Utc> {
        let made = uuid::Uuid::parse_str(&self.id).ok();
        let (seconds, nanos) = made
            .and_then(|id| id.get_timestamp())
            .map_or((0, 0), |at| at.to_unix());
        let at = i64::try_from(seconds).unwrap_or_default();
        DateTime::from_timestamp(at, nanos).unwrap_or_default()
    }

    pub fn count(&self, state: SliceState) -> u64 {
        self.slices.iter().filter(|s| s.state == state).count() as u64
    }
}

/// A ledger, and whether a stop was asked for since it last began.
#[derive(Debug, Clone)]
pub struct Kept {
    pub ledger: Ledger,
    pub stop_requested: bool,
}

impl Kept {
    /// COMPLETED, RUNNING, STOPPED, FAILED, or PENDING for one that was cut short.
    pub fn state(&self, is_running: bool) -> &'static str {
        if self.ledger.is_done() {
            "COMPLETED"
        } else if is_running {
            "RUNNING"
        } else if self.stop_requested {
            "STOPPED"
        } else if self.ledger.count(SliceState::Failed) > 0 {
            "FAILED"
        } else {
            "PENDING"
        }
    }
}

/// A ledger in a list, before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub(crate) path: Path,
    stop_requested: bool,
}

/// All ledgers of a pipeline's storage.
#[derive(Debug, Clone)]
pub struct Ledgers(Location);

impl Ledgers {
    /// # Errors
    /// When the storage can't be opened.
    pub fn open(config: &PipelineConfig) -> Result<Self, TableError> {
        Location::open(
            &below(&config.storage, "system/backfills"),
            &config.store_options,
        )
        .map(Self)
    }

    fn failed(&self, source: object_store::Error) -> TableError {
        TableError::Storage {
            url: self.0.shown(),
            source,
        }
    }

    /// What there is, of one flow or of all, the newest first.
    pub async fn list(&self, flow: Option<&str>) -> Result<Vec<Entry>, TableError> {
        let prefix = flow.map(folder);
        let store = self.0.store();
        let listed = store.list(prefix.as_ref()).map_ok(|m| m.location);
        let paths: Vec<Path> = match listed.try_collect().await {
            Ok(paths) => paths,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(source) => return Err(self.failed(source)),
        };
        let stops: Vec<&str> = paths
            .iter()
            .filter_map(|p| p.filename()?.strip_suffix(".stop"))
            .collect();
        let mut found: Vec<Entry> = paths
            .iter()
            .filter_map(|path| {
                let id = path.filename()?.strip_suffix(".json")?;
                Some(Entry {
                    id: id.to_string(),
                    path: path.clone(),
                    stop_requested: stops.contains(&id),
                })
            })
            .collect();
        // Ids begin with the time at which they were made.
        found.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(found)
    }

    /// A ledger from the list; `None` when it is gone, or of another version of Windrow.
    pub async fn read(&self, entry: &Entry) -> Result<Option<Kept>, TableError> {
        let read = async {
            let found = self.0.store().get(&entry.path).await?;
            found.bytes().await
        };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(self.failed(source)),
        };
        let ledger = serde_json::from_slice::<Ledger>(&bytes).ok();
        Ok(ledger
            .filter(|ledger| ledger.format == FORMAT)
            .map(|ledger| Kept {
                ledger,
                stop_requested: entry.stop_requested,
            }))
    }

    /// The ledger of that id, of whichever flow.
    pub async fn find(&self, id: &str) -> Result<Option<Kept>, TableError> {
        let entries = self.list(None).await?;
        match entries.iter().find(|e| e.id == id) {
            Some(entry) => self.read(entry).await,
            None => Ok(None),
        }
    }

    pub(crate) async fn save(&self, ledger: &Ledger) -> Result<(), TableError> {
        let body = serde_json::to_vec_pretty(ledger).map_err(|e| TableError::Damaged {
            url: self.0.shown(),
            reason: e.to_string(),
        })?;
        let path = folder(&ledger.flow).join(format!("{}.json", ledger.id));
        let put = self.0.store().put(&path, PutPayload::from(body)).await;
        put.map(|_| ()).map_err(|source| self.failed(source))
    }

    /// Asks whoever runs this backfill to begin no further slice.
    pub async fn request_stop(&self, ledger: &Ledger) -> Result<(), TableError> {
        let body = json!({"requested": chrono::Utc::now()}).to_string();
        let (store, path) = (self.0.store(), stop(ledger));
        let put = store.put(&path, PutPayload::from(body)).await;
        put.map(|_| ()).map_err(|source| self.failed(source))
    }

    pub(crate) async fn stop_requested(&self, ledger: &Ledger) -> Result<bool, TableError> {
        match self.0.store().head(&stop(ledger)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(self.failed(source)),
        }
    }

    pub(crate) async fn forget_stop(&self, ledger: &Ledger) -> Result<(), TableError> {
        match self.0.store().delete(&stop(ledger)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed(source)),
        }
    }
}

fn folder(flow: &str) -> Path {
    Path::from(partition::folder("flow", Some(flow)))
}

fn stop(ledger: &Ledger) -> Path {
    folder(&ledger.flow).join(format!("{}.stop", ledger.id))
}
