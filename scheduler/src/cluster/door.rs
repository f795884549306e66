//! The part of the distributed runtime's service that executors need, for executors of this very
//! version. The rest would let anybody who reaches the port run any plan.

use std::pin::Pin;

use async_trait::async_trait;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::{
    CancelJobParams, CancelJobResult, CleanJobDataParams, CleanJobDataResult,
    CreateUpdateSessionParams, CreateUpdateSessionResult, ExecuteQueryParams, ExecuteQueryResult,
    ExecutorStoppedParams, ExecutorStoppedResult, GetJobMetricsParams, GetJobMetricsResult,
    GetJobStatusParams, GetJobStatusResult, HeartBeatParams, HeartBeatResult, PollWorkParams,
    PollWorkResult, RegisterExecutorParams, RegisterExecutorResult, RemoveSessionParams,
    RemoveSessionResult, UpdateTaskStatusParams, UpdateTaskStatusResult,
};
use futures::Stream;
use tonic::{Request, Response, Status};
use windrow_executor::link::same_version;

use super::Runtime;
use super::slots::Slots;

/// See the module's description.
pub(crate) struct Door {
    pub(crate) runtime: Runtime,
    pub(crate) slots: Slots,
}

type Answer<T> = Result<Response<T>, Status>;

fn closed<T>(what: &str) -> Answer<T> {
    Err(Status::permission_denied(format!(
        "{what} goes through windrow.v1.PipelineService"
    )))
}

#[async_trait]
impl SchedulerGrpc for Door {
    async fn poll_work(&self, request: Request<PollWorkParams>) -> Answer<PollWorkResult> {
        same_version(request.metadata())?;
        let asked = request.get_ref();
        let executor = asked.metadata.as_ref().map(|m| m.id.clone());
        let free = asked.num_free_vcores as usize;
        let answer = self.runtime.poll_work(request).await?;
        if let Some(executor) = executor {
            self.slots
                .told(&executor, free, answer.get_ref().tasks.len());
        }
        Ok(answer)
    }

    async fn executor_stopped(
        &self,
        request: Request<ExecutorStoppedParams>,
    ) -> Answer<ExecutorStoppedResult> {
        same_version(request.metadata())?;
        self.runtime.executor_stopped(request).await
    }

    async fn get_job_status(
        &self,
        request: Request<GetJobStatusParams>,
    ) -> Answer<GetJobStatusResult> {
        same_version(request.metadata())?;
        self.runtime.get_job_status(request).await
    }

    async fn register_executor(
        &self,
        _: Request<RegisterExecutorParams>,
    ) -> Answer<RegisterExecutorResult> {
        closed("registering, which executors do by polling,")
    }

    async fn heart_beat_from_executor(
        &self,
        _: Request<HeartBeatParams>,
    ) -> Answer<HeartBeatResult> {
        closed("a sign of life, which executors give by polling,")
    }

    async fn update_task_status(
        &self,
        _: Request<UpdateTaskStatusParams>,
    ) -> Answer<UpdateTaskStatusResult> {
        closed("the state of a task, which executors tell by polling,")
    }

    async fn create_update_session(
        &self,
        _: Request<CreateUpdateSessionParams>,
    ) -> Answer<CreateUpdateSessionResult> {
        closed("a session")
    }

    async fn remove_session(&self, _: Request<RemoveSessionParams>) -> Answer<RemoveSessionResult> {
        closed("a session")
    }

    type ExecuteQueryPushStream =
        Pin<Box<dyn Stream<Item = Result<GetJobStatusResult, Status>> + Send>>;

    async fn execute_query_push(
        &self,
        _: Request<ExecuteQueryParams>,
    ) -> Answer<Self::ExecuteQueryPushStream> {
        closed("a query")
    }

    async fn execute_query(&self, _: Request<ExecuteQueryParams>) -> Answer<ExecuteQueryResult> {
        closed("a query")
    }

    async fn get_job_metrics(
        &self,
        _: Request<GetJobMetricsParams>,
    ) -> Answer<GetJobMetricsResult> {
        closed("what a job does")
    }

    async fn cancel_job(&self, _: Request<CancelJobParams>) -> Answer<CancelJobResult> {
        closed("ending a job")
    }

    async fn clean_job_data(&self, _: Request<CleanJobDataParams>) -> Answer<CleanJobDataResult> {
        closed("ending a job")
    }
}
