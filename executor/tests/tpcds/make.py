"""Makes the tables and the queries of TPC-DS, and prints the folder that holds them.

Both come out of DuckDB's extension, which is installed as a package (requirements.txt), so neither lies
in this repository. A folder is made once for each content of this file and spread.sql; `--where FOLDER` names another.

Files: TABLE.parquet, and queries/N.sql as Spark takes it.
"""

import hashlib
import os
import pathlib
import shutil
import sys

SCALE_FACTOR = 0.05
SPREAD = pathlib.Path(__file__).with_name("spread.sql")

# Queries whose order leaves open which rows their LIMIT keeps: all rows are compared.
WITHOUT_LIMIT = frozenset()


def connection():
    import duckdb
    import duckdb_extension_tpcds

    package = pathlib.Path(duckdb_extension_tpcds.__file__).parent
    (extension,) = package.glob("extensions/*/tpcds.duckdb_extension")
    found = duckdb.connect(config={"threads": 1})
    found.execute(f"LOAD '{extension}'")
    return found


def spark_query(number, text):
    """Names in double quotes are text to Spark."""
    text = text.strip().rstrip(";").replace('"', "`")
    if number in WITHOUT_LIMIT:
        text = text[: text.rindex("LIMIT")]
    return text.strip() + "\n"


def write(folder):
    (folder / "queries").mkdir(parents=True)
    found = connection()
    found.execute(f"CALL dsdgen(sf={SCALE_FACTOR})")
    found.execute(SPREAD.read_text())
    for (table,) in found.execute("SELECT table_name FROM information_schema.tables").fetchall():
        path = folder / f"{table}.parquet"
        found.execute(f"COPY {table} TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    for number, text in found.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
        (folder / "queries" / f"{number}.sql").write_text(spark_query(number, text))


def default_folder():
    cache = os.environ.get("WINDROW_TEST_CACHE") or pathlib.Path.home() / ".cache" / "windrow"
    content = pathlib.Path(__file__).read_bytes() + SPREAD.read_bytes()
    return pathlib.Path(cache) / f"tpcds-{hashlib.sha256(content).hexdigest()[:12]}"


def main():
    named = sys.argv[1:] == ["--where", sys.argv[-1]]
    folder = pathlib.Path(sys.argv[-1]) if named else default_folder()
    if not folder.exists():
        # Under another name until all is there, so that what was interrupted is made anew.
        begun = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            write(begun)
            begun.rename(folder)
        finally:
            shutil.rmtree(begun, ignore_errors=True)
    print(folder)


if __name__ == "__main__":
    main()
