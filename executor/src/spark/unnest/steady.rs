//! Whether rows are the same when they are read twice.
//!
//! A subquery that is joined with the values it takes from the rows around it reads these rows again. Where
//! chance has a say in them, in `rand()`, or in which of equal rows LIMIT leaves, the second reading
//! may give other values, and a row would miss its own. This module tells which columns hold the same
//! values in each reading; which subqueries need that is decided above.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Join, JoinType, LogicalPlan, Window,
    WindowFrameUnits, WindowFunctionDefinition,
};

/// The first of the columns that may hold other values when the plan is read again.
pub(super) fn unsteady<'a>(
    plan: &LogicalPlan,
    columns: &'a [Column],
) -> Result<Option<&'a Column>> {
    let found = Steady::of(plan)?;
    let places: Vec<Option<usize>> = columns
        .iter()
        .map(|column| plan.schema().maybe_index_of_column(column))
        .collect();
    let all: BTreeSet<usize> = places.iter().copied().flatten().collect();
    let is_steady = |place: &Option<usize>| {
        let Some(place) = place else { return false };
        let beside = found.numbers.iter().all(|number| {
            let touched = all.iter().any(|at| number.columns.contains(at));
            !touched || number.holds(*place)
        });
        found.rows && found.columns.get(*place).copied().unwrap_or(false) && beside
    };
    let at = places.iter().position(|place| !is_steady(place));
    Ok(at.and_then(|at| columns.get(at)))
}

/// Columns that number rows, which hold the same numbers in each reading, though not beside the same rows:
/// among rows that are equal by what they are numbered by, any may come first.
#[derive(Debug, Clone)]
struct Number {
    columns: BTreeSet<usize>,
    /// The columns that are the same beside the same number.
    by: BTreeSet<usize>,
}

impl Number {
    fn holds(&self, column: usize) -> bool {
        self.columns.contains(&column) || self.by.contains(&column)
    }
}

/// What is the same in each reading of a plan.
#[derive(Debug, Clone)]
struct Steady {
    /// Whether as many rows are there.
    rows: bool,
    columns: Vec<bool>,
    numbers: Vec<Number>,
    /// The columns by which the rows are sorted.
    order: Option<BTreeSet<usize>>,
}

impl Steady {
    fn all(width: usize, rows: bool) -> Self {
        Self {
            rows,
            columns: vec![rows; width],
            numbers: vec![],
            order: None,
        }
    }

    fn of(plan: &LogicalPlan) -> Result<Self> {
        let width = plan.schema().fields().len();
        Ok(match plan {
            LogicalPlan::TableScan(scan) => Self::all(width, scan.fetch.is_none()),
            LogicalPlan::EmptyRelation(_) => Self::all(width, true),
            LogicalPlan::Values(_) => {
                let expressions = plan.expressions();
                Self::all(width, !expressions.iter().any(Expr::is_volatile))
            }
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input)?,
            LogicalPlan::Subquery(subquery) => Self::of(&subquery.subquery)?,
            LogicalPlan::Repartition(repartition) => Self {
                order: None,
                ..Self::of(&repartition.input)?
            },
            LogicalPlan::Projection(projection) => Self::of(&projection.input)?
                .projected(&projection.expr, projection.input.schema())?,
            LogicalPlan::Filter(filter) => {
                let mut steady = Self::of(&filter.input)?;
                let parts = split_conjunction(&filter.predicate);
                steady.restrict(&parts, filter.input.schema())?;
                steady
            }
            LogicalPlan::Sort(sort) => {
                let mut steady = Self::of(&sort.input)?;
                let mut order = BTreeSet::new();
                for key in &sort.expr {
                    let read = steady.read(&key.expr, sort.input.schema())?;
                    if !read.steady && sort.fetch.is_some() {
                        steady.rows = false;
                    }
                    if matches!(key.expr, Expr::Column(_)) {
                        order.extend(read.columns);
                    }
                }
                steady.order = Some(order);
                if sort.fetch.is_some() {
                    steady.cut();
                }
                steady
            }
            LogicalPlan::Limit(limit) => {
                let mut steady = Self::of(&limit.input)?;
                steady.cut();
                steady
            }
            LogicalPlan::Distinct(Distinct::All(input)) => Self {
                order: None,
                ..Self::of(input)?
            },
            LogicalPlan::Union(union) => {
                let mut all = Self::all(width, true);
                for input in &union.inputs {
                    let mut steady = Self::of(input)?;
                    steady.settle();
                    all.rows &= steady.rows;
                    for (all, one) in all.columns.iter_mut().zip(steady.columns) {
                        *all &= one;
                    }
                }
                all
            }
            LogicalPlan::Unnest(unnest) => {
                let mut steady = Self::of(&unnest.input)?;
                steady.settle();
                let sources = unnest.dependency_indices.iter();
                let of = |at: &usize| steady.columns.get(*at).copied().unwrap_or(false);
                Self {
                    // A list that is another one may have another length.
                    rows: steady.rows && steady.columns.iter().all(|column| *column),
                    columns: sources.map(of).collect(),
                    numbers: vec![],
                    order: None,
                }
            }
            LogicalPlan::Join(join) => Self::of_join(join, width)?,
            LogicalPlan::Aggregate(aggregate) => Self::of_aggregate(aggregate, width)?,
            LogicalPlan::Window(window) => Self::of_window(window)?,
            _ => Self::all(width, false),
        })
    }

    /// What an expression over these columns reads, and whether it gives the same for the same row.
    fn read(&self, expr: &Expr, schema: &DFSchema) -> Result<Read> {
        let mut steady = true;
        let mut columns = BTreeSet::new();
        expr.apply(|part| {
            match part {
                Expr::Column(column) => match schema.maybe_index_of_column(column) {
                    Some(at) => {
                        steady &= self.columns.get(at).copied().unwrap_or(false);
                        columns.insert(at);
                    }
                    None => steady = false,
                },
                Expr::ScalarSubquery(subquery) => steady &= is_all_steady(&subquery.subquery)?,
                Expr::Exists(exists) => steady &= is_all_steady(&exists.subquery.subquery)?,
                Expr::InSubquery(found) => steady &= is_all_steady(&found.subquery.subquery)?,
                other => steady &= !other.is_volatile_node(),
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Read { steady, columns })
    }

    fn touches_number(&self, read: &Read) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|number| !number.columns.is_disjoint(&read.columns))
    }

    fn projected(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Self> {
        let mut reads = vec![];
        for expr in exprs {
            reads.push(self.read(expr, schema)?);
        }
        let places = |is: &dyn Fn(&Read) -> bool| -> BTreeSet<usize> {
            let all = reads.iter().enumerate();
            all.filter(|(_, read)| is(read)).map(|(at, _)| at).collect()
        };
        let mut columns: Vec<bool> = reads.iter().map(|read| read.steady).collect();
        let mut numbers = vec![];
        for number in &self.numbers {
            let touches = |read: &Read| !number.columns.is_disjoint(&read.columns);
            let beside = |read: &Read| read.columns.iter().all(|at| number.holds(*at));
            for at in places(&|read: &Read| touches(read) && !beside(read)) {
                columns[at] = false;
            }
            let number = Number {
                columns: places(&|read: &Read| touches(read) && beside(read)),
                by: places(&|read: &Read| !touches(read) && beside(read)),
            };
            if !number.columns.is_empty() {
                numbers.push(number);
            }
        }
        let order = self.order.as_ref().map(|order| {
            places(&|read: &Read| !read.columns.is_empty() && read.columns.is_subset(order))
        });
        Ok(Self {
            rows: self.rows,
            columns,
            numbers,
            order,
        })
    }

    /// Leaves the rows for which all conditions are true.
    fn restrict(&mut self, conditions: &[&Expr], schema: &DFSchema) -> Result<()> {
        // Which rows have a certain number is not certain.
        for condition in conditions {
            let read = self.read(condition, schema)?;
            for number in &self.numbers {
                if number.columns.is_disjoint(&read.columns) {
                    continue;
                }
                for (at, column) in self.columns.iter_mut().enumerate() {
                    *column &= number.holds(at);
                }
            }
        }
        for condition in conditions {
            self.rows &= self.read(condition, schema)?.steady;
        }
        Ok(())
    }

    /// Leaves some of the rows by their order.
    fn cut(&mut self) {
        self.settle();
        match &self.order {
            Some(order) => {
                for (at, column) in self.columns.iter_mut().enumerate() {
                    *column &= order.contains(&at);
                }
            }
            None => self.rows = false,
        }
    }

    /// Forgets which columns are numbers: what may differ beside them may differ.
    fn settle(&mut self) {
        for number in std::mem::take(&mut self.numbers) {
            for (at, column) in self.columns.iter_mut().enumerate() {
                *column &= number.holds(at);
            }
        }
    }

    fn of_join(join: &Join, width: usize) -> Result<Self> {
        let (left, right) = (Self::of(&join.left)?, Self::of(&join.right)?);
        let schema = join.left.schema().join(join.right.schema())?;
        let first = left.columns.len();
        let moved = |places: BTreeSet<usize>| -> BTreeSet<usize> {
            places.into_iter().map(|at| at + first).collect()
        };
        let mut both = Self {
            rows: left.rows && right.rows,
            columns: left.columns.into_iter().chain(right.columns).collect(),
            numbers: left.numbers,
            order: None,
        };
        both.numbers
            .extend(right.numbers.into_iter().map(|number| Number {
                columns: moved(number.columns),
                by: moved(number.by),
            }));
        let mut conditions: Vec<&Expr> = vec![];
        for (left, right) in &join.on {
            conditions.extend([left, right]);
        }
        conditions.extend(join.filter.iter().flat_map(split_conjunction));
        both.restrict(&conditions, &schema)?;
        match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                both.settle();
                both.columns.truncate(first);
            }
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                both.settle();
                both.columns.drain(..first);
            }
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {}
        }
        // The mark.
        both.columns.resize(width, both.rows);
        Ok(both)
    }

    fn of_aggregate(aggregate: &Aggregate, width: usize) -> Result<Self> {
        let mut input = Self::of(&aggregate.input)?;
        input.settle();
        let schema = aggregate.input.schema();
        let mut columns = vec![];
        for key in &aggregate.group_expr {
            let keys: Vec<&Expr> = match key {
                Expr::GroupingSet(set) => set.distinct_expr(),
                key => vec![key],
            };
            for key in keys {
                columns.push(input.read(key, schema)?.steady);
            }
        }
        let sets = |key: &Expr| matches!(key, Expr::GroupingSet(_));
        if aggregate.group_expr.iter().any(sets) {
            // The number of the set.
            columns.push(true);
        }
        let all_keys = columns.iter().all(|key| *key);
        for expr in &aggregate.aggr_expr {
            let read = input.read(expr, schema)?;
            let steady = match unaliased(expr) {
                Expr::AggregateFunction(function) => {
                    is_of_any_order(function.func.name(), &function.params.args, schema)?
                }
                _ => false,
            };
            columns.push(input.rows && all_keys && read.steady && steady);
        }
        columns.resize(width, false);
        Ok(Self {
            rows: input.rows,
            columns,
            numbers: vec![],
            order: None,
        })
    }

    fn of_window(window: &Window) -> Result<Self> {
        let mut steady = Self::of(&window.input)?;
        steady.order = None;
        let schema = window.input.schema();
        let first = steady.columns.len();
        let mut numbers = vec![];
        let mut made = vec![];
        for (at, expr) in window.window_expr.iter().enumerate() {
            let Expr::WindowFunction(function) = unaliased(expr) else {
                made.push(false);
                continue;
            };
            let read = steady.read(expr, schema)?;
            let all = steady.rows && read.steady && !steady.touches_number(&read);
            made.push(all && is_steady_function(function, schema)?);
            if function.fun.name() == "row_number" {
                let keys = function.params.partition_by.iter();
                let keys = keys.chain(function.params.order_by.iter().map(|key| &key.expr));
                let by = keys.filter_map(|key| match key {
                    Expr::Column(column) => schema.maybe_index_of_column(column),
                    _ => None,
                });
                numbers.push(Number {
                    columns: BTreeSet::from([first + at]),
                    by: by.collect(),
                });
            }
        }
        steady.columns.extend(made);
        steady.numbers.extend(numbers);
        Ok(steady)
    }
}

/// What an expression reads.
struct Read {
    steady: bool,
    columns: BTreeSet<usize>,
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

fn is_all_steady(plan: &LogicalPlan) -> Result<bool> {
    let mut steady = Steady::of(plan)?;
    steady.settle();
    Ok(steady.rows && steady.columns.iter().all(|column| *column))
}

/// Whether an aggregate gives the same for the same rows in any order. Sums of floats do not.
fn is_of_any_order(name: &str, args: &[Expr], schema: &DFSchema) -> Result<bool> {
    let mut is_float = false;
    for arg in args {
        is_float |= arg.get_type(schema)?.is_floating();
    }
    let name = name.to_lowercase();
    let name = name.strip_prefix("spark_").unwrap_or(&name);
    Ok(match name {
        "count" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor"
        | "grouping" => true,
        "sum" | "avg" | "try_sum" | "try_avg" => !is_float,
        _ => false,
    })
}

fn is_steady_function(function: &WindowFunction, schema: &DFSchema) -> Result<bool> {
    Ok(match &function.fun {
        WindowFunctionDefinition::WindowUDF(udf) => matches!(
            udf.name(),
            "row_number" | "rank" | "dense_rank" | "percent_rank" | "cume_dist"
        ),
        WindowFunctionDefinition::AggregateUDF(udf) => {
            let frame = &function.params.window_frame;
            let whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
            let by_value = whole || !matches!(frame.units, WindowFrameUnits::Rows);
            by_value && is_of_any_order(udf.name(), &function.params.args, schema)?
        }
    })
}
