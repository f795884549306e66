//! Predicates by chance, with what they say about a row: TRUE, FALSE or NULL.

use std::cmp::Ordering;

use chrono::NaiveDate;

use super::chance::Chance;
use super::tables::{Col, Type, as_literal, cell};

#[derive(Debug, Clone)]
pub enum Predicate {
    Compare(Col, &'static str, String),
    /// Against the day of the clock, moved back.
    Rolling(Col, &'static str, i64),
    In(Col, Vec<String>, bool),
    Between(Col, String, String),
    Null(Col, bool),
    And(Box<Predicate>, Box<Predicate>),
    Or(Box<Predicate>, Box<Predicate>),
    Not(Box<Predicate>),
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|a| !a), b.map(|b| !b)).map(|c| !c)
}

/// Values as cells show them.
fn compare(a: &str, b: &str, kind: Type) -> Ordering {
    let text = |v: &str| v.trim_matches('\'').to_string();
    match kind {
        Type::Int | Type::Long => {
            let number = |v: &str| v.parse::<i64>().unwrap_or(i64::MIN);
            number(a).cmp(&number(b))
        }
        Type::Decimal | Type::Double | Type::Approximate => {
            let number = |v: &str| v.parse::<f64>().unwrap_or(f64::NEG_INFINITY);
            let (a, b) = (number(a), number(b));
            match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
                (a, b) => a.cmp(&b),
            }
        }
        _ => text(a).cmp(&text(b)),
    }
}

fn holds(a: Option<&str>, operator: &str, b: &str, kind: Type) -> Option<bool> {
    let order = compare(a?, b, kind);
    Some(match operator {
        "=" => order.is_eq(),
        "<>" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

impl Predicate {
    /// Over one or two of the columns, or `None` if none of them can be compared.
    pub fn new(chance: &mut Chance, cols: &[Col]) -> Option<Self> {
        let usable: Vec<Col> = cols
            .iter()
            .filter(|c| !matches!(c.kind, Type::Approximate | Type::Bool | Type::Decimal))
            .cloned()
            .collect();
        // Mostly over columns that reach a source, and mostly over dates.
        let traced: Vec<Col> = usable.iter().filter(|c| c.traced).cloned().collect();
        let usable = match !traced.is_empty() && chance.of_hundred(85) {
            true => traced,
            false => usable,
        };
        let dates: Vec<Col> = usable
            .iter()
            .filter(|c| c.kind == Type::Date)
            .cloned()
            .collect();
        let leaf = |chance: &mut Chance| {
            let col = match !dates.is_empty() && chance.of_hundred(75) {
                true => chance.pick(&dates),
                false if usable.is_empty() => return None,
                false => chance.pick(&usable),
            };
            Some(Self::leaf(chance, col))
        };
        let first = Box::new(leaf(chance)?);
        Some(match chance.below(10) {
            0 => Self::And(first, Box::new(leaf(chance)?)),
            1 | 2 => Self::Or(first, Box::new(leaf(chance)?)),
            3 if chance.of_hundred(30) => Self::Not(first),
            _ => *first,
        })
    }

    fn leaf(chance: &mut Chance, col: Col) -> Self {
        let kind = col.kind;
        if kind == Type::Date && chance.of_hundred(55) {
            let back = chance.below(9) as i64 - 1;
            return Self::Rolling(
                col,
                chance.pick(&[">=", ">=", ">=", ">=", ">", ">", "<="]),
                back,
            );
        }
        let operators = ["=", "<>", "<", "<=", ">", ">=", ">="];
        match chance.below(10) {
            0..=4 => Self::Compare(col, chance.pick(&operators), cell(chance, kind, 0)),
            5 | 6 => {
                let list = (0..chance.between(1, 4))
                    .map(|_| cell(chance, kind, 5))
                    .collect();
                Self::In(col, list, chance.of_hundred(15))
            }
            7 | 8 => {
                let (a, b) = (cell(chance, kind, 0), cell(chance, kind, 0));
                match compare(&a, &b, kind) {
                    Ordering::Greater => Self::Between(col, b, a),
                    _ => Self::Between(col, a, b),
                }
            }
            _ => Self::Null(col, chance.of_hundred(50)),
        }
    }

    pub fn sql(&self) -> String {
        let value = |v: &String, c: &Col| match v.as_str() {
            "null" => "NULL".to_string(),
            _ => as_literal(v, c.kind),
        };
        match self {
            Self::Compare(c, op, v) => format!("{} {op} {}", c.name, value(v, c)),
            Self::Rolling(c, op, back) => {
                format!("{} {op} date_sub(current_date(), {back})", c.name)
            }
            Self::In(c, list, not) => {
                let list: Vec<String> = list.iter().map(|v| value(v, c)).collect();
                let not = if *not { "NOT " } else { "" };
                format!("{} {not}IN ({})", c.name, list.join(", "))
            }
            Self::Between(c, a, b) => {
                format!("{} BETWEEN {} AND {}", c.name, value(a, c), value(b, c))
            }
            Self::Null(c, not) => {
                format!("{} IS {}NULL", c.name, if *not { "NOT " } else { "" })
            }
            Self::And(a, b) => format!("({} AND {})", a.sql(), b.sql()),
            Self::Or(a, b) => format!("({} OR {})", a.sql(), b.sql()),
            Self::Not(a) => format!("NOT ({})", a.sql()),
        }
    }

    /// What it says about a row whose values `of` gives.
    pub fn of<'a>(&self, of: &impl Fn(&str) -> Option<&'a str>, today: NaiveDate) -> Option<bool> {
        match self {
            Self::Compare(c, op, v) => holds(of(&c.name), op, v, c.kind),
            Self::Rolling(c, op, back) => {
                let bound = today - chrono::TimeDelta::days(*back);
                holds(of(&c.name), op, &bound.to_string(), c.kind)
            }
            Self::In(c, list, not) => {
                let found = list
                    .iter()
                    .map(|v| match v.as_str() {
                        "null" => None,
                        v => holds(of(&c.name), "=", v, c.kind),
                    })
                    .fold(Some(false), or);
                found.map(|f| f != *not)
            }
            Self::Between(c, a, b) => and(
                holds(of(&c.name), ">=", a, c.kind),
                holds(of(&c.name), "<=", b, c.kind),
            ),
            Self::Null(c, not) => Some(of(&c.name).is_none() != *not),
            Self::And(a, b) => and(a.of(of, today), b.of(of, today)),
            Self::Or(a, b) => or(a.of(of, today), b.of(of, today)),
            Self::Not(a) => a.of(of, today).map(|a| !a),
        }
    }
}
