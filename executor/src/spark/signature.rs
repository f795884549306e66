//! Calls that no function of the name takes: what was given, and how the function is called instead.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::logical_expr::Expr;
use windrow_flows::dialect;

use super::scalar::{Param, Params};
use super::{functions, types};

/// A call whose arguments have types that the function does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WrongCall {
    /// The function as queries call it; of an operator the empty text.
    pub function: String,
    /// Columns among the arguments, which tell one call from another.
    pub columns: Vec<String>,
    pub message: String,
    /// How the function is called.
    pub signatures: Vec<String>,
}

impl WrongCall {
    /// Of what DataFusion calls `name`, for what `error` says.
    pub(super) fn error(
        name: &str,
        args: &[Expr],
        given: &[DataType],
        error: &DataFusionError,
    ) -> DataFusionError {
        let detail = error.find_root().strip_backtrace();
        let detail = super::plain_message(&detail);
        let detail = detail.strip_prefix("DATATYPE_MISMATCH: ").unwrap_or(detail);
        let mut columns: Vec<String> = args
            .iter()
            .flat_map(Expr::column_refs)
            .map(|column| column.name().to_string())
            .collect();
        columns.sort_unstable();
        columns.dedup();
        let function = written(name).unwrap_or_default();
        let visible = dialect::argument_counts(&function).map_or(given.len(), |(_, most)| most);
        let shown: Vec<String> = given.iter().take(visible).map(types::name).collect();
        let message = match function.is_empty() {
            true => detail.to_string(),
            false => format!(
                "{function}({}) is not available: {detail}",
                shown.join(", ")
            ),
        };
        let signatures = of(name, &function);
        DataFusionError::External(Box::new(Self {
            function,
            columns,
            message,
            signatures,
        }))
    }
}

/// The function whose call the planner refused in words of its own, as queries call it, and how it is
/// called.
pub fn refused_call(message: &str) -> Option<(String, Vec<String>)> {
    let (_, rest) = message.split_once("Function '")?;
    let (name, rest) = rest.split_once('\'')?;
    if !rest.contains("coercion failed") {
        return None;
    }
    let function = written(name)?;
    let signatures = of(name, &function);
    Some((function, signatures))
}

/// What queries call a function; `None` for an operator.
fn written(name: &str) -> Option<String> {
    const OPERATORS: [&str; 12] = [
        "spark_nullable",
        "spark_add",
        "spark_subtract",
        "spark_multiply",
        "spark_divide",
        "spark_positive",
        "spark_bit_not",
        "spark_bit_xor",
        "spark_cast",
        "spark_try_cast",
        "spark_add_interval",
        "spark_get_item",
    ];
    if OPERATORS.contains(&name) {
        return None;
    }
    let name = name.strip_prefix("spark_").unwrap_or(name);
    Some(match name {
        "seconds" => "second".into(),
        "percentile_disc" => "percentile_disc".into(),
        other => other.to_string(),
    })
}

/// How functions are called whose parameters hang on each other.
const CALLS: &[(&str, &[&str])] = &[
    ("abs", &["abs(NUMBER)"]),
    ("negative", &["negative(NUMBER)", "negative(INTERVAL)"]),
    ("mod", &["mod(NUMBER, NUMBER)"]),
    ("pmod", &["pmod(NUMBER, NUMBER)"]),
    ("div", &["div(NUMBER, NUMBER)"]),
    ("try_add", &["try_add(NUMBER, NUMBER)"]),
    ("try_subtract", &["try_subtract(NUMBER, NUMBER)"]),
    ("try_multiply", &["try_multiply(NUMBER, NUMBER)"]),
    ("try_divide", &["try_divide(NUMBER, NUMBER)"]),
    ("try_mod", &["try_mod(NUMBER, NUMBER)"]),
    ("ceil", &["ceil(NUMBER)"]),
    ("floor", &["floor(NUMBER)"]),
    ("round", &["round(NUMBER[, INT])"]),
    ("bround", &["bround(NUMBER[, INT])"]),
    ("greatest", &["greatest(T, T, ...)"]),
    ("least", &["least(T, T, ...)"]),
    ("coalesce", &["coalesce(T, ...)"]),
    (
        "shiftleft",
        &["shiftleft(INT, INT)", "shiftleft(BIGINT, INT)"],
    ),
    (
        "shiftright",
        &["shiftright(INT, INT)", "shiftright(BIGINT, INT)"],
    ),
    (
        "shiftrightunsigned",
        &[
            "shiftrightunsigned(INT, INT)",
            "shiftrightunsigned(BIGINT, INT)",
        ],
    ),
    ("bit_count", &["bit_count(INTEGER)", "bit_count(BOOLEAN)"]),
    ("bit_get", &["bit_get(INTEGER, INT)"]),
    ("unix_date", &["unix_date(DATE)"]),
    ("timestamp_seconds", &["timestamp_seconds(NUMBER)"]),
    (
        "unix_timestamp",
        &[
            "unix_timestamp([TIMESTAMP])",
            "unix_timestamp(STRING[, STRING])",
        ],
    ),
    ("explode", &["explode(ARRAY<T>)", "explode(MAP<K, V>)"]),
    (
        "posexplode",
        &["posexplode(ARRAY<T>)", "posexplode(MAP<K, V>)"],
    ),
    ("inline", &["inline(ARRAY<STRUCT<...>>)"]),
    ("stack", &["stack(INT, T, ...)"]),
    ("hash", &["hash(T, ...), but no MAP"]),
    ("xxhash64", &["xxhash64(T, ...), but no MAP"]),
    (
        "make_dt_interval",
        &["make_dt_interval([INT[, INT[, INT[, DECIMAL]]]])"],
    ),
    (
        "to_json",
        &[
            "to_json(STRUCT<...>)",
            "to_json(ARRAY<T>)",
            "to_json(MAP<K, V>)",
        ],
    ),
    ("map", &["map(K, V, ...)"]),
    ("map_keys", &["map_keys(MAP<K, V>)"]),
    ("map_values", &["map_values(MAP<K, V>)"]),
    ("map_entries", &["map_entries(MAP<K, V>)"]),
    ("map_from_arrays", &["map_from_arrays(ARRAY<K>, ARRAY<V>)"]),
    (
        "map_from_entries",
        &["map_from_entries(ARRAY<STRUCT<K, V>>)"],
    ),
    ("map_concat", &["map_concat(MAP<K, V>, ...)"]),
    ("map_contains_key", &["map_contains_key(MAP<K, V>, K)"]),
    ("array", &["array(T, ...)"]),
    ("get", &["get(ARRAY<T>, INT)"]),
    (
        "element_at",
        &["element_at(ARRAY<T>, INT)", "element_at(MAP<K, V>, K)"],
    ),
    (
        "try_element_at",
        &[
            "try_element_at(ARRAY<T>, INT)",
            "try_element_at(MAP<K, V>, K)",
        ],
    ),
    ("array_contains", &["array_contains(ARRAY<T>, T)"]),
    (
        "array_join",
        &["array_join(ARRAY<STRING>, STRING[, STRING])"],
    ),
    ("size", &["size(ARRAY<T>)", "size(MAP<K, V>)"]),
    (
        "sequence",
        &[
            "sequence(INTEGER, INTEGER[, INTEGER])",
            "sequence(DATE, DATE[, INTERVAL])",
            "sequence(TIMESTAMP, TIMESTAMP[, INTERVAL])",
        ],
    ),
    ("reverse", &["reverse(STRING)", "reverse(ARRAY<T>)"]),
    ("length", &["length(STRING)", "length(BINARY)"]),
    (
        "concat",
        &[
            "concat(STRING, ...)",
            "concat(BINARY, ...)",
            "concat(ARRAY<T>, ...)",
        ],
    ),
    (
        "concat_ws",
        &["concat_ws(STRING, STRING | ARRAY<STRING>, ...)"],
    ),
    ("elt", &["elt(INT, STRING, ...)"]),
    (
        "format_number",
        &[
            "format_number(NUMBER, INT)",
            "format_number(NUMBER, STRING)",
        ],
    ),
    ("sum", &["sum(NUMBER)"]),
    ("avg", &["avg(NUMBER)"]),
    ("try_sum", &["try_sum(NUMBER)"]),
    ("try_avg", &["try_avg(NUMBER)"]),
    ("stddev", &["stddev(DOUBLE)"]),
    ("var_samp", &["var_samp(DOUBLE)"]),
    ("var_pop", &["var_pop(DOUBLE)"]),
    ("stddev_pop", &["stddev_pop(DOUBLE)"]),
    ("corr", &["corr(DOUBLE, DOUBLE)"]),
    ("covar_pop", &["covar_pop(DOUBLE, DOUBLE)"]),
    ("covar_samp", &["covar_samp(DOUBLE, DOUBLE)"]),
    ("bool_and", &["bool_and(BOOLEAN)"]),
    ("bool_or", &["bool_or(BOOLEAN)"]),
    ("bit_and", &["bit_and(INTEGER)"]),
    ("bit_or", &["bit_or(INTEGER)"]),
    ("bit_xor", &["bit_xor(INTEGER)"]),
    ("percentile", &["percentile(NUMBER, DOUBLE)"]),
    ("median", &["median(NUMBER)"]),
];

fn of(name: &str, function: &str) -> Vec<String> {
    if let Some((_, calls)) = CALLS.iter().find(|(known, _)| *known == function) {
        return calls.iter().map(|call| call.to_string()).collect();
    }
    let params = functions::params(name);
    let Some((least, all)) = params.and_then(Params::fixed) else {
        return vec![];
    };
    // The zone of the session is added to a call; nobody writes it.
    let (least, most) = match dialect::argument_counts(function) {
        Some((written_least, most)) => (written_least.min(least), most.min(all.len())),
        None => (least, all.len()),
    };
    let mut text = format!("{function}(");
    for (at, param) in all.iter().take(most).enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        match at < least {
            true => text.push_str(&format!("{separator}{}", word(*param))),
            false => text.push_str(&format!("[{separator}{}", word(*param))),
        }
    }
    text.push_str(&"]".repeat(most.saturating_sub(least)));
    text.push(')');
    vec![text]
}

fn word(param: Param) -> String {
    match param.data_type() {
        Some(data_type) => types::name(&data_type),
        None => "T".into(),
    }
}
