//! Literals of Spark: numbers with a suffix, and what type a bare number has.

use sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

/// Why a number is no literal.
#[derive(Debug, PartialEq)]
pub(super) struct OutOfRange {
    pub type_name: &'static str,
}

/// The typed expression for a number as written, without its sign; `None` if it is no number.
///
/// A bare integer is INT, BIGINT or DECIMAL by its size, a bare fraction is DECIMAL, and an
/// exponent makes a DOUBLE.
pub(super) fn number(text: &str, negative: bool, span: Span) -> Option<Result<Expr, OutOfRange>> {
    let (digits, suffix) = split_suffix(text)?;
    let signed = if negative {
        format!("-{digits}")
    } else {
        digits.to_string()
    };
    let integral = digits.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = digits.contains(['e', 'E']);
    let out_of_range = |type_name| Some(Err(OutOfRange { type_name }));
    let integer = |data_type, least: i128, most: i128, type_name| {
        if !integral {
            return None;
        }
        match signed.parse::<i128>() {
            Ok(value) if (least..=most).contains(&value) => Some(Ok(cast(
                Value::Number(signed.clone(), false),
                data_type,
                span,
            ))),
            _ => out_of_range(type_name),
        }
    };
    match suffix {
        "y" => integer(
            DataType::TinyInt(None),
            i8::MIN.into(),
            i8::MAX.into(),
            "TINYINT",
        ),
        "s" => integer(
            DataType::SmallInt(None),
            i16::MIN.into(),
            i16::MAX.into(),
            "SMALLINT",
        ),
        "l" => integer(
            DataType::BigInt(None),
            i64::MIN.into(),
            i64::MAX.into(),
            "BIGINT",
        ),
        "d" => Some(Ok(cast(quoted(signed), double(), span))),
        "f" => Some(Ok(cast(quoted(signed), DataType::Real, span))),
        "bd" => Some(decimal(&signed, span)),
        _ if exponent => Some(Ok(cast(quoted(signed), double(), span))),
        _ if integral => Some(match signed.parse::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => Ok(cast(
                Value::Number(signed, false),
                DataType::Int(None),
                span,
            )),
            Ok(_) => Ok(cast(
                Value::Number(signed, false),
                DataType::BigInt(None),
                span,
            )),
            Err(_) => decimal(&signed, span),
        }),
        _ => Some(decimal(&signed, span)),
    }
}

/// Whether an unquoted word is a number with a suffix, such as `1L` or `0.0D`.
pub(super) fn is_suffixed_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && split_suffix(word).is_some_and(|(_, suffix)| !suffix.is_empty())
}

/// Takes back the typing of a bare number where the grammar wants the number itself.
pub(super) fn untype(expr: &mut Expr) {
    if let Some(value) = bare_number(expr) {
        *expr = Expr::Value(value.clone());
    }
}

/// Takes back the typing of a number with a fraction, which is a cast by now.
pub(super) fn untype_fraction(expr: &mut Expr) {
    let Expr::Function(function) = &*expr else {
        return;
    };
    if function.name.to_string() != "spark_cast" {
        return;
    }
    let FunctionArguments::List(list) = &function.args else {
        return;
    };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first()
        && let Some(number) = text(value)
        && number.parse::<f64>().is_ok()
    {
        *expr = Expr::value(Value::Number(number.to_string(), false));
    }
}

/// The integer that a typed literal stands for.
pub(super) fn integer(expr: &Expr) -> Option<i64> {
    match bare_number(expr)? {
        ValueWithSpan {
            value: Value::Number(text, _),
            ..
        } => text.parse().ok(),
        _ => None,
    }
}

/// The text of a string literal.
pub(super) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text) | Value::DoubleQuotedString(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

/// A string literal.
pub(super) fn string(text: impl Into<String>) -> Expr {
    Expr::Value(quoted(text.into()).with_empty_span())
}

/// An INT literal.
pub(super) fn int(value: i64) -> Expr {
    cast(
        Value::Number(value.to_string(), false),
        DataType::BigInt(None),
        Span::empty(),
    )
}

fn bare_number(expr: &Expr) -> Option<&ValueWithSpan> {
    match expr {
        Expr::Cast {
            kind: CastKind::DoubleColon,
            expr,
            ..
        } => match expr.as_ref() {
            Expr::Value(
                value @ ValueWithSpan {
                    value: Value::Number(..),
                    ..
                },
            ) => Some(value),
            _ => None,
        },
        Expr::Value(
            value @ ValueWithSpan {
                value: Value::Number(..),
                ..
            },
        ) => Some(value),
        _ => None,
    }
}

fn double() -> DataType {
    DataType::Double(ExactNumberInfo::None)
}

fn quoted(text: String) -> Value {
    Value::SingleQuotedString(text)
}

fn cast(value: Value, data_type: DataType, span: Span) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Value(ValueWithSpan { value, span })),
        data_type,
        array: false,
        format: None,
    }
}

fn decimal(signed: &str, span: Span) -> Result<Expr, OutOfRange> {
    let unsigned = signed.trim_start_matches('-');
    if unsigned.contains(['e', 'E']) {
        return Err(OutOfRange {
            type_name: "DECIMAL written without an exponent",
        });
    }
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let whole = whole.trim_start_matches('0');
    let precision = (whole.len() + fraction.len()).max(1).max(fraction.len());
    if precision > 38 {
        return Err(OutOfRange {
            type_name: "DECIMAL(38)",
        });
    }
    let info = ExactNumberInfo::PrecisionAndScale(precision as u64, fraction.len() as i64);
    Ok(cast(
        quoted(signed.to_string()),
        DataType::Decimal(info),
        span,
    ))
}

/// Splits `1.5BD` into `1.5` and `bd`; `None` if it is no number.
fn split_suffix(text: &str) -> Option<(&str, &'static str)> {
    let lower = text.to_ascii_lowercase();
    let suffix = ["bd", "y", "s", "l", "d", "f"]
        .into_iter()
        .find(|suffix| lower.ends_with(suffix))
        .unwrap_or("");
    let digits = &text[..text.len() - suffix.len()];
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_ok = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && is_digits(exponent)
    });
    let valid = is_digits(whole) && is_digits(fraction) && whole.len() + fraction.len() > 0;
    (valid && exponent_ok).then_some((digits, suffix))
}

/// The number an unquoted identifier stands for, if it is one with a suffix.
pub(super) fn identifier(ident: &Ident, negative: bool) -> Option<Result<Expr, OutOfRange>> {
    if ident.quote_style.is_none() && is_suffixed_number(&ident.value) {
        number(&ident.value, negative, ident.span)
    } else {
        None
    }
}
