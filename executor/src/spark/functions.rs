//! The register of Windrow's own scalar functions, by name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::scalar::{Definition, Param, Params, Scalar};
use super::{
    arithmetic, array, bits, cast, clock, compare, conditional, datetime, encode, floats, generate,
    hash, interval, json, json_rows, map, math, nested, regex, sequence, stamp, text, unnest,
    words,
};

/// The table entries of all functions that have one.
fn definitions() -> impl Iterator<Item = &'static Definition> {
    let tables: [&'static [Definition]; 21] = [
        arithmetic::FUNCTIONS,
        cast::FUNCTIONS,
        compare::FUNCTIONS,
        datetime::FUNCTIONS,
        floats::FUNCTIONS,
        unnest::FUNCTIONS,
        text::FUNCTIONS,
        regex::FUNCTIONS,
        nested::FUNCTIONS,
        hash::FUNCTIONS,
        generate::FUNCTIONS,
        json::FUNCTIONS,
        json_rows::FUNCTIONS,
        interval::FUNCTIONS,
        array::FUNCTIONS,
        bits::FUNCTIONS,
        encode::FUNCTIONS,
        map::FUNCTIONS,
        sequence::FUNCTIONS,
        stamp::FUNCTIONS,
        words::FUNCTIONS,
    ];
    tables.into_iter().flatten().chain(math::functions())
}

static ALL: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    definitions()
        .map(Scalar::udf)
        .chain(clock::functions())
        .chain([conditional::coalesce()])
        .map(|udf| (udf.name().to_string(), Arc::new(udf)))
        .collect()
});

/// The functions of DataFusion's Spark library that agree with Spark once their arguments have the
/// types that are said here.
const LIBRARY: &[(&str, Params)] = &[
    (
        "soundex",
        Params::Fixed {
            least: 1,
            all: &[Param::Text],
        },
    ),
    (
        "luhn_check",
        Params::Fixed {
            least: 1,
            all: &[Param::Text],
        },
    ),
    (
        "quote",
        Params::Fixed {
            least: 1,
            all: &[Param::Text],
        },
    ),
    (
        "parse_url",
        Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text, Param::Text],
        },
    ),
    (
        "try_parse_url",
        Params::Fixed {
            least: 2,
            all: &[Param::Text, Param::Text, Param::Text],
        },
    ),
    ("format_string", Params::Custom(|given| Ok(given.to_vec()))),
];

/// What the arguments of a function of the library are converted to.
pub(super) fn library_params(name: &str) -> Option<Params> {
    LIBRARY
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, params)| *params)
}

/// The parameters of a function here or of the library.
pub(super) fn params(name: &str) -> Option<Params> {
    let own = definitions().find(|definition| definition.name == name);
    own.map(|definition| definition.params)
        .or_else(|| library_params(name))
}

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
