//! Windrow's plan nodes on the wire, so that a plan made here runs on another machine.
//!
//! The scan needs no entry: it is DataFusion's own file scan.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;

use crate::stage::{RowRule, RuleKind, StageExec, StageSpec};

/// Encodes and decodes [`StageExec`].
#[derive(Debug, Default)]
pub struct WindrowCodec;

fn kind_to_wire(kind: RuleKind) -> windrow_proto::RuleKind {
    match kind {
        RuleKind::Check => windrow_proto::RuleKind::Check,
        RuleKind::NotNull => windrow_proto::RuleKind::NotNull,
        RuleKind::Generated => windrow_proto::RuleKind::Generated,
        RuleKind::Window => windrow_proto::RuleKind::Window,
    }
}

fn kind_from_wire(kind: i32) -> Result<RuleKind> {
    match windrow_proto::RuleKind::try_from(kind) {
        Ok(windrow_proto::RuleKind::Check) => Ok(RuleKind::Check),
        Ok(windrow_proto::RuleKind::NotNull) => Ok(RuleKind::NotNull),
        Ok(windrow_proto::RuleKind::Generated) => Ok(RuleKind::Generated),
        Ok(windrow_proto::RuleKind::Window) => Ok(RuleKind::Window),
        _ => Err(DataFusionError::Plan(format!(
            "unknown kind of row rule {kind} on the wire"
        ))),
    }
}

fn wire(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl PhysicalExtensionCodec for WindrowCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = windrow_proto::StageNode::decode(buf).map_err(wire)?;
        let [input] = inputs else {
            return Err(DataFusionError::Plan(
                "StageExec on the wire has one input".into(),
            ));
        };
        let schema = input.schema();
        let rules = node
            .rules
            .iter()
            .map(|rule| {
                let expr = PhysicalExprNode::decode(rule.expr.as_slice()).map_err(wire)?;
                Ok(RowRule {
                    name: rule.name.clone(),
                    kind: kind_from_wire(rule.kind)?,
                    expr: parse_physical_expr(&expr, ctx, &schema, self)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let spec = StageSpec {
            store_url: node.store_url,
            table_path: node.table_path,
            partition_columns: node.partition_columns.iter().map(|i| *i as usize).collect(),
            stats_columns: node.stats_columns,
            target_file_size: node.target_file_size,
            file_prefix: node.file_prefix,
        };
        Ok(Arc::new(StageExec::new(spec, rules, input.clone())))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(stage) = node.downcast_ref::<StageExec>() else {
            return Err(DataFusionError::Plan(format!(
                "{} has no wire form",
                node.name()
            )));
        };
        let rules = stage
            .rules()
            .iter()
            .map(|rule| {
                Ok(windrow_proto::RowRule {
                    name: rule.name.clone(),
                    kind: kind_to_wire(rule.kind) as i32,
                    expr: serialize_physical_expr(&rule.expr, self)?.encode_to_vec(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let spec = stage.spec();
        let node = windrow_proto::StageNode {
            store_url: spec.store_url.clone(),
            table_path: spec.table_path.clone(),
            partition_columns: spec.partition_columns.iter().map(|i| *i as u32).collect(),
            stats_columns: spec.stats_columns.clone(),
            target_file_size: spec.target_file_size,
            file_prefix: spec.file_prefix.clone(),
            rules,
        };
        node.encode(buf).map_err(wire)
    }
}
