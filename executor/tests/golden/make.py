"""Writes golden.tsv: what Spark (ANSI mode) makes of each line of cases.txt.

Needs pyspark and Java. Run: python make.py [--all]. Lines that golden.tsv knows already are not
run again, unless --all asks for it. Another pair of files can be named: python make.py CASES TSV.

cases.txt: one expression or query a line. `zone: Z` sets the session's time zone for what follows,
`refused: ...` marks a line that Spark answers and Windrow refuses by name, `#` begins a comment.

golden.tsv: zone, kind (value, error or refused), the line, the types, and the rows as JSON with
dates, instants and decimals as text, maps as lists of pairs; rows of a query are sorted.
"""

import datetime
import decimal
import json
import math
import os
import pathlib
import struct
import sys

os.environ["TZ"] = "UTC"

HERE = pathlib.Path(__file__).parent


def plain(value):
    """A value as JSON holds it."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "bits:" + struct.pack(">d", value).hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        micros = (value.days * 86400 + value.seconds) * 1000000 + value.microseconds
        return f"interval {micros}"
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in zip(value.__fields__, value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def cases(path):
    """Zone, kind and text of each line."""
    zone = "UTC"
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("zone: "):
            zone = line.removeprefix("zone: ")
        elif line.startswith("refused: "):
            yield zone, "refused", line.removeprefix("refused: ")
        else:
            yield zone, "value", line


def known(path):
    """What was found before, by zone and text."""
    if not path.exists():
        return {}
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {(zone, text): (kind, types, found) for zone, kind, text, types, found in rows}


def session():
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def answer(spark, zone, text):
    """Kind, types and rows (or the name of the error) of one line."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    query = text if text.split()[0] in ("SELECT", "WITH", "FROM") else f"SELECT {text} AS v"
    try:
        frame = spark.sql(query)
        types = ", ".join(field.dataType.simpleString() for field in frame.schema)
        rows = [[plain(value) for value in row] for row in frame.collect()]
        rows = sorted(json.dumps(row, ensure_ascii=False) for row in rows)
        return "value", types, "[" + ", ".join(rows) + "]"
    except Exception as error:  # Spark's own error is the expected result
        condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        return "error", "", condition


def main():
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    source = pathlib.Path(names[0]) if names else HERE / "cases.txt"
    target = pathlib.Path(names[1]) if len(names) > 1 else HERE / "golden.tsv"
    before = {} if "--all" in sys.argv else known(target)
    spark, lines, seen = None, [], set()
    for zone, kind, text in cases(source):
        if (zone, text) in seen:
            continue
        seen.add((zone, text))
        found = before.get((zone, text))
        if found is None:
            spark = spark or session()
            found = answer(spark, zone, text)
        # An error of Spark's is one however the line is marked.
        wanted = kind if kind == "refused" and found[0] != "error" else None
        shown = wanted or ("value" if found[0] == "refused" else found[0])
        lines.append([zone, shown, text, found[1], found[2]])
    target.write_text("".join("\t".join(line) + "\n" for line in lines))
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
