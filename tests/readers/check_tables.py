"""Checks Delta tables from outside: the log, the statistics, the files, and the rows as two readers see them.

    check_tables.py [options] TABLE_URI...

A TABLE_URI is a folder, file:// or s3:// (with the usual AWS_* variables). The log is replayed by hand
(delta_log.py) and the data files are read with DuckDB; what comes out must be, as a multiset, what the
deltalake library reads. Besides that every number that the log states about a file is checked against the
file. Prints one line per table, and each fault that was found; the exit status is 1 if there was one, 2
if the arguments make no sense.
"""

import argparse
import datetime
import decimal
import json
import math
import os
import re
import sys
import tempfile
import urllib.parse
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

import deletion_vectors
from delta_log import Log, LogError, stats_of

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
READABLE = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
MAX_LISTED = 20
STATS_COLUMNS = 32
PLAIN_TYPES = {
    "string": "VARCHAR", "long": "BIGINT", "integer": "INTEGER", "short": "SMALLINT", "byte": "TINYINT",
    "float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
}
ARROW_TYPES = {
    "string": (pa.string(), pa.large_string(), pa.string_view()), "long": (pa.int64(),), "integer": (pa.int32(),),
    "short": (pa.int16(),), "byte": (pa.int8(),), "float": (pa.float32(),), "double": (pa.float64(),),
    "boolean": (pa.bool_(),), "binary": (pa.binary(), pa.large_binary(), pa.binary_view()), "date": (pa.date32(),),
    "timestamp": (pa.timestamp("us", "UTC"),), "timestamp_ntz": (pa.timestamp("us"),),
}


class Store:
    """The files of one table."""

    def __init__(self, uri):
        parts = urllib.parse.urlsplit(uri)
        if parts.scheme == "s3":
            endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
            base = pa.fs.S3FileSystem(
                endpoint_override=endpoint, region=os.environ.get("AWS_REGION", "us-east-1"),
                scheme="http" if (endpoint or "").startswith("http://") else "https")
            path, self.local = f"{parts.netloc}{parts.path}".rstrip("/"), None
        elif parts.scheme in ("", "file"):
            path = urllib.parse.unquote(parts.path) if parts.scheme else uri
            path = str(Path(path).resolve())
            base, self.local = pa.fs.LocalFileSystem(), Path(path)
        else:
            raise LogError(f"{parts.scheme}:// is not known here")
        self.files = pa.fs.SubTreeFileSystem(path, base)

    def list(self, folder, recursive=False):
        """Names of the files in a folder (recursively: paths); none if there is no such folder."""
        found = self.files.get_file_info(pa.fs.FileSelector(folder, allow_not_found=True, recursive=recursive))
        return [f.path if recursive else f.base_name for f in found if f.type == pa.fs.FileType.File]

    def read(self, path):
        with self.files.open_input_stream(path) as stream:
            return stream.read()

    def open(self, path):
        return self.files.open_input_file(path)

    def size(self, path):
        """Bytes of a file, None if there is none."""
        info = self.files.get_file_info(path)
        return info.size if info.type == pa.fs.FileType.File else None

    def fetch(self, path, folder):
        """A local path with the file's content."""
        if self.local:
            return str(self.local / path)
        target = Path(folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.read(path))
        return str(target)


class Column:
    """A top-level column: its name in queries and its name in files."""

    def __init__(self, field, mapped):
        self.name, self.type, self.nullable = field["name"], field["type"], field["nullable"]
        self.physical = field["metadata"]["delta.columnMapping.physicalName"] if mapped else self.name
        self.mapped = mapped

    @property
    def sql_type(self):
        return sql_type(self.type)

    def leaves(self, type=None, path=()):
        """(path, type) of all columns that can have statistics, from structs as well."""
        type, path = type or self.type, path or (self.physical,)
        if isinstance(type, dict):
            if type["type"] == "struct":
                for field in type["fields"]:
                    meta = field["metadata"]
                    name = meta["delta.columnMapping.physicalName"] if self.mapped else field["name"]
                    yield from self.leaves(field["type"], (*path, name))
        else:
            yield path, type


class Table:
    """One table under test. `problems` holds what is wrong with it."""

    def __init__(self, uri, options, scratch):
        self.uri, self.options, self.scratch = uri, options, scratch
        self.store, self.problems = Store(uri), []
        self.db = duckdb.connect()
        self.db.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")

    def check(self):
        """Runs all checks; returns a line about the table."""
        log = Log(self.store, self.problems)
        self.state = log.replay()
        self.check_protocol()
        self.read_schema()
        self.check_files()
        if self.options.no_orphans:
            self.check_orphans()
        self.check_stats()
        rows = self.check_rows()
        return f"version {self.state.version}, {len(self.state.files)} files, {rows} rows"

    def rows_of(self, query, parameters=None):
        """All rows of a query. DuckDB wants a result read to its end before the next statement."""
        return self.db.execute(query, parameters).fetchall()

    def register(self, name, rows, fields):
        """Makes `rows` a table of the database."""
        columns = zip(*rows) if rows else [[] for _ in fields]
        arrays = [pa.array(list(values), type) for values, (_, type) in zip(columns, fields)]
        self.db.register(name, pa.table(arrays, schema=pa.schema(fields)))

    def say(self, text):
        self.problems.append(text)

    # -- log and schema

    def check_protocol(self):
        protocol = self.state.protocol
        reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
        for level, features, limit in ((reader, "readerFeatures", 3), (writer, "writerFeatures", 7)):
            if (level == limit) != (features in protocol):
                self.say(f"protocol: {features} goes with version {limit}, not with {level}")
        missing = set(protocol.get("readerFeatures", [])) - set(protocol.get("writerFeatures", []))
        if missing:
            self.say(f"protocol: reader features {sorted(missing)} are no writer features")
        unknown = set(protocol.get("readerFeatures", [])) - READABLE
        if unknown:
            raise LogError(f"cannot check a table with the features {sorted(unknown)}")

    def read_schema(self):
        metadata = self.state.metadata
        mapped = metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none"
        columns = [Column(field, mapped) for field in json.loads(metadata["schemaString"])["fields"]]
        names = [column.name.lower() for column in columns]
        if len(set(names)) != len(names):
            self.say("schema: two columns differ in case only, or not at all")
        partitions = metadata.get("partitionColumns", [])
        known = {column.name for column in columns}
        for name in partitions:
            if name not in known:
                self.say(f"partition column {name} is not in the schema")
        self.columns = columns
        self.partition_columns = [column for column in columns if column.name in partitions]
        self.data_columns = [column for column in columns if column.name not in partitions]

    # -- files

    def check_files(self):
        """Existence, size, schema and partition values. Fills `local_files`: key -> local path."""
        self.local_files, self.file_columns = {}, set()
        paths = {}
        for key, add in self.state.files.items():
            path = urllib.parse.unquote(add["path"])
            if path in paths:
                self.say(f"{path} is active twice, with different deletion vectors")
            paths[path] = key
            size = self.store.size(path)
            if size is None:
                self.say(f"{path} is in the log but does not exist")
                continue
            if size != add["size"]:
                self.say(f"{path} has {size} bytes, the log says {add['size']}")
            self.check_partition_values(path, add)
            local = self.store.fetch(path, self.scratch)
            try:
                self.check_file_schema(path, pq.read_schema(local))
            except (pa.ArrowInvalid, OSError) as error:
                self.say(f"{path} is no Parquet file: {error}")
                continue
            self.local_files[key] = local

    def check_file_schema(self, path, schema):
        self.file_columns.update(schema.names)
        if len(set(schema.names)) != len(schema.names):
            self.say(f"{path} has two columns of one name")
        for column in self.data_columns:
            at = schema.get_field_index(column.physical)
            if at < 0 or isinstance(column.type, dict) or self.options.foreign:
                continue
            expected = arrow_types(column.type)
            if schema.field(at).type not in expected:
                self.say(f"{path}: column {column.name} is {schema.field(at).type}, not {expected[0]}")

    def check_partition_values(self, path, add):
        values = add.get("partitionValues") or {}
        expected = {column.physical for column in self.partition_columns}
        if set(values) != expected:
            self.say(f"{path}: partitionValues has {sorted(values)}, the table {sorted(expected)}")
            return
        folders = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        for column in self.partition_columns:
            text = values[column.physical]
            try:
                parse_partition(text, column.type)
            except (ValueError, ArithmeticError):
                self.say(f"{path}: partition value {text!r} of {column.name} is no {column.type}")
            if column.name in folders:
                folder = urllib.parse.unquote(folders[column.name])
                if (None if folder == NULL_FOLDER else folder) != (text or None):
                    self.say(f"{path}: the folder says {column.name}={folder}, the log {text!r}")

    def check_orphans(self):
        known = set()
        for action in [*self.state.files.values(), *self.state.tombstones.values()]:
            known.add(urllib.parse.unquote(action["path"]))
            vector = action.get("deletionVector")
            if vector and deletion_vectors.relative_file(vector):
                known.add(deletion_vectors.relative_file(vector))
        for path in self.store.list("", recursive=True):
            hidden = any(part[0] in "._" and "=" not in part for part in path.split("/"))
            if not hidden and path not in known:
                self.say(f"{path} is no file that the log knows")

    # -- statistics

    def check_stats(self):
        leaves = [leaf for column in self.data_columns for leaf in column.leaves()]
        required = {path for path, _ in leaves[:STATS_COLUMNS]} if self.options.require_stats else set()
        for key, local in self.local_files.items():
            add = self.state.files[key]
            stats = stats_of(add)
            present = set(pq.read_schema(local).names)
            usable = [(path, type) for path, type in leaves if path[0] in present]
            measured = self.measure(local, usable)
            self.check_file_stats(add, stats, measured, usable, required)

    def measure(self, local, leaves):
        """Rows and (nulls, min, max, NaNs) per leaf of one file, from its values.

        With pyarrow and not with DuckDB, which answers such queries from the Parquet file's own statistics.
        """
        file = pq.ParquetFile(local)
        return file.metadata.num_rows, {path: extremes(file, path, type) for path, type in leaves}

    def check_file_stats(self, add, stats, measured, leaves, required):
        path, (rows, by_leaf) = add["path"], measured
        for column in self.data_columns:
            nulls = by_leaf.get((column.physical,), (0,))[0]
            if not column.nullable and nulls:
                self.say(f"{path}: column {column.name} is NOT NULL and has {nulls} nulls")
        if "numRecords" not in stats:
            if required:
                self.say(f"{path} has no statistics")
            return
        if stats["numRecords"] != rows:
            self.say(f"{path} has {rows} rows, numRecords says {stats['numRecords']}")
        tight = stats.get("tightBounds", True)
        for leaf, type in leaves:
            name, (nulls, low, high, nan_count) = ".".join(leaf), by_leaf[leaf]
            stated = pick(stats.get("nullCount"), leaf)
            if stated is not None and stated != nulls:
                self.say(f"{path}: nullCount of {name} is {stated}, the file has {nulls}")
            least, most = pick(stats.get("minValues"), leaf), pick(stats.get("maxValues"), leaf)
            must = leaf in required and type not in ("binary", "boolean") and low is not None and not nan_count
            if must and (stated is None or least is None or most is None):
                self.say(f"{path}: the statistics of {name} are missing")
            for word, value, actual, sign in (("min", least, low, 1), ("max", most, high, -1)):
                fault = value is not None and bound_fault(
                    value, actual, type, sign, tight, nan_count, self.options)
                if fault:
                    self.say(f"{path}: {word} of {name} is {value}, but {fault}")

    # -- rows

    def check_rows(self):
        """Compares the rows of the two readers; returns their number."""
        try:
            table = DeltaTable(self.uri)
            if table.version() != self.state.version:
                self.say(f"deltalake is at version {table.version()}, the log at {self.state.version}")
            theirs = pa.table(table.scan())
        except Exception as error:
            self.say(f"deltalake cannot read the table: {error}")
            return "no"
        if theirs.schema.names != [column.name for column in self.columns]:
            self.say(f"deltalake sees the columns {theirs.schema.names}")
            return theirs.num_rows
        self.db.register("theirs_raw", theirs)
        columns = ", ".join(f"CAST({quoted(c.name)} AS {c.sql_type}) AS {quoted(c.name)}" for c in self.columns)
        self.rows_of(f"CREATE TEMP VIEW theirs AS SELECT {columns} FROM theirs_raw")
        self.create_own_view()
        names = ", ".join(quoted(column.name) for column in self.columns)
        summary = "SELECT count(*), sum(hash({})::HUGEINT) FROM {}"
        ours, other = (self.rows_of(summary.format(names, view))[0] for view in ("ours", "theirs"))
        if ours != other:
            self.say(f"DuckDB reads {ours[0]} rows, deltalake {other[0]}")
            for left, right, who in (("ours", "theirs", "DuckDB"), ("theirs", "ours", "deltalake")):
                query = f"SELECT {names} FROM {left} EXCEPT ALL SELECT {names} FROM {right} LIMIT 3"
                for row in self.rows_of(f"SELECT COLUMNS(*)::VARCHAR FROM ({query})"):
                    self.say(f"only {who} reads the row {row}")
        return ours[0]

    def create_own_view(self):
        """The view `ours`: data files by DuckDB, partition values and deletion vectors by hand."""
        values, gone = [], []
        for key, local in self.local_files.items():
            add = self.state.files[key]
            partition = add.get("partitionValues") or {}
            values.append([local, *((partition.get(c.physical) or None) for c in self.partition_columns)])
            if add.get("deletionVector"):
                rows = deletion_vectors.positions(add["deletionVector"], self.store.read)
                gone += [(local, row) for row in rows]
        names = ["file", *(f"p{i}" for i in range(len(self.partition_columns)))]
        self.register("parts", values, [(name, pa.string()) for name in names])
        self.register("gone", gone, [("file", pa.string()), ("position", pa.int64())])
        select = []
        for column in self.columns:
            source = "NULL"
            if column in self.partition_columns:
                source = f"parts.p{self.partition_columns.index(column)}"
                if column.type == "binary":
                    source = f"encode({source})"
            elif column.physical in self.file_columns:
                source = logical(f"data.{quoted(column.physical)}", column.type) if column.mapped else (
                    f"data.{quoted(column.physical)}")
            select.append(f"CAST({source} AS {column.sql_type}) AS {quoted(column.name)}")
        if not values:
            self.rows_of(f"CREATE TEMP VIEW ours AS SELECT {', '.join(select)} FROM parts")
            return
        files = ", ".join(literal(row[0]) for row in values)
        self.rows_of(
            f"CREATE TEMP VIEW ours AS SELECT {', '.join(select)} "
            f"FROM read_parquet([{files}], union_by_name = true, filename = '__file', file_row_number = true, "
            "hive_partitioning = false) AS data JOIN parts ON parts.file = data.__file "
            "WHERE NOT EXISTS (FROM gone WHERE gone.file = data.__file AND gone.position = data.file_row_number)")


def extremes(file, path, type):
    """(nulls, min, max, NaNs) of one leaf column of a Parquet file; timestamps in microseconds."""
    nulls, low, high, nan_count = 0, None, None, 0
    for batch in file.iter_batches(columns=[path[0]]):
        values = batch.column(0)
        for index, name in enumerate(path):
            values = values if index == 0 else pc.struct_field(values, name)
        nulls += values.null_count
        if type in ("float", "double"):
            is_nan = pc.fill_null(pc.is_nan(values), False)
            nan_count += pc.sum(is_nan).as_py() or 0
            values = values.filter(pc.invert(is_nan))
        if type in ("timestamp", "timestamp_ntz"):
            values = pc.cast(pc.cast(values, pa.timestamp("us", values.type.tz), safe=False), pa.int64())
        if type in ("string", "binary"):
            values = pc.cast(values, pa.large_string() if type == "string" else pa.large_binary())
        if type == "boolean":
            values = pc.cast(values, pa.int8())
        bounds = pc.min_max(values).as_py()
        if bounds["min"] is not None:
            low = bounds["min"] if low is None else min(low, bounds["min"])
            high = bounds["max"] if high is None else max(high, bounds["max"])
    return nulls, low, high, nan_count


def bound_fault(value, actual, type, sign, tight, nan_count, options):
    """Why a stated bound is wrong, or None. `sign` is 1 for a least and -1 for a greatest value."""
    if actual is None:
        return None if nan_count else "the file has no value there"
    if type == "binary":
        return None
    try:
        stated = parse_stat(value, type)
    except (ValueError, ArithmeticError, AttributeError):
        return f"that is no {type}"
    if stated == actual:
        return None
    if type == "string":
        before, after = stated.encode(), actual.encode()
        within = before <= after if sign > 0 else before >= after
        return None if within else f"the file has {actual!r}"
    if isinstance(stated, float) and (math.isnan(stated) or nan_count):
        return None if nan_count else f"the file has {actual}"
    is_time = type in ("timestamp", "timestamp_ntz")
    if is_time and not options.exact_timestamps and stated == actual // 1000 * 1000:
        # The protocol has writers cut timestamps to milliseconds, and readers allow for it.
        return None
    if options.foreign and isinstance(stated, decimal.Decimal) and float(stated) == float(actual):
        return None
    within = stated <= actual if sign > 0 else stated >= actual
    if not tight and within:
        return None
    return f"the file has {actual}"


def parse_stat(value, type):
    """A statistic of the log as the Python value that `measure` gives for the type."""
    if type == "string":
        if not isinstance(value, str):
            raise ValueError(value)
        return value
    if type in ("timestamp", "timestamp_ntz"):
        return micros(value)
    if type == "date":
        return datetime.date.fromisoformat(value)
    if type == "boolean":
        return {"true": True, "false": False}[str(value).lower()]
    if type.startswith("decimal"):
        return decimal.Decimal(str(value))
    if type in ("float", "double"):
        return float(value)
    return int(value)


def parse_partition(text, type):
    """A partition value; raises if the text is none of the type."""
    if text is None or text == "" or type in ("string", "binary"):
        return text
    if type.startswith("decimal"):
        return decimal.Decimal(text)
    if type == "boolean" and text not in ("true", "false"):
        raise ValueError(text)
    return parse_stat(text, type)


def micros(text):
    """Microseconds since 1970 of a timestamp with or without zone."""
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    since = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return since // datetime.timedelta(microseconds=1)


def pick(values, path):
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def sql_type(type):
    """DuckDB's name of a Delta type."""
    if isinstance(type, dict):
        if type["type"] == "struct":
            return "STRUCT(" + ", ".join(f"{quoted(f['name'])} {sql_type(f['type'])}" for f in type["fields"]) + ")"
        if type["type"] == "array":
            return sql_type(type["elementType"]) + "[]"
        return f"MAP({sql_type(type['keyType'])}, {sql_type(type['valueType'])})"
    return PLAIN_TYPES.get(type) or type.upper()


def logical(value, type, depth=0):
    """An expression of DuckDB that gives the fields of structs their logical names."""
    if not isinstance(type, dict) or type["type"] == "map":
        return value
    if type["type"] == "array":
        item = f"item{depth}"
        return f"list_transform({value}, lambda {item}: {logical(item, type['elementType'], depth + 1)})"
    fields = []
    for field in type["fields"]:
        physical = field["metadata"]["delta.columnMapping.physicalName"]
        fields.append(f"{quoted(field['name'])} := {logical(f'{value}.{quoted(physical)}', field['type'], depth)}")
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"


def arrow_types(type):
    """The Arrow types of a Parquet column that holds a Delta type."""
    if type in ARROW_TYPES:
        return ARROW_TYPES[type]
    precision, scale = map(int, re.findall(r"\d+", type))
    return (pa.decimal128(precision, scale),)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def check(uri, options):
    """The faults of one table, and a line about it."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            table = Table(uri, options, scratch)
            found = table.problems
            return table.problems, table.check()
        except (LogError, deletion_vectors.VectorError, duckdb.Error, pa.ArrowException, OSError) as error:
            return [*found, f"{type(error).__name__}: {error}"], "not checked to its end"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", metavar="TABLE_URI")
    parser.add_argument("--foreign", action="store_true",
                        help="accept what other writers do: decimals as doubles in statistics, other physical types "
                             "in files")
    parser.add_argument("--exact-timestamps", action="store_true",
                        help="timestamps in statistics must be right to the microsecond, not only to the millisecond")
    parser.add_argument("--require-stats", action="store_true",
                        help="all files must have statistics of the first 32 columns")
    parser.add_argument("--no-orphans", action="store_true",
                        help="each data file below the table must be known to the log")
    options = parser.parse_args()
    failed = False
    for uri in options.tables:
        problems, line = check(uri, options)
        failed |= bool(problems)
        print(f"{'FAULTY' if problems else 'ok'} {uri}: {line}")
        for problem in problems[:MAX_LISTED]:
            print(f"  {problem}")
        if len(problems) > MAX_LISTED:
            print(f"  ... and {len(problems) - MAX_LISTED} more")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
