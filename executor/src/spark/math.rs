//! Functions of numbers beside the operators.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Float64Array, Int64Array,
    PrimitiveArray,
};
use datafusion::arrow::compute::{binary, cast as arrow_cast};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, i256,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use super::arithmetic::one_number;
use super::cast::{self, Exact, Failure, Target, divide_half_up, power_of_ten};
use super::scalar::{Call, Definition, Param, Params, Returns};
use super::short::{self, Rescale};
use super::short_float::{self, Scale};
use super::time::Zone;
use super::types;

macro_rules! doubles {
    ($($name:literal $convert:expr),* $(,)?) => {
        [$(Definition {
            name: $name,
            params: Params::Fixed { least: 1, all: &[Param::Double] },
            returns: Returns::Of(Param::Double),
            evaluate: |call| map_double(call, $convert),
        }),*]
    };
}

static DOUBLES: [Definition; 27] = doubles!(
    "sqrt" | x | Some(if x < 0.0 { f64::NAN } else { x.sqrt() }),
    "cbrt" | x | Some(x.cbrt()),
    "exp" | x | Some(x.exp()),
    "expm1" | x | Some(x.exp_m1()),
    // Spark gives null where a logarithm is not defined.
    "ln" | x | (x > 0.0 || x.is_nan()).then(|| x.ln()),
    "log10" | x | (x > 0.0 || x.is_nan()).then(|| x.log10()),
    "log2" | x | (x > 0.0 || x.is_nan()).then(|| x.ln() / std::f64::consts::LN_2),
    "log1p" | x | (x > -1.0 || x.is_nan()).then(|| x.ln_1p()),
    "sign"
        | x
        | Some(if x == 0.0 || x.is_nan() {
            x
        } else {
            x.signum()
        }),
    "sin" | x | Some(x.sin()),
    "cos" | x | Some(x.cos()),
    "tan" | x | Some(x.tan()),
    "asin" | x | Some(x.asin()),
    "acos" | x | Some(x.acos()),
    "atan" | x | Some(x.atan()),
    "degrees" | x | Some(x * (180.0 / std::f64::consts::PI)),
    "radians" | x | Some(x * 0.017453292519943295),
    "sinh" | x | Some(x.sinh()),
    "cosh" | x | Some(x.cosh()),
    "tanh" | x | Some(x.tanh()),
    "asinh" | x | Some(asinh(x)),
    "acosh" | x | Some((x + (x * x - 1.0).sqrt()).ln()),
    "atanh" | x | Some(0.5 * (x.ln_1p() - (-x).ln_1p())),
    "cot" | x | Some(1.0 / x.tan()),
    "csc" | x | Some(1.0 / x.sin()),
    "sec" | x | Some(1.0 / x.cos()),
    "rint" | x | Some(x.round_ties_even()),
);

static OTHERS: [Definition; 16] = [
    Definition {
        name: "power",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Double, Param::Double],
        },
        returns: Returns::Of(Param::Double),
        evaluate: |call| map_doubles(call, |x, y| Some(power(x, y))),
    },
    Definition {
        name: "atan2",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Double, Param::Double],
        },
        returns: Returns::Of(Param::Double),
        evaluate: |call| map_doubles(call, |y, x| Some((y + 0.0).atan2(x + 0.0))),
    },
    Definition {
        name: "log",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Double, Param::Double],
        },
        returns: Returns::Of(Param::Double),
        evaluate: log,
    },
    Definition {
        name: "pi",
        params: Params::Fixed { least: 0, all: &[] },
        returns: Returns::Of(Param::Double),
        evaluate: |call| {
            Ok(Arc::new(Float64Array::from(vec![
                std::f64::consts::PI;
                call.rows
            ])))
        },
    },
    Definition {
        name: "e",
        params: Params::Fixed { least: 0, all: &[] },
        returns: Returns::Of(Param::Double),
        evaluate: |call| {
            Ok(Arc::new(Float64Array::from(vec![
                std::f64::consts::E;
                call.rows
            ])))
        },
    },
    Definition {
        name: "ceil",
        params: Params::Custom(whole_params),
        returns: Returns::Custom(whole_type),
        evaluate: |call| whole(call, true),
    },
    Definition {
        name: "floor",
        params: Params::Custom(whole_params),
        returns: Returns::Custom(whole_type),
        evaluate: |call| whole(call, false),
    },
    Definition {
        name: "round",
        params: Params::Custom(round_params),
        returns: Returns::Custom(round_type),
        evaluate: |call| round(call, Mode::HalfUp),
    },
    Definition {
        name: "bround",
        params: Params::Custom(round_params),
        returns: Returns::Custom(round_type),
        evaluate: |call| round(call, Mode::HalfEven),
    },
    Definition {
        name: "isnan",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Double],
        },
        returns: Returns::Of(Param::Boolean),
        evaluate: is_nan,
    },
    Definition {
        name: "nanvl",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Double, Param::Double],
        },
        returns: Returns::Of(Param::Double),
        evaluate: nanvl,
    },
    Definition {
        name: "hypot",
        params: Params::Fixed {
            least: 2,
            all: &[Param::Double, Param::Double],
        },
        returns: Returns::Of(Param::Double),
        evaluate: |call| map_doubles(call, |x, y| Some(x.hypot(y))),
    },
    Definition {
        name: "factorial",
        params: Params::Fixed {
            least: 1,
            all: &[Param::Int],
        },
        returns: Returns::Of(Param::Long),
        evaluate: |call| {
            let values = call.args[0].as_primitive::<Int32Type>().iter();
            let products = values.map(|value| match value? {
                value @ 0..=20 => Some((1..=i64::from(value)).product()),
                _ => None,
            });
            Ok(Arc::new(products.collect::<Int64Array>()))
        },
    },
    Definition {
        name: "width_bucket",
        params: Params::Fixed {
            least: 4,
            all: &[Param::Double, Param::Double, Param::Double, Param::Long],
        },
        returns: Returns::Of(Param::Long),
        evaluate: width_bucket,
    },
    Definition {
        name: "greatest",
        params: Params::Custom(extreme_params),
        returns: Returns::Custom(first_type),
        evaluate: |call| extreme(call, Ordering::Greater),
    },
    Definition {
        name: "least",
        params: Params::Custom(extreme_params),
        returns: Returns::Custom(first_type),
        evaluate: |call| extreme(call, Ordering::Less),
    },
];

/// All functions of this module.
pub(super) fn functions() -> impl Iterator<Item = &'static Definition> {
    DOUBLES.iter().chain(&OTHERS)
}

fn asinh(x: f64) -> f64 {
    match x {
        f64::NEG_INFINITY => x,
        _ => (x + (x * x + 1.0).sqrt()).ln(),
    }
}

fn map_double(call: &Call, convert: impl Fn(f64) -> Option<f64>) -> Result<ArrayRef> {
    let values = call.typed::<Float64Array>(0)?;
    Ok(Arc::new(values.unary_opt::<_, Float64Type>(convert)))
}

fn map_doubles(call: &Call, convert: impl Fn(f64, f64) -> Option<f64>) -> Result<ArrayRef> {
    let (left, right) = (
        call.typed::<Float64Array>(0)?,
        call.typed::<Float64Array>(1)?,
    );
    let pairs = left.iter().zip(right.iter());
    Ok(Arc::new(
        pairs
            .map(|(left, right)| convert(left?, right?))
            .collect::<Float64Array>(),
    ))
}

/// Java gives NaN for 1 to the power of NaN or of an infinity.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent.is_nan() || (base.abs() == 1.0 && exponent.is_infinite()) {
        return f64::NAN;
    }
    base.powf(exponent)
}

fn log(call: &Call) -> Result<ArrayRef> {
    if call.args.len() == 1 {
        return map_double(call, |x| (x > 0.0 || x.is_nan()).then(|| x.ln()));
    }
    map_doubles(call, |base, x| {
        let defined = |v: f64| v > 0.0 || v.is_nan();
        (defined(base) && defined(x)).then(|| x.ln() / base.ln())
    })
}

fn width_bucket(call: &Call) -> Result<ArrayRef> {
    let part = |index: usize| call.typed::<Float64Array>(index);
    let (values, lows, highs) = (part(0)?, part(1)?, part(2)?);
    let counts = call.typed::<Int64Array>(3)?;
    let buckets = (0..call.rows).map(|row| {
        if call.args.iter().any(|array| array.is_null(row)) {
            return None;
        }
        let (value, count) = (values.value(row), counts.value(row));
        let (low, high) = (lows.value(row), highs.value(row));
        let defined = count > 0
            && count < i64::MAX
            && !value.is_nan()
            && low != high
            && low.is_finite()
            && high.is_finite();
        if !defined {
            return None;
        }
        let (least, most) = (low.min(high), low.max(high));
        let within = |distance: f64| (count as f64 * distance / (most - least)) as i64 + 1;
        Some(match low < high {
            true if value < least => 0,
            true if value >= most => count + 1,
            true => within(value - least),
            false if value > most => 0,
            false if value <= least => count + 1,
            false => within(most - value),
        })
    });
    Ok(Arc::new(buckets.collect::<Int64Array>()))
}

/// The second value counts only where the first is NaN.
fn nanvl(call: &Call) -> Result<ArrayRef> {
    let (values, others) = (
        call.typed::<Float64Array>(0)?,
        call.typed::<Float64Array>(1)?,
    );
    let chosen = values.iter().zip(others.iter());
    let chosen = chosen.map(|(value, other)| match value {
        Some(value) if value.is_nan() => other,
        value => value,
    });
    Ok(Arc::new(chosen.collect::<Float64Array>()))
}

fn is_nan(call: &Call) -> Result<ArrayRef> {
    let values = call.typed::<Float64Array>(0)?;
    let tested = values
        .iter()
        .map(|value| Some(value.is_some_and(f64::is_nan)));
    Ok(Arc::new(tested.collect::<BooleanArray>()))
}

fn whole_params(given: &[DataType]) -> Result<Vec<DataType>> {
    Ok(one_number(given)?
        .into_iter()
        .map(|given| match given {
            DataType::Float32 => DataType::Float64,
            integer if types::is_integer(&integer) => DataType::Int64,
            other => other,
        })
        .collect())
}

fn whole_type(given: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match given.first() {
        Some(DataType::Decimal128(_, 0)) => given[0].clone(),
        Some(DataType::Decimal128(precision, scale)) => {
            types::adjusted_decimal(i32::from(*precision) - i32::from(*scale) + 1, 0)
        }
        _ => DataType::Int64,
    })
}

fn whole(call: &Call, up: bool) -> Result<ArrayRef> {
    let value = &call.args[0];
    Ok(match value.data_type() {
        DataType::Float64 => {
            let values = value.as_primitive::<Float64Type>();
            // NaN is 0.
            let convert = |v: f64| {
                let whole = if up { v.ceil() } else { v.floor() };
                match (-9.3e18..9.3e18).contains(&whole) || whole.is_nan() {
                    true => Ok(whole as i64),
                    false => exec_err!("ARITHMETIC_OVERFLOW: overflow: {v} is beyond BIGINT"),
                }
            };
            Arc::new(values.try_unary::<_, Int64Type, _>(convert)?)
        }
        DataType::Decimal128(_, scale) => {
            let DataType::Decimal128(precision, result_scale) = *call.return_type else {
                return plan_err!("a decimal result was planned");
            };
            let unit = 10_i128
                .checked_pow((*scale).max(0) as u32)
                .unwrap_or(i128::MAX);
            let convert = |v: i128| {
                // Never `None`, for the unit is not zero.
                let quotient = short::quotient(v, unit).unwrap_or_default();
                let rest = v.wrapping_sub(quotient.wrapping_mul(unit));
                match (up, rest) {
                    (true, 1..) => quotient + 1,
                    (false, ..0) => quotient - 1,
                    _ => quotient,
                }
            };
            let values: PrimitiveArray<Decimal128Type> = cast::decimals(value)?.unary(convert);
            Arc::new(values.with_precision_and_scale(precision, result_scale)?)
        }
        _ => Arc::clone(value),
    })
}

fn round_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let [value, rest @ ..] = given else {
        return plan_err!("round needs a number");
    };
    let mut params = one_number(std::slice::from_ref(value))?;
    for scale in rest {
        if !types::is_integer(scale) {
            return plan_err!(
                "DATATYPE_MISMATCH: the scale of round is {}",
                types::name(scale)
            );
        }
        params.push(DataType::Int64);
    }
    Ok(params)
}

fn round_type(given: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let scale = match (given.len(), literals.get(1).copied().flatten()) {
        (1, _) => 0,
        (_, Some(ScalarValue::Int64(Some(scale)))) => *scale as i32,
        (_, Some(ScalarValue::Int32(Some(scale)))) => *scale,
        _ => return plan_err!("the scale of round must be an integer literal"),
    };
    let Some(DataType::Decimal128(precision, old)) = given.first() else {
        return Ok(given.first().cloned().unwrap_or(DataType::Null));
    };
    let old = i32::from(*old);
    let whole = i32::from(*precision) - old + 1;
    let most = i32::from(types::MAX_PRECISION);
    Ok(if scale < 0 {
        DataType::Decimal128(whole.max(1 - scale).min(most) as u8, 0)
    } else {
        let scale = old.min(scale);
        DataType::Decimal128((whole + scale).min(most) as u8, scale as i8)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    HalfUp,
    HalfEven,
}

impl Mode {
    /// The number with `scale` digits behind the point; a negative scale rounds before it.
    fn apply(self, exact: Exact, scale: i32) -> Option<Exact> {
        if scale >= exact.scale {
            return Some(exact);
        }
        let Some(divisor) = power_of_ten(exact.scale - scale) else {
            return Some(Exact {
                unscaled: i256::ZERO,
                scale: 0,
            });
        };
        let rounded = match self {
            Self::HalfUp => divide_half_up(exact.unscaled, divisor)?,
            Self::HalfEven => {
                let up = divide_half_up(exact.unscaled, divisor)?;
                let remainder = exact.unscaled.checked_rem(divisor)?.wrapping_abs();
                let half = remainder.checked_add(remainder)? == divisor;
                let odd = up.checked_rem(i256::from_i128(2))? != i256::ZERO;
                let toward_zero = if up < i256::ZERO {
                    i256::ONE
                } else {
                    i256::MINUS_ONE
                };
                if half && odd {
                    up.checked_add(toward_zero)?
                } else {
                    up
                }
            }
        };
        if scale >= 0 {
            return Some(Exact {
                unscaled: rounded,
                scale,
            });
        }
        Some(Exact {
            unscaled: rounded.checked_mul(power_of_ten(-scale)?)?,
            scale: 0,
        })
    }
}

fn round(call: &Call, mode: Mode) -> Result<ArrayRef> {
    let value = &call.args[0];
    let scale = match call.args.get(1) {
        Some(_) => {
            let scales = call.typed::<Int64Array>(1)?;
            if scales.is_empty() {
                0
            } else {
                scales.value(0) as i32
            }
        }
        None => 0,
    };
    let overflow = |shown: String| {
        datafusion::common::DataFusionError::Execution(format!(
            "ARITHMETIC_OVERFLOW: overflow in round of {}: {shown} does not fit {}",
            call.name(0),
            types::name(call.return_type)
        ))
    };
    match value.data_type() {
        DataType::Float64 | DataType::Float32 => {
            let single = value.data_type() == &DataType::Float32;
            let texts = |v: f64| {
                if single {
                    format!("{:e}", v as f32)
                } else {
                    format!("{v:e}")
                }
            };
            let wide = arrow_cast(value, &DataType::Float64)?;
            let by_digits = |v: f64| {
                let exact = cast::parse_decimal(&texts(v)).filter(|_| v.is_finite());
                let rounded = exact.and_then(|exact| mode.apply(exact, scale));
                rounded
                    .and_then(|r| format!("{}e{}", r.unscaled, -r.scale).parse().ok())
                    .unwrap_or(v)
            };
            // Away from halves the modes do the same. A FLOAT has other digits than its DOUBLE.
            let half = |short: Scale, v: f64| {
                let lower = short.half(v)?;
                let up = mode == Mode::HalfUp || lower % 2 == 1;
                let whole = i128::from(lower + u64::from(up));
                let signed = if v < 0.0 { -whole } else { whole };
                Some(short_float::of_decimal(signed, scale)? + 0.0)
            };
            let wide = wide.as_primitive::<Float64Type>();
            let rounded = match Scale::new(scale).filter(|_| !single) {
                None => wide.unary(by_digits),
                Some(short) => {
                    let values = wide.values();
                    let quick = |v: &f64| short.rounded(*v).unwrap_or(f64::NAN);
                    let mut made: Vec<f64> = values.iter().map(quick).collect();
                    for (made, v) in made.iter_mut().zip(values) {
                        if made.is_nan() {
                            *made = half(short, *v).unwrap_or_else(|| by_digits(*v));
                        }
                    }
                    Float64Array::new(made.into(), wide.nulls().cloned())
                }
            };
            let rounded: ArrayRef = Arc::new(rounded);
            Ok(arrow_cast(&rounded, call.return_type)?)
        }
        DataType::Decimal128(_, old) => {
            let DataType::Decimal128(precision, result_scale) = *call.return_type else {
                return plan_err!("a decimal result was planned");
            };
            // Fewer digits behind the point are a change of scale.
            let quick = match mode {
                Mode::HalfUp if scale == i32::from(result_scale) => {
                    Rescale::new((*old).into(), precision, result_scale)
                }
                _ => None,
            };
            let wide = |v: i128| {
                let exact = Exact {
                    unscaled: i256::from_i128(v),
                    scale: (*old).into(),
                };
                mode.apply(exact, scale)?.rescaled(precision, result_scale)
            };
            let rounded: PrimitiveArray<Decimal128Type> =
                cast::decimals(value)?.try_unary(|v| {
                    let found = quick.and_then(|quick| quick.apply(v));
                    found
                        .or_else(|| wide(v))
                        .ok_or_else(|| overflow(cast::format_decimal(v, *old)))
                })?;
            Ok(Arc::new(
                rounded.with_precision_and_scale(precision, result_scale)?,
            ))
        }
        _ if scale >= 0 => Ok(Arc::clone(value)),
        _ => {
            let wide = arrow_cast(value, &DataType::Int64)?;
            let rounded = wide.as_primitive::<Int64Type>().iter().map(|v| match v {
                None => Ok(None),
                Some(v) => {
                    let exact = Exact {
                        unscaled: i256::from_i128(v.into()),
                        scale: 0,
                    };
                    match mode
                        .apply(exact, scale)
                        .and_then(|r| r.truncated())
                        .and_then(|r| i64::try_from(r).ok())
                    {
                        Some(rounded) => Ok(Some(rounded)),
                        None => Err(overflow(v.to_string())),
                    }
                }
            });
            let rounded: ArrayRef = Arc::new(rounded.collect::<Result<Int64Array>>()?);
            let target = Target {
                zone: Zone::Fixed(0),
                failure: Failure::Error,
                column: call.name(0),
            };
            cast::cast(&rounded, call.return_type, target)
        }
    }
}

fn extreme_params(given: &[DataType]) -> Result<Vec<DataType>> {
    let mut common = DataType::Null;
    for given in given {
        common = match types::common(&common, given) {
            Some(found) if types::is_atomic(&found) => found,
            _ => {
                return plan_err!(
                    "DATATYPE_MISMATCH: {} and {} can not be compared",
                    types::name(&common),
                    types::name(given)
                );
            }
        };
    }
    Ok(vec![common; given.len()])
}

fn first_type(given: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(given.first().cloned().unwrap_or(DataType::Null))
}

/// The greatest or least of the values that are not null; NaN is the greatest of all.
fn extreme(call: &Call, wanted: Ordering) -> Result<ArrayRef> {
    macro_rules! numbers {
        ($type:ty, $compare:expr) => {
            Ok(Arc::new(extreme_number::<$type>(call, wanted, $compare)?))
        };
    }
    match call.return_type {
        DataType::Int8 => numbers!(Int8Type, |a, b| a.cmp(b)),
        DataType::Int16 => numbers!(Int16Type, |a, b| a.cmp(b)),
        DataType::Int32 => numbers!(Int32Type, |a, b| a.cmp(b)),
        DataType::Int64 => numbers!(Int64Type, |a, b| a.cmp(b)),
        DataType::Date32 => numbers!(Date32Type, |a, b| a.cmp(b)),
        DataType::Decimal128(..) => numbers!(Decimal128Type, |a, b| a.cmp(b)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            numbers!(TimestampMicrosecondType, |a, b| a.cmp(b))
        }
        DataType::Float32 => numbers!(Float32Type, |a, b| nan_last(f64::from(*a), f64::from(*b))),
        DataType::Float64 => numbers!(Float64Type, |a, b| nan_last(*a, *b)),
        _ => extreme_value(call, wanted),
    }
}

/// The zeros are equal, and NaN is greater than any number.
fn nan_last(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other)
        .unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

fn extreme_number<T: ArrowPrimitiveType>(
    call: &Call,
    wanted: Ordering,
    compare: impl Fn(&T::Native, &T::Native) -> Ordering,
) -> Result<PrimitiveArray<T>> {
    let better = |known: T::Native, next: T::Native| match compare(&next, &known) == wanted {
        true => next,
        false => known,
    };
    let mut arrays = call.args.iter().map(|array| array.as_primitive::<T>());
    let Some(first) = arrays.next() else {
        return plan_err!("two values are needed to be compared");
    };
    let mut best = first.clone();
    for next in arrays {
        best = match best.null_count() + next.null_count() {
            0 => binary(&best, next, better)?,
            _ => {
                let pairs = best.iter().zip(next.iter());
                let chosen = pairs.map(|(known, next)| match (known, next) {
                    (Some(known), Some(next)) => Some(better(known, next)),
                    (known, next) => known.or(next),
                });
                chosen.collect()
            }
        };
    }
    Ok(best.with_data_type(call.return_type.clone()))
}

fn extreme_value(call: &Call, wanted: Ordering) -> Result<ArrayRef> {
    use datafusion::arrow::compute::interleave;
    let comparators = call.args.iter().enumerate();
    let mut best: Vec<Option<usize>> = vec![None; call.rows];
    for (index, array) in comparators {
        let mut compare = Vec::with_capacity(index);
        for earlier in &call.args[..index] {
            compare.push(datafusion::arrow::array::make_comparator(
                array,
                earlier,
                Default::default(),
            )?);
        }
        for (row, best) in best.iter_mut().enumerate() {
            if array.is_null(row) {
                continue;
            }
            match best {
                Some(known) if compare[*known](row, row) != wanted => {}
                _ => *best = Some(index),
            }
        }
    }
    // Without any value the first argument's null is taken.
    let picks: Vec<(usize, usize)> = best
        .iter()
        .enumerate()
        .map(|(row, best)| (best.unwrap_or(0), row))
        .collect();
    let arrays: Vec<&dyn Array> = call.args.iter().map(|array| array.as_ref()).collect();
    Ok(interleave(&arrays, &picks)?)
}
