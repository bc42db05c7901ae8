"""Operations of operators and jobs, in which every call to a store fails in turn, or the process dies there.

    migration   of the journals to other nodes, and back to a node that was renewed
    repair      of journals of which one store has damaged objects
    reset       of the committed offsets of two groups
    compaction  cleanings, merges, and the removal of what they have replaced

Each call fails before it does anything; it is done, and its answer is lost; and the process dies before it and after
it. Then the operation is repeated. Every acknowledged row must be there once, and the audit must find nothing. The
default ring tries some of the crashes of each operation, the deep one five times as many.

What an operation begins with is prepared once, and each run has a copy of those stores. In the end a third process does
the operation once more, which must change nothing.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator

import msgspec
import pytest

from pyspark_log.reading import groups
from pyspark_log_coordinator.audit import repair, verify
from pyspark_log_coordinator.log import journal_move, node_admin
from tests.disk.story import keyed_rows
from tests.support.coordinator.fault_story import (
    CONFIG,
    GROUP,
    ON_THE_ROOT,
    ON_THREE_STORES,
    PRODUCER,
    Process,
    Story,
    told,
)
from tests.support.coordinator.keyed_topic import COMPACTED, KeyedClient, check_rows, written
from tests.support.coordinator.small_topic import PARTITIONS, TOPIC
from tests.support.faulty_store import Fault

NEW = ("/disk/d", "/disk/e", "/disk/f")
SAMPLED = 5
"""How many crashes of each operation the default ring tries."""
CRASHES_MIN = 90
_OBJECT = re.compile(r"(entries|snapshots)/[^/]+$")
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
        assert verify.verify(client.handle).sound
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


# Migration of journals


def delete_a_topic(story):
    story.do("delete a topic", Process.delete_another_topic)


def migrate(process):
    journal_move.move(process.client.log, ("3", "4", "5"))


def lose_a_journal_node(story):
    """Lose the disk of a node, and renew it: it has no journals then."""
    story.inner["/disk/b"]._objects.clear()
    story.do("renew", lambda process: node_admin.renew(process.client.log, "1"), "another")
    story.do("follow", Process.follow, "another")


def migrate_to_the_renewed(process):
    journal_move.move(process.client.log, ("0", "1", "2"))


def journals_are_on(*urls):
    def check(process):
        log = process.client.log
        assert log.journals.nodes.urls == urls
        assert log.journals.missing_nodes() == {}

    return check


# Repair of journals


def damage_objects(story):
    """Damage objects of the journals on one of several stores that all have."""
    objects, *others = (story.inner[url]._objects for url in story.roots)
    keys = [key for key in sorted(objects) if _OBJECT.search(key)]
    keys = [key for key in keys if all(each.get(key) == objects[key] for each in others)]
    assert len(keys) > 10
    for key in keys:
        objects[key] = objects[key][:-1]


def repair_all(process):
    repair.repair(process.client.handle)
    repair.repair_journals(process.client.log)


def nothing_is_lost(process):
    for report in (process.client.report(), verify.verify_cluster(process.client.log)):
        assert report.findings == []


# Reset of committed offsets

OTHER_GROUP = "h"
WANTED = {GROUP: {(TOPIC, 0): 2, (TOPIC, 1): 0}, OTHER_GROUP: {(TOPIC, 0): 1, (TOPIC, 1): 4}}


def commit_offsets(story):
    story.do("reset", lambda process: groups.reset(process.client.log, GROUP, {(TOPIC, 0): 6, (TOPIC, 1): 6}))
    story.committed = {p: offset for (_, p), offset in WANTED[GROUP].items()}


def reset_offsets(process):
    """Do what `groups import` does."""
    log = process.client.log
    for name, offsets in WANTED.items():
        groups.check_reset(log, name, offsets)
    for name, offsets in WANTED.items():
        groups.reset(log, name, groups.within_log(log, offsets))


def offsets_are_reset(process):
    log = process.client.log
    for name, offsets in WANTED.items():
        found = {(each.topic, each.partition): each.committed for each in groups.lags(log, log.group(name).state)}
        assert found == offsets


# Compaction


def keyed_client(process):
    return KeyedClient(process.client.log, topic=KEYED)


def write_keys(story):
    """Make a compacted topic with keyed segments and, after them, rows that wait to be cleaned."""
    story.do("create compacted", lambda process: keyed_client(process).create(COMPACTED))
    for batch in range(14):
        story.do("write keyed", lambda process, batch=batch: keyed_client(process).write(PRODUCER, batch))
        if batch == 8:
            story.do("compact", compact)
    story.do("follow", Process.follow)
    story.keyed = 14


def compact(process):
    client = keyed_client(process)
    client.maintain()
    for _ in range(3):
        client.clean_up_topic()


def all_is_folded(process):
    process.follow()  # a keyed segment that a node could not be given waits until it has copied it
    compact(process)
    for partition in keyed_client(process).handle.partitions:
        assert partition.keyed_segments
        assert partition.compacted_end == partition.high_watermark


OPERATIONS = {
    "migration": Operation(ON_THREE_STORES, delete_a_topic, migrate, journals_are_on(*NEW), NEW, nodes=6),
    "migration to a renewed node": Operation(
        ON_THREE_STORES, lose_a_journal_node, migrate_to_the_renewed, journals_are_on(*ON_THREE_STORES)
    ),
    "repair": Operation(ON_THREE_STORES, damage_objects, repair_all, nothing_is_lost),
    "reset": Operation(ON_THREE_STORES, commit_offsets, reset_offsets, offsets_are_reset, decides_again=True),
    "compaction": Operation(ON_THE_ROOT[:1], write_keys, compact, all_is_folded, ON_THE_ROOT[1:], decides_again=True),
}


@functools.cache
def prepared(name):
    with told():
        story = OperationStory(OPERATIONS[name])
        story.prepare()
        return story


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(5, marks=[pytest.mark.deep, pytest.mark.timeout(1200)])])
@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_call_fails_and_wherever_the_process_dies_the_operation_can_be_repeated(name, times):
    with told():
        crashes = list(crashes_of(prepared(name)))
        assert len(crashes) > CRASHES_MIN, "the operation has become shorter"
        for each in crashes[:: max(1, len(crashes) // (times * SAMPLED))]:
            crash(prepared(name), *each)
