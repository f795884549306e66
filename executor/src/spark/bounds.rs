//! The optimizer rule that turns comparisons of a stepping function of a column into comparisons of
//! the column: `year(d) = 2024` into `d >= 2024-01-01 AND d < 2025-01-01`, and likewise for
//! `trunc`, `date_trunc`, the date of a timestamp and `date_format`. Statistics and partition values
//! know the column, not the function.
//!
//! A rewritten comparison means the same for every value. Where clocks that are set back make a
//! step return, the comparison stays as it is and a wider bound of the column is set beside it; and
//! so for floats, whose comparisons must go through a normal form.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, lit,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::time::{MICROS_PER_DAY, MICROS_PER_SECOND, Zone, civil, from_civil};

/// Longest IN list whose values become ranges.
const MOST_RANGES: usize = 20;
/// Deepest stepping functions within each other.
const MOST_STEPS: usize = 4;
/// Steps of a quarter of an hour around a bound that are looked at.
const LOOKED_AT: i64 = 4 * 48;
const QUARTER: i64 = 900 * MICROS_PER_SECOND;

/// See the module.
#[derive(Debug, Default)]
pub struct ColumnBounds;

impl OptimizerRule for ColumnBounds {
    fn name(&self) -> &str {
        "spark_column_bounds"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else {
            return Ok(Transformed::no(plan));
        };
        let schema = std::sync::Arc::clone(filter.input.schema());
        let changed = bounded(filter.predicate, &schema)?;
        let rebuilt = Filter::try_new(changed.data, filter.input)?;
        let plan = LogicalPlan::Filter(rebuilt);
        Ok(match changed.transformed {
            true => Transformed::yes(plan),
            false => Transformed::no(plan),
        })
    }
}

/// The condition with bounds of columns in place of, or beside, those of functions.
fn bounded(predicate: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    // Of the date of a date's time, say, one step is taken at a time.
    let (mut predicate, mut transformed) = (predicate, false);
    for _ in 0..MOST_STEPS {
        let plain = predicate.transform_up(|expr| Ok(comparison(expr, schema)))?;
        predicate = plain.data;
        transformed |= plain.transformed;
        if !plain.transformed {
            break;
        }
    }
    let mut parts = split_conjunction_owned(predicate);
    let mut more = vec![];
    for part in &parts {
        for bound in implied(part, schema) {
            if !parts.contains(&bound) && !more.contains(&bound) {
                more.push(bound);
            }
        }
    }
    transformed |= !more.is_empty();
    parts.extend(more);
    let predicate = conjunction(parts).unwrap_or_else(|| lit(true));
    Ok(match transformed {
        true => Transformed::yes(predicate),
        false => Transformed::no(predicate),
    })
}

/// Where a stepping function reaches a value: from `at_least` on it is the value or more, from
/// `beyond` on more. `None` stands for nowhere that has a number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Edges {
    at_least: i64,
    beyond: i64,
    /// Whether the function never steps back near the edges.
    exact: bool,
}

/// A stepping function of an expression.
struct Step<'a> {
    of: &'a Expr,
    /// The type of the argument.
    column: DataType,
    edges: Edges,
}

fn comparison(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let found = match right.as_ref() {
                Expr::Literal(value, _) => step(&left, value, op, schema).and_then(|step| {
                    step.edges
                        .exact
                        .then(|| compare(step.of.clone(), &step.column, op, step.edges))
                        .flatten()
                }),
                _ => None,
            };
            match found {
                Some(found) => Transformed::yes(found),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::InList(list) => match ranges(&list, schema) {
            Some(found) => Transformed::yes(found),
            None => Transformed::no(Expr::InList(list)),
        },
        other => Transformed::no(other),
    }
}

fn ranges(list: &InList, schema: &DFSchema) -> Option<Expr> {
    if list.negated || list.list.len() > MOST_RANGES {
        return None;
    }
    list.list
        .iter()
        .map(|value| match value {
            Expr::Literal(value, _) => {
                let step =
                    step(&list.expr, value, Operator::Eq, schema).filter(|s| s.edges.exact)?;
                compare(step.of.clone(), &step.column, Operator::Eq, step.edges)
            }
            _ => None,
        })
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .reduce(Expr::or)
}

fn value_of(column: &DataType, value: i64) -> Option<Expr> {
    let value = match column {
        DataType::Date32 => ScalarValue::Date32(Some(i32::try_from(value).ok()?)),
        DataType::Timestamp(_, zone) => {
            ScalarValue::TimestampMicrosecond(Some(value), zone.clone())
        }
        _ => return None,
    };
    Some(Expr::Literal(value, None))
}

fn compare(of: Expr, column: &DataType, op: Operator, edges: Edges) -> Option<Expr> {
    let (low, high) = (
        value_of(column, edges.at_least)?,
        value_of(column, edges.beyond)?,
    );
    Some(match op {
        Operator::GtEq => of.gt_eq(low),
        Operator::Gt => of.gt_eq(high),
        Operator::Lt => of.lt(low),
        Operator::LtEq => of.lt(high),
        Operator::Eq => of.clone().gt_eq(low).and(of.lt(high)),
        Operator::NotEq => of.clone().lt(low).or(of.gt_eq(high)),
        _ => return None,
    })
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// The step that `left` is when it is compared with `value`.
fn step<'a>(
    left: &'a Expr,
    value: &ScalarValue,
    op: Operator,
    schema: &DFSchema,
) -> Option<Step<'a>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = left else {
        return None;
    };
    let dates = |of: &'a Expr, edges: Edges| {
        Some(Step {
            of,
            column: DataType::Date32,
            edges,
        })
    };
    let exact = |at_least: i64, beyond: i64| Edges {
        at_least,
        beyond,
        exact: true,
    };
    match (func.name(), args.as_slice(), value) {
        ("year", [of], ScalarValue::Int32(Some(year))) => {
            let year = i64::from(*year);
            dates(
                of,
                exact(from_civil(year, 1, 1)?, from_civil(year + 1, 1, 1)?),
            )
        }
        ("trunc", [of, unit], ScalarValue::Date32(Some(day))) => {
            let day = i64::from(*day);
            let (start, next) = date_step(day, text_of(unit)?)?;
            dates(of, exact(if start == day { day } else { next }, next))
        }
        ("spark_cast", [of, to, zone], ScalarValue::Date32(Some(day)))
            if text_of(to)? == "date" =>
        {
            let zone = Zone::find(text_of(zone)?)?;
            let column = time_type(of, schema)?;
            let zone = match &column {
                DataType::Timestamp(_, Some(_)) => zone,
                _ => Zone::Fixed(0),
            };
            let midnight = |day: i64| zone.to_instant(day.checked_mul(MICROS_PER_DAY)?);
            let day = i64::from(*day);
            let (at_least, beyond) = (midnight(day)?, midnight(day + 1)?);
            let date = |instant: i64| Some(zone.to_local(instant)?.div_euclid(MICROS_PER_DAY));
            let exact = steps_once(zone, at_least, |x| date(x).map(|found| found >= day))
                && steps_once(zone, beyond, |x| date(x).map(|found| found > day));
            Some(Step {
                of,
                column,
                edges: Edges {
                    at_least,
                    beyond,
                    exact,
                },
            })
        }
        (
            "spark_cast",
            [of, to, zone],
            ScalarValue::TimestampMicrosecond(Some(instant), of_zone),
        ) if text_of(to)?.starts_with("timestamp")
            && of.get_type(schema).ok()? == DataType::Date32 =>
        {
            let zone = match of_zone {
                Some(_) => Zone::find(text_of(zone)?)?,
                None => Zone::Fixed(0),
            };
            dates(of, midnights(*instant, zone)?)
        }
        (
            "date_trunc",
            [unit, of, zone],
            ScalarValue::TimestampMicrosecond(Some(instant), Some(_)),
        ) => {
            let zone = Zone::find(text_of(zone)?)?;
            let column = time_type(of, schema)?;
            let edges = instant_step(*instant, text_of(unit)?, zone)?;
            Some(Step { of, column, edges })
        }
        ("date_format", [of, pattern, zone], ScalarValue::Utf8(Some(text)))
            if op == Operator::Eq =>
        {
            let zone = Zone::find(text_of(zone)?)?;
            let (start, next) = named_period(text, text_of(pattern)?)?;
            let (at_least, beyond) = (
                zone.to_instant(start.checked_mul(MICROS_PER_DAY)?)?,
                zone.to_instant(next.checked_mul(MICROS_PER_DAY)?)?,
            );
            let local = |x: i64| Some(zone.to_local(x)?.div_euclid(MICROS_PER_DAY));
            let exact = steps_once(zone, at_least, |x| local(x).map(|day| day >= start))
                && steps_once(zone, beyond, |x| local(x).map(|day| day >= next));
            Some(Step {
                of,
                column: time_type(of, schema)?,
                edges: Edges {
                    at_least,
                    beyond,
                    exact,
                },
            })
        }
        _ => None,
    }
}

/// The type of a timestamp to the microsecond.
fn time_type(of: &Expr, schema: &DFSchema) -> Option<DataType> {
    let found = of.get_type(schema).ok()?;
    matches!(found, DataType::Timestamp(TimeUnit::Microsecond, _)).then_some(found)
}

/// The edges of the midnights of dates at an instant.
fn midnights(instant: i64, zone: Zone) -> Option<Edges> {
    let midnight = |day: i64| zone.to_instant(day.checked_mul(MICROS_PER_DAY)?);
    let day = zone.to_local(instant)?.div_euclid(MICROS_PER_DAY);
    // A day that was left out has the midnight of the next one.
    let first = |reached: &dyn Fn(i64) -> bool| {
        (day - 3..=day + 3).find(|day| midnight(*day).is_some_and(reached))
    };
    Some(Edges {
        at_least: first(&|found| found >= instant)?,
        beyond: first(&|found| found > instant)?,
        exact: true,
    })
}

/// Whether `reached` becomes true at `edge` and stays so, as far as clocks are set.
fn steps_once(zone: Zone, edge: i64, reached: impl Fn(i64) -> Option<bool>) -> bool {
    if matches!(zone, Zone::Fixed(_)) {
        return true;
    }
    let holds = |x: i64| reached(x) == Some(x >= edge);
    holds(edge)
        && holds(edge - 1)
        && (1..=LOOKED_AT).all(|step| holds(edge + step * QUARTER) && holds(edge - step * QUARTER))
}

/// The begin of the unit a date is in, and of the next one.
fn date_step(day: i64, unit: &str) -> Option<(i64, i64)> {
    let (year, month, _) = civil(day);
    let next_month = |year: i64, month: u32, by: u32| {
        let total = year * 12 + i64::from(month) - 1 + i64::from(by);
        from_civil(total.div_euclid(12), total.rem_euclid(12) as u32 + 1, 1)
    };
    Some(match unit.to_uppercase().as_str() {
        "YEAR" | "YYYY" | "YY" => (from_civil(year, 1, 1)?, from_civil(year + 1, 1, 1)?),
        "QUARTER" => {
            let first = (month - 1) / 3 * 3 + 1;
            (from_civil(year, first, 1)?, next_month(year, first, 3)?)
        }
        "MONTH" | "MM" | "MON" => (from_civil(year, month, 1)?, next_month(year, month, 1)?),
        "WEEK" => {
            let monday = day - (day + 3).rem_euclid(7);
            (monday, monday + 7)
        }
        _ => return None,
    })
}

fn instant_step(instant: i64, unit: &str, zone: Zone) -> Option<Edges> {
    let local = zone.to_local(instant)?;
    let fixed = |unit: i64| {
        let start = local.div_euclid(unit) * unit;
        (start, start.checked_add(unit))
    };
    let unit = unit.to_uppercase();
    let small = match unit.as_str() {
        "MILLISECOND" => Some(1000),
        "SECOND" => Some(MICROS_PER_SECOND),
        "MINUTE" => Some(60 * MICROS_PER_SECOND),
        "HOUR" => Some(3600 * MICROS_PER_SECOND),
        _ => None,
    };
    // Below a day zones with a changing offset are left alone.
    let (start, next) = match (unit.as_str(), small) {
        (_, Some(size)) if matches!(zone, Zone::Fixed(_)) => fixed(size),
        (_, Some(_)) => return None,
        ("DAY" | "DD", _) => fixed(MICROS_PER_DAY),
        (unit, _) => {
            let (start, next) = date_step(local.div_euclid(MICROS_PER_DAY), unit)?;
            (
                start.checked_mul(MICROS_PER_DAY)?,
                next.checked_mul(MICROS_PER_DAY),
            )
        }
    };
    let (start, next) = (zone.to_instant(start)?, zone.to_instant(next?)?);
    let at_least = if start == instant { start } else { next };
    let in_or_after = |x: i64, edge: i64| {
        let local_edge = zone.to_local(edge)?;
        Some(zone.to_local(x)? >= local_edge)
    };
    let exact = steps_once(zone, at_least, |x| in_or_after(x, at_least))
        && steps_once(zone, next, |x| in_or_after(x, next));
    Some(Edges {
        at_least,
        beyond: next,
        exact,
    })
}

/// The days that a text such as `2024-05` stands for by its pattern.
fn named_period(text: &str, pattern: &str) -> Option<(i64, i64)> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| part.parse().ok())?
    };
    let separators = |places: &[usize]| {
        places
            .iter()
            .all(|at| text.as_bytes().get(*at) == Some(&b'-'))
    };
    let whole = text.len() == pattern.len();
    let year = number(0..4).filter(|year| whole && (1..=9999).contains(year))?;
    let (month, day) = match pattern {
        "yyyy" => (None, None),
        "yyyy-MM" if separators(&[4]) => (Some(number(5..7)?), None),
        "yyyyMM" => (Some(number(4..6)?), None),
        "yyyy-MM-dd" if separators(&[4, 7]) => (Some(number(5..7)?), Some(number(8..10)?)),
        "yyyyMMdd" => (Some(number(4..6)?), Some(number(6..8)?)),
        _ => return None,
    };
    Some(match (month, day) {
        (Some(month), Some(day)) => {
            let day = from_civil(year, month as u32, day as u32)?;
            (day, day + 1)
        }
        (Some(month), None) => date_step(from_civil(year, month as u32, 1)?, "MONTH")?,
        _ => date_step(from_civil(year, 1, 1)?, "YEAR")?,
    })
}

/// Bounds of columns that follow from a condition that must stay as it is.
fn implied(part: &Expr, schema: &DFSchema) -> Vec<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
        return vec![];
    };
    let Expr::Literal(value, _) = right.as_ref() else {
        return vec![];
    };
    if let Some(bounds) = float_bounds(left, *op, value) {
        return bounds;
    }
    let Some(step) = step(left, value, *op, schema).filter(|step| !step.edges.exact) else {
        return vec![];
    };
    // A day is more than any clock is set back by.
    let Edges {
        at_least, beyond, ..
    } = step.edges;
    let (low, high) = match op {
        Operator::GtEq => (Some(at_least), None),
        Operator::Gt => (Some(beyond), None),
        Operator::Lt => (None, Some(at_least)),
        Operator::LtEq => (None, Some(beyond)),
        Operator::Eq => (Some(at_least), Some(beyond)),
        _ => return vec![],
    };
    let low = low.and_then(|edge| value_of(&step.column, edge.saturating_sub(MICROS_PER_DAY)));
    let high = high.and_then(|edge| value_of(&step.column, edge.saturating_add(MICROS_PER_DAY)));
    let of = step.of;
    low.map(|edge| of.clone().gt_eq(edge))
        .into_iter()
        .chain(high.map(|edge| of.clone().lt(edge)))
        .collect()
}

/// What a comparison in normal form says of the float itself. Nothing follows upwards: NaN, however
/// it is written, is greater than every number.
fn float_bounds(left: &Expr, op: Operator, value: &ScalarValue) -> Option<Vec<Expr>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = left else {
        return None;
    };
    let ([of @ Expr::Column(_)], "spark_normalize") = (args.as_slice(), func.name()) else {
        return None;
    };
    let finite = match value {
        ScalarValue::Float64(Some(value)) => value.is_finite(),
        ScalarValue::Float32(Some(value)) => value.is_finite(),
        _ => false,
    };
    if !finite {
        return None;
    }
    let bound = Expr::Literal(value.clone(), None);
    Some(match op {
        Operator::Lt | Operator::LtEq | Operator::Eq => vec![of.clone().lt_eq(bound)],
        _ => vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_clocks_repeat_is_no_exact_edge() {
        // A minute after midnight the clock went back to the day before.
        let st_johns = Zone::find("America/St_Johns").unwrap();
        let day = from_civil(2006, 10, 29).unwrap();
        let edge = st_johns.to_instant(day * MICROS_PER_DAY).unwrap();
        let date = |x: i64| Some(st_johns.to_local(x)?.div_euclid(MICROS_PER_DAY));
        assert!(!steps_once(st_johns, edge, |x| date(x).map(|d| d >= day)));
        let new_york = Zone::find("America/New_York").unwrap();
        let day = from_civil(2024, 11, 3).unwrap();
        let edge = new_york.to_instant(day * MICROS_PER_DAY).unwrap();
        let date = |x: i64| Some(new_york.to_local(x)?.div_euclid(MICROS_PER_DAY));
        assert!(steps_once(new_york, edge, |x| date(x).map(|d| d >= day)));
    }

    #[test]
    fn periods_are_read_by_their_patterns_alone() {
        let may = date_step(from_civil(2024, 5, 9).unwrap(), "MM");
        assert_eq!(named_period("2024-05", "yyyy-MM"), may);
        assert_eq!(named_period("202405", "yyyyMM"), may);
        for (text, pattern) in [("2024-5", "yyyy-MM"), ("2024-13", "yyyy-MM"), ("x", "yyyy")] {
            assert_eq!(named_period(text, pattern), None, "{text}");
        }
        assert_eq!(
            super::super::time::format_date(may.unwrap().1),
            "2024-06-01"
        );
    }
}
