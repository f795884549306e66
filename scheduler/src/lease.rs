//! Who leads, of several schedulers on one storage: a lease that is renewed by conditional put, and
//! the fence that stops a leader which was deposed.
//!
//! Time is never compared between machines: a lease is free once it has not changed for its whole
//! duration by the clock of the one who waits, and its holder stops counting on it earlier, by its own
//! clock from before the last renewal. On a local folder, where nothing can be put on condition, the
//! lock of a file does the same.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use serde::{Deserialize, Serialize};
use windrow_delta::{Location, TableError};

const NAME: &str = "system/scheduler/lease.json";
const LOCK: &str = "system/scheduler/lease.lock";

/// Asked before every commit.
pub trait Fence: fmt::Debug + Send + Sync {
    /// # Errors
    /// In words, when this process may not commit any more.
    fn may_commit(&self) -> Result<(), String>;
}

/// Why a lease can't be had or held.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Location(#[from] TableError),
    #[error("the lease at {at} can't be read or written: {reason}")]
    Store { at: String, reason: String },
    #[error("another scheduler took the lease at {at}")]
    Lost { at: String },
}

impl LeaseError {
    /// Stable code, listed in docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Location(error) => error.code(),
            Self::Store { .. } => "LEASE_NOT_REACHABLE",
            Self::Lost { .. } => "LEASE_LOST",
        }
    }
}

/// What the lease's object says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// The process that holds it.
    holder: String,
    /// Grows with each new holder.
    epoch: u64,
    /// Grows with each renewal, so that no two contents are alike.
    renewal: u64,
    /// Milliseconds after the last renewal at which others may take it.
    duration_ms: u64,
}

/// A lease that this process holds.
#[derive(Debug)]
pub struct Lease {
    kind: Kind,
    at: String,
    pub epoch: u64,
}

enum Kind {
    /// Locked as long as it is open.
    Folder { _lock: File },
    Object {
        store: Arc<dyn ObjectStore>,
        duration: Duration,
        held: Mutex<Held>,
    },
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder { .. } => "a locked file",
            Self::Object { .. } => "an object",
        })
    }
}

#[derive(Debug)]
struct Held {
    content: Content,
    version: UpdateVersion,
    /// When the last renewal that succeeded was begun.
    renewed: Instant,
    is_lost: bool,
}

fn payload(content: &Content) -> PutPayload {
    PutPayload::from(serde_json::json!(content).to_string())
}

fn put(mode: PutMode) -> PutOptions {
    PutOptions {
        mode,
        ..PutOptions::default()
    }
}

/// What was found at the lease's place.
enum Found {
    Nothing,
    Lease(Content, UpdateVersion),
}

async fn find(store: &dyn ObjectStore, at: &str) -> Result<Found, LeaseError> {
    let broken = |reason: String| LeaseError::Store {
        at: at.to_string(),
        reason,
    };
    let got = match store.get(&Path::from(NAME)).await {
        Ok(got) => got,
        Err(StoreError::NotFound { .. }) => return Ok(Found::Nothing),
        Err(error) => return Err(broken(error.to_string())),
    };
    let version = UpdateVersion {
        e_tag: got.meta.e_tag.clone(),
        version: got.meta.version.clone(),
    };
    let bytes = got.bytes().await.map_err(|e| broken(e.to_string()))?;
    let content = serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?;
    Ok(Found::Lease(content, version))
}

impl Lease {
    /// Waits until this process, `holder`, leads. `waiting` is told of each other one that does.
    ///
    /// # Errors
    /// If the storage can't be used.
    pub async fn acquire(
        root: &Location,
        holder: &str,
        duration: Duration,
        mut waiting: impl FnMut(&str),
    ) -> Result<Self, LeaseError> {
        let at = root.shown();
        // Addresses and process numbers are the same in every container; two that took each other's
        // content for their own would both lead.
        let holder = format!("{holder} {}", uuid::Uuid::new_v4());
        let mut told = String::new();
        let mut tell = |who: &str| {
            if who != told {
                told = who.to_string();
                waiting(who);
            }
        };
        if let Ok(folder) = root.url().to_file_path() {
            let lock = locked(&folder.join(LOCK), &at, &mut tell).await?;
            return Ok(Self {
                kind: Kind::Folder { _lock: lock },
                at,
                epoch: 1,
            });
        }
        let store = root.store();
        let mut seen: Option<(Content, Instant)> = None;
        loop {
            let begun = Instant::now();
            let (mode, epoch) = match find(store.as_ref(), &at).await? {
                Found::Nothing => (Some(PutMode::Create), 1),
                Found::Lease(content, version) => {
                    let unchanged = match &seen {
                        Some((last, since)) if *last == content => since.elapsed(),
                        _ => {
                            seen = Some((content.clone(), Instant::now()));
                            Duration::ZERO
                        }
                    };
                    let free = unchanged > Duration::from_millis(content.duration_ms);
                    if !free {
                        tell(&content.holder);
                    }
                    (free.then_some(PutMode::Update(version)), content.epoch + 1)
                }
            };
            if let Some(mode) = mode {
                let content = Content {
                    holder: holder.clone(),
                    epoch,
                    renewal: 0,
                    duration_ms: duration.as_millis() as u64,
                };
                let result = store
                    .put_opts(&Path::from(NAME), payload(&content), put(mode))
                    .await;
                // Whatever was answered: what lies there now says who leads.
                if let Found::Lease(now, version) = find(store.as_ref(), &at).await?
                    && now == content
                {
                    let held = Mutex::new(Held {
                        content,
                        version,
                        renewed: begun,
                        is_lost: false,
                    });
                    return Ok(Self {
                        kind: Kind::Object {
                            store,
                            duration,
                            held,
                        },
                        at,
                        epoch,
                    });
                }
                if let Err(error) = result {
                    tracing::debug!(%error, "the lease was not taken");
                }
            }
            tokio::time::sleep(duration / 10).await;
        }
    }

    /// Lets others lead at once.
    pub async fn give_back(&self) {
        if let Kind::Object { store, held, .. } = &self.kind {
            held.lock().unwrap_or_else(PoisonError::into_inner).is_lost = true;
            // An older leader's object that was removed by mistake is no harm: the next one begins anew.
            if let Err(error) = store.delete(&Path::from(NAME)).await {
                tracing::debug!(%error, "the lease was not given back");
            }
        }
    }

    /// Renews the lease until it is lost. A lease that can't be renewed in time is lost too.
    pub async fn keep(&self) -> LeaseError {
        let lost = || LeaseError::Lost {
            at: self.at.clone(),
        };
        let Kind::Object {
            store,
            duration,
            held,
        } = &self.kind
        else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(*duration / 4).await;
            let begun = Instant::now();
            let (content, version) = {
                let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                let renewal = held.content.renewal + 1;
                let content = Content {
                    renewal,
                    ..held.content.clone()
                };
                (content, held.version.clone())
            };
            let renewed = async {
                let answer = store
                    .put_opts(
                        &Path::from(NAME),
                        payload(&content),
                        put(PutMode::Update(version)),
                    )
                    .await;
                match find(store.as_ref(), &self.at).await {
                    Ok(Found::Lease(now, version)) if now == content => Seen::Renewed(now, version),
                    // The put did not arrive, or an earlier one did that was given up.
                    Ok(Found::Lease(now, version))
                        if now.holder == content.holder && now.epoch == content.epoch =>
                    {
                        Seen::Ours(now, version)
                    }
                    Ok(_) => Seen::Taken,
                    Err(error) => {
                        tracing::warn!(%error, ?answer, "the lease was not renewed");
                        Seen::Nothing
                    }
                }
            };
            let seen = tokio::time::timeout(*duration / 2, renewed)
                .await
                .unwrap_or(Seen::Nothing);
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            match seen {
                Seen::Renewed(content, version) => {
                    held.content = content;
                    held.version = version;
                    held.renewed = begun;
                }
                Seen::Ours(content, version) => {
                    held.content = content;
                    held.version = version;
                }
                Seen::Taken => held.is_lost = true,
                Seen::Nothing => {}
            }
            if held.is_lost || held.renewed.elapsed() > *duration {
                held.is_lost = true;
                return lost();
            }
        }
    }
}

/// What lies at the lease's place after a renewal was tried.
enum Seen {
    Renewed(Content, UpdateVersion),
    Ours(Content, UpdateVersion),
    Taken,
    Nothing,
}

impl Fence for Lease {
    fn may_commit(&self) -> Result<(), String> {
        let Kind::Object { duration, held, .. } = &self.kind else {
            return Ok(());
        };
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        // A commit that begins now must have arrived before another process leads.
        let safe = duration.mul_f32(0.75);
        match !held.is_lost && held.renewed.elapsed() < safe {
            true => Ok(()),
            false => Err(format!(
                "this scheduler does not lead any more: its lease at {} was not renewed in time",
                self.at
            )),
        }
    }
}

async fn locked(path: &PathBuf, at: &str, tell: &mut impl FnMut(&str)) -> Result<File, LeaseError> {
    let broken = |e: std::io::Error| LeaseError::Store {
        at: at.to_string(),
        reason: e.to_string(),
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(broken)?;
    }
    loop {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(broken)?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tell("another process"),
            Err(TryLockError::Error(error)) => return Err(broken(error)),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
