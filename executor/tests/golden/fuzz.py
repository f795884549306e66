"""Writes a file of random expressions with what Spark (ANSI mode) makes of them.

Needs pyspark and Java. Run: python fuzz.py SEED COUNT FILE

The expressions are trees of operators and functions over typed columns with nulls and edge values.
The file has the lines of golden.tsv; the test reads fuzz.tsv beside it, and any other file that
WINDROW_GOLDEN names. A line that differs belongs into cases.txt, made as small as it can be.
"""

import json
import pathlib
import random
import sys

import make

# One column of each type; every row has edge values of its own.
COLUMNS = {
    "int": ("i", ["0", "1", "-7", "NULL", "46340"]),
    "bigint": ("l", ["0L", "3L", "-3000000000L", "12L", "NULL"]),
    "smallint": ("s", ["1S", "NULL", "-5S", "0S", "99S"]),
    "double": ("d", ["0.0D", "-1.5D", "1e10", "NULL", "CAST('NaN' AS DOUBLE)"]),
    "decimal": ("m", ["1.25", "-0.50", "NULL", "100.00", "0.00"]),
    "string": ("t", ["''", "'abc'", "'12'", "NULL", "'Äb c'"]),
    "boolean": ("b", ["TRUE", "FALSE", "NULL", "TRUE", "FALSE"]),
    "date": ("dt", ["DATE'2024-02-29'", "DATE'1969-12-31'", "NULL", "DATE'2000-01-01'", "DATE'2021-07-04'"]),
    "timestamp": (
        "ts",
        [
            "TIMESTAMP'2024-02-29 23:59:59.5'",
            "NULL",
            "TIMESTAMP'1969-12-31 12:00:00'",
            "TIMESTAMP'2024-03-10 02:30:00'",
            "TIMESTAMP'2024-11-03 01:30:00'",
        ],
    ),
    "array": ("a", ["array(1, 2)", "array(3, NULL)", "NULL", "array(5)", "array(0, 0, 7)"]),
}
LITERALS = {
    "int": ["0", "1", "-1", "7", "100"],
    "bigint": ["5L", "-2L"],
    "smallint": ["2S", "-3S"],
    "double": ["0.5D", "2.0D", "-3.25D"],
    "decimal": ["1.5", "0.25", "-10.00"],
    "string": ["'a'", "''", "'2024-01-31'", "'5'", "'x y'"],
    "boolean": ["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"],
    "date": ["DATE'2024-01-31'", "DATE'1970-01-01'"],
    "timestamp": ["TIMESTAMP'2024-01-31 10:20:30'"],
    "array": ["array(1, 2, 3)", "array(4, NULL)"],
}
NUMBERS = ["int", "bigint", "smallint", "double", "decimal"]
ORDERED = NUMBERS + ["string", "date", "timestamp"]
# How an expression of a type is made: a template, and the types of its parts.
FORMS = {
    "int": [
        ("({} + {})", ["int", "int"]), ("({} - {})", ["int", "smallint"]), ("({} * {})", ["int", "int"]),
        ("({} % {})", ["int", "int"]), ("-({})", ["int"]), ("abs({})", ["int"]), ("length({})", ["string"]),
        ("year({})", ["date"]), ("month({})", ["date"]), ("dayofweek({})", ["date"]), ("day({})", ["timestamp"]),
        ("hour({})", ["timestamp"]), ("datediff({}, {})", ["date", "date"]), ("size({})", ["array"]),
        ("CAST({} AS INT)", ["double"]), ("CAST({} AS INT)", ["decimal"]), ("CAST({} AS INT)", ["boolean"]),
        ("TRY_CAST({} AS INT)", ["string"]), ("instr({}, {})", ["string", "string"]), ("ascii({})", ["string"]),
        ("element_at({}, 1)", ["array"]), ("get({}, {})", ["array", "int"]), ("array_max({})", ["array"]),
        ("aggregate({}, 0, (x, y) -> x + coalesce(y, 1))", ["array"]), ("pmod({}, {})", ["int", "int"]),
        ("({} & {})", ["int", "int"]), ("({} ^ {})", ["int", "int"]), ("shiftleft({}, 2)", ["int"]),
        ("levenshtein({}, {})", ["string", "string"]), ("hash({})", ["string"]), ("weekofyear({})", ["date"]),
        ("bit_count({})", ["bigint"]), ("locate({}, {})", ["string", "string"]), ("try_add({}, {})", ["int", "int"]),
    ],
    "bigint": [
        ("({} + {})", ["bigint", "int"]), ("({} * {})", ["bigint", "int"]), ("({} DIV {})", ["bigint", "int"]),
        ("CAST({} AS BIGINT)", ["int"]), ("unix_timestamp({})", ["timestamp"]), ("floor({})", ["double"]),
        ("ceil({})", ["double"]), ("xxhash64({}, {})", ["int", "string"]), ("unix_micros({})", ["timestamp"]),
        ("array_position({}, {})", ["array", "int"]), ("crc32({})", ["string"]),
        ("timestampdiff(HOUR, {}, {})", ["timestamp", "timestamp"]),
    ],
    "smallint": [("CAST({} AS SMALLINT)", ["int"]), ("({} + {})", ["smallint", "smallint"])],
    "double": [
        ("({} / {})", ["int", "int"]), ("({} + {})", ["double", "int"]), ("({} * {})", ["double", "decimal"]),
        ("({} - {})", ["double", "double"]), ("CAST({} AS DOUBLE)", ["decimal"]), ("CAST({} AS DOUBLE)", ["bigint"]),
        ("sqrt({})", ["double"]), ("round({}, 1)", ["double"]), ("abs({})", ["double"]), ("try_divide({}, {})", ["int", "int"]),
        ("months_between({}, {})", ["date", "date"]), ("nanvl({}, {})", ["double", "double"]), ("sign({})", ["double"]),
    ],
    "decimal": [
        ("({} + {})", ["decimal", "decimal"]), ("({} * {})", ["decimal", "int"]), ("({} / {})", ["decimal", "int"]),
        ("({} - {})", ["decimal", "int"]), ("round({}, 1)", ["decimal"]), ("CAST({} AS DECIMAL(12,3))", ["int"]),
        ("({} % {})", ["decimal", "decimal"]), ("abs({})", ["decimal"]), ("CAST({} AS DECIMAL(10,2))", ["double"]),
    ],
    "string": [
        ("concat({}, {})", ["string", "string"]), ("upper({})", ["string"]), ("substring({}, {}, {})", ["string", "int", "int"]),
        ("CAST({} AS STRING)", ["int"]), ("CAST({} AS STRING)", ["double"]), ("CAST({} AS STRING)", ["decimal"]),
        ("CAST({} AS STRING)", ["date"]), ("CAST({} AS STRING)", ["timestamp"]), ("CAST({} AS STRING)", ["array"]),
        ("date_format({}, 'yyyy-MM-dd HH')", ["timestamp"]), ("trim({})", ["string"]), ("reverse({})", ["string"]),
        ("replace({}, 'a', {})", ["string", "string"]), ("lpad({}, 5, '*')", ["string"]), ("left({}, {})", ["string", "int"]),
        ("concat_ws('-', {}, {})", ["string", "string"]), ("regexp_replace({}, '[a-c]+', 'z')", ["string"]),
        ("hex({})", ["bigint"]), ("md5({})", ["string"]), ("to_json(struct({} AS p, {} AS q))", ["int", "string"]),
        ("initcap({})", ["string"]), ("split_part({}, 'b', 1)", ["string"]), ("repeat({}, 2)", ["string"]),
        ("translate({}, 'ab', 'x')", ["string"]), ("array_join(transform({}, x -> x + 1), ',')", ["array"]),
        ("format_number({}, 2)", ["double"]), ("typeof({})", ["decimal"]), ("conv({}, 10, 16)", ["string"]),
    ],
    "boolean": [
        ("({} AND {})", ["boolean", "boolean"]), ("({} OR {})", ["boolean", "boolean"]), ("(NOT {})", ["boolean"]),
        ("({} IS NULL)", ["string"]), ("({} LIKE 'a%')", ["string"]), ("({} RLIKE '[0-9]')", ["string"]),
        ("exists({}, x -> x > 2)", ["array"]), ("array_contains({}, {})", ["array", "int"]),
        ("({} IN ({}, 3))", ["int", "int"]), ("({} BETWEEN {} AND {})", ["int", "int", "int"]),
        ("({} BETWEEN {} AND {})", ["date", "date", "date"]), ("({} <=> {})", ["string", "string"]),
        ("contains({}, {})", ["string", "string"]), ("isnan({})", ["double"]), ("forall({}, x -> x >= 0)", ["array"]),
        ("({} = {})", ["int", "decimal"]), ("({} < {})", ["date", "timestamp"]), ("({} > {})", ["bigint", "double"]),
    ],
    "date": [
        ("date_add({}, {})", ["date", "smallint"]), ("last_day({})", ["date"]), ("trunc({}, 'MM')", ["date"]),
        ("CAST({} AS DATE)", ["timestamp"]), ("add_months({}, 2)", ["date"]), ("({} + INTERVAL 3 DAYS)", ["date"]),
        ("next_day({}, 'TU')", ["date"]), ("TRY_CAST({} AS DATE)", ["string"]), ("date_sub({}, 4)", ["date"]),
        ("make_date(2024, 5, abs({}) % 28 + 1)", ["smallint"]),
    ],
    "timestamp": [
        ("date_trunc('month', {})", ["timestamp"]), ("({} + INTERVAL 1 DAY)", ["timestamp"]),
        ("CAST({} AS TIMESTAMP)", ["date"]), ("date_trunc('hour', {})", ["timestamp"]),
        ("({} - INTERVAL 90 MINUTES)", ["timestamp"]), ("timestamp_seconds({})", ["bigint"]),
        ("timestampadd(MONTH, 1, {})", ["timestamp"]), ("TRY_CAST({} AS TIMESTAMP)", ["string"]),
        ("({} + ({} - {}))", ["timestamp", "timestamp", "timestamp"]),
    ],
    "array": [
        ("array({}, {})", ["int", "int"]), ("transform({}, x -> x * 2)", ["array"]), ("filter({}, x -> x > 0)", ["array"]),
        ("array_append({}, {})", ["array", "int"]), ("array_distinct({})", ["array"]), ("sort_array({})", ["array"]),
        ("array_union({}, {})", ["array", "array"]), ("slice({}, 1, 2)", ["array"]), ("reverse({})", ["array"]),
        ("concat({}, {})", ["array", "array"]), ("array_compact({})", ["array"]), ("array_remove({}, {})", ["array", "int"]),
    ],
}
for name in FORMS:
    FORMS[name] += [
        ("CASE WHEN {} THEN {} ELSE {} END", ["boolean", name, name]),
        ("coalesce({}, {})", [name, name]),
        ("if({}, {}, {})", ["boolean", name, name]),
    ]
    if name in ORDERED:
        FORMS[name] += [("greatest({}, {})", [name, name]), ("nullif({}, {})", [name, name])]
        for operator in ["=", "<", ">=", "<>"]:
            FORMS["boolean"].append(("({} " + operator + " {})", [name, name]))


def tree(rng, kind, depth):
    """A random expression of a type."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.7:
            return COLUMNS[kind][0]
        return rng.choice(LITERALS[kind])
    template, parts = rng.choice(FORMS[kind])
    return template.format(*(tree(rng, part, depth - 1) for part in parts))


def table():
    rows = zip(*(values for _, values in COLUMNS.values()))
    rows = ", ".join("(" + ", ".join(row) + ")" for row in rows)
    names = ", ".join(name for name, _ in COLUMNS.values())
    return f"VALUES {rows} x({names})"


def answers(spark, zone, expressions):
    """Kind, types and rows of each; many at once as long as none fails."""
    source = table()
    queries = [f"SELECT {expression} AS v FROM {source}" for expression in expressions]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        items = ", ".join(f"{e} AS v{i}" for i, e in enumerate(expressions))
        frame = spark.sql(f"SELECT {items} FROM {source}")
        rows = frame.collect()
        for i, query in enumerate(queries):
            kind = frame.schema[i].dataType.simpleString()
            cells = sorted(json.dumps([make.plain(row[i])], ensure_ascii=False) for row in rows)
            yield query, ("value", kind, "[" + ", ".join(cells) + "]")
    except Exception:
        if len(expressions) == 1:
            yield queries[0], make.answer(spark, zone, queries[0])
            return
        half = len(expressions) // 2
        yield from answers(spark, zone, expressions[:half])
        yield from answers(spark, zone, expressions[half:])


def main():
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    rng = random.Random(seed)
    spark = make.session()
    lines = []
    while len(lines) < count:
        zone = rng.choice(["UTC", "America/New_York", "Asia/Kolkata"])
        batch = [tree(rng, rng.choice(list(FORMS)), rng.randint(1, 3)) for _ in range(25)]
        for query, found in answers(spark, zone, batch):
            # Python has no dates beyond the year 9999.
            if found[2] != "ValueError":
                lines.append([zone, found[0], query, found[1], found[2]])
    path.write_text("".join("\t".join(line) + "\n" for line in lines[:count]))
    print(min(count, len(lines)), "lines")


if __name__ == "__main__":
    main()
