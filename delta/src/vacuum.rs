//! Removing what no commit names: files of attempts that failed or died, and files that commits
//! took out of the table longer ago than the retention.
//!
//! The walk over the folder is deltalake's. Files younger than the retention are never touched, so
//! that neither an update under way nor a reader of an older version loses anything.

use std::time::Duration;

use deltalake::DeltaTable;
use deltalake::operations::vacuum::VacuumMode;

use crate::error::TableError;
use crate::store::Location;

/// Removes the files, or with `dry_run` only names them. Paths are relative to the table's folder.
pub async fn vacuum(
    location: &Location,
    retention: Duration,
    dry_run: bool,
) -> Result<Vec<String>, TableError> {
    refuse_tables_inside(location).await?;
    let log = |source| TableError::Log {
        url: location.shown(),
        source: Box::new(source),
    };
    let mut table = DeltaTable::new(location.log_store().clone());
    table.load().await.map_err(log)?;
    let retention = chrono::TimeDelta::from_std(retention).unwrap_or(chrono::TimeDelta::MAX);
    let (_, metrics) = table
        .vacuum()
        .with_mode(VacuumMode::Full)
        .with_retention_period(retention)
        .with_enforce_retention_duration(false)
        .with_dry_run(dry_run)
        .await
        .map_err(log)?;
    Ok(metrics.files_deleted)
}

/// A table inside the folder of another would be taken for files that nothing names.
async fn refuse_tables_inside(location: &Location) -> Result<(), TableError> {
    use futures::StreamExt;
    let storage = |source| TableError::Storage {
        url: location.shown(),
        source,
    };
    let store = location.store();
    let folders = store
        .list_with_delimiter(None)
        .await
        .map_err(storage)?
        .common_prefixes;
    for folder in folders {
        let name = folder.filename().unwrap_or_default();
        if name.contains('=') || name.starts_with(['_', '.']) {
            continue;
        }
        let log = folder.clone().join("_delta_log");
        if let Some(found) = store.list(Some(&log)).next().await {
            found.map_err(storage)?;
            return Err(TableError::Refused {
                code: "TABLE_PLACES_OVERLAP",
                url: location.shown(),
                reason: format!(
                    "another table lies inside its folder, at `{folder}`; it would be removed"
                ),
            });
        }
    }
    Ok(())
}
