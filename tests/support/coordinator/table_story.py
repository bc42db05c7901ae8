"""A topic with Parquet segments whose writers, maintainers and publishers are killed all the time.

Segments are rolled, merged, expired and published at almost every step. After each kill the table of every node is
read without the product: of each partition it must have all rows between its first and its last offset, each once, and
only rows below the HW.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from pyspark_log_coordinator.maintenance import delta_table
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.layout import topic_folder
from pyspark_log_storage.stores.faults import Fault
from tests.processes.small_topic import PARTITIONS, TOPIC, rows_of_all
from tests.support.coordinator.fault_story import PRODUCER, Process, Story
from tests.support.countdown import Killed
from tests.support.delta_reader import DeltaFolder, Rows

CONFIG = TopicConfig(
    segment_format="parquet", segment_bytes=4_000, retention_ms=-1, file_delete_delay_ms=0, orphan_retention_ms=0
)
KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
NAMES = ("first", "second")
STATES_KEPT = 40
"""How many older states stale publishers choose from."""


class TableStory(Story):
    """The story, on the stores at `urls`; `folder` gets what other engines read."""

    def __init__(self, urls: tuple[str, ...], folder: Path, seed: int) -> None:
        super().__init__(urls)
        self.chance = random.Random(seed)
        self.kills = 0
        self.tables = {url: DeltaFolder(folder / str(number)) for number, url in enumerate(urls)}
        self.versions: dict[str, int] = {}
        """The newest version that was seen, by the node's address."""
        self._lengths: dict[str, int] = {}
        """How many calls to stores a step has made at most."""
        self._known: list[tuple[int, Topic]] = []
        """Older states by their entries."""
        self.fault = None

    def begin(self) -> None:
        self.do("found", Process.found)
        self.do("create", lambda process: process.client.create(CONFIG))
        for url in self.urls:
            self.versions[url] = -1

    def go_on(self) -> bool:
        """Do one step, and kill its process somewhere; return whether it was killed before it had finished."""
        chance = self.chance
        steps: list[tuple[str, int, Callable[[Process], object]]] = [
            ("write", 8, lambda process: process.write(process.client.batches(PRODUCER))),
            ("maintain", 3, lambda process: process.client.maintain()),
            ("clean up", 6, lambda process: process.client.clean_up_topic()),
            ("delete records", 1, self._delete_records),
            ("retain", 1, self._retain),
            ("publish an older state", 2, self._publish_older),
            ("roll chunks", 2, self._roll_chunks),
            ("convert", 4, self._convert),
        ]
        if len(self.urls) > 1:
            steps.append(("follow", 3, Process.follow))
        self.step, _, act = chance.choices(steps, [weight for _, weight, _ in steps])[0]
        at = chance.randint(0, 2 * self._lengths.get(self.step, 20))
        return self.kill(act, at, chance.choice(KILLS), chance.choice(NAMES))

    def kill(self, act: Callable[[Process], object], at: int, fault: Fault, name: str = "first") -> bool:
        """Do something, and kill its process at the call `at`; return whether that call was made."""
        process = self._processes.get(name)
        if process is None:
            process = self._processes[name] = Process(self, next(self._numbers))
        process.client  # noqa: B018 -- which opens the log
        self.calls.clear()
        self.broken, self.fault = at, fault
        try:
            act(process)
        except Killed:
            del self._processes[name]
            self.kills += 1
            return True
        finally:
            self.broken = -1
            self._lengths[self.step] = max(self._lengths.get(self.step, 0), len(self.calls))
        self._note(process)
        return False

    def _note(self, process: Process) -> None:
        handle = process.client.log.topic(TOPIC)
        self._known = [*self._known[-STATES_KEPT:], (handle.journal.number, handle.journal.state)]

    def _delete_records(self, process: Process) -> None:
        number = self.chance.randrange(PARTITIONS)
        partition = process.client.handle.journal.state.partitions[number]
        before = self.chance.randint(partition.log_start, (partition.log_start + partition.high_watermark) // 2)
        process.client.handle.submit(DeleteRecords(number, before))

    def _retain(self, process: Process) -> None:
        process.client.handle.submit(AlterConfig({"retention.bytes": self.chance.choice(["-1", "9000", "20000"])}))

    def _roll_chunks(self, process: Process) -> None:
        process.client.handle.submit(AlterConfig({"segment.format": "log"}))
        process.write(process.client.batches(PRODUCER))
        process.client.maintain()

    def _convert(self, process: Process) -> None:
        process.client.handle.submit(AlterConfig({"segment.format": "parquet"}))
        process.client.maintain()

    def _publish_older(self, process: Process) -> None:
        """Publish what a process knows that was suspended long ago."""
        if self._known:
            entry, state = self.chance.choice(self._known)
            for node in self.nodes(process):
                store = process.client.log.node_store(node)
                delta_table.publish(store, process.client.handle, state, node, entry=entry, now=0)

    def nodes(self, process: Process) -> list[str]:
        return list(process.client.log.cluster.state.nodes)

    def look(self) -> dict[str, Rows]:
        """Read all tables as other engines do, hold what must always be true, and return their rows by node."""
        process = Process(self, next(self._numbers))
        handle = process.client.handle
        written = rows_of_all(PRODUCER, process.client.batches(PRODUCER))
        found = {}
        for node, url in zip(self.nodes(process), self.urls, strict=True):
            folder = self.tables[url]
            folder.take(self.inner[url]._objects, topic_folder(TOPIC, handle.topic_id))
            read = folder.read()
            if read is None:
                continue
            version, found[node] = read
            where = f"version {version} of the table on {url}"
            assert version >= self.versions[url], f"{where}: version {self.versions[url]} was there"
            self.versions[url] = version
            for number, rows in found[node].items():
                offsets = sorted(rows)
                assert offsets == list(range(offsets[0], offsets[-1] + 1)), f"{where}: a gap in partition {number}"
                assert offsets[-1] < handle.journal.state.partitions[number].high_watermark, f"{where}: above the HW"
                values = [rows[offset] for offset in offsets]
                assert values == written[number][offsets[0] : offsets[-1] + 1], f"{where}: other rows of {number}"
        for number in range(PARTITIONS):
            begin, values = process.client.read(number)
            assert values == written[number][begin:], f"partition {number} of the log has other rows"
        return found

    def look_after_cleanup(self) -> int:
        """Clean up, and hold that each node's table reaches its newest Parquet segment; return how many rows it has."""
        process = Process(self, next(self._numbers))
        self.step = "last cleanup"
        process.client.handle.submit(AlterConfig({"segment.format": "parquet"}))
        process.client.maintain()
        process.follow()
        process.client.clean_up_topic()
        found = self.look()
        state = process.client.handle.journal.state
        for node in self.nodes(process):
            for number, partition in enumerate(state.partitions):
                offsets: list[int] = []
                for segment in partition.segments:
                    if not (segment.is_parquet and replicas.is_held(segment.holders, node)):
                        break
                    offsets += range(segment.base_offset, segment.end_offset)
                assert sorted(found[node].get(number, {})) == offsets, f"partition {number} on node {node}"
        return sum(len(rows) for node in found.values() for rows in node.values())
