"""Writes Delta tables with Spark's own writer, and beside each the rows that Spark reads from it.

    python make_tables.py JAR [JAR ...]        # delta-spark and delta-storage for the pyspark at hand

Kept in the repository as made (tables/NAME, tables/NAME.json). Makes those that are not there: remove a table to make
it again, with a newer Delta for example. NAME.json: the versions at which the rows were read, each with the rows as JSON, columns by name.
"""

import datetime
import decimal
import json
import os
import pathlib
import shutil
import sys

os.environ["TZ"] = "UTC"
from pyspark.sql import SparkSession  # noqa: E402

TABLES = pathlib.Path(__file__).parent / "tables"

DAYS = "date_add(DATE'2026-03-01', CAST(id % 10 AS INT))"

# Statements after each of which the rows are read; `{t}` is the table.
MADE = {
    # Rows go by deletion vectors: twice in one file, a whole file, an update, a merge.
    "deletion_vectors": [
        f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT /*+ COALESCE(1) */ id, {DAYS} AS d, id * 10 AS x FROM range(40)",
        "DELETE FROM {t} WHERE id IN (3, 17)",
        "DELETE FROM {t} WHERE id % 7 = 0",
        "UPDATE {t} SET x = -x, d = date_add(d, 1) WHERE id IN (5, 6)",
        "MERGE INTO {t} USING (SELECT 8L AS id, DATE'2026-03-09' AS d, 1L AS x UNION ALL SELECT 100L, DATE'2026-03-10', 2L) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "OPTIMIZE {t}",
    ],
    # Physical names differ from logical ones; then columns are renamed, dropped and added again.
    "column_mapping": [
        f"CREATE TABLE {{t}} USING delta PARTITIONED BY (d) TBLPROPERTIES ('delta.columnMapping.mode' = 'name') AS SELECT /*+ COALESCE(1) */ id, {DAYS} AS d, id * 10 AS x, CAST(id AS STRING) AS `odd name, here` FROM range(20) WHERE id % 10 > 6",
        "ALTER TABLE {t} RENAME COLUMN x TO y",
        "ALTER TABLE {t} RENAME COLUMN d TO day",
        "INSERT INTO {t} (id, day, y, `odd name, here`) VALUES (200, DATE'2026-03-09', 7, 'seven')",
        "ALTER TABLE {t} DROP COLUMN y",
        "ALTER TABLE {t} ADD COLUMN y STRING",
        "INSERT INTO {t} (id, day, `odd name, here`, y) VALUES (201, DATE'2026-03-09', NULL, 'text now')",
    ],
    "column_mapping_by_id": [
        f"CREATE TABLE {{t}} (id BIGINT, d DATE, s STRUCT<a: INT, b: STRING>) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
        "INSERT INTO {t} SELECT id, date_add(DATE'2026-03-01', CAST(id AS INT)), named_struct('a', CAST(id AS INT), 'b', CAST(id AS STRING)) FROM range(10)",
        "ALTER TABLE {t} RENAME COLUMN id TO number",
        "INSERT INTO {t} VALUES (50, DATE'2026-03-09', named_struct('a', 1, 'b', 'x'))",
    ],
    # Every type that a flow may meet, with the values at their ends.
    "types": [
        "CREATE TABLE {t} (d DATE, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE, m DECIMAL(38, 10), s STRING, bin BINARY, ts TIMESTAMP, ntz TIMESTAMP_NTZ, a ARRAY<INT>) USING delta",
        """INSERT INTO {t} VALUES
        (DATE'2026-03-09', true, -128Y, -32768S, -2147483648, -9223372036854775808L, CAST('NaN' AS FLOAT), CAST('-Infinity' AS DOUBLE), 1234567890123456789012345678.0123456789BD, 'ünï', X'00FF', TIMESTAMP'2026-03-09 23:59:59.999999Z', TIMESTAMP_NTZ'2026-03-09 23:59:59.999999', array(1, NULL)),
        (DATE'9999-12-31', false, 127Y, 32767S, 2147483647, 9223372036854775807L, -0.0F, 4.9E-324D, -0.0000000001BD, '', X'', TIMESTAMP'9999-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'1582-10-15 00:00:00', array()),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""",
    ],
    # Values of partition columns that must be escaped in paths.
    "partition_values": [
        "CREATE TABLE {t} USING delta PARTITIONED BY (k, d) AS SELECT * FROM VALUES (1L, 'a b', DATE'2026-03-09'), (2L, 'a/b', DATE'2026-03-09'), (3L, 'a%2Fb', DATE'2026-03-09'), (4L, 'x=y:z', DATE'2026-03-09'), (5L, 'ünï', DATE'2026-03-08'), (6L, NULL, DATE'2026-03-08'), (7L, \"q'uote\", NULL) AS v(id, k, d)",
        "DELETE FROM {t} WHERE k = 'a/b'",
    ],
    # Liquid clustering, row tracking, a checkpoint of version 2, statistics as the writer likes them.
    "features": [
        "CREATE TABLE {t} (id BIGINT, d DATE, x BIGINT) USING delta CLUSTER BY (d) TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3', 'delta.enableDeletionVectors' = 'true')",
        f"INSERT INTO {{t}} SELECT id, {DAYS}, id FROM range(20)",
        f"INSERT INTO {{t}} SELECT id + 20, {DAYS}, id FROM range(20)",
        "DELETE FROM {t} WHERE id = 39",
        "OPTIMIZE {t}",
        "UPDATE {t} SET x = 0 WHERE id = 8",
    ],
    # Change data files beside the table's own.
    "change_data_feed": [
        f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') AS SELECT /*+ COALESCE(1) */ id, {DAYS} AS d, id AS x FROM range(20)",
        "UPDATE {t} SET x = x + 1 WHERE id IN (8, 9)",
        "DELETE FROM {t} WHERE id = 18",
    ],
    # Change data of rows that go by deletion vectors, under physical names.
    "change_data_of_mapped_rows": [
        "CREATE TABLE {t} (id BIGINT, d DATE, x BIGINT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')",
        f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, {DAYS} AS d, id AS x FROM range(400)",
        "UPDATE {t} SET x = x + 1 WHERE id IN (8, 9, 15)",
        "DELETE FROM {t} WHERE id IN (18, 8)",
        "MERGE INTO {t} USING (SELECT 9L AS id, DATE'2026-03-08' AS d, 1L AS x UNION ALL SELECT 700L, DATE'2026-03-10', 2L) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "DELETE FROM {t} WHERE id > 40 AND id < 390",
        "OPTIMIZE {t}",
        "UPDATE {t} SET x = -x WHERE id = 9",
    ],
    # Change data in folders of partitions, between which rows move.
    "change_data_of_partitions": [
        f"CREATE TABLE {{t}} USING delta PARTITIONED BY (d) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') AS SELECT /*+ COALESCE(1) */ id, {DAYS} AS d, id AS x FROM range(20)",
        "UPDATE {t} SET x = x + 1 WHERE id IN (1, 8, 9)",
        "UPDATE {t} SET d = DATE'2026-03-09' WHERE id IN (2, 17)",
        "DELETE FROM {t} WHERE d = DATE'2026-03-10'",
        "MERGE INTO {t} USING (SELECT 8L AS id, CAST(NULL AS DATE) AS d, 1L AS x UNION ALL SELECT 100L, DATE'2026-03-10', 2L) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    ],
    # A type that grew.
    "type_widening": [
        f"CREATE TABLE {{t}} (id INT, d DATE, x SMALLINT) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        f"INSERT INTO {{t}} SELECT CAST(id AS INT), {DAYS}, CAST(id AS SMALLINT) FROM range(10)",
        "ALTER TABLE {t} ALTER COLUMN x TYPE INT",
        "INSERT INTO {t} VALUES (11, DATE'2026-03-09', 100000)",
    ],
}


def plain(value):
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in zip(value.__fields__, value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def main():
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(sys.argv[1:]))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for name, statements in MADE.items():
        place = TABLES / name
        if (TABLES / f"{name}.json").exists():
            continue
        shutil.rmtree(place, ignore_errors=True)
        table = f"delta.`{place}`"
        history = []
        for statement in statements:
            spark.sql(statement.replace("{t}", table))
            rows = spark.sql(f"SELECT * FROM {table}")
            version = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"]
            read = [dict(zip(rows.columns, map(plain, row))) for row in rows.collect()]
            history.append({"version": version, "statement": statement, "rows": read})
        for waste in place.rglob("*.crc"):
            waste.unlink()
        text = json.dumps(history, ensure_ascii=False, separators=(",", ":"))
        (TABLES / f"{name}.json").write_text(text.replace('},{"version"', '},\n{"version"') + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
