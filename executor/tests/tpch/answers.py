"""Writes answers.tsv: what Spark gives for queries.sql.

Needs pyspark and Java, and the tables as Parquet, which the test writes where WINDROW_TPCH_WRITE says.
Run: python answers.py FOLDER
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "golden"))
import make  # noqa: E402


def main():
    folder = pathlib.Path(sys.argv[1])
    spark = make.session()
    for path in sorted(folder.glob("*.parquet")):
        spark.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    lines = []
    for part in (HERE / "queries.sql").read_text().split("-- ")[1:]:
        name, query = part.split("\n", 1)
        kind, types, rows = make.answer(spark, "UTC", " ".join(query.split()).rstrip(";"))
        lines.append("\t".join([name, kind, types, rows]))
        print(name, kind)
    (HERE / "answers.tsv").write_text("\n".join(lines) + "\n")


main()
