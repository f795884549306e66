//! Moving a commit past commits of others that have nothing to do with its window.
//!
//! A writer that appends all the time would win every race against an update that plans its removal
//! anew after each conflict. So the entries in between are read first: if none of them has a file
//! that can hold a row of the window, and none changes what the table is, the same actions are right
//! for the next free version too. What to do when they are not is the caller's business.

use windrow_delta::batch::FileBatch;
use windrow_delta::changes::{self, CommitChanges};
use windrow_delta::prune::{Pruner, Verdict};
use windrow_delta::state::app_id;
use windrow_delta::{Table, TableError};

use crate::flow::FlowPlan;

/// The version at which the commit can be tried next, after it met the commit of another at
/// `taken`; `None` when the flow must look again at what it does.
pub async fn past(
    plan: &FlowPlan,
    flow: &str,
    target: Option<&Table>,
    taken: i64,
) -> Result<Option<i64>, TableError> {
    let (Some(target), Some(pinned)) = (target, &plan.pinned) else {
        return Ok(None);
    };
    if plan.full_refresh {
        return Ok(None);
    }
    let url = target.location().shown();
    let predicate = pinned
        .typed
        .for_files(&plan.bound.state)
        .map_err(|e| TableError::Query {
            url: url.clone(),
            source: Box::new(e),
        })?;
    let pruner = Pruner::new(target.schema().clone(), predicate);
    let apart = |commit: &CommitChanges| -> Result<bool, TableError> {
        if commit.metadata_changed || commit.transactions.contains_key(&app_id(flow)) {
            return Ok(false);
        }
        for files in [
            &commit.added,
            &commit.removed,
            &commit.moved_in,
            &commit.moved_out,
        ] {
            let verdicts = pruner.verdicts(&FileBatch::new(files.iter().cloned()), &url)?;
            if verdicts.iter().any(|v| *v != Verdict::NoRow) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let mut version = taken;
    while let Some(commit) = changes::at(target.location(), version).await? {
        if !apart(&commit)? {
            return Ok(None);
        }
        version += 1;
    }
    // The entry that was in the way must have been seen; a log whose entry is gone again is strange.
    Ok((version > taken).then_some(version))
}
