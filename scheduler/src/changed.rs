//! What changed of a source since a flow's last refresh: which of its files hold the changed rows.
//!
//! The log tells it twice where a writer left change data: by the data files that came and went, and
//! by the changed rows themselves. Both are kept here as long as both say the same, and the shorter
//! one is read. Only the log is read here; the rows are `incremental`'s.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::conjunction;
use windrow_delta::batch::FileBatch;
use windrow_delta::changes::{self, CHANGE_TYPE, CommitChanges};
use windrow_delta::prune::{FilePredicate, Pruner};
use windrow_delta::state::DefinedRefresh;
use windrow_delta::{DataFile, Table, TableError, commit};
use windrow_executor::scan::{file_key, query_name};
use windrow_flows::refresh::SourceChange;

use crate::facts::short_fingerprint;
use crate::flow::{FlowPlan, ScanFilters};

/// A source that changed, with the files in which its changed rows lie.
pub struct ChangedSource {
    pub shown: String,
    pub table: Table,
    /// Added files, as far as the window's filters let them matter.
    pub added: Vec<DataFile>,
    /// Removed files, likewise.
    pub removed: Vec<DataFile>,
    /// Files were rearranged meanwhile, so that rows of `added` may lie in other files by now.
    pub rearranged: bool,
    /// The same change by change data, where that is shorter.
    pub change_data: Option<ChangeData>,
}

/// A change as far as its commits left change data: the rows of `added` came and those of `removed`
/// went with commits that left none, and the rows of `changes` say themselves what they are.
#[derive(Debug, Default, Clone)]
pub struct ChangeData {
    pub added: Vec<DataFile>,
    pub removed: Vec<DataFile>,
    pub changes: Vec<DataFile>,
}

impl ChangeData {
    /// What it takes to read all of it.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.added) + bytes_of(&self.removed) + bytes_of(&self.changes)
    }
}

impl ChangedSource {
    /// Takes in the same table as it is read under another name, with other filters.
    pub fn join(&mut self, other: Self) {
        fn join(files: &mut Vec<DataFile>, more: Vec<DataFile>) {
            for file in more {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        self.rearranged |= other.rearranged;
        join(&mut self.added, other.added);
        join(&mut self.removed, other.removed);
        // Rows told in one way can't be set off against rows told in the other.
        self.change_data = match (self.change_data.take(), other.change_data) {
            (Some(mut known), Some(more)) => {
                join(&mut known.added, more.added);
                join(&mut known.removed, more.removed);
                join(&mut known.changes, more.changes);
                Some(known)
            }
            _ => None,
        };
    }

    /// Keeps the change data only where they are the shorter way to tell the change. A source that only
    /// grew is told by its new files, to which rows can be added.
    pub fn settle(&mut self) {
        let by_files = bytes_of(&self.added) + bytes_of(&self.removed);
        let grew = self.removed.is_empty();
        self.change_data = self
            .change_data
            .take()
            .filter(|found| !grew && found.bytes() < by_files);
    }
}

pub fn bytes_of(files: &[DataFile]) -> u64 {
    files.iter().map(|f| f.size.unsigned_abs()).sum()
}

/// Files of a source that changed between two versions.
#[derive(Default)]
struct ChangedFiles {
    added: Vec<DataFile>,
    removed: Vec<DataFile>,
    rearranged: bool,
}

/// What became of a source since `last`, and of one that changed what changed. With `base_is_exact` the
/// target holds what the source gave then; otherwise all that came or went since is named.
///
/// # Errors
/// If the source's log can't be read.
pub async fn source_change(
    plan: &FlowPlan,
    shown: &str,
    table: &Table,
    last: &DefinedRefresh,
    filters: &ScanFilters,
    base_is_exact: bool,
) -> Result<(SourceChange, Option<ChangedSource>), TableError> {
    let only = |change: SourceChange| (change, None);
    let Some(before) = last.sources.iter().find(|s| s.name == shown) else {
        return Ok(only(SourceChange::HistoryGone));
    };
    let same = before.url == table.location().url().as_str() && before.table_id == table.id();
    if !same || before.version > table.version() {
        return Ok(only(SourceChange::HistoryGone));
    }
    // A table that was restored from a copy has gone another way under the same numbers.
    let now = match before.version == table.version() {
        true => table.mark().await?,
        false if before.mark.is_some() => commit::mark(table.location(), before.version).await?,
        false => None,
    };
    if now.is_some() && before.mark.is_some() && now != before.mark {
        return Ok(only(SourceChange::HistoryGone));
    }
    if before.version == table.version() {
        return Ok(only(SourceChange::Unchanged));
    }
    let commits = changes::between(table.location(), before.version, table.version()).await?;
    let Some(commits) = commits else {
        return Ok(only(SourceChange::HistoryGone));
    };
    // The same files under other column names are other rows.
    if before.columns != short_fingerprint(&table.schema().to_schema_string()) {
        return Ok(only(SourceChange::SchemaChanged));
    }
    let matter = |files: Vec<DataFile>| files_that_matter(plan, shown, table, files, filters);
    let change_data = match can_be_told_by_changes(table, &commits) {
        true => by_change_data(&commits, base_is_exact, &matter)?,
        false => None,
    };
    let files = match base_is_exact {
        true => net_files(commits),
        false => all_files(commits),
    };
    let (added, removed) = (matter(files.added)?, matter(files.removed)?);
    if added.is_empty() && removed.is_empty() {
        return Ok(only(SourceChange::Unchanged));
    }
    let source = ChangedSource {
        shown: shown.to_string(),
        table: table.clone(),
        added,
        removed,
        rearranged: files.rearranged,
        change_data,
    };
    Ok((SourceChange::Changed, Some(source)))
}

/// Whether the commits left change data that are rows of the table as it is now.
fn can_be_told_by_changes(table: &Table, commits: &[CommitChanges]) -> bool {
    let columns = &table.schema().columns;
    commits.iter().any(|c| !c.change_data.is_empty())
        // Between two changes of the columns a row may have had others, or values of other types.
        && !commits.iter().any(|c| c.metadata_changed)
        && !columns.iter().any(|c| query_name(&c.name) == CHANGE_TYPE)
        // A file of which the log has no size can't be read.
        && commits
            .iter()
            .flat_map(|c| &c.change_data)
            .all(|f| f.size > 0)
}

/// The change by the change data of the commits that left some, and by the files of all others.
fn by_change_data(
    commits: &[CommitChanges],
    net: bool,
    matter: &impl Fn(Vec<DataFile>) -> Result<Vec<DataFile>, TableError>,
) -> Result<Option<ChangeData>, TableError> {
    let (with, without): (Vec<_>, Vec<_>) = commits
        .iter()
        .cloned()
        .partition(|c| !c.change_data.is_empty());
    let mut changes = Vec::new();
    for commit in with {
        // Change data have no statistics. But their rows are rows of the files that the same commit
        // brought or took, which have.
        let files = commit.added.into_iter().chain(commit.removed).collect();
        if !matter(files)?.is_empty() {
            changes.extend(commit.change_data);
        }
    }
    let files = match net {
        true => match counted_files(without) {
            Some(files) => files,
            None => return Ok(None),
        },
        false => all_files(without),
    };
    Ok(Some(ChangeData {
        added: matter(files.added)?,
        removed: matter(files.removed)?,
        changes: matter(changes)?,
    }))
}

/// What some of the commits come to, those in between having been left out: how often a file came more
/// than it went. `None` where that is more than once, as when one of the others took it out.
fn counted_files(commits: Vec<CommitChanges>) -> Option<ChangedFiles> {
    let (mut counts, mut order) = (HashMap::<String, (DataFile, i64)>::new(), Vec::new());
    for commit in commits {
        let removed = commit.removed.into_iter().map(|f| (f, -1));
        let added = commit.added.into_iter().map(|f| (f, 1));
        for (file, count) in removed.chain(added) {
            let key = file_key(&file);
            match counts.entry(key) {
                Entry::Occupied(mut known) => known.get_mut().1 += count,
                Entry::Vacant(new) => {
                    order.push(new.key().clone());
                    new.insert((file, count));
                }
            }
        }
    }
    let mut files = ChangedFiles::default();
    for key in order {
        match counts.remove(&key) {
            Some((file, 1)) => files.added.push(file),
            Some((file, -1)) => files.removed.push(file),
            Some((_, 0)) | None => {}
            Some(_) => return None,
        }
    }
    Some(files)
}

/// All files that came or went. Rows of the target that an override wrote are those of some version
/// in between: whatever differs from then until now lies in one of these files.
fn all_files(commits: impl IntoIterator<Item = CommitChanges>) -> ChangedFiles {
    let mut files = ChangedFiles {
        rearranged: true,
        ..ChangedFiles::default()
    };
    let (mut added, mut removed) = (HashSet::new(), HashSet::new());
    for commit in commits {
        let new = commit.added.into_iter();
        files
            .added
            .extend(new.filter(|f| added.insert(file_key(f))));
        let old = commit.removed.into_iter();
        files
            .removed
            .extend(old.filter(|f| removed.insert(file_key(f))));
    }
    files
}

/// What the commits come to: a file that came and went in between was never seen and is not there
/// any more, one that went and came back is where it was.
fn net_files(commits: Vec<CommitChanges>) -> ChangedFiles {
    struct Seen {
        file: DataFile,
        was_there: bool,
        is_there: bool,
    }
    let (mut seen, mut order) = (HashMap::<String, Seen>::new(), Vec::new());
    let mut note = |file: DataFile, is_there: bool| {
        let key = file_key(&file);
        match seen.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().is_there = is_there,
            Entry::Vacant(new) => {
                order.push(new.key().clone());
                new.insert(Seen {
                    file,
                    was_there: !is_there,
                    is_there,
                });
            }
        }
    };
    let mut rearranged = false;
    for commit in commits {
        rearranged |= !commit.moved_in.is_empty() || !commit.moved_out.is_empty();
        for file in commit.removed {
            note(file, false);
        }
        for file in commit.added {
            note(file, true);
        }
    }
    let mut files = ChangedFiles {
        rearranged,
        ..ChangedFiles::default()
    };
    for key in order {
        if let Some(seen) = seen.remove(&key) {
            match (seen.was_there, seen.is_there) {
                (false, true) => files.added.push(seen.file),
                (true, false) => files.removed.push(seen.file),
                _ => {}
            }
        }
    }
    files
}

/// Changed files that some scan of the source could read a row of, by the filters on it.
fn files_that_matter(
    plan: &FlowPlan,
    shown: &str,
    table: &Table,
    files: Vec<DataFile>,
    filters: &ScanFilters,
) -> Result<Vec<DataFile>, TableError> {
    if files.is_empty() {
        return Ok(files);
    }
    let url = table.location().shown();
    let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(
        table
            .schema()
            .columns
            .iter()
            .map(|c| {
                datafusion::arrow::datatypes::Field::new(
                    query_name(&c.name),
                    c.data_type.clone(),
                    true,
                )
            })
            .collect::<Vec<_>>(),
    ));
    let scans = filters.on(shown);
    if scans.is_empty() {
        return Ok(files);
    }
    let batch = FileBatch::new(files);
    let mut matter = vec![false; batch.len()];
    for list in scans {
        let holds = conjunction(list.iter().cloned()).and_then(|predicate| {
            let df_schema = DFSchema::try_from(schema.as_ref().clone()).ok()?;
            let bare = windrow_executor::predicate::bare(predicate).ok()?;
            plan.bound.state.create_physical_expr(bare, &df_schema).ok()
        });
        match holds {
            None => matter.fill(true),
            Some(holds) => {
                let predicate = FilePredicate {
                    schema: schema.clone(),
                    fails: datafusion::physical_expr::expressions::lit(true),
                    holds,
                };
                let pruner = Pruner::new(table.schema().clone(), predicate);
                for (matters, may) in matter.iter_mut().zip(pruner.may_match(&batch, &url)?) {
                    *matters |= may;
                }
            }
        }
    }
    Ok(batch
        .into_files()
        .zip(matter)
        .filter(|(_, m)| *m)
        .map(|(f, _)| f)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> DataFile {
        DataFile {
            log_path: path.into(),
            size: 10,
            modification_time: 0,
            partition_values: HashMap::new(),
            stats: None,
            deletion_vector: None,
        }
    }

    fn commit(added: &[&str], removed: &[&str], change_data: &[&str]) -> CommitChanges {
        let files = |paths: &[&str]| paths.iter().map(|p| file(p)).collect();
        CommitChanges {
            added: files(added),
            removed: files(removed),
            change_data: files(change_data),
            ..CommitChanges::default()
        }
    }

    /// Paths of what came, what went, and the change data.
    fn told(commits: &[CommitChanges], net: bool) -> Option<[Vec<String>; 3]> {
        let all = |files: Vec<DataFile>| Ok(files);
        let found = by_change_data(commits, net, &all).expect("no log is read")?;
        let paths = |files: Vec<DataFile>| files.into_iter().map(|f| f.log_path).collect();
        Some([
            paths(found.added),
            paths(found.removed),
            paths(found.changes),
        ])
    }

    fn paths(of: [&[&str]; 3]) -> Option<[Vec<String>; 3]> {
        Some(of.map(|paths| paths.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn commits_without_change_data_are_told_by_their_files() {
        let commits = [
            commit(&["a"], &[], &[]),
            commit(&["b"], &["a"], &["1"]),
            commit(&["c"], &["b"], &[]),
            commit(&["d"], &["c"], &[]),
        ];
        // a came with all of its rows, 1 made b of it, and d is what is left of b.
        assert_eq!(told(&commits, true), paths([&["a", "d"], &["b"], &["1"]]));
        // Without setting off everything that came or went is named.
        assert_eq!(
            told(&commits, false),
            paths([&["a", "c", "d"], &["b", "c"], &["1"]])
        );
    }

    #[test]
    fn a_file_that_came_twice_is_no_sum_of_changes() {
        let commits = [
            commit(&["a"], &[], &[]),
            commit(&["b"], &["a"], &["1"]),
            commit(&["a"], &["b"], &[]),
        ];
        assert_eq!(told(&commits, true), None);
    }

    #[test]
    fn change_data_of_files_that_do_not_matter_are_left_out() {
        let commits = [
            commit(&["b"], &["a"], &["1"]),
            commit(&["y"], &["x"], &["2"]),
        ];
        let matter = |files: Vec<DataFile>| {
            let kept = files.into_iter().filter(|f| !"xy".contains(&f.log_path));
            Ok(kept.collect())
        };
        let found = by_change_data(&commits, true, &matter)
            .expect("no log is read")
            .expect("it is told");
        let changes: Vec<&str> = found.changes.iter().map(|f| f.log_path.as_str()).collect();
        assert_eq!(changes, ["1"]);
    }
}
