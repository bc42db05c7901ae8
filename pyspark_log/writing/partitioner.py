"""The partition of a row: Kafka's rule, for a whole Arrow column at a time.

The explicit partition if the row has one, else murmur2 of the key, else the sticky partition that the caller chose for
this task and batch. So a key gets the same partition as from Kafka's own partitioner.

Murmur2 consumes a key in little-endian words of four bytes, then the 0 to 3 remaining bytes. Here one step consumes
word i of all keys that have one, in blocks of rows that fit the processor's cache. Keys of one length are a matrix and
read in place. Other keys are sorted by their number of words, so that those with a word i are the end of the block. A
few keys that are much longer than all others are hashed alone.

Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive, BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SEED = np.uint32(0x9747B28C)
M = np.uint32(0x5BD1E995)
TAIL_FACTORS = np.array([1, M, M, M], np.uint32)
"""By the number of bytes after the last whole word. Kafka does not multiply if there are none."""

WORD = np.dtype("<u4")
WORD_SHIFT = 2
WORD_BYTES = 1 << WORD_SHIFT
POSITIVE = np.uint32(0x7FFF_FFFF)

BLOCK_ROWS_MAX = 8_192
BLOCK_BYTES_MAX = 1 << 20
"""A block of several lengths needs about five times its bytes; a longer key is a block of its own."""

LONG_KEY_BYTES = 256
TOGETHER_ROWS_MIN = 64
"""Beyond LONG_KEY_BYTES a step in numpy for fewer keys than this costs more than a loop over each key."""


def partition_of(keys: pa.Array, explicit: pa.Array | None, partitions: int, sticky: int) -> NDArray[np.int32]:
    """Return the partition of every row.

    `explicit` is an integer column, or None if the frame has none. `keys` may be of type null. Raises `InvalidRecord`
    for an explicit value that is not a partition of the topic.
    """
    assert 0 <= sticky < partitions, f"sticky partition {sticky} of {partitions}"
    if explicit is None or explicit.null_count == len(explicit):
        return _partition_of_keys(keys, partitions, sticky)
    check_explicit(explicit, partitions)
    if explicit.null_count == 0:
        return np.asarray(explicit).astype(np.int32, copy=False)
    chosen = np.asarray(explicit.fill_null(0)).astype(np.int32, copy=False)
    return np.where(_is_null(explicit), _partition_of_keys(keys, partitions, sticky), chosen)


def group_by_partition(
    partition_ids: NDArray[np.int32], partitions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `order` and `bounds`: `order[bounds[p]:bounds[p + 1]]` are the rows of partition p, in order.

    >>> order, bounds = group_by_partition(np.array([1, 0, 1], np.int32), 2)
    >>> order.tolist(), bounds.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    # numpy's stable sort is a radix sort for 8 and 16 bits only.
    narrow = partition_ids.astype(np.min_scalar_type(partitions - 1), copy=False)
    bounds = np.zeros(partitions + 1, np.int64)
    np.cumsum(np.bincount(partition_ids, minlength=partitions), out=bounds[1:])
    return narrow.argsort(kind="stable"), bounds


def murmur2(keys: pa.Array) -> NDArray[np.int32]:
    """Return Kafka's murmur2 of every key of an array of bytes or text.

    The value for a null is unspecified.

    >>> murmur2(pa.array([b"21", b"foobar"])).tolist()
    [-973932308, -790332482]
    """
    hashes = np.empty(len(keys), np.uint32)
    if len(keys) > 0:
        offsets, data = _buffers(keys)
        lengths = np.diff(offsets)
        length = int(lengths[0])
        if WORD_BYTES <= length <= LONG_KEY_BYTES and bool((lengths == length).all()):
            for first in range(0, len(keys), BLOCK_ROWS_MAX):
                block = slice(first, min(first + BLOCK_ROWS_MAX, len(keys)))
                _hash_matrix(data[offsets[block.start] : offsets[block.stop]], length, hashes[block])
        else:
            for first, end in _blocks(offsets):
                _hash_block(data, offsets[first : end + 1], hashes[first:end])
    return hashes.view(np.int32)


def _partition_of_keys(keys: pa.Array, partitions: int, sticky: int) -> NDArray[np.int32]:
    if keys.null_count == len(keys):
        return np.full(len(keys), sticky, np.int32)
    positive = murmur2(keys).view(np.uint32)
    positive &= POSITIVE
    # numpy has a fast division by a scalar and no fast remainder.
    below = positive // np.uint32(partitions)
    below *= np.uint32(partitions)
    positive -= below
    ids = positive.view(np.int32)
    if keys.null_count > 0:
        ids[_is_null(keys)] = sticky
    return ids


def check_explicit(explicit: pa.Array, partitions: int) -> None:
    """Raise `InvalidRecord` if a value that is not null is no partition of a topic with so many."""
    extremes = pc.min_max(explicit).as_py()
    for partition in (extremes["min"], extremes["max"]):
        if partition is not None:
            check_partition(partition, partitions)


def check_partition(partition: int, partitions: int) -> None:
    """Raise `InvalidRecord` if this is no partition of a topic with so many."""
    if not 0 <= partition < partitions:
        has = "only partition 0" if partitions == 1 else f"partitions 0 to {partitions - 1}"
        raise InvalidRecord(
            f"a row names partition {partition}, but the topic has {has}; choose one of these, or "
            "none (a frame that was read from a topic has a column 'partition', too), or add partitions"
        )


def _is_null(column: pa.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _buffers(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offset of each key and the end of the last one; and the bytes of all keys."""
    assert pa.types.is_binary(keys.type) or pa.types.is_string(keys.type), f"keys of type {keys.type}"
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return offsets.astype(np.int64), np.frombuffer(data if data is not None else b"", np.uint8)


def _blocks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    first, rows = 0, len(offsets) - 1
    while first < rows:
        end = min(first + BLOCK_ROWS_MAX, rows)
        bytes_end = offsets[first] + BLOCK_BYTES_MAX
        if offsets[end] > bytes_end:
            end = max(first + 1, int(np.searchsorted(offsets, bytes_end, side="right")) - 1)
        yield first, end
        first = end


def _hash_matrix(data: NDArray[np.uint8], length: int, hashes: NDArray[np.uint32]) -> None:
    """Fill in the hashes of keys that are all `length` bytes long, at least one word."""
    rows = len(hashes)
    word, scratch = np.empty((2, rows), np.uint32)
    hashes[:] = SEED ^ np.uint32(length)
    for at in range(0, length - WORD_BYTES + 1, WORD_BYTES):
        np.copyto(word, np.ndarray((rows,), WORD, data, at, (length,)))
        _mix(hashes, word, scratch)
    left = length % WORD_BYTES
    if left > 0:
        np.copyto(word, np.ndarray((rows,), WORD, data, length - WORD_BYTES, (length,)))
        word >>= np.uint32(8 * (WORD_BYTES - left))
        hashes ^= word
        hashes *= M
    _finish(hashes, scratch)


def _hash_block(data: NDArray[np.uint8], offsets: NDArray[np.int64], hashes: NDArray[np.uint32]) -> None:
    """Fill in the hashes of keys of any lengths."""
    offsets, data = offsets - offsets[0], data[offsets[0] : offsets[-1]]
    if len(data) > BLOCK_BYTES_MAX:
        hashes[0] = _hash_alone(data)
        return
    lengths = np.diff(offsets)
    hashes[:] = lengths
    hashes ^= SEED
    words, before = _aligned_words(data, offsets)
    long_rows = _mix_whole_words(words, before[:-1], lengths >> WORD_SHIFT, hashes)
    # The last word, shifted until only the bytes after the last whole word remain: to zero if there are none.
    left = lengths & (WORD_BYTES - 1)
    tail = words.take(before[1:])
    tail >>= (8 * (WORD_BYTES - left)).astype(np.uint32)
    hashes ^= tail
    hashes *= TAIL_FACTORS.take(left)
    _finish(hashes, tail)
    for row in long_rows:
        hashes[row] = _hash_alone(data[offsets[row] : offsets[row + 1]])


def _aligned_words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return four copies of the data, each shifted by one more byte, and the index of the word before each offset.

    So every word is aligned, as a gather of numpy requires, and the next word has the next index.
    """
    columns = (len(data) >> WORD_SHIFT) + 1
    padded = np.zeros(WORD_BYTES * (columns + 1), np.uint8)
    padded[WORD_BYTES : WORD_BYTES + len(data)] = data
    words = np.empty((WORD_BYTES, columns), np.uint32)
    for shift, row in enumerate(words):
        row[:] = padded[shift : shift + WORD_BYTES * columns].view(WORD)
    return words.reshape(-1), (offsets & (WORD_BYTES - 1)) * columns + (offsets >> WORD_SHIFT)


def _mix_whole_words(
    words: NDArray[np.uint32],
    before: NDArray[np.int64],
    counts: NDArray[np.int64],
    hashes: NDArray[np.uint32],
) -> NDArray[np.int64]:
    """Mix the `counts` words of each key into its hash; return the rows of long keys, which remain to be done."""
    with_at_most = np.cumsum(np.bincount(counts))
    order = counts.astype(np.min_scalar_type(len(with_at_most)), copy=False).argsort(kind="stable")
    at, mixed = before.take(order), hashes.take(order)
    word, scratch = np.empty((2, len(order)), np.uint32)
    done = len(order)
    for step, first in enumerate(with_at_most[:-1].tolist()):
        if step * WORD_BYTES >= LONG_KEY_BYTES and len(order) - first < TOGETHER_ROWS_MIN:
            done = first
            break
        words[step + 1 :].take(at[first:], out=word[first:], mode="clip")
        _mix(mixed[first:], word[first:], scratch[first:])
    hashes[order] = mixed
    return order[done:]


def _hash_alone(key: NDArray[np.uint8]) -> int:
    factor, mixed = int(M), int(SEED) ^ len(key)
    whole = len(key) - len(key) % WORD_BYTES
    for first in range(0, whole, BLOCK_ROWS_MAX * WORD_BYTES):
        words = key[first : min(first + BLOCK_ROWS_MAX * WORD_BYTES, whole)].view(WORD) * M
        words ^= words >> np.uint32(24)
        words *= M
        for word in words.tolist():
            mixed = (mixed * factor & 0xFFFF_FFFF) ^ word
    hashes = np.array([mixed], np.uint32)
    if whole < len(key):
        hashes ^= np.uint32(int.from_bytes(key[whole:].tobytes(), "little"))
        hashes *= M
    _finish(hashes, np.empty(1, np.uint32))
    return int(hashes[0])


def _mix(hashes: NDArray[np.uint32], word: NDArray[np.uint32], scratch: NDArray[np.uint32]) -> None:
    np.multiply(word, M, out=word)
    np.right_shift(word, np.uint32(24), out=scratch)
    np.bitwise_xor(word, scratch, out=word)
    np.multiply(word, M, out=word)
    np.multiply(hashes, M, out=hashes)
    np.bitwise_xor(hashes, word, out=hashes)


def _finish(hashes: NDArray[np.uint32], scratch: NDArray[np.uint32]) -> None:
    np.right_shift(hashes, np.uint32(13), out=scratch)
    np.bitwise_xor(hashes, scratch, out=hashes)
    np.multiply(hashes, M, out=hashes)
    np.right_shift(hashes, np.uint32(15), out=scratch)
    np.bitwise_xor(hashes, scratch, out=hashes)
