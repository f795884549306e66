//! What a scheduler remembers of pipelines and updates, as it stands on the storage.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::report::{FaultReport, Problem, UpdateReport};
use crate::spec::PipelineSpec;

/// Raised when a record of an older version can't be read as it is.
pub(crate) const FORMAT: u32 = 1;

/// A pipeline that is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PipelineRecord {
    pub(crate) format: u32,
    pub(crate) id: String,
    /// Rises with every edit, from 1.
    pub(crate) revision: u64,
    pub(crate) created: DateTime<Utc>,
    pub(crate) modified: DateTime<Utc>,
    pub(crate) spec: PipelineSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum State {
    /// Waits for its turn. Nothing is written up to here, so that another scheduler may begin anew.
    Queued,
    /// Is read and checked. Still nothing is written.
    Initializing,
    Running,
    Completed,
    Failed,
    Canceled,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Initializing => "INITIALIZING",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
        }
    }

    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "UPPERCASE")]
pub(crate) enum Request {
    Update(UpdateRequest),
    Backfill(BackfillRequest),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UpdateRequest {
    pub(crate) refresh: Vec<String>,
    pub(crate) full_refresh: Vec<String>,
    pub(crate) full_refresh_all: bool,
    /// Flow and predicate.
    pub(crate) replace_where: Vec<(String, String)>,
    pub(crate) validate_only: bool,
    pub(crate) agree: bool,
    /// The unit of slices, if one was asked for.
    #[serde(default)]
    pub(crate) slice_by: Option<String>,
    #[serde(default)]
    pub(crate) parallel: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BackfillRequest {
    pub(crate) flow: String,
    pub(crate) column: Option<String>,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) parallel: usize,
    pub(crate) atomic: bool,
    pub(crate) newest_first: bool,
    /// Which part of the range; empty for all.
    #[serde(default)]
    pub(crate) only: String,
    /// Goes on with an earlier one.
    pub(crate) resumes: bool,
    /// Which one; `None` for the newest that is not done.
    pub(crate) backfill: Option<String>,
}

/// Rows that a full refresh would take away for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AtRisk {
    pub(crate) table: String,
    pub(crate) rows: u64,
}

/// An update, from its request to its result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpdateRecord {
    pub(crate) format: u32,
    pub(crate) id: String,
    pub(crate) pipeline_id: String,
    pub(crate) pipeline_name: String,
    pub(crate) pipeline_revision: u64,
    pub(crate) request: Request,
    /// The clock, where the request pins it.
    pub(crate) now: Option<DateTime<Utc>>,
    /// The client's word by which it knows what it started.
    #[serde(default)]
    pub(crate) token: String,
    pub(crate) state: State,
    pub(crate) created: DateTime<Utc>,
    pub(crate) started: Option<DateTime<Utc>>,
    pub(crate) ended: Option<DateTime<Utc>>,
    /// The run of a scheduler in whose hands it is.
    pub(crate) scheduler: String,
    /// Counts from 1; later ones are in place of an update whose scheduler went away.
    pub(crate) attempt: u32,
    pub(crate) retry_of: Option<String>,
    pub(crate) retried_as: Option<String>,
    pub(crate) backfill_id: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) faults: Vec<FaultReport>,
    pub(crate) rows_at_risk: Vec<AtRisk>,
    pub(crate) error: Option<Problem>,
    pub(crate) report: Option<UpdateReport>,
}

/// Says that an update is queued or running, so that a new scheduler need not look at all there ever
/// were.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ActiveRecord {
    pub(crate) pipeline: String,
    pub(crate) update: String,
}
