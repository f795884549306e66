//! Writing a wider value into a narrower column: allowed where it loses nothing, an error that
//! names the column and shows the value where it would.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use windrow_flows::types::sql_name;

use crate::convert::{Convert, function};

/// `expr` as `to`, for the column `column` of a target.
pub fn store_cast(expr: Expr, column: &str, to: &DataType) -> Expr {
    function(StoreCast {
        column: column.to_string(),
        to: to.clone(),
    })
    .call(vec![expr])
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreCast {
    pub(crate) column: String,
    pub(crate) to: DataType,
}

impl Convert for StoreCast {
    const NAME: &str = "__windrow_store_cast";

    fn to(&self) -> &DataType {
        &self.to
    }

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
