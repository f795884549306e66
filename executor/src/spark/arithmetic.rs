//! The operators on numbers: checked, with Spark's result types.
//!
//! An operator call may carry one more argument, `'p1,p2'`: how many digits an operand has that is
//! an integer literal. Next to a decimal, a literal counts with its own digits instead of those of
//! its type.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::compute::{cast as arrow_cast, try_binary, try_unary};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};

use super::cast::{Exact, Failure, divide_half_up, format_decimal, power_of_ten};
use super::scalar::{Call, Definition, Params, Returns};
use super::short::{self, Align, Rescale};
use super::{interval, types};

macro_rules! operator {
    ($name:literal, $op:expr, $failure:expr) => {
        Definition {
            name: $name,
            params: Params::Custom(|given| coerce($op, given)),
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
        evaluate: |call| evaluate_sign(call, "-", |value| value.checked_neg()),
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
        evaluate: |call| evaluate_sign(call, "abs of ", |value| value.checked_abs()),
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
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
        (DataType::Date32, _) => operation.dates(left, right),
        (_, DataType::Date32) => operation.dates(right, left),
        (DataType::Int8, DataType::Int8) => operation.integers::<Int8Type>(left, right),
        (DataType::Int16, DataType::Int16) => operation.integers::<Int16Type>(left, right),
        (DataType::Int32, DataType::Int32) => operation.integers::<Int32Type>(left, right),
        (DataType::Int64, DataType::Int64) => operation.integers::<Int64Type>(left, right),
        (DataType::Float32, DataType::Float32) => operation.floats::<Float32Type>(left, right),
        (DataType::Float64, DataType::Float64) => operation.floats::<Float64Type>(left, right),
        _ => operation.decimals(left, right),
    }
}

/// Integers that the operators work on.
trait Integer: Copy + PartialEq + std::fmt::Display {
    const ZERO: Self;
    fn apply(self, op: Op, other: Self) -> Option<Self>;
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
        }
    )*};
}

integer!(i8, i16, i32, i64);

trait Float: Copy + PartialEq + std::fmt::Display {
    const ZERO: Self;
    fn apply(self, op: Op, other: Self) -> Self;
}

macro_rules! float {
    ($($native:ty),*) => {$(
        impl Float for $native {
            const ZERO: Self = 0.0;
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

float!(f32, f64);

struct Operation<'a> {
    op: Op,
    failure: Failure,
    fault: Fault<'a>,
}

impl Operation<'_> {
    fn run<L, R, O>(
        &self,
        left: &PrimitiveArray<L>,
        right: &PrimitiveArray<R>,
        apply: impl Fn(L::Native, R::Native) -> Result<O::Native, ArrowError>,
    ) -> Result<PrimitiveArray<O>>
    where
        L: ArrowPrimitiveType,
        R: ArrowPrimitiveType,
        O: ArrowPrimitiveType,
    {
        if self.failure == Failure::Error {
            return try_binary(left, right, apply).map_err(unpack);
        }
        let pairs = left.iter().zip(right.iter());
        Ok(pairs
            .map(|(left, right)| apply(left?, right?).ok())
            .collect())
    }

    fn integers<T: ArrowPrimitiveType>(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef>
    where
        T::Native: Integer,
    {
        let result = self.run::<T, T, T>(left.as_primitive(), right.as_primitive(), |l, r| {
            if self.op.divides() && r == T::Native::ZERO {
                return Err(self.fault.zero(l));
            }
            l.apply(self.op, r).ok_or_else(|| self.fault.overflow(l, r))
        })?;
        Ok(Arc::new(result))
    }

    fn floats<T: ArrowPrimitiveType>(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef>
    where
        T::Native: Float,
    {
        let result = self.run::<T, T, T>(left.as_primitive(), right.as_primitive(), |l, r| {
            if self.op.divides() && r == T::Native::ZERO {
                return Err(self.fault.zero(l));
            }
            Ok(l.apply(self.op, r))
        })?;
        Ok(Arc::new(result))
    }

    fn dates(&self, dates: &ArrayRef, days: &ArrayRef) -> Result<ArrayRef> {
        let dates = dates.as_primitive::<Date32Type>();
        let days = days.as_primitive::<Int32Type>();
        let result = self.run::<Date32Type, Int32Type, Date32Type>(dates, days, |date, days| {
            let moved = match self.op {
                Op::Subtract => date.checked_sub(days),
                _ => date.checked_add(days),
            };
            moved.ok_or_else(|| self.fault.overflow(date, days))
        })?;
        Ok(Arc::new(result))
    }

    fn decimals(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        let (left, left_scale) = Side::new(left, self.fault.call.is_constant(0))?;
        let (right, right_scale) = Side::new(right, self.fault.call.is_constant(1))?;
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
            let result = self.run_sides::<Int64Type>(&left, &right, |l, r| {
                check(r, l)?;
                let exact = decimal_value(self.op, l, r, scales, 0);
                exact
                    .and_then(|e| e.truncated())
                    .and_then(|v| i64::try_from(v).ok())
                    .ok_or_else(|| show(l, r))
            })?;
            return Ok(Arc::new(result));
        }
        let DataType::Decimal128(precision, scale) = *self.fault.call.return_type else {
            return plan_err!("a decimal result was planned");
        };
        let quick = Quick::new(self.op, scales, precision, scale);
        let result = self.run_sides::<Decimal128Type>(&left, &right, |l, r| {
            check(r, l)?;
            if let Some(value) = quick.as_ref().and_then(|quick| quick.value(l, r)) {
                return Ok(value);
            }
            let exact = decimal_value(self.op, l, r, scales, scale.into());
            exact
                .and_then(|exact| exact.rescaled(precision, scale))
                .ok_or_else(|| show(l, r))
        })?;
        Ok(Arc::new(result.with_precision_and_scale(precision, scale)?))
    }

    fn run_sides<O: ArrowPrimitiveType>(
        &self,
        left: &Side,
        right: &Side,
        apply: impl Fn(i128, i128) -> Result<O::Native, ArrowError>,
    ) -> Result<PrimitiveArray<O>> {
        match (left, right) {
            (Side::Rows(left), Side::Rows(right)) => self.run(
                left.as_primitive::<Decimal128Type>(),
                right.as_primitive::<Decimal128Type>(),
                apply,
            ),
            (Side::Rows(left), Side::One(right)) => self.run_one(left, *right, apply),
            (Side::One(left), Side::Rows(right)) => {
                self.run_one(right, *left, |right, left| apply(left, right))
            }
            (Side::One(_), Side::One(_)) => plan_err!("an operation of constants over rows"),
        }
    }

    /// The operation with the same second operand for all rows.
    fn run_one<O: ArrowPrimitiveType>(
        &self,
        rows: &ArrayRef,
        constant: Option<i128>,
        apply: impl Fn(i128, i128) -> Result<O::Native, ArrowError>,
    ) -> Result<PrimitiveArray<O>> {
        let rows = rows.as_primitive::<Decimal128Type>();
        let Some(constant) = constant else {
            return Ok(PrimitiveArray::new_null(rows.len()));
        };
        if self.failure == Failure::Error {
            return try_unary(rows, |value| apply(value, constant)).map_err(unpack);
        }
        Ok(rows.unary_opt(|value| apply(value, constant).ok()))
    }
}

/// An operand: a value for each row, or one for all of them.
enum Side {
    Rows(ArrayRef),
    One(Option<i128>),
}

impl Side {
    /// With the operand's scale.
    fn new(array: &ArrayRef, constant: bool) -> Result<(Self, i8)> {
        if !constant || array.is_empty() {
            let (rows, scale) = as_decimals(array)?;
            return Ok((Self::Rows(rows), scale));
        }
        let (one, scale) = as_decimals(&array.slice(0, 1))?;
        let one = one.as_primitive::<Decimal128Type>();
        Ok((Self::One(one.is_valid(0).then(|| one.value(0))), scale))
    }
}

/// The operation in 128 bits, for the values for which these are enough.
enum Quick {
    Add(Align, Rescale),
    Subtract(Align, Rescale),
    Multiply(Rescale),
    Divide { by: (i128, i128), to: Rescale },
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
                to: to(scale.into())?,
            },
            Op::Integral | Op::Remainder | Op::PositiveRemainder => return None,
        })
    }

    /// `None` if it needs more bits or does not fit the type.
    fn value(&self, left: i128, right: i128) -> Option<i128> {
        match self {
            Self::Add(align, to) => {
                let (left, right) = align.apply(left, right)?;
                to.apply(left.checked_add(right)?)
            }
            Self::Subtract(align, to) => {
                let (left, right) = align.apply(left, right)?;
                to.apply(left.checked_sub(right)?)
            }
            Self::Multiply(to) => to.apply(short::multiply(left, right)?),
            Self::Divide { by, to } => to.apply(short::divide_half_up(
                short::multiply(left, by.0)?,
                short::multiply(right, by.1)?,
            )?),
        }
    }
}

fn as_decimals(array: &ArrayRef) -> Result<(ArrayRef, i8)> {
    match array.data_type() {
        DataType::Decimal128(_, scale) => Ok((Arc::clone(array), *scale)),
        integer => match types::as_decimal(integer) {
            Some((precision, scale)) => Ok((
                arrow_cast(array, &DataType::Decimal128(precision, scale))?,
                scale,
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

fn evaluate_sign(call: &Call, what: &str, apply: fn(i128) -> Option<i128>) -> Result<ArrayRef> {
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
        apply: impl Fn(i128) -> Option<i128>,
        overflow: impl Fn(String) -> ArrowError,
    ) -> Result<ArrayRef>
    where
        T::Native: Into<i128> + TryFrom<i128>,
    {
        let result: PrimitiveArray<T> = try_unary(value.as_primitive::<T>(), |value| {
            let wide: i128 = value.into();
            apply(wide)
                .and_then(|v| T::Native::try_from(v).ok())
                .ok_or_else(|| overflow(wide.to_string()))
        })
        .map_err(unpack)?;
        Ok(Arc::new(result))
    }
    let negates = what == "-";
    Ok(match value.data_type() {
        DataType::Int8 => narrow::<Int8Type>(value, apply, overflow)?,
        DataType::Int16 => narrow::<Int16Type>(value, apply, overflow)?,
        DataType::Int32 => narrow::<Int32Type>(value, apply, overflow)?,
        DataType::Int64 => narrow::<Int64Type>(value, apply, overflow)?,
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
            let result: PrimitiveArray<Decimal128Type> = try_unary(values, |v| {
                apply(v).ok_or_else(|| overflow(format_decimal(v, *scale)))
            })
            .map_err(unpack)?;
            Arc::new(result.with_precision_and_scale(*precision, *scale)?)
        }
        other => return plan_err!("{other} is no number"),
    })
}
