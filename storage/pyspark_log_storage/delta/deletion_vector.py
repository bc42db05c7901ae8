"""Deletion vectors: which rows of a file are not part of a Delta table. Source: PROTOCOL.md, "Deletion Vectors".

    u32 magic | i64 1 | u32 0 | u32 cookie | u32 containers | containers x (u16 key | u16 rows - 1)
              | containers x u32 position | containers x (u16[rows], or 8,192 bytes with a bit for each row)

It is a 64-bit Roaring bitmap in its portable format, of one bucket: a file has fewer than 2^32 rows. A container has
the rows whose number divided by 65,536 is its key. One with at most 4,096 rows lists them, another has bits; runs are
not used. So a vector takes at most a bit for each row of the file, and equal rows have equal bytes. Numbers are
little-endian; positions are those of containers, counted from the cookie.

It is stored in the version itself, as text: four bytes, as one big-endian number, are five digits of base 85 (Z85).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from pyspark_log_storage.delta.delta_actions import DeletionVector
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

INLINE = "i"
"""The storage type of vectors that are in the version."""

_MAGIC, _COOKIE = 1681511377, 12346
_HEAD, _BEFORE_COOKIE = struct.Struct("<IqIII"), 16
_CONTAINER_ROWS = 1 << 16
_LISTED_MAX = 4096
"""A container with more rows has bits, as the format says."""
_BITS_BYTES = _CONTAINER_ROWS // 8
_CONTAINER, _POSITION = np.dtype([("key", "<u2"), ("last", "<u2")]), np.dtype("<u4")

_DIGITS = np.array(
    list(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"), np.uint8
)
_BASE, _WORD = len(_DIGITS), 4
_POWERS = np.array([_BASE**power for power in (4, 3, 2, 1, 0)], np.uint64)
_NO_DIGIT = 255
_VALUES = np.full(256, _NO_DIGIT, np.uint8)
_VALUES[_DIGITS] = np.arange(_BASE, dtype=np.uint8)


def encode(rows: Rows) -> DeletionVector | None:
    """Return the vector of these rows of a file, which are numbered from 0 and ascend; None if there are none."""
    if not len(rows):
        return None
    assert rows[-1] < 1 << 32
    keys = rows // _CONTAINER_ROWS
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(rows))
    containers = np.empty(len(starts), _CONTAINER)
    containers["key"], containers["last"] = keys[starts], counts - 1
    lows = (rows % _CONTAINER_ROWS).astype("<u2")
    stored = [_container(lows[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    head = _HEAD.pack(_MAGIC, 1, 0, _COOKIE, len(starts))
    begin = len(head) - _BEFORE_COOKIE + len(starts) * (_CONTAINER.itemsize + _POSITION.itemsize)
    positions = begin + np.cumsum([0, *map(len, stored[:-1])])
    data = b"".join([head, containers.tobytes(), positions.astype(_POSITION).tobytes(), *stored])
    return DeletionVector(INLINE, _as_text(data), len(data), len(rows))


def decode(vector: DeletionVector, rows: int, name: str) -> Rows:
    """Return the rows of a vector that `encode` has made for a file of `rows` rows, ascending.

    Raises `CorruptObject`, which names it as `name`, for every other vector. Takes some 16 bytes of memory for each row
    of the file.
    """
    found = _rows_of(_as_bytes(vector), rows)
    if found is None or encode(found) != vector:
        raise CorruptObject(name, "its deletion vector is not one that pyspark-log has written for its rows")
    return found


def _rows_of(data: bytes, rows: int) -> Rows | None:
    """Return the rows in a bitmap, or None if a file with so many rows cannot have it."""
    if len(data) < _HEAD.size:
        return None
    *_, count = _HEAD.unpack_from(data)
    at = _HEAD.size + count * (_CONTAINER.itemsize + _POSITION.itemsize)
    if len(data) < at:
        return None
    found, left = [np.zeros(0, np.int64)], rows
    for key, last in np.frombuffer(data, _CONTAINER, count, _HEAD.size).tolist():
        is_listed = last < _LISTED_MAX
        size = 2 * (last + 1) if is_listed else _BITS_BYTES
        left -= last + 1
        if left < 0 or len(data) < at + size:
            return None
        if is_listed:
            lows = np.frombuffer(data, "<u2", last + 1, at).astype(np.int64)
        else:
            lows = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8, size, at), bitorder="little"))
        found.append(lows + key * _CONTAINER_ROWS)
        at += size
    every = np.concatenate(found)
    is_right = len(every) and every[-1] < rows and (every[1:] > every[:-1]).all()
    return every if is_right else None


def _container(lows: NDArray[np.uint16]) -> bytes:
    """Return the rows of a container, without its key, as they are stored."""
    if len(lows) <= _LISTED_MAX:
        return lows.tobytes()
    is_in = np.zeros(_CONTAINER_ROWS, np.uint8)
    is_in[lows] = 1
    return np.packbits(is_in, bitorder="little").tobytes()


def _as_text(data: bytes) -> str:
    """Return bytes in base 85, filled up with zeros to a multiple of four."""
    words = np.frombuffer(data + b"\0" * (-len(data) % _WORD), ">u4").astype(np.uint64)
    digits = words[:, np.newaxis] // _POWERS % np.uint64(_BASE)
    return bytes(_DIGITS[digits]).decode()


def _as_bytes(vector: DeletionVector) -> bytes:
    """Return the bytes of a vector's text, fewer than it says or none if it is no such text."""
    digits = _VALUES[np.frombuffer(vector.path_or_inline_dv.encode(), np.uint8)]
    if len(digits) % len(_POWERS) or (digits == _NO_DIGIT).any():
        return b""
    words = digits.reshape(-1, len(_POWERS)).astype(np.uint64) @ _POWERS
    return (words.astype(">u4") if len(words) else words).tobytes()[: vector.size_in_bytes]
