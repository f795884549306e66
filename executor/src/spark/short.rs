//! Exact numbers in 128 bits, which is all that nearly every decimal needs.
//!
//! A function here gives `None` wherever a step does not fit; the caller then does the same with 256
//! bits, and finds out whether the value fits after all. So the results are those of the wide
//! arithmetic, sooner.

/// 10^0 to 10^38.
const POWERS_OF_TEN: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

fn power_of_ten(exponent: i32) -> Option<i128> {
    POWERS_OF_TEN.get(usize::try_from(exponent).ok()?).copied()
}

/// The product. Of two numbers of 64 bits it needs no check.
pub(super) fn multiply(left: i128, right: i128) -> Option<i128> {
    match (i64::try_from(left), i64::try_from(right)) {
        (Ok(left), Ok(right)) => Some(i128::from(left) * i128::from(right)),
        _ => left.checked_mul(right),
    }
}

/// The quotient without its fraction; `None` for a division by zero.
pub(super) fn quotient(dividend: i128, divisor: i128) -> Option<i128> {
    match (i64::try_from(dividend), i64::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => dividend.checked_div(divisor).map(i128::from),
        _ => dividend.checked_div(divisor),
    }
}

/// The quotient, halves rounded away from zero; `None` for a division by zero, too.
pub(super) fn divide_half_up(dividend: i128, divisor: i128) -> Option<i128> {
    // The processor divides 64 bits at once, 128 are divided by a routine.
    let (quotient, rest) = match (i64::try_from(dividend), i64::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => (
            i128::from(dividend.checked_div(divisor)?),
            i128::from(dividend.checked_rem(divisor)?),
        ),
        _ => {
            let quotient = dividend.checked_div(divisor)?;
            // Another division would take as long as the first.
            (
                quotient,
                dividend.wrapping_sub(quotient.wrapping_mul(divisor)),
            )
        }
    };
    let up = rest != 0 && divisor.unsigned_abs() - rest.unsigned_abs() <= rest.unsigned_abs();
    match (up, (dividend < 0) != (divisor < 0)) {
        (false, _) => Some(quotient),
        (true, false) => quotient.checked_add(1),
        (true, true) => quotient.checked_sub(1),
    }
}

/// A division of a number that is multiplied by a power of ten first, in two steps of 64 bits each: as it
/// is done by hand, with some digits of the power at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    first: u64,
    second: u64,
}

impl Steps {
    /// `None` if the power is no whole number, or one of too many digits.
    pub(super) fn new(exponent: i32) -> Option<Self> {
        let power = |exponent: i32| u64::try_from(power_of_ten(exponent)?).ok();
        Some(Self {
            first: power(exponent - exponent / 2).filter(|_| (0..=36).contains(&exponent))?,
            second: power(exponent / 2)?,
        })
    }

    /// The quotient, halves rounded away from zero. `None` also for a division by zero.
    pub(super) fn divide_half_up(self, dividend: i128, divisor: i128) -> Option<i128> {
        let (Ok(left), Ok(right)) = (i64::try_from(dividend), i64::try_from(divisor)) else {
            return None;
        };
        let negative = (left < 0) != (right < 0);
        let (left, right) = (left.unsigned_abs(), right.unsigned_abs());
        let begun = left.checked_mul(self.first)?;
        let (quotient, rest) = (begun.checked_div(right)?, begun % right);
        let brought_down = rest.checked_mul(self.second)?;
        let (last, rest) = (brought_down / right, brought_down % right);
        let up = u128::from(rest >= right - rest);
        // Each factor has 64 bits at most, so that the sum has 128.
        let whole = u128::from(quotient) * u128::from(self.second) + u128::from(last) + up;
        let whole = i128::try_from(whole).ok()?;
        Some(if negative { -whole } else { whole })
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Stay,
    Up(i128),
    Down(i128),
}

/// From one scale to a decimal type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rescale {
    step: Step,
    /// The least magnitude that the type does not hold.
    limit: u128,
}

impl Rescale {
    /// `None` if the way leads through more than 38 digits.
    pub(super) fn new(from: i32, precision: u8, scale: i8) -> Option<Self> {
        let to = i32::from(scale);
        let step = match to - from {
            0 => Step::Stay,
            up if up > 0 => Step::Up(power_of_ten(up)?),
            down => Step::Down(power_of_ten(-down)?),
        };
        let limit = power_of_ten(precision.into())?.unsigned_abs();
        Some(Self { step, limit })
    }

    /// Whether values keep their scale.
    pub(super) fn stays(self) -> bool {
        matches!(self.step, Step::Stay)
    }

    /// The unscaled value in the type, rounded half up.
    pub(super) fn apply(self, value: i128) -> Option<i128> {
        let scaled = match self.step {
            Step::Stay => value,
            Step::Up(factor) => multiply(value, factor)?,
            Step::Down(divisor) => divide_half_up(value, divisor)?,
        };
        (scaled.unsigned_abs() < self.limit).then_some(scaled)
    }
}

/// Brings two operands to one scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Align {
    pub(super) left: i128,
    pub(super) right: i128,
}

impl Align {
    pub(super) fn new(left_scale: i32, right_scale: i32) -> Option<Self> {
        let shared = left_scale.max(right_scale);
        Some(Self {
            left: power_of_ten(shared - left_scale)?,
            right: power_of_ten(shared - right_scale)?,
        })
    }

    pub(super) fn apply(self, left: i128, right: i128) -> Option<(i128, i128)> {
        Some((multiply(left, self.left)?, multiply(right, self.right)?))
    }
}

/// What a dividend and a divisor are multiplied by, for a quotient of the wanted scale.
pub(super) fn shift(by: i32) -> Option<(i128, i128)> {
    if by >= 0 {
        Some((power_of_ten(by)?, 1))
    } else {
        Some((1, power_of_ten(-by)?))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::i256;

    use super::super::cast::{self, Exact};
    use super::*;

    /// Numbers of all lengths, with both signs and halves among them.
    fn numbers() -> Vec<i128> {
        let mut numbers = vec![
            0,
            1,
            -1,
            5,
            -5,
            49,
            50,
            -50,
            i64::MAX.into(),
            i64::MIN.into(),
        ];
        for exponent in [1, 4, 9, 17, 18, 19, 27, 37] {
            let power = POWERS_OF_TEN[exponent];
            for digit in [1, 4, 5, 9] {
                numbers.extend([digit * power - 1, digit * power, -digit * power - 1]);
            }
        }
        numbers
    }

    #[test]
    fn what_fits_is_what_the_wide_arithmetic_gives() {
        for from in [0, 2, 6, 18] {
            for (precision, scale) in [(38, 0), (18, 4), (38, 18), (5, 2), (10, 10)] {
                let quick = Rescale::new(from, precision, scale).unwrap();
                for value in numbers() {
                    let exact = Exact {
                        unscaled: i256::from_i128(value),
                        scale: from,
                    };
                    if let Some(found) = quick.apply(value) {
                        assert_eq!(Some(found), exact.rescaled(precision, scale), "{value}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_and_quotients_are_those_of_the_wide_arithmetic() {
        let (mut products, mut quotients) = (0, 0);
        for left in numbers() {
            for right in numbers() {
                let (wide_left, wide_right) = (i256::from_i128(left), i256::from_i128(right));
                if let Some(found) = multiply(left, right) {
                    products += 1;
                    assert_eq!(i256::from_i128(found), wide_left.wrapping_mul(wide_right));
                }
                if let Some(found) = divide_half_up(left, right) {
                    quotients += 1;
                    let wide = cast::divide_half_up(wide_left, wide_right);
                    assert_eq!(Some(i256::from_i128(found)), wide, "{left} / {right}");
                }
            }
        }
        assert!(
            products > 2000 && quotients > 5000,
            "{products} {quotients}"
        );
        assert_eq!(divide_half_up(i128::MIN, -1), None);
        assert_eq!(multiply(i128::MAX, 2), None);
    }

    #[test]
    fn a_division_in_steps_is_one_of_the_multiplied_number() {
        let mut known = 0;
        for exponent in [0, 1, 4, 15, 18, 30] {
            let steps = Steps::new(exponent).unwrap();
            let power = i256::from_i128(POWERS_OF_TEN[exponent as usize]);
            for left in numbers() {
                for right in numbers() {
                    if let Some(found) = steps.divide_half_up(left, right) {
                        known += 1;
                        let dividend = i256::from_i128(left).wrapping_mul(power);
                        let wide = cast::divide_half_up(dividend, i256::from_i128(right));
                        assert_eq!(
                            Some(i256::from_i128(found)),
                            wide,
                            "{left}e{exponent} / {right}"
                        );
                    }
                }
            }
        }
        assert!(known > 1000, "{known}");
        assert!(Steps::new(-1).is_none() && Steps::new(37).is_none());
    }
}
