//! Comparisons of floats in one pass.
//!
//! The analyzer brings floats to a form first in which arrow compares them as Spark does (`floats`).
//! Plans keep that form as long as they are rewritten, since rules know what a comparison is. When all is
//! planned, the two steps become one: what is compared is looked at once, and nothing is written in
//! between.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::operand::Operand;
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::{functions, types};

/// The function of one comparison; `$holds` says of two numbers or NaN whether it holds.
macro_rules! comparison {
    ($name:literal, |$a:ident, $b:ident| $holds:expr) => {
        Definition {
            name: $name,
            params: Params::Two(&[Param::Any, Param::Any]),
            returns: Returns::Of(Param::Boolean),
            evaluate: |call| match call.args[0].data_type() {
                DataType::Float32 => rows::<Float32Type>(call, |$a: f32, $b: f32| $holds),
                DataType::Float64 => rows::<Float64Type>(call, |$a: f64, $b: f64| $holds),
                other => exec_err!("{} is no float", types::name(other)),
            },
        }
    };
}

pub(super) static FUNCTIONS: &[Definition] = &[
    comparison!("spark_float_eq", |a, b| (a == b)
        | (a.is_nan() & b.is_nan())),
    comparison!("spark_float_ne", |a, b| (a != b)
        & !(a.is_nan() & b.is_nan())),
    // A NaN is greater than any number, so what is not less is equal or greater.
    comparison!("spark_float_lt", |a, b| !((a >= b) | a.is_nan())),
    comparison!("spark_float_gt", |a, b| !((b >= a) | b.is_nan())),
    comparison!("spark_float_le", |a, b| (b >= a) | b.is_nan()),
    comparison!("spark_float_ge", |a, b| (a >= b) | a.is_nan()),
];

fn function(operator: &Operator) -> Option<&'static str> {
    Some(match operator {
        Operator::Eq => "spark_float_eq",
        Operator::NotEq => "spark_float_ne",
        Operator::Lt => "spark_float_lt",
        Operator::Gt => "spark_float_gt",
        Operator::LtEq => "spark_float_le",
        Operator::GtEq => "spark_float_ge",
        _ => return None,
    })
}

fn rows<T: ArrowPrimitiveType>(
    call: &Call,
    holds: impl Fn(T::Native, T::Native) -> bool,
) -> Result<ArrayRef> {
    let operand = |index: usize| match call.args[index].as_primitive_opt::<T>() {
        Some(_) => Ok(Operand::<T>::new(
            &call.args[index],
            call.is_constant(index),
        )),
        None => exec_err!("the sides of a comparison have unlike types"),
    };
    let found = match (operand(0)?, operand(1)?) {
        (Operand::Rows(left), Operand::Rows(right)) if left.len() == right.len() => {
            let nulls = NullBuffer::union(left.nulls(), right.nulls());
            let pairs = left.values().chunks(WORD).zip(right.values().chunks(WORD));
            let words = pairs.map(|(left, right)| {
                let pairs = left.iter().zip(right);
                word(pairs.map(|(left, right)| holds(*left, *right)))
            });
            bits(words, left.len(), nulls)
        }
        (Operand::Rows(left), Operand::One(Some(right))) => one_side(&left, |l| holds(l, right)),
        (Operand::One(Some(left)), Operand::Rows(right)) => one_side(&right, |r| holds(left, r)),
        _ => BooleanArray::new_null(call.rows),
    };
    Ok(Arc::new(found))
}

const WORD: usize = u64::BITS as usize;

/// The bits of up to 64 rows.
fn word(rows: impl Iterator<Item = bool>) -> u64 {
    rows.enumerate()
        .fold(0, |word, (at, row)| word | (u64::from(row) << at))
}

fn one_side<T: ArrowPrimitiveType>(
    rows: &PrimitiveArray<T>,
    holds: impl Fn(T::Native) -> bool,
) -> BooleanArray {
    let words = rows.values().chunks(WORD);
    let words = words.map(|chunk| word(chunk.iter().map(|value| holds(*value))));
    bits(words, rows.len(), rows.nulls().cloned())
}

fn bits(words: impl Iterator<Item = u64>, rows: usize, nulls: Option<NullBuffer>) -> BooleanArray {
    let words: Vec<u64> = words.map(u64::to_le).collect();
    BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(words), 0, rows), nulls)
}

/// Makes one step of the two in projections and filters.
#[derive(Debug)]
pub struct FloatComparisons;

impl PhysicalOptimizerRule for FloatComparisons {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let config = Arc::new(config.clone());
        let done = plan.transform_up(|node| {
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                let schema = filter.input().schema();
                let predicate = fused(filter.predicate(), &schema, &config)?;
                if !predicate.transformed {
                    return Ok(Transformed::no(node));
                }
                let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data);
                return Ok(Transformed::yes(Arc::new(filter.build()?)));
            }
            if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                let schema = projection.input().schema();
                let mut changed = false;
                let mut exprs = Vec::with_capacity(projection.expr().len());
                for column in projection.expr() {
                    let expr = fused(&column.expr, &schema, &config)?;
                    changed |= expr.transformed;
                    exprs.push(ProjectionExpr::new(expr.data, column.alias.clone()));
                }
                if changed {
                    let projection = ProjectionExec::try_new(exprs, projection.input().clone())?;
                    return Ok(Transformed::yes(Arc::new(projection)));
                }
            }
            Ok(Transformed::no(node))
        });
        Ok(done?.data)
    }

    fn name(&self) -> &str {
        "FloatComparisons"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn fused(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    config: &Arc<ConfigOptions>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.clone().transform_up(|expr| {
        let Some(comparison) = expr.downcast_ref::<BinaryExpr>() else {
            return Ok(Transformed::no(expr));
        };
        let (left, right) = (comparison.left(), comparison.right());
        let udf = function(comparison.op()).and_then(functions::find);
        let (Some(udf), Some(plain_left), Some(plain_right)) = (udf, plain(left), plain(right))
        else {
            return Ok(Transformed::no(expr));
        };
        let type_of = |side: &Arc<dyn PhysicalExpr>| side.data_type(schema);
        let data_type = type_of(&plain_left)?;
        let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
        if !is_float || data_type != type_of(&plain_right)? {
            return Ok(Transformed::no(expr));
        }
        let field = Field::new(udf.name(), DataType::Boolean, expr.nullable(schema)?);
        Ok(Transformed::yes(Arc::new(ScalarFunctionExpr::new(
            udf.name(),
            udf.clone(),
            vec![plain_left, plain_right],
            Arc::new(field),
            config.clone(),
        ))))
    })
}

/// A side of a comparison before it was brought to the form for comparing.
fn plain(side: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    if side.is::<Literal>() {
        return Some(side.clone());
    }
    let call = side.downcast_ref::<ScalarFunctionExpr>()?;
    let is_form = call.name() == "spark_normalize";
    call.args().first().filter(|_| is_form).cloned()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float32Array, Float64Array, RecordBatch};
    use datafusion::physical_expr::expressions::{col, lit};

    use super::*;

    /// All kinds of doubles, and nulls, each beside each.
    fn batch() -> RecordBatch {
        let kinds = [
            None,
            Some(f64::NAN),
            Some(-f64::NAN),
            Some(f64::from_bits(0x7ff8_0000_0000_0001)),
            Some(0.0),
            Some(-0.0),
            Some(1.5),
            Some(-1.5),
            Some(5e-324),
            Some(f64::INFINITY),
            Some(f64::NEG_INFINITY),
            Some(f64::MAX),
        ];
        let pairs = || {
            kinds
                .iter()
                .flat_map(|l| kinds.iter().map(move |r| (*l, *r)))
        };
        let a: Float64Array = pairs().map(|(l, _)| l).collect();
        let b: Float64Array = pairs().map(|(_, r)| r).collect();
        let single = |array: &Float64Array| -> Float32Array {
            array.iter().map(|v| v.map(|v| v as f32)).collect()
        };
        let (c, d) = (single(&a), single(&b));
        let columns: [(&str, ArrayRef); 4] = [
            ("a", Arc::new(a)),
            ("b", Arc::new(b)),
            ("c", Arc::new(c)),
            ("d", Arc::new(d)),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
    }

    const OPERATORS: [Operator; 6] = [
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::Gt,
        Operator::LtEq,
        Operator::GtEq,
    ];

    #[test]
    fn one_step_says_what_two_say() {
        let batch = batch();
        let schema = batch.schema();
        let config = Arc::new(ConfigOptions::default());
        let formed = |name: &str| -> Arc<dyn PhysicalExpr> {
            let column = col(name, &schema).unwrap();
            let udf = functions::find("spark_normalize").unwrap();
            let call = ScalarFunctionExpr::try_new(udf, vec![column], &schema, config.clone());
            Arc::new(call.unwrap())
        };
        let mut sides = vec![(formed("a"), formed("b")), (formed("c"), formed("d"))];
        for constant in [0.0, 1.5, f64::NAN, f64::INFINITY] {
            sides.push((formed("a"), lit(constant)));
            sides.push((lit(constant), formed("b")));
        }
        sides.push((
            formed("a"),
            lit(datafusion::common::ScalarValue::Float64(None)),
        ));
        for (left, right) in sides {
            for operator in OPERATORS {
                let two: Arc<dyn PhysicalExpr> =
                    Arc::new(BinaryExpr::new(left.clone(), operator, right.clone()));
                let one = fused(&two, &schema, &config).unwrap();
                assert!(one.transformed, "{two}");
                // A batch that does not begin or end where a word does, too.
                for part in [batch.clone(), batch.slice(3, 100)] {
                    let value = |expr: &Arc<dyn PhysicalExpr>| {
                        let value = expr.evaluate(&part).unwrap();
                        value.into_array(part.num_rows()).unwrap()
                    };
                    assert_eq!(value(&one.data).as_ref(), value(&two).as_ref(), "{two}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_brought_to_the_form_stays() {
        let batch = batch();
        let schema = batch.schema();
        let config = Arc::new(ConfigOptions::default());
        let column = |name: &str| col(name, &schema).unwrap();
        let plain: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(column("a"), Operator::Lt, column("b")));
        assert!(!fused(&plain, &schema, &config).unwrap().transformed);
    }
}
