//! The way between doubles and decimals for numbers of few digits, by arithmetic instead of by text.
//!
//! A double stands for the shortest decimal that is read as it: `0.1` for the double next to a tenth.
//! Every decimal of at most 15 digits is such a one, which is what the functions here build on; where
//! that does not suffice they give `None`, and the caller goes by way of the text.

/// Powers of ten that a double holds exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// 15 digits.
const LIMIT: f64 = 1e15;

fn power_of_ten(exponent: i32) -> Option<f64> {
    POWERS_OF_TEN.get(usize::try_from(exponent).ok()?).copied()
}

/// The double next to a decimal. Both operands of the division are exact, so its result is the nearest.
pub(super) fn of_decimal(unscaled: i128, scale: i32) -> Option<f64> {
    let power = power_of_ten(scale)?;
    let whole = i64::try_from(unscaled).ok()?;
    (whole.unsigned_abs() <= 1 << 53).then(|| whole as f64 / power)
}

/// The decimal that a double stands for, rounded to `scale` digits behind the point, halves away from
/// zero; without its point.
pub(super) fn unscaled(value: f64, scale: i32) -> Option<i64> {
    let power = power_of_ten(scale)?;
    let scaled = value * power;
    let near = nearest(scaled)?;
    // A short number that is read as the double is the only such one.
    let exact = near as f64 / power == value;
    (exact || is_no_half(scaled)).then_some(near)
}

/// The double next to that decimal.
pub(super) fn rounded(value: f64, scale: i32) -> Option<f64> {
    let power = power_of_ten(scale)?;
    let scaled = value * power;
    // A zero has no sign as a decimal.
    match is_no_half(scaled) {
        true => Some(nearest(scaled)? as f64 / power + 0.0),
        false => None,
    }
}

/// That decimal, where it is half way between two of `scale` digits: the one nearer to zero, without its
/// sign and point.
pub(super) fn half(value: f64, scale: i32) -> Option<u64> {
    let power = power_of_ten(scale)?;
    let doubled = (value * power * 2.0).abs();
    // One digit more than `scale` makes a half, and there are not more than 15.
    if doubled >= LIMIT / 5.0 {
        return None;
    }
    let halves = (doubled + 0.5) as u64;
    // Exact operands again: the quotient is the double next to the half.
    let is_half = halves % 2 == 1 && halves as f64 / (power * 2.0) == value.abs();
    is_half.then_some(halves / 2)
}

/// The nearest whole number, halves away from zero. (Rounding of the standard library is a call for each
/// number, a conversion is not.)
fn nearest(scaled: f64) -> Option<i64> {
    // NaN is not below it, either.
    let near = scaled.abs() < LIMIT;
    let whole = if near { scaled as i64 } else { 0 };
    let fraction = scaled - whole as f64;
    let up = i64::from(fraction >= 0.5) - i64::from(fraction <= -0.5);
    near.then_some(whole + up)
}

/// Whether a number is far from the middle of two whole ones, also where the last digits of the double are
/// not those of its decimal. Where it is not, the digits decide.
fn is_no_half(scaled: f64) -> bool {
    /// Below this the product is less than a thousandth off.
    const EXACT_ENOUGH: f64 = (1_u64 << 40) as f64;
    const NEAR: f64 = 1.0 / 1024.0;
    let fraction = (scaled - scaled as i64 as f64).abs();
    scaled.abs() < EXACT_ENOUGH && (fraction - 0.5).abs() > NEAR
}

#[cfg(test)]
mod tests {
    use super::super::cast::parse_decimal;
    use super::*;

    /// Doubles of all sizes: short ones, halves, and their neighbours.
    fn doubles() -> Vec<f64> {
        let mut found = vec![
            0.0,
            -0.0,
            0.1,
            0.2,
            0.3,
            0.1 + 0.2,
            1.005,
            2.675,
            -2.5,
            1e15,
            1e300,
        ];
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (digits, scale) = ((seed >> 33) as f64, (seed >> 8) % 9);
            let value = digits / 10_f64.powi(scale as i32);
            found.extend([value, -value, value.next_up(), value + 0.5, value + 0.005]);
            found.push(f64::from_bits(seed));
        }
        found
    }

    fn text(value: f64) -> String {
        format!("{value:e}")
    }

    #[test]
    fn a_short_double_is_the_decimal_of_its_text() {
        let mut known = 0;
        for value in doubles().into_iter().filter(|value| value.is_finite()) {
            for scale in [0, 2, 6, 10] {
                if let Some(found) = unscaled(value, scale) {
                    known += 1;
                    let exact = parse_decimal(&text(value)).unwrap();
                    assert_eq!(
                        exact.rescaled(38, scale as i8),
                        Some(found.into()),
                        "{value:e}"
                    );
                }
            }
        }
        assert!(known > 50_000, "{known}");
    }

    #[test]
    fn a_rounded_double_is_the_rounded_decimal_of_its_text() {
        let mut known = 0;
        for value in doubles().into_iter().filter(|value| value.is_finite()) {
            for scale in [0, 1, 2, 6] {
                if let Some(found) = rounded(value, scale) {
                    known += 1;
                    let exact = parse_decimal(&text(value)).unwrap();
                    let digits = exact.scaled(scale).unwrap().unscaled;
                    let wanted: f64 = format!("{digits}e-{scale}").parse().unwrap();
                    assert_eq!(found.to_bits(), wanted.to_bits(), "{value:e} to {scale}");
                }
            }
        }
        assert!(known > 50_000, "{known}");
    }

    #[test]
    fn a_half_is_told_from_its_neighbours() {
        let mut known = 0;
        for value in doubles().into_iter().filter(|value| value.is_finite()) {
            for scale in [0, 1, 2, 6] {
                let Some(lower) = half(value, scale) else {
                    continue;
                };
                known += 1;
                let exact = parse_decimal(&text(value.abs())).unwrap();
                let doubled = exact.scaled(scale + 1).unwrap().unscaled;
                assert_eq!(
                    doubled.to_i128(),
                    Some(i128::from(lower) * 10 + 5),
                    "{value:e} to {scale}"
                );
            }
        }
        assert!(known > 10_000, "{known}");
        assert_eq!(half(1.005, 2), Some(100));
        assert_eq!(half(1.005_f64.next_up(), 2), None);
        assert_eq!(half(-2.5, 0), Some(2));
    }

    #[test]
    fn a_short_decimal_is_the_double_of_its_text() {
        for unscaled in [0_i128, 1, -1, 12345, -99_999_999, (1 << 53) - 1, 1 << 53] {
            for scale in [0, 1, 2, 9, 18, 22] {
                let wanted: f64 = format!("{unscaled}e-{scale}").parse().unwrap();
                assert_eq!(of_decimal(unscaled, scale), Some(wanted));
            }
        }
        assert_eq!(of_decimal((1 << 53) + 1, 0), None);
        assert_eq!(of_decimal(1, 23), None);
    }
}
