//! Deletion vectors: which rows of a file are gone.
//!
//! Decoding is the Delta kernel's. Rule: Delta protocol, "Deletion Vectors".

use std::ops::Range;
use std::sync::Arc;

use delta_kernel::actions::deletion_vector::{DeletionVectorDescriptor, DeletionVectorStorageType};

use crate::error::TableError;
use crate::store::Location;
use crate::table::DeletionVector;

/// The rows of a file that are still there, as ranges in order, for a file of `rows` rows.
pub async fn kept_rows(
    location: &Location,
    vector: &DeletionVector,
    rows: u64,
) -> Result<Vec<Range<u64>>, TableError> {
    let damaged = |reason: String| TableError::Damaged {
        url: location.shown(),
        reason,
    };
    let storage_type = match vector.storage_type.as_str() {
        "u" => DeletionVectorStorageType::PersistedRelative,
        "i" => DeletionVectorStorageType::Inline,
        "p" => DeletionVectorStorageType::PersistedAbsolute,
        other => {
            return Err(damaged(format!(
                "deletion vector of unknown storage type `{other}`"
            )));
        }
    };
    let descriptor = DeletionVectorDescriptor::try_new(
        storage_type,
        vector.path_or_inline.clone(),
        vector.offset,
        vector.size_in_bytes,
        vector.cardinality,
    )
    .map_err(|e| damaged(crate::error::plain(&e)))?;
    let (engine, url) = (location.log_store().engine(None), location.url().clone());
    let read = tokio::task::spawn_blocking(move || {
        let deleted = descriptor.read(Arc::clone(&engine.storage_handler()), &url)?;
        let mut kept = Vec::new();
        let mut next = 0u64;
        let mut count = 0i64;
        for row in deleted.iter() {
            count += 1;
            if row > next {
                kept.push(next..row.min(rows));
            }
            next = row + 1;
        }
        if next < rows {
            kept.push(next..rows);
        }
        Ok::<_, delta_kernel::Error>((kept, count))
    });
    let (kept, count) = read
        .await
        .map_err(|e| damaged(crate::error::plain(&e)))?
        .map_err(|e| damaged(crate::error::plain(&e)))?;
    if count != vector.cardinality {
        return Err(damaged(format!(
            "a deletion vector holds {count} rows where the log says {}",
            vector.cardinality
        )));
    }
    Ok(kept)
}
