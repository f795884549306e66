//! Subqueries that hang on the rows around them and that DataFusion's own rules do not take: EXISTS and
//! IN in a SELECT list, aggregates over rows that are compared by more than `=`, LIMIT and set
//! operations within, LATERAL.
//!
//! A subquery is computed for all rows around it at once: it is joined with the distinct values of the
//! columns that it takes from outside (its *domain*), which then go through its plan beside its own
//! columns. Where it grouped, it groups by them, too; where it numbered or limited rows, it does so for
//! each of them. The outcome is joined with the rows around it by these columns.
//!
//! What DataFusion does well is left to it: its rules make cheaper joins.

mod domain;
mod steady;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result, ScalarValue, Spans, plan_err};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use domain::Domain;

use super::functions;
use super::scalar::{Definition, Param, Params, Returns};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unnest;

impl AnalyzerRule for Unnest {
    fn name(&self) -> &str {
        "spark_unnest"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let names = Names::default();
        plan.transform_up_with_subqueries(|plan| node(plan, &names))?
            .data
            .transform_up_with_subqueries(nullable_values)
            .data()
    }
}

/// The value of a subquery that may find no row, and is null then. DataFusion takes it for what the column
/// is within.
const NULLABLE: &str = "spark_nullable";

pub(super) static FUNCTIONS: &[Definition] = &[Definition {
    name: NULLABLE,
    params: Params::Custom(|given| Ok(given.to_vec())),
    returns: Returns::Of(Param::Any),
    evaluate: |call| Ok(Arc::clone(&call.args[0])),
}];

fn nullable_values(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let preserver = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = preserver.save(&expr);
        let changed = expr.transform_down(|expr| {
            Ok(match expr {
                Expr::ScalarFunction(call) if call.func.name() == NULLABLE => {
                    Transformed::new(Expr::ScalarFunction(call), false, TreeNodeRecursion::Jump)
                }
                Expr::ScalarSubquery(subquery) if may_be_none(&subquery) => {
                    let value = functions::call(NULLABLE, vec![Expr::ScalarSubquery(subquery)]);
                    Transformed::new(value, true, TreeNodeRecursion::Jump)
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })
}

/// Whether a subquery that DataFusion computes by itself may find no row. (That its column is nullable says
/// little: constants are, until they are computed.)
fn may_be_none(subquery: &Subquery) -> bool {
    fn is_there(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Projection(projection) => is_there(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => is_there(&alias.input),
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            _ => false,
        }
    }
    !is_correlated(&subquery.subquery) && !is_there(&subquery.subquery)
}

/// Names that are not given twice in a plan.
#[derive(Debug, Default)]
struct Names {
    given: Cell<usize>,
}

impl Names {
    fn next(&self, what: &str) -> String {
        self.given.set(self.given.get() + 1);
        format!("__windrow_{what}{}", self.given.get())
    }
}

fn node(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Filter(filter) => {
            let schema = filter.input.schema();
            let taken = columns_around(&filter.predicate)?;
            if let Some(far) = taken.iter().find(|column| !schema.has_column(column)) {
                return domain::unknown(far);
            }
            let parts = split_conjunction(&filter.predicate);
            let wanted = parts.iter().any(|part| !is_left_in_filter(part));
            if !wanted {
                return Ok(Transformed::no(plan));
            }
        }
        LogicalPlan::Join(join) => {
            let asks = |filter: &Expr| !split_conjunction(filter).into_iter().all(is_left);
            return match join.filter.as_ref().is_some_and(asks) {
                true => on_subqueries(join, names),
                false => lateral(plan, names),
            };
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => {
            let mut wanted = false;
            plan.apply_expressions(|expr| {
                wanted |= !is_left(expr);
                Ok(TreeNodeRecursion::Continue)
            })?;
            if !wanted {
                return Ok(Transformed::no(plan));
            }
        }
        _ => return Ok(Transformed::no(plan)),
    }
    replaced(plan, names)
}

/// Whether a conjunct of a filter has no subquery but those that DataFusion makes joins of.
fn is_left_in_filter(part: &Expr) -> bool {
    let inner = match part {
        Expr::Not(inner) => inner.as_ref(),
        other => other,
    };
    match inner {
        Expr::Exists(Exists { subquery, .. }) => is_exists_pullable(subquery),
        Expr::InSubquery(found) => {
            // A join that minds nulls has one key.
            let negated = found.negated != matches!(part, Expr::Not(_));
            let one_key = !negated || !is_correlated(&found.subquery.subquery);
            one_key && !is_null(&found.expr) && is_in_pullable(found) && is_left(&found.expr)
        }
        // A mark instead of a null is as good where it is not turned round.
        _ => is_left_among(part, true),
    }
}

/// The same for what stands below AND and OR.
fn is_left_among(part: &Expr, of_filter: bool) -> bool {
    match part {
        Expr::BinaryExpr(binary)
            if of_filter && matches!(binary.op, Operator::And | Operator::Or) =>
        {
            is_left_among(&binary.left, true) && is_left_among(&binary.right, true)
        }
        Expr::Exists(Exists { subquery, .. }) if of_filter => is_exists_pullable(subquery),
        Expr::InSubquery(found) if of_filter && !found.negated => {
            !is_null(&found.expr) && is_in_pullable(found) && is_left(&found.expr)
        }
        other => is_left(other),
    }
}

/// Whether an expression outside of a filter has no subquery to be replaced.
fn is_left(expr: &Expr) -> bool {
    let found = expr.exists(|expr| {
        Ok(match expr {
            Expr::Exists(_) | Expr::InSubquery(_) => true,
            Expr::ScalarSubquery(subquery) => {
                is_correlated(&subquery.subquery) && !is_scalar_pullable(subquery)
            }
            _ => false,
        })
    });
    !found.unwrap_or(true)
}

/// Whether an expression is NULL itself, of whatever type.
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Alias(alias) => is_null(&alias.expr),
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::TryCast(cast) => is_null(&cast.expr),
        Expr::ScalarFunction(call) => {
            call.func.name().contains("cast") && call.args.first().is_some_and(is_null)
        }
        _ => false,
    }
}

fn is_correlated(plan: &LogicalPlan) -> bool {
    plan.exists(|plan| Ok(plan.contains_outer_reference()))
        .unwrap_or(true)
}

fn pulls_up(subquery: &Subquery, mut pull_up: PullUpCorrelatedExpr) -> bool {
    let plan = subquery.subquery.as_ref().clone();
    if holds_below(&plan) || filters_all(&plan) || skips(&plan) || is_below_a_name(&plan) {
        return false;
    }
    let tried = plan.rewrite(&mut pull_up);
    tried.is_ok() && pull_up.can_pull_up
}

/// Whether a condition on outer columns stands where it means another thing than above, which
/// DataFusion does not look at: below a window, or on the side of an outer join that may have no row.
fn holds_below(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|plan| {
        Ok(match plan {
            LogicalPlan::Window(window) => is_correlated(&window.input),
            LogicalPlan::Join(join) => match join.join_type {
                JoinType::Inner | JoinType::RightMark => false,
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                    is_correlated(&join.right)
                }
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => {
                    is_correlated(&join.left)
                }
                JoinType::Full => is_correlated(&join.left) || is_correlated(&join.right),
            },
            _ => false,
        })
    });
    found.unwrap_or(true)
}

/// Whether the one row of an aggregate is asked for a condition, which DataFusion forgets where there was
/// something to aggregate.
fn filters_all(plan: &LogicalPlan) -> bool {
    fn is_all(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Projection(projection) => is_all(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => is_all(&alias.input),
            LogicalPlan::Filter(filter) => is_all(&filter.input),
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            _ => false,
        }
    }
    let found = plan
        .exists(|plan| Ok(matches!(plan, LogicalPlan::Filter(filter) if is_all(&filter.input))));
    found.unwrap_or(true)
}

/// Whether a condition on outer columns stands in a relation that has names of its own: above it the columns
/// of the condition can't be named.
fn is_below_a_name(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|plan| {
        Ok(matches!(plan, LogicalPlan::SubqueryAlias(alias) if is_correlated(&alias.input)))
    });
    found.unwrap_or(true)
}

/// Whether rows are left out by their number, of which DataFusion only sees that there is a LIMIT.
fn skips(plan: &LogicalPlan) -> bool {
    let found = plan
        .exists(|plan| Ok(matches!(plan, LogicalPlan::Limit(limit) if !domain::takes_some(limit))));
    found.unwrap_or(true)
}

fn is_exists_pullable(subquery: &Subquery) -> bool {
    !aggregates_all(&subquery.subquery)
        && pulls_up(
            subquery,
            PullUpCorrelatedExpr::new().with_exists_sub_query(true),
        )
}

/// Whether a subquery gives a row also where it finds none, which is lost when it is grouped by what it is
/// joined on.
fn aggregates_all(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|plan| {
        Ok(match plan {
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.group_expr.is_empty() && is_correlated(&aggregate.input)
            }
            _ => false,
        })
    });
    found.unwrap_or(true)
}

fn is_in_pullable(found: &InSubquery) -> bool {
    let Ok(Some(output)) = found.subquery.subquery.head_output_expr() else {
        return false;
    };
    let predicate = found.expr.as_ref().clone().eq(output);
    !aggregates_all(&found.subquery.subquery)
        && pulls_up(
            &found.subquery,
            PullUpCorrelatedExpr::new().with_in_predicate_opt(Some(predicate)),
        )
}

fn is_scalar_pullable(subquery: &Subquery) -> bool {
    !groups(&subquery.subquery)
        && pulls_up(
            subquery,
            PullUpCorrelatedExpr::new().with_need_handle_count_bug(true),
        )
}

/// Whether rows are grouped, of which DataFusion looks for the reason that there is one group again when
/// the conditions have moved.
fn groups(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|plan| {
        Ok(
            matches!(plan, LogicalPlan::Aggregate(aggregate) if !aggregate.group_expr.is_empty()
                && is_correlated(&aggregate.input)),
        )
    });
    found.unwrap_or(true)
}

/// The expression with each negation as far down as it goes, so that it is one of IN where it was one of
/// what IN stands in.
fn negations_below(expr: Expr) -> Result<Expr> {
    expr.transform_down(|expr| {
        Ok(match expr {
            Expr::Not(inner) => Transformed::yes(negation(*inner)),
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) if truth(&right).is_some() => Transformed::yes(match (truth(&right), *left) {
                (Some(false), left) => negation(left),
                (_, Expr::Not(inner)) => negation(*inner),
                (_, left) => left,
            }),
            other => Transformed::no(other),
        })
    })
    .data()
}

fn negation(expr: Expr) -> Expr {
    match expr {
        Expr::Not(inner) => match *inner {
            Expr::Not(inner) => negation(*inner),
            inner => inner,
        },
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let op = match op {
                Operator::And => Operator::Or,
                _ => Operator::And,
            };
            let (left, right) = (Box::new(negation(*left)), Box::new(negation(*right)));
            Expr::BinaryExpr(BinaryExpr::new(left, op, right))
        }
        Expr::InSubquery(found) => Expr::InSubquery(InSubquery {
            negated: !found.negated,
            ..found
        }),
        other => Expr::Not(Box::new(other)),
    }
}

fn truth(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Literal(ScalarValue::Boolean(value), _) => *value,
        _ => None,
    }
}

/// A plan of one input whose subqueries are columns of that input.
fn replaced(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let Some(input) = plan.inputs().first().map(|input| (*input).clone()) else {
        return Ok(Transformed::no(plan));
    };
    let in_filter = matches!(plan, LogicalPlan::Filter(_));
    // Nodes that hand on all columns must not hand on the new ones.
    let hands_on = !matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
    let columns = plan.schema().columns();
    let preserver = NamePreserver::new(&plan);
    let mut around = Around { input, names };
    let mut exprs = vec![];
    for expr in plan.expressions() {
        let name = preserver.save(&expr);
        let expr = match in_filter {
            true => around.filter(expr)?,
            false => around.expression(expr)?,
        };
        exprs.push(name.restore(expr));
    }
    let mut changed = plan.with_new_exprs(exprs, vec![around.input])?;
    if hands_on {
        let columns = columns.into_iter().map(Expr::Column);
        changed = LogicalPlanBuilder::from(changed)
            .project(columns)?
            .build()?;
    }
    Ok(Transformed::yes(changed))
}

/// The rows around a subquery, to which its outcome is joined.
struct Around<'a> {
    input: LogicalPlan,
    names: &'a Names,
}

impl Around<'_> {
    fn filter(&mut self, predicate: Expr) -> Result<Expr> {
        let mut kept = vec![];
        for part in split_conjunction(&predicate) {
            kept.push(match is_left_in_filter(part) {
                true => part.clone(),
                false => self.expression(part.clone())?,
            });
        }
        let all = kept.into_iter().reduce(Expr::and);
        Ok(all.unwrap_or_else(|| lit(true)))
    }

    fn expression(&mut self, expr: Expr) -> Result<Expr> {
        negations_below(expr)?
            .transform_up(|expr| {
                Ok(match expr {
                    Expr::Exists(Exists { subquery, negated }) => {
                        Transformed::yes(self.exists(&subquery.subquery, negated)?)
                    }
                    Expr::InSubquery(found) => Transformed::yes(self.is_in(found)?),
                    Expr::ScalarSubquery(subquery)
                        if is_correlated(&subquery.subquery) && !is_scalar_pullable(&subquery) =>
                    {
                        Transformed::yes(self.scalar(&subquery)?)
                    }
                    other => Transformed::no(other),
                })
            })
            .data()
    }

    fn exists(&mut self, subquery: &LogicalPlan, negated: bool) -> Result<Expr> {
        let there = self.names.next("there");
        if !is_correlated(subquery) {
            // One value for all rows.
            let some = LogicalPlanBuilder::from(subquery.clone())
                .limit(0, Some(1))?
                .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64)).alias(there)])?
                .build()?;
            let count = Expr::ScalarSubquery(Subquery {
                subquery: Arc::new(some),
                outer_ref_columns: vec![],
                spans: Spans::new(),
            });
            return Ok(match negated {
                true => count.eq(lit(0_i64)),
                false => count.gt(lit(0_i64)),
            });
        }
        let domain = Domain::new(&self.input, subquery, self.names)?;
        // How many rows there are does not matter, so neither does how many are taken.
        let subquery = match subquery {
            LogicalPlan::Limit(limit) if domain::takes_some(limit) => limit.input.as_ref(),
            other => other,
        };
        let (rows, keys) = domain.push(subquery)?;
        let keys_only = keys.iter().cloned().map(Expr::Column);
        let mut columns: Vec<Expr> = keys.iter().cloned().map(Expr::Column).collect();
        columns.push(lit(true).alias(&there));
        let rows = LogicalPlanBuilder::from(rows)
            .project(keys_only)?
            .distinct()?
            .project(columns)?
            .build()?;
        self.join(&domain, rows, &keys)?;
        let there = Expr::Column(Column::new_unqualified(there));
        Ok(match negated {
            true => there.is_null(),
            false => there.is_not_null(),
        })
    }

    /// As in Spark, the answer is never null: IN is true where a row is equal, NOT IN where no row might
    /// be.
    fn is_in(&mut self, found: InSubquery) -> Result<Expr> {
        let InSubquery {
            expr,
            subquery,
            negated,
        } = found;
        let plan = subquery.subquery.as_ref();
        // So in Spark, which knows of a NULL that is written there before it looks for rows.
        if is_null(&expr) && !is_correlated(plan) {
            let some = self.exists(plan, false)?;
            return when(some, lit(ScalarValue::Boolean(None))).otherwise(lit(negated));
        }
        let schema = self.input.schema().clone();
        let outer = expr
            .clone()
            .transform_up(|expr| {
                Ok(match expr {
                    Expr::Column(column) => {
                        let field = Arc::clone(schema.field_from_column(&column)?);
                        Transformed::yes(Expr::OuterReferenceColumn(field, column))
                    }
                    other => Transformed::no(other),
                })
            })
            .data()?;
        let Some(column) = plan.schema().columns().into_iter().next() else {
            return plan_err!("a subquery of IN without a column");
        };
        let value = Expr::Column(column);
        let rows = |condition: Expr| {
            LogicalPlanBuilder::from(plan.clone())
                .filter(condition)?
                .build()
        };
        let equal = rows(outer.eq(value.clone()))?;
        if !negated {
            return self.exists(&equal, false);
        }
        let mut none = self.exists(&equal, true)?;
        if plan.schema().field(0).is_nullable() {
            none = none.and(self.exists(&rows(value.is_null())?, true)?);
        }
        if expr.nullable(&schema)? {
            none = none.and(expr.is_not_null().or(self.exists(plan, true)?));
        }
        Ok(none)
    }

    fn scalar(&mut self, subquery: &Subquery) -> Result<Expr> {
        let plan = subquery.subquery.as_ref();
        if !domain::gives_one_row(plan) {
            return plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.MUST_AGGREGATE_CORRELATED_SCALAR_SUBQUERY: a correlated \
                 scalar subquery must be aggregated, so that it gives one row"
            );
        }
        let Some(column) = plan.schema().columns().into_iter().next() else {
            return plan_err!("a scalar subquery without a column");
        };
        let domain = Domain::new(&self.input, plan, self.names)?;
        let (rows, keys) = domain.push(plan)?;
        let value = self.names.next("value");
        let mut columns: Vec<Expr> = keys.iter().cloned().map(Expr::Column).collect();
        columns.push(Expr::Column(column).alias(&value));
        let rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
        self.join(&domain, rows, &keys)?;
        Ok(Expr::Column(Column::new_unqualified(value)))
    }

    fn join(&mut self, domain: &Domain, rows: LogicalPlan, keys: &[Column]) -> Result<()> {
        let input = std::mem::replace(&mut self.input, domain::nothing());
        let condition = domain.is_of_row(keys)?;
        self.input = LogicalPlanBuilder::from(input)
            .join_on(rows, JoinType::Left, vec![condition])?
            .build()?;
        Ok(())
    }
}

/// A join with subqueries in its condition: of an inner one they go into a filter above it, of others into
/// the side whose columns they take.
fn on_subqueries(join: &Join, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let parts = join.filter.iter().flat_map(split_conjunction);
    let (mut kept, asked): (Vec<Expr>, Vec<Expr>) = parts.cloned().partition(is_left);
    let again = |left: LogicalPlan, right: LogicalPlan, parts: Vec<Expr>| {
        Join::try_new(
            Arc::new(left),
            Arc::new(right),
            join.on.clone(),
            parts.into_iter().reduce(Expr::and),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )
        .map(LogicalPlan::Join)
    };
    let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    if join.join_type == JoinType::Inner {
        let Some(predicate) = asked.into_iter().reduce(Expr::and) else {
            return Ok(Transformed::no(LogicalPlan::Join(join.clone())));
        };
        let filter = LogicalPlanBuilder::from(again(left, right, kept)?)
            .filter(predicate)?
            .build()?;
        return Ok(Transformed::yes(node(filter, names)?.data));
    }
    let mut left = Around { input: left, names };
    let mut right = Around {
        input: right,
        names,
    };
    for part in asked {
        let columns = columns_around(&part)?;
        let stands_in = |plan: &LogicalPlan| {
            let schema = plan.schema();
            columns.iter().all(|column| schema.has_column(column))
        };
        kept.push(if stands_in(&left.input) {
            left.expression(part)?
        } else if stands_in(&right.input) {
            right.expression(part)?
        } else {
            return plan_err!(
                "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY: a subquery in the condition of an outer join takes columns \
                 of both sides; ask for it in a subquery of one side"
            );
        });
    }
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let joined = LogicalPlanBuilder::from(again(left.input, right.input, kept)?)
        .project(columns)?
        .build()?;
    Ok(Transformed::yes(joined))
}

/// The columns that an expression takes from the rows around its subqueries, and its own.
fn columns_around(expr: &Expr) -> Result<Vec<Column>> {
    let mut columns = vec![];
    expr.apply(|part| {
        let subquery = match part {
            Expr::Column(column) => {
                columns.push(column.clone());
                None
            }
            Expr::Exists(exists) => Some(&exists.subquery),
            Expr::InSubquery(found) => Some(&found.subquery),
            Expr::ScalarSubquery(subquery) => Some(subquery),
            _ => None,
        };
        // What a LATERAL within takes from what stands beside it is no column from outside.
        let is_plain = |found: &&Subquery| {
            let mut lateral = false;
            let found = found.subquery.apply(|plan| {
                lateral |= matches!(plan, LogicalPlan::Subquery(_));
                Ok(TreeNodeRecursion::Continue)
            });
            found.is_ok() && !lateral
        };
        let subquery = subquery.filter(is_plain);
        for taken in subquery
            .into_iter()
            .flat_map(|found| found.subquery.all_out_ref_exprs())
        {
            if let Expr::OuterReferenceColumn(_, column) = taken {
                columns.push(column);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

/// A join with a subquery that takes columns from the other side.
fn lateral(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let Some(subquery) = lateral_subquery(&join.right) else {
        return Ok(Transformed::no(plan));
    };
    if !is_correlated(&subquery.subquery) {
        // A relation like any other.
        let right = join.right.as_ref().clone().transform_down(|plan| {
            Ok(match plan {
                LogicalPlan::Subquery(subquery) => Transformed::new(
                    Arc::unwrap_or_clone(subquery.subquery),
                    true,
                    TreeNodeRecursion::Stop,
                ),
                other => Transformed::no(other),
            })
        })?;
        let inputs = vec![join.left.as_ref().clone(), right.data];
        return Ok(Transformed::yes(
            plan.with_new_exprs(plan.expressions(), inputs)?,
        ));
    }
    let left_or_inner = matches!(join.join_type, JoinType::Inner | JoinType::Left);
    let pullable = pulls_up(
        subquery,
        PullUpCorrelatedExpr::new().with_need_handle_count_bug(true),
    );
    if pullable || !left_or_inner {
        return Ok(Transformed::no(plan));
    }
    let columns = join.right.schema().columns();
    let domain = Domain::new(&join.left, &join.right, names)?;
    let (rows, keys) = domain.push(&join.right)?;
    let mut conditions = vec![domain.is_of_row(&keys)?];
    conditions.extend(join.filter.clone());
    conditions.extend(
        join.on
            .iter()
            .map(|(left, right)| left.clone().eq(right.clone())),
    );
    let all = join.left.schema().columns().into_iter().chain(columns);
    let all: Vec<Expr> = all.map(Expr::Column).collect();
    let joined = LogicalPlanBuilder::from(join.left.as_ref().clone())
        .join_on(rows, join.join_type, conditions)?
        .project(all)?
        .build()?;
    Ok(Transformed::yes(joined))
}

fn lateral_subquery(plan: &LogicalPlan) -> Option<&Subquery> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => lateral_subquery(&alias.input),
        LogicalPlan::Projection(projection) => lateral_subquery(&projection.input),
        _ => None,
    }
}
