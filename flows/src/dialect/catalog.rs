//! The functions of Spark SQL: which are available, with how many arguments, and which Spark has
//! but Windrow refuses because their result would not be Spark's.

/// What sort of function a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Scalar,
    Aggregate,
    Window,
    /// Makes several rows of one.
    Generator,
}

impl Kind {
    /// What it is called in the documentation.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Aggregate => "aggregate",
            Self::Window => "window",
            Self::Generator => "generator",
        }
    }
}

/// An available function: its name, sort, and the least and greatest number of arguments.
pub(super) struct Entry {
    pub name: &'static str,
    pub kind: Kind,
    pub least: usize,
    pub most: usize,
}

const ANY: usize = usize::MAX;

macro_rules! entries {
    ($kind:ident: $($name:literal $least:tt $most:tt),* $(,)?) => {
        &[$(Entry { name: $name, kind: Kind::$kind, least: $least, most: $most }),*]
    };
}

static SCALARS: &[Entry] = entries!(Scalar:
    // dates and times
    "year" 1 1, "quarter" 1 1, "month" 1 1, "day" 1 1, "dayofmonth" 1 1, "dayofweek" 1 1,
    "weekday" 1 1, "dayofyear" 1 1, "weekofyear" 1 1, "hour" 1 1, "minute" 1 1, "second" 1 1,
    "date_add" 2 3, "date_sub" 2 2, "dateadd" 2 3, "datediff" 2 3, "date_diff" 2 3,
    "timestampadd" 3 3, "timestampdiff" 3 3,
    "add_months" 2 2, "months_between" 2 3, "last_day" 1 1, "trunc" 2 2, "date_trunc" 2 2,
    "to_date" 1 2, "date" 1 1, "to_timestamp" 1 2, "timestamp" 1 1, "date_format" 2 2,
    "make_date" 3 3, "unix_timestamp" 0 2, "to_unix_timestamp" 1 2, "from_unixtime" 1 2,
    "unix_date" 1 1, "date_from_unix_date" 1 1, "unix_seconds" 1 1, "unix_millis" 1 1,
    "unix_micros" 1 1, "timestamp_seconds" 1 1, "timestamp_millis" 1 1, "timestamp_micros" 1 1,
    "current_date" 0 0, "curdate" 0 0, "current_timestamp" 0 0, "now" 0 0, "localtimestamp" 0 0,
    "from_utc_timestamp" 2 2, "to_utc_timestamp" 2 2, "date_part" 2 2, "datepart" 2 2,
    "next_day" 2 2,
    "dayname" 1 1, "monthname" 1 1, "make_timestamp" 6 7, "make_timestamp_ltz" 6 7,
    "make_timestamp_ntz" 6 6, "try_make_timestamp" 6 7, "try_make_timestamp_ltz" 6 7,
    "try_make_timestamp_ntz" 6 6, "to_timestamp_ltz" 1 2, "to_timestamp_ntz" 1 1,
    "try_to_timestamp" 1 2, "try_to_date" 1 2, "current_timezone" 0 0, "make_dt_interval" 0 4, "make_ym_interval" 0 2, "convert_timezone" 2 3,
    // conditions
    "coalesce" 1 ANY, "nvl" 2 2, "ifnull" 2 2, "nullif" 2 2, "if" 3 3, "nvl2" 3 3,
    "greatest" 2 ANY, "least" 2 ANY, "isnull" 1 1, "isnotnull" 1 1, "isnan" 1 1, "nanvl" 2 2,
    "equal_null" 2 2, "zeroifnull" 1 1, "nullifzero" 1 1,
    // text
    "upper" 1 1, "ucase" 1 1, "lower" 1 1, "lcase" 1 1, "length" 1 1, "len" 1 1,
    "char_length" 1 1, "character_length" 1 1, "octet_length" 1 1, "bit_length" 1 1,
    "trim" 1 1, "btrim" 1 2, "ltrim" 1 1, "rtrim" 1 1,
    "substring" 2 3, "substr" 2 3, "left" 2 2, "right" 2 2, "concat" 0 ANY, "concat_ws" 1 ANY,
    "replace" 2 3, "split" 2 3, "split_part" 3 3, "regexp_extract" 2 3, "regexp_replace" 3 3,
    "rlike" 2 2, "regexp_like" 2 2, "regexp" 2 2, "regexp_count" 2 2, "instr" 2 2, "locate" 2 3,
    "position" 2 3, "lpad" 2 3, "rpad" 2 3, "repeat" 2 2, "reverse" 1 1,
    "initcap" 1 1, "ascii" 1 1, "chr" 1 1, "char" 1 1, "space" 1 1, "translate" 3 3,
    "contains" 2 2, "startswith" 2 2, "endswith" 2 2, "substring_index" 3 3, "hex" 1 1,
    "elt" 2 ANY, "find_in_set" 2 2, "levenshtein" 2 3, "overlay" 3 4, "mask" 1 5,
    "format_number" 2 2, "format_string" 1 ANY, "printf" 1 ANY, "soundex" 1 1, "luhn_check" 1 1,
    "quote" 1 1, "parse_url" 2 3, "try_parse_url" 2 3, "url_encode" 1 1, "url_decode" 1 1,
    "try_url_decode" 1 1, "unbase64" 1 1, "unhex" 1 1, "encode" 2 2, "decode" 2 ANY,
    "is_valid_utf8" 1 1, "make_valid_utf8" 1 1, "validate_utf8" 1 1, "regexp_extract_all" 2 3,
    "regexp_substr" 2 2, "regexp_instr" 2 2, "like" 2 2, "ilike" 2 2, "typeof" 1 1,
    "md5" 1 1, "sha" 1 1, "sha1" 1 1, "sha2" 2 2, "crc32" 1 1, "base64" 1 1,
    // numbers
    "abs" 1 1, "ceil" 1 1, "ceiling" 1 1, "floor" 1 1, "round" 1 2, "bround" 1 2, "sqrt" 1 1,
    "power" 2 2, "pow" 2 2, "exp" 1 1, "ln" 1 1, "log" 1 2, "log10" 1 1, "log2" 1 1, "log1p" 1 1,
    "expm1" 1 1, "cbrt" 1 1, "sign" 1 1, "signum" 1 1, "mod" 2 2, "pmod" 2 2, "sin" 1 1,
    "cos" 1 1, "tan" 1 1, "asin" 1 1, "acos" 1 1, "atan" 1 1, "atan2" 2 2, "degrees" 1 1,
    "radians" 1 1, "pi" 0 0, "e" 0 0, "negative" 1 1, "positive" 1 1, "try_divide" 2 2,
    "try_add" 2 2, "try_subtract" 2 2, "try_multiply" 2 2, "bigint" 1 1, "int" 1 1, "double" 1 1,
    "float" 1 1, "string" 1 1, "smallint" 1 1, "tinyint" 1 1, "boolean" 1 1,
    "shiftleft" 2 2, "shiftright" 2 2, "shiftrightunsigned" 2 2, "bit_count" 1 1, "bit_get" 2 2,
    "getbit" 2 2, "try_mod" 2 2, "sinh" 1 1, "cosh" 1 1, "tanh" 1 1, "asinh" 1 1, "acosh" 1 1,
    "atanh" 1 1, "cot" 1 1, "csc" 1 1, "sec" 1 1, "rint" 1 1, "hypot" 2 2, "factorial" 1 1,
    "width_bucket" 4 4, "bin" 1 1, "conv" 3 3, "div" 2 2, "decimal" 1 1, "binary" 1 1,
    "hash" 1 ANY, "xxhash64" 1 ANY,
    "get_json_object" 2 2, "json_array_length" 1 1, "json_object_keys" 1 1,
    // another value at each call
    "rand" 0 1, "random" 0 1, "randn" 0 1, "uuid" 0 1,
    // nested values
    "size" 1 1, "cardinality" 1 1, "array_size" 1 1, "array" 0 ANY, "struct" 1 ANY,
    "named_struct" 2 ANY, "array_contains" 2 2, "element_at" 2 2, "get" 2 2, "array_join" 2 3,
    "try_element_at" 2 2, "array_append" 2 2, "array_prepend" 2 2, "array_insert" 3 3,
    "array_remove" 2 2, "array_position" 2 2, "array_repeat" 2 2, "array_distinct" 1 1,
    "array_union" 2 2, "array_intersect" 2 2, "array_except" 2 2, "arrays_overlap" 2 2,
    "array_compact" 1 1, "array_max" 1 1, "array_min" 1 1, "sort_array" 1 2, "array_sort" 1 2,
    "flatten" 1 1, "slice" 3 3, "sequence" 2 3, "arrays_zip" 1 ANY, "map" 0 ANY, "map_keys" 1 1,
    "map_values" 1 1, "map_entries" 1 1, "map_from_arrays" 2 2, "map_from_entries" 1 1,
    "map_concat" 1 ANY, "map_contains_key" 2 2, "str_to_map" 1 3, "transform" 2 2, "filter" 2 2,
    "exists" 2 2, "forall" 2 2, "aggregate" 3 4, "reduce" 3 4, "zip_with" 3 3, "map_filter" 2 2,
    "transform_keys" 2 2, "transform_values" 2 2, "from_json" 2 2, "to_json" 1 1,
);

static AGGREGATES: &[Entry] = entries!(Aggregate:
    "count" 1 ANY, "count_if" 1 1, "sum" 1 1, "avg" 1 1, "mean" 1 1, "min" 1 1, "max" 1 1,
    "any_value" 1 2, "first" 1 2, "last" 1 2, "first_value" 1 2, "last_value" 1 2,
    "stddev" 1 1, "std" 1 1, "stddev_samp" 1 1, "stddev_pop" 1 1, "variance" 1 1, "var_samp" 1 1,
    "var_pop" 1 1, "collect_list" 1 1, "array_agg" 1 1, "collect_set" 1 1, "max_by" 2 2,
    "min_by" 2 2, "bool_and" 1 1, "every" 1 1, "bool_or" 1 1, "some" 1 1, "any" 1 1,
    "median" 1 1, "percentile" 2 2, "try_sum" 1 1, "try_avg" 1 1, "mode" 1 1, "corr" 2 2,
    "covar_pop" 2 2, "covar_samp" 2 2, "regr_count" 2 2, "regr_avgx" 2 2, "regr_avgy" 2 2,
    "regr_sxx" 2 2, "regr_syy" 2 2, "regr_sxy" 2 2, "regr_slope" 2 2, "regr_intercept" 2 2,
    "regr_r2" 2 2, "skewness" 1 1, "kurtosis" 1 1, "bit_and" 1 1, "bit_or" 1 1, "bit_xor" 1 1,
    "listagg" 1 2, "string_agg" 1 2, "percentile_cont" 1 1, "percentile_disc" 1 1,
    "grouping" 1 1, "grouping_id" 0 ANY,
);

static WINDOWS: &[Entry] = entries!(Window:
    "row_number" 0 0, "rank" 0 0, "dense_rank" 0 0, "percent_rank" 0 0, "cume_dist" 0 0,
    "ntile" 1 1, "lag" 1 3, "lead" 1 3, "nth_value" 2 2,
);

static GENERATORS: &[Entry] = entries!(Generator:
    "explode" 1 1, "explode_outer" 1 1, "posexplode" 1 1, "posexplode_outer" 1 1, "inline" 1 1,
    "inline_outer" 1 1, "stack" 2 ANY, "json_tuple" 2 ANY, "range" 1 3,
);

/// Functions of Spark that are refused: no way is known yet to give exactly Spark's result.
static REFUSED: &str = include_str!("refused.txt");

/// The entry of an available function.
pub(super) fn entry(name: &str) -> Option<&'static Entry> {
    available().find(|entry| entry.name == name)
}

/// The sort of an available function.
pub(super) fn kind(name: &str) -> Option<Kind> {
    entry(name).map(|entry| entry.kind)
}

/// Whether Spark has a function of that name though it is not available here.
pub(super) fn is_refused(name: &str) -> bool {
    refused().any(|refused| refused == name)
}

/// The functions that Spark has and Windrow refuses.
pub(super) fn refused() -> impl Iterator<Item = &'static str> {
    REFUSED.split_whitespace()
}

/// The available functions whose names are near to `name`, the nearest first.
pub(super) fn nearest(name: &str) -> Vec<&'static str> {
    const MOST: usize = 3;
    let mut near: Vec<_> = available()
        .map(|entry| (strsim::damerau_levenshtein(entry.name, name), entry.name))
        .filter(|(distance, known)| *distance <= 1 + known.len().min(name.len()) / 4)
        .collect();
    near.sort_unstable();
    near.into_iter()
        .map(|(_, known)| known)
        .take(MOST)
        .collect()
}

/// All available functions.
pub(super) fn available() -> impl Iterator<Item = &'static Entry> {
    SCALARS
        .iter()
        .chain(AGGREGATES)
        .chain(WINDOWS)
        .chain(GENERATORS)
}
