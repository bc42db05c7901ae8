"""Hashes of keys: 96 bits by which compaction tells whether two rows have the same key.

    hash    64 bits, by which key indexes are in order
    check   32 bits of another hash

Both are computed over the key's bytes, eight at a time, and its length, with the multiplications and finalisers of
wyhash and MurmurHash3; a whole number is its eight bytes. They are stored in files, so they never change. Two of 10^9
keys have the same 96 bits with a chance of 10^-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]
    States = tuple[U64, U64]

BLOCK_ROWS = 16 * 1024
"""How many keys are hashed at once, so that the numbers stay in the processor's cache."""
_WORD = 8
_SEEDS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
_FACTORS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_STEPS = (0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
_BETWEEN = 0x2127599BF4325C37


def key_hashes(columns: Sequence[pa.Array]) -> tuple[U64, NDArray[np.uint32]]:
    """Return hash and check of each key, `uint64[n]` and `uint32[n]`.

    A key is the values of one or several columns of text, bytes or whole numbers, none of them null. Texts and bytes
    are the same key if their bytes are.
    """
    assert columns
    rows = len(columns[0])
    hashes, checks = np.empty(rows, np.uint64), np.empty(rows, np.uint32)
    readers = [_reader(each) for each in columns]
    for first in range(0, rows, BLOCK_ROWS):
        end = min(first + BLOCK_ROWS, rows)
        states = np.full(end - first, _SEEDS[0], np.uint64), np.full(end - first, _SEEDS[1], np.uint64)
        for reader in readers:
            reader(first, end, states)
        hashes[first:end] = _final(states[0])
        checks[first:end] = _final(states[1]) >> np.uint64(32)
    return hashes, checks


def _reader(column: pa.Array) -> Callable[[int, int, States], None]:
    """Return a function that adds the values of some rows of a column to the states."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    assert column.null_count == 0
    kind = column.type
    if pa.types.is_integer(kind):
        numbers = np.asarray(column).astype(np.int64).view(np.uint64)

        def add_numbers(first: int, end: int, states: States) -> None:
            _add(states, numbers[first:end])
            _add_lengths(states, np.full(end - first, _WORD, np.uint64))

        return add_numbers
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    assert is_large or pa.types.is_binary(kind) or pa.types.is_string(kind), kind
    _, bounds, data = column.buffers()
    width = np.int64 if is_large else np.int32
    offsets = np.frombuffer(bounds, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    size = int(offsets[-1]) if len(column) else 0
    # The last word of the last key may go beyond the end of the buffer.
    padded = np.zeros(size + _WORD, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8, size)
    words = np.ndarray((size + 1,), np.dtype("<u8"), buffer=padded, strides=(1,))

    def add_bytes(first: int, end: int, states: States) -> None:
        starts = offsets[first:end]
        lengths = offsets[first + 1 : end + 1] - starts
        shortest, longest = int(lengths.min()), int(lengths.max())
        rows, done = np.arange(end - first), 0
        while done < longest:
            # Bytes after a key's end, which are the next key's, are cut off.
            if done < shortest:
                _add(states, words[starts + done] & _MASKS[np.minimum(lengths - done, _WORD)])
            else:  # the shorter keys have no more words
                rows = rows[lengths[rows] > done]
                some = states[0][rows], states[1][rows]
                _add(some, words[starts[rows] + done] & _MASKS[np.minimum(lengths[rows] - done, _WORD)])
                states[0][rows], states[1][rows] = some
            done += _WORD
        _add_lengths(states, lengths.astype(np.uint64))

    return add_bytes


_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)


def _add(states: States, word: U64) -> None:
    """Mix a word of each key into its states."""
    for number, (step, factor) in enumerate(zip(_STEPS, _FACTORS, strict=True)):
        mixed = word ^ np.uint64(step)
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
        mixed ^= states[number]
        mixed *= np.uint64(_BETWEEN)
        np.bitwise_xor(mixed, mixed >> np.uint64(32), out=states[number])


def _add_lengths(states: States, lengths: U64) -> None:
    for number, step in enumerate(_STEPS):
        mixed = lengths * np.uint64(step)
        mixed += states[number]
        mixed *= np.uint64(_BETWEEN)
        np.bitwise_xor(mixed, mixed >> np.uint64(31), out=states[number])


def _final(state: U64) -> U64:
    state ^= state >> np.uint64(33)
    state *= np.uint64(_FACTORS[0])
    state ^= state >> np.uint64(33)
    state *= np.uint64(_FACTORS[1])
    state ^= state >> np.uint64(33)
    return state
