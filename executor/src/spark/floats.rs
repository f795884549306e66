//! Floats as Spark compares them: all NaN are one value, greater than any number, and -0.0 equals
//! 0.0. Arrow compares by total order, so floats that are compared are brought to a form first in
//! which both agree.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};

use super::functions;
use super::scalar::{Call, Definition, Param, Params, Returns};

pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: "spark_normalize",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Any],
        },
        returns: Returns::Custom(|given, _| Ok(given.first().cloned().unwrap_or(DataType::Null))),
        evaluate: |call| evaluate(call, true),
    },
    Definition {
        name: "spark_canonical_nan",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Any],
        },
        returns: Returns::Custom(|given, _| Ok(given.first().cloned().unwrap_or(DataType::Null))),
        evaluate: |call| evaluate(call, false),
    },
];

/// Whether values of the type have a float in them.
pub(super) fn has_float(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(field) => has_float(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_float(field.data_type())),
        _ => false,
    }
}

/// The expression in the form for comparing.
pub(super) fn normalized(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    wrapped("spark_normalize", expr, schema)
}

/// The expression with all NaN alike; the zeros stay what they are.
pub(super) fn canonical_nan(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    wrapped("spark_canonical_nan", expr, schema)
}

fn wrapped(name: &str, expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let done = matches!(&expr, Expr::ScalarFunction(function) if function.func.name() == name);
    if done || !has_float(&expr.get_type(schema)?) {
        return Ok(expr);
    }
    Ok(functions::call(name, vec![expr]))
}

/// The rows of a plan with all its floats in the form for comparing.
pub(super) fn normalized_rows(input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    if !schema
        .fields()
        .iter()
        .any(|field| has_float(field.data_type()))
    {
        return Ok(input);
    }
    project(input, |field, _| has_float(field))
}

/// The rows of a plan with those of its floats in the form for comparing that `keys` names.
pub(super) fn normalized_columns(
    input: Arc<LogicalPlan>,
    keys: &[&Expr],
) -> Result<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let named = |column: &Expr| keys.contains(&column);
    let mut columns = schema.iter();
    let any = columns.any(|(qualifier, field)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        named(&column) && has_float(field.data_type())
    });
    match any {
        true => project(input, |field, column| named(column) && has_float(field)),
        false => Ok(input),
    }
}

fn project(
    input: Arc<LogicalPlan>,
    wanted: impl Fn(&DataType, &Expr) -> bool,
) -> Result<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (qualifier, field) in schema.iter() {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        columns.push(match wanted(field.data_type(), &column) {
            true => normalized(column, &schema)?.alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        });
    }
    let input = Arc::unwrap_or_clone(input);
    Ok(Arc::new(
        LogicalPlanBuilder::from(input).project(columns)?.build()?,
    ))
}

fn evaluate(call: &Call, zeros: bool) -> Result<ArrayRef> {
    Ok(normalize(&call.args[0], zeros))
}

/// Whether no value is a NaN or, with `zeros`, a negative zero. By signs of whole numbers, which takes no
/// comparison in the loop.
macro_rules! is_normal {
    ($float:ty, $bits:ty, $array:expr, $zeros:expr) => {{
        let infinite = <$float>::INFINITY.to_bits() as $bits;
        let zeros: $bits = if $zeros { -1 } else { 0 };
        let marks = $array.values().iter().fold(0, |marks, value| {
            let bits = value.to_bits() as $bits;
            let magnitude = bits & <$bits>::MAX;
            let nan = infinite - magnitude;
            let negative_zero = (magnitude - 1) & bits & zeros;
            marks | nan | negative_zero
        });
        marks >= 0
    }};
}

pub(super) fn normalize(array: &ArrayRef, zeros: bool) -> ArrayRef {
    // Looking at all values is cheaper than writing them.
    let is_normal = match array.data_type() {
        DataType::Float32 => is_normal!(f32, i32, array.as_primitive::<Float32Type>(), zeros),
        DataType::Float64 => is_normal!(f64, i64, array.as_primitive::<Float64Type>(), zeros),
        _ => false,
    };
    if is_normal {
        return Arc::clone(array);
    }
    match array.data_type() {
        // A sum with 0.0 makes one zero of both, and leaves all others what they are.
        DataType::Float32 => {
            let zero = if zeros { 0.0 } else { -0.0 };
            let values: PrimitiveArray<Float32Type> =
                array
                    .as_primitive::<Float32Type>()
                    .unary(|value| match value.is_nan() {
                        true => f32::NAN,
                        false => value + zero,
                    });
            Arc::new(values)
        }
        DataType::Float64 => {
            let zero = if zeros { 0.0 } else { -0.0 };
            let values: PrimitiveArray<Float64Type> =
                array
                    .as_primitive::<Float64Type>()
                    .unary(|value| match value.is_nan() {
                        true => f64::NAN,
                        false => value + zero,
                    });
            Arc::new(values)
        }
        DataType::List(field) if has_float(field.data_type()) => {
            let (field, offsets, values, nulls) = array.as_list::<i32>().clone().into_parts();
            Arc::new(ListArray::new(
                field,
                offsets,
                normalize(&values, zeros),
                nulls,
            ))
        }
        DataType::Struct(_) if has_float(array.data_type()) => {
            let (fields, columns, nulls) = array.as_struct().clone().into_parts();
            let columns = columns
                .iter()
                .map(|column| normalize(column, zeros))
                .collect();
            Arc::new(StructArray::new(fields, columns, nulls))
        }
        _ => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_normal_is_written_anew() {
        let normal = [0.0, 1.0, -1.0, f64::MIN, f64::MAX, 5e-324, -5e-324];
        let infinite = [f64::INFINITY, f64::NEG_INFINITY];
        let is_normal = |values: &[f64], zeros| {
            let array = PrimitiveArray::<Float64Type>::from_iter_values(values.iter().copied());
            is_normal!(f64, i64, array, zeros)
        };
        for zeros in [true, false] {
            assert!(is_normal(&[normal.as_slice(), &infinite].concat(), zeros));
            assert!(!is_normal(&[1.0, f64::NAN], zeros));
            assert!(!is_normal(&[-f64::NAN, 1.0], zeros));
            assert_eq!(is_normal(&[1.0, -0.0, 2.0], zeros), !zeros);
        }
    }
}
