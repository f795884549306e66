//! What changed since a flow's last refresh: the facts on which the technique is decided.
//!
//! Only the logs are read, and of the target those files of which the log does not tell whether a
//! foreign commit touched the window.

use std::sync::Arc;

use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use futures::future::try_join_all;
use windrow_delta::batch::FileBatch;
use windrow_delta::changes::{self, CommitChanges};
use windrow_delta::prune::{Pruner, Verdict};
use windrow_delta::state::{DefinedRefresh, FlowState, SourceState};
use windrow_delta::{DataFile, Table, TableError};
use windrow_executor::local;
use windrow_executor::scan::{DeltaSource, FILE_COLUMN, ScanLog};
use windrow_flows::refresh::{Facts, SourceChange};
use windrow_flows::window::Window;

use crate::bind::ReadKind;
use crate::changed::{ChangedSource, source_change};
use crate::flow::{FlowPlan, ScanFilters};
use crate::removal::existing_rows;

/// The facts, and the changed sources behind them.
pub struct Gathered {
    pub facts: Facts,
    pub changed: Vec<ChangedSource>,
    /// Since the last refresh no run of the flow (an override) changed rows of the target, so that the
    /// window holds exactly what the sources gave then. Otherwise the changed files are all that came
    /// or went since, and their rows can't be set off against each other.
    pub base_is_exact: bool,
    /// What of the window the last one did not cover, as a condition on its rows, where that can be
    /// told and is all that has changed about it.
    pub uncovered: Option<Expr>,
}

/// The sources of a plan as the flow state keeps them; false when one has no versions.
///
/// # Errors
/// If a source's log can't be read.
pub async fn source_states(plan: &FlowPlan) -> Result<(Vec<SourceState>, bool), TableError> {
    let mut tables: Vec<(&str, &Table)> = Vec::new();
    let mut versioned = true;
    for read in &plan.bound.reads {
        match &read.kind {
            ReadKind::Delta(table) => {
                if !tables.iter().any(|(name, _)| *name == read.shown) {
                    tables.push((&read.shown, table));
                }
            }
            ReadKind::Planned | ReadKind::Files => versioned = false,
        }
    }
    let states = tables.into_iter().map(async |(name, table)| {
        Ok(SourceState {
            name: name.to_string(),
            url: table.location().url().to_string(),
            table_id: table.id().to_string(),
            version: table.version(),
            mark: table.mark().await?,
            columns: short_fingerprint(&table.schema().to_schema_string()),
        })
    });
    Ok((try_join_all(states).await?, versioned))
}

/// The clock on which a query depends, for the flow state.
pub fn query_clock(plan: &FlowPlan, clock: &chrono::DateTime<chrono::Utc>) -> Option<String> {
    plan.bound.uses_clock.then(|| clock.to_rfc3339())
}

/// Gathers the facts about a planned flow.
pub async fn gather(
    plan: &FlowPlan,
    state: Option<&FlowState>,
    filters: &ScanFilters,
    time_zone: &str,
    clock: &chrono::DateTime<chrono::Utc>,
) -> Result<Gathered, TableError> {
    let last = state
        .and_then(|s| s.defined.as_ref())
        .filter(|_| !plan.full_refresh);
    let (Some(last), Some(existing)) = (last, &plan.existing) else {
        let facts = Facts {
            full_refresh: plan.full_refresh,
            is_override: plan.is_override,
            has_state: false,
            ..Facts::default()
        };
        return Ok(Gathered {
            facts,
            changed: Vec::new(),
            base_is_exact: false,
            uncovered: None,
        });
    };
    let fingerprint = plan.fingerprint();
    let old_window: Option<Window> = serde_json::from_str(&last.predicate).ok();
    let mut facts = Facts {
        full_refresh: false,
        is_override: plan.is_override,
        has_state: true,
        query_changed: last.fingerprint != fingerprint,
        time_zone_changed: last.time_zone != time_zone,
        window_covered: old_window
            .as_ref()
            .is_some_and(|old| plan.window.lies_in(old)),
        predicate_deterministic: plan.pinned.as_ref().is_none_or(|p| p.deterministic),
        prior_predicate_deterministic: last.predicate_deterministic,
        query_repeatable: !plan.bound.nondeterministic
            && (!plan.bound.uses_clock || last.query_clock == query_clock(plan, clock)),
        // A predicate without columns is the whole table or nothing; there is nothing to reach.
        predicate_reaches: plan
            .pinned
            .as_ref()
            .is_none_or(|p| p.typed.expr.column_refs().is_empty()),
        ..Facts::default()
    };
    let mut base_is_exact = true;
    if !facts.query_changed {
        let run_by = run_fingerprint(plan, time_zone, clock);
        match foreign_changes(plan, existing, last, &run_by).await? {
            Foreign::None => {}
            Foreign::OwnOverride => base_is_exact = false,
            Foreign::InWindow => facts.external_change_in_window = true,
            Foreign::OtherQuery => facts.query_changed = true,
        }
    }
    let mut changed = Vec::new();
    for read in &plan.bound.reads {
        let ReadKind::Delta(table) = &read.kind else {
            facts.sources.push(SourceChange::NotInDelta);
            continue;
        };
        let (change, source) =
            source_change(plan, &read.shown, table, last, filters, base_is_exact).await?;
        facts.sources.push(change);
        facts.predicate_reaches |= filters.reaches_some(&read.shown);
        changed.extend(source);
    }
    Ok(Gathered {
        facts,
        changed,
        base_is_exact,
        uncovered: old_window.and_then(|old| uncovered(plan, &old)),
    })
}

/// The rows of the window that `old` does not cover.
fn uncovered(plan: &FlowPlan, old: &Window) -> Option<Expr> {
    let bounds = plan.window.beyond(old)?;
    bounds
        .iter()
        .map(|bound| {
            let field = plan.target_schema.field_with_name(&bound.column).ok()?;
            let inside = bound.expr(field.data_type())?;
            Some(Expr::IsNotTrue(Box::new(inside)))
        })
        .collect::<Option<Vec<Expr>>>()?
        .into_iter()
        .reduce(Expr::or)
}

enum Foreign {
    None,
    /// Nothing foreign, but overrides of this flow wrote rows.
    OwnOverride,
    InWindow,
    /// An override by another query wrote to the window.
    OtherQuery,
}

/// What a run of the flow computes, in short, for the commit info: its query, and the clock and time
/// zone on which that may rest.
pub fn run_fingerprint(
    plan: &FlowPlan,
    time_zone: &str,
    clock: &chrono::DateTime<chrono::Utc>,
) -> String {
    let clock = query_clock(plan, clock).unwrap_or_default();
    short_fingerprint(&format!("{}\n{time_zone}\n{clock}", plan.fingerprint()))
}

/// A short name for a fingerprint, kept in the commit info.
pub fn short_fingerprint(fingerprint: &str) -> String {
    use std::hash::Hasher;
    // FNV-1a: stable over versions, which the standard hasher does not promise.
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for b in bytes {
                self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(fingerprint.as_bytes());
    format!("{:016x}", hasher.finish())
}

async fn foreign_changes(
    plan: &FlowPlan,
    existing: &Table,
    last: &DefinedRefresh,
    run_by: &str,
) -> Result<Foreign, TableError> {
    if existing.version() == last.target_version {
        return Ok(Foreign::None);
    }
    let commits =
        changes::between(existing.location(), last.target_version, existing.version()).await?;
    let Some(commits) = commits else {
        return Ok(Foreign::InWindow);
    };
    let own = |c: &CommitChanges| c.windrow.is_some();
    let other_query = commits
        .iter()
        .filter(|c| own(c) && c.changes_rows())
        .any(|c| {
            c.windrow
                .as_ref()
                .and_then(|w| w.get("fingerprint"))
                .and_then(|f| f.as_str())
                != Some(run_by)
        });
    if other_query {
        return Ok(Foreign::OtherQuery);
    }
    let quiet = if commits.iter().any(|c| own(c) && c.changes_rows()) {
        Foreign::OwnOverride
    } else {
        Foreign::None
    };
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for commit in commits.into_iter().filter(|c| !own(c)) {
        added.extend(commit.added);
        removed.extend(commit.removed);
    }
    let (added, removed) = (
        may_touch(plan, existing, added)?,
        may_touch(plan, existing, removed)?,
    );
    if added.is_empty() && removed.is_empty() {
        return Ok(quiet);
    }
    match rows_differ(plan, existing, added, removed).await {
        Ok(false) => Ok(quiet),
        Ok(true) => Ok(Foreign::InWindow),
        // A file that is gone can't be read; then the worst is assumed.
        Err(error) => {
            tracing::debug!(%error, "foreign changes could not be read");
            Ok(Foreign::InWindow)
        }
    }
}

/// The files that may hold rows of the window.
fn may_touch(
    plan: &FlowPlan,
    existing: &Table,
    files: Vec<DataFile>,
) -> Result<Vec<DataFile>, TableError> {
    let Some(pinned) = &plan.pinned else {
        return Ok(files);
    };
    let url = existing.location().shown();
    let predicate = pinned
        .typed
        .for_files(&plan.bound.state)
        .map_err(|e| TableError::Query {
            url: url.clone(),
            source: Box::new(e),
        })?;
    let pruner = Pruner::new(existing.schema().clone(), predicate);
    let batch = FileBatch::new(files);
    let verdicts = pruner.verdicts(&batch, &url)?;
    Ok(batch
        .into_files()
        .zip(verdicts)
        .filter(|(_, v)| *v != Verdict::NoRow)
        .map(|(f, _)| f)
        .collect())
}

/// Whether the window's rows in `added` are other ones than those in `removed`, as multisets.
async fn rows_differ(
    plan: &FlowPlan,
    existing: &Table,
    added: Vec<DataFile>,
    removed: Vec<DataFile>,
) -> Result<bool, DataFusionError> {
    const SIGN: &str = "__windrow_sign";
    let side = |files: Vec<DataFile>, sign: i64| -> Result<Option<LogicalPlan>, DataFusionError> {
        if files.is_empty() {
            return Ok(None);
        }
        let source = DeltaSource::of_files(existing.clone(), files, ScanLog::default())?;
        let scan = LogicalPlanBuilder::scan(
            if sign > 0 { "added" } else { "removed" },
            provider_as_source(Arc::new(source)),
            None,
        )?
        .build()?;
        let mut rows = LogicalPlanBuilder::from(existing_rows(plan, existing, scan, false)?);
        if let Some(pinned) = &plan.pinned {
            rows = rows.filter(pinned.typed.expr.clone())?;
        }
        let mut exprs: Vec<Expr> = rows
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        exprs.push(lit(sign).alias(SIGN));
        Ok(Some(rows.project(exprs)?.build()?))
    };
    let both = match (side(added, 1)?, side(removed, -1)?) {
        (Some(a), Some(b)) => LogicalPlanBuilder::from(a).union(b)?.build()?,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(false),
    };
    let keys: Vec<Expr> = both
        .schema()
        .columns()
        .into_iter()
        .filter(|c| c.name != SIGN && c.name != FILE_COLUMN)
        .map(Expr::Column)
        .collect();
    let sign = Expr::Column(Column::new_unqualified(SIGN));
    let differing = LogicalPlanBuilder::from(both)
        .aggregate(keys, vec![sum(sign).alias("n")])?
        .filter(Expr::Column(Column::new_unqualified("n")).not_eq(lit(0i64)))?
        .limit(0, Some(1))?
        .build()?;
    let physical = local::physical(&plan.bound.state, &differing).await?;
    let batches = local::collect(&plan.bound.state, physical).await?;
    Ok(batches.iter().any(|b| b.num_rows() > 0))
}
