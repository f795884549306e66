//! The frame of the functions that plans put around a column to give it another type: one argument,
//! a type that is known beforehand, array by array.

use std::fmt::Debug;
use std::hash::Hash;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// What such a function does.
pub(crate) trait Convert: Debug + Eq + Hash + Send + Sync + 'static {
    /// The function's name in plans.
    const NAME: &str;

    /// The type of the result.
    fn to(&self) -> &DataType;

    /// # Errors
    /// If a value can't be had in the type.
    fn convert(&self, array: &ArrayRef) -> Result<ArrayRef>;
}

/// The function that `convert` describes.
pub(crate) fn function(convert: impl Convert) -> ScalarUDF {
    ScalarUDF::new_from_impl(Function {
        convert,
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// What `udf` does, if it is a function of this kind.
pub(crate) fn of<C: Convert>(udf: &ScalarUDF) -> Option<&C> {
    udf.inner()
        .downcast_ref::<Function<C>>()
        .map(|function| &function.convert)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function<C> {
    convert: C,
    signature: Signature,
}

impl<C: Convert> ScalarUDFImpl for Function<C> {
    fn name(&self) -> &str {
        C::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.convert.to().clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = args.args[0].to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(self.convert.convert(&array)?))
    }
}
