//! Typed expressions as Spark SQL text, for people and for comparing one update's predicate with
//! the next one's.

use crate::types::sql_name;
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{InList, Like};
use datafusion_expr::{Between, BinaryExpr, Cast, Expr, Operator, TryCast};

/// `expr` as text. The same expression always gives the same text.
pub fn sql(expr: &Expr) -> String {
    text(expr, 0)
}

/// Binding strength, so that only needed parentheses are written.
fn strength(op: &Operator) -> u8 {
    match op {
        Operator::Or => 1,
        Operator::And => 2,
        Operator::Plus | Operator::Minus => 5,
        Operator::Multiply | Operator::Divide | Operator::Modulo => 6,
        _ => 4,
    }
}

fn text(expr: &Expr, around: u8) -> String {
    let (inner, own) = match expr {
        Expr::Column(c) => (identifier(&c.name), 9),
        Expr::Literal(value, _) => (literal(value), 9),
        Expr::Alias(alias) => return text(&alias.expr, around),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let own = strength(op);
            (
                format!("{} {op} {}", text(left, own), text(right, own + 1)),
                own,
            )
        }
        Expr::Not(e) => (format!("NOT {}", text(e, 3)), 3),
        Expr::IsNull(e) => (format!("{} IS NULL", text(e, 4)), 4),
        Expr::IsNotNull(e) => (format!("{} IS NOT NULL", text(e, 4)), 4),
        Expr::IsTrue(e) => (format!("{} IS TRUE", text(e, 4)), 4),
        Expr::IsFalse(e) => (format!("{} IS FALSE", text(e, 4)), 4),
        Expr::IsUnknown(e) => (format!("{} IS UNKNOWN", text(e, 4)), 4),
        Expr::IsNotTrue(e) => (format!("{} IS NOT TRUE", text(e, 4)), 4),
        Expr::IsNotFalse(e) => (format!("{} IS NOT FALSE", text(e, 4)), 4),
        Expr::IsNotUnknown(e) => (format!("{} IS NOT UNKNOWN", text(e, 4)), 4),
        Expr::Negative(e) => (format!("-{}", text(e, 8)), 8),
        Expr::Between(Between {
            expr,
            negated,
            low,
            high,
        }) => {
            let not = if *negated { "NOT " } else { "" };
            (
                format!(
                    "{} {not}BETWEEN {} AND {}",
                    text(expr, 4),
                    text(low, 5),
                    text(high, 5)
                ),
                4,
            )
        }
        Expr::InList(InList {
            expr,
            list,
            negated,
        }) => {
            let not = if *negated { "NOT " } else { "" };
            let list = list
                .iter()
                .map(|e| text(e, 0))
                .collect::<Vec<_>>()
                .join(", ");
            (format!("{} {not}IN ({list})", text(expr, 4)), 4)
        }
        Expr::Like(Like {
            negated,
            expr,
            pattern,
            case_insensitive,
            ..
        }) => {
            let not = if *negated { "NOT " } else { "" };
            let like = if *case_insensitive { "ILIKE" } else { "LIKE" };
            (
                format!("{} {not}{like} {}", text(expr, 4), text(pattern, 5)),
                4,
            )
        }
        Expr::Cast(Cast { expr, field }) => (
            format!("CAST({} AS {})", text(expr, 0), sql_name(field.data_type())),
            9,
        ),
        Expr::TryCast(TryCast { expr, field }) => (
            format!(
                "TRY_CAST({} AS {})",
                text(expr, 0),
                sql_name(field.data_type())
            ),
            9,
        ),
        Expr::ScalarFunction(function) if engine_form(function).is_some() => {
            return engine_form(function).map_or_else(String::new, |(text, own)| {
                if own < around {
                    format!("({text})")
                } else {
                    text
                }
            });
        }
        Expr::ScalarFunction(function) => {
            let args = function
                .args
                .iter()
                .map(|e| text(e, 0))
                .collect::<Vec<_>>()
                .join(", ");
            (format!("{}({args})", function.name()), 9)
        }
        Expr::Case(case) => {
            let mut out = "CASE".to_string();
            if let Some(operand) = &case.expr {
                out.push_str(&format!(" {}", text(operand, 0)));
            }
            for (when, then) in &case.when_then_expr {
                out.push_str(&format!(" WHEN {} THEN {}", text(when, 0), text(then, 0)));
            }
            if let Some(other) = &case.else_expr {
                out.push_str(&format!(" ELSE {}", text(other, 0)));
            }
            (format!("{out} END"), 9)
        }
        other => (other.to_string(), 9),
    };
    if own < around {
        format!("({inner})")
    } else {
        inner
    }
}

/// The SQL form of a function that stands for one in the engine: what people wrote, not what it is
/// computed by.
fn engine_form(function: &datafusion_expr::expr::ScalarFunction) -> Option<(String, u8)> {
    let args = &function.args;
    let operator = |sign: &str, own: u8| match args.as_slice() {
        [left, right, ..] => Some((
            format!("{} {sign} {}", text(left, own), text(right, own + 1)),
            own,
        )),
        _ => None,
    };
    let name = function.name().strip_prefix("spark_")?;
    match (name, args.as_slice()) {
        ("normalize" | "canonical_nan", [inner]) => Some((text(inner, 9), 9)),
        ("cast" | "try_cast", [inner, Expr::Literal(kind, _), ..]) => {
            let word = if name == "cast" { "CAST" } else { "TRY_CAST" };
            let kind = kind.to_string().to_uppercase();
            Some((format!("{word}({} AS {kind})", text(inner, 0)), 9))
        }
        ("add", _) => operator("+", 5),
        ("subtract", _) => operator("-", 5),
        ("multiply", _) => operator("*", 6),
        ("divide", _) => operator("/", 6),
        ("modulo" | "remainder", _) => operator("%", 6),
        _ => {
            let shown: Vec<String> = args
                .iter()
                // The session's zone travels as a last argument.
                .filter(
                    |a| !matches!(a, Expr::Literal(ScalarValue::Utf8(Some(z)), _) if z == "UTC"),
                )
                .map(|e| text(e, 0))
                .collect();
            Some((format!("{name}({})", shown.join(", ")), 9))
        }
    }
}

/// A column name, in backticks where it is no plain word.
pub fn identifier(name: &str) -> String {
    let plain = name
        .chars()
        .enumerate()
        .all(|(i, c)| c == '_' || c.is_alphabetic() || (i > 0 && c.is_ascii_digit()));
    if plain && !name.is_empty() {
        name.to_string()
    } else {
        format!("`{}`", name.replace('`', "``"))
    }
}

/// A literal. Times are written in UTC with their zone, so that the text means one instant.
pub fn literal(value: &ScalarValue) -> String {
    if value.is_null() {
        return "NULL".into();
    }
    match value {
        ScalarValue::Utf8(Some(s))
        | ScalarValue::Utf8View(Some(s))
        | ScalarValue::LargeUtf8(Some(s)) => {
            format!("'{}'", s.replace('\'', "''"))
        }
        ScalarValue::Date32(Some(_)) => format!("DATE '{value}'"),
        ScalarValue::TimestampMicrosecond(Some(us), zone) => {
            let time = chrono::DateTime::from_timestamp_micros(*us);
            let shown = time.map_or_else(
                || us.to_string(),
                |t| t.format("%Y-%m-%d %H:%M:%S%.f").to_string(),
            );
            match zone {
                Some(_) => format!("TIMESTAMP '{shown}Z'"),
                None => format!("TIMESTAMP_NTZ '{shown}'"),
            }
        }
        ScalarValue::Boolean(Some(b)) => if *b { "TRUE" } else { "FALSE" }.into(),
        ScalarValue::Binary(Some(bytes)) => {
            let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
            format!("X'{hex}'")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion_expr::{col, lit};

    use super::*;

    #[test]
    fn parentheses_stand_where_meaning_needs_them() {
        let a = || col("a").gt(lit(1i64));
        let b = || col("b").eq(lit("it's"));
        assert_eq!(
            sql(&a().or(b()).and(a())),
            "(a > 1 OR b = 'it''s') AND a > 1"
        );
        assert_eq!(sql(&a().and(b()).or(a())), "a > 1 AND b = 'it''s' OR a > 1");
        assert_eq!(sql(&col("order date").is_null()), "`order date` IS NULL");
        let date = lit(ScalarValue::Date32(Some(20_779)));
        assert_eq!(sql(&col("d").gt_eq(date)), "d >= DATE '2026-11-22'");
        assert_eq!(
            sql(&(col("a") - (col("b") - lit(1i64))).eq(lit(0i64))),
            "a - (b - 1) = 0"
        );
    }
}
