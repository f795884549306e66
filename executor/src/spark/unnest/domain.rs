//! The values that a subquery takes from the rows around it, and their way through its plan.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, plan_err};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, EmptyRelation, Expr, FetchType, Join, JoinType, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType, Union, WindowFrame, lit,
};

use super::super::{floats, rules};
use super::{Names, is_correlated, steady};

/// See the module.
pub(super) struct Domain<'a> {
    /// The columns of the rows around, in the form for comparing.
    values: Vec<Expr>,
    columns: Vec<Column>,
    around: LogicalPlan,
    names: &'a Names,
}

impl<'a> Domain<'a> {
    /// The domain of a subquery among rows.
    ///
    /// # Errors
    /// If the subquery takes columns from further outside.
    pub(super) fn new(
        around: &LogicalPlan,
        subquery: &LogicalPlan,
        names: &'a Names,
    ) -> Result<Self> {
        let mut columns: Vec<Column> = vec![];
        for expr in subquery.all_out_ref_exprs() {
            if let Expr::OuterReferenceColumn(_, column) = expr
                && !columns.contains(&column)
            {
                columns.push(column);
            }
        }
        if let Some(unknown) = columns
            .iter()
            .find(|column| !around.schema().has_column(column))
        {
            return self::unknown(unknown);
        }
        if let Some(column) = steady::unsteady(around, &columns)? {
            return plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: a subquery takes {column} from rows that are read twice for it \
                 and that may be others the second time (by rand(), LIMIT, row_number() or a sum of floats); write them to \
                 a table of their own first"
            );
        }
        let values = columns
            .iter()
            .map(|column| floats::normalized(Expr::Column(column.clone()), around.schema()))
            .collect::<Result<_>>()?;
        Ok(Self {
            values,
            columns,
            around: around.clone(),
            names,
        })
    }

    /// That the columns `keys` hold the values of a row around.
    pub(super) fn is_of_row(&self, keys: &[Column]) -> Result<Expr> {
        let mut all = lit(true);
        for (at, (value, key)) in self.values.iter().zip(keys).enumerate() {
            let data_type = self.around.schema().data_type(&self.columns[at])?.clone();
            let key = Expr::Column(key.clone());
            let same = rules::null_safe_equal(value.clone(), key, &data_type)?;
            all = if at == 0 { same } else { all.and(same) };
        }
        Ok(all)
    }

    /// That two sets of columns hold the same values.
    fn are_same(&self, left: &[Column], right: &[Column]) -> Result<Expr> {
        let mut all = lit(true);
        for (at, (left, right)) in left.iter().zip(right).enumerate() {
            let data_type = self.around.schema().data_type(&self.columns[at])?.clone();
            let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
            let same = rules::null_safe_equal(left, right, &data_type)?;
            all = if at == 0 { same } else { all.and(same) };
        }
        Ok(all)
    }

    /// The distinct values as a relation of its own, under names that are nowhere else.
    fn relation(&self) -> Result<(LogicalPlan, Vec<Column>)> {
        let names: Vec<String> = self.values.iter().map(|_| self.names.next("key")).collect();
        let columns = self.values.iter().zip(&names);
        let plan = LogicalPlanBuilder::from(self.around.clone())
            .project(columns.map(|(value, name)| value.clone().alias(name)))?
            .distinct()?
            .build()?;
        Ok((
            plan,
            names.into_iter().map(Column::new_unqualified).collect(),
        ))
    }

    /// The plan for all values of the domain at once, and the columns in which these are: for each of
    /// them its rows are those that it has where the outer columns have these values.
    pub(super) fn push(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Vec<Column>)> {
        if !is_correlated(plan) {
            let (values, keys) = self.relation()?;
            let all = LogicalPlanBuilder::from(plan.clone())
                .cross_join(values)?
                .build()?;
            return Ok((all, keys));
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let (input, keys) = self.push(&projection.input)?;
                let mut exprs = self.named(plan, &projection.expr, &keys)?;
                exprs.extend(keys.iter().cloned().map(Expr::Column));
                let projection = Projection::try_new(exprs, Arc::new(input))?;
                Ok((LogicalPlan::Projection(projection), keys))
            }
            LogicalPlan::Filter(filter) => {
                let (input, keys) = self.push(&filter.input)?;
                let predicate = self.inner(filter.predicate.clone(), &keys)?;
                let plan = LogicalPlanBuilder::from(input).filter(predicate)?.build()?;
                Ok((plan, keys))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let (input, keys) = self.push(&alias.input)?;
                let plan = LogicalPlanBuilder::from(input)
                    .alias(alias.alias.clone())?
                    .build()?;
                let named =
                    |key: Column| Column::new(Some(alias.alias.clone()), key.name().to_string());
                Ok((plan, keys.into_iter().map(named).collect()))
            }
            LogicalPlan::Subquery(subquery) => self.push(&subquery.subquery),
            LogicalPlan::Sort(sort) => self.push(&sort.input),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let (input, keys) = self.push(input)?;
                let plan = LogicalPlanBuilder::from(input).distinct()?.build()?;
                Ok((plan, keys))
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => {
                let (input, keys) = self.push(&window.input)?;
                let preserver = NamePreserver::new(plan);
                let mut exprs = vec![];
                for old in &window.window_expr {
                    let new = partitioned(self.inner(old.clone(), &keys)?, &keys)?;
                    exprs.push(preserver.save(old).restore(new));
                }
                let plan = LogicalPlanBuilder::from(input).window(exprs)?.build()?;
                Ok((plan, keys))
            }
            LogicalPlan::Unnest(unnest) => {
                let (input, keys) = self.push(&unnest.input)?;
                let plan = plan.with_new_exprs(plan.expressions(), vec![input])?;
                Ok((plan, keys))
            }
            other => plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: a subquery takes columns of the rows around it in a place \
                 where that is not available: {}",
                other.display()
            ),
        }
    }

    /// An expression of the subquery with the values in the place of outer columns.
    fn inner(&self, expr: Expr, keys: &[Column]) -> Result<Expr> {
        expr.transform_up(|expr| {
            Ok(match &expr {
                Expr::OuterReferenceColumn(_, column) => {
                    match self.columns.iter().position(|known| known == column) {
                        Some(at) => Transformed::yes(Expr::Column(keys[at].clone())),
                        None => Transformed::no(expr),
                    }
                }
                _ => Transformed::no(expr),
            })
        })
        .data()
    }

    fn named(&self, plan: &LogicalPlan, exprs: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        let preserver = NamePreserver::new(plan);
        exprs
            .iter()
            .map(|expr| {
                let name = preserver.save(expr);
                Ok(name.restore(self.inner(expr.clone(), keys)?))
            })
            .collect()
    }

    fn aggregate(
        &self,
        plan: &LogicalPlan,
        aggregate: &Aggregate,
    ) -> Result<(LogicalPlan, Vec<Column>)> {
        let sets = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        if aggregate.group_expr.iter().any(sets) {
            return plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: GROUPING SETS in a subquery that takes columns of the rows \
                 around it are not available"
            );
        }
        let (input, keys) = self.push(&aggregate.input)?;
        let aggregates = self.named(plan, &aggregate.aggr_expr, &keys)?;
        if !aggregate.group_expr.is_empty() {
            let mut groups = self.named(plan, &aggregate.group_expr, &keys)?;
            groups.extend(keys.iter().cloned().map(Expr::Column));
            let plan = Aggregate::try_new(Arc::new(input), groups, aggregates)?;
            return Ok((LogicalPlan::Aggregate(plan), keys));
        }
        // Nothing is aggregated to something, too: each value of the domain has a row.
        let there = self.names.next("there");
        let mut columns: Vec<Expr> = columns_of(input.schema());
        columns.push(lit(true).alias(&there));
        let input = LogicalPlanBuilder::from(input).project(columns)?.build()?;
        let (values, all_keys) = self.relation()?;
        let condition = self.are_same(&all_keys, &keys)?;
        let joined = LogicalPlanBuilder::from(values)
            .join_on(input, JoinType::Left, vec![condition])?
            .build()?;
        let preserver = NamePreserver::new(plan);
        let is_there = Expr::Column(Column::new_unqualified(there)).is_not_null();
        let mut of_rows = vec![];
        for (old, new) in aggregate.aggr_expr.iter().zip(aggregates) {
            of_rows.push(preserver.save(old).restore(filtered(new, &is_there)?));
        }
        let groups = all_keys.iter().cloned().map(Expr::Column).collect();
        let plan = Aggregate::try_new(Arc::new(joined), groups, of_rows)?;
        Ok((LogicalPlan::Aggregate(plan), all_keys))
    }

    fn join(&self, join: &Join) -> Result<(LogicalPlan, Vec<Column>)> {
        let (of_left, of_right) = (is_correlated(&join.left), is_correlated(&join.right));
        let (through_left, through_right) = match join.join_type {
            JoinType::Inner => (of_left || !of_right, of_right),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, of_right)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (of_left, true)
            }
            JoinType::Full => {
                return plan_err!(
                    "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: a FULL JOIN in a subquery that takes columns of the \
                     rows around it is not available"
                );
            }
        };
        let side = |plan: &Arc<LogicalPlan>, through: bool| match through {
            true => self.push(plan),
            false => Ok((plan.as_ref().clone(), vec![])),
        };
        let (left, left_keys) = side(&join.left, through_left)?;
        let (right, right_keys) = side(&join.right, through_right)?;
        let of_rows = matches!(
            join.join_type,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        );
        let keys = match of_rows || !through_left {
            true => right_keys.clone(),
            false => left_keys.clone(),
        };
        let mut conditions = vec![];
        if let Some(filter) = &join.filter {
            conditions.push(self.inner(filter.clone(), &keys)?);
        }
        if through_left && through_right {
            conditions.push(self.are_same(&left_keys, &right_keys)?);
        }
        let mut on = vec![];
        for (left, right) in &join.on {
            on.push((
                self.inner(left.clone(), &keys)?,
                self.inner(right.clone(), &keys)?,
            ));
        }
        let plan = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            conditions.into_iter().reduce(Expr::and),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        Ok((LogicalPlan::Join(plan), keys))
    }

    /// So many rows for each value.
    fn limit(&self, limit: &Limit) -> Result<(LogicalPlan, Vec<Column>)> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: a LIMIT that is no literal, in a subquery that takes \
                 columns of the rows around it, is not available"
            );
        };
        let (sorted, order) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => (sort.input.as_ref(), sort.expr.clone()),
            other => (other, vec![]),
        };
        let (input, keys) = self.push(sorted)?;
        let order = order
            .into_iter()
            .map(
                |SortExpr {
                     expr,
                     asc,
                     nulls_first,
                 }| {
                    Ok(SortExpr::new(self.inner(expr, &keys)?, asc, nulls_first))
                },
            )
            .collect::<Result<Vec<_>>>()?;
        let columns = columns_of(input.schema());
        let number = self.names.next("number");
        let mut function = WindowFunction::new(row_number_udwf(), vec![]);
        function.params.partition_by = keys.iter().cloned().map(Expr::Column).collect();
        // Without an order any rows will do.
        if !order.is_empty() {
            function.params.window_frame = WindowFrame::new(Some(false));
        }
        function.params.order_by = order;
        let numbered = Expr::WindowFunction(Box::new(function)).alias(&number);
        let number = Expr::Column(Column::new_unqualified(number));
        let mut kept = number.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            kept = kept.and(number.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let plan = LogicalPlanBuilder::from(input)
            .window(vec![numbered])?
            .filter(kept)?
            .project(columns)?
            .build()?;
        Ok((plan, keys))
    }

    fn union(&self, union: &Union) -> Result<(LogicalPlan, Vec<Column>)> {
        let mut inputs = vec![];
        for input in &union.inputs {
            let own = input.schema().columns();
            let (input, keys) = self.push(input)?;
            let columns = own.into_iter().chain(keys).map(Expr::Column);
            let plan = LogicalPlanBuilder::from(input).project(columns)?.build()?;
            inputs.push(Arc::new(plan));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let first = plan.schema().fields().len() - self.columns.len();
        let keys = plan.schema().columns().split_off(first);
        Ok((plan, keys))
    }
}

/// The refusal of a column that comes from further outside than the rows around a subquery.
pub(super) fn unknown<T>(column: &Column) -> Result<T> {
    plan_err!(
        "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: the column {column} in a subquery is neither its own nor one of the \
         rows around it"
    )
}

fn columns_of(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// An aggregate of those rows only that satisfy a condition.
fn filtered(expr: Expr, condition: &Expr) -> Result<Expr> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::AggregateFunction(mut function) => {
                let filter = match function.params.filter.take() {
                    Some(filter) => condition.clone().and(*filter),
                    None => condition.clone(),
                };
                function.params.filter = Some(Box::new(filter));
                Transformed::yes(Expr::AggregateFunction(function))
            }
            other => Transformed::no(other),
        })
    })
    .data()
}

/// A window function over the rows of one value of the domain at a time.
fn partitioned(expr: Expr, keys: &[Column]) -> Result<Expr> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::WindowFunction(mut function) => {
                let keys = keys.iter().cloned().map(Expr::Column);
                function.params.partition_by.extend(keys);
                Transformed::yes(Expr::WindowFunction(function))
            }
            other => Transformed::no(other),
        })
    })
    .data()
}

/// Whether a LIMIT leaves a row where there are any.
pub(super) fn takes_some(limit: &Limit) -> bool {
    matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
        && matches!(
            limit.get_fetch_type(),
            Ok(FetchType::Literal(None | Some(1..)))
        )
}

/// Whether a plan gives one row at most, whatever it reads.
pub(super) fn gives_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => gives_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => gives_one_row(&alias.input),
        LogicalPlan::Filter(filter) => gives_one_row(&filter.input),
        LogicalPlan::Sort(sort) => gives_one_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate
            .group_expr
            .iter()
            .all(|key| is_of_row(key, &aggregate.input)),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1))))
        }
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    }
}

/// Whether an expression has one value in all rows of a plan: that of the row around.
fn is_of_row(key: &Expr, plan: &LogicalPlan) -> bool {
    let has_none_of_its_own = |expr: &Expr| {
        let found = expr.exists(|part| {
            Ok(match part {
                Expr::Column(_)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_) => true,
                other => other.is_volatile_node(),
            })
        });
        !found.unwrap_or(true)
    };
    match plan {
        LogicalPlan::Filter(filter) => {
            let equates = |part: &&Expr| match part {
                Expr::BinaryExpr(BinaryExpr {
                    left,
                    op: Operator::Eq,
                    right,
                }) => {
                    (left.as_ref() == key && has_none_of_its_own(right))
                        || (right.as_ref() == key && has_none_of_its_own(left))
                }
                _ => false,
            };
            let parts = split_conjunction(&filter.predicate);
            parts.iter().any(equates) || is_of_row(key, &filter.input)
        }
        _ => has_none_of_its_own(key),
    }
}

/// A plan that stands in for another one for a moment.
pub(super) fn nothing() -> LogicalPlan {
    LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(DFSchema::empty()),
    })
}
