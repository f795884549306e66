//! Predicates over a table's columns: planned, typed, and simplified with the pinned clock.
//!
//! One value yields both halves of a window: the filter of the query and the condition under which
//! rows of the target go.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit, not};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::sql::sqlparser::ast;
use windrow_delta::prune::FilePredicate;

use crate::scan::PlannedTable;
use crate::spark::ColumnBounds;

/// A boolean expression over the columns of `schema`, typed and simplified.
#[derive(Debug, Clone)]
pub struct TypedPredicate {
    pub schema: SchemaRef,
    pub expr: Expr,
}

/// Plans `ast` (normalised and rewritten) over `schema`.
///
/// # Errors
/// An unknown column or function, or a type that is not boolean ([`NotBoolean`]).
pub fn plan(state: &SessionState, schema: &SchemaRef, ast: ast::Expr) -> Result<TypedPredicate> {
    let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
    let expr = state.create_logical_expr_from_sql_expr(
        ast::ExprWithAlias {
            expr: ast,
            alias: None,
        },
        &df_schema,
    )?;
    typed(state, schema, expr)
}

/// Types and simplifies a planned expression.
pub fn typed(state: &SessionState, schema: &SchemaRef, expr: Expr) -> Result<TypedPredicate> {
    let expr = simplified(state, schema, expr)?;
    Ok(TypedPredicate {
        schema: schema.clone(),
        expr,
    })
}

/// The predicate's type is not boolean.
#[derive(Debug, thiserror::Error)]
#[error("the predicate is {0}, not boolean")]
pub struct NotBoolean(pub DataType);

impl TypedPredicate {
    /// Ready to be held against the log.
    pub fn for_files(&self, state: &SessionState) -> Result<FilePredicate> {
        let df_schema = DFSchema::try_from(self.schema.as_ref().clone())?;
        let fails = simplified(state, &self.schema, not(self.expr.clone()))?;
        Ok(FilePredicate {
            schema: self.schema.clone(),
            holds: state.create_physical_expr(self.expr.clone(), &df_schema)?,
            fails: state.create_physical_expr(fails, &df_schema)?,
        })
    }

    pub fn is_true(&self) -> bool {
        self.expr == lit(true)
    }
}

/// Runs the analyzer and the simplifier on a filter over nothing but columns.
fn simplified(state: &SessionState, schema: &SchemaRef, expr: Expr) -> Result<Expr> {
    let provider: Arc<dyn TableProvider> = Arc::new(PlannedTable::new(schema.clone()));
    let scan = LogicalPlanBuilder::scan(
        TableReference::bare("t"),
        provider_as_source(provider),
        None,
    )?
    .build()?;
    let plain = with_relation(expr, Some(TableReference::bare("t")))?;
    // A type that is only known after coercion is looked at by the filter itself.
    if let Ok(data_type) = plain.get_type(scan.schema())
        && !matches!(data_type, DataType::Boolean | DataType::Null)
    {
        return Err(DataFusionError::External(Box::new(NotBoolean(data_type))));
    }
    let plan = LogicalPlanBuilder::from(scan).filter(plain)?.build()?;
    let plan = state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})?;
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        vec![Arc::new(SimplifyExpressions::new()), Arc::new(ColumnBounds)];
    let plan = Optimizer::with_rules(rules).optimize(plan, state, |_, _| {})?;
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            found = Some(filter.predicate.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        if let LogicalPlan::EmptyRelation(_) = node {
            found = Some(lit(false));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let expr = found.unwrap_or_else(|| lit(true));
    let expr = match expr {
        Expr::Literal(ScalarValue::Null | ScalarValue::Boolean(None), _) => lit(false),
        other => other,
    };
    bare(expr)
}

/// `expr` with its columns unqualified.
pub fn bare(expr: Expr) -> Result<Expr> {
    with_relation(expr, None)
}

fn with_relation(expr: Expr, relation: Option<TableReference>) -> Result<Expr> {
    let moved = expr.transform(|e| match e {
        Expr::Column(c) => Ok(Transformed::yes(Expr::Column(Column::new(
            relation.clone(),
            c.name,
        )))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(moved.data)
}
