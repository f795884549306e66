//! Spark SQL on top of DataFusion's planner: which forms are taken, and what each is turned into.
//!
//! Works on sqlparser's tree alone. Every Spark form whose meaning differs from what DataFusion
//! would make of it is rewritten to a function or a form that means the same; everything that is
//! neither known to agree nor rewritten is refused by name. What needs the types of columns
//! (casts, arithmetic, comparison of unlike types) is expressed as `spark_*` function calls and
//! decided by those functions and by the engine's analyzer rules.
//!
//! Left to others: parsing, normalising identifiers, and resolving tables.

mod catalog;
mod literal;
mod naming;
mod rewrite;
mod syntax;

use sqlparser::ast::{Expr, Query, VisitMut};
use sqlparser::tokenizer::Span;

pub use syntax::SparkDialect;

/// A form of the query language that is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct DialectFault {
    /// A stable name of the kind of fault, such as `FUNCTION_NOT_FOUND`.
    pub code: &'static str,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What was perhaps meant.
    pub hint: Option<String>,
    /// What to write instead.
    pub help: Option<String>,
    /// Where it stands.
    pub span: Span,
}

/// Turns a Spark query into one that DataFusion plans with Spark's meaning.
///
/// Identifiers must be normalised before. Returns all faults found; the query must not be planned
/// if there is one.
pub fn rewrite_query(query: &mut Query) -> Vec<DialectFault> {
    let mut rewriter = rewrite::Rewriter::default();
    let _ = VisitMut::visit(query, &mut rewriter);
    rewriter.into_faults()
}

/// The same for a lone expression: a predicate, a sequence or a constraint.
pub fn rewrite_expr(expr: &mut Expr) -> Vec<DialectFault> {
    let mut rewriter = rewrite::Rewriter::default();
    let _ = VisitMut::visit(expr, &mut rewriter);
    rewriter.into_faults()
}

/// All functions of Spark by name: what sort of function an available one is, `None` for one that is
/// refused.
pub fn functions() -> Vec<(&'static str, Option<&'static str>)> {
    let mut all: Vec<_> = catalog::available()
        .map(|entry| (entry.name, Some(entry.kind.word())))
        .chain(catalog::refused().map(|name| (name, None)))
        .collect();
    all.sort_unstable();
    all
}

/// How many arguments an available function takes at least and at most.
pub fn argument_counts(name: &str) -> Option<(usize, usize)> {
    catalog::entry(&name.to_lowercase()).map(|entry| (entry.least, entry.most))
}

/// Whether `name` is one of Spark's aggregate functions that is available here.
pub fn is_aggregate(name: &str) -> bool {
    catalog::kind(&name.to_lowercase()) == Some(catalog::Kind::Aggregate)
}

/// Whether `name` is a function that makes rows, such as `explode`.
pub fn is_table_function(name: &str) -> bool {
    catalog::kind(&name.to_lowercase()) == Some(catalog::Kind::Generator)
}

/// Whether `name` gives a value that depends on the clock of the update.
pub fn is_temporal(name: &str) -> bool {
    matches!(
        name.to_lowercase().as_str(),
        "current_date"
            | "curdate"
            | "current_timestamp"
            | "now"
            | "localtimestamp"
            | "unix_timestamp"
    )
}

/// Whether `name` may give another value at each call.
///
/// Functions whose result depends on the order of rows (`first`, `collect_list` and the like) are
/// not meant.
pub fn is_nondeterministic(name: &str) -> bool {
    matches!(
        name.to_lowercase().as_str(),
        "rand"
            | "random"
            | "randn"
            | "randstr"
            | "uniform"
            | "uuid"
            | "shuffle"
            | "monotonically_increasing_id"
            | "spark_partition_id"
            | "input_file_name"
    )
}
