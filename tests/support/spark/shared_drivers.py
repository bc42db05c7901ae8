"""Three queries that share topic `in`, each in a driver of its own, and a producer that writes into it meanwhile.

The drivers are killed at random moments, and started again on their checkpoints. A fourth query, in the first driver,
reads the topic by itself, in a group of its own, which is rewound before that driver is killed.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_log import Producer
from pyspark_log.opening import open_log
from pyspark_log.reading import groups
from pyspark_log.reading.query_member import handover_of
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig
from pyspark_log_coordinator.group.offsets import OffsetsCommitted
from tests.support.spark.kills import Driver, Query, wait_for

PARTITIONS = 6
NAMES = ("one", "two", "three")
REWOUND = "one"
"""The driver that also runs the query which reads alone."""
BATCH_S = 0.6
"""How long a micro-batch may take here. A kill comes within such a time after a batch was planned."""
ROWS_A_WRITE, WRITE_PAUSE_S = 60, 1.0
"""A driver's start takes seconds of both cores, so the queries have little to do meanwhile."""
POLL_S = 0.05
BACK_MAX = 100
"""A rewind goes back by up to so many rows in a partition."""


class Interval(NamedTuple):
    """The rows of a partition that a micro-batch has."""

    partition: int
    begin: int
    end: int
    query: str
    batch: int


class Commit(NamedTuple):
    """An offset that a query has committed to the group."""

    partition: int
    offset: int
    query: str


@dataclass
class Story:
    """What has happened."""

    path: str
    shared: dict[str, Query]
    alone: Query
    written: int = 0
    """Rows in topic `in`: number n is in partition n modulo PARTITIONS, at offset n divided by it."""
    kills: list[str] = field(default_factory=list)
    rewinds: list[dict[int, int]] = field(default_factory=list)
    """Offsets by partition, the first rewind first."""
    commits: list[Commit] = field(default_factory=list)
    """Those of the group that shares, in the order of its journal."""

    @property
    def written_offsets(self) -> dict[int, int]:
        """Where each partition of `in` ends."""
        return {p: len(range(p, self.written, PARTITIONS)) for p in range(PARTITIONS)}


def intervals(query: Query, name: str) -> Iterator[Interval]:
    """Yield what Spark's offset log says that the query has read, batch after batch."""
    ends: dict[str, int] = {}
    for batch in range(query.newest("offsets") + 1):
        positions = query.offset(batch).get("in", {"end": {}})
        begins = {number: at for number, (at, _) in positions.get("begin", {}).items()}
        for number, (end, _) in positions["end"].items():
            yield Interval(int(number), begins[number] if number in begins else ends[number], end, name, batch)
        ends = {number: end for number, (end, _) in positions["end"].items()}


class Drivers:
    """The running drivers, which are killed and started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        path = str(folder / "log")
        self._log = open_log(path, create=True)
        for topic in ("in", "out", "again"):
            self._log.ensure_topic(topic, PARTITIONS)
        self.story = Story(path, {name: self._query(path, name) for name in NAMES}, self._query(path, "alone"))
        self._running: dict[str, Driver] = {}
        self._ready: dict[str, Driver] = {}
        self._started = 0
        group = self._log.group("g", create=True)
        group.submit(AlterGroupConfig({"group.initial.rebalance.delay.ms": "0"}))
        self._commits = group.journal.begin()
        self._topic_id = self._log.topic("in").topic_id

    def _query(self, path: str, name: str) -> Query:
        source = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "500"}
        member = {"group.id": "g", "group.protocol": "cooperative", "group.instance.id": name}
        source |= {"group.id": "alone"} if name == "alone" else member
        folder, target = self._folder / name, {"topic": "again" if name == "alone" else "out"}
        return Query(path, f"{folder}-checkpoint", f"{folder}-trap", source, target)

    def prepare(self, name: str) -> None:
        """Start a process that gets ready to run the queries of a driver."""
        queries = [self.story.shared[name], *([self.story.alone] if name == REWOUND else [])]
        self._ready[name] = Driver(queries, self._folder / f"driver-{self._started}-{name}.txt")
        self._started += 1

    def begin(self, name: str) -> None:
        """Let a driver that is ready run its queries."""
        self._running[name] = self._ready.pop(name)
        self._running[name].begin()

    def kill(self, name: str) -> None:
        """Kill a driver at a random moment, and start it again.

        If the query that reads alone runs there, its group is rewound before.
        """
        self.prepare(name)
        query = self.story.shared[name]
        if name == REWOUND:
            self._rewind()
        until = query.newest("offsets") + self._dice.choice([0, 1, 2])
        self.wait_for(lambda: query.newest("offsets") >= until, f"a batch of query {name}")
        time.sleep(self._dice.random() * BATCH_S)
        self._running[name].kill()
        left = [f"{each.newest('offsets')}/{each.newest('commits')}" for each in (query, self.story.alone)]
        self.story.kills.append(f"{name}: newest batch planned/done {left[0]}, of the query that reads alone {left[1]}")
        self.begin(name)

    def _rewind(self) -> None:
        """Rewind the query that reads alone, when it has taken up its former rewind."""
        alone, rewinds = self.story.alone, self.story.rewinds
        self.wait_for(lambda: taken_up(alone) == len(rewinds), "the last rewind")
        found = {each.partition: each.committed for each in self._lags("alone")}
        chosen = self._dice.sample(sorted(found), PARTITIONS // 2)
        to = {p: max(0, found[p] - self._dice.randrange(1, BACK_MAX)) for p in chosen}
        groups.reset(open_log(self.story.path), "alone", {("in", p): offset for p, offset in to.items()})
        rewinds.append(to)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until something holds; fail if a driver ends by itself."""

        def holds() -> bool:
            held = bool(condition())
            ended = [each.output[-5000:] for each in self._running.values() if each.ended()]
            assert held or not ended, f"a driver ended before {what}: {ended}"
            self._read_commits()
            return held

        wait_for(holds, what, POLL_S)

    def wait_until_all_is_read(self) -> None:
        """Wait until both groups have committed the end of each partition, and all rewinds are taken up."""
        ends, story = self.story.written_offsets, self.story
        for group in ("g", "alone"):
            self.wait_for(
                lambda group=group: {each.partition: each.committed for each in self._lags(group)} == ends,
                f"all is read by group {group}",
            )
        assert taken_up(story.alone) == len(story.rewinds)
        self._read_commits()

    def _lags(self, group: str) -> list[groups.PartitionLag]:
        log = open_log(self.story.path)
        return groups.lags(log, log.group(group, create=True).journal.state)

    def _read_commits(self) -> None:
        """Read the group's journal on, before its older entries are trimmed."""
        handle = open_log(self.story.path).group("g", create=True)
        while self._commits.number < handle.journal.number:
            for event in self._commits.take_next():
                if isinstance(event, OffsetsCommitted):
                    self._note(event)

    def _note(self, event: OffsetsCommitted) -> None:
        for number in event.offsets.get(self._topic_id, {}):
            committed = self._commits.state.committed(self._topic_id, number)
            assert committed is not None
            owner = handover_of(committed).owner
            assert owner is not None
            self.story.commits.append(Commit(number, committed.offset, owner))

    def end(self) -> None:
        """Kill what is left."""
        for each in (*self._running.values(), *self._ready.values()):
            each.kill()


def taken_up(query: Query) -> int:
    """Return the number of the newest rewind that the query's offset log has."""
    newest = query.newest("offsets")
    return 0 if newest < 0 else query.taken_rewinds(newest)


def has_part(query: Query) -> bool:
    """Return whether the newest micro-batch of a query has partitions."""
    newest = query.newest("offsets")
    return newest >= 0 and "in" in query.offset(newest)


@contextlib.contextmanager
def writing(story: Story) -> Iterator[None]:
    """Write one number after the other into topic `in`, in a thread."""
    stop = threading.Event()

    def write() -> None:
        with Producer(story.path) as producer:
            while not stop.wait(WRITE_PAUSE_S):
                for number in range(story.written, story.written + ROWS_A_WRITE):
                    producer.send("in", b"%d" % number, partition=number % PARTITIONS)
                story.written += ROWS_A_WRITE

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run_story(folder: Path, kills: int, seed: int) -> Story:
    """Start the three drivers, kill some, and return what has happened when all rows are read."""
    drivers = Drivers(folder, seed)
    story = drivers.story
    dice = random.Random(seed)
    try:
        with writing(story):
            for name in NAMES:
                drivers.prepare(name)
            for name in NAMES[:-1]:
                drivers.begin(name)
                drivers.wait_for(lambda query=story.shared[name]: query.newest("commits") >= 0, f"a batch of {name}")
            drivers.begin(NAMES[-1])  # and at once the first kill, so that it may hit the rebalance
            for nth in range(kills):
                drivers.kill(dice.choice(NAMES[1:]) if nth % 2 else REWOUND)
            drivers.wait_for(lambda: all(has_part(each) for each in story.shared.values()), "each query has its part")
        drivers.wait_until_all_is_read()
    finally:
        drivers.end()
    return story
