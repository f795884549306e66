//! Operators, casts, literals and the other expressions that are no function calls.

use std::ops::ControlFlow;

use sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Spanned, TimezoneInfo, TrimWhereField, UnaryOperator, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};
use sqlparser::tokenizer::Span;

use super::{Rewriter, interval};
use crate::dialect::literal;

/// A call of a function by name.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args
                .into_iter()
                .map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)))
                .collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// A cast with Spark's rules, to a type by Spark's name.
pub(super) fn cast(expr: Expr, type_name: &str) -> Expr {
    call("spark_cast", vec![expr, literal::string(type_name), zone()])
}

/// The session's time zone, which becomes a literal while the query is planned.
pub(super) fn zone() -> Expr {
    call("spark_zone", vec![])
}

/// An operator as a function call. How many digits an integer literal has is handed over too, for
/// next to a decimal it counts with these.
pub(super) fn operation(name: &str, left: Expr, right: Expr) -> Expr {
    let digits = |expr: &Expr| {
        literal::integer(expr).map(|value| value.unsigned_abs().to_string().len().to_string())
    };
    let both = (digits(&left), digits(&right));
    let mut args = vec![left, right];
    if both != (None, None) {
        let (left, right) = (both.0.unwrap_or_default(), both.1.unwrap_or_default());
        args.push(literal::string(format!("{left},{right}")));
    }
    call(name, args)
}

pub(super) fn null() -> Expr {
    Expr::value(Value::Null)
}

/// Takes an expression out of its place.
pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, null())
}

pub(super) fn when(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    Expr::Case {
        case_token: sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        end_token: sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: branches
            .into_iter()
            .map(|(condition, result)| CaseWhen { condition, result })
            .collect(),
        else_result: otherwise.map(Box::new),
    }
}

pub(super) fn infix(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::BinaryOp {
        left: nested(left),
        op,
        right: nested(right),
    }
}

impl Rewriter {
    /// What must be seen before the parts of an expression are rewritten.
    pub(super) fn before_expression(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Function(function) => self.check_function(function),
            Expr::Identifier(ident) => {
                if let Some(found) = literal::identifier(ident, false) {
                    let span = ident.span;
                    self.number(expr, found, span);
                } else if ident.quote_style.is_none() && is_bare_function(&ident.value) {
                    *expr = call(&ident.value.to_lowercase(), vec![]);
                }
            }
            Expr::Lambda(lambda) => {
                let names = lambda
                    .params
                    .iter()
                    .map(|param| param.name.value.clone())
                    .collect();
                let _ = lambda.body.visit(&mut Parameters { names });
            }
            Expr::Interval(found) => {
                if let Some(parts) = interval::parts(found) {
                    *expr = interval::literal_of(parts);
                }
            }
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: inner,
            } => {
                let span = inner.span();
                let found = match inner.as_ref() {
                    Expr::Value(ValueWithSpan {
                        value: Value::Number(text, long),
                        span,
                    }) => literal::number(&written(text, *long), true, *span),
                    Expr::Identifier(ident) => literal::identifier(ident, true),
                    _ => None,
                };
                if let Some(found) = found {
                    self.number(expr, found, span);
                }
            }
            Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: inner,
            } if asks_for_rows(inner) => {
                *expr = opposite(take(inner));
                self.before_expression(expr);
            }
            Expr::BinaryOp { left, op, right } => {
                let operator = op.clone();
                if let Some(found) = self.add_interval(left, &operator, right) {
                    *expr = found;
                }
            }
            Expr::InList {
                expr: value,
                list,
                negated,
            } => {
                if let Expr::Tuple(left) = value.as_ref()
                    && let Some(found) = row_in_list(left, list)
                {
                    *expr = negate(Expr::Nested(Box::new(found)), *negated);
                }
            }
            Expr::InSubquery {
                expr: value,
                subquery,
                negated,
            } => {
                if let Expr::Tuple(left) = value.as_ref() {
                    *expr = super::generator::row_in_subquery(left, subquery, *negated);
                }
            }
            Expr::Case {
                operand,
                conditions,
                ..
            } => {
                if let Some(operand) = operand.take() {
                    for when in conditions {
                        let value = take(&mut when.condition);
                        when.condition = infix(*operand.clone(), BinaryOperator::Eq, value);
                    }
                }
            }
            _ => {}
        }
    }

    fn number(&mut self, expr: &mut Expr, found: Result<Expr, literal::OutOfRange>, span: Span) {
        match found {
            Ok(typed) => *expr = typed,
            Err(out) => {
                let message = format!("the number {expr} does not fit {}", out.type_name);
                self.fault("INVALID_NUMERIC_LITERAL", message, span, None);
            }
        }
    }

    /// `x + INTERVAL ...`, `INTERVAL ... + x` and `x - INTERVAL ...`.
    fn add_interval(
        &mut self,
        left: &mut Expr,
        op: &BinaryOperator,
        right: &mut Expr,
    ) -> Option<Expr> {
        // Two intervals are no time and an interval.
        if matches!((&*left, &*right), (Expr::Interval(_), Expr::Interval(_))) {
            return None;
        }
        let (value, interval, negative) = match (&*left, op, &*right) {
            (_, BinaryOperator::Plus, Expr::Interval(interval)) => (&mut *left, interval, false),
            (_, BinaryOperator::Minus, Expr::Interval(interval)) => (&mut *left, interval, true),
            (Expr::Interval(interval), BinaryOperator::Plus, _) => (&mut *right, interval, false),
            _ => return None,
        };
        let parts = interval::parts(interval)?;
        let parts = if negative { parts.negated()? } else { parts };
        let mut args = vec![
            take(value),
            literal::int(parts.months),
            literal::int(parts.days),
            literal::int(parts.micros),
            zone(),
        ];
        // A time of day makes a timestamp of a date.
        if parts.micros != 0 {
            args.push(Expr::value(Value::Boolean(true)));
        }
        Some(call("spark_add_interval", args))
    }

    /// Rewrites an expression whose parts are done.
    pub(super) fn after_expression(&mut self, expr: &mut Expr) {
        let span = expr.span();
        match expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, long),
                span,
            }) => {
                let negative = text.starts_with('-');
                let (text, span) = (written(text, *long), *span);
                if let Some(found) = literal::number(&text, negative, span) {
                    self.number(expr, found, span);
                }
            }
            Expr::Value(ValueWithSpan { value, .. }) => match value {
                Value::SingleQuotedString(_)
                | Value::DoubleQuotedString(_)
                | Value::Boolean(_)
                | Value::Null
                | Value::Placeholder(_) => {}
                Value::SingleQuotedRawStringLiteral(text)
                | Value::DoubleQuotedRawStringLiteral(text) => {
                    *expr = literal::string(std::mem::take(text));
                }
                Value::HexStringLiteral(_) => {}
                _ => self.refuse("this kind of literal", span, None),
            },
            Expr::BinaryOp { .. } => self.binary(expr, span),
            Expr::UnaryOp { op, expr: inner } => match op {
                UnaryOperator::BitwiseNot => *expr = call("spark_bit_not", vec![take(inner)]),
                UnaryOperator::Minus => *expr = call("negative", vec![take(inner)]),
                UnaryOperator::Plus => *expr = take(inner),
                UnaryOperator::BangNot => *op = UnaryOperator::Not,
                UnaryOperator::Not => {}
                _ => self.refuse("this operator", span, None),
            },
            // A typed number, typed once more on the way up: the outer type is the wanted one.
            Expr::Cast {
                kind: CastKind::DoubleColon,
                expr: inner,
                data_type,
                ..
            } if literal::integer(inner).is_some() && is_integer(data_type) => {
                literal::untype(inner);
            }
            Expr::Cast { .. } => self.cast(expr, span),
            Expr::TypedString(typed) => {
                let value = typed.value.value.clone().into_string().unwrap_or_default();
                match self.type_name(&typed.data_type.clone(), span) {
                    Some(name)
                        if matches!(
                            name.as_str(),
                            "date" | "timestamp" | "timestamp_ntz" | "double" | "float"
                        ) =>
                    {
                        *expr = cast(literal::string(value), &name);
                    }
                    Some(_) => self.refuse("this kind of literal", span, None),
                    None => {}
                }
            }
            Expr::RLike {
                negated,
                expr: text,
                pattern,
                ..
            } => {
                let found = call("rlike", vec![take(text), take(pattern)]);
                *expr = negate(found, *negated);
            }
            Expr::Like { any: true, .. } | Expr::ILike { any: true, .. } => {
                self.like_any(expr, span);
            }
            Expr::Like { .. } | Expr::ILike { .. } => {}
            Expr::Extract {
                field, expr: inner, ..
            } => {
                let field = field.to_string();
                let value = take(inner);
                *expr = self.date_part(&field, value, span);
            }
            Expr::Ceil { field, expr: inner } => {
                *expr = self.rounded("ceil", field.clone(), take(inner), span);
            }
            Expr::Floor { field, expr: inner } => {
                *expr = self.rounded("floor", field.clone(), take(inner), span);
            }
            Expr::Position { expr: needle, r#in } => {
                *expr = call("locate", vec![take(needle), take(r#in)]);
            }
            Expr::Substring {
                expr: text,
                substring_from,
                substring_for,
                ..
            } => {
                let mut args = vec![take(text)];
                args.push(
                    substring_from
                        .as_mut()
                        .map_or_else(|| literal::int(1), |from| take(from)),
                );
                args.extend(substring_for.as_mut().map(|length| take(length)));
                *expr = call("substring", args);
            }
            Expr::Trim {
                trim_where,
                trim_what,
                expr: text,
                trim_characters,
            } => {
                if trim_characters.is_some() {
                    return self.refuse("TRIM with a list of characters", span, None);
                }
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let mut args = vec![take(text)];
                args.extend(trim_what.as_mut().map(|what| take(what)));
                *expr = call(name, args);
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                let mut value = take(root);
                for access in access_chain {
                    value = match access {
                        sqlparser::ast::AccessExpr::Dot(Expr::Identifier(field)) => call(
                            "spark_field",
                            vec![value, literal::string(field.value.clone())],
                        ),
                        sqlparser::ast::AccessExpr::Subscript(
                            sqlparser::ast::Subscript::Index { index },
                        ) => call("spark_get_item", vec![value, take(index)]),
                        _ => return self.refuse("this way of access", span, None),
                    };
                }
                *expr = value;
            }
            Expr::Struct { values, fields } => {
                if !fields.is_empty() {
                    return self.refuse("a struct with typed fields", span, None);
                }
                let values = std::mem::take(values);
                *expr = self.named_struct(values);
            }
            Expr::Function(_) => self.rewrite_function(expr),
            Expr::Interval(_) => self.refuse("this form of an interval", span, None),
            Expr::Overlay {
                expr: text,
                overlay_what,
                overlay_from,
                overlay_for,
            } => {
                let mut args = vec![take(text), take(overlay_what), take(overlay_from)];
                args.extend(overlay_for.as_mut().map(|length| take(length)));
                *expr = call("overlay", args);
            }
            Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..)
            | Expr::InList { .. }
            | Expr::InSubquery { .. }
            | Expr::Between { .. }
            | Expr::Nested(_)
            | Expr::Case { .. }
            | Expr::Exists { .. }
            | Expr::Subquery(_)
            | Expr::GroupingSets(_)
            | Expr::Cube(_)
            | Expr::Rollup(_)
            | Expr::Named { .. }
            | Expr::Wildcard(_)
            | Expr::QualifiedWildcard(..) => {}
            // A row of values is a struct; IN and comparisons take it apart before they come here.
            Expr::Tuple(values) => {
                let values = std::mem::take(values);
                *expr = self.named_struct(values);
            }
            // Where a lambda may stand is looked at with the function it is an argument of.
            Expr::Lambda(_) => {}
            Expr::Map(map) => {
                let entries = std::mem::take(&mut map.entries);
                let args = entries
                    .into_iter()
                    .flat_map(|entry| [*entry.key, *entry.value]);
                *expr = call("spark_map", args.collect());
            }
            Expr::AtTimeZone { .. } => {
                self.refuse(
                    "AT TIME ZONE",
                    span,
                    Some("use from_utc_timestamp or to_utc_timestamp"),
                );
            }
            _ => self.refuse("this expression", span, None),
        }
    }

    fn binary(&mut self, expr: &mut Expr, span: Span) {
        let Expr::BinaryOp { left, op, right } = expr else {
            return;
        };
        let name = match op {
            BinaryOperator::Plus => "spark_add",
            BinaryOperator::Minus => "spark_subtract",
            BinaryOperator::Multiply => "spark_multiply",
            BinaryOperator::Divide => "spark_divide",
            BinaryOperator::Modulo => "mod",
            BinaryOperator::MyIntegerDivide | BinaryOperator::DuckIntegerDivide => "spark_div",
            BinaryOperator::StringConcat => "concat",
            BinaryOperator::Spaceship => {
                *expr = Expr::IsNotDistinctFrom(Box::new(take(left)), Box::new(take(right)));
                return;
            }
            BinaryOperator::Regexp => "rlike",
            BinaryOperator::PGBitwiseShiftLeft => "shiftleft",
            BinaryOperator::PGBitwiseShiftRight => "shiftright",
            BinaryOperator::Gt
            | BinaryOperator::Lt
            | BinaryOperator::GtEq
            | BinaryOperator::LtEq
            | BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::And
            | BinaryOperator::Or
            | BinaryOperator::BitwiseAnd
            | BinaryOperator::BitwiseOr => return,
            BinaryOperator::BitwiseXor => "spark_bit_xor",
            other => {
                let what = format!("the operator {other}");
                return self.refuse(&what, span, None);
            }
        };
        *expr = match name {
            "concat" | "rlike" | "shiftleft" | "shiftright" | "spark_bit_xor" => {
                call(name, vec![take(left), take(right)])
            }
            _ => operation(name, take(left), take(right)),
        };
    }

    fn cast(&mut self, expr: &mut Expr, span: Span) {
        let Expr::Cast {
            kind,
            expr: inner,
            data_type,
            array,
            format,
        } = expr
        else {
            return;
        };
        if *array || format.is_some() {
            return self.refuse("this form of CAST", span, None);
        }
        let Some(name) = self.type_name(&data_type.clone(), span) else {
            return;
        };
        let function = match kind {
            CastKind::Cast | CastKind::DoubleColon => "spark_cast",
            CastKind::TryCast | CastKind::SafeCast => "spark_try_cast",
        };
        let value = take(inner);
        *expr = call(function, vec![value, literal::string(name), zone()]);
    }

    /// Spark's simple name of a scalar type; a fault if it is none.
    pub(super) fn type_name(&mut self, data_type: &DataType, span: Span) -> Option<String> {
        let simple = match data_type {
            DataType::TinyInt(None) => "tinyint",
            DataType::SmallInt(None) => "smallint",
            DataType::Int(None) | DataType::Integer(None) => "int",
            DataType::BigInt(None) => "bigint",
            DataType::Float(_) | DataType::Real => "float",
            DataType::Double(_) | DataType::DoublePrecision => "double",
            DataType::Boolean | DataType::Bool => "boolean",
            DataType::String(None) | DataType::Text => "string",
            DataType::Varchar(None) => "string",
            DataType::Binary(None) => "binary",
            DataType::Date => "date",
            DataType::Timestamp(None, TimezoneInfo::None) => "timestamp",
            DataType::TimestampNtz(None) => "timestamp_ntz",
            DataType::Decimal(info) | DataType::Dec(info) | DataType::Numeric(info) => {
                use sqlparser::ast::ExactNumberInfo::{None, Precision, PrecisionAndScale};
                let (precision, scale) = match info {
                    None => (10, 0),
                    Precision(precision) => (*precision, 0),
                    PrecisionAndScale(precision, scale) => (*precision, *scale),
                };
                if precision == 0 || precision > 38 || scale < 0 || scale as u64 > precision {
                    let message = format!("there is no type {data_type}");
                    self.fault("UNSUPPORTED_DATATYPE", message, span, Option::None);
                    return Option::None;
                }
                return Some(format!("decimal({precision},{scale})"));
            }
            DataType::Array(
                ArrayElemTypeDef::AngleBracket(inner) | ArrayElemTypeDef::Parenthesis(inner),
            ) => {
                let inner = self.type_name(inner, span)?;
                return Some(format!("array<{inner}>"));
            }
            DataType::Map(key, value) => {
                let (key, value) = (self.type_name(key, span)?, self.type_name(value, span)?);
                return Some(format!("map<{key},{value}>"));
            }
            DataType::Struct(fields, _) => {
                let mut parts = vec![];
                for field in fields {
                    let inner = self.type_name(&field.field_type, span)?;
                    let name = field.field_name.as_ref()?.value.replace('`', "``");
                    parts.push(format!("`{name}`:{inner}"));
                }
                return Some(format!("struct<{}>", parts.join(",")));
            }
            DataType::Custom(name, modifiers) if modifiers.is_empty() => {
                match name.to_string().to_lowercase().as_str() {
                    "timestamp_ntz" => "timestamp_ntz",
                    "timestamp_ltz" => "timestamp",
                    "long" => "bigint",
                    "short" => "smallint",
                    "byte" => "tinyint",
                    "string" => "string",
                    _ => "",
                }
            }
            _ => "",
        };
        if simple.is_empty() {
            let message = format!("a cast to {data_type} is not available");
            self.fault("SYNTAX_NOT_AVAILABLE", message, span, None);
            return None;
        }
        Some(simple.to_string())
    }

    /// `x LIKE ANY (p, q)`.
    fn like_any(&mut self, expr: &mut Expr, span: Span) {
        let insensitive = matches!(expr, Expr::ILike { .. });
        let (Expr::Like {
            negated,
            expr: text,
            pattern,
            escape_char,
            ..
        }
        | Expr::ILike {
            negated,
            expr: text,
            pattern,
            escape_char,
            ..
        }) = expr
        else {
            return;
        };
        // The list has become a struct on the way up.
        let patterns: Vec<Expr> = match pattern.as_mut() {
            Expr::Function(function) if function.name.to_string() == "named_struct" => {
                super::function::plain_args(function)
                    .into_iter()
                    .skip(1)
                    .step_by(2)
                    .collect()
            }
            Expr::Nested(inner) => vec![take(inner)],
            _ => return self.refuse("LIKE ANY without a list", span, None),
        };
        let negated = *negated;
        let like = |pattern: Expr| {
            let (expr, pattern) = (text.clone(), Box::new(pattern));
            let escape_char = escape_char.clone();
            match insensitive {
                true => Expr::ILike {
                    negated,
                    any: false,
                    expr,
                    pattern,
                    escape_char,
                },
                false => Expr::Like {
                    negated,
                    any: false,
                    expr,
                    pattern,
                    escape_char,
                },
            }
        };
        let tests = patterns.into_iter().map(like);
        let any = tests.reduce(|one, other| infix(one, BinaryOperator::Or, other));
        *expr = Expr::Nested(Box::new(any.unwrap_or_else(null)));
    }

    fn rounded(&mut self, name: &str, field: CeilFloorKind, value: Expr, span: Span) -> Expr {
        match field {
            CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) => {}
            _ => self.refuse(&format!("{name} to a scale"), span, Some("use round")),
        }
        call(name, vec![value])
    }
}

/// `x.a` in a lambda of `x` is a field of the parameter, not a column of a table.
struct Parameters {
    names: Vec<String>,
}

impl VisitorMut for Parameters {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [first, fields @ ..] = parts.as_slice()
            && self.names.contains(&first.value)
        {
            let value = Expr::Identifier(first.clone());
            *expr = fields.iter().fold(value, |value, field| {
                call(
                    "spark_field",
                    vec![value, literal::string(field.value.clone())],
                )
            });
        }
        ControlFlow::Continue(())
    }
}

/// A row of values as a struct whose fields are named by position.
fn row(values: &[Expr]) -> Expr {
    let fields = values.iter().enumerate();
    let fields = fields
        .flat_map(|(index, value)| [literal::string(format!("col{}", index + 1)), value.clone()]);
    call("named_struct", fields.collect())
}

/// `(a, b) IN ((1, 2), (3, 4))` as comparisons of structs, to which nulls within are equal.
fn row_in_list(left: &[Expr], list: &[Expr]) -> Option<Expr> {
    list.iter()
        .map(|item| match item {
            Expr::Tuple(right) if right.len() == left.len() => {
                Some(infix(row(left), BinaryOperator::Eq, row(right)))
            }
            _ => None,
        })
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .reduce(|one, other| infix(one, BinaryOperator::Or, other))
}

/// Whether `(a, b) IN (SELECT ...)` is part of a condition. The question that it becomes is true or false, and
/// a negation above it would make a true answer of what is unknown.
fn asks_for_rows(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => asks_for_rows(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: inner,
        } => asks_for_rows(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => asks_for_rows(left) || asks_for_rows(right),
        Expr::InSubquery { expr: value, .. } => matches!(value.as_ref(), Expr::Tuple(_)),
        _ => false,
    }
}

/// The negation of a condition, as far down as it goes.
fn opposite(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(inner) => Expr::Nested(Box::new(opposite(*inner))),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: inner,
        } => *inner,
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => infix(opposite(*left), BinaryOperator::Or, opposite(*right)),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Or,
            right,
        } => infix(opposite(*left), BinaryOperator::And, opposite(*right)),
        Expr::InSubquery {
            expr,
            subquery,
            negated,
        } => Expr::InSubquery {
            expr,
            subquery,
            negated: !negated,
        },
        other => negate(Expr::Nested(Box::new(other)), true),
    }
}

fn negate(expr: Expr, negated: bool) -> Expr {
    if negated {
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(expr),
        }
    } else {
        expr
    }
}

fn written(text: &str, long: bool) -> String {
    let text = text.trim_start_matches('-');
    if long {
        format!("{text}L")
    } else {
        text.to_string()
    }
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::TinyInt(None)
            | DataType::SmallInt(None)
            | DataType::Int(None)
            | DataType::BigInt(None)
    )
}

/// Functions that Spark lets stand without parentheses.
fn is_bare_function(name: &str) -> bool {
    matches!(
        name.to_lowercase().as_str(),
        "current_date" | "current_timestamp" | "localtimestamp"
    )
}
