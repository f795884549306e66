//! The operators on numbers: checked, with Spark's result types.
//!
//! An operator call may carry one more argument, `'p1,p2'`: how many digits an operand has that is
//! an integer literal. Next to a decimal, a literal counts with its own digits instead of those of
//! its type.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::compute::{cast as arrow_cast, try_unary};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};

use super::cast::{Exact, Failure, divide_half_up, format_decimal, power_of_ten};
use super::operand::{Mark, Operand, Pair, all_within};
use super::scalar::{Call, Definition, Params, Returns};
use super::short::{self, Align, Rescale, Steps};
use super::{interval, types};

macro_rules! operator {
    ($name:literal, $op:expr, $failure:expr) => {
        Definition {
            name: $name,
            params: Params::Operands(|given| coerce($op, given)),
            returns: Returns::Custom(|given, literals| result_type($op, given, literals)),
            evaluate: |call| evaluate($op, $failure, call),
        }
    };
}

pub(super) static FUNCTIONS: &[Definition] = &[
    operator!("spark_add", Op::Add, Failure::Error),
    operator!("spark_subtract", Op::Subtract, Failure::Error),
    operator!("spark_multiply", Op::Multiply, Failure::Error),
    operator!("spark_divide", Op::Divide, Failure::Error),
    operator!("mod", Op::Remainder, Failure::Error),
    operator!("pmod", Op::PositiveRemainder, Failure::Error),
    operator!("spark_div", Op::Integral, Failure::Error),
    operator!("try_add", Op::Add, Failure::Null),
    operator!("try_subtract", Op::Subtract, Failure::Null),
    operator!("try_multiply", Op::Multiply, Failure::Null),
    operator!("try_divide", Op::Divide, Failure::Null),
    operator!("try_mod", Op::Remainder, Failure::Null),
    Definition {
        name: "negative",
        params: Params::Custom(one_number),
        returns: Returns::Custom(|given, _| same(given)),
        evaluate: |call| evaluate_sign(call, true),
    },
    // `+x` of a text is a number, too.
    Definition {
        name: "spark_positive",
        params: Params::Custom(one_number),
        returns: Returns::Custom(|given, _| same(given)),
        evaluate: |call| Ok(Arc::clone(&call.args[0])),
    },
    Definition {
        name: "abs",
        params: Params::Custom(one_number),
        returns: Returns::Custom(|given, _| same(given)),
        evaluate: |call| evaluate_sign(call, false),
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    PositiveRemainder,
    Integral,
}

impl Op {
    fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::PositiveRemainder => "pmod",
            Self::Integral => "div",
        }
    }

    fn divides(self) -> bool {
        !matches!(self, Self::Add | Self::Subtract | Self::Multiply)
    }
}

fn same(given: &[DataType]) -> Result<DataType> {
    Ok(given.first().cloned().unwrap_or(DataType::Null))
}

/// One number; text is read as a DOUBLE.
pub(super) fn one_number(given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [one] => match types::plain_text(one) {
            DataType::Utf8 | DataType::Null => Ok(vec![DataType::Float64]),
            number if types::is_number(&number) => Ok(vec![number]),
            other => plan_err!(
                "DATATYPE_MISMATCH: a number is needed, not {}",
                types::name(&other)
            ),
        },
        _ => plan_err!("one argument is needed"),
    }
}

fn coerce(op: Op, given: &[DataType]) -> Result<Vec<DataType>> {
    let [left, right, rest @ ..] = given else {
        return plan_err!("an operator needs two operands");
    };
    let (left, right) = (types::plain_text(left), types::plain_text(right));
    // Decided by the analyzer, which knows the zone.
    if interval::operation(op.symbol(), &left, &right).is_some() {
        return Ok(given.to_vec());
    }
    let mut coerced = match (&left, &right) {
        (DataType::Date32, days) if is_days(days) && matches!(op, Op::Add | Op::Subtract) => {
            vec![DataType::Date32, DataType::Int32]
        }
        (days, DataType::Date32) if is_days(days) && op == Op::Add => {
            vec![DataType::Int32, DataType::Date32]
        }
        _ => numbers(op, &left, &right)?,
    };
    coerced.extend(rest.iter().map(types::plain_text));
    Ok(coerced)
}

fn is_days(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Null
    )
}

fn numbers(op: Op, left: &DataType, right: &DataType) -> Result<Vec<DataType>> {
    let operand =
        |t: &DataType| types::is_number(t) || matches!(t, DataType::Utf8 | DataType::Null);
    let common = types::common(left, right).filter(|_| operand(left) && operand(right));
    let Some(common) = common else {
        let hint = match (left, right) {
            (DataType::Date32, DataType::Date32) => "; use datediff for the days between",
            (l, r) if types::is_time(l) && types::is_time(r) => "; compare unix_micros instead",
            _ => "",
        };
        return plan_err!(
            "DATATYPE_MISMATCH: {} {} {} is not available{hint}",
            types::name(left),
            op.symbol(),
            types::name(right)
        );
    };
    let exact = |t: &DataType| types::as_decimal(t).is_some();
    Ok(match common {
        // Each keeps its own precision, which the type of the result follows from.
        DataType::Decimal128(..) if exact(left) && exact(right) => {
            vec![left.clone(), right.clone()]
        }
        DataType::Decimal128(..) => vec![common.clone(), common],
        DataType::Null | DataType::Utf8 => vec![DataType::Float64, DataType::Float64],
        _ if op == Op::Divide => vec![DataType::Float64, DataType::Float64],
        integer if op == Op::Integral && types::is_integer(&integer) => {
            vec![DataType::Int64, DataType::Int64]
        }
        DataType::Float32 | DataType::Float64 if op == Op::Integral => {
            return plan_err!(
                "DATATYPE_MISMATCH: div is not available for {}",
                types::name(&common)
            );
        }
        other => vec![other.clone(), other],
    })
}

fn result_type(op: Op, given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let [left, right, ..] = given else {
        return plan_err!("an operator needs two operands");
    };
    if let Some(plan) = interval::operation(op.symbol(), left, right) {
        return Ok(plan.result);
    }
    if left == &DataType::Date32 || right == &DataType::Date32 {
        return Ok(DataType::Date32);
    }
    if op == Op::Integral {
        return Ok(DataType::Int64);
    }
    if left == right && !matches!(left, DataType::Decimal128(..)) {
        return Ok(left.clone());
    }
    let digits = literals
        .get(2)
        .copied()
        .flatten()
        .and_then(|value| value.try_as_str().flatten());
    let (left_digits, right_digits) = digits
        .and_then(|text| text.split_once(','))
        .unwrap_or_default();
    let decimal = |data_type: &DataType, digits: &str| match digits.parse::<u8>() {
        Ok(digits) if types::is_integer(data_type) => Some((digits, 0)),
        _ => types::as_decimal(data_type),
    };
    match (decimal(left, left_digits), decimal(right, right_digits)) {
        (Some(left), Some(right)) => Ok(decimal_result(op, left, right)),
        _ => plan_err!("operands of unlike types: {left} {} {right}", op.symbol()),
    }
}

fn decimal_result(op: Op, left: (u8, i8), right: (u8, i8)) -> DataType {
    let (p1, s1) = (i32::from(left.0), i32::from(left.1));
    let (p2, s2) = (i32::from(right.0), i32::from(right.1));
    let (precision, scale) = match op {
        Op::Add | Op::Subtract => {
            let scale = s1.max(s2);
            ((p1 - s1).max(p2 - s2) + scale + 1, scale)
        }
        Op::Multiply => (p1 + p2 + 1, s1 + s2),
        Op::Divide | Op::Integral => {
            let scale = 6.max(s1 + p2 + 1);
            (p1 - s1 + s2 + scale, scale)
        }
        Op::Remainder | Op::PositiveRemainder => {
            let scale = s1.max(s2);
            ((p1 - s1).min(p2 - s2) + scale, scale)
        }
    };
    types::adjusted_decimal(precision, scale)
}

/// Names the operation in the errors of its values.
struct Fault<'a> {
    op: Op,
    call: &'a Call<'a>,
}

impl Fault<'_> {
    fn overflow(&self, left: impl std::fmt::Display, right: impl std::fmt::Display) -> ArrowError {
        let symbol = self.op.symbol();
        ArrowError::ComputeError(format!(
            "ARITHMETIC_OVERFLOW: overflow in {} {symbol} {}: {left} {symbol} {right} does not fit {}",
            operand(self.call.name(0)),
            operand(self.call.name(1)),
            types::name(self.call.return_type)
        ))
    }

    fn zero(&self, left: impl std::fmt::Display) -> ArrowError {
        let symbol = self.op.symbol();
        ArrowError::ComputeError(format!(
            "DIVIDE_BY_ZERO: division by zero in {} {symbol} {}: {left} {symbol} 0",
            operand(self.call.name(0)),
            operand(self.call.name(1)),
        ))
    }
}

fn operand(name: &str) -> &str {
    if name == "lit" { "a literal" } else { name }
}

pub(super) fn unpack(error: ArrowError) -> DataFusionError {
    match error {
        ArrowError::ComputeError(message) => DataFusionError::Execution(message),
        other => other.into(),
    }
}

fn evaluate(op: Op, failure: Failure, call: &Call) -> Result<ArrayRef> {
    let [left, right, ..] = call.args else {
        return plan_err!("an operator needs two operands");
    };
    let operation = Operation {
        op,
        failure,
        fault: Fault { op, call },
    };
    match (left.data_type(), right.data_type()) {
        (DataType::Date32, _) => operation.dates(&operation.pair(left, right)),
        (_, DataType::Date32) => {
            let Pair { left, right } = operation.pair(left, right);
            operation.dates(&Pair {
                left: right,
                right: left,
            })
        }
        (DataType::Int8, DataType::Int8) => operation.integers::<Int8Type>(left, right),
        (DataType::Int16, DataType::Int16) => operation.integers::<Int16Type>(left, right),
        (DataType::Int32, DataType::Int32) => operation.integers::<Int32Type>(left, right),
        (DataType::Int64, DataType::Int64) => {
            let products = match op {
                Op::Multiply => small_multiples(&operation.pair(left, right)),
                _ => None,
            };
            match products {
                Some(products) => Ok(Arc::new(products)),
                None => operation.integers::<Int64Type>(left, right),
            }
        }
        (DataType::Float32, DataType::Float32) => operation.floats::<Float32Type>(left, right),
        (DataType::Float64, DataType::Float64) => operation.floats::<Float64Type>(left, right),
        _ => operation.decimals(left, right),
    }
}

/// Integers that the operators work on.
pub(super) trait Integer: Mark + PartialEq + std::fmt::Display {
    const ZERO: Self;
    fn apply(self, op: Op, other: Self) -> Option<Self>;
    /// The wrapped result, with a mark if it was wrapped.
    fn sum(self, other: Self) -> (Self, Self);
    fn difference(self, other: Self) -> (Self, Self);
    fn product(self, other: Self) -> (Self, bool);
    /// The remainder, with a mark if it is one of a division by zero.
    fn rest(self, other: Self) -> (Self, bool);
}

macro_rules! integer {
    ($($native:ty),*) => {$(
        impl Integer for $native {
            const ZERO: Self = 0;
            fn apply(self, op: Op, other: Self) -> Option<Self> {
                match op {
                    Op::Add => self.checked_add(other),
                    Op::Subtract => self.checked_sub(other),
                    Op::Multiply => self.checked_mul(other),
                    Op::Divide | Op::Integral => self.checked_div(other),
                    Op::Remainder => Some(self.wrapping_rem(other)),
                    Op::PositiveRemainder => {
                        let remainder = self.wrapping_rem(other);
                        if remainder < 0 {
                            Some(remainder.wrapping_add(other).wrapping_rem(other))
                        } else {
                            Some(remainder)
                        }
                    }
                }
            }
            // By the signs, which the compiler can do for many rows at once.
            fn sum(self, other: Self) -> (Self, Self) {
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum))
            }
            fn difference(self, other: Self) -> (Self, Self) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference))
            }
            fn product(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
            fn rest(self, other: Self) -> (Self, bool) {
                match other {
                    0 => (self, true),
                    _ => (self.wrapping_rem(other), false),
                }
            }
        }
    )*};
}

integer!(i8, i16, i32, i64);

trait Float: Copy + PartialEq + std::fmt::Display {
    const ZERO: Self;
    /// As wide as the number.
    type Mark: Mark;
    fn apply(self, op: Op, other: Self) -> Self;
    /// Marks a zero.
    fn zero_mark(self) -> Self::Mark;
}

macro_rules! float {
    ($($native:ty, $mark:ty);*) => {$(
        impl Float for $native {
            const ZERO: Self = 0.0;
            type Mark = $mark;
            fn zero_mark(self) -> Self::Mark {
                -<$mark>::from(self == 0.0)
            }
            fn apply(self, op: Op, other: Self) -> Self {
                match op {
                    Op::Add => self + other,
                    Op::Subtract => self - other,
                    Op::Multiply => self * other,
                    Op::Divide | Op::Integral => self / other,
                    Op::Remainder => self % other,
                    Op::PositiveRemainder => {
                        let remainder = self % other;
                        if remainder < 0.0 { (remainder + other) % other } else { remainder }
                    }
                }
            }
        }
    )*};
}

float!(f32, i32; f64, i64);

struct Operation<'a> {
    op: Op,
    failure: Failure,
    fault: Fault<'a>,
}

impl Operation<'_> {
    fn pair<L: ArrowPrimitiveType, R: ArrowPrimitiveType>(
        &self,
        left: &ArrayRef,
        right: &ArrayRef,
    ) -> Pair<L, R> {
        Pair {
            left: Operand::new(left, self.fault.call.is_constant(0)),
            right: Operand::new(right, self.fault.call.is_constant(1)),
        }
    }

    fn integers<T: ArrowPrimitiveType>(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef>
    where
        T::Native: Integer,
    {
        let pair = self.pair::<T, T>(left, right);
        let at_once: Option<PrimitiveArray<T>> = match self.op {
            Op::Add => pair.all_or_none(Integer::sum),
            Op::Subtract => pair.all_or_none(Integer::difference),
            Op::Multiply => pair.all_or_none(Integer::product),
            Op::Remainder => pair.all_or_none(Integer::rest),
            _ => None,
        };
        if let Some(result) = at_once {
            return Ok(Arc::new(result));
        }
        let result = pair.each::<T>(self.failure, |l, r| {
            if self.op.divides() && r == T::Native::ZERO {
                return Err(self.fault.zero(l));
            }
            l.apply(self.op, r).ok_or_else(|| self.fault.overflow(l, r))
        });
        Ok(Arc::new(result.map_err(unpack)?))
    }

    fn floats<T: ArrowPrimitiveType>(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef>
    where
        T::Native: Float,
    {
        let pair = self.pair::<T, T>(left, right);
        let at_once: Option<PrimitiveArray<T>> = match self.op {
            Op::Add => Some(pair.all(|l, r| l.apply(Op::Add, r))?),
            Op::Subtract => Some(pair.all(|l, r| l.apply(Op::Subtract, r))?),
            Op::Multiply => Some(pair.all(|l, r| l.apply(Op::Multiply, r))?),
            Op::Divide => pair.all_or_none(|l, r| (l.apply(Op::Divide, r), r.zero_mark())),
            _ => None,
        };
        if let Some(result) = at_once {
            return Ok(Arc::new(result));
        }
        let result = pair.each::<T>(self.failure, |l, r| {
            if self.op.divides() && r == T::Native::ZERO {
                return Err(self.fault.zero(l));
            }
            Ok(l.apply(self.op, r))
        });
        Ok(Arc::new(result.map_err(unpack)?))
    }

    fn dates(&self, pair: &Pair<Date32Type, Int32Type>) -> Result<ArrayRef> {
        let at_once: Option<PrimitiveArray<Date32Type>> = match self.op {
            Op::Subtract => pair.all_or_none(Integer::difference),
            _ => pair.all_or_none(Integer::sum),
        };
        if let Some(result) = at_once {
            return Ok(Arc::new(result));
        }
        let result = pair.each::<Date32Type>(self.failure, |date, days| {
            let moved = match self.op {
                Op::Subtract => date.checked_sub(days),
                _ => date.checked_add(days),
            };
            moved.ok_or_else(|| self.fault.overflow(date, days))
        });
        Ok(Arc::new(result.map_err(unpack)?))
    }

    fn decimals(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        let ((left, left_type), (right, right_type)) = (as_decimals(left)?, as_decimals(right)?);
        let (left_scale, right_scale) = (left_type.1, right_type.1);
        let pair = self.pair::<Decimal128Type, Decimal128Type>(&left, &right);
        let show = |l: i128, r: i128| {
            self.fault.overflow(
                format_decimal(l, left_scale),
                format_decimal(r, right_scale),
            )
        };
        let check = |r: i128, l: i128| match r {
            0 if self.op.divides() => Err(self.fault.zero(format_decimal(l, left_scale))),
            _ => Ok(()),
        };
        let scales = (i32::from(left_scale), i32::from(right_scale));
        if self.op == Op::Integral {
            let result = pair.each::<Int64Type>(self.failure, |l, r| {
                check(r, l)?;
                let exact = decimal_value(self.op, l, r, scales, 0);
                exact
                    .and_then(|e| e.truncated())
                    .and_then(|v| i64::try_from(v).ok())
                    .ok_or_else(|| show(l, r))
            });
            return Ok(Arc::new(result.map_err(unpack)?));
        }
        let DataType::Decimal128(precision, scale) = *self.fault.call.return_type else {
            return plan_err!("a decimal result was planned");
        };
        let wide = |l: i128, r: i128| {
            check(r, l)?;
            let exact = decimal_value(self.op, l, r, scales, scale.into());
            exact
                .and_then(|exact| exact.rescaled(precision, scale))
                .ok_or_else(|| show(l, r))
        };
        let quickly = |found: Option<i128>, l: i128, r: i128| match found {
            Some(value) => Ok(value),
            None => wide(l, r),
        };
        let operands = (
            digits(&pair.left, left_type.0),
            digits(&pair.right, right_type.0),
        );
        let result = match Quick::new(self.op, scales, precision, scale) {
            Some(quick) if quick.always_fits(operands, scales, precision) => match quick {
                // What a null stands on may be anything.
                Quick::Subtract(align, _) => pair.all(|l: i128, r: i128| {
                    let right = r.wrapping_mul(align.right);
                    l.wrapping_mul(align.left).wrapping_sub(right)
                }),
                Quick::Multiply(_) => pair.all(|l: i128, r: i128| l.wrapping_mul(r)),
                _ => match quick.align() {
                    Some(align) => pair.all(|l: i128, r: i128| {
                        let right = r.wrapping_mul(align.right);
                        l.wrapping_mul(align.left).wrapping_add(right)
                    }),
                    None => pair.each(self.failure, wide),
                },
            },
            Some(Quick::Add(align, to)) => pair.each(self.failure, |l, r| {
                let sum = align.apply(l, r).and_then(|(l, r)| l.checked_add(r));
                quickly(sum.and_then(|sum| to.apply(sum)), l, r)
            }),
            Some(Quick::Subtract(align, to)) => pair.each(self.failure, |l, r| {
                let difference = align.apply(l, r).and_then(|(l, r)| l.checked_sub(r));
                quickly(difference.and_then(|found| to.apply(found)), l, r)
            }),
            Some(Quick::Multiply(to)) => pair.each(self.failure, |l, r| {
                quickly(
                    short::multiply(l, r).and_then(|found| to.apply(found)),
                    l,
                    r,
                )
            }),
            Some(Quick::Divide { by, to, steps }) => pair.each(self.failure, |l, r| {
                let quotient = steps.and_then(|steps| steps.divide_half_up(l, r));
                let quotient = quotient.or_else(|| {
                    short::multiply(l, by.0)
                        .zip(short::multiply(r, by.1))
                        .and_then(|(l, r)| short::divide_half_up(l, r))
                });
                quickly(quotient.and_then(|found| to.apply(found)), l, r)
            }),
            None => pair.each(self.failure, wide),
        };
        let result: PrimitiveArray<Decimal128Type> = result.map_err(unpack)?;
        Ok(Arc::new(result.with_precision_and_scale(precision, scale)?))
    }
}

/// The products of BIGINTs with one number, if they are all so small that these must fit.
fn small_multiples(pair: &Pair<Int64Type, Int64Type>) -> Option<PrimitiveArray<Int64Type>> {
    let (rows, factor) = match (&pair.left, &pair.right) {
        (Operand::Rows(rows), Operand::One(Some(factor)))
        | (Operand::One(Some(factor)), Operand::Rows(rows)) => (rows, *factor),
        _ => return None,
    };
    // 2^bits times a number of so many digits less than 64 is less than 2^63.
    let bits = factor.unsigned_abs().leading_zeros().checked_sub(1)?;
    all_within(rows, bits.min(62), |row| row.wrapping_mul(factor))
}

/// How many digits an operand has at most.
fn digits(operand: &Operand<Decimal128Type>, precision: u8) -> i32 {
    match operand {
        Operand::One(Some(value)) => value
            .unsigned_abs()
            .checked_ilog10()
            .map_or(1, |digits| digits as i32 + 1),
        _ => precision.into(),
    }
}

/// The operation in 128 bits, for the values for which these are enough.
enum Quick {
    Add(Align, Rescale),
    Subtract(Align, Rescale),
    Multiply(Rescale),
    Divide {
        by: (i128, i128),
        to: Rescale,
        steps: Option<Steps>,
    },
}

impl Quick {
    fn new(op: Op, scales: (i32, i32), precision: u8, scale: i8) -> Option<Self> {
        let (left, right) = scales;
        let to = |from: i32| Rescale::new(from, precision, scale);
        Some(match op {
            Op::Add => Self::Add(Align::new(left, right)?, to(left.max(right))?),
            Op::Subtract => Self::Subtract(Align::new(left, right)?, to(left.max(right))?),
            Op::Multiply => Self::Multiply(to(left + right)?),
            Op::Divide => Self::Divide {
                by: short::shift(i32::from(scale) + right - left)?,
                steps: Steps::new(i32::from(scale) + right - left),
                to: to(scale.into())?,
            },
            Op::Integral | Op::Remainder | Op::PositiveRemainder => return None,
        })
    }

    fn align(&self) -> Option<Align> {
        match self {
            Self::Add(align, _) | Self::Subtract(align, _) => Some(*align),
            Self::Multiply(_) | Self::Divide { .. } => None,
        }
    }

    /// Whether operands of so many digits can't have a result that is cut or does not fit.
    fn always_fits(&self, digits: (i32, i32), scales: (i32, i32), precision: u8) -> bool {
        let precision = i32::from(precision);
        match self {
            Self::Add(_, to) | Self::Subtract(_, to) => {
                let scale = scales.0.max(scales.1);
                let whole = (digits.0 - scales.0).max(digits.1 - scales.1);
                to.stays() && whole + scale < precision
            }
            Self::Multiply(to) => to.stays() && digits.0 + digits.1 <= precision,
            Self::Divide { .. } => false,
        }
    }
}

/// The values with the precision and the scale of their type.
fn as_decimals(array: &ArrayRef) -> Result<(ArrayRef, (u8, i8))> {
    match array.data_type() {
        DataType::Decimal128(precision, scale) => Ok((Arc::clone(array), (*precision, *scale))),
        integer => match types::as_decimal(integer) {
            Some((precision, scale)) => Ok((
                arrow_cast(array, &DataType::Decimal128(precision, scale))?,
                (precision, scale),
            )),
            None => plan_err!("{integer} is no exact number"),
        },
    }
}

fn decimal_value(op: Op, left: i128, right: i128, scales: (i32, i32), scale: i32) -> Option<Exact> {
    let (left_scale, right_scale) = scales;
    let (left, right) = (i256::from_i128(left), i256::from_i128(right));
    let shared = left_scale.max(right_scale);
    let aligned = || -> Option<(i256, i256)> {
        Some((
            left.checked_mul(power_of_ten(shared - left_scale)?)?,
            right.checked_mul(power_of_ten(shared - right_scale)?)?,
        ))
    };
    match op {
        Op::Add => aligned().and_then(|(l, r)| {
            Some(Exact {
                unscaled: l.checked_add(r)?,
                scale: shared,
            })
        }),
        Op::Subtract => aligned().and_then(|(l, r)| {
            Some(Exact {
                unscaled: l.checked_sub(r)?,
                scale: shared,
            })
        }),
        Op::Multiply => Some(Exact {
            unscaled: left.checked_mul(right)?,
            scale: left_scale + right_scale,
        }),
        Op::Divide => {
            let shift = scale + right_scale - left_scale;
            let (dividend, divisor) = if shift >= 0 {
                (left.checked_mul(power_of_ten(shift)?)?, right)
            } else {
                (left, right.checked_mul(power_of_ten(-shift)?)?)
            };
            Some(Exact {
                unscaled: divide_half_up(dividend, divisor)?,
                scale,
            })
        }
        Op::Integral => {
            let (l, r) = aligned()?;
            Some(Exact {
                unscaled: l.checked_div(r)?,
                scale: 0,
            })
        }
        Op::Remainder => {
            let (l, r) = aligned()?;
            Some(Exact {
                unscaled: l.checked_rem(r)?,
                scale: shared,
            })
        }
        Op::PositiveRemainder => {
            let (l, r) = aligned()?;
            let remainder = l.checked_rem(r)?;
            let unscaled = if remainder < i256::ZERO {
                remainder.checked_add(r)?.checked_rem(r)?
            } else {
                remainder
            };
            Some(Exact {
                unscaled,
                scale: shared,
            })
        }
    }
}

fn evaluate_sign(call: &Call, negates: bool) -> Result<ArrayRef> {
    let what = if negates { "-" } else { "abs of " };
    let [value] = call.args else {
        return plan_err!("one argument is needed");
    };
    let overflow = |shown: String| {
        let to = types::name(call.return_type);
        let message = format!(
            "ARITHMETIC_OVERFLOW: overflow in {what}{}: {what}{shown} does not fit {to}",
            operand(call.name(0))
        );
        ArrowError::ComputeError(message)
    };
    fn narrow<T: ArrowPrimitiveType>(
        value: &ArrayRef,
        apply: impl Fn(T::Native) -> Option<T::Native>,
        overflow: impl Fn(String) -> ArrowError,
    ) -> Result<ArrayRef>
    where
        T::Native: std::fmt::Display,
    {
        let result: PrimitiveArray<T> = try_unary(value.as_primitive::<T>(), |value| {
            apply(value).ok_or_else(|| overflow(value.to_string()))
        })
        .map_err(unpack)?;
        Ok(Arc::new(result))
    }
    macro_rules! integers {
        ($type:ty) => {
            match negates {
                true => narrow::<$type>(value, |value| value.checked_neg(), overflow)?,
                false => narrow::<$type>(value, |value| value.checked_abs(), overflow)?,
            }
        };
    }
    Ok(match value.data_type() {
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::Float32 => {
            let values = value.as_primitive::<Float32Type>();
            let result: PrimitiveArray<Float32Type> =
                values.unary(|v| if negates { -v } else { v.abs() });
            Arc::new(result)
        }
        DataType::Float64 => {
            let values = value.as_primitive::<Float64Type>();
            let result: PrimitiveArray<Float64Type> =
                values.unary(|v| if negates { -v } else { v.abs() });
            Arc::new(result)
        }
        DataType::Decimal128(precision, scale) => {
            let values = value.as_primitive::<Decimal128Type>();
            // No decimal has the least number of 128 bits.
            let result: PrimitiveArray<Decimal128Type> = values.unary(|v| {
                if negates {
                    v.wrapping_neg()
                } else {
                    v.wrapping_abs()
                }
            });
            Arc::new(result.with_precision_and_scale(*precision, *scale)?)
        }
        other => return plan_err!("{other} is no number"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_whole_arrays_mark_what_does_not_fit() {
        let all = i8::MIN..=i8::MAX;
        for left in all.clone() {
            for right in all.clone() {
                let checked = |(value, wrong): (i8, bool)| (!wrong).then_some(value);
                let by_sign = |(value, mark): (i8, i8)| checked((value, mark < 0));
                assert_eq!(by_sign(left.sum(right)), left.checked_add(right));
                assert_eq!(by_sign(left.difference(right)), left.checked_sub(right));
                assert_eq!(checked(left.product(right)), left.checked_mul(right));
            }
        }
    }

    #[test]
    fn small_multiples_are_products() {
        let edges = [
            0,
            1,
            2,
            3,
            7,
            1 << 31,
            (1 << 31) + 1,
            1 << 61,
            1 << 62,
            i64::MAX,
        ];
        let all = edges
            .iter()
            .flat_map(|edge| [*edge, -*edge, !*edge, edge - 1]);
        let all: Vec<i64> = all.chain([i64::MIN]).collect();
        let mut known = 0;
        for factor in &all {
            for row in &all {
                let pair = Pair {
                    left: Operand::Rows(PrimitiveArray::from_iter_values([*row])),
                    right: Operand::One(Some(*factor)),
                };
                if let Some(found) = small_multiples(&pair) {
                    known += 1;
                    assert_eq!(
                        Some(found.value(0)),
                        row.checked_mul(*factor),
                        "{row} * {factor}"
                    );
                }
            }
        }
        assert!(known > 500, "{known}");
    }
}
