"""What runs on the hosts: `python -m tests.machines.programs WHAT ROOT ...`. Each writes down what it sees.

produce ROOT HISTORIES STOP    sends rows until the file STOP is there
consume ROOT HISTORIES STOP    is a member of the group that shares the topic, and commits
scan ROOT HISTORIES            reads the topic whole
digest ROOT TOPIC              prints the number of rows of each partition, and a digest of their values in order
measure ROOT                   prints the milliseconds of a commit, and the rows a second of a write and a read, as JSON
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log import Consumer, ConsumerRebalanceListener, Producer, scan
from pyspark_log.clients.records import RecordMetadata, TopicPartition
from pyspark_log_storage.errors import LogError, NotEnoughReplicasAfterAppend, OutcomeUnknown, StoreError
from tests.history.events import Assign, Commit, Committed, Poll, Read, Result, Row, Send
from tests.history.recorder import Recorder

TOPIC, GROUP, PARTITIONS = "machines", "programs", 4
ROWS_AT_ONCE = 20
PAUSE_S = 0.1
COMMITS = 50
MEASURED_ROWS = 1_000_000


class Measured(msgspec.Struct):
    """How fast a log is on a file system."""

    commit_ms: float
    write_rows: float
    read_rows: float


def produce(root: str, histories: str, stop: str) -> None:
    """Send a few rows at once, again and again, and write down what becomes of each."""
    history, dice, numbers = (
        Recorder(histories, f"producer on {os.uname().nodename}"),
        random.Random(),
        itertools.count(),
    )
    with Producer(root, {"delivery.timeout.ms": 20_000}) as producer:
        while not os.path.exists(stop):
            rows = [
                Row(dice.randrange(PARTITIONS), None, f"{history.who}/{next(numbers)}")
                for _ in range(dice.randint(1, ROWS_AT_ONCE))
            ]
            began = history.now()
            history.add(Send(history.who, began, began, TOPIC, rows, "unknown"))
            for row, future in [(row, _sent(producer, row)) for row in rows]:
                error = future.exception()
                placed = row if error else row._replace(offset=_offset(future.result()))
                history.add(Send(history.who, began, history.now(), TOPIC, [placed], _result(error)))
            time.sleep(dice.uniform(0, PAUSE_S))


def _sent(producer: Producer, row: Row) -> Future[RecordMetadata]:
    try:
        return producer.send(TOPIC, row.value, partition=row.partition)
    except LogError as error:
        refused: Future[RecordMetadata] = Future()
        refused.set_exception(error)
        return refused


def _offset(metadata: RecordMetadata) -> int | None:
    return metadata.offset if metadata.offset >= 0 else None


def _result(error: BaseException | None) -> Result:
    if error is None:
        return "ok"
    if not isinstance(error, LogError):
        raise error
    return "unknown" if isinstance(error, (OutcomeUnknown, NotEnoughReplicasAfterAppend)) else "refused"


class _Listener(ConsumerRebalanceListener):
    """Writes down where a member begins: at what the group has committed."""

    def __init__(self, consumer: Consumer, history: Recorder) -> None:
        self._consumer, self._history = consumer, history

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        began = self._history.now()
        committed = self._consumer.committed(list(assigned))
        offsets = {key.partition: each and each.offset for key, each in committed.items()}
        self._history.add(Committed(self._history.who, began, self._history.now(), GROUP, TOPIC, offsets))
        self._assign({p: offset or 0 for p, offset in offsets.items()})

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._assign({p: None for _, p in revoked})

    on_partitions_lost = on_partitions_revoked

    def _assign(self, offsets: dict[int, int | None]) -> None:
        self._history.add(Assign(self._history.who, self._history.now(), self._history.now(), TOPIC, offsets))


def consume(root: str, histories: str, stop: str) -> None:
    """Be a member of the group, and commit what was read."""
    history = Recorder(histories, f"member on {os.uname().nodename}")
    options = {"group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
    with Consumer(root, options) as consumer:
        consumer.subscribe([TOPIC], listener=_Listener(consumer, history))
        while not os.path.exists(stop):
            began = history.now()
            try:
                rows = [Row(each.partition, each.offset, each.value.decode()) for each in consumer.poll(500)]
                history.add(Poll(history.who, began, history.now(), TOPIC, rows))
                if rows:
                    _commit(consumer, history, rows)
            except LogError as error:
                print(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}", flush=True)
                time.sleep(PAUSE_S)


def _commit(consumer: Consumer, history: Recorder, rows: list[Row]) -> None:
    offsets = {row.partition: row.offset + 1 for row in rows if row.offset is not None}
    began = history.now()
    history.add(Commit(history.who, began, began, GROUP, TOPIC, offsets, "unknown"))
    result: Result = "refused"
    try:
        consumer.commit({TopicPartition(TOPIC, p): offset for p, offset in offsets.items()})
        result = "ok"
    except (OutcomeUnknown, StoreError):
        result = "unknown"
        raise
    finally:
        history.add(Commit(history.who, began, history.now(), GROUP, TOPIC, offsets, result))


def read_all(root: str, histories: str) -> None:
    """Read the topic whole."""
    history = Recorder(histories, "scanner")
    began = history.now()
    rows = [
        Row(p, offset, value.decode())
        for batch in scan(root, TOPIC, "earliest", columns=["partition", "offset", "value"])
        for p, offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    history.add(Read(history.who, began, history.now(), TOPIC, rows))


def digest(root: str, topic: str) -> None:
    """Print how many rows each partition of a topic has, and a digest of their values in order."""
    digests = {p: hashlib.sha256() for p in range(PARTITIONS)}
    counts = dict.fromkeys(digests, 0)
    for batch in scan(root, topic, "earliest", columns=["partition", "value"]):
        for p, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            digests[p].update(value + b"\n")
            counts[p] += 1
    print(", ".join(f"{p}: {counts[p]} rows {digests[p].hexdigest()[:16]}" for p in digests))


def measure(root: str) -> None:
    """Print how fast the log is."""
    times: list[float] = []
    with Producer(root, {"linger.ms": 0, "num.partitions": PARTITIONS}) as producer:
        for _ in range(COMMITS):
            began = time.monotonic()
            producer.send("measured", b"x" * 100).result()
            times.append(time.monotonic() - began)
        random_bytes = np.random.default_rng(1).bytes(MEASURED_ROWS * 100)
        lengths = np.arange(0, (MEASURED_ROWS + 1) * 100, 100, dtype=np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), MEASURED_ROWS, [None, pa.py_buffer(lengths), pa.py_buffer(random_bytes)]
        )
        rows = pa.table({"value": values})
        began = time.monotonic()
        producer.send_batch("measured", rows).result()
        written = time.monotonic() - began
    began = time.monotonic()
    count = sum(len(batch) for batch in scan(root, "measured", "earliest", columns=["value"]))
    read = time.monotonic() - began
    result = Measured(statistics.median(times) * 1000, MEASURED_ROWS / written, count / read)
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    {"produce": produce, "consume": consume, "scan": read_all, "digest": digest, "measure": measure}[what](*words)
