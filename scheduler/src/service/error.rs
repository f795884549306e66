//! Why a request can't be served, as a gRPC status with a stable code word.

use tonic::{Code, Status};
use windrow_delta::TableError;
use windrow_flows::fault::Fault;
use windrow_proto::status;

/// A request that can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("there is no pipeline `{id}`")]
    PipelineNotFound { id: String },
    #[error("there is no update `{id}`")]
    UpdateNotFound { id: String },
    #[error("there is no backfill `{id}`")]
    BackfillNotFound { id: String },
    #[error("pipeline `{name}` on this storage is there already, as {id}")]
    PipelineExists { name: String, id: String },
    #[error("update {update} of pipeline `{pipeline}` is under way")]
    AlreadyRunning { pipeline: String, update: String },
    #[error("pipeline {id} was edited meanwhile: it is at revision {found}, not {expected}")]
    Edited {
        id: String,
        expected: u64,
        found: u64,
    },
    #[error("record `{path}` was changed by somebody else")]
    Contended { path: String },
    #[error("{what} are as many as this scheduler takes: {limit}")]
    Full { what: &'static str, limit: usize },
    #[error("this scheduler is stopping and takes no new updates")]
    Stopping,
    #[error("this scheduler does not lead: {} does", .leader.as_deref().unwrap_or("another one"))]
    NotLeading { leader: Option<String> },
    #[error("{what}")]
    WrongRequest { what: String },
    #[error("{}", .0.message)]
    Refused(Box<Fault>),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("record `{path}` can't be read: {reason}")]
    Damaged { path: String, reason: String },
    #[error("the request was not finished: {reason}")]
    Internal { reason: String },
}

impl From<Fault> for ServiceError {
    fn from(fault: Fault) -> Self {
        Self::Refused(Box::new(fault))
    }
}

impl ServiceError {
    /// The stable code word.
    pub fn code(&self) -> &str {
        match self {
            Self::PipelineNotFound { .. } => "PIPELINE_NOT_FOUND",
            Self::UpdateNotFound { .. } => "UPDATE_NOT_FOUND",
            Self::BackfillNotFound { .. } => "BACKFILL_NOT_FOUND",
            Self::PipelineExists { .. } => "PIPELINE_EXISTS",
            Self::AlreadyRunning { .. } => "UPDATE_ALREADY_RUNNING",
            Self::Edited { .. } => "PIPELINE_EDITED",
            Self::Contended { .. } => "RECORD_CONTENDED",
            Self::Full { .. } => "SCHEDULER_FULL",
            Self::Stopping => "SCHEDULER_STOPPING",
            Self::NotLeading { .. } => "NOT_LEADING",
            Self::WrongRequest { .. } => "WRONG_REQUEST",
            Self::Refused(fault) => fault.code,
            Self::Table(error) => error.code(),
            Self::Damaged { .. } => "RECORD_DAMAGED",
            Self::Internal { .. } => "INTERNAL",
        }
    }

    fn grpc(&self) -> Code {
        match self {
            Self::PipelineNotFound { .. }
            | Self::UpdateNotFound { .. }
            | Self::BackfillNotFound { .. } => Code::NotFound,
            Self::PipelineExists { .. } => Code::AlreadyExists,
            Self::AlreadyRunning { .. } => Code::FailedPrecondition,
            Self::Edited { .. } | Self::Contended { .. } => Code::Aborted,
            Self::Full { .. } => Code::ResourceExhausted,
            Self::Stopping | Self::NotLeading { .. } | Self::Table(_) => Code::Unavailable,
            Self::WrongRequest { .. } => Code::InvalidArgument,
            Self::Refused(fault) => match fault.code {
                "PATH_NOT_ALLOWED" | "OPTION_NOT_ALLOWED" => Code::PermissionDenied,
                "PIPELINE_TOO_LARGE" => Code::ResourceExhausted,
                _ => Code::InvalidArgument,
            },
            Self::Damaged { .. } => Code::DataLoss,
            Self::Internal { .. } => Code::Internal,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::AlreadyRunning { update, .. } => Some(format!(
                "wait for its end, or stop it: windrow updates stop {update}"
            )),
            Self::Full { .. } => Some("try again later, or raise --max-updates".into()),
            Self::Stopping => Some("try again when the next scheduler is up".into()),
            Self::NotLeading { .. } => {
                Some("ask the one that leads; this one goes on when that one is gone".into())
            }
            Self::Edited { .. } | Self::Contended { .. } => {
                Some("read it again and repeat the change".into())
            }
            Self::Refused(fault) => fault.help.clone(),
            _ => None,
        }
    }
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let mut metadata = Vec::new();
        if let Some(help) = error.help() {
            metadata.push((status::HELP.to_string(), help));
        }
        if let ServiceError::AlreadyRunning { update, .. } = &error {
            metadata.push(("update_id".to_string(), update.clone()));
        }
        status::status(error.grpc(), error.code(), &error.to_string(), metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_word_goes_along() {
        let error = ServiceError::AlreadyRunning {
            pipeline: "p".into(),
            update: "u".into(),
        };
        let status = Status::from(error);
        assert_eq!(status.code(), Code::FailedPrecondition);
        let info = windrow_proto::status::error_info(&status).expect("details");
        assert_eq!(info.reason, "UPDATE_ALREADY_RUNNING");
        assert_eq!(
            info.metadata.get("update_id").map(String::as_str),
            Some("u")
        );
        let refused = ServiceError::from(Fault::new("PATH_NOT_ALLOWED", "no").help("ask"));
        assert_eq!(Status::from(refused).code(), Code::PermissionDenied);
    }
}
