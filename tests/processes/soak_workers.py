"""Who uses one topic at the same time, for a while: writers, readers, and those that keep it. Each is a process."""

import contextlib
import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import DataLoss
from tests.processes.line_file import LineFile
from tests.processes.small_topic import PARTITIONS, TOPIC, TopicClient, make_constants_small, rows_of
from tests.support.direct import Stream, read

ROWS_KEPT = 500
"""So many rows of a partition stay at least."""


class Checked:
    """The rows that a reader has got: each producer's are those that it wrote, each once and in their order."""

    def __init__(self) -> None:
        self.rows = 0
        self.offsets = [0] * PARTITIONS
        self.batches: Counter[tuple[str, int]] = Counter()
        """By producer and partition, how many batches came, the last one perhaps in part."""
        self._due: dict[tuple[str, int], list[bytes]] = {}
        self._digests = [hashlib.blake2b() for _ in range(PARTITIONS)]

    def take(self, p: int, offset: int, value: bytes) -> None:
        """Take the next row of a partition."""
        assert offset == self.offsets[p], f"partition {p}: offset {offset} comes where {self.offsets[p]} is due"
        self.offsets[p] += 1
        self.rows += 1
        producer = value.split(b"/")[0].decode()
        due = self._due.get((producer, p))
        if not due:
            due = self._due[producer, p] = rows_of(producer, self.batches[producer, p])[p][::-1]
            self.batches[producer, p] += 1
        wanted = due.pop()
        assert value == wanted, f"partition {p}, offset {offset}: {value!r} comes where {wanted!r} is due"
        self._digests[p].update(value + b"\n")

    @property
    def is_whole(self) -> bool:
        """Whether no batch is there in part."""
        return not any(self._due.values())

    def digests(self) -> list[str]:
        """Return a digest of each partition's rows."""
        return [each.hexdigest() for each in self._digests]


class Followed(msgspec.Struct):
    """What a reader of a stream came to."""

    rows: int
    micro_batches: int
    batches: dict[tuple[str, int], int]
    digests: list[str]


def write(root: str, producer: str, stop: str) -> tuple[int, float]:
    """Write batch after batch; return how many, and how long the slowest took (seconds)."""
    make_constants_small()
    client, batch, slowest = TopicClient(root), 0, 0.0
    while not LineFile(stop).lines():
        begun = time.monotonic()
        client.write(producer, batch, RetryPolicy())
        slowest = max(slowest, time.monotonic() - begun)
        batch += 1
    return batch, slowest


def follow(root: str, stop: str, progress: str) -> Followed:
    """Read micro-batch after micro-batch from the first row on; goes on to the end after the stop."""
    make_constants_small()
    stream, checked = Stream(root, subscribe=TOPIC, startingOffsets="earliest"), Checked()
    while True:
        is_last = bool(LineFile(stop).lines())
        rows = stream.batch()
        if rows is None and is_last:
            break
        for row in sorted(rows or [], key=lambda row: (row["partition"], row["offset"])):
            checked.take(row["partition"], row["offset"], row["value"])
        Path(progress).write_text(json.dumps(checked.offsets))
    assert checked.is_whole
    return Followed(checked.rows, len(stream.ends), dict(checked.batches), checked.digests())


def read_again_and_again(root: str, stop: str) -> tuple[int, int]:
    """Read all that there is; return how often, and how often rows were deleted under it."""
    make_constants_small()
    reads = deleted = 0
    while not LineFile(stop).lines():
        try:
            rows = read(root, subscribe=TOPIC)
        except DataLoss:
            deleted += 1
            continue
        _hold(rows)
        reads += 1
    return reads, deleted


def _hold(rows: list[dict[str, Any]]) -> None:
    """Hold a read of all that there is: no gap, and of each producer a run of its rows, none in part but the first."""
    last: dict[int, int] = {}
    found: dict[tuple[str, int], list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        p, offset, value = row["partition"], row["offset"], row["value"]
        assert last.get(p, offset - 1) == offset - 1, f"partition {p}: offset {offset} comes after {last[p]}"
        last[p] = offset
        found.setdefault((value.split(b"/")[0].decode(), p), []).append(value)
    for (producer, p), values in found.items():
        first, end = (int(value.split(b"/")[1]) for value in (values[0], values[-1]))
        wanted = [value for batch in range(first, end + 1) for value in rows_of(producer, batch)[p]]
        assert values == wanted[len(wanted) - len(values) :], f"partition {p}: other rows than {producer} wrote"


def maintain(root: str, stop: str) -> int:
    """Roll, merge, expire and clean up, as fast as it goes; return how often."""
    make_constants_small()
    client, times = TopicClient(root), 0
    while not LineFile(stop).lines():
        client.maintain()
        client.clean_up_topic()
        times += 1
    return times


def delete_what_was_read(root: str, stop: str, progress: list[str]) -> int:
    """Delete old rows that all have read that follow the topic; return how many went."""
    make_constants_small()
    client, start = TopicClient(root), [0] * PARTITIONS
    while not LineFile(stop).lines():
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):  # not there yet, or being written
            reached = [json.loads(Path(each).read_text()) for each in progress]
            start = [max(0, min(each) - ROWS_KEPT) for each in zip(*reached, strict=True)]
            for p, offset in enumerate(start):
                client.handle.submit(DeleteRecords(p, offset))
        time.sleep(0.5)
    return sum(start)
