//! The register of Windrow's own scalar functions, by name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::scalar::Scalar;
use super::{
    arithmetic, cast, clock, conditional, datetime, floats, generate, hash, json, math, nested,
    regex, text,
};

static ALL: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let tables = [
        arithmetic::FUNCTIONS,
        cast::FUNCTIONS,
        datetime::FUNCTIONS,
        floats::FUNCTIONS,
        text::FUNCTIONS,
        regex::FUNCTIONS,
        nested::FUNCTIONS,
        hash::FUNCTIONS,
        generate::FUNCTIONS,
        json::FUNCTIONS,
    ];
    let own = tables
        .into_iter()
        .flatten()
        .chain(math::functions())
        .map(Scalar::udf);
    own.chain(clock::functions())
        .chain([conditional::coalesce()])
        .map(|udf| (udf.name().to_string(), Arc::new(udf)))
        .collect()
});

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Arc<ScalarUDF>> {
    ALL.values().cloned()
}

/// The one of that name.
pub(super) fn find(name: &str) -> Option<Arc<ScalarUDF>> {
    ALL.get(name).cloned()
}

/// A call of one of them; of a name that there is none of, the literal NULL.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    match find(name) {
        Some(udf) => Expr::ScalarFunction(ScalarFunction::new_udf(udf, args)),
        None => Expr::Literal(ScalarValue::Null, None),
    }
}
