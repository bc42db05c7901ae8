"""Checkpoints: text files in a topic's folder that describe it, in Kafka's formats.

    topics/<topic>/<topic id>/recovery-point-offset-checkpoint     for each partition: rows before it are in segments
    topics/<topic>/<topic id>/replication-offset-checkpoint        for each partition: its HW
    topics/<topic>/<topic id>/<partition>/leader-epoch-checkpoint  each leader epoch, and its first offset

    0                       version
    2                       number of entries
    flights 0 4711          topic, partition, offset; for leader epochs: epoch, start offset
    flights 1 4242

They are replaced when they change. They help people, and recovery without a journal; nothing else depends on them.
Source: Kafka's CheckpointFileWithFailureHandler, OffsetCheckpointFile and LeaderEpochCheckpointFile.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.names import is_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECOVERY_POINT = "recovery-point-offset-checkpoint"
REPLICATION = "replication-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"

_VERSION = 0
_HEADER_LINES = 2
_DIGITS_MAX = 19


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the checkpoint of an offset for each (topic, partition)."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(data: bytes, name: str) -> dict[tuple[str, int], int]:
    """Return the offset of each (topic, partition). Raises `CorruptObject`."""
    offsets: dict[tuple[str, int], int] = {}
    for line in _decode(data, name):
        topic, *numbers = line.split(" ")
        partition, offset = _numbers(numbers, line, name)
        if not is_topic(topic) or (topic, partition) in offsets:
            raise CorruptObject(name, f"{line!r} has no valid topic name, or repeats a partition")
        offsets[topic, partition] = offset
    return offsets


def encode_epochs(starts: Sequence[tuple[int, int]]) -> bytes:
    """Return the checkpoint of leader epochs and their first offsets, both ascending."""
    return _encode([f"{epoch} {start}" for epoch, start in starts])


def decode_epochs(data: bytes, name: str) -> tuple[tuple[int, int], ...]:
    """Return each leader epoch with its first offset. Raises `CorruptObject`."""
    starts = [_numbers(line.split(" "), line, name) for line in _decode(data, name)]
    for (epoch, start), (next_epoch, next_start) in itertools.pairwise(starts):
        if epoch >= next_epoch or start > next_start:
            raise CorruptObject(name, f"epoch {next_epoch} from {next_start} follows epoch {epoch} from {start}")
    return tuple(starts)


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(lines)), *lines]).encode()


def _decode(data: bytes, name: str) -> list[str]:
    """Return the lines of the entries."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptObject(name, "it is not UTF-8 text") from error
    *lines, rest = text.split("\n")
    if rest or len(lines) < _HEADER_LINES:
        raise CorruptObject(name, "its last line is incomplete")
    version, count = (_number(line, line, name) for line in lines[:_HEADER_LINES])
    if version != _VERSION:  # without a checksum this may be a changed digit
        raise CorruptObject(name, f"it has checkpoint format {version} where {_VERSION} is expected")
    entries = lines[_HEADER_LINES:]
    if count != len(entries):
        raise CorruptObject(name, f"it has {len(entries)} entries where {count} are expected")
    return entries


def _numbers(words: list[str], line: str, name: str) -> tuple[int, int]:
    if len(words) != 2:  # noqa: PLR2004 -- a pair
        raise CorruptObject(name, f"{line!r} does not have the fields of an entry")
    first, second = (_number(word, line, name) for word in words)
    return first, second


def _number(word: str, line: str, name: str) -> int:
    plain = word.isascii() and word.isdigit() and len(word) <= _DIGITS_MAX
    if not plain or word != str(int(word)):
        raise CorruptObject(name, f"{line!r} has {word!r} where a whole number is expected")
    return int(word)
