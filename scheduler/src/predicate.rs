//! The predicate of a REPLACE WHERE flow, from its text to a typed filter over the target's columns.
//!
//! What a predicate may be is decided here: boolean, over the target's columns alone, without
//! subqueries and aggregates.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    self, Expr, SelectItem, SetExpr, Spanned, VisitMut, VisitorMut,
};
use windrow_executor::predicate::{NotBoolean, TypedPredicate, plan};
use windrow_flows::definition::{ExprText, QueryText};
use windrow_flows::dialect;
use windrow_flows::fault::Fault;
use windrow_flows::name;
use windrow_flows::types::sql_name;

use crate::bind::fault_words;

/// A predicate, typed, with what the refresh needs to know of it.
#[derive(Debug, Clone)]
pub struct Pinned {
    pub typed: TypedPredicate,
    pub deterministic: bool,
}

/// Types `predicate` over `schema`, the target's columns with the names of queries.
pub fn pin(
    state: &SessionState,
    schema: &SchemaRef,
    table: &str,
    predicate: &ExprText,
    query: &QueryText,
) -> Result<Pinned, Vec<Fault>> {
    let whole = || Some(predicate.place.clone());
    let mut ast = predicate.normalised.clone();
    let mut check = Check {
        schema,
        table,
        predicate,
        query,
        faults: Vec::new(),
        deterministic: true,
    };
    let _ = ast.visit(&mut check);
    let Check {
        faults,
        deterministic,
        ..
    } = check;
    if !faults.is_empty() {
        return Err(faults);
    }
    let faults: Vec<Fault> = dialect::rewrite_expr(&mut ast)
        .into_iter()
        .map(|f| {
            let mut fault = Fault::new(f.code, f.message)
                .hint(f.hint)
                .at(predicate.place_of(f.span).or_else(whole));
            fault.help = f.help;
            fault
        })
        .collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let typed = plan(state, schema, ast)
        .map_err(|e| vec![predicate_fault(&e, schema, table, predicate)])?;
    // A constant that can't be computed would fail at the first file; it fails here, by its name.
    if let Err(error) = try_on_nulls(state, &typed) {
        return Err(vec![predicate_fault(&error, schema, table, predicate)]);
    }
    let deterministic = deterministic && !typed.expr.is_volatile();
    Ok(Pinned {
        typed,
        deterministic,
    })
}

fn try_on_nulls(state: &SessionState, typed: &TypedPredicate) -> Result<(), DataFusionError> {
    use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
    let df_schema = datafusion::common::DFSchema::try_from(typed.schema.as_ref().clone())?;
    let expr = state.create_physical_expr(typed.expr.clone(), &df_schema)?;
    let columns = typed
        .schema
        .fields()
        .iter()
        .map(|f| new_null_array(f.data_type(), 1))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(typed.schema.clone(), columns, &options)?;
    expr.evaluate(&batch).map(|_| ())
}

fn predicate_fault(
    error: &DataFusionError,
    schema: &SchemaRef,
    table: &str,
    predicate: &ExprText,
) -> Fault {
    let place = predicate.place.clone();
    let root = error.find_root();
    if let DataFusionError::External(inner) = root
        && let Some(NotBoolean(data_type)) = inner.downcast_ref::<NotBoolean>()
    {
        return Fault::new(
            "PREDICATE_NOT_BOOLEAN",
            format!(
                "the predicate is {}, but it must be boolean",
                sql_name(data_type)
            ),
        )
        .at(place)
        .help("write a condition, such as date >= date_add(current_date(), -7)");
    }
    if let DataFusionError::SchemaError(inner, _) = root
        && let SchemaError::FieldNotFound { field, .. } = inner.as_ref()
    {
        return column_not_found(&field.name, schema, table).at(place);
    }
    let (code, message) = fault_words(error);
    let code = if matches!(code, "QUERY_NOT_VALID" | "QUERY_FAILED") {
        "PREDICATE_NOT_VALID"
    } else {
        code
    };
    Fault::new(code, message).at(place)
}

fn column_not_found(column: &str, schema: &SchemaRef, table: &str) -> Fault {
    let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    Fault::new(
        "PREDICATE_COLUMN_NOT_FOUND",
        format!("the predicate names `{column}`, which is no column of {table}"),
    )
    .hint(name::did_you_mean(column, known.iter().copied()))
    .help(format!("the target's columns are {}", known.join(", ")))
}

struct Check<'a> {
    schema: &'a SchemaRef,
    table: &'a str,
    predicate: &'a ExprText,
    query: &'a QueryText,
    faults: Vec<Fault>,
    deterministic: bool,
}

impl Check<'_> {
    fn refuse(&mut self, code: &'static str, message: String, expr: &Expr) {
        let place = self
            .predicate
            .place_of(expr.span())
            .or_else(|| Some(self.predicate.place.clone()));
        self.faults.push(
            Fault::new(code, message)
                .at(place)
                .help("the predicate selects rows of the target by their own columns"),
        );
    }

    fn field(&self, column: &str) -> Option<&DataType> {
        self.schema
            .field_with_name(column)
            .ok()
            .map(|f| f.data_type())
    }

    /// `f.date` names the output column `date` when the query takes it from there.
    fn output_of(&self, parts: &[ast::Ident]) -> Result<ast::Ident, String> {
        let Some(last) = parts.last() else {
            return Err("an empty name".into());
        };
        let qualifier = parts.iter().rev().nth(1).map_or("", |q| q.value.as_str());
        let mut relations = Relations::default();
        let _ = ast::Visit::visit(self.query.normalised.as_ref(), &mut relations);
        let known = relations.names.iter().any(|n| n == qualifier)
            || self
                .table
                .rsplit('.')
                .next()
                .is_some_and(|t| name::key(t) == qualifier);
        if !known {
            return Err(format!("the query has no table or alias `{qualifier}`"));
        }
        let mut body = self.query.ast.body.as_ref();
        while let SetExpr::SetOperation { left, .. } = body {
            body = left;
        }
        let SetExpr::Select(select) = body else {
            return Ok(last.clone());
        };
        for item in &select.projection {
            let (expr, output) = match item {
                SelectItem::UnnamedExpr(e @ Expr::CompoundIdentifier(p)) => (e, p.last()),
                SelectItem::UnnamedExpr(e @ Expr::Identifier(i)) => (e, Some(i)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
                _ => continue,
            };
            let is_output = output.is_some_and(|o| name::key(&o.value) == last.value);
            if !is_output {
                continue;
            }
            let same = match expr {
                Expr::CompoundIdentifier(p) => {
                    p.len() == parts.len()
                        && p.iter()
                            .zip(parts)
                            .all(|(a, b)| name::key(&a.value) == b.value)
                }
                // A name without a table may come from anywhere.
                Expr::Identifier(i) => name::key(&i.value) == last.value,
                _ => false,
            };
            return if same {
                Ok(last.clone())
            } else {
                Err(format!("the output column `{}` is {expr}", last.value))
            };
        }
        Ok(last.clone())
    }
}

/// The names under which a query knows its tables.
#[derive(Default)]
struct Relations {
    names: Vec<String>,
}

impl ast::Visitor for Relations {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        let alias = match factor {
            ast::TableFactor::Table { name, alias, .. } => {
                let last = name.0.last().and_then(|p| p.as_ident());
                self.names.extend(last.map(|i| i.value.clone()));
                alias
            }
            ast::TableFactor::Derived { alias, .. } => alias,
            _ => return ControlFlow::Continue(()),
        };
        self.names
            .extend(alias.as_ref().map(|a| a.name.value.clone()));
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Check<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                let shown = expr.clone();
                self.refuse(
                    "PREDICATE_SUBQUERY",
                    format!(
                        "the predicate of `{}` has a subquery, which it may not",
                        self.table
                    ),
                    &shown,
                );
                return ControlFlow::Break(());
            }
            Expr::Function(f) => {
                let called = f.name.to_string();
                let shown = Expr::Function(f.clone());
                if f.over.is_some() {
                    self.refuse(
                        "PREDICATE_WINDOW_FUNCTION",
                        format!("the predicate of `{}` has the window function {called}, which it may not", self.table),
                        &shown,
                    );
                } else if dialect::is_aggregate(&called) {
                    self.refuse(
                        "PREDICATE_AGGREGATE",
                        format!(
                            "the predicate of `{}` has the aggregate {called}, which it may not",
                            self.table
                        ),
                        &shown,
                    );
                }
                self.deterministic &= !dialect::is_nondeterministic(&called);
            }
            Expr::Identifier(i)
                if self.field(&i.value).is_none() && !dialect::is_temporal(&i.value) =>
            {
                let place = self.predicate.place_of(i.span);
                let fault = column_not_found(&i.value, self.schema, self.table)
                    .at(place.or_else(|| Some(self.predicate.place.clone())));
                self.faults.push(fault);
            }
            Expr::CompoundIdentifier(parts) => {
                let is_struct = parts
                    .first()
                    .is_some_and(|p| matches!(self.field(&p.value), Some(DataType::Struct(_))));
                if is_struct {
                    return ControlFlow::Continue(());
                }
                let shown = Expr::CompoundIdentifier(parts.clone());
                match self.output_of(parts) {
                    Ok(last) if self.field(&last.value).is_some() => *expr = Expr::Identifier(last),
                    Ok(last) => {
                        let place = self.predicate.place_of(shown.span());
                        let fault = column_not_found(&last.value, self.schema, self.table)
                            .at(place.or_else(|| Some(self.predicate.place.clone())));
                        self.faults.push(fault);
                    }
                    Err(why) => self.refuse(
                        "PREDICATE_COLUMN_NOT_FOUND",
                        format!("the predicate names `{shown}`, but {why}"),
                        &shown,
                    ),
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
