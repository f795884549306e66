"""Checks the checker: sound tables pass, and each kind of damage is found. Run with `python -m unittest`."""

import argparse
import base64
import datetime
import decimal
import json
import os
import struct
import tempfile
import unittest
import uuid
import zlib
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

import deletion_vectors
from check_tables import check

OPTIONS = ("foreign", "exact_timestamps", "require_stats", "no_orphans")
UTC = datetime.timezone.utc


def sample(rows=100):
    """A table with a column of each type, nulls, and odd values."""
    days = [datetime.date(1969, 12, 30) + datetime.timedelta(days=i % 40) for i in range(rows)]
    times = [datetime.datetime(2026, 11, 29, 1, 2, 3, i * 7, UTC) for i in range(rows)]
    maybe = lambda values: [None if i % 7 == 3 else value for i, value in enumerate(values)]
    return pa.table({
        "id": pa.array(range(rows), pa.int64()),
        "small": pa.array(maybe([i - 50 for i in range(rows)]), pa.int8()),
        "name": pa.array(maybe([f"{'ü' * 40}{i}" * 2 for i in range(rows)]), pa.string()),
        "day": pa.array(maybe(days), pa.date32()),
        "at": pa.array(maybe(times), pa.timestamp("us", "UTC")),
        "naive": pa.array(maybe([t.replace(tzinfo=None) for t in times]), pa.timestamp("us")),
        "price": pa.array(maybe([decimal.Decimal(i) / 100 - 3 for i in range(rows)]), pa.decimal128(15, 2)),
        "ratio": pa.array(maybe([i / 3 - 5 for i in range(rows)]), pa.float64()),
        "holes": pa.array([float("nan") if i == 5 else float(i) for i in range(rows)], pa.float64()),
        "flag": pa.array(maybe([i % 2 == 0 for i in range(rows)]), pa.bool_()),
        "raw": pa.array(maybe([bytes([i % 256, 0, 255]) for i in range(rows)]), pa.binary()),
        "nothing": pa.array([None] * rows, pa.int32()),
        "deep": pa.array(maybe([{"a": i, "b": {"c": str(i)} if i % 3 else None} for i in range(rows)])),
        "many": pa.array(maybe([[i, None, i + 1] for i in range(rows)]), pa.list_(pa.int32())),
    })


class Checker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.table = Path(folder.name) / "a table"

    def problems(self, **options):
        wanted = argparse.Namespace(**dict.fromkeys(OPTIONS, False) | options)
        return check(str(self.table), wanted)[0]

    def assertSound(self, **options):
        self.assertEqual(self.problems(**options), [])

    def assertFound(self, text, **options):
        problems = self.problems(**options)
        self.assertTrue(any(text in problem for problem in problems), f"{text!r} is not in {problems}")

    def edit(self, version, change):
        """Applies `change` to each action of a commit; one that returns None goes."""
        path = self.table / "_delta_log" / f"{version:020}.json"
        actions = [change(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(action) + "\n" for action in actions if action))

    def edit_stats(self, change):
        def of_add(action):
            if "add" in action:
                stats = json.loads(action["add"]["stats"])
                change(stats)
                action["add"]["stats"] = json.dumps(stats)
            return action

        self.edit(0, of_add)

    def files(self):
        return sorted(self.table.rglob("*.parquet"))

    # -- sound tables

    def test_all_types(self):
        write_deltalake(self.table, sample())
        self.assertSound(require_stats=True, no_orphans=True)

    def test_partitions_of_all_sorts(self):
        days = [None, datetime.date(2026, 1, 2), datetime.date(2026, 1, 2)]
        times = [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None, datetime.datetime(2026, 1, 2, tzinfo=UTC)]
        data = pa.table({"id": [1, 2, 3], "text": ["a b/c=d%é", None, "x"], "day": days,
                         "at": pa.array(times, pa.timestamp("us", "UTC")), "n": pa.array([1, None, 3], pa.int32())})
        write_deltalake(self.table, data, partition_by=["text", "day", "at", "n"])
        self.assertSound()

    def test_mapped_columns(self):
        data = pa.table({"a b": [1, 2], "deep": [{"x y": [{"z,": 1}]}, None], "p q": ["u", "v"]})
        write_deltalake(self.table, data, partition_by=["p q"],
                        configuration={"delta.columnMapping.mode": "name"})
        self.assertSound(require_stats=True)

    def test_new_columns_deletes_and_empty_tables(self):
        write_deltalake(self.table, pa.table({"id": [1, 2, 3]}))
        write_deltalake(self.table, pa.table({"id": [4], "more": ["x"]}), mode="append", schema_mode="merge")
        DeltaTable(self.table).delete("id = 2")
        self.assertSound(no_orphans=True)
        DeltaTable(self.table).delete()
        self.assertSound()

    def test_checkpoint_and_expired_log(self):
        self.write_history()
        self.assertSound()
        for version in range(3):
            (self.table / "_delta_log" / f"{version:020}.json").unlink()
        self.assertSound()

    def write_history(self):
        for number in range(4):
            write_deltalake(self.table, pa.table({"id": [number], "p": [str(number)]}), mode="append", partition_by=["p"])
            if number == 2:
                DeltaTable(self.table).create_checkpoint()

    def test_deletion_vector(self):
        write_deltalake(self.table, pa.table({"id": range(10)}))
        self.delete_softly([0, 3, 9])
        self.assertSound(no_orphans=True)
        self.assertEqual(DeltaTable(self.table).scan().read_all().num_rows, 7)

    def delete_softly(self, rows):
        bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
        data = struct.pack("<iqI", deletion_vectors.ARRAY_MAGIC, 1, 0) + bitmap
        name = uuid.uuid4()
        file = self.table / f"deletion_vector_{name}.bin"
        file.write_bytes(b"\x01" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
        # RFC 1924 is not ZeroMQ's alphabet: translate what base64.b85encode gives.
        b85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
        z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
        encoded = base64.b85encode(name.bytes).decode().translate(str.maketrans(b85, z85))
        lines = (self.table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        add = next(json.loads(line)["add"] for line in lines if "add" in json.loads(line))
        vector = {"storageType": "u", "pathOrInlineDv": encoded, "offset": 1, "sizeInBytes": len(data),
                  "cardinality": len(rows)}
        features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["deletionVectors"]}
        remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}
        actions = [{"protocol": features}, {"remove": remove}, {"add": {**add, "deletionVector": vector}}]
        target = self.table / "_delta_log" / f"{1:020}.json"
        target.write_text("".join(json.dumps(action) + "\n" for action in actions))

    # -- damage

    def test_missing_and_changed_files(self):
        write_deltalake(self.table, sample())
        with self.files()[0].open("ab") as file:
            file.write(b"x")
        self.assertFound("bytes, the log says")
        self.files()[0].unlink()
        self.assertFound("does not exist")

    def test_wrong_number_of_rows(self):
        write_deltalake(self.table, sample())
        self.edit_stats(lambda stats: stats.update(numRecords=99))
        self.assertFound("numRecords says 99")

    def test_wrong_bounds(self):
        changes = {"id": 98, "small": 48, "name": "a", "day": "1970-02-06", "at": "2026-11-29T01:02:03.001Z",
                   "naive": "2026-11-29T01:02:03.000692", "price": -2.02, "ratio": 27.9}
        write_deltalake(self.table, sample())
        for column, value in changes.items():
            with self.subTest(column):
                before = (self.table / "_delta_log" / f"{0:020}.json").read_text()
                self.edit_stats(lambda stats: stats["maxValues"].update({column: value}))
                self.assertFound(f"max of {column} is {value}")
                (self.table / "_delta_log" / f"{0:020}.json").write_text(before)
        self.edit_stats(lambda stats: stats["minValues"]["deep"]["b"].update(c="zz"))
        self.assertFound("min of deep.b.c is zz")

    def test_timestamps_cut_to_milliseconds(self):
        write_deltalake(self.table, sample())
        self.edit_stats(lambda stats: stats["maxValues"].update(at="2026-11-29T01:02:03.000Z"))
        self.assertSound()
        self.assertFound("max of at is", exact_timestamps=True)

    def test_wrong_null_count_and_missing_statistics(self):
        write_deltalake(self.table, sample())
        self.edit_stats(lambda stats: stats["nullCount"].update(day=0))
        self.assertFound("nullCount of day is 0")
        self.edit_stats(lambda stats: stats["minValues"].pop("price"))
        self.assertFound("statistics of price are missing", require_stats=True)

    def test_wrong_partition_value(self):
        write_deltalake(self.table, pa.table({"id": [1], "n": [5]}), partition_by=["n"])

        def change(action):
            if "add" in action:
                action["add"]["partitionValues"]["n"] = "6"
            return action

        self.edit(0, change)
        self.assertFound("the folder says n=5, the log '6'")

    def test_gap_in_the_versions(self):
        self.write_history()
        (self.table / "_delta_log" / f"{1:020}.json").unlink()
        self.assertFound("not contiguous")

    def test_no_protocol(self):
        write_deltalake(self.table, pa.table({"id": [1]}))
        self.edit(0, lambda action: None if "protocol" in action else action)
        self.assertFound("no protocol")

    def test_checkpoint_that_lies(self):
        self.write_history()
        path = next((self.table / "_delta_log").glob("*.checkpoint.parquet"))
        whole = pq.read_table(path)
        kept = [i for i, add in enumerate(whole["add"].to_pylist()) if not add or "p=1/" not in add["path"]]
        pq.write_table(whole.take(kept), path)
        self.assertFound("checkpoint 2 disagrees")

    def test_orphan(self):
        write_deltalake(self.table, pa.table({"id": [1]}))
        (self.table / "left-over.parquet").write_bytes(b"")
        self.assertSound()
        self.assertFound("left-over.parquet", no_orphans=True)

    def test_two_actions_for_one_file(self):
        write_deltalake(self.table, pa.table({"id": [1]}))
        path = self.table / "_delta_log" / f"{0:020}.json"
        add = next(line for line in path.read_text().splitlines() if '"add"' in line)
        path.write_text(path.read_text().rstrip("\n") + "\n" + add + "\n")
        self.assertFound("has two actions, add and add")

    def test_type_in_file(self):
        write_deltalake(self.table, pa.table({"id": pa.array([1], pa.int64())}))
        file = self.files()[0]
        duckdb.execute(f"COPY (SELECT 1::INTEGER AS id) TO '{file}' (FORMAT parquet)")
        size = os.path.getsize(file)

        def change(action):
            if "add" in action:
                action["add"]["size"] = size
            return action

        self.edit(0, change)
        self.assertFound("column id is int32, not int64")


if __name__ == "__main__":
    unittest.main()
