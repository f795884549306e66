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

/// Digits behind the point to which doubles are rounded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    power: f64,
}

impl Scale {
    /// `None` if the power of ten is no double.
    pub(super) fn new(digits: i32) -> Option<Self> {
        power_of_ten(digits).map(|power| Self { power })
    }

    /// The decimal that a double stands for, rounded, halves away from zero; without its point.
    pub(super) fn unscaled(self, value: f64) -> Option<i64> {
        let scaled = value * self.power;
        if let Some(near) = far_from_half(scaled) {
            return Some((near + MAGIC).to_bits() as i64 - MAGIC.to_bits() as i64);
        }
        if let Some(lower) = self.half(value) {
            let away = i64::try_from(lower).ok()? + 1;
            return Some(if value < 0.0 { -away } else { away });
        }
        // A short number that is read as the double is the only such one.
        let near = nearest(scaled)?;
        (near as f64 / self.power == value).then_some(near)
    }

    /// The double next to that decimal.
    pub(super) fn rounded(self, value: f64) -> Option<f64> {
        far_from_half(value * self.power).map(|near| near / self.power)
    }

    /// That decimal, where it is half way between two: the one nearer to zero, without its sign and
    /// point.
    pub(super) fn half(self, value: f64) -> Option<u64> {
        let doubled = (value * self.power * 2.0).abs();
        // One digit more than the scale's makes a half, and there are not more than 15.
        if doubled >= LIMIT / 5.0 {
            return None;
        }
        let halves = (doubled + 0.5) as u64;
        // Exact operands again: the quotient is the double next to the half.
        let is_half = halves % 2 == 1 && halves as f64 / (self.power * 2.0) == value.abs();
        is_half.then_some(halves / 2)
    }
}

/// The nearest whole number, halves away from zero.
fn nearest(scaled: f64) -> Option<i64> {
    // NaN is not below it, either.
    (scaled.abs() < LIMIT).then(|| scaled.round() as i64)
}

/// Next to this, doubles are whole numbers apart from each other; so a sum with it is rounded, without the
/// call or the conversion for each number that other ways take.
const MAGIC: f64 = 1.5 * (1_u64 << 52) as f64;

/// The nearest whole number, if the number is far from the middle of two also where the last digits of the
/// double are not those of its decimal. Where it is not, the digits decide.
fn far_from_half(scaled: f64) -> Option<f64> {
    /// Below this the product is less than a thousandth off.
    const EXACT_ENOUGH: f64 = (1_u64 << 40) as f64;
    const NEAR: f64 = 1.0 / 1024.0;
    // A zero has no sign as a decimal, and gets none here.
    let near = (scaled + MAGIC) - MAGIC;
    let is_far = (scaled.abs() < EXACT_ENOUGH) & ((scaled - near).abs() < 0.5 - NEAR);
    is_far.then_some(near)
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
                if let Some(found) = Scale::new(scale).unwrap().unscaled(value) {
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
                if let Some(found) = Scale::new(scale).unwrap().rounded(value) {
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
                let Some(lower) = Scale::new(scale).unwrap().half(value) else {
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
        assert_eq!(Scale::new(2).unwrap().half(1.005), Some(100));
        assert_eq!(Scale::new(2).unwrap().half(1.005_f64.next_up()), None);
        assert_eq!(Scale::new(0).unwrap().half(-2.5), Some(2));
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
