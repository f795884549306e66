//! The names Spark gives to columns of a SELECT list that have no alias.

use sqlparser::ast::{
    BinaryOperator, CastKind, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value,
};

/// The name of the column that `expr` makes; follows Spark for the usual forms and falls back to
/// the text of the expression.
pub(super) fn column_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => parts
            .last()
            .map(|part| part.value.clone())
            .unwrap_or_default(),
        Expr::Nested(inner) => column_name(inner),
        Expr::Value(value) => literal_name(&value.value, &expr.to_string()),
        Expr::BinaryOp { left, op, right } => {
            let operator = match op {
                BinaryOperator::NotEq => return format!("(NOT {})", infix(left, "=", right)),
                BinaryOperator::Spaceship => "<=>".to_string(),
                BinaryOperator::StringConcat => {
                    return format!("concat({}, {})", column_name(left), column_name(right));
                }
                BinaryOperator::MyIntegerDivide | BinaryOperator::DuckIntegerDivide => "div".into(),
                other => other.to_string(),
            };
            infix(left, &operator, right)
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(_) => format!("-{}", column_name(expr)),
            _ => format!("(- {})", column_name(expr)),
        },
        Expr::UnaryOp {
            op: UnaryOperator::Not | UnaryOperator::BangNot,
            expr,
        } => {
            format!("(NOT {})", column_name(expr))
        }
        Expr::IsNull(inner) => format!("({} IS NULL)", column_name(inner)),
        Expr::IsNotNull(inner) => format!("({} IS NOT NULL)", column_name(inner)),
        Expr::Cast {
            kind,
            expr,
            data_type,
            ..
        } => match kind {
            CastKind::TryCast | CastKind::SafeCast => {
                format!("TRY_CAST({} AS {data_type})", column_name(expr))
            }
            _ => format!("CAST({} AS {data_type})", column_name(expr)),
        },
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => {
            let mut name = "CASE".to_string();
            for when in conditions {
                let condition = match operand {
                    Some(operand) => infix(operand, "=", &when.condition),
                    None => column_name(&when.condition),
                };
                name += &format!(" WHEN {condition} THEN {}", column_name(&when.result));
            }
            if let Some(otherwise) = else_result {
                name += &format!(" ELSE {}", column_name(otherwise));
            }
            name + " END"
        }
        Expr::Function(function) => function_name(function),
        _ => expr.to_string(),
    }
}

fn infix(left: &Expr, operator: &str, right: &Expr) -> String {
    format!("({} {operator} {})", column_name(left), column_name(right))
}

fn literal_name(value: &Value, written: &str) -> String {
    match value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Null => "NULL".into(),
        Value::Number(number, _) => number.clone(),
        _ => written.to_string(),
    }
}

fn function_name(function: &Function) -> String {
    if function.over.is_some() || function.filter.is_some() {
        return function.to_string();
    }
    let name = function.name.to_string().to_lowercase();
    let FunctionArguments::List(list) = &function.args else {
        return format!("{name}()");
    };
    let distinct = match list.duplicate_treatment {
        Some(DuplicateTreatment::Distinct) => "DISTINCT ",
        _ => "",
    };
    let args: Vec<String> = list
        .args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => column_name(expr),
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if name == "count" => "1".into(),
            other => other.to_string(),
        })
        .collect();
    format!("{name}({distinct}{})", args.join(", "))
}
