"""Writes golden.tsv: what Spark (ANSI mode) makes of each line of cases.txt.

Needs pyspark and Java. Run: python make.py

cases.txt: one expression or query a line. `zone: Z` sets the session's time zone for what follows,
`refused: ...` marks a line that Spark answers and Windrow refuses by name, `#` begins a comment.

golden.tsv: zone, kind (value, error or refused), the line, the types, and the rows as JSON with
dates, instants and decimals as text; rows of a query are sorted.
"""

import datetime
import decimal
import json
import math
import os
import pathlib
import struct

os.environ["TZ"] = "UTC"
from pyspark.sql import SparkSession  # noqa: E402

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
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in zip(value.__fields__, value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def main():
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    zone, lines = "UTC", []
    for line in (HERE / "cases.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("zone: "):
            zone = line.removeprefix("zone: ")
            spark.conf.set("spark.sql.session.timeZone", zone)
            continue
        kind = "value"
        if line.startswith("refused: "):
            kind, line = "refused", line.removeprefix("refused: ")
        query = line if line.split()[0] in ("SELECT", "WITH") else f"SELECT {line} AS v"
        try:
            frame = spark.sql(query)
            types = ", ".join(field.dataType.simpleString() for field in frame.schema)
            rows = [[plain(value) for value in row] for row in frame.collect()]
            rows = sorted(json.dumps(row, ensure_ascii=False) for row in rows)
            lines.append([zone, kind, line, types, "[" + ", ".join(rows) + "]"])
        except Exception as error:  # Spark's own error is the expected result
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            lines.append([zone, "error" if kind == "value" else kind, line, "", condition])
    text = "".join("\t".join(line) + "\n" for line in lines)
    (HERE / "golden.tsv").write_text(text)
    print(len(lines), "lines")


main()
