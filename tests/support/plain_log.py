"""A log that tests fill and look at without Spark, through the same steps as the sink."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.columns import schema
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.store import Store
from tests.support.memory_store import MemoryStore

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
NOON_MS = 1_700_000_000_000
"""The time of rows that name none."""


def record(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    times_ms: Sequence[int] | None = None,
    headers: Sequence[Any] | None = None,
) -> pa.RecordBatch:
    """Rows as they are stored."""
    times = [each * 1000 for each in times_ms or [NOON_MS] * len(values)]
    columns = [
        pa.array(keys or [None] * len(values), pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(times, schema.TIMESTAMP),
    ]
    if headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=schema.RECORD)
    return pa.RecordBatch.from_arrays([*columns, pa.array(headers, schema.HEADERS)], schema=schema.RECORD_WITH_HEADERS)


class PlainLog:
    """A log at an address, or on a `MemoryStore` if no path is given, or on a store of the test's own."""

    def __init__(self, path: Path | str | None = None, store: Store | None = None) -> None:
        self.path = str(path)
        store = store or (MemoryStore() if path is None else open_store(self.path))
        self.log = Log(store, real_environment())
        self.log.open(create=True)

    def create(self, topic: str, partitions: int = 1, **config: Any) -> TopicHandle:
        """Create a topic; rows of any size and age stay, unless `config` says otherwise."""
        given = {"max_message_bytes": MESSAGE_BYTES_MAX, "retention_ms": UNLIMITED} | config
        return self.log.create_topic(topic, partitions, TopicConfig(**given))

    def delete(self, topic: str) -> None:
        self.log.delete_topic(topic)

    def append(self, topic: str, rows: Mapping[int, Sequence[bytes | None]], times_ms: Sequence[int] = ()) -> None:
        """Append values to partitions in one batch; `times_ms` are of all values in their order."""
        partitions = [p for p, values in rows.items() for _ in values]
        values = [value for each in rows.values() for value in each]
        self.append_rows(topic, Rows(record(values, times_ms=times_ms or None), None, pa.array(partitions, pa.int32())))

    def staging(self, topic: str | None, *, bytes_max: int = MESSAGE_BYTES_MAX, sticky: int = 0) -> Staging:
        """Return what a task of the sink writes with; without a topic, rows name theirs."""
        found = functools.cache(lambda name: destination_of(self.log.topic(name), None, bytes_max))
        return Staging(self.log.store_at, found, topic, environment=self.log.environment, durable=False, sticky=sticky)

    def append_rows(self, topic: str, *rows: Rows, claim: ProducerClaim | None = None) -> None:
        """Append rows in one batch, as one task would."""
        staging = self.staging(topic)
        for each in rows:
            staging.add(each)
        commit_staged(self.log, [staging.finish()], claim, "all", RetryPolicy(), None)

    def files(self, topic: str) -> Iterator[Path]:
        """The topic's append files, in the order in which they were sequenced."""
        handle = self.log.topic(topic)
        for file in handle.journal.state.files:
            yield Path(self.path) / handle.append_file(file.name)

    def newest_entry(self, topic: str) -> Path:
        """The newest entry of the topic's journal."""
        handle = self.log.topic(topic)
        folder = Path(self.path) / "topics" / topic / handle.topic_id / "journal" / "entries"
        return max(folder.iterdir())


def flip_bit(path: Path, bit: int) -> None:
    """Turn one bit of a file over."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
