//! Deletion vectors on the way to another machine.
//!
//! A scan holds the rows that are still there as an extension of each file, and extensions are left
//! behind when a plan is encoded: the rows would come back. [`carried`] puts a node above such a
//! scan that knows them and gives them back to the scan where it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// A scan of files together with the rows of each that are still there.
#[derive(Debug)]
pub struct KeptRowsExec {
    /// Every file of the scan, as [`key`] names it. An empty list of runs stands for all rows.
    files: Arc<BTreeMap<String, Vec<u64>>>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

/// What tells the files of one scan apart: the same file may be there with different vectors, but
/// then its constants differ.
fn key(file: &PartitionedFile) -> String {
    format!("{} {:?}", file.object_meta.location, file.partition_values)
}

/// Runs of rows, left out and kept in turn.
fn runs(selection: &RowSelection) -> Vec<u64> {
    let mut runs = vec![0];
    for selector in selection.iter() {
        // Even places are left out, odd ones kept.
        let last_is_skip = runs.len() % 2 == 1;
        if selector.skip == last_is_skip {
            if let Some(last) = runs.last_mut() {
                *last += selector.row_count as u64;
            }
        } else {
            runs.push(selector.row_count as u64);
        }
    }
    runs
}

fn selection(runs: &[u64]) -> RowSelection {
    let selectors: Vec<RowSelector> = runs
        .iter()
        .enumerate()
        .filter(|(_, rows)| **rows > 0)
        .map(|(at, rows)| match at % 2 {
            0 => RowSelector::skip(*rows as usize),
            _ => RowSelector::select(*rows as usize),
        })
        .collect();
    RowSelection::from(selectors)
}

fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    plan.downcast_ref::<DataSourceExec>()?
        .data_source()
        .downcast_ref::<FileScanConfig>()
}

/// `plan` with a [`KeptRowsExec`] above each scan of files with deletion vectors.
///
/// # Errors
/// If a file holds something else that the wire would lose.
pub fn carried(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(config) = scan_of(&node) else {
            return Ok(Transformed::no(node));
        };
        let mut files = BTreeMap::new();
        let mut any = false;
        for file in config.file_groups.iter().flat_map(FileGroup::iter) {
            let vector = file.extension::<ParquetRowSelection>();
            if file.extensions.len() > usize::from(vector.is_some()) {
                return Err(DataFusionError::Internal(format!(
                    "file {} holds something that can't be sent to an executor",
                    file.object_meta.location
                )));
            }
            any |= vector.is_some();
            let kept = vector.map(|v| runs(v.selection())).unwrap_or_default();
            files.insert(key(file), kept);
        }
        match any {
            true => Ok(Transformed::yes(
                Arc::new(KeptRowsExec::new(files, node)) as Arc<dyn ExecutionPlan>
            )),
            false => Ok(Transformed::no(node)),
        }
    })
    .map(|transformed| transformed.data)
}

impl KeptRowsExec {
    pub(crate) fn new(files: BTreeMap<String, Vec<u64>>, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::of(Arc::new(files), input)
    }

    fn of(files: Arc<BTreeMap<String, Vec<u64>>>, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self {
            files,
            input,
            properties,
        }
    }

    pub(crate) fn files(&self) -> &BTreeMap<String, Vec<u64>> {
        &self.files
    }

    /// The scan with its rows.
    fn restored(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let config = scan_of(&self.input).ok_or_else(|| {
            DataFusionError::Internal(format!(
                "{} is no scan of files, whose kept rows it should have",
                self.input.name()
            ))
        })?;
        let groups = config
            .file_groups
            .iter()
            .map(|group| {
                let files = group
                    .iter()
                    .map(|file| {
                        // Without its entry, a file's deleted rows would come back.
                        let runs = self.files.get(&key(file)).ok_or_else(|| {
                            DataFusionError::Internal(format!(
                                "it is not known which rows of {} are still there",
                                file.object_meta.location
                            ))
                        })?;
                        Ok(match runs.is_empty() {
                            true => file.clone(),
                            false => file
                                .clone()
                                .with_extension(ParquetRowSelection::new(selection(runs))),
                        })
                    })
                    .collect::<Result<Vec<_>>>()?;
                Ok(FileGroup::new(files))
            })
            .collect::<Result<Vec<_>>>()?;
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_groups(groups)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

impl DisplayAs for KeptRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptRowsExec: files={}", self.files.len())
    }
}

impl ExecutionPlan for KeptRowsExec {
    fn name(&self) -> &str {
        "KeptRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::of(self.files.clone(), input))),
            Err(_) => Err(DataFusionError::Internal(
                "KeptRowsExec has one input".into(),
            )),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.restored()?.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_tell_the_same_rows() {
        for selectors in [
            vec![
                RowSelector::select(3),
                RowSelector::skip(2),
                RowSelector::select(1),
            ],
            vec![RowSelector::skip(5), RowSelector::select(4)],
            vec![RowSelector::skip(7)],
            vec![RowSelector::select(7)],
        ] {
            let wanted = RowSelection::from(selectors);
            assert_eq!(selection(&runs(&wanted)), wanted, "{wanted:?}");
        }
    }
}
