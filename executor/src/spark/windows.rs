//! Window functions that pass over nulls. DataFusion's own forget on the wire that they should, so
//! that these are functions by other names, which can not forget it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_window::all_default_window_functions;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;

/// The function's name here, and DataFusion's.
const ALL: [(&str, &str); 5] = [
    ("spark_first_value_set", "first_value"),
    ("spark_last_value_set", "last_value"),
    ("spark_nth_value_set", "nth_value"),
    ("spark_lag_set", "lag"),
    ("spark_lead_set", "lead"),
];

/// All functions of this module.
pub(super) fn functions() -> Vec<Arc<WindowUDF>> {
    let known = all_default_window_functions();
    ALL.into_iter()
        .filter_map(|(name, of)| {
            let inner = Arc::clone(known.iter().find(|function| function.name() == of)?);
            Some(Arc::new(WindowUDF::new_from_impl(Passing { name, inner })))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Passing {
    name: &'static str,
    inner: Arc<WindowUDF>,
}

impl WindowUDFImpl for Passing {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        self.inner
            .partition_evaluator_factory(PartitionEvaluatorArgs::new(
                args.input_exprs(),
                args.input_fields(),
                args.is_reversed(),
                true,
            ))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(given)
    }
}
