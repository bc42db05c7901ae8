"""The keys of rows, and which rows are the newest of theirs: of a key the one with the largest offset.

A key is one value, whatever columns it is in: a whole number of 64 bits, or bytes. The values of several columns
become bytes, each after its length, so that two are equal only if all of their columns are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pyspark_log_storage.columns.compaction_columns import CompactionColumns

    Offsets = NDArray[np.int64]

NONE = np.zeros(0, np.int64)
"""No offsets."""
_BETWEEN = pa.scalar(b":", pa.large_binary())


class NewestKeys(NamedTuple):
    """Keys, each once, and the offsets of their newest rows."""

    keys: pa.Array
    offsets: Offsets


def keys_in(rows: pa.RecordBatch, columns: CompactionColumns) -> pa.Array:
    """Return the key of each row, null for a row without one.

    Rows of before a key column was added lack it: they have no key.
    """
    if any(each not in rows.schema.names for each in columns.keys):
        return pa.nulls(rows.num_rows)
    parts = [_plain(rows.column(each)) for each in columns.keys]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(piece for each in parts for piece in _measured(each)), _BETWEEN)


def _plain(column: pa.Array) -> pa.Array:
    """Return values as whole numbers of 64 bits, or as bytes: texts and bytes are the same key if their bytes are."""
    return column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.large_binary())


def _measured(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the lengths and the bytes of values, as bytes."""
    if pa.types.is_integer(part.type):
        part = part.cast(pa.large_string()).cast(pa.large_binary())
    return pc.binary_length(part).cast(pa.large_string()).cast(pa.large_binary()), part


def newest(found: Iterable[tuple[pa.Array, Offsets]]) -> NewestKeys:
    """Return the newest row of each key, of rows with these keys and offsets. Rows without a key are left out."""
    some = [each for each in found if each[0].null_count < len(each[0])]
    if not some:
        return NewestKeys(pa.nulls(0), NONE)
    encoded = pa.chunked_array([keys for keys, _ in some]).dictionary_encode()
    keys = encoded.chunk(encoded.num_chunks - 1).dictionary
    newest_of = np.full(len(keys), -1, np.int64)
    for chunk, (_, offsets) in zip(encoded.chunks, some, strict=True):
        with_key = np.asarray(chunk.indices.is_valid())
        np.maximum.at(newest_of, np.asarray(chunk.indices.drop_null()), offsets[with_key])
    return NewestKeys(keys, newest_of)


def are_among(keys: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> NDArray[np.bool_]:
    """Return which keys are among the wanted ones. A row without a key is not."""
    if not len(wanted) or keys.type != wanted.type:
        return np.zeros(len(keys), bool)
    return np.asarray(pc.is_in(keys, value_set=wanted))


def matched(
    found: Iterable[tuple[pa.Array, Offsets]], wanted: pa.Array
) -> Iterator[tuple[Offsets, NDArray[np.bool_], NDArray[np.bool_]]]:
    """Yield offsets of rows, which of these rows have a key, and which have one of the wanted ones.

    Arrow makes a table of the wanted keys each time that it compares some with them, so as many are compared at once.
    """
    waiting: list[tuple[pa.Array, Offsets]] = []
    count = 0
    for each in found:
        waiting.append(each)
        count += len(each[1])
        if count >= len(wanted):
            yield _matched(waiting, wanted)
            waiting, count = [], 0
    if waiting:
        yield _matched(waiting, wanted)


def _matched(
    waiting: list[tuple[pa.Array, Offsets]], wanted: pa.Array
) -> tuple[Offsets, NDArray[np.bool_], NDArray[np.bool_]]:
    offsets = np.concatenate([each for _, each in waiting])
    has_key = np.concatenate([np.asarray(each.is_valid()) for each, _ in waiting])
    kinds = {each.type for each, _ in waiting}
    if len(kinds) == 1:
        return offsets, has_key, are_among(pa.chunked_array([each for each, _ in waiting]), wanted)
    return offsets, has_key, np.concatenate([are_among(each, wanted) for each, _ in waiting])


def deletes(rows: pa.RecordBatch, columns: CompactionColumns) -> NDArray[np.bool_]:
    """Return which rows delete their key."""
    names = rows.schema.names
    if columns.value and columns.value in names:
        return np.asarray(rows.column(columns.value).is_null())
    if columns.delete_when and columns.delete_when in names:
        return np.asarray(pc.fill_null(rows.column(columns.delete_when), False))
    return np.zeros(rows.num_rows, bool)


def is_in(offsets: Offsets, ascending: Offsets) -> NDArray[np.bool_]:
    """Return which offsets are among others, which ascend."""
    if not len(ascending):
        return np.zeros(len(offsets), bool)
    places = np.searchsorted(ascending, offsets)
    return np.asarray(ascending[np.minimum(places, len(ascending) - 1)] == offsets)
