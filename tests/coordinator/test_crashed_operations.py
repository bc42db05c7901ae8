"""Operations of operators and jobs, in which every call to a store fails in turn, or the process dies there.

    migration   of the journals to other nodes, and back to a node that was renewed
    repair      of journals of which one store has damaged objects
    reset       of the committed offsets of two groups
    compaction  cleanings, merges, and the removal of what they have replaced

Each call fails before it does anything; it is done, and its answer is lost; and the process dies before it and after
it. Then the operation is repeated. Every acknowledged row must be there once, and the audit must find nothing. The
default ring tries some of the crashes of each operation, the deep one five times as many.
"""

import functools
import re

import pytest

from pyspark_log.reading import groups
from pyspark_log_coordinator.audit import repair, verify
from pyspark_log_coordinator.log import journal_move, node_admin
from tests.support.coordinator.fault_story import GROUP, ON_THE_ROOT, ON_THREE_STORES, PRODUCER, Process, told
from tests.support.coordinator.keyed_topic import COMPACTED, KeyedClient
from tests.support.coordinator.operation_story import KEYED, Operation, OperationStory, crash, crashes_of
from tests.support.coordinator.small_topic import TOPIC

NEW = ("/disk/d", "/disk/e", "/disk/f")
SAMPLED = 5
"""How many crashes of each operation the default ring tries."""
CRASHES_MIN = 90
_OBJECT = re.compile(r"(entries|snapshots)/[^/]+$")


def nothing(_):
    pass


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
