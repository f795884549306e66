//! Function calls: the check against the catalogue, and those that become another form.

use sqlparser::ast::{
    BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, NullTreatment, Spanned, WindowType,
};
use sqlparser::tokenizer::Span;

use super::Rewriter;
use super::expression::{call, cast, infix, null, operation, take, when, zone};
use crate::dialect::catalog::{self, Kind};
use crate::dialect::{literal, naming};

/// Takes back the typing of a number that is an argument of a table function.
pub(super) fn untype_arg(arg: &mut FunctionArg) {
    let (FunctionArg::Named { arg, .. }
    | FunctionArg::ExprNamed { arg, .. }
    | FunctionArg::Unnamed(arg)) = arg;
    if let FunctionArgExpr::Expr(expr) = arg {
        literal::untype(expr);
    }
}

fn did_you_mean(names: &[&str]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

impl Rewriter {
    /// Refuses a call by name, number of arguments or form; runs on the query as written.
    pub(super) fn check_function(&mut self, function: &mut Function) {
        let span = function.name.span();
        let name = function.name.to_string().to_lowercase();
        // Put in by the rewriting of what stands around.
        if matches!(name.as_str(), "spark_zone" | "spark_field")
            || super::generator::is_internal(&name)
        {
            return;
        }
        let Some(entry) = catalog::entry(&name) else {
            return self.unknown_function(&name, span);
        };
        let count = match &function.args {
            FunctionArguments::List(list) => list.args.len(),
            FunctionArguments::None => 0,
            FunctionArguments::Subquery(_) => {
                return self.refuse("a subquery as the arguments of a function", span, None);
            }
        };
        if count < entry.least || count > entry.most {
            let wanted = match (entry.least, entry.most) {
                (least, most) if least == most => format!("{least}"),
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) => format!("{least} to {most}"),
            };
            let message = format!("the function {name} takes {wanted} arguments, not {count}");
            return self.fault("WRONG_NUM_ARGS", message, span, None);
        }
        if let FunctionArguments::List(list) = &function.args {
            let named = list
                .args
                .iter()
                .any(|arg| !matches!(arg, FunctionArg::Unnamed(_)));
            if named {
                self.refuse(&format!("a named argument of {name}"), span, None);
            }
            let wildcard = list.args.iter().any(|arg| {
                matches!(arg, FunctionArg::Unnamed(arg) if !matches!(arg, FunctionArgExpr::Expr(_)))
            });
            if wildcard && (name != "count" || count != 1) {
                self.refuse(&format!("* as an argument of {name}"), span, None);
            }
            let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
            let distinct_ok = matches!(
                name.as_str(),
                "count"
                    | "sum"
                    | "avg"
                    | "mean"
                    | "min"
                    | "max"
                    | "collect_set"
                    | "try_sum"
                    | "try_avg"
                    | "listagg"
                    | "string_agg"
                    | "bool_and"
                    | "bool_or"
                    | "every"
                    | "some"
                    | "any"
            );
            if distinct && !distinct_ok {
                self.refuse(&format!("DISTINCT in {name}"), span, None);
            }
            let exprs: Vec<&Expr> = list
                .args
                .iter()
                .filter_map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                    _ => None,
                })
                .collect();
            self.check_lambdas(&name, &exprs, span);
            if list
                .clauses
                .iter()
                .any(|clause| !matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_)))
            {
                self.refuse(
                    &format!("a clause among the arguments of {name}"),
                    span,
                    None,
                );
            }
        }
        let windowed = function.over.is_some();
        match entry.kind {
            Kind::Scalar if windowed || function.filter.is_some() => {
                let message = format!("{name} is no aggregate or window function");
                self.fault("UNSUPPORTED_EXPR_FOR_WINDOW", message, span, None);
            }
            Kind::Window if !windowed => {
                let message = format!("the window function {name} needs OVER (...)");
                self.fault("WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE", message, span, None);
            }
            _ => {}
        }
        let takes_order = matches!(
            name.as_str(),
            "listagg" | "string_agg" | "percentile_cont" | "percentile_disc"
        );
        if (!function.within_group.is_empty() && !takes_order) || function.uses_odbc_syntax {
            self.refuse(&format!("WITHIN GROUP for {name}"), span, None);
        }
        if name.starts_with("percentile_") && function.within_group.len() != 1 {
            let message = format!("{name} needs WITHIN GROUP (ORDER BY ...)");
            self.fault("INVALID_WITHIN_GROUP_EXPRESSION", message, span, None);
        }
        if !matches!(function.parameters, FunctionArguments::None) {
            self.refuse("a function with two argument lists", span, None);
        }
    }

    fn unknown_function(&mut self, name: &str, span: Span) {
        if catalog::is_refused(name) {
            let message = format!("the function {name} is not available");
            let help = "Spark has it, but Windrow can not give exactly Spark's result yet";
            return self.fault("FUNCTION_NOT_AVAILABLE", message, span, Some(help));
        }
        self.faults.push(crate::dialect::DialectFault {
            code: "FUNCTION_NOT_FOUND",
            message: format!("there is no function {name}"),
            hint: did_you_mean(&catalog::nearest(name)),
            help: None,
            span,
        });
    }

    /// Rewrites a call whose arguments are done.
    pub(super) fn rewrite_function(&mut self, expr: &mut Expr) {
        let Expr::Function(function) = expr else {
            return;
        };
        let span = function.name.span();
        let name = function.name.to_string().to_lowercase();
        match catalog::kind(&name) {
            Some(Kind::Scalar) => {
                let args = scalar_args(function);
                if let Some(args) = args {
                    *expr = self.scalar(&name, args, span);
                }
            }
            Some(Kind::Aggregate) => self.aggregate(expr, &name, span),
            Some(Kind::Window) => self.window_function(expr, &name, span),
            Some(Kind::Generator) => {
                let help = "a generator stands alone in a SELECT list, or in LATERAL VIEW";
                let message = format!("{name} makes rows, which can not be part of an expression");
                self.fault("UNSUPPORTED_GENERATOR", message, span, Some(help));
            }
            None => {}
        }
    }

    fn scalar(&mut self, name: &str, mut args: Vec<Expr>, span: Span) -> Expr {
        if let Some(found) = self.collection(name, &mut args, span) {
            return found;
        }
        let renamed = match name {
            "dayofmonth" => "day",
            "date_diff" | "datediff" => "datediff",
            "curdate" => "current_date",
            "now" => "current_timestamp",
            "dateadd" => "date_add",
            "ucase" => "upper",
            "lcase" => "lower",
            "len" | "char_length" | "character_length" => "length",
            "trim" => "btrim",
            "substr" => "substring",
            "char" => "chr",
            "regexp_like" | "regexp" => "rlike",
            "sha" => "sha1",
            "ceiling" => "ceil",
            "pow" => "power",
            "signum" => "sign",
            "cardinality" | "array_size" => "size",
            "nvl" | "ifnull" => "coalesce",

            "bigint" | "int" | "double" | "float" | "string" | "smallint" | "tinyint"
            | "boolean" | "date" | "timestamp" | "binary" => return cast(next(&mut args), name),
            "decimal" => return cast(next(&mut args), "decimal(10,0)"),
            "to_timestamp_ntz" => return cast(next(&mut args), "timestamp_ntz"),
            "to_timestamp_ltz" if args.len() == 1 => return cast(args.remove(0), "timestamp"),
            "to_timestamp_ltz" => {
                args.push(zone());
                "to_timestamp"
            }
            "validate_utf8" => "make_valid_utf8",
            "div" => {
                let left = next(&mut args);
                return operation("spark_div", left, next(&mut args));
            }
            "if" => {
                let (condition, then) = (next(&mut args), next(&mut args));
                return when(vec![(condition, then)], Some(next(&mut args)));
            }
            "nvl2" => {
                let (value, then) = (next(&mut args), next(&mut args));
                return when(
                    vec![(Expr::IsNotNull(Box::new(value)), then)],
                    Some(next(&mut args)),
                );
            }
            "nullif" => {
                let (value, other) = (next(&mut args), next(&mut args));
                let equal = infix(value.clone(), BinaryOperator::Eq, other);
                return when(vec![(equal, null())], Some(value));
            }
            "nullifzero" => {
                let value = next(&mut args);
                let equal = infix(value.clone(), BinaryOperator::Eq, literal::int(0));
                return when(vec![(equal, null())], Some(value));
            }
            "zeroifnull" => {
                let zero = match literal::number("0", false, span) {
                    Some(Ok(zero)) => zero,
                    _ => null(),
                };
                return call("coalesce", vec![next(&mut args), zero]);
            }
            "isnull" => return Expr::IsNull(Box::new(next(&mut args))),
            "isnotnull" => return Expr::IsNotNull(Box::new(next(&mut args))),
            "equal_null" => {
                let left = Box::new(next(&mut args));
                return Expr::IsNotDistinctFrom(left, Box::new(next(&mut args)));
            }
            "positive" => "spark_positive",
            "rand" | "random" | "randn" | "uuid" if !args.is_empty() => {
                self.refuse(&format!("{name} with a seed"), span, None);
                return null();
            }
            "rand" => "random",
            "randn" => return normal_deviate(),
            "to_date" if args.len() == 1 => return cast(args.remove(0), "date"),
            "to_timestamp" if args.len() == 1 => return cast(args.remove(0), "timestamp"),
            "unix_timestamp" if args.is_empty() => {
                return call(
                    "unix_timestamp",
                    vec![call("current_timestamp", vec![]), zone()],
                );
            }
            "hour" | "minute" | "second" | "date_trunc" | "date_format" | "to_timestamp"
            | "unix_timestamp" => {
                args.push(zone());
                name
            }
            "to_unix_timestamp" => {
                args.push(zone());
                "unix_timestamp"
            }
            "from_unixtime" => {
                if args.len() == 1 {
                    args.push(literal::string("yyyy-MM-dd HH:mm:ss"));
                }
                args.push(zone());
                name
            }
            "months_between" => {
                if args.len() == 2 {
                    args.push(Expr::value(sqlparser::ast::Value::Boolean(true)));
                }
                args.push(zone());
                name
            }
            "mod" | "pmod" | "try_mod" | "try_add" | "try_subtract" | "try_multiply"
            | "try_divide" => {
                let left = next(&mut args);
                return operation(name, left, next(&mut args));
            }
            // The scale must be known while the query is planned.
            "round" | "bround" => {
                args.iter_mut().skip(1).for_each(literal::untype);
                name
            }
            "date_part" | "datepart" => {
                let (field, value) = (next(&mut args), next(&mut args));
                return match literal::text(&field) {
                    Some(field) => self.date_part(field, value, span),
                    None => {
                        self.refuse("a field of date_part that is no string literal", span, None);
                        null()
                    }
                };
            }
            // These take the needle second where the others take it first.
            "position" => "locate",
            "struct" => return self.named_struct(args),
            "named_struct" => {
                let names = args.iter().step_by(2);
                if !args.len().is_multiple_of(2)
                    || names.into_iter().any(|name| literal::text(name).is_none())
                {
                    self.refuse(
                        "named_struct without a string literal before each value",
                        span,
                        None,
                    );
                }
                "named_struct"
            }
            // The library gives another layout of text.
            "md5" => return cast(call("md5", args), "string"),
            "array" => "spark_array",
            "get" => "spark_get",
            other => other,
        };
        call(renamed, args)
    }

    /// `struct(a, b AS c, 1)`: Spark names fields by column or alias, others by position.
    pub(super) fn named_struct(&mut self, values: Vec<Expr>) -> Expr {
        let mut args = vec![];
        for (index, value) in values.into_iter().enumerate() {
            let (name, value) = match value {
                Expr::Named { expr, name } => (name.value, *expr),
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                    (naming::column_name(&value), value)
                }
                other => (format!("col{}", index + 1), other),
            };
            args.push(literal::string(name));
            args.push(value);
        }
        call("named_struct", args)
    }

    /// One field of a date or timestamp, as `EXTRACT` and `date_part` name them.
    pub(super) fn date_part(&mut self, field: &str, value: Expr, span: Span) -> Expr {
        let name = match field.to_lowercase().as_str() {
            "year" | "years" | "y" | "yr" | "yrs" => "year",
            "quarter" | "qtr" => "quarter",
            "month" | "mon" | "mons" | "months" => "month",
            "week" | "w" | "weeks" => "weekofyear",
            "day" | "d" | "days" => "day",
            "dayofweek" | "dow" => "dayofweek",
            "doy" => "dayofyear",
            "hour" | "h" | "hours" | "hr" | "hrs" => "hour",
            "minute" | "m" | "min" | "mins" | "minutes" => "minute",
            "second" | "s" | "sec" | "secs" | "seconds" => "spark_seconds",
            "yearofweek" => "spark_year_of_week",
            "dayofweek_iso" | "dow_iso" => {
                let weekday = call("weekday", vec![value]);
                let one = Expr::value(sqlparser::ast::Value::Number("1".into(), false));
                let one = cast(one, "int");
                return operation("spark_add", weekday, one);
            }
            other => {
                self.refuse(&format!("the field {other} of a date"), span, None);
                return null();
            }
        };
        match name {
            "hour" | "minute" | "spark_seconds" => call(name, vec![value, zone()]),
            _ => call(name, vec![value]),
        }
    }

    fn aggregate(&mut self, expr: &mut Expr, name: &str, span: Span) {
        let Expr::Function(function) = expr else {
            return;
        };
        let windowed = function.over.is_some();
        self.over(&mut function.over, span);
        let ignore_nulls = clear_null_treatment(function);
        let FunctionArguments::List(list) = &mut function.args else {
            return;
        };
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let mut rename = |target: &str| {
            function.name = sqlparser::ast::ObjectName::from(vec![Ident::new(target)]);
        };
        match name {
            "count" => count_args(&mut list.args, distinct),
            "count_if" => {
                if let Some(condition) = first_arg(&mut list.args) {
                    let one = literal::int(1);
                    *condition = when(vec![(take(condition), one)], None);
                }
                rename("count");
            }
            "mean" => rename("avg"),
            "grouping_id" if list.args.is_empty() => {
                self.refuse("grouping_id without columns", span, None);
            }
            "grouping" => return typed_result(expr, DataType::TinyInt(None)),
            "grouping_id" => {
                rename("grouping");
                return typed_result(expr, DataType::BigInt(None));
            }
            "regr_avgx" | "regr_avgy" => {
                rename("avg");
                let args: Vec<Expr> = list
                    .args
                    .drain(..)
                    .filter_map(|arg| match arg {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg),
                        _ => None,
                    })
                    .collect();
                if let [y, x] = args.as_slice() {
                    let set = |arg: &Expr| Expr::IsNotNull(Box::new(arg.clone()));
                    let both = infix(set(y), BinaryOperator::And, set(x));
                    let value = if name == "regr_avgx" { x } else { y };
                    let value = when(vec![(both, value.clone())], None);
                    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value))];
                }
            }
            "listagg" | "string_agg" => {
                rename("string_agg");
                for arg in list.args.iter_mut().take(1) {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(text)) = arg {
                        *text = cast(take(text), "string");
                    }
                }
                if list.args.len() == 1 {
                    let empty = FunctionArgExpr::Expr(literal::string(""));
                    list.args.push(FunctionArg::Unnamed(empty));
                }
                let mut order = std::mem::take(&mut function.within_group);
                order.iter_mut().for_each(super::spark_null_order);
                if !order.is_empty() {
                    list.clauses.push(FunctionArgumentClause::OrderBy(order));
                }
                return typed_result(expr, DataType::String(None));
            }
            "percentile_cont" | "percentile_disc" => {
                rename(match name {
                    "percentile_cont" => "percentile",
                    _ => "spark_percentile_disc",
                });
                if let Some(order) = function.within_group.pop() {
                    if order.options.asc == Some(false) {
                        self.refuse("WITHIN GROUP (ORDER BY ... DESC)", span, None);
                    }
                    let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(order.expr));
                    list.args.insert(0, value);
                }
            }
            "any_value" | "first" | "first_value" | "last" | "last_value" => {
                let mut ignore_nulls = ignore_nulls;
                if list.args.len() > 1 {
                    match list.args.pop() {
                        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(flag))))
                            if matches!(flag.value, sqlparser::ast::Value::Boolean(_)) =>
                        {
                            ignore_nulls |= flag.value == sqlparser::ast::Value::Boolean(true);
                        }
                        _ => {
                            let what = format!("the second argument of {name}");
                            return self.refuse(&what, span, Some("write IGNORE NULLS"));
                        }
                    }
                }
                let plain = match name.starts_with("last") {
                    true => "last_value",
                    false => "first_value",
                };
                rename(plain);
                if ignore_nulls && windowed {
                    self.passing_nulls(function, plain, span);
                } else if ignore_nulls {
                    function.null_treatment = Some(NullTreatment::IgnoreNulls);
                }
                return;
            }
            "std" | "stddev_samp" => rename("stddev"),
            "variance" => rename("var_samp"),
            "array_agg" => rename("collect_list"),
            "every" => rename("bool_and"),
            "some" | "any" => rename("bool_or"),
            _ => {}
        }
        if ignore_nulls {
            self.refuse(&format!("IGNORE NULLS in {name}"), span, None);
        }
        if windowed && distinct {
            self.refuse("DISTINCT over a window", span, None);
        }
    }

    /// Makes a window function one that passes over nulls.
    fn passing_nulls(&mut self, function: &mut Function, name: &str, span: Span) {
        let known = matches!(
            name,
            "first_value" | "last_value" | "nth_value" | "lag" | "lead"
        );
        if !known {
            return self.refuse(&format!("IGNORE NULLS in {name}"), span, None);
        }
        let name = Ident::new(format!("spark_{name}_set"));
        function.name = sqlparser::ast::ObjectName::from(vec![name]);
    }

    /// Spark numbers rows with INT; DataFusion does with an unsigned type that no table has.
    fn window_function(&mut self, expr: &mut Expr, name: &str, span: Span) {
        let Expr::Function(function) = expr else {
            return;
        };
        self.over(&mut function.over, span);
        if let Some(WindowType::WindowSpec(window)) = &function.over
            && window.order_by.is_empty()
        {
            let message = format!("the window function {name} needs ORDER BY in its OVER (...)");
            self.fault("WINDOW_FUNCTION_WITHOUT_ORDER_BY", message, span, None);
        }
        let ignore_nulls = clear_null_treatment(function);
        if ignore_nulls {
            self.passing_nulls(function, name, span);
        }
        if let FunctionArguments::List(list) = &mut function.args {
            let skipped = usize::from(name != "ntile");
            list.args
                .iter_mut()
                .skip(skipped)
                .take(1)
                .for_each(untype_arg);
        }
        if matches!(name, "row_number" | "rank" | "dense_rank" | "ntile") {
            typed_result(expr, DataType::Int(None));
        }
    }
}

/// Gives a result the type that Spark gives it.
fn typed_result(expr: &mut Expr, data_type: DataType) {
    *expr = Expr::Cast {
        kind: sqlparser::ast::CastKind::Cast,
        expr: Box::new(take(expr)),
        data_type,
        array: false,
        format: None,
    };
}

/// A draw from the normal distribution, made of two even ones (Box and Muller).
fn normal_deviate() -> Expr {
    let even = || call("random", vec![]);
    let double = |text: &str| cast(literal::string(text), "double");
    // One less an even draw is never zero.
    let logarithm = call("ln", vec![operation("spark_subtract", double("1"), even())]);
    let radius = call(
        "sqrt",
        vec![operation("spark_multiply", double("-2"), logarithm)],
    );
    let angle = operation("spark_multiply", double("6.283185307179586"), even());
    operation("spark_multiply", radius, call("cos", vec![angle]))
}

/// Takes the first of the arguments that are left.
pub(super) fn next(args: &mut Vec<Expr>) -> Expr {
    if args.is_empty() {
        null()
    } else {
        args.remove(0)
    }
}

/// The plain arguments of a call that was made here.
pub(super) fn plain_args(function: &mut Function) -> Vec<Expr> {
    scalar_args(function).unwrap_or_default()
}

/// The plain arguments of a call, taken out of it.
fn scalar_args(function: &mut Function) -> Option<Vec<Expr>> {
    match &mut function.args {
        FunctionArguments::None => Some(vec![]),
        FunctionArguments::List(list) => std::mem::take(&mut list.args)
            .into_iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect(),
        FunctionArguments::Subquery(_) => None,
    }
}

fn first_arg(args: &mut [FunctionArg]) -> Option<&mut Expr> {
    match args.first_mut() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => Some(expr),
        _ => None,
    }
}

/// `count(a, b)` counts the rows where neither is null, `count(DISTINCT a, b)` such pairs.
fn count_args(args: &mut Vec<FunctionArg>, distinct: bool) {
    let exprs: Vec<Expr> = args
        .iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        })
        .collect();
    if let [only] = exprs.as_slice()
        && !distinct
        && literal::integer(only).is_some()
    {
        *args = vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)];
    }
    if exprs.len() < 2 {
        return;
    }
    let all_set = exprs
        .iter()
        .map(|expr| Expr::IsNotNull(Box::new(expr.clone())))
        .reduce(|left, right| infix(left, BinaryOperator::And, right));
    let counted = if distinct {
        let fields = exprs.into_iter().enumerate();
        let fields = fields.flat_map(|(index, expr)| [literal::string(format!("c{index}")), expr]);
        call("named_struct", fields.collect())
    } else {
        literal::int(1)
    };
    let counted = when(
        all_set
            .map(|condition| (condition, counted))
            .into_iter()
            .collect(),
        None,
    );
    *args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(counted))];
}

/// Removes RESPECT NULLS and IGNORE NULLS wherever they stand; whether it was the latter.
fn clear_null_treatment(function: &mut Function) -> bool {
    let mut treatment = function.null_treatment.take();
    if let FunctionArguments::List(list) = &mut function.args {
        list.clauses.retain(|clause| match clause {
            FunctionArgumentClause::IgnoreOrRespectNulls(found) => {
                treatment = Some(*found);
                false
            }
            _ => true,
        });
    }
    treatment == Some(NullTreatment::IgnoreNulls)
}
