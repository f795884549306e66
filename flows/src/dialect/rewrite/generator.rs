//! Functions that make several rows of one (`explode` and its kin), and the table forms that come
//! down to them: LATERAL VIEW, a generator in a SELECT list, LATERAL and table functions, UNPIVOT.
//! PIVOT is made ready here as well.
//!
//! All generators become one table factor, which the engine's relation planner knows: a PIVOT with
//! a DEFAULT, which no Spark query can have. Its parts are
//!
//! | part | holds |
//! | --- | --- |
//! | table | the rows the generator is applied to |
//! | aggregate functions | the generator's call, then perhaps a condition on the rows it makes |
//! | value columns | columns that the result leaves out |
//! | default | whether a row for which there is nothing is kept (OUTER) |
//! | alias | the name of the generated columns |

use std::ops::ControlFlow;

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint,
    JoinOperator, NullInclusion, ObjectName, PivotValueSource, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Value, Visit, Visitor, WildcardAdditionalOptions,
};
use sqlparser::tokenizer::Span;

use super::Rewriter;
use super::expression::{call, infix};
use crate::dialect::catalog::{self, Kind};
use crate::dialect::{literal, naming};

/// What generated columns of a SELECT list are called as a relation.
const GENERATED: &str = "__windrow_generated";

/// A relation of one row, and its column.
const ONE_ROW: &str = "__windrow_one";
const ONE_COLUMN: &str = "__windrow_row";

/// A generator's own name, and whether rows without a result are kept.
fn internal_name(name: &str) -> Option<(&'static str, bool)> {
    Some(match name {
        "explode" => ("spark_explode", false),
        "explode_outer" => ("spark_explode", true),
        "posexplode" => ("spark_posexplode", false),
        "posexplode_outer" => ("spark_posexplode", true),
        "inline" => ("spark_inline", false),
        "inline_outer" => ("spark_inline", true),
        "stack" => ("spark_stack", false),
        "json_tuple" => ("spark_json_tuple", false),
        "range" => ("spark_range", false),
        _ => return None,
    })
}

/// Whether a call has been made ready here already.
pub(super) fn is_internal(name: &str) -> bool {
    matches!(
        name,
        "spark_explode"
            | "spark_posexplode"
            | "spark_inline"
            | "spark_stack"
            | "spark_json_tuple"
            | "spark_range"
    )
}

fn generator(expr: &Expr) -> Option<(&Function, &'static str, bool)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let name = function.name.to_string().to_lowercase();
    let is_generator = catalog::kind(&name) == Some(Kind::Generator);
    let (internal, outer) = internal_name(&name).filter(|_| is_generator)?;
    Some((function, internal, outer))
}

/// The parts of a generator's table factor.
struct Generation {
    call: Expr,
    condition: Option<Expr>,
    left_out: Vec<Expr>,
    outer: bool,
    alias: TableAlias,
}

impl Generation {
    fn over(mut self, table: TableFactor) -> TableFactor {
        if matches!(&table, TableFactor::Derived { alias: Some(alias), .. } if alias.name.value == ONE_ROW)
        {
            let column = [ONE_ROW, ONE_COLUMN].map(Ident::new).to_vec();
            self.left_out.push(Expr::CompoundIdentifier(column));
        }
        let plain = |expr| ExprWithAlias { expr, alias: None };
        TableFactor::Pivot {
            table: Box::new(table),
            aggregate_functions: std::iter::once(self.call)
                .chain(self.condition)
                .map(plain)
                .collect(),
            value_column: self.left_out,
            value_source: PivotValueSource::Any(vec![]),
            default_on_null: Some(Expr::value(Value::Boolean(self.outer))),
            alias: Some(self.alias),
        }
    }
}

fn alias(name: Ident, columns: Vec<Ident>) -> TableAlias {
    TableAlias {
        explicit: true,
        name,
        columns: columns.into_iter().map(column_definition).collect(),
        at: None,
    }
}

fn column_definition(name: Ident) -> TableAliasColumnDef {
    TableAliasColumnDef {
        name,
        data_type: None,
    }
}

/// `(a, b) IN (SELECT c, d ...)` as the question whether there is a row with these values, NOT IN
/// whether there is none that might have them.
pub(super) fn row_in_subquery(left: &[Expr], subquery: &Query, negated: bool) -> Expr {
    const ROWS: &str = "__windrow_in";
    let column = |at: usize| Ident::new(format!("__windrow_in{at}"));
    let mut select = empty_select();
    select.projection.push(SelectItem::ExprWithAlias {
        expr: Expr::value(Value::Boolean(true)),
        alias: Ident::new(ONE_COLUMN),
    });
    select.from.push(single(TableFactor::Derived {
        lateral: false,
        subquery: Box::new(subquery.clone()),
        alias: Some(alias(
            Ident::new(ROWS),
            (0..left.len()).map(column).collect(),
        )),
        sample: None,
    }));
    select.selection = left
        .iter()
        .enumerate()
        .map(|(at, value)| {
            let found = Expr::CompoundIdentifier(vec![Ident::new(ROWS), column(at)]);
            infix(found, sqlparser::ast::BinaryOperator::Eq, value.clone())
        })
        .reduce(|one, other| infix(one, sqlparser::ast::BinaryOperator::And, other))
        .map(|equal| match negated {
            true => Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(equal)))),
            false => equal,
        });
    Expr::Exists {
        subquery: Box::new(query_of(select)),
        negated,
    }
}

fn empty_select() -> Select {
    Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        select_modifiers: None,
        distinct: None,
        top: None,
        top_before_distinct: false,
        projection: vec![],
        exclude: None,
        into: None,
        from: vec![],
        lateral_views: vec![],
        prewhere: None,
        selection: None,
        connect_by: vec![],
        group_by: sqlparser::ast::GroupByExpr::Expressions(vec![], vec![]),
        cluster_by: vec![],
        distribute_by: vec![],
        sort_by: vec![],
        having: None,
        named_window: vec![],
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: sqlparser::ast::SelectFlavor::Standard,
    }
}

/// A relation of one row.
fn one_row() -> TableFactor {
    let mut select = empty_select();
    select.projection.push(SelectItem::ExprWithAlias {
        expr: Expr::value(Value::Boolean(true)),
        alias: Ident::new(ONE_COLUMN),
    });
    TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query_of(select)),
        alias: Some(alias(Ident::new(ONE_ROW), vec![])),
        sample: None,
    }
}

fn query_of(select: Select) -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}

/// All relations of a FROM clause as one.
fn whole_from(from: &mut Vec<TableWithJoins>) -> TableFactor {
    let mut parts = std::mem::take(from).into_iter();
    let Some(mut first) = parts.next() else {
        return one_row();
    };
    for part in parts {
        let relation = match part.joins.is_empty() {
            true => part.relation,
            false => nested(part),
        };
        first.joins.push(Join {
            relation,
            global: false,
            join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
        });
    }
    match first.joins.is_empty() {
        true => first.relation,
        false => nested(first),
    }
}

fn nested(table_with_joins: TableWithJoins) -> TableFactor {
    TableFactor::NestedJoin {
        table_with_joins: Box::new(table_with_joins),
        alias: None,
    }
}

impl Rewriter {
    /// Moves LATERAL VIEWs, lateral table functions and generators of the SELECT list into FROM.
    pub(super) fn generators(&mut self, select: &mut Select) {
        self.lateral_functions(select);
        for view in std::mem::take(&mut select.lateral_views) {
            let span = view.lateral_view.span();
            let name = match view.lateral_view_name.0.as_slice() {
                [part] => part.as_ident().cloned(),
                _ => None,
            };
            let Some(name) = name else {
                self.refuse("a LATERAL VIEW with a name of several parts", span, None);
                continue;
            };
            let table = whole_from(&mut select.from);
            let alias = alias(name, view.lateral_col_alias);
            if let Some(made) = self.generation(view.lateral_view, alias, view.outer) {
                select.from = vec![single(made.over(table))];
            }
        }
        for number in 0.. {
            if !self.select_list(select, number) {
                break;
            }
        }
    }

    /// Checks a generator's call and gives it its internal name.
    fn generation(&mut self, expr: Expr, alias: TableAlias, outer: bool) -> Option<Generation> {
        let span = expr.span();
        let Some((function, internal, own_outer)) = generator(&expr) else {
            let message = format!("{expr} makes no rows; explode, posexplode, inline or stack do");
            self.fault("UNSUPPORTED_GENERATOR", message, span, None);
            return None;
        };
        let mut function = function.clone();
        self.check_function(&mut function);
        function.name = ObjectName::from(vec![Ident::with_span(span, internal)]);
        if internal == "spark_stack"
            && let sqlparser::ast::FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(rows))) = list.args.first_mut()
            && let Expr::Value(value) = &*rows
        {
            *rows = literal::string(value.value.to_string());
        }
        Some(Generation {
            call: Expr::Function(function),
            condition: None,
            left_out: vec![],
            outer: outer || own_outer,
            alias,
        })
    }

    /// `FROM t, LATERAL explode(t.list) e(x)` and `FROM explode(...)`.
    fn lateral_functions(&mut self, select: &mut Select) {
        let mut done: Vec<TableWithJoins> = vec![];
        for mut from in std::mem::take(&mut select.from) {
            if let Some(made) = self.table_function(&mut from.relation) {
                let table = whole_from(&mut done);
                from.relation = made.over(table);
                done = vec![];
            }
            let mut joined = TableWithJoins {
                relation: from.relation,
                joins: vec![],
            };
            for mut join in from.joins {
                let made = match &join.join_operator {
                    JoinOperator::CrossJoin(_)
                    | JoinOperator::Join(JoinConstraint::None)
                    | JoinOperator::Inner(JoinConstraint::None) => {
                        self.table_function(&mut join.relation)
                    }
                    _ => None,
                };
                match made {
                    Some(made) => {
                        let table = whole_from(&mut vec![joined]);
                        joined = single(made.over(table));
                    }
                    None => joined.joins.push(join),
                }
            }
            done.push(joined);
        }
        select.from = done;
    }

    fn table_function(&mut self, factor: &mut TableFactor) -> Option<Generation> {
        let (name, args, alias_of) = match factor {
            TableFactor::Table {
                name,
                args: Some(args),
                alias,
                ..
            } => (name, &args.args, alias),
            TableFactor::Function {
                name, args, alias, ..
            } => (name, &*args, alias),
            _ => return None,
        };
        let function = name.to_string().to_lowercase();
        internal_name(&function)?;
        let args: Vec<Expr> = args
            .iter()
            .filter_map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect();
        let mut table_alias = match alias_of {
            Some(alias) => alias.clone(),
            None => alias(Ident::new(function.clone()), vec![]),
        };
        if function == "range" && table_alias.columns.is_empty() {
            table_alias.columns = vec![column_definition(Ident::new("id"))];
        }
        let mut call = call(&function, args);
        if let Expr::Function(function) = &mut call {
            function.name = name.clone();
        }
        self.generation(call, table_alias, false)
    }

    /// Moves the first generator of a SELECT list into FROM; whether there was one.
    fn select_list(&mut self, select: &mut Select, number: usize) -> bool {
        let found = select.projection.iter().position(|item| match item {
            SelectItem::UnnamedExpr(expr)
            | SelectItem::ExprWithAlias { expr, .. }
            | SelectItem::ExprWithAliases { expr, .. } => generator(expr).is_some(),
            _ => false,
        });
        let Some(at) = found else { return false };
        let (expr, columns) = match &select.projection[at] {
            SelectItem::UnnamedExpr(expr) => (expr.clone(), vec![]),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), vec![alias.clone()]),
            SelectItem::ExprWithAliases { expr, aliases } => (expr.clone(), aliases.clone()),
            _ => return false,
        };
        let span = expr.span();
        if !plain_select(select) {
            let help = "make the rows in a subquery, and group or number them outside";
            let what = "a generator beside aggregates, window functions or GROUP BY";
            self.refuse(what, span, Some(help));
            return false;
        }
        if !self.qualify_wildcards(select, span) {
            return false;
        }
        let name = Ident::with_span(span, format!("{GENERATED}{number}"));
        let items = match columns.as_slice() {
            [] => vec![SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name.clone()])),
                WildcardAdditionalOptions::default(),
            )],
            columns => columns
                .iter()
                .map(|column| SelectItem::ExprWithAlias {
                    expr: Expr::CompoundIdentifier(vec![name.clone(), column.clone()]),
                    alias: column.clone(),
                })
                .collect(),
        };
        select.projection.splice(at..=at, items);
        let alias = alias(name, columns);
        if let Some(made) = self.generation(expr, alias, false) {
            let table = whole_from(&mut select.from);
            select.from = vec![single(made.over(table))];
        }
        true
    }

    /// `*` beside a generator means the columns of the relations that were written.
    fn qualify_wildcards(&mut self, select: &mut Select, span: Span) -> bool {
        if !select
            .projection
            .iter()
            .any(|item| matches!(item, SelectItem::Wildcard(_)))
        {
            return true;
        }
        let mut names = vec![];
        let known = select
            .from
            .iter()
            .all(|from| relation_names(from, &mut names));
        if !known {
            let help = "name the columns, or make the rows in a subquery";
            self.refuse("* beside a generator over such a join", span, Some(help));
            return false;
        }
        let items = std::mem::take(&mut select.projection);
        for item in items {
            match item {
                SelectItem::Wildcard(options) => {
                    select.projection.extend(names.iter().map(|name| {
                        SelectItem::QualifiedWildcard(
                            SelectItemQualifiedWildcardKind::ObjectName(name.clone()),
                            options.clone(),
                        )
                    }));
                }
                other => select.projection.push(other),
            }
        }
        true
    }

    /// The columns of VALUES without names are called col1, col2 and so on.
    pub(super) fn name_values(&mut self, factor: &mut TableFactor) {
        let TableFactor::Derived {
            subquery,
            alias: named,
            ..
        } = factor
        else {
            return;
        };
        let SetExpr::Values(values) = subquery.body.as_ref() else {
            return;
        };
        let width = values.rows.first().map_or(0, |row| row.len());
        let columns = (1..=width)
            .map(|at| Ident::new(format!("col{at}")))
            .collect();
        match named {
            None => *named = Some(alias(Ident::new("__windrow_values"), columns)),
            Some(found) if found.columns.is_empty() => {
                *found = alias(found.name.clone(), columns);
            }
            Some(_) => {}
        }
    }

    /// Makes PIVOT and UNPIVOT ready for the relation planner.
    pub(super) fn pivots(&mut self, factor: &mut TableFactor) {
        let span = factor.span();
        match factor {
            // Made here.
            TableFactor::Pivot {
                default_on_null: Some(_),
                value_source: PivotValueSource::Any(_),
                ..
            } => {}
            TableFactor::Pivot {
                aggregate_functions,
                value_column,
                value_source: PivotValueSource::List(values),
                default_on_null: None,
                ..
            } => {
                name_pivot_columns(aggregate_functions, values);
                let wrong = values
                    .iter_mut()
                    .any(|value| !into_condition(value, value_column));
                if wrong {
                    self.refuse("PIVOT with lists of unlike length", span, None);
                }
            }
            TableFactor::Pivot { .. } => {
                self.refuse(
                    "PIVOT without a list of values",
                    span,
                    Some("name the values"),
                );
            }
            TableFactor::Unpivot { .. } => self.unpivot(factor, span),
            _ => {}
        }
    }

    fn unpivot(&mut self, factor: &mut TableFactor, span: Span) {
        let TableFactor::Unpivot {
            table,
            value,
            name,
            columns,
            null_inclusion,
            alias: result,
        } = factor
        else {
            return;
        };
        let members = |expr: &Expr| match expr {
            Expr::Tuple(parts) => parts.clone(),
            Expr::Nested(inner) => vec![inner.as_ref().clone()],
            other => vec![other.clone()],
        };
        let values: Vec<Ident> = members(value)
            .iter()
            .filter_map(|value| match value {
                Expr::Identifier(ident) => Some(ident.clone()),
                _ => None,
            })
            .collect();
        let mut rows = vec![];
        let mut left_out = vec![];
        for column in columns.iter() {
            let parts = members(&column.expr);
            if parts.len() != values.len() || values.is_empty() {
                return self.refuse("UNPIVOT with lists of unlike length", span, None);
            }
            let label = match &column.alias {
                Some(alias) => alias.value.clone(),
                None => parts
                    .iter()
                    .map(naming::column_name)
                    .collect::<Vec<_>>()
                    .join("_"),
            };
            let mut fields = vec![literal::string(name.value.clone()), literal::string(label)];
            for (value, part) in values.iter().zip(&parts) {
                fields.push(literal::string(value.value.clone()));
                fields.push(part.clone());
            }
            rows.push(call("named_struct", fields));
            left_out.extend(parts);
        }
        let any_set = values
            .iter()
            .map(|value| Expr::IsNotNull(Box::new(Expr::Identifier(value.clone()))))
            .reduce(|one, other| infix(one, sqlparser::ast::BinaryOperator::Or, other));
        let keeps_nulls = matches!(null_inclusion, Some(NullInclusion::IncludeNulls));
        let generation = Generation {
            call: call("spark_inline", vec![call("array", rows)]),
            condition: any_set.filter(|_| !keeps_nulls),
            left_out,
            outer: false,
            alias: alias(
                Ident::new("__windrow_unpivot"),
                std::iter::once(name.clone()).chain(values).collect(),
            ),
        };
        let table = std::mem::replace(table.as_mut(), one_row());
        let made = generation.over(table);
        *factor = match result.take() {
            None => made,
            Some(alias) => TableFactor::NestedJoin {
                table_with_joins: Box::new(single(made)),
                alias: Some(alias),
            },
        };
    }
}

fn single(relation: TableFactor) -> TableWithJoins {
    TableWithJoins {
        relation,
        joins: vec![],
    }
}

/// Whether a SELECT neither groups nor numbers rows, so that its generator may come first.
fn plain_select(select: &Select) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function)
                    if function.over.is_some()
                        || super::super::is_aggregate(&function.name.to_string()) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let groups = match &select.group_by {
        sqlparser::ast::GroupByExpr::All(_) => true,
        sqlparser::ast::GroupByExpr::Expressions(exprs, modifiers) => {
            !exprs.is_empty() || !modifiers.is_empty()
        }
    };
    !groups
        && select.having.is_none()
        && select.qualify.is_none()
        && select.projection.visit(&mut Finder).is_continue()
}

/// The names under which the columns of a FROM item are known; false if `*` means something else.
fn relation_names(from: &TableWithJoins, names: &mut Vec<ObjectName>) -> bool {
    let plain_joins = from.joins.iter().all(|join| {
        let constraint = match &join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint) => constraint,
            _ => return false,
        };
        matches!(constraint, JoinConstraint::On(_) | JoinConstraint::None)
    });
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
    plain_joins
        && factors
            .into_iter()
            .all(|factor| factor_names(factor, names))
}

fn factor_names(factor: &TableFactor, names: &mut Vec<ObjectName>) -> bool {
    match factor {
        TableFactor::Table { name, alias, .. } => {
            names.push(match alias {
                Some(alias) => ObjectName::from(vec![alias.name.clone()]),
                None => name.clone(),
            });
            true
        }
        TableFactor::Derived {
            alias: Some(alias), ..
        } => {
            names.push(ObjectName::from(vec![alias.name.clone()]));
            true
        }
        TableFactor::Pivot {
            table,
            default_on_null: Some(_),
            alias: Some(alias),
            ..
        } => {
            let known = factor_names(table, names);
            names.push(ObjectName::from(vec![alias.name.clone()]));
            known
        }
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => relation_names(table_with_joins, names),
        _ => false,
    }
}

/// Spark names a pivoted column by its value, and by the aggregate if there are several.
fn name_pivot_columns(aggregates: &mut [ExprWithAlias], values: &mut [ExprWithAlias]) {
    for value in values.iter_mut() {
        if value.alias.is_none() {
            let name = match &value.expr {
                Expr::Tuple(parts) => {
                    let names: Vec<String> = parts.iter().map(naming::column_name).collect();
                    names.join("_")
                }
                other => naming::column_name(other),
            };
            value.alias = Some(Ident::new(match name.as_str() {
                "NULL" => "null",
                name => name,
            }));
        }
    }
    if aggregates.len() == 1 {
        aggregates[0].alias = None;
        return;
    }
    for aggregate in aggregates {
        if aggregate.alias.is_none() {
            aggregate.alias = Some(Ident::new(naming::column_name(&aggregate.expr)));
        }
    }
}

/// Makes of a value the condition that picks its rows.
fn into_condition(value: &mut ExprWithAlias, columns: &[Expr]) -> bool {
    let parts = match &value.expr {
        Expr::Tuple(parts) => parts.clone(),
        other => vec![other.clone()],
    };
    if parts.len() != columns.len() {
        return false;
    }
    let condition = columns
        .iter()
        .zip(parts)
        .map(|(column, part)| {
            infix(
                column.clone(),
                sqlparser::ast::BinaryOperator::Spaceship,
                part,
            )
        })
        .reduce(|one, other| infix(one, sqlparser::ast::BinaryOperator::And, other));
    match condition {
        Some(condition) => {
            value.expr = condition;
            true
        }
        None => false,
    }
}
