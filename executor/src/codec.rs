//! Windrow's plan nodes and functions on the wire, so that a plan made here runs on another machine.
//!
//! The scan needs no entry: it is DataFusion's own file scan, with [`KeptRowsExec`] above it where
//! its files have deletion vectors. Nodes of the distributed runtime go through its own codec,
//! functions without state by their names.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::{ArrowType, PhysicalExprNode};
use prost::Message;
use windrow_proto::plan_node::Node;
use windrow_proto::{
    ConvertFunction, KeptRowsNode, KeptRowsOfFile, OneTaskNode, PlanNode, StageNode,
};

use crate::convert::{Convert, function, of};
use crate::kept_rows::KeptRowsExec;
use crate::one_task::OneTaskExec;
use crate::relabel::Relabel;
use crate::stage::{RowRule, RuleKind, StageExec, StageSpec};
use crate::store_cast::StoreCast;

/// Encodes and decodes everything that Windrow's plans hold.
#[derive(Debug, Default)]
pub struct WindrowCodec {
    runtime: BallistaPhysicalExtensionCodec,
}

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

fn one_input(inputs: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
    match inputs {
        [input] => Ok(input.clone()),
        _ => Err(DataFusionError::Plan(format!(
            "a node on the wire has {} inputs where one is wanted",
            inputs.len()
        ))),
    }
}

impl WindrowCodec {
    fn stage_to_wire(&self, stage: &StageExec) -> Result<StageNode> {
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
        Ok(StageNode {
            store_url: spec.store_url.clone(),
            table_path: spec.table_path.clone(),
            partition_columns: spec.partition_columns.iter().map(|i| *i as u32).collect(),
            stats_columns: spec.stats_columns.clone(),
            target_file_size: spec.target_file_size,
            file_prefix: spec.file_prefix.clone(),
            rules,
            attempt: spec.attempt,
        })
    }

    fn stage_from_wire(
        &self,
        node: StageNode,
        input: Arc<dyn ExecutionPlan>,
        ctx: &TaskContext,
    ) -> Result<StageExec> {
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
            attempt: node.attempt,
        };
        Ok(StageExec::new(spec, rules, input))
    }
}

fn convert_to_wire(column: &str, to: &DataType) -> Result<Vec<u8>> {
    let to = ArrowType::try_from(to).map_err(wire)?.encode_to_vec();
    Ok(ConvertFunction {
        column: column.to_string(),
        to,
    }
    .encode_to_vec())
}

fn convert_from_wire(buf: &[u8]) -> Result<(String, DataType)> {
    let node = ConvertFunction::decode(buf).map_err(wire)?;
    let to = ArrowType::decode(node.to.as_slice()).map_err(wire)?;
    Ok((node.column, DataType::try_from(&to).map_err(wire)?))
}

impl PhysicalExtensionCodec for WindrowCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match PlanNode::decode(buf).map_err(wire)?.node {
            Some(Node::Stage(node)) => Ok(Arc::new(self.stage_from_wire(
                node,
                one_input(inputs)?,
                ctx,
            )?)),
            Some(Node::KeptRows(node)) => {
                let files = node.files.into_iter().map(|f| (f.file, f.runs)).collect();
                Ok(Arc::new(KeptRowsExec::new(files, one_input(inputs)?)))
            }
            Some(Node::OneTask(_)) => Ok(Arc::new(OneTaskExec::new(one_input(inputs)?))),
            Some(Node::Runtime(bytes)) => self.runtime.try_decode(&bytes, inputs, ctx, converter),
            None => Err(DataFusionError::Plan(
                "a plan node on the wire is of a kind that this version does not know".into(),
            )),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node = if let Some(stage) = node.downcast_ref::<StageExec>() {
            Node::Stage(self.stage_to_wire(stage)?)
        } else if let Some(kept) = node.downcast_ref::<KeptRowsExec>() {
            let files = kept
                .files()
                .iter()
                .map(|(file, runs)| KeptRowsOfFile {
                    file: file.clone(),
                    runs: runs.clone(),
                })
                .collect();
            Node::KeptRows(KeptRowsNode { files })
        } else if node.is::<OneTaskExec>() {
            Node::OneTask(OneTaskNode {})
        } else {
            let mut bytes = Vec::new();
            self.runtime.try_encode(node, &mut bytes, converter)?;
            Node::Runtime(bytes)
        };
        PlanNode { node: Some(node) }.encode(buf).map_err(wire)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        if let Some(relabel) = of::<Relabel>(node) {
            buf.extend(convert_to_wire("", &relabel.to)?);
        } else if let Some(cast) = of::<StoreCast>(node) {
            buf.extend(convert_to_wire(&cast.column, &cast.to)?);
        }
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        let (column, to) = convert_from_wire(buf)?;
        match name {
            Relabel::NAME => Ok(Arc::new(function(Relabel { to }))),
            StoreCast::NAME => Ok(Arc::new(function(StoreCast { column, to }))),
            _ => Err(DataFusionError::Plan(format!(
                "function `{name}` on the wire is not known to this version"
            ))),
        }
    }
}
