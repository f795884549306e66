//! The window of a REPLACE WHERE flow: its pinned predicate as conjuncts that two updates can be
//! compared by.
//!
//! Whether one window lies inside another is decided soundly: "no" may mean "not known".

use datafusion_common::arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::utils::split_conjunction;
use datafusion_expr::{BinaryExpr, Expr, Operator, binary_expr, lit};
use serde::{Deserialize, Serialize};

use crate::render;

/// A pinned predicate, cut into the parts that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub conjuncts: Vec<Conjunct>,
}

/// One part: its text, and the bound that it sets where it is a plain comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conjunct {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// `column op value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub column: String,
    pub op: BoundOp,
    pub value: Ordinal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundOp {
    Eq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

/// A value of a type with an order that does not depend on anything else: days, microseconds,
/// integers, or text by bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ordinal {
    Int { kind: String, value: i64 },
    Text(String),
}

impl Window {
    /// The window of a typed and simplified predicate; `true` has no conjuncts.
    pub fn of(expr: &Expr) -> Self {
        let always = Expr::Literal(ScalarValue::Boolean(Some(true)), None);
        let conjuncts = split_conjunction(expr)
            .into_iter()
            .filter(|e| **e != always)
            .map(|e| Conjunct {
                text: render::sql(e),
                bound: bound(e),
            })
            .collect();
        Self { conjuncts }
    }

    /// Whether every row of `self` is surely a row of `other`.
    pub fn lies_in(&self, other: &Self) -> bool {
        other.conjuncts.iter().all(|wider| {
            self.conjuncts.iter().any(|own| {
                own.text == wider.text
                    || own
                        .bound
                        .as_ref()
                        .zip(wider.bound.as_ref())
                        .is_some_and(|(a, b)| a.implies(b))
            })
        })
    }
}

impl Window {
    /// The bounds of `other` that a row of `self` may break: a row of `self` for which all of them
    /// are TRUE is a row of `other`. `None` when `other` has a part that is no bound and that does
    /// not follow from `self`.
    pub fn beyond(&self, other: &Self) -> Option<Vec<Bound>> {
        let one = |conjunct: &Conjunct| Self {
            conjuncts: vec![conjunct.clone()],
        };
        other
            .conjuncts
            .iter()
            .filter(|wider| !self.lies_in(&one(wider)))
            .map(|wider| wider.bound.clone())
            .collect()
    }
}

impl Bound {
    /// The comparison over a column of this type; `None` when the value is not of that type.
    pub fn expr(&self, data_type: &DataType) -> Option<Expr> {
        let op = match self.op {
            BoundOp::Eq => Operator::Eq,
            BoundOp::Lt => Operator::Lt,
            BoundOp::LtEq => Operator::LtEq,
            BoundOp::Gt => Operator::Gt,
            BoundOp::GtEq => Operator::GtEq,
        };
        let value = self.value.scalar(data_type)?;
        let column = Expr::Column(Column::new_unqualified(&self.column));
        Some(binary_expr(column, op, lit(value)))
    }

    fn implies(&self, other: &Self) -> bool {
        use BoundOp::{Eq, Gt, GtEq, Lt, LtEq};
        if self.column != other.column || !self.value.comparable(&other.value) {
            return false;
        }
        let (a, b) = (&self.value, &other.value);
        match (self.op, other.op) {
            (Eq, Eq) => a == b,
            (Eq, Gt) => a > b,
            (Eq, GtEq) => a >= b,
            (Eq, Lt) => a < b,
            (Eq, LtEq) => a <= b,
            (GtEq, GtEq) | (Gt, GtEq) | (Gt, Gt) => a >= b,
            (GtEq, Gt) => a > b,
            (LtEq, LtEq) | (Lt, LtEq) | (Lt, Lt) => a <= b,
            (LtEq, Lt) => a < b,
            _ => false,
        }
    }
}

impl Ordinal {
    fn comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int { kind: a, .. }, Self::Int { kind: b, .. }) => a == b,
            (Self::Text(_), Self::Text(_)) => true,
            _ => false,
        }
    }

    /// The value as one of this type; `None` when it is of another.
    pub fn scalar(&self, data_type: &DataType) -> Option<ScalarValue> {
        let scalar = match (self, data_type) {
            (Self::Text(v), DataType::Utf8) => ScalarValue::Utf8(Some(v.clone())),
            (Self::Int { value, .. }, DataType::Int8) => {
                ScalarValue::Int8(Some(i8::try_from(*value).ok()?))
            }
            (Self::Int { value, .. }, DataType::Int16) => {
                ScalarValue::Int16(Some(i16::try_from(*value).ok()?))
            }
            (Self::Int { value, .. }, DataType::Int32) => {
                ScalarValue::Int32(Some(i32::try_from(*value).ok()?))
            }
            (Self::Int { value, .. }, DataType::Int64) => ScalarValue::Int64(Some(*value)),
            (Self::Int { value, .. }, DataType::Date32) => {
                ScalarValue::Date32(Some(i32::try_from(*value).ok()?))
            }
            (Self::Int { value, .. }, DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
                ScalarValue::TimestampMicrosecond(Some(*value), zone.clone())
            }
            _ => return None,
        };
        // The kinds must agree, too: a day is no number.
        (Self::of(&scalar).as_ref() == Some(self)).then_some(scalar)
    }

    fn of(value: &ScalarValue) -> Option<Self> {
        let int = |kind: &str, value: i64| {
            Some(Self::Int {
                kind: kind.into(),
                value,
            })
        };
        match value {
            ScalarValue::Int8(Some(v)) => int("integer", i64::from(*v)),
            ScalarValue::Int16(Some(v)) => int("integer", i64::from(*v)),
            ScalarValue::Int32(Some(v)) => int("integer", i64::from(*v)),
            ScalarValue::Int64(Some(v)) => int("integer", *v),
            ScalarValue::Date32(Some(v)) => int("date", i64::from(*v)),
            ScalarValue::TimestampMicrosecond(Some(v), Some(_)) => int("timestamp", *v),
            ScalarValue::TimestampMicrosecond(Some(v), None) => int("timestamp_ntz", *v),
            ScalarValue::Utf8(Some(v)) | ScalarValue::Utf8View(Some(v)) => {
                Some(Self::Text(v.clone()))
            }
            _ => None,
        }
    }
}

fn bound(expr: &Expr) -> Option<Bound> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    let op = match op {
        Operator::Eq => BoundOp::Eq,
        Operator::Lt => BoundOp::Lt,
        Operator::LtEq => BoundOp::LtEq,
        Operator::Gt => BoundOp::Gt,
        Operator::GtEq => BoundOp::GtEq,
        _ => return None,
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(c), Expr::Literal(v, _)) => Some(Bound {
            column: c.name.clone(),
            op,
            value: Ordinal::of(v)?,
        }),
        (Expr::Literal(v, _), Expr::Column(c)) => {
            let op = match op {
                BoundOp::Lt => BoundOp::Gt,
                BoundOp::LtEq => BoundOp::GtEq,
                BoundOp::Gt => BoundOp::Lt,
                BoundOp::GtEq => BoundOp::LtEq,
                BoundOp::Eq => BoundOp::Eq,
            };
            Some(Bound {
                column: c.name.clone(),
                op,
                value: Ordinal::of(v)?,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion_expr::{col, lit};
    use proptest::prelude::*;

    use super::*;

    fn day(d: i32) -> Expr {
        lit(ScalarValue::Date32(Some(d)))
    }

    #[test]
    fn what_lies_beyond_a_window_are_the_bounds_that_may_break() {
        let old = Window::of(&col("d").gt_eq(day(10)).and(col("d").lt_eq(day(20))));
        let new = Window::of(&col("d").gt_eq(day(11)).and(col("d").lt_eq(day(21))));
        let beyond = new.beyond(&old).unwrap();
        assert_eq!(beyond.len(), 1);
        assert_eq!(
            beyond[0].expr(&DataType::Date32),
            Some(col("d").lt_eq(day(20)))
        );
        assert_eq!(beyond[0].expr(&DataType::Int32), None);
        let other = Window::of(&col("d").not_eq(day(3)));
        assert_eq!(new.beyond(&other), None);
        assert_eq!(old.beyond(&old), Some(vec![]));
    }

    #[test]
    fn a_rolling_window_lies_in_the_one_before_and_not_the_other_way() {
        let old = Window::of(&col("d").gt_eq(day(10)));
        let new = Window::of(&col("d").gt_eq(day(11)));
        assert!(new.lies_in(&old));
        assert!(!old.lies_in(&new));
        let bounded = Window::of(&col("d").gt_eq(day(11)).and(col("d").lt(day(20))));
        assert!(bounded.lies_in(&new));
        assert!(!new.lies_in(&bounded));
        assert!(new.lies_in(&Window::of(&lit(true))));
        assert!(!Window::of(&lit(true)).lies_in(&new));
    }

    #[test]
    fn other_conjuncts_must_be_the_same_to_the_letter() {
        let a = Window::of(
            &col("d")
                .gt(day(1))
                .and(col("r").in_list(vec![lit("x")], false)),
        );
        let b = Window::of(&col("r").in_list(vec![lit("x")], false));
        assert!(a.lies_in(&b));
        assert!(!b.lies_in(&a));
    }

    fn holds(op: BoundOp, x: i64, v: i64) -> bool {
        match op {
            BoundOp::Eq => x == v,
            BoundOp::Lt => x < v,
            BoundOp::LtEq => x <= v,
            BoundOp::Gt => x > v,
            BoundOp::GtEq => x >= v,
        }
    }

    fn any_bound() -> impl Strategy<Value = (BoundOp, i64)> {
        (0usize..5, -3i64..4).prop_map(|(op, v)| {
            (
                [
                    BoundOp::Eq,
                    BoundOp::Lt,
                    BoundOp::LtEq,
                    BoundOp::Gt,
                    BoundOp::GtEq,
                ][op],
                v,
            )
        })
    }

    proptest! {
        /// If one window is said to lie in another, no value is in the first and not in the second.
        #[test]
        fn lying_in_is_sound(
            a in proptest::collection::vec(any_bound(), 0..3),
            b in proptest::collection::vec(any_bound(), 0..3),
        ) {
            let window = |list: &[(BoundOp, i64)]| Window {
                conjuncts: list.iter().map(|(op, v)| Conjunct {
                    text: format!("x {op:?} {v}"),
                    bound: Some(Bound { column: "x".into(), op: *op,
                        value: Ordinal::Int { kind: "integer".into(), value: *v } }),
                }).collect(),
            };
            if window(&a).lies_in(&window(&b)) {
                for x in -6i64..7 {
                    let inside = |l: &[(BoundOp, i64)]| l.iter().all(|(op, v)| holds(*op, x, *v));
                    prop_assert!(!inside(&a) || inside(&b), "x = {x}");
                }
            }
        }
    }
}
