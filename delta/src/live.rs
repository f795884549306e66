//! The active files of a table, kept from one use to the next.
//!
//! An update that is cut into many slices asks for the files of the same tables again and again, and
//! each slice does after the commit of the one before. From the second time on they are kept, in
//! bounded memory, and carried over to a later version by what the commits in between did. Where that
//! is not clear the log is replayed, which is left to [`crate::table`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::batch::FileBatch;
use crate::changes::{self, CommitChanges};
use crate::store::Location;
use crate::table::DataFile;

/// The most that the files of one table may take; larger tables are replayed each time.
const KEPT_BYTES: usize = 32 << 20;
/// Files of a batch that is kept: of a batch that changes, the statistics are read anew.
const BATCH: usize = 256;
/// Commits, and bytes of each, by which what is kept is carried over.
const COMMITS: i64 = 32;
const COMMIT_BYTES: u64 = 4 << 20;

/// All active files of one version.
#[derive(Debug, Default)]
pub(crate) struct LiveFiles {
    pub batches: Vec<Arc<FileBatch>>,
    bytes: usize,
}

/// What makes two entries of a log speak of the same file (Delta protocol, "Action Reconciliation").
#[derive(PartialEq, Eq, Hash)]
struct FileKey<'a>(&'a str, Option<(&'a str, &'a str, Option<i32>)>);

impl<'a> FileKey<'a> {
    fn of(file: &'a DataFile) -> Self {
        let vector = file.deletion_vector.as_ref();
        let vector = vector.map(|v| (v.storage_type.as_str(), v.path_or_inline.as_str(), v.offset));
        Self(&file.log_path, vector)
    }
}

/// Bytes that a file takes, roughly.
fn bytes_of(file: &DataFile) -> usize {
    const FIXED: usize = 300;
    let values = file.partition_values.iter();
    let values: usize = values
        .map(|(k, v)| 64 + k.len() + v.as_ref().map_or(0, String::len))
        .sum();
    FIXED + file.log_path.len() + file.stats.as_ref().map_or(0, String::len) + values
}

impl LiveFiles {
    /// Adds files; `false` when they are too many to be kept.
    pub fn add(&mut self, files: &[Arc<DataFile>]) -> bool {
        self.bytes += files.iter().map(|f| bytes_of(f)).sum::<usize>();
        if self.bytes > KEPT_BYTES {
            return false;
        }
        let batches = files.chunks(BATCH).map(|files| FileBatch::of(files.into()));
        self.batches.extend(batches.map(Arc::new));
        true
    }

    /// The files after one more commit. `None` when they are too many, or when the commit takes away
    /// what is not there or adds what is.
    fn after(&self, commit: &CommitChanges) -> Option<Self> {
        let gone = commit.removed.iter().chain(&commit.moved_out);
        let come = commit.added.iter().chain(&commit.moved_in);
        let gone: Vec<&DataFile> = gone.collect();
        let keys: HashSet<FileKey> = gone.iter().map(|f| FileKey::of(f)).collect();
        let new: HashSet<FileKey> = come.clone().map(FileKey::of).collect();
        let is_clear =
            keys.len() == gone.len() && new.len() == come.clone().count() && keys.is_disjoint(&new);
        if !is_clear {
            return None;
        }
        let (mut batches, mut bytes, mut found) = (Vec::new(), self.bytes, 0);
        for batch in &self.batches {
            if batch.iter().any(|f| new.contains(&FileKey::of(f))) {
                return None;
            }
            let stays = |f: &&Arc<DataFile>| !keys.contains(&FileKey::of(f));
            let kept: Vec<Arc<DataFile>> = batch.iter().filter(stays).cloned().collect();
            if kept.len() == batch.len() {
                batches.push(batch.clone());
                continue;
            }
            found += batch.len() - kept.len();
            if !kept.is_empty() {
                batches.push(Arc::new(FileBatch::of(kept)));
            }
        }
        if found != keys.len() {
            return None;
        }
        bytes -= gone.iter().map(|f| bytes_of(f)).sum::<usize>().min(bytes);
        let mut added: Vec<Arc<DataFile>> = come.cloned().map(Arc::new).collect();
        // Small commits would leave ever more, ever smaller batches.
        while let Some(last) = batches.last()
            && !added.is_empty()
            && last.len() + added.len() <= BATCH
        {
            added.splice(0..0, last.iter().cloned());
            bytes -= last.iter().map(|f| bytes_of(f)).sum::<usize>().min(bytes);
            batches.pop();
        }
        let mut after = Self { batches, bytes };
        after.add(&added).then_some(after)
    }
}

/// Versions of applications, as far as they were asked for.
pub(crate) type Transactions = HashMap<String, Option<i64>>;

/// What was known of a version when a later one was opened.
#[derive(Debug)]
struct Earlier {
    version: i64,
    live: Option<Arc<LiveFiles>>,
    transactions: Transactions,
}

/// What is known of one version of a table.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// How often the files of this version and of earlier ones were asked for.
    asked: AtomicUsize,
    live: Mutex<Option<Arc<LiveFiles>>>,
    transactions: Mutex<Transactions>,
    earlier: Option<Arc<Earlier>>,
    /// The commits after the earlier version; `None` when there are too many of them.
    since: OnceCell<Option<Vec<CommitChanges>>>,
}

impl Kept {
    /// For a later version of the same table.
    pub fn carried(&self, version: i64) -> Self {
        let (live, transactions) = (self.live(), self.transactions().clone());
        let earlier = match (&self.earlier, live.is_none() && transactions.is_empty()) {
            (Some(earlier), true) => Some(earlier.clone()),
            (_, true) => None,
            _ => Some(Arc::new(Earlier {
                version,
                live,
                transactions,
            })),
        };
        Self {
            asked: AtomicUsize::new(self.asked.load(Ordering::Relaxed)),
            earlier,
            ..Self::default()
        }
    }

    fn live(&self) -> Option<Arc<LiveFiles>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    fn transactions(&self) -> std::sync::MutexGuard<'_, Transactions> {
        let known = self.transactions.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts that the files are asked for once more: whether they are worth to be kept.
    pub fn is_asked_again(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) > 0
    }

    pub fn keep(&self, files: LiveFiles) {
        self.set(Arc::new(files));
    }

    fn set(&self, files: Arc<LiveFiles>) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(files);
    }

    /// The files of `version`, which is the version that this belongs to, where they are known.
    pub async fn files(&self, location: &Location, version: i64) -> Option<Arc<LiveFiles>> {
        if let Some(live) = self.live() {
            return Some(live);
        }
        let mut live = self.earlier.as_ref()?.live.clone()?;
        for commit in self.since(location, version).await? {
            live = Arc::new(live.after(commit)?);
        }
        self.set(live.clone());
        Some(live)
    }

    /// The version of an application, where it is known.
    pub async fn transaction(
        &self,
        app_id: &str,
        location: &Location,
        version: i64,
    ) -> Option<Option<i64>> {
        if let Some(known) = self.transactions().get(app_id) {
            return Some(*known);
        }
        let mut known = *self.earlier.as_ref()?.transactions.get(app_id)?;
        for commit in self.since(location, version).await? {
            if let Some(counted) = commit.transactions.get(app_id) {
                known = Some((*counted)?);
            }
        }
        self.learn(app_id, known);
        Some(known)
    }

    pub fn learn(&self, app_id: &str, version: Option<i64>) {
        self.transactions().insert(app_id.to_string(), version);
    }

    async fn since(&self, location: &Location, version: i64) -> Option<&[CommitChanges]> {
        let from = self.earlier.as_ref()?.version;
        let read = || async {
            if version - from > COMMITS {
                return None;
            }
            let mut commits = Vec::new();
            for version in from + 1..=version {
                // Whoever replays the log is told what is wrong with it.
                let commit = changes::at_most(location, version, COMMIT_BYTES).await;
                commits.push(commit.ok().flatten()?);
            }
            Some(commits)
        };
        self.since.get_or_init(read).await.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::DeletionVector;

    fn file(path: &str, vector: Option<i32>) -> DataFile {
        DataFile {
            log_path: path.into(),
            size: 1,
            modification_time: 0,
            partition_values: HashMap::new(),
            stats: None,
            deletion_vector: vector.map(|offset| DeletionVector {
                storage_type: "u".into(),
                path_or_inline: "v".into(),
                offset: Some(offset),
                size_in_bytes: 1,
                cardinality: 1,
            }),
        }
    }

    fn live(files: impl IntoIterator<Item = DataFile>) -> LiveFiles {
        let files: Vec<_> = files.into_iter().map(Arc::new).collect();
        let mut live = LiveFiles::default();
        assert!(live.add(&files));
        live
    }

    fn commit(added: &[DataFile], removed: &[DataFile]) -> CommitChanges {
        CommitChanges {
            added: added.to_vec(),
            removed: removed.to_vec(),
            ..CommitChanges::default()
        }
    }

    fn paths(live: &LiveFiles) -> Vec<String> {
        let files = live.batches.iter().flat_map(|b| b.iter());
        let mut paths: Vec<String> = files.map(|f| f.log_path.clone()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn commits_carry_files_over() {
        let many = live((0..1000).map(|i| file(&format!("{i:04}"), None)));
        let gone: Vec<DataFile> = (300..310).map(|i| file(&format!("{i:04}"), None)).collect();
        let after = many.after(&commit(&[file("new", None)], &gone)).unwrap();
        let expected: Vec<String> = (0..1000)
            .filter(|i| !(300..310).contains(i))
            .map(|i| format!("{i:04}"))
            .chain(["new".into()])
            .collect();
        assert_eq!(paths(&after), expected);
        // Batches that the commit has nothing to do with keep what was read out of them.
        assert!(Arc::ptr_eq(&many.batches[0], &after.batches[0]));
        assert!(!Arc::ptr_eq(&many.batches[1], &after.batches[1]));
        let same = live(paths(&after).iter().map(|path| file(path, None)));
        assert_eq!(after.bytes, same.bytes);
        let mut small = live([]);
        for i in 0..600 {
            small = small
                .after(&commit(&[file(&format!("{i:04}"), None)], &[]))
                .unwrap();
        }
        assert_eq!(small.batches.len(), 3);
        assert_eq!(paths(&small).len(), 600);
    }

    #[test]
    fn a_deletion_vector_makes_another_file_of_it() {
        let before = live([file("a", None), file("b", Some(1))]);
        let deleted = commit(&[file("a", Some(2))], &[file("a", None)]);
        let after = before.after(&deleted).unwrap();
        assert_eq!(paths(&after), ["a", "b"]);
        assert!(after.after(&deleted).is_none());
    }

    #[test]
    fn what_is_not_clear_is_not_carried_over() {
        let before = live([file("a", None), file("b", None)]);
        let (a, c) = (file("a", None), file("c", None));
        assert!(
            before
                .after(&commit(std::slice::from_ref(&a), &[]))
                .is_none()
        );
        assert!(
            before
                .after(&commit(&[], std::slice::from_ref(&c)))
                .is_none()
        );
        assert!(
            before
                .after(&commit(&[], &[a.clone(), a.clone()]))
                .is_none()
        );
        assert!(before.after(&commit(&[c.clone(), c], &[])).is_none());
        assert!(
            before
                .after(&commit(std::slice::from_ref(&a), std::slice::from_ref(&a)))
                .is_none()
        );
        let long = DataFile {
            stats: Some("x".repeat(KEPT_BYTES)),
            ..file("long", None)
        };
        assert!(before.after(&commit(&[long], &[])).is_none());
    }
}
