"""Writes answers.tsv: what Spark gives for the queries of make.py over its tables.

Needs pyspark and Java beside them, and the folder of make.py. Run: python answers.py FOLDER [ROWS]
A line: query, kind (value or error), types, number of rows, FNV-1a (128 bits) of the rows. With a second folder
the rows of query N are written to N.txt there, for the comparison with those that differ.

The rows are JSON, one a line, as golden/make.py has them, but floats have ten digits; they are sorted.
"""

import json
import math
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "golden"))
import make  # noqa: E402


def plain(value):
    """Sums of floats hang on the order of rows, so their last digits are left out."""
    if isinstance(value, float) and math.isfinite(value):
        digits, exponent = f"{value + 0.0:.9e}".split("e")
        return f"{digits}e{int(exponent)}"
    return make.plain(value)


def fnv(data):
    found = 0x6C62272E07BB014262B821756295C58D
    for byte in data:
        found = (found ^ byte) * 0x0000000001000000000000000000013B & (1 << 128) - 1
    return f"{found:032x}"


def answer(spark, text):
    try:
        frame = spark.sql(text)
        types = ", ".join(field.dataType.simpleString() for field in frame.schema)
        rows = [[plain(value) for value in row] for row in frame.collect()]
    except Exception as error:  # Spark's own error is the expected result
        condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        return "error", condition, []
    dumped = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return "value", types, sorted(dumped, key=lambda row: row.encode())


def main():
    folder = pathlib.Path(sys.argv[1])
    rows_folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    spark = make.session()
    for path in sorted(folder.glob("*.parquet")):
        spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    lines = []
    for path in sorted((folder / "queries").glob("*.sql"), key=lambda path: int(path.stem)):
        begun = time.monotonic()
        kind, types, rows = answer(spark, path.read_text())
        text = "".join(f"{row}\n" for row in rows)
        digest = fnv(text.encode())
        lines.append("\t".join([path.stem, kind, types, str(len(rows)), digest]))
        print(path.stem, kind, len(rows), f"{time.monotonic() - begun:.1f} s", flush=True)
        if rows_folder:
            rows_folder.mkdir(parents=True, exist_ok=True)
            (rows_folder / f"{path.stem}.txt").write_text(text)
    (HERE / "answers.tsv").write_text("\n".join(lines) + "\n")


main()
