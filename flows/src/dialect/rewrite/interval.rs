//! Interval literals: their parts, and adding them to a date or a timestamp.

use sqlparser::ast::{DateTimeField, Expr, Interval};

use super::expression::call;
use crate::dialect::literal;

/// What an interval that stands alone is called.
pub(super) const LITERAL: &str = "spark_interval";

/// The same of months, which is another type.
pub(super) const MONTHS: &str = "spark_month_interval";

/// An interval that stands alone.
pub(super) fn literal_of(parts: Parts) -> Expr {
    match parts.months {
        0 => call(
            LITERAL,
            vec![literal::int(parts.days), literal::int(parts.micros)],
        ),
        months => call(MONTHS, vec![literal::int(months)]),
    }
}

/// The parts of an interval that stands alone.
pub(super) fn of_literal(expr: &Expr) -> Option<Parts> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let sqlparser::ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let numbers: Vec<i64> = list
        .args
        .iter()
        .filter_map(|arg| match arg {
            sqlparser::ast::FunctionArg::Unnamed(sqlparser::ast::FunctionArgExpr::Expr(e)) => {
                literal::integer(e)
            }
            _ => None,
        })
        .collect();
    match (function.name.to_string().as_str(), numbers.as_slice()) {
        (LITERAL, [days, micros]) => Some(Parts {
            months: 0,
            days: *days,
            micros: *micros,
        }),
        (MONTHS, [months]) => Some(Parts {
            months: *months,
            days: 0,
            micros: 0,
        }),
        _ => None,
    }
}

/// Makes an interval that stands alone what the engine reads in the frame of a window.
pub(super) fn plain(expr: &mut Expr) {
    let Some(Parts {
        months,
        days,
        micros,
    }) = of_literal(expr)
    else {
        return;
    };
    let text = match months {
        0 => format!("{days} days {micros} microseconds"),
        _ => format!("{months} months"),
    };
    *expr = Expr::Interval(Interval {
        value: Box::new(literal::string(text)),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    });
}

/// A constant span of time as Spark's two interval types hold it.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Parts {
    pub months: i64,
    pub days: i64,
    pub micros: i64,
}

impl Parts {
    pub(super) fn negated(self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    fn add(&mut self, amount: Amount, unit: &str) -> Option<()> {
        let unit = unit.to_lowercase();
        let unit = unit.strip_suffix('s').unwrap_or(&unit);
        let whole = |per: i64| match amount.micros % 1_000_000 {
            0 => (amount.micros / 1_000_000).checked_mul(per),
            _ => None,
        };
        match unit {
            "year" => self.months = self.months.checked_add(whole(12)?)?,
            "quarter" => self.months = self.months.checked_add(whole(3)?)?,
            "month" => self.months = self.months.checked_add(whole(1)?)?,
            "week" => self.days = self.days.checked_add(whole(7)?)?,
            "day" => self.days = self.days.checked_add(whole(1)?)?,
            "hour" => self.micros = self.micros.checked_add(whole(3_600_000_000)?)?,
            "minute" => self.micros = self.micros.checked_add(whole(60_000_000)?)?,
            "second" => self.micros = self.micros.checked_add(amount.micros)?,
            "millisecond" => self.micros = self.micros.checked_add(whole(1_000)?)?,
            "microsecond" => self.micros = self.micros.checked_add(whole(1)?)?,
            _ => return None,
        }
        Some(())
    }
}

/// A number of units in millionths, so that seconds may have a fraction.
#[derive(Clone, Copy)]
struct Amount {
    micros: i64,
}

/// The parts of an interval literal; `None` if it is not constant or not understood.
pub(super) fn parts(interval: &Interval) -> Option<Parts> {
    if interval.last_field.is_some() {
        return None;
    }
    let mut parts = Parts::default();
    match &interval.leading_field {
        Some(field) => parts.add(amount(&constant(&interval.value)?)?, &unit_name(field))?,
        None => {
            let text = literal::text(&interval.value)?.to_lowercase();
            let text = text.trim();
            let text = text.strip_prefix("interval ").unwrap_or(text);
            let words: Vec<&str> = text.split_whitespace().collect();
            let (pairs, rest) = words.as_chunks::<2>();
            if pairs.is_empty() || !rest.is_empty() {
                return None;
            }
            for [count, unit] in pairs {
                parts.add(amount(count)?, unit)?;
            }
        }
    }
    // Spark has no interval type that holds both.
    (parts.months == 0 || (parts.days == 0 && parts.micros == 0)).then_some(parts)
}

fn unit_name(field: &DateTimeField) -> String {
    field.to_string().to_lowercase()
}

fn constant(expr: &Expr) -> Option<String> {
    use sqlparser::ast::{UnaryOperator, Value};
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match constant(expr)? {
            positive if !positive.starts_with('-') => Some(format!("-{positive}")),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Some(number.clone()),
            _ => literal::text(expr).map(|text| text.trim().to_string()),
        },
        _ => None,
    }
}

fn amount(text: &str) -> Option<Amount> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 6 {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    let micros = whole.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some(Amount {
        micros: if negative { -micros } else { micros },
    })
}
