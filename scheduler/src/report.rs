//! What came of an update, in the form in which people and programs get it.

use serde::{Deserialize, Serialize};
use windrow_flows::fault::Fault;
use windrow_flows::refresh::{FallbackReason, Technique};

use crate::backfill::SliceState;

/// A thing that went wrong, with its stable code.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Problem {
    pub code: String,
    pub message: String,
    pub help: Option<String>,
}

/// A fault of the pipeline, with the place as numbers and as people see it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct FaultReport {
    pub code: String,
    pub message: String,
    pub help: Option<String>,
    pub hint: Option<String>,
    pub place: Option<FaultPlace>,
    /// All of it as a terminal shows it, with the line and a caret.
    pub rendered: String,
}

/// Where in the pipeline's SQL; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct FaultPlace {
    pub file: String,
    pub line: u64,
    pub column: u64,
    /// Just behind the last character.
    pub end_line: u64,
    pub end_column: u64,
    pub source_line: String,
}

impl From<&Fault> for FaultReport {
    fn from(fault: &Fault) -> Self {
        let place = fault.place.as_ref().map(|place| {
            let before = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
            let line = place.source.text.lines().nth(before);
            FaultPlace {
                file: place.source.name.clone(),
                line: place.line,
                column: place.column,
                end_line: place.end_line,
                end_column: place.end_column,
                source_line: line.unwrap_or_default().to_string(),
            }
        });
        Self {
            code: fault.code.to_string(),
            message: fault.message.clone(),
            help: fault.help.clone(),
            hint: fault.hint.clone(),
            place,
            rendered: fault.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum FlowStatus {
    Completed,
    Failed,
    Skipped,
    /// The update was stopped before this flow committed.
    Canceled,
    /// Planned, not run.
    Planned,
}

impl FlowStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
            Self::Canceled => "CANCELED",
            Self::Planned => "PLANNED",
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Slices {
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FlowMetrics {
    pub num_output_rows: u64,
    /// Rows of the window that were removed.
    pub num_deleted_rows: u64,
    /// Rows outside the window that were copied from files which straddle it.
    pub num_copied_rows: u64,
    pub num_files_added: u64,
    pub num_files_removed: u64,
    pub bytes_scanned: u64,
    pub bytes_written: u64,
    pub duration_ms: u64,
    /// Parts in which the window was computed.
    #[serde(skip)]
    pub num_slices: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceReport {
    pub table: String,
    /// `None` for files and for tables that the update has yet to make.
    pub version: Option<i64>,
    pub files_total: u64,
    pub files_scanned: u64,
    pub bytes_total: u64,
    pub bytes_scanned: u64,
    /// Whether the window's predicate reaches this source.
    pub pruned_by_predicate: bool,
    /// Why not, in words.
    pub note: Option<String>,
}

/// What a plan says about the files of the target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Effect {
    pub files_total: u64,
    pub files_removed: u64,
    /// Files that lie partly in the window, as far as the log tells.
    pub files_looked_into: u64,
    pub files_kept: u64,
}

/// A technique that was looked at for an update.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Considered {
    pub technique: Technique,
    pub is_applicable: bool,
    pub is_chosen: bool,
    /// Bytes that it is estimated to read and write, as past runs of the flow correct it; `None` where
    /// it was not worked out.
    pub cost: Option<u64>,
    /// The estimate by the logs alone, where past runs have corrected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<u64>,
    /// The runs by which it was corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_runs: Option<u64>,
    pub issues: Vec<Issue>,
}

/// The change data files of a source in which its changed rows were read.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ChangeDataRead {
    pub table: String,
    pub files: u64,
    pub bytes: u64,
}

/// What stands against a technique.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Issue {
    pub issue_type: String,
    pub prevent_incrementalization: bool,
    /// In words: what it is, and where one can do something about it, what.
    pub words: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowReport {
    pub flow: String,
    pub target: String,
    pub kind: String,
    pub status: FlowStatus,
    pub technique: Option<Technique>,
    pub fallback_reasons: Vec<FallbackReason>,
    /// The techniques that were looked at; empty when there was nothing to choose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<Considered>,
    /// Sources whose change was read from their change data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change_data: Vec<ChangeDataRead>,
    /// The predicate with its time pinned; for people also as it was written.
    pub predicate: Option<String>,
    pub predicate_as_written: Option<String>,
    pub slices: Slices,
    pub table_version: Option<i64>,
    pub location: String,
    pub metrics: FlowMetrics,
    pub sources: Vec<SourceReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Flows before this one that will change what it reads: a plan shows their targets as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    pub expectations: Vec<serde_json::Value>,
    pub error: Option<Problem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum UpdateState {
    Completed,
    Failed,
    Canceled,
    Planned,
}

impl UpdateState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
            Self::Planned => "PLANNED",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateReport {
    pub update_id: String,
    pub pipeline: String,
    pub state: UpdateState,
    /// The update's clock.
    pub now: String,
    pub flows: Vec<FlowReport>,
    pub warnings: Vec<String>,
    pub error: Option<Problem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillReport>,
}

/// What became of a backfill.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackfillReport {
    pub id: String,
    pub column: String,
    /// The calendar's unit of its slices; `None` for a single one.
    pub by: Option<String>,
    pub slices: Vec<SliceOutcome>,
}

/// What became of a slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SliceOutcome {
    pub from: String,
    pub to: String,
    pub state: SliceState,
    /// Rows that were written; `None` when it was done before, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}
