//! Writing a wider value into a narrower column: allowed where it loses nothing, an error that
//! names the column and shows the value where it would.

use std::fmt;
use std::hash::{Hash, Hasher};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use windrow_flows::types::sql_name;

/// `expr` as `to`, for the column `column` of a target.
pub fn store_cast(expr: Expr, column: &str, to: &DataType) -> Expr {
    ScalarUDF::new_from_impl(StoreCast {
        column: column.to_string(),
        to: to.clone(),
        signature: Signature::any(1, Volatility::Immutable),
    })
    .call(vec![expr])
}

struct StoreCast {
    column: String,
    to: DataType,
    signature: Signature,
}

impl PartialEq for StoreCast {
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column && self.to == other.to
    }
}

impl Eq for StoreCast {}

impl Hash for StoreCast {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
        self.to.hash(state);
    }
}

impl fmt::Debug for StoreCast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreCast({}: {})", self.column, self.to)
    }
}

impl ScalarUDFImpl for StoreCast {
    fn name(&self) -> &str {
        "__windrow_store_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = args.args[0].to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(self.convert(&array)?))
    }
}

impl StoreCast {
    fn convert(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let stored = cast_with_options(array, &self.to, &options)?;
        // The way back must give what was there; a value that did not fit came out as null.
        let back = cast_with_options(&stored, array.data_type(), &options)?;
        let kept = not_distinct(array, &back)?;
        match (0..kept.len()).find(|i| !kept.value(*i)) {
            None => Ok(stored),
            Some(row) => {
                let value = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default())
                    .map(|f| f.value(row).to_string())
                    .unwrap_or_default();
                Err(DataFusionError::Execution(format!(
                    "value {value} does not fit column `{}`, which is {}; write it to a new column, or do a full refresh",
                    self.column,
                    sql_name(&self.to)
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Float64Array, Int64Array};

    use super::*;

    fn convert(array: ArrayRef, to: DataType) -> Result<ArrayRef> {
        StoreCast {
            column: "n".into(),
            to,
            signature: Signature::any(1, Volatility::Immutable),
        }
        .convert(&array)
    }

    #[test]
    fn what_fits_is_kept_and_what_does_not_is_named() {
        let fits: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(1),
            None,
            Some(i64::from(i32::MAX)),
        ]));
        assert_eq!(
            convert(fits.clone(), DataType::Int32).unwrap().null_count(),
            1
        );
        let over: ArrayRef = Arc::new(Int64Array::from(vec![2_147_483_648]));
        let error = convert(over, DataType::Int32).unwrap_err().to_string();
        assert!(
            error.contains("2147483648") && error.contains("`n`"),
            "{error}"
        );
        let half: ArrayRef = Arc::new(Float64Array::from(vec![0.5, f64::NAN]));
        assert!(convert(half, DataType::Float32).is_ok());
        let tenth: ArrayRef = Arc::new(Float64Array::from(vec![0.1]));
        assert!(convert(tenth, DataType::Float32).is_err());
    }
}
