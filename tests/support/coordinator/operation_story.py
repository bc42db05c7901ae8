"""One operation on a log, in which any one call to a store can go wrong; it is repeated until it has succeeded.

What it begins with is prepared once. Each run has a copy of those stores, as `fault_story` has them: after an error the
process does the operation again, and after a crash a new one does. Then a third one does it once more, which must
change nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import msgspec

from pyspark_log.reading import groups
from pyspark_log_coordinator.audit.verify import verify, verify_cluster
from tests.disk.story import keyed_rows
from tests.support.coordinator.fault_story import CONFIG, GROUP, PRODUCER, Process, Story
from tests.support.coordinator.keyed_topic import KeyedClient, check_rows, written
from tests.support.coordinator.small_topic import PARTITIONS, TOPIC
from tests.support.faulty_store import Fault

KEYED = "k"
Act = Callable[[Process], object]


class Operation(msgspec.Struct, frozen=True):
    """What is prepared, what is done, and what has come of it whatever went wrong."""

    roots: tuple[str, ...]
    """The stores with the journals."""
    prepare: Callable[[OperationStory], object]
    act: Act
    came_of: Act
    """Raises `AssertionError` if the operation has not come to what it must."""
    others: tuple[str, ...] = ()
    """The nodes without journals, and other stores."""
    nodes: int = 3
    """How many of all these join the cluster."""
    decides_again: bool = False
    """Whether repeating it makes entries, which change no rows and no offsets."""


class OperationStory(Story):
    """One run of an operation."""

    def __init__(self, operation: Operation, broken: int = -1, fault: Fault | None = None) -> None:
        super().__init__((*operation.roots, *operation.others), broken, fault)
        self.operation = operation
        self.roots = operation.roots
        self.keyed = 0
        """How many batches are in the compacted topic."""

    def prepare(self) -> None:
        """Create the cluster, with a topic, a group and some rows, and what the operation needs."""
        urls, self.urls = self.urls, self.urls[: self.operation.nodes]
        self.do("found", Process.found)
        self.urls = urls
        self.do("create", lambda process: process.client.create(CONFIG))
        self.do("create the group", Process.create_group)
        everything = dict.fromkeys(((TOPIC, number) for number in range(PARTITIONS)), 0)
        self.do("commit", lambda process: groups.reset(process.client.log, GROUP, everything))
        self.write(6)
        self.operation.prepare(self)
        self._processes.clear()
        self.calls.clear()

    def copy(self, broken: int = -1, fault: Fault | None = None) -> OperationStory:
        """Return a run of its own that begins with what is prepared, with a fault at one of its calls."""
        other = OperationStory(self.operation, broken, fault)
        for url, store in self.inner.items():
            other.inner[url]._objects = dict(store._objects)
        other._now, other._waited, other._numbers = copy.copy(self._now), self._waited, copy.copy(self._numbers)
        other.batches, other.keyed, other.committed = self.batches, self.keyed, dict(self.committed)
        return other

    def operate(self) -> None:
        """Do the operation, and once more, and go on writing."""
        self.do("operate", self.operation.act)
        self.step = "repeat"
        before = self._decided()
        self.operation.act(Process(self, next(self._numbers)))
        after = self._decided()
        assert before == after, f"repeating it has changed {[name for name in before if before[name] != after[name]]}"
        self.operation.came_of(Process(self, next(self._numbers)))
        self.write(1)
        self.check()
        if self.keyed:
            self._check_keyed()
        new = Process(self, next(self._numbers))
        for report in (verify(new.client.handle), verify_cluster(new.log)):
            assert report.sound, report.findings

    def _decided(self) -> dict[str, object]:
        """Return the last entry of every journal, its topics, rows and offsets, as a new process finds them."""
        log = Process(self, next(self._numbers)).client.log
        found: dict[str, tuple[int, object]] = {"the cluster": (log.cluster.number, log.cluster.state)}
        for name in log.topics():
            journal = log.topic(name).journal
            found[f"topic {name}"] = journal.number, (journal.state.partitions, journal.state.producers)
        for name in log.groups():
            group = log.group(name).journal
            offsets = {key: {p: at.offset for p, at in each.items()} for key, each in group.state.offsets.items()}
            found[f"group {name}"] = group.number, offsets
        return {name: state if self.operation.decides_again else (n, state) for name, (n, state) in found.items()}

    def committed_in(self, process: Process) -> dict[int, int | None]:
        found = process.log.group(GROUP).journal.state.offsets[process.client.handle.topic_id]
        return {number: at.offset for number, at in found.items()}

    def _check_keyed(self) -> None:
        client = KeyedClient(Process(self, next(self._numbers)).client.log, topic=KEYED)
        assert verify(client.handle).sound
        for number, rows in written(PRODUCER, self.keyed).items():
            partition = client.handle.partitions[number]
            check_rows(keyed_rows(client, number), rows, partition.log_start, partition.compacted_end)


def crashes_of(prepared: OperationStory) -> Iterator[tuple[int, Fault]]:
    """Yield each call of an operation without faults, by number, with each fault that can happen there."""
    story = prepared.copy()
    story.do("operate", story.operation.act)
    return ((number, fault) for number, call in enumerate(story.calls) for fault in call.faults())


def crash(prepared: OperationStory, number: int, fault: Fault) -> None:
    """Let one call go wrong, and hold what comes of it. Raises `AssertionError`, `LogError`."""
    story = prepared.copy(number, fault)
    try:
        story.operate()
    except BaseException as error:
        at = story.calls[number] if number < len(story.calls) else None
        error.add_note(f"call {number}: {fault} at {at}; in the step {story.step!r}; errors: {story.errors}")
        raise
