//! `coalesce`, which must not compute what stands behind the first value.

use datafusion::arrow::compute::is_not_null;
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::types;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Coalesce {
    signature: Signature,
}

/// The function.
pub(super) fn coalesce() -> ScalarUDF {
    ScalarUDF::new_from_impl(Coalesce {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

impl ScalarUDFImpl for Coalesce {
    fn name(&self) -> &str {
        "coalesce"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let mut common = DataType::Null;
        for given in given {
            common = match types::common(&common, given) {
                Some(found) => found,
                None => {
                    return plan_err!(
                        "DATATYPE_MISMATCH: {} and {} can not meet in coalesce",
                        types::name(&common),
                        types::name(given)
                    );
                }
            };
        }
        Ok(vec![common; given.len()])
    }

    fn short_circuits(&self) -> bool {
        true
    }

    fn simplify(&self, mut args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(last) = args.pop() else {
            return plan_err!("coalesce needs an argument");
        };
        if args.is_empty() {
            return Ok(ExprSimplifyResult::Simplified(last));
        }
        let branches = args
            .into_iter()
            .map(|value| (Box::new(value.clone().is_not_null()), Box::new(value)))
            .collect();
        let case = Case::new(None, branches, Some(Box::new(last)));
        Ok(ExprSimplifyResult::Simplified(Expr::Case(case)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut arrays = args
            .args
            .iter()
            .rev()
            .map(|arg| arg.to_array(args.number_rows));
        let Some(mut result) = arrays.next().transpose()? else {
            return plan_err!("coalesce needs an argument");
        };
        for array in arrays {
            let array = array?;
            result = zip(&is_not_null(&array)?, &array, &result)?;
        }
        Ok(ColumnarValue::Array(result))
    }
}
