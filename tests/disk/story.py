"""A story of a log on recorded disks, and what it has promised after each of its calls.

It is the story of `fault_story`, on real files, and more: a compacted topic, and journals that migrate. Processes are
killed in some of the runs, so that others go on with what they find: it may not be flushed.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log_coordinator.log.journal_move import move
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.store import Store
from tests.disk.recorder import Recorder
from tests.support.coordinator.fault_story import GROUP, PRODUCER, Process, Story
from tests.support.coordinator.keyed_topic import COMPACTED, KeyedClient, Row, check_rows, written
from tests.support.coordinator.small_topic import AT_ONCE, PARTITIONS, TOPIC, rows_of_all
from tests.support.faulty_store import Killed

KEYED = "k"
OTHER = "other"
ROOT = "/disk/0"
THREE = (ROOT, "/disk/1", "/disk/2")
FOUR = (*THREE, "/disk/3")
KILLED_WITHIN = 40
"""A process that is killed makes fewer calls before."""
DELETED_AFTER_SECONDS = 100
"""The files of a deleted topic may be deleted then."""
RESERVE_BYTES = 4096
KINDS = {"one": (ROOT,), "root": THREE, "journals": FOUR}
"""The disks of each kind of cluster: a single one; three with the journals on the root; three journal nodes and one to
which the journals migrate from the first."""


class Promise(msgspec.Struct, frozen=True):
    """What the log owes to those who got an answer."""

    calls: int = 0
    """How many calls had been made to all disks."""
    step: str = "nothing"
    batches: int = 0
    settled: int = 0
    """The batches that all in-sync replicas have, so that readers see them: not those just written with acks=1."""
    keyed: int = 0
    """The batches of the compacted topic."""
    begins: tuple[int, ...] = (0,) * PARTITIONS
    committed: tuple[int, ...] = (0,) * PARTITIONS
    topics: frozenset[str] = frozenset()
    has_group: bool = False


class DiskStory(Story):
    """One run on disks in folders. `kill_chance` is that of a step whose first process is killed."""

    def __init__(self, kind: str, folder: str, seed: int = 0, kill_chance: float = 0.0) -> None:
        """`folder` is empty, and gets a folder for each disk; the root of a store is a folder on its disk."""
        self.kind = kind
        self.folders = {url: f"{folder}/{number}" for number, url in enumerate(KINDS[kind])}
        super().__init__(KINDS[kind])
        self.roots = THREE if kind == "journals" else (ROOT,)
        for each in self.folders.values():
            Path(each).mkdir()
        self.recorder = Recorder(self.folders)
        self.promises = [Promise()]
        self.kills = 0
        self.keyed = 0
        self._settled = 0
        self._chance = random.Random(f"{kind} {seed}")
        self._kill_chance = kill_chance

    def open(self, url: str) -> Store:
        """Return a connection to a disk, under an address that is the same in every run."""
        store = LocalStore(f"{self.folders[url]}/log", marker=layout.MARKER, first=layout.SELF_TEST)
        store.url = url
        return store

    def run(self) -> None:
        with self.recorder.recording():
            if self.kind == "one":
                self._run_on_one()
            else:
                super().run()
                self._compact("second")
                if self.kind == "journals":
                    self._processes.clear()  # who runs meanwhile would get LogMoved, and start again
                    self.do("migrate", lambda process: move(process.client.log, ("1", "2", "3")))
                self.write(2)
                self.do("consume after that", Process.consume, "second")
            self._waited += DELETED_AFTER_SECONDS
            self.do("delete its files", lambda process: process.client.clean_up_cluster())
            with mock.patch.object(reserve, "RESERVE_BYTES", RESERVE_BYTES):
                self.do("fill the reserves", lambda _: [reserve.fill(self.open(url)) for url in self.urls])
            self.write(1)

    def _run_on_one(self) -> None:
        self.do("found", Process.found)
        self.do("create", lambda process: process.client.create(AT_ONCE))
        self.do("create the group", Process.create_group)
        self.write(5)
        self.do("maintain", Process.clean_up, "second")
        self.do("consume", Process.consume, "second")
        self.do("delete records", Process.delete_records)
        self.do("delete a topic", Process.delete_another_topic, "second")
        self.write(4, "1")
        self._compact("second")
        self.do("parquet", lambda process: process.client.handle.submit(AlterConfig({"segment.format": "parquet"})))
        self.write(4)
        self.do("maintain again", Process.clean_up, "second")
        self.do("expire", Process.expire)
        self.do("keep all", lambda process: process.client.handle.submit(AlterConfig({"retention.ms": "-1"})))
        self.write(3)
        self.do("consume again", Process.consume, "second")
        self.do("clean up", Process.clean_up)

    def _compact(self, name: str) -> None:
        config = msgspec.structs.replace(COMPACTED, min_insync_replicas=min(2, len(self.urls)))
        self.do("create compacted", lambda process: self.keyed_client(process).create(config), name)
        for _ in range(3):
            for _ in range(3):
                self.do(f"write keyed {self.keyed}", self._write_keyed)
                self.keyed += 1
                self._promise()
            self.do("compact", lambda process: self.keyed_client(process).clean_up(), name)

    def _write_keyed(self, process: Process) -> None:
        self.keyed_client(process).write(PRODUCER, self.keyed)

    def keyed_client(self, process: Process) -> KeyedClient:
        """Return the compacted topic as a process has it open."""
        return KeyedClient(process.client.log, topic=KEYED)

    def do(self, step: str, act: Callable[[Process], object], name: str = "first") -> None:
        """Do a step, again by a new process if it is killed, and write down what is promised then."""
        recorder, self.step = self.recorder, step
        if self._chance.random() < self._kill_chance:
            recorder.kill_at = len(recorder.calls) + self._chance.randrange(KILLED_WITHIN)
        while True:
            try:
                if name not in self._processes:
                    self._processes[name] = Process(self, next(self._numbers))
                act(self._processes[name])
                break
            except Killed:
                del self._processes[name]
                recorder.revive()
                self.kills += 1
        recorder.kill_at = -1
        recorder.assert_complete()
        if step == "follow":
            self._settled = self.batches
        if not step.startswith("write "):  # those count their batch first
            self._promise()

    def do_once(self, step: str, act: Callable[[Process], object], name: str = "first") -> None:
        """Leave out the batch that is no producer's: nobody knows whether it is to be there."""

    def write(self, count: int, acks: Acks = "all") -> None:
        for _ in range(count):
            super().write(1, acks)
            if acks == "all" or len(self.urls) == 1:
                self._settled = self.batches
            self._promise()

    def _promise(self) -> None:
        """Write down what is promised from now on."""
        before, begins, calls = self.promises[-1], self.promises[-1].begins, len(self.recorder.calls)
        if "t" in before.topics:
            process = next(iter(self._processes.values()))
            begins = tuple(each.log_start for each in process.client.handle.journal.state.partitions)
        made = {"create": TOPIC, "create compacted": KEYED}.get(self.step)
        self.promises.append(
            Promise(
                calls=calls,
                step=self.step,
                batches=self.batches,
                settled=self._settled,
                keyed=self.keyed,
                begins=begins,
                committed=tuple(self.committed[number] for number in range(PARTITIONS)),
                topics=before.topics | ({made} if made else set()),
                has_group=before.has_group or self.step == "create the group",
            )
        )


def assert_kept(process: Process, before: Promise, after: Promise) -> tuple[int, int]:
    """Hold what a new process finds against the promises before and after a moment; return its numbers of batches.

    What was promised before is there, and what was under way may be, whole.
    """
    log = process.client.log
    topics = set(log.topics())
    assert before.topics <= topics <= after.topics | {OTHER}, f"the topics are {sorted(topics)}"
    batches = process.client.batches(PRODUCER) if TOPIC in topics else 0
    assert before.batches <= batches <= after.batches, f"{batches} batches are there"
    for number in range(PARTITIONS) if TOPIC in topics else ():
        begin, values = process.client.read(number)
        assert before.begins[number] <= begin <= after.begins[number], f"partition {number} begins at {begin}"
        written_rows = rows_of_all(PRODUCER, batches)[number]
        settled_rows = rows_of_all(PRODUCER, min(before.settled, batches))[number]
        assert values == written_rows[begin : begin + len(values)], f"partition {number} has other rows from {begin} on"
        assert begin + len(values) >= len(settled_rows), f"partition {number} ends at {begin + len(values)}"
        assert process.client.handle.journal.state.partitions[number].log_end == len(written_rows)
    if before.has_group:
        group = log.group(GROUP).journal.state
        for number in range(PARTITIONS):
            found = group.committed(TOPIC, number)
            offset = 0 if found is None else found.offset
            assert before.committed[number] <= offset <= after.committed[number], f"{offset} is committed of {number}"
    if KEYED not in topics:
        return batches, 0
    client = KeyedClient(log, topic=KEYED)
    keyed = client.batches(PRODUCER)
    assert before.keyed <= keyed <= after.keyed, f"{keyed} batches are in the compacted topic"
    for number, rows in written(PRODUCER, keyed).items():
        partition = client.handle.partitions[number]
        assert partition.high_watermark == len(rows)
        check_rows(keyed_rows(client, number), rows, partition.log_start, partition.compacted_end)
    return batches, keyed


def keyed_rows(client: KeyedClient, number: int) -> dict[int, Row]:
    """Return the rows of a compacted partition by offset, read as readers do."""
    partition = client.handle.partitions[number]
    if partition.log_start == partition.high_watermark:
        return {}
    split = split_of(client.handle, Range(KEYED, number, partition.log_start, partition.high_watermark))
    found: dict[int, Row] = {}
    for offsets, batch in fetch(client.log.store_at, split, functools.partial(find_again, client.log, split)):
        columns = (batch.column(name) for name in ("key", "value", "timestamp"))
        keys, values, times = (
            each.to_pylist() if i < 2 else each.cast("int64").to_pylist() for i, each in enumerate(columns)
        )
        found |= zip(offsets.tolist(), map(Row, keys, values, times), strict=True)
    return found
