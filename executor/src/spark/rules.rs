//! The analyzer rule that makes a plan mean what Spark means, before DataFusion's own coercion:
//! operands of unlike types meet in Spark's common type by Spark's casts, and floats are compared
//! so that NaN is one value and the zeros are equal.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{
    AggregateFunction, Alias, Between, Case, Cast, InList, InSubquery, Like, ScalarFunction,
    WindowFunction, WindowFunctionDefinition,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
    TypeSignature, Union, lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::signature::WrongCall;
use super::{cast, floats, functions, interval, multiset, types};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SparkSemantics;

impl AnalyzerRule for SparkSemantics {
    fn name(&self) -> &str {
        "spark_semantics"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = config
            .execution
            .time_zone
            .clone()
            .unwrap_or_else(|| "UTC".into());
        plan.transform_up_with_subqueries(|plan| node(plan, &zone))
            .data()
    }
}

/// The same for one expression over `schema`.
pub(super) fn expression(expr: Expr, schema: &DFSchema, config: &ConfigOptions) -> Result<Expr> {
    let zone = config
        .execution
        .time_zone
        .clone()
        .unwrap_or_else(|| "UTC".into());
    expr.transform_up(|expr| {
        Meaning {
            schema,
            zone: &zone,
        }
        .apply(expr)
        .map(Transformed::yes)
    })
    .data()
}

fn node(plan: LogicalPlan, zone: &str) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let source =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    let meaning = Meaning {
        schema: &schema,
        zone,
    };
    let names = NamePreserver::new(&plan);
    let plan = plan
        .map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr
                .transform_up(|expr| meaning.apply(expr).map(Transformed::yes))
                .data()?;
            Ok(Transformed::yes(name.restore(expr)))
        })?
        .data;
    let plan = meaning.keys(plan)?;
    Ok(Transformed::yes(plan.recompute_schema()?))
}

struct Meaning<'a> {
    schema: &'a DFSchema,
    zone: &'a str,
}

impl Meaning<'_> {
    fn apply(&self, expr: Expr) -> Result<Expr> {
        Ok(match expr {
            Expr::BinaryExpr(binary) if is_comparison(binary.op) => self.comparison(binary)?,
            Expr::Between(between) => self.between(between)?,
            Expr::InList(list) => self.in_list(list)?,
            Expr::InSubquery(found) => self.in_subquery(found)?,
            Expr::Case(case) => self.case(case)?,
            Expr::Like(like) => self.like(like, true)?,
            Expr::ScalarFunction(function) => self.function(function)?,
            Expr::AggregateFunction(function) => self.aggregate(function)?,
            Expr::WindowFunction(function) => {
                Expr::WindowFunction(Box::new(self.window(*function)?))
            }
            Expr::Cast(Cast { expr, field }) => {
                let to = field.data_type().clone();
                self.cast(*expr, &to)?
            }
            other => other,
        })
    }

    fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(self.schema)
    }

    /// A cast by Spark's rules, by Arrow where that means the same.
    fn cast(&self, expr: Expr, to: &DataType) -> Result<Expr> {
        let from = self.type_of(&expr)?;
        if &from == to {
            return Ok(expr);
        }
        // Row numbers, which no table holds.
        if matches!(from, DataType::UInt64 | DataType::Null)
            || cast::native(&from, to)
            || types::parse(&types::simple_name(to)).is_none()
        {
            return Ok(Expr::Cast(Cast::new(Box::new(expr), to.clone())));
        }
        if !cast::exists(&from, to) {
            return plan_err!(
                "DATATYPE_MISMATCH: cannot cast {} to {} in {expr}",
                types::name(&from),
                types::name(to)
            );
        }
        let args = vec![expr, lit(types::simple_name(to)), lit(self.zone)];
        Ok(functions::call("spark_cast", args))
    }

    /// Brings expressions to the one type that all of them meet in, if they do not have it yet.
    fn unify(&self, exprs: Vec<Expr>, what: &str) -> Result<Vec<Expr>> {
        let types = exprs
            .iter()
            .map(|expr| self.type_of(expr))
            .collect::<Result<Vec<_>>>()?;
        let Some(common) = self.common(&types, what)? else {
            return Ok(exprs);
        };
        exprs
            .into_iter()
            .map(|expr| self.cast(expr, &common))
            .collect()
    }

    /// The common type; `None` if nothing is to be done, or DataFusion's own rules do it right.
    fn common(&self, types: &[DataType], what: &str) -> Result<Option<DataType>> {
        let plain: Vec<DataType> = types.iter().map(types::plain_text).collect();
        let Some(first) = plain.first() else {
            return Ok(None);
        };
        if plain.iter().all(|t| t == first) {
            return Ok(None);
        }
        let nested = |t: &DataType| !types::is_atomic(t);
        if plain.iter().any(nested) {
            // Arrays and structs are left to DataFusion if they are of the same kind.
            let kinds = plain.iter().filter(|t| **t != DataType::Null);
            let atomic = kinds.clone().any(|t| !nested(t));
            return if atomic {
                self.mismatch(&plain, what)
            } else {
                Ok(None)
            };
        }
        let mut common = first.clone();
        for other in &plain[1..] {
            common = match types::common(&common, other) {
                Some(found) => found,
                None => return self.mismatch(&plain, what),
            };
        }
        Ok(Some(common))
    }

    fn mismatch<T>(&self, types: &[DataType], what: &str) -> Result<T> {
        let mut names: Vec<String> = types.iter().map(types::name).collect();
        names.dedup();
        plan_err!(
            "DATATYPE_MISMATCH: {} can not meet in {what}",
            names.join(" and ")
        )
    }

    fn comparison(&self, binary: BinaryExpr) -> Result<Expr> {
        let BinaryExpr { left, op, right } = binary;
        let (left_type, right_type) = (self.type_of(&left)?, self.type_of(&right)?);
        let (left, right) = match types::is_integer(&left_type) && types::is_integer(&right_type) {
            // DataFusion widens integers too, and knows how to take the cast off a column again.
            true => (*left, *right),
            false => {
                let what = format!("{left} {op} {right}");
                let mut both = self.unify(vec![*left, *right], &what)?.into_iter();
                match (both.next(), both.next()) {
                    (Some(left), Some(right)) => (left, right),
                    _ => return plan_err!("a comparison needs two operands"),
                }
            }
        };
        let (left, right) = (self.comparable(left)?, self.comparable(right)?);
        let two_sided = !left.column_refs().is_empty() && !right.column_refs().is_empty();
        if op == Operator::IsNotDistinctFrom && two_sided {
            let data_type = self.type_of(&left)?;
            if data_type == self.type_of(&right)? {
                return null_safe_equal(left, right, &data_type);
            }
            let common = types::common(&data_type, &self.type_of(&right)?);
            let common = common.unwrap_or(data_type);
            let (left, right) = (self.cast(left, &common)?, self.cast(right, &common)?);
            return null_safe_equal(left, right, &common);
        }
        Ok(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(left),
            op,
            Box::new(right),
        )))
    }

    /// A float in the form in which equal values are the same.
    fn comparable(&self, expr: Expr) -> Result<Expr> {
        floats::normalized(expr, self.schema)
    }

    fn between(&self, between: Between) -> Result<Expr> {
        let Between {
            expr,
            negated,
            low,
            high,
        } = between;
        // Each bound meets the value on its own, as with two comparisons.
        let at_least = BinaryExpr::new(expr.clone(), Operator::GtEq, low);
        let at_most = BinaryExpr::new(expr, Operator::LtEq, high);
        let both = self.comparison(at_least)?.and(self.comparison(at_most)?);
        Ok(if negated {
            Expr::Not(Box::new(both))
        } else {
            both
        })
    }

    fn in_list(&self, in_list: InList) -> Result<Expr> {
        let InList {
            expr,
            list,
            negated,
        } = in_list;
        let types = std::iter::once(expr.as_ref())
            .chain(&list)
            .map(|expr| self.type_of(expr))
            .collect::<Result<Vec<_>>>()?;
        let all: Vec<Expr> = std::iter::once(*expr).chain(list).collect();
        let all = match types
            .iter()
            .all(|t| types::is_integer(t) || *t == DataType::Null)
        {
            true => all,
            false => self.unify(all, "IN")?,
        };
        let mut all = all
            .into_iter()
            .map(|expr| self.comparable(expr))
            .collect::<Result<Vec<_>>>()?;
        let value = all.remove(0);
        Ok(Expr::InList(InList::new(Box::new(value), all, negated)))
    }

    fn in_subquery(&self, found: InSubquery) -> Result<Expr> {
        let InSubquery {
            expr,
            mut subquery,
            negated,
        } = found;
        let (left, right) = (
            self.type_of(&expr)?,
            subquery.subquery.schema().field(0).data_type().clone(),
        );
        let mut value = *expr;
        if !(types::is_integer(&left) && types::is_integer(&right))
            && let Some(common) = self.common(&[left, right], "IN")?
        {
            value = self.cast(value, &common)?;
            subquery.subquery = converted(subquery.subquery, &[Some(common)], self.zone)?;
        }
        let value = self.comparable(value)?;
        subquery.subquery = floats::normalized_rows(subquery.subquery)?;
        Ok(Expr::InSubquery(InSubquery::new(
            Box::new(value),
            subquery,
            negated,
        )))
    }

    fn case(&self, case: Case) -> Result<Expr> {
        let Case {
            expr,
            when_then_expr,
            else_expr,
        } = case;
        let (conditions, mut results): (Vec<_>, Vec<_>) = when_then_expr
            .into_iter()
            .map(|(when, then)| (when, *then))
            .unzip();
        for condition in &conditions {
            let found = self.type_of(condition)?;
            if expr.is_none() && !matches!(found, DataType::Boolean | DataType::Null) {
                return plan_err!(
                    "DATATYPE_MISMATCH: the condition {condition} is {}, not BOOLEAN",
                    types::name(&found)
                );
            }
        }
        let has_else = else_expr.is_some();
        results.extend(else_expr.map(|otherwise| *otherwise));
        let mut results = self.unify(results, "CASE")?;
        let otherwise = if has_else {
            results.pop().map(Box::new)
        } else {
            None
        };
        let when_then = conditions
            .into_iter()
            .zip(results.into_iter().map(Box::new))
            .collect();
        Ok(Expr::Case(Case::new(expr, when_then, otherwise)))
    }

    fn like(&self, like: Like, _as_text: bool) -> Result<Expr> {
        let Like {
            negated,
            expr,
            pattern,
            escape_char,
            case_insensitive,
        } = like;
        let expr = Box::new(self.cast(*expr, &DataType::Utf8)?);
        let pattern = Box::new(self.cast(*pattern, &DataType::Utf8)?);
        Ok(Expr::Like(Like::new(
            negated,
            expr,
            pattern,
            escape_char,
            case_insensitive,
        )))
    }

    fn function(&self, function: ScalarFunction) -> Result<Expr> {
        let ScalarFunction { func, mut args } = function;
        let name = func.name().to_string();
        if let Some(found) = self.interval_operation(&name, &args)? {
            return Ok(found);
        }
        match name.as_str() {
            "spark_cast" | "spark_try_cast" => return self.explicit_cast(&name, args),
            // What DataFusion knows it can push down.
            "typeof" if args.len() == 1 => {
                return Ok(lit(types::simple_string(&self.type_of(&args[0])?)));
            }
            "spark_add_interval"
                if args.len() >= 4 && interval::is_interval(&self.type_of(&args[0])?) =>
            {
                let value = args.remove(0);
                return self.interval_and_literal(value, args);
            }
            "spark_field" if matches!(self.type_of(&args[0])?, DataType::Struct(_)) => {
                let get_field = datafusion::functions::core::get_field();
                return Ok(Expr::ScalarFunction(ScalarFunction::new_udf(
                    get_field, args,
                )));
            }
            "negative" if args.len() == 1 && interval::is_interval(&self.type_of(&args[0])?) => {
                let args = vec![args.remove(0), lit(-1_i64), lit(1_i64)];
                return Ok(functions::call("spark_interval_times", args));
            }
            "year" | "month" | "day" | "hour" | "minute" | "spark_seconds"
                if !args.is_empty() && interval::is_interval(&self.type_of(&args[0])?) =>
            {
                let unit = name
                    .strip_prefix("spark_")
                    .map_or(name.as_str(), |_| "second");
                let args = vec![args.remove(0), lit(unit)];
                return Ok(functions::call("spark_interval_part", args));
            }
            _ if !args.is_empty() && functions::find(&name).is_some() => {
                let given = args
                    .iter()
                    .map(|arg| self.type_of(arg))
                    .collect::<Result<Vec<_>>>()?;
                let wanted = match functions::params(&name) {
                    Some(params) => params.coerce(&name, &given),
                    None => func.inner().coerce_types(&given),
                };
                let wanted =
                    wanted.map_err(|error| WrongCall::error(&name, &args, &given, &error))?;
                args = args
                    .into_iter()
                    .zip(&wanted)
                    .map(|(arg, wanted)| self.cast(arg, wanted))
                    .collect::<Result<_>>()?;
            }
            _ if functions::library_params(&name).is_some() => {
                let given = args
                    .iter()
                    .map(|arg| self.type_of(arg))
                    .collect::<Result<Vec<_>>>()?;
                if let Some(params) = functions::library_params(&name) {
                    let wanted = params
                        .coerce(&name, &given)
                        .map_err(|error| WrongCall::error(&name, &args, &given, &error))?;
                    args = args
                        .into_iter()
                        .zip(&wanted)
                        .map(|(arg, wanted)| self.cast(arg, wanted))
                        .collect::<Result<_>>()?;
                }
            }
            "md5" | "sha1" | "sha2" | "crc32" | "base64" | "hex" => {
                if let Some(first) = args.first_mut()
                    && self.type_of(first)? == DataType::Null
                {
                    *first = self.cast(first.clone(), &DataType::Utf8)?;
                }
                self.bytes(&name, &args)?;
            }
            _ => {}
        }
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(func, args)))
    }

    /// These functions of the library convert more than Spark does.
    fn bytes(&self, name: &str, args: &[Expr]) -> Result<()> {
        let Some(first) = args.first() else {
            return Ok(());
        };
        match types::plain_text(&self.type_of(first)?) {
            DataType::Utf8 | DataType::Binary => Ok(()),
            integer if name == "hex" && types::is_integer(&integer) => Ok(()),
            other => plan_err!(
                "DATATYPE_MISMATCH: {name} of {} is not available",
                types::name(&other)
            ),
        }
    }

    /// An interval and a constant one, which is there in its parts.
    fn interval_and_literal(&self, value: Expr, mut parts: Vec<Expr>) -> Result<Expr> {
        parts.truncate(3);
        let months = self.type_of(&value)? == interval::MONTHS;
        let literal = match months {
            true => functions::call("spark_month_interval", vec![parts.remove(0)]),
            false => {
                parts.remove(0);
                functions::call("spark_interval", parts)
            }
        };
        let args = vec![value, literal, lit(1_i64), lit(self.zone)];
        Ok(functions::call("spark_interval_sum", args))
    }

    /// Arithmetic over times and intervals.
    fn interval_operation(&self, name: &str, args: &[Expr]) -> Result<Option<Expr>> {
        let symbol = match name {
            "spark_add" => "+",
            "spark_subtract" => "-",
            "spark_multiply" => "*",
            "spark_divide" => "/",
            _ => return Ok(None),
        };
        if args.len() < 2 {
            return Ok(None);
        }
        let (left, right) = (self.type_of(&args[0])?, self.type_of(&args[1])?);
        let Some(plan) = interval::operation(symbol, &left, &right) else {
            return Ok(None);
        };
        let (one, other) = match plan.swapped {
            true => (args[1].clone(), args[0].clone()),
            false => (args[0].clone(), args[1].clone()),
        };
        let sign = if plan.inverse { -1_i64 } else { 1_i64 };
        let args = vec![
            self.cast(one, &plan.operands[0])?,
            self.cast(other, &plan.operands[1])?,
            lit(sign),
            lit(self.zone),
        ];
        Ok(Some(functions::call(plan.function, args)))
    }

    fn explicit_cast(&self, name: &str, mut args: Vec<Expr>) -> Result<Expr> {
        let to = match args.get(1) {
            Some(Expr::Literal(ScalarValue::Utf8(Some(name)), _)) => types::parse(name),
            _ => None,
        };
        let (Some(to), true) = (to, args.len() >= 2) else {
            return plan_err!("a cast to a type that is not known");
        };
        if name == "spark_cast" {
            return self.cast(args.remove(0), &to);
        }
        let from = self.type_of(&args[0])?;
        if from == DataType::Null || cast::native(&from, &to) {
            return self.cast(args.remove(0), &to);
        }
        if !cast::exists(&from, &to) {
            return plan_err!(
                "DATATYPE_MISMATCH: cannot cast {} to {}",
                types::name(&from),
                types::name(&to)
            );
        }
        let args = vec![args.remove(0), lit(types::simple_name(&to)), lit(self.zone)];
        Ok(functions::call("spark_try_cast", args))
    }

    fn aggregate(&self, mut function: AggregateFunction) -> Result<Expr> {
        let name = function.func.name().to_string();
        let distinct = function.params.distinct;
        let args = std::mem::take(&mut function.params.args);
        let args = self.aggregate_args(&name, distinct, args)?;
        if matches!(
            function.func.signature().type_signature,
            TypeSignature::UserDefined
        ) {
            let given = args
                .iter()
                .map(|arg| self.type_of(arg))
                .collect::<Result<Vec<_>>>()?;
            function
                .func
                .coerce_types(&given)
                .map_err(|error| WrongCall::error(&name, &args, &given, &error))?;
        }
        function.params.args = args;
        for sort in &mut function.params.order_by {
            sort.expr = self.comparable(sort.expr.clone())?;
        }
        Ok(Expr::AggregateFunction(function))
    }

    fn aggregate_args(&self, name: &str, distinct: bool, args: Vec<Expr>) -> Result<Vec<Expr>> {
        let compared = distinct || matches!(name, "max_by" | "min_by" | "mode" | "collect_set");
        args.into_iter()
            .enumerate()
            .map(|(index, arg)| match name {
                "min" | "max" => floats::canonical_nan(arg, self.schema),
                "sum"
                | "avg"
                | "stddev"
                | "stddev_pop"
                | "var_pop"
                | "var_samp"
                | "var"
                | "percentile"
                | "spark_percentile_disc"
                | "median"
                | "try_sum"
                | "try_avg"
                | "corr"
                | "covar_pop"
                | "covar_samp"
                | "skewness"
                | "kurtosis"
                    if self.type_of(&arg)? == DataType::Utf8 =>
                {
                    self.cast(arg, &DataType::Float64)
                }
                "bit_and" | "bit_or" | "bit_xor" if self.type_of(&arg)? == DataType::Null => {
                    self.cast(arg, &DataType::Int32)
                }
                "max_by" | "min_by" if index == 0 => Ok(arg),
                _ if compared => self.comparable(arg),
                _ => Ok(arg),
            })
            .collect()
    }

    fn window(&self, mut window: WindowFunction) -> Result<WindowFunction> {
        if let WindowFunctionDefinition::AggregateUDF(function) = &window.fun {
            let name = function.name().to_string();
            let args = std::mem::take(&mut window.params.args);
            window.params.args = self.aggregate_args(&name, window.params.distinct, args)?;
        }
        for key in &mut window.params.partition_by {
            *key = self.comparable(key.clone())?;
        }
        for sort in &mut window.params.order_by {
            sort.expr = self.comparable(sort.expr.clone())?;
        }
        Ok(window)
    }

    /// The places where a plan compares values without an expression that says so.
    fn keys(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        Ok(match plan {
            LogicalPlan::Filter(filter) => {
                let found = self.type_of(&filter.predicate)?;
                if !matches!(found, DataType::Boolean | DataType::Null) {
                    return plan_err!(
                        "DATATYPE_MISMATCH: the condition {} is {}, not BOOLEAN",
                        filter.predicate,
                        types::name(&found)
                    );
                }
                LogicalPlan::Filter(filter)
            }
            LogicalPlan::Aggregate(mut aggregate) => {
                let sets = aggregate.group_expr.iter().find_map(|key| match key {
                    Expr::GroupingSet(set) => Some(set),
                    _ => None,
                });
                if let Some(set) = sets {
                    let keys: Vec<&Expr> = set.distinct_expr();
                    aggregate.input = floats::normalized_columns(aggregate.input.clone(), &keys)?;
                }
                aggregate.group_expr = std::mem::take(&mut aggregate.group_expr)
                    .into_iter()
                    .map(|key| self.group_key(key))
                    .collect::<Result<_>>()?;
                LogicalPlan::Aggregate(aggregate)
            }
            LogicalPlan::Sort(mut sort) => {
                for order in &mut sort.expr {
                    order.expr = self.comparable(order.expr.clone())?;
                }
                LogicalPlan::Sort(sort)
            }
            LogicalPlan::Join(mut join) => {
                let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
                for (left_key, right_key) in &mut join.on {
                    let pair = (left_key.get_type(&left)?, right_key.get_type(&right)?);
                    if pair.0 != pair.1
                        && !(types::is_integer(&pair.0) && types::is_integer(&pair.1))
                        && let Some(common) = self.common(&[pair.0, pair.1], "a join")?
                    {
                        *left_key = self.cast(left_key.clone(), &common)?;
                        *right_key = self.cast(right_key.clone(), &common)?;
                    }
                    *left_key = floats::normalized(left_key.clone(), &left)?;
                    *right_key = floats::normalized(right_key.clone(), &right)?;
                }
                match multiset::is_all(&join) {
                    true => multiset::numbered(join)?,
                    false => LogicalPlan::Join(join),
                }
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                LogicalPlan::Distinct(Distinct::All(floats::normalized_rows(input)?))
            }
            LogicalPlan::Union(mut union) => {
                union.inputs = self.union_inputs(union.inputs)?;
                // Its types are those of the inputs as they are now.
                LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)
            }
            other => other,
        })
    }

    fn group_key(&self, key: Expr) -> Result<Expr> {
        if let Expr::GroupingSet(set) = &key {
            for expr in set.distinct_expr() {
                // Columns have their form from below.
                if floats::has_float(&self.type_of(expr)?) && !matches!(expr, Expr::Column(_)) {
                    return plan_err!(
                        "an expression of a float as the key of GROUPING SETS, ROLLUP or CUBE is not available; name \
                         {expr} in a subquery, and group by the name"
                    );
                }
            }
            return Ok(key);
        }
        let (qualifier, name) = match &key {
            Expr::Alias(Alias { relation, name, .. }) => (relation.clone(), name.clone()),
            other => other.qualified_name(),
        };
        let plain = key.clone().unalias();
        let normalized = self.comparable(plain.clone())?;
        if normalized == plain {
            return Ok(key);
        }
        Ok(normalized.alias_qualified(qualifier, name))
    }

    /// Brings the columns of all inputs to one type each.
    fn union_inputs(&self, inputs: Vec<Arc<LogicalPlan>>) -> Result<Vec<Arc<LogicalPlan>>> {
        let Some(first) = inputs.first() else {
            return Ok(inputs);
        };
        let width = first.schema().fields().len();
        let mut wanted = Vec::with_capacity(width);
        for index in 0..width {
            let column: Vec<DataType> = inputs
                .iter()
                .filter_map(|input| input.schema().fields().get(index))
                .map(|field| field.data_type().clone())
                .collect();
            wanted.push(self.common(&column, "one column of a set operation")?);
        }
        if wanted.iter().all(Option::is_none) {
            return Ok(inputs);
        }
        inputs
            .into_iter()
            .map(|input| converted(input, &wanted, self.zone))
            .collect()
    }
}

fn converted(
    input: Arc<LogicalPlan>,
    wanted: &[Option<DataType>],
    zone: &str,
) -> Result<Arc<LogicalPlan>> {
    let schema = Arc::clone(input.schema());
    let meaning = Meaning {
        schema: &schema,
        zone,
    };
    let mut columns = Vec::with_capacity(wanted.len());
    for ((qualifier, field), wanted) in schema.iter().zip(wanted) {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        columns.push(match wanted {
            Some(wanted) if wanted != field.data_type() => meaning
                .cast(column, wanted)?
                .alias_qualified(qualifier.cloned(), field.name()),
            _ => column,
        });
    }
    let input = Arc::unwrap_or_clone(input);
    Ok(Arc::new(
        LogicalPlanBuilder::from(input).project(columns)?.build()?,
    ))
}

/// `left <=> right` by plain comparisons that are never null, so that a join takes both for keys: nulls
/// are equal, and what stands for a null in the values is told from a value by the second.
///
/// DataFusion has one null rule for all keys of a join, so that `=` beside its own null-safe comparison
/// would become null-safe, too.
pub(super) fn null_safe_equal(left: Expr, right: Expr, data_type: &DataType) -> Result<Expr> {
    if !types::is_atomic(data_type) || data_type == &DataType::Null {
        let both_null = left.clone().is_null().and(right.clone().is_null());
        let neither_null = left.clone().is_not_null().and(right.clone().is_not_null());
        return Ok(neither_null.and(left.eq(right)).or(both_null));
    }
    let stand_in = lit(ScalarValue::new_default(data_type)?);
    let filled = |value: Expr| functions::call("coalesce", vec![value, stand_in.clone()]);
    let (left_null, right_null) = (left.clone().is_null(), right.clone().is_null());
    Ok(filled(left).eq(filled(right)).and(left_null.eq(right_null)))
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}
