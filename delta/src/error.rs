//! What can go wrong with a table, in words that name the table and the way out.

use deltalake::DeltaTableError;

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("`{url}` is no Delta table: there is no _delta_log in it")]
    NotATable { url: String },
    #[error("`{url}` has no version {version}: {reason}")]
    VersionGone {
        url: String,
        version: i64,
        reason: String,
    },
    #[error(
        "table `{url}` cannot be read: it uses the table feature(s) {features}, which this version does not know"
    )]
    ReaderFeature { url: String, features: String },
    #[error(
        "table `{url}` cannot be written: it uses the table feature(s) {features}, which this version does not keep right"
    )]
    WriterFeature { url: String, features: String },
    #[error("table `{url}`: column `{column}` has the type {data_type}, which Delta does not have")]
    ColumnType {
        url: String,
        column: String,
        data_type: String,
    },
    #[error("the log of table `{url}` is damaged: {reason}")]
    Damaged { url: String, reason: String },
    #[error("location `{url}` cannot be used: {reason}")]
    Location { url: String, reason: String },
    #[error("table `{url}`: {source}")]
    Storage {
        url: String,
        #[source]
        source: object_store::Error,
    },
    #[error("table `{url}`: {}", plain(.source))]
    Log {
        url: String,
        #[source]
        source: Box<DeltaTableError>,
    },
    #[error("table `{url}`: {}", plain(.source))]
    Query {
        url: String,
        #[source]
        source: Box<datafusion::error::DataFusionError>,
    },
    #[error("table `{url}`: {reason}")]
    Refused {
        code: &'static str,
        url: String,
        reason: String,
    },
}

impl TableError {
    /// The stable code under which the error is reported.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotATable { .. } => "NOT_A_DELTA_TABLE",
            Self::VersionGone { .. } => "SOURCE_HISTORY_UNAVAILABLE",
            Self::ReaderFeature { .. } | Self::WriterFeature { .. } => {
                "TABLE_FEATURE_NOT_SUPPORTED"
            }
            Self::ColumnType { .. } => "COLUMN_TYPE_NOT_SUPPORTED",
            Self::Damaged { .. } => "TABLE_LOG_DAMAGED",
            Self::Location { .. } => "LOCATION_NOT_USABLE",
            Self::Storage { source, .. } => storage_code(source),
            Self::Log { source, .. } => match source.as_ref() {
                DeltaTableError::ObjectStore { source } => storage_code(source),
                _ => "TABLE_LOG_NOT_READABLE",
            },
            Self::Query { .. } => "TABLE_NOT_READABLE",
            Self::Refused { code, .. } => code,
        }
    }
}

fn storage_code(error: &object_store::Error) -> &'static str {
    match error {
        object_store::Error::PermissionDenied { .. } => "STORAGE_PERMISSION_DENIED",
        object_store::Error::Unauthenticated { .. } => "STORAGE_CREDENTIALS_REFUSED",
        object_store::Error::NotFound { .. } => "STORAGE_OBJECT_NOT_FOUND",
        _ => "STORAGE_NOT_REACHABLE",
    }
}

/// An error's words without the backtrace that some libraries print behind them.
pub fn plain(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let is_trace = |line: &str| {
        let line = line.trim_start();
        let lower = line.to_lowercase();
        lower.starts_with("backtrace")
            || lower.starts_with("stack backtrace")
            || line
                .split_once(':')
                .is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let kept: Vec<&str> = text.lines().take_while(|l| !is_trace(l)).collect();
    kept.join("\n").trim_end().to_string()
}
