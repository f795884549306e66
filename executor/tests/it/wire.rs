//! A plan that goes over the wire stages the same files' rows as one that does not.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::{Column, binary, lit};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::TryStreamExt;
use windrow_executor::codec::WindrowCodec;
use windrow_executor::local::stage_plan;
use windrow_executor::stage::{RowRule, RuleKind, StageSpec, StagedFile};

fn input() -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("p", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
    ]));
    let batch = RecordBatch::try_new(
        schema.clone(),
        vec![
            Arc::new(StringArray::from(vec!["b", "a/b", "b", "é"])),
            Arc::new(Int64Array::from(vec![1, 2, 3, 4])),
        ],
    )
    .unwrap();
    MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None).unwrap()
}

fn plan(folder: &std::path::Path, least: i64) -> Arc<dyn ExecutionPlan> {
    let spec = StageSpec {
        store_url: "file:///".into(),
        table_path: folder.display().to_string().trim_start_matches('/').into(),
        partition_columns: vec![0],
        stats_columns: vec!["n".into()],
        target_file_size: 1 << 20,
        file_prefix: "part-u-s0".into(),
        attempt: 0,
    };
    let input = input();
    let rule = RowRule {
        name: "n is large enough".into(),
        kind: RuleKind::Check,
        expr: binary(
            Arc::new(Column::new("n", 1)),
            datafusion::logical_expr::Operator::GtEq,
            lit(least),
            &input.schema(),
        )
        .unwrap(),
    };
    stage_plan(input, spec, vec![rule], 2).unwrap()
}

fn over_the_wire(plan: Arc<dyn ExecutionPlan>, context: &TaskContext) -> Arc<dyn ExecutionPlan> {
    let node = PhysicalPlanNode::try_from_physical_plan(plan, &WindrowCodec::default()).unwrap();
    node.try_into_physical_plan(context, &WindrowCodec::default())
        .unwrap()
}

async fn run(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> datafusion::error::Result<Vec<StagedFile>> {
    let batches: Vec<RecordBatch> = execute_stream(plan, context)?.try_collect().await?;
    let mut files = Vec::new();
    for batch in &batches {
        files.extend(StagedFile::from_batch(batch)?);
    }
    Ok(files)
}

#[tokio::test]
async fn a_decoded_plan_stages_the_same_files() {
    let context = SessionContext::new().task_ctx();
    let mut outcomes = Vec::new();
    for wire in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut staged = plan(folder.path(), 1);
        if wire {
            staged = over_the_wire(staged, &context);
        }
        let mut files = run(staged, context.clone()).await.unwrap();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in &files {
            let size = std::fs::metadata(folder.path().join(&file.path))
                .unwrap()
                .len();
            assert_eq!(size as i64, file.bytes, "{}", file.path);
        }
        let told: Vec<(String, i64, String)> = files
            .iter()
            .map(|f| {
                let add = &f.add["add"];
                (
                    add["partitionValues"].to_string(),
                    f.rows,
                    add["stats"].to_string(),
                )
            })
            .collect();
        outcomes.push(told);
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].iter().map(|f| f.1).sum::<i64>(), 4);
    assert_eq!(outcomes[0].len(), 3, "one file for each partition value");
}

#[tokio::test]
async fn a_rule_travels_with_the_plan_and_a_broken_one_leaves_no_file() {
    let context = SessionContext::new().task_ctx();
    let folder = tempfile::tempdir().unwrap();
    let staged = over_the_wire(plan(folder.path(), 2), &context);
    let error = run(staged, context).await.unwrap_err().to_string();
    assert!(
        error.contains("n is large enough") && error.contains("n=1"),
        "{error}"
    );
    let mut left = Vec::new();
    let mut open = vec![folder.path().to_path_buf()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => left.push(entry.path()),
            }
        }
    }
    // The other task may have been ended before it could clean up; the one that failed has.
    assert!(left.len() <= 2, "{left:?}");
}
