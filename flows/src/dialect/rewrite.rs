//! The walk over a query: names columns, checks functions against the catalogue, and rewrites
//! each form on the way back up.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, GroupByWithModifier, Ident, JoinOperator, LimitClause,
    OrderByExpr, OrderByKind, PivotValueSource, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, Spanned, TableFactor, TableWithJoins, Value, VisitorMut, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use sqlparser::tokenizer::Span;

use super::{DialectFault, literal, naming};

mod collection;
mod expression;
mod function;
mod generator;
mod interval;
mod using;

/// Rewrites what it visits and gathers what it has to refuse.
#[derive(Default)]
pub(super) struct Rewriter {
    faults: Vec<DialectFault>,
}

impl Rewriter {
    pub(super) fn into_faults(self) -> Vec<DialectFault> {
        self.faults
    }

    fn refuse(&mut self, what: &str, span: Span, help: Option<&str>) {
        self.fault(
            "SYNTAX_NOT_AVAILABLE",
            format!("{what} is not available"),
            span,
            help,
        );
    }

    fn fault(&mut self, code: &'static str, message: String, span: Span, help: Option<&str>) {
        let fault = DialectFault {
            code,
            message,
            hint: None,
            help: help.map(Into::into),
            span,
        };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn set_expr(&mut self, body: &mut SetExpr, span: Span) {
        match body {
            SetExpr::SetOperation {
                left,
                op,
                set_quantifier,
                right,
            } => {
                if *op == SetOperator::Minus {
                    *op = SetOperator::Except;
                }
                let by_name = matches!(
                    set_quantifier,
                    SetQuantifier::ByName
                        | SetQuantifier::AllByName
                        | SetQuantifier::DistinctByName
                );
                if by_name {
                    let help = "name the columns in the same order on both sides";
                    self.refuse("UNION BY NAME", span, Some(help));
                }
                self.set_expr(left, span);
                self.set_expr(right, span);
            }
            SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => {}
            _ => self.refuse("this statement within a query", span, None),
        }
    }

    fn select_clauses(&mut self, select: &mut Select) {
        let span = select.select_token.0.span;
        let clauses = [
            (select.top.is_some(), "TOP"),
            (select.into.is_some(), "SELECT INTO"),
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.cluster_by.is_empty(), "CLUSTER BY in a query"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
            (!select.sort_by.is_empty(), "SORT BY"),
            (select.value_table_mode.is_some(), "SELECT AS STRUCT"),
            (
                matches!(select.distinct, Some(Distinct::On(_))),
                "DISTINCT ON",
            ),
        ];
        for (present, name) in clauses {
            if present {
                self.refuse(name, span, None);
            }
        }
        self.group_by_with(select, span);
        for from in &mut select.from {
            self.joins(from, span);
        }
        for (name, key, span) in using::keys_of_sides(select) {
            let help = format!("write `{key}` without the name of a table, or a join with ON");
            let what = format!("`{name}.{key}` of a RIGHT or FULL join USING");
            self.refuse(&what, span, Some(&help));
        }
    }

    fn joins(&mut self, from: &mut TableWithJoins, span: Span) {
        for join in &from.joins {
            if matches!(
                join.join_operator,
                JoinOperator::AsOf { .. } | JoinOperator::CrossApply | JoinOperator::OuterApply
            ) {
                self.refuse("this kind of join", span, None);
            }
        }
        using::enclose(from);
    }

    /// `GROUP BY a, b WITH ROLLUP` and `WITH CUBE`.
    fn group_by_with(&mut self, select: &mut Select, span: Span) {
        let (exprs, modifiers) = match &mut select.group_by {
            GroupByExpr::All(modifiers) if modifiers.is_empty() => return,
            GroupByExpr::Expressions(exprs, modifiers) => (exprs, modifiers),
            GroupByExpr::All(_) => return self.refuse("GROUP BY ALL WITH", span, None),
        };
        let sets = |exprs: &mut Vec<Expr>| -> Vec<Vec<Expr>> {
            std::mem::take(exprs).into_iter().map(|e| vec![e]).collect()
        };
        match modifiers.as_slice() {
            [] => return,
            [GroupByWithModifier::Rollup] => *exprs = vec![Expr::Rollup(sets(exprs))],
            [GroupByWithModifier::Cube] => *exprs = vec![Expr::Cube(sets(exprs))],
            _ => return self.refuse("GROUP BY ... WITH", span, None),
        }
        modifiers.clear();
    }

    fn name_columns(&mut self, select: &mut Select) {
        let mut taken = HashSet::new();
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::Identifier(ident))
                    if literal::identifier(ident, false).is_none() => {}
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(_)) => {}
                SelectItem::UnnamedExpr(Expr::Wildcard(_) | Expr::QualifiedWildcard(..)) => {}
                SelectItem::UnnamedExpr(expr) => {
                    let name = naming::column_name(expr);
                    let mut alias = name.clone();
                    let mut count = 1;
                    while !taken.insert(alias.clone()) {
                        count += 1;
                        alias = format!("{name}_{count}");
                    }
                    let alias = Ident::with_span(expr.span(), alias);
                    let expr = std::mem::replace(expr, Expr::value(sqlparser::ast::Value::Null));
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
                SelectItem::ExprWithAlias { alias, .. } => {
                    taken.insert(alias.value.clone());
                }
                SelectItem::ExprWithAliases { expr, .. } => {
                    let span = expr.span();
                    self.refuse("a list of aliases", span, None);
                }
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {}
            }
        }
    }

    /// `OVER (w)` is `OVER w`; a window that adds to a named one is none of Spark's.
    fn over(&mut self, over: &mut Option<WindowType>, span: Span) {
        let Some(WindowType::WindowSpec(window)) = over else {
            return;
        };
        let alone = window.partition_by.is_empty()
            && window.order_by.is_empty()
            && window.window_frame.is_none();
        match window.window_name.take() {
            Some(name) if alone => *over = Some(WindowType::NamedWindow(name)),
            Some(_) => self.refuse("a window that adds to a named one", span, None),
            None => self.window(window, span),
        }
    }

    fn window(&mut self, window: &mut WindowSpec, span: Span) {
        window.order_by.iter_mut().for_each(spark_null_order);
        // The engine has another default where it believes that no rows are equal.
        if window.window_frame.is_none() && !window.order_by.is_empty() {
            window.window_frame = Some(WindowFrame {
                units: WindowFrameUnits::Range,
                start_bound: WindowFrameBound::Preceding(None),
                end_bound: Some(WindowFrameBound::CurrentRow),
            });
        }
        if let Some(WindowFrame {
            units,
            start_bound,
            end_bound,
        }) = &mut window.window_frame
        {
            for bound in [Some(start_bound), end_bound.as_mut()]
                .into_iter()
                .flatten()
            {
                if let WindowFrameBound::Preceding(Some(width))
                | WindowFrameBound::Following(Some(width)) = bound
                {
                    literal::untype(width);
                    literal::untype_fraction(width);
                    interval::plain(width);
                }
            }
            if *units == WindowFrameUnits::Groups {
                self.refuse("a GROUPS frame", span, Some("use ROWS"));
            }
        }
    }
}

/// How many columns a query's SELECT list has; `None` if it has a `*`.
fn ordinals(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let plain = |item: &SelectItem| {
                !matches!(
                    item,
                    SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
                )
            };
            let all_plain = select.projection.iter().all(plain);
            all_plain.then_some(select.projection.len())
        }
        SetExpr::SetOperation { left, .. } => ordinals(left),
        SetExpr::Query(query) => ordinals(&query.body),
        SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        _ => None,
    }
}

/// Spark puts nulls first ascending and last descending.
fn spark_null_order(order: &mut OrderByExpr) {
    if order.options.nulls_first.is_none() {
        order.options.nulls_first = Some(order.options.asc.unwrap_or(true));
    }
}

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let span = query.span();
        self.set_expr(&mut query.body, span);
        let clauses = [
            (!query.locks.is_empty(), "FOR UPDATE"),
            (query.for_clause.is_some(), "FOR"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
            (!query.pipe_operators.is_empty(), "|>"),
            (
                query.with.as_ref().is_some_and(|with| with.recursive),
                "WITH RECURSIVE",
            ),
        ];
        for (present, name) in clauses {
            if present {
                self.refuse(name, span, None);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order_by) = &mut query.order_by {
            match &mut order_by.kind {
                OrderByKind::Expressions(orders) => {
                    for order in orders {
                        literal::untype(&mut order.expr);
                        spark_null_order(order);
                    }
                }
                OrderByKind::All(options) => match ordinals(&query.body) {
                    Some(count) => {
                        let orders = (1..=count).map(|position| {
                            let mut order = OrderByExpr {
                                expr: Expr::value(Value::Number(position.to_string(), false)),
                                options: *options,
                                with_fill: None,
                            };
                            spark_null_order(&mut order);
                            order
                        });
                        order_by.kind = OrderByKind::Expressions(orders.collect());
                    }
                    None => self.refuse("ORDER BY ALL with *", query.body.span(), None),
                },
            }
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                limit.iter_mut().for_each(literal::untype);
                offset
                    .iter_mut()
                    .for_each(|offset| literal::untype(&mut offset.value));
                // LIMIT ALL
                if matches!(limit, Some(Expr::Identifier(ident)) if ident.value.eq_ignore_ascii_case("all"))
                {
                    *limit = None;
                }
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => {
                self.refuse(
                    "LIMIT offset, count",
                    query.body.span(),
                    Some("write LIMIT ... OFFSET ..."),
                );
            }
            None => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.generators(select);
        self.select_clauses(select);
        self.name_columns(select);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            exprs.iter_mut().for_each(literal::untype);
        }
        for definition in &mut select.named_window {
            if let sqlparser::ast::NamedWindowExpr::WindowSpec(window) = &mut definition.1 {
                let span = definition.0.span;
                self.window(window, span);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.name_values(factor);
        self.pivots(factor);
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            using::enclose_before_last(table_with_joins);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let span = factor.span();
        match factor {
            TableFactor::Table {
                args,
                version,
                sample,
                ..
            } => {
                if sample.is_some() {
                    self.refuse("TABLESAMPLE", span, None);
                }
                for arg in args.iter_mut().flat_map(|args| &mut args.args) {
                    function::untype_arg(arg);
                }
                if let Some(sqlparser::ast::TableVersion::VersionAsOf(expr)) = version {
                    literal::untype(expr);
                }
            }
            TableFactor::Function { args, .. } => args.iter_mut().for_each(function::untype_arg),
            TableFactor::Derived {
                sample: Some(_), ..
            } => self.refuse("TABLESAMPLE", span, None),
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => {}
            TableFactor::Pivot {
                value_source: PivotValueSource::Subquery(_),
                ..
            } => self.refuse("PIVOT without a list of values", span, None),
            TableFactor::Pivot { .. } => {}
            _ => self.refuse("this kind of table expression", span, None),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.before_expression(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.after_expression(expr);
        ControlFlow::Continue(())
    }
}
