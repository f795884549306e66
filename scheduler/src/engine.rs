//! Where staging plans run: in this process, or on executors.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use windrow_delta::StoreOptions;
use windrow_delta::figures::Figures;
use windrow_executor::local;
use windrow_executor::stage::StagedFile;

/// What a staging plan is for.
#[derive(Debug, Clone, Default)]
pub struct StageJob {
    pub update: String,
    pub flow: String,
    pub slice: usize,
    /// How the stores of the plan are reached; secrets in it stay in this process.
    pub stores: StoreOptions,
}

/// Runs plans whose root is the staged-file writer.
#[async_trait]
pub trait StageEngine: fmt::Debug + Send + Sync {
    /// Runs `plan` to its end, each part of it exactly once as far as the result tells.
    ///
    /// # Errors
    /// What the plan's operators say, or that it could not be run. Files may be left then.
    async fn run_stage(
        &self,
        job: &StageJob,
        state: &SessionState,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Vec<StagedFile>, DataFusionError>;

    /// Partitions that a query should have; `None` for as many as this process has cores.
    async fn partitions(&self) -> Option<usize> {
        None
    }

    /// What it does now, as Prometheus reads it.
    async fn metrics(&self, _to: &mut Figures) {}

    /// Whether plans run in several processes, which share nothing.
    fn is_distributed(&self) -> bool {
        false
    }
}

/// This process.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

#[async_trait]
impl StageEngine for InProcess {
    async fn run_stage(
        &self,
        _: &StageJob,
        state: &SessionState,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Vec<StagedFile>, DataFusionError> {
        local::run_stage(state, plan).await
    }
}
