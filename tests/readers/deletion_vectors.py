"""Reads the deletion vectors of the Delta protocol: which rows of a data file are gone.

Knows the three places where a vector can be (in the log, in a file of the table, anywhere) and the
Roaring format, portable and 64 bits wide. Writing vectors is no concern of it.
"""

import base64
import struct
import uuid
import zlib

ARRAY_MAGIC = 1681511377
COOKIE_WITH_RUNS = 12347
COOKIE = 12346
# From this many containers on, a bitmap with runs has an offset header.
OFFSETS_FROM = 4
ARRAY_LIMIT = 4096


class VectorError(Exception):
    """A vector that does not follow the protocol."""


def relative_file(vector):
    """The vector's file relative to the table, or None if the vector is in the log itself."""
    kind, text = vector["storageType"], vector["pathOrInlineDv"]
    if kind == "i":
        return None
    if kind == "u":
        prefix, encoded = text[:-20], text[-20:]
        name = f"deletion_vector_{uuid.UUID(bytes=_z85(encoded))}.bin"
        return f"{prefix}/{name}" if prefix else name
    if kind == "p":
        return text
    raise VectorError(f"unknown storage type {kind!r} of a deletion vector")


def positions(vector, read_file):
    """The set of row positions that are gone; `read_file(path)` gives a file's bytes."""
    path = relative_file(vector)
    if path is None:
        data = _z85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    else:
        whole, at = read_file(path), vector.get("offset") or 0
        # Where there is no offset the vector follows the file's version byte.
        at = at or 1
        (size,) = struct.unpack_from(">i", whole, at)
        data = whole[at + 4 : at + 4 + size]
        (checksum,) = struct.unpack_from(">I", whole, at + 4 + size)
        if size != vector["sizeInBytes"]:
            raise VectorError(f"{path} has a vector of {size} bytes, the log says {vector['sizeInBytes']}")
        if zlib.crc32(data) != checksum:
            raise VectorError(f"{path}: the checksum of the deletion vector is wrong")
    rows = _bitmap_array(data)
    if len(rows) != vector["cardinality"]:
        raise VectorError(f"a deletion vector has {len(rows)} rows, the log says {vector['cardinality']}")
    return rows


def _z85(text):
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    out = b""
    for start in range(0, len(text), 5):
        value = 0
        for char in text[start : start + 5]:
            value = value * 85 + alphabet.index(char)
        out += struct.pack(">I", value)
    return out


def _bitmap_array(data):
    (magic,) = struct.unpack_from("<i", data, 0)
    if magic != ARRAY_MAGIC:
        raise VectorError(f"unknown form {magic} of a deletion vector")
    (count,) = struct.unpack_from("<q", data, 4)
    at, rows = 12, set()
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _bitmap(data, at + 4)
        rows.update(high << 32 | value for value in low)
    return rows


def _bitmap(data, at):
    """The values of one 32 bit bitmap, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == COOKIE_WITH_RUNS:
        count, at = (cookie >> 16) + 1, at + 4
        flags = data[at : at + (count + 7) // 8]
        at += len(flags)
        has_offsets = count >= OFFSETS_FROM
    elif cookie == COOKIE:
        (count,) = struct.unpack_from("<I", data, at + 4)
        at, flags, has_offsets = at + 8, b"", True
    else:
        raise VectorError(f"unknown bitmap cookie {cookie}")
    heads = [struct.unpack_from("<HH", data, at + 4 * i) for i in range(count)]
    at += 4 * count + (4 * count if has_offsets else 0)
    values = []
    for index, (key, size_less_one) in enumerate(heads):
        is_run = bool(flags) and flags[index // 8] >> index % 8 & 1
        low, at = _container(data, at, size_less_one + 1, is_run)
        values.extend(key << 16 | value for value in low)
    return values, at


def _container(data, at, size, is_run):
    if is_run:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = struct.unpack_from(f"<{2 * runs}H", data, at + 2)
        low = [v for start, more in zip(pairs[::2], pairs[1::2]) for v in range(start, start + more + 1)]
        return low, at + 2 + 4 * runs
    if size <= ARRAY_LIMIT:
        return struct.unpack_from(f"<{size}H", data, at), at + 2 * size
    words = data[at : at + 8192]
    return [8 * i + bit for i, byte in enumerate(words) for bit in range(8) if byte >> bit & 1], at + 8192
