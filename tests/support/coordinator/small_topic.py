"""A topic in which much happens in few steps, written to as the sink does, and held against a plain list of its rows.

Batch n of a producer is the same whoever writes it, and however often, so what must be in the log needs no record.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.commit.inline_maintenance import plan_inline, roll_inline
from pyspark_log_coordinator.environment import Environment, real_environment
from pyspark_log_coordinator.journal import journal, trimming
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance import cluster_cleanup, roll_task, topic_cleanup, topic_roll
from pyspark_log_coordinator.model.batch import Acks, StagedFile
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments import compaction_plan, roll_plan, tiers
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.parquet import parquet_segment
from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.local import LocalStore

TOPIC = "t"
PARTITIONS = 2
SNAPSHOT_EVERY = 4
SNAPSHOTS_KEPT = 2
SMALL = (
    (journal, "SNAPSHOT_EVERY", SNAPSHOT_EVERY),
    (trimming, "SNAPSHOTS_KEPT", SNAPSHOTS_KEPT),
    (roll_plan, "ROLL_CHUNKS", 4),
    (inline_maintenance, "CLEAN_UP_EVERY_ENTRIES", 8),
    (roll_task, "CHUNK_BYTES", 400),
    (roll_task, "SMALL_CHUNK_BYTES", 700),
    (roll_task, "TINY_CHUNK_BYTES", 700),
    (reserve, "RESERVE_BYTES", 0),
    (compaction_plan, "DIRTY_ROWS_MAX", 60),
    (compaction_plan, "INLINE_CHUNKS", 6),
    (roll_plan, "INLINE_LAG_MS", 5),
    (tiers, "MERGE_COUNT", 2),
    (parquet_segment, "ROW_GROUP_BYTES", 600),
)
"""The product's constants, made small: module, name, value."""
AT_ONCE = TopicConfig(
    retention_ms=-1, file_delete_delay_ms=0, orphan_retention_ms=0, message_timestamp_after_max_ms=2**62
)
"""Nothing expires, and files go as soon as they may. Clocks are simulated, so rows may be of any time."""

Values = dict[int, list[bytes]]
"""Values by partition."""


def make_constants_small(set_attribute: Callable[[Any, str, Any], object] = setattr) -> None:
    """Make the product's constants small in this process."""
    for module, name, value in SMALL:
        assert hasattr(module, name), f"{name} is somewhere else now"
        set_attribute(module, name, value)


def rows_of(producer: str, batch: int) -> Values:
    """Return a batch: one to four rows for each partition."""
    return {
        p: [b"%s/%d/%d/%d" % (producer.encode(), batch, p, i) for i in range(1 + (batch * 7 + p * 3) % 4)]
        for p in range(PARTITIONS)
    }


def rows_of_all(producer: str, batches: int) -> Values:
    """Return the first batches of a producer, one after the other."""
    found: Values = defaultdict(list)
    for batch in range(batches):
        for p, values in rows_of(producer, batch).items():
            found[p] += values
    return found


class TopicClient:
    """A log and one topic, as a process has them open."""

    def __init__(self, root: str | Log, environment: Environment | None = None, topic: str = TOPIC) -> None:
        """`root` has commas between several journal nodes, or is a log of the test's own that is not opened yet."""
        self.topic = topic
        stores = [] if isinstance(root, Log) else [LocalStore(each) for each in root.split(",")]
        self.log = root if isinstance(root, Log) else Log(stores, environment or real_environment())
        self.log.open(create=True)

    @property
    def handle(self) -> TopicHandle:
        """The topic, refreshed."""
        return self.log.topic(self.topic)

    def create(self, config: TopicConfig = AT_ONCE) -> None:
        self.log.ensure_topic(self.topic, PARTITIONS, config)

    def stage(self, rows: Values, acks: Acks = "all") -> list[StagedFile]:
        """Write what a task writes, before anybody sequences it."""
        handle = self.handle
        made = Staging(
            self.log.store_at,
            lambda _: destination_of(handle, None, 10**6, acks),
            self.topic,
            environment=self.log.environment,
            durable=True,
            sticky=0,
        )
        values = [(p, value) for p, each in rows.items() for value in each]
        record = self.record([value for _, value in values])
        try:
            made.add(Rows(record, None, pa.array([p for p, _ in values], pa.int32())))
            return made.finish()
        except BaseException:
            made.discard()
            raise

    def record(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows with these values."""
        time = pa.scalar(self.log.environment.now_ms() * 1000, schema.TIMESTAMP)
        columns = [
            pa.nulls(len(values), pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(time, len(values)),
        ]
        return pa.record_batch(columns, schema=schema.RECORD)

    def write(
        self,
        producer: str,
        batch: int,
        patience: RetryPolicy | None = None,
        *,
        named: bool = True,
        acks: Acks = "all",
    ) -> dict[int, tuple[int, int]]:
        """Write a batch as a task and then the driver do, with the upkeep that rides along; return its offsets.

        One without a name is never known to be a replay.
        """
        works = plan_inline(self.handle)
        files = self.stage(rows_of(producer, batch), acks)
        swaps = [swap for work in works[:1] for swap in roll_inline(self.log.store_at, work, self.log.environment)]
        claim = ProducerClaim(producer, producer, "", batch) if named else None
        patience = patience or RetryPolicy(retries=0)
        return commit_staged(self.log, [files], claim, acks, patience, self.topic, swaps=swaps)[self.topic]

    def fill(self, producer: str, batches: Iterable[int]) -> None:
        for batch in batches:
            self.write(producer, batch)

    def maintain(self) -> None:
        """Roll and merge until nothing is left to do."""
        topic_roll.roll_and_merge(self.handle)

    def clean_up_topic(self) -> None:
        """Do everything else that is due."""
        topic_cleanup.clean_up_topic(self.handle)

    def batches(self, producer: str) -> int:
        """Return how many batches of a producer are in the log."""
        found = self.handle.journal.state.producers.get(producer)
        return 0 if found is None else found.batch_id + 1

    def read(self, partition: int) -> tuple[int, list[bytes]]:
        """Return the log start, and the values from there to the HW, read as readers do."""
        one = self.handle.journal.state.partitions[partition]
        begin, end = one.log_start, one.high_watermark
        if begin == end:
            return begin, []
        values: list[bytes] = []
        split = split_of(self.handle, Range(self.topic, partition, begin, end))
        for offsets, batch in fetch(self.log.store_at, split, functools.partial(find_again, self.log, split)):
            assert offsets[0] == begin + len(values), f"offset {offsets[0]} comes where {begin + len(values)} is due"
            values += batch.column("value").to_pylist()
        assert len(values) == end - begin
        return begin, values

    def report(self) -> verify.Report:
        """Return the product's own audit."""
        return verify.verify(self.handle)

    def check(self, producer: str, acknowledged: int) -> int:
        """Hold the topic against the batches of its one producer; return how many of them are in the log.

        Those that were acknowledged are, and perhaps the next one, whole and in all partitions.
        """
        for report in (self.report(), verify.verify_cluster(self.log)):
            assert report.sound, report.findings
        batches = self.batches(producer)
        assert batches in {acknowledged, acknowledged + 1}
        expected = rows_of_all(producer, batches)
        for p in range(PARTITIONS):
            begin, values = self.read(p)
            assert values == expected[p][begin:], f"partition {p} from {begin} on, with {batches} batches"
            assert values or not expected[p], f"partition {p}: all rows are gone"
        return batches

    def clean_up_cluster(self) -> None:
        """Remove what belongs to no topic that is there."""
        cluster_cleanup.clean_up_cluster(self.log)

    def clean_up(self) -> None:
        """Go on until nothing is left to do: of orphans, what was marked goes with the third time."""
        self.maintain()
        for _ in range(3):
            self.clean_up_topic()
        self.clean_up_cluster()

    def rubbish(self) -> list[str]:
        """Return the keys of what nothing needs, by the journals alone, of what is needed and missing, and half files.

        Of a topic that was deleted the journal's end is needed: its last entry, and the snapshot of that. A Delta table
        has the files that it has.
        """
        stored = {key for key in self.log.store.list("") if "/_delta_log/" not in key}
        incarnations = {tuple(key.split("/")[1:3]) for key in stored if key.startswith(layout.TOPICS)}
        there = {(name, record.topic_id) for name, record in self.log.topics().items()}
        needed = {layout.MARKER, *self._journal(layout.CLUSTER_JOURNAL, stored)}
        for name, topic_id in incarnations - there:
            journal_folder = layout.topic_journal(name, topic_id)
            last = max(int(key.rsplit("/", 1)[1]) for key in stored if key.startswith(f"{journal_folder}entries/"))
            needed.add(f"{journal_folder}entries/{layout.number(last)}")
            needed.add(f"{journal_folder}snapshots/{layout.newest_first(last)}")
        for name, topic_id in there:
            needed |= self._journal(layout.topic_journal(name, topic_id), stored)
            needed |= self._files(self.log.topic(name))
        unnamed = Path(self.log.store.url, ".tmp")
        return sorted(stored ^ needed) + [str(path) for path in (unnamed.iterdir() if unnamed.is_dir() else ())]

    def _files(self, handle: TopicHandle) -> set[str]:
        """Return the keys of what a topic's state names, and of its description."""
        state, folder = handle.journal.state, layout.topic_folder(handle.name, handle.topic_id)
        files = {f"{folder}append/{file.name}" for file in state.files}
        files.add(f"{folder}{topic_description.NAME}")
        for p, partition in enumerate(state.partitions):
            for each in partition.segments:
                files.update(layout.segment_files(f"{folder}{p}/{each.name}"))
        return files

    def _journal(self, folder: str, stored: set[str]) -> set[str]:
        """Return the keys of the kept snapshots, and of the entries from the oldest of these on."""
        snapshots, entries = (
            {key.removeprefix(begin): key for key in stored if key.startswith(begin)}
            for begin in (f"{folder}snapshots/", f"{folder}entries/")
        )
        newest = sorted(map(layout.number_of_newest_first, snapshots))[-SNAPSHOTS_KEPT:]
        oldest = newest[0] if len(newest) == SNAPSHOTS_KEPT else 0
        needed = {snapshots[layout.newest_first(each)] for each in newest}
        return needed | {key for number, key in entries.items() if int(number) >= oldest}
