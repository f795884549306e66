//! Updates in this process, through the public interface of the scheduler, and tables as rows of
//! comparable text. Quicker than a process for each update; the program itself is tested elsewhere.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;
use windrow_flows::fault::Fault;
use windrow_scheduler::config::{ConfigOverrides, PipelineConfig};
use windrow_scheduler::report::{FlowReport, UpdateReport};
use windrow_scheduler::update::{Progress, Update, UpdateOptions};

use crate::lake::{Lake, arrow_schema, batches, register};
use crate::{Outcome, cells, words};

struct Quiet;

impl Progress for Quiet {
    fn flow_started(&self, _: &str) {}
    fn flow_ended(&self, _: &FlowReport) {}
}

/// Bytes of stack: plans of long queries are walked by recursion; the space is only used where it is
/// needed.
const STACK: usize = 256 << 20;

/// Runs what `make` makes to its end, on a thread of its own with a runtime of its own.
pub fn run<F, T>(make: impl FnOnce() -> F + Send + 'static) -> std::thread::JoinHandle<T>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let started = std::thread::Builder::new().stack_size(STACK).spawn(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(2)
            .thread_stack_size(STACK)
            .build();
        runtime.unwrap_or_else(|e| panic!("{e}")).block_on(make())
    });
    started.unwrap_or_else(|e| panic!("{e}"))
}

/// The pipeline in a folder.
pub fn pipeline(folder: &Path, storage: Option<&Path>) -> Outcome<PipelineConfig> {
    let overrides = ConfigOverrides {
        storage: storage.map(|s| s.to_string_lossy().into_owned()),
        ..ConfigOverrides::default()
    };
    PipelineConfig::load(folder, &overrides).map_err(|faults| told(&faults))
}

/// One update, or the faults for which it was refused.
pub async fn update(
    config: PipelineConfig,
    options: &UpdateOptions,
) -> Result<UpdateReport, Vec<Fault>> {
    let update = Update::prepare(config, options).await?;
    Ok(update.run(Arc::new(Quiet)).await)
}

pub fn told(faults: &[Fault]) -> String {
    let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
    all.join("\n")
}

/// Rows with their columns.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub names: Vec<String>,
    pub rows: Vec<cells::Row>,
}

impl Rows {
    /// All rows of a table.
    pub async fn read(lake: &Lake, at: &str) -> Outcome<Self> {
        let table = lake.open(at).await?;
        let context = SessionContext::new();
        register(&context, "t", &table).await?;
        let names = arrow_schema(&table)?
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let mut rows = Vec::new();
        for batch in batches(&context, "SELECT * FROM t").await? {
            for index in 0..batch.num_rows() {
                let row = batch
                    .columns()
                    .iter()
                    .map(|c| shown(c.as_ref(), index))
                    .collect::<Outcome<cells::Row>>()?;
                rows.push(row);
            }
        }
        Ok(Self { names, rows })
    }

    /// In the order of other columns; those that are missing are null.
    pub fn in_columns(&self, names: &[String]) -> Outcome<Vec<cells::Row>> {
        if let Some(lost) = self.names.iter().find(|n| !names.contains(n)) {
            return Err(format!("the column {lost} is gone"));
        }
        let at: Vec<Option<usize>> = names
            .iter()
            .map(|n| self.names.iter().position(|m| m == n))
            .collect();
        let moved = |row: &cells::Row| at.iter().map(|i| row[(*i)?].clone()).collect();
        Ok(self.rows.iter().map(moved).collect())
    }
}

/// A value as it is compared: doubles to ten digits, decimals without zeros at their ends.
fn shown(array: &dyn Array, index: usize) -> Outcome<Option<String>> {
    if array.is_null(index) {
        return Ok(None);
    }
    Ok(Some(match array.data_type() {
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(index);
            match value.abs() < 1e-9 {
                true => "0.0".into(),
                false => format!("{value:.9e}"),
            }
        }
        DataType::Decimal128(..) => {
            let text = array_value_to_string(array, index).map_err(words)?;
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
        _ => array_value_to_string(array, index).map_err(words)?,
    }))
}
