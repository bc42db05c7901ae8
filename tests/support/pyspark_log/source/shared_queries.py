"""Queries that share a topic, called in Spark's order, without Spark; they are killed and started again.

Each has what survives a kill: Spark's offset log and commit log, and what its sink has, once for each batch.
"""

import json
import random
from collections import Counter
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from pyspark_log.reading.shared_topics import SharedTopics
from pyspark_log.source.readers import StreamReader
from pyspark_log_coordinator.assignors.subscription import decode_assignment
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.group.leaving import ExpireMember
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig
from pyspark_log_coordinator.group.rebalance import CompleteJoin
from pyspark_log_coordinator.group.state import Group, GroupState
from tests.support.direct import source
from tests.support.plain_log import PlainLog

PARTITIONS = 6
GUARD = 300
"""Rounds after which a group that does not settle fails."""


class Clock:
    """The time and the chance of all processes: each look at the clock takes a millisecond."""

    def __init__(self, seed: int = 1) -> None:
        self._now = 1000.0
        self._dice = random.Random(seed)

    def environment(self) -> Environment:
        return Environment(
            now_ms=lambda: int(self._passed(0.001) * 1000),
            monotonic=lambda: self._passed(0.001),
            sleep=self._passed,
            uniform=self._dice.uniform,
            nonce=lambda: f"{self._dice.getrandbits(128):032x}",
        )

    def _passed(self, seconds: float) -> float:
        self._now += seconds
        return self._now


class Query:
    """A query: what its checkpoint and its sink have, and its running process."""

    def __init__(self, path: str, name: str, **options: str) -> None:
        given = {"subscribe": "t", "group.id": "g", "group.protocol": "cooperative", "startingOffsets": "earliest"}
        self.options = {**given, "group.instance.id": name, **options}
        self.path = path
        self.name = name
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self.sink: dict[int, list[tuple[int, int]]] = {}
        """By batch: partition and number of each row."""
        self.reader: StreamReader | None = None

    def start(self) -> "Query":
        """Start it; the batch that was not committed is repeated by the first step."""
        made = source(self.path, **self.options)
        self.reader = made.streamReader(made.schema())
        self.reader.getDefaultReadLimit()
        return self

    def kill(self) -> None:
        self.reader = None

    @property
    def executed(self) -> dict[str, Any]:
        return self.offsets[self.commits - 1] if self.commits else {"version": 1, "initial": True}

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Let Spark ask for the next batch, and write it into its offset log; return whether there is one."""
        assert self.reader is not None
        assert len(self.offsets) == self.commits
        start = self.executed
        end = self.reader.latestOffset(start, limit or ReadMaxRows(2**40))
        if end == start:
            return False
        self.offsets.append(json.loads(json.dumps(end)))
        return True

    def execute(self) -> None:
        """Read the batch of the offset log that is not committed, and write it, once, into the sink."""
        assert self.reader is not None
        start, end = self.executed, self.offsets[self.commits]
        rows = []
        for split in self.reader.partitions(start, end):
            for batch in self.reader.read(split):
                rows += [(row["partition"], int(row["value"])) for row in batch.to_pylist()]
        self.sink.setdefault(self.commits, rows)

    def commit(self) -> None:
        """Let Spark commit the batch in its checkpoint."""
        self.commits += 1

    def batch(self, limit: ReadLimit | None = None) -> bool:
        """Carry out a batch, the one that was begun or the next one; return whether there was one."""
        if len(self.offsets) == self.commits and not self.plan(limit):
            return False
        self.execute()
        self.commit()
        return True

    def act(self) -> None:
        """Let its thread do what is due."""
        if self.reader is not None:
            self._shared.member.act()

    @property
    def is_fenced(self) -> bool:
        """Whether it has failed because others got what it was processing."""
        return self.reader is not None and self._shared.member._fenced is not None

    @property
    def _shared(self) -> SharedTopics:
        assert self.reader is not None
        shared = self.reader._planner._shared
        assert shared is not None
        return shared

    @property
    def planned(self) -> set[int]:
        """The partitions of its newest batch."""
        topics = self.offsets[-1]["topics"] if self.offsets else {}
        return {int(number) for number in topics["t"]["end"]} if "t" in topics else set()

    def rows(self) -> list[tuple[int, int]]:
        return [row for rows in self.sink.values() for row in rows]


class Queries:
    """The queries of group g, and topic t with six partitions."""

    def __init__(self, path: str, **options: str) -> None:
        self.log = PlainLog(path)
        self.log.create("t", PARTITIONS)
        self.options = options
        self.all: list[Query] = []
        self.gone: list[Query] = []
        """Those that were fenced, and are not started again."""
        self.written: list[tuple[int, int]] = []
        self.log.log.group("g", create=True).submit(AlterGroupConfig({"group.initial.rebalance.delay.ms": "0"}))

    def query(self, name: str, **options: str) -> Query:
        made = Query(self.log.path, name, **self.options, **options)
        self.all.append(made)
        return made.start()

    @property
    def group(self) -> Group:
        return self.log.log.group("g", create=True).refresh()

    def append(self, count: int, partitions: range = range(PARTITIONS)) -> None:
        first = len(self.written)
        self.log.append("t", {p: [b"%d" % number for number in range(first, first + count)] for p in partitions})
        self.written += [(p, number) for p in partitions for number in range(first, first + count)]

    def act(self) -> None:
        """Let all threads do what is due, and those that the group waits for be late, if they do not run."""
        for each in self.all:
            each.act()
        group = self.group
        waits_for = [each.details.instance_id for each in group.members.values() if not each.joined]
        running = {each.name for each in self.all if each.reader is not None}
        if group.state is GroupState.PREPARING_REBALANCE and group.barrier and not running.intersection(waits_for):
            self.log.log.group("g").submit(CompleteJoin(group.barrier.number))

    def expire(self, query: Query) -> None:
        """Let the group remove a query, as if its session had expired."""
        for name, member in self.group.members.items():
            if member.details.instance_id == query.name:
                self.log.log.group("g").submit(ExpireMember(name, member.acted))

    def settle(self) -> None:
        """Run all queries until the group is Stable, each has its share, and all is read."""
        quiet = 0
        for _ in range(GUARD):
            self.act()
            moved = [each.batch() for each in self.all if each.reader is not None]
            quiet = 0 if any(moved) or not self._is_shared() else quiet + 1
            if quiet == 2:
                return
        raise AssertionError([(each.name, each.planned) for each in self.all], self.group)

    def _is_shared(self) -> bool:
        """Return whether each partition is assigned, and each running query reads what it is assigned."""
        group = self.group
        shares = {}
        for name, member in group.members.items():
            assigned = decode_assignment(member.assignment, name).partitions
            shares[member.details.instance_id] = set(assigned.get("t", ()))
        running = [each for each in self.all if each.reader is not None]
        return (
            group.state is GroupState.STABLE
            and sum(map(len, shares.values())) == self.partitions
            and all(shares.get(each.name) == each.planned for each in running)
        )

    @property
    def partitions(self) -> int:
        return len(self.log.log.topic("t").journal.state.partitions)

    def copies(self) -> Counter[tuple[int, int]]:
        """How often each row was processed."""
        return Counter(row for each in (*self.all, *self.gone) for row in each.rows())

    @property
    def is_once(self) -> bool:
        """Whether each row was processed, and none twice."""
        return self.copies() == dict.fromkeys(self.written, 1)

    def sharing(self, *names: str) -> list[Query]:
        """Return new queries that have read and committed all that there is, each its part."""
        made = [self.query(name) for name in names]
        self.append(10)
        self.settle()
        self.settle()
        return made

    def committed(self, number: int) -> int:
        """Return the group's committed offset of a partition."""
        found = self.group.committed(self.log.log.topic("t").topic_id, number)
        assert found is not None
        return found.offset
