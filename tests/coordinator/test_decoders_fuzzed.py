"""Values of the right types that are impossible, in entries and snapshots with right checksums: an error, or no harm.

What decoders do with any bytes is in `test_every_decoder`.
"""

import contextlib
import random
import resource
from typing import Any, get_args

import msgspec
import pytest

from pyspark_log.cli.groups import groups
from pyspark_log.cli.topics import describe
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.query_member import handover_of
from pyspark_log.writing.destination import destination_of
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.lifecycle import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_coordinator.journal import journal_entry, snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.log import partition_health
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.sync import catch_up, failure_detector
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import ElectLeaders, ElectPreferred, Holder
from pyspark_log_storage.errors import LogError
from tests.support.coordinator.forged import forge, within
from tests.support.coordinator.members import Topics
from tests.support.coordinator.replicated_topic import write
from tests.support.coordinator.several_nodes import Stores
from tests.support.decoders import FILLED, GROUP, HANDLE, OBJECTS
from tests.support.memory_store import MemoryStore
from tests.support.mutations import arbitrary, changed
from tests.support.rings import deep

FORGERIES = 25
"""Of each kind of journal, in each way; the deep ring tries six times as many."""
SECONDS_MAX = 10.0
"""Of what is done with one of them, on a busy machine."""
MEGABYTES_MAX = 300


@contextlib.contextmanager
def within_bounds():
    """Hold that what is done inside takes little memory, and that each part of it ends."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < MEGABYTES_MAX, f"it took {grown} MB"


def copied() -> Stores:
    """Return the stores of the filled topic, for one test to forge in."""
    stores = Stores(MemoryStore)
    for url, objects in OBJECTS.items():
        store = stores.open(url)
        for key, data in objects.items():
            store.put(key, data)
    return stores


def use(log: Log, handle: TopicHandle) -> None:
    """Do with a topic what users, writers and maintainers do; what is refused is no fault."""
    state = handle.journal.state
    for step in (
        lambda: describe._print(handle, describe._document(handle), all_configs=True),
        lambda: [partition_health.troubles(each, state.config, ()) for each in state.partitions],
        lambda: [read(log, handle, number) for number in range(len(state.partitions))],
        *(lambda command=command: handle.submit(command) for command in commands(state)),
        lambda: destination_of(handle, None, 10**6),
        lambda: write(log, handle, 99, {0: [b"more"]}, on=["0"]),
        lambda: topic_roll.roll_and_merge(handle),
        lambda: topic_cleanup.clean_up_topic(handle),
        lambda: verify.verify(handle),
        lambda: verify.verify_cluster(log),
        lambda: [catch_up.catch_up(handle, each) for each in log.cluster.state.nodes],
        lambda: failure_detector.failure_detector_of(handle).consider(handle),
        lambda: log.create_topic("another", 2),
        lambda: log.delete_topic("t"),
    ):
        with contextlib.suppress(LogError):
            step()


def commands(state: topic.Topic) -> tuple[topic.Command, ...]:
    live = tuple(Holder(name, incarnation) for name, incarnation in state.incarnations.items())
    suspect = Suspect("1", state.incarnations.get("1", ""))
    return suspect, ElectPreferred(live), ElectLeaders(live), ApplyRetention(), DeleteRecords(0, -1)


def read(log: Log, handle: TopicHandle, number: int) -> None:
    one = handle.journal.state.partitions[number]
    if one.log_start < one.high_watermark:
        for _ in fetch(log.store_at, split_of(handle, Range("t", number, one.log_start, one.high_watermark))):
            pass


def events_of(journal: Journal[Any, Any]) -> list[Any]:
    """Return all events of a journal, as they are stored."""
    entries = [journal_entry.decode(journal.entries.read(n + 1) or b"", "it") for n in range(journal.number)]
    return [event for each in entries for event in msgspec.msgpack.decode(each.events)]


def use_group(log: Log) -> None:
    """Do with a group what members, observers and operators do."""
    consumer = Topics({"t": 2})
    session = Session(log, "g", MemberSettings())
    member = consumer.member = GroupMember(session, SharedPartitions(("range",), consumer))
    for step in (
        lambda: log.group("g", create=True),
        lambda: [handover_of(each) for at in log.group("g").journal.state.offsets.values() for each in at.values()],
        lambda: log.group("g").submit(OffsetCommit({HANDLE.topic_id: {0: Offset(4)}})),
        lambda: log.group("g").submit(ResetOffsets({HANDLE.topic_id: {0: Offset(1)}}, running=True)),
        member.poll,
        member.poll,
        member.leave,
        lambda: groups._print(groups._look(log, "g"), everything=True, members=True),
        lambda: verify.verify_cluster(log),
        lambda: log.group("g").submit(DeleteGroup()),
    ):
        with contextlib.suppress(LogError):
            step()


JOURNALS = {"topic": HANDLE.journal, "cluster": FILLED.log.cluster, "group": GROUP}
EVENTS_OF = {kind: events_of(journal) for kind, journal in JOURNALS.items()}
TYPES_OF = {"topic": get_args(topic.Event), "cluster": get_args(cluster.Event), "group": get_args(group.Event)}


def forge_events(journal: Journal[Any, Any], kind: str, dice: random.Random, stores: Stores) -> None:
    """Write an entry with an event whose types are right, or one with a real event in which a value is another."""
    event = arbitrary(dice.choice(TYPES_OF[kind]), dice)
    if dice.random() < 0.5:
        event = changed(dice.choice(EVENTS_OF[kind]), dice)
    forge(stores.open("/cluster"), journal, event)


def forge_snapshot(journal: Journal[Any, Any], kind: str, dice: random.Random, stores: Stores) -> None:
    """Write a snapshot of the newest entry in which a value is another."""
    key, data = journal.encoded_snapshot()
    found = snapshot.decode(data, key)
    state = changed(msgspec.msgpack.decode(found.state), dice)
    forged = msgspec.structs.replace(found, state=msgspec.Raw(msgspec.msgpack.encode(state)))
    stores.open("/cluster").put(key, snapshot.encode(forged))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, deep(6)])
@pytest.mark.parametrize("kind", JOURNALS)
@pytest.mark.parametrize("forge_one", [forge_events, forge_snapshot])
def test_whatever_is_forged_the_log_works_or_says_what_is_wrong(kind, forge_one, times, capsys):
    dice = random.Random(f"{kind} {forge_one.__name__}")
    worked = 0
    with within_bounds():
        for _ in range(times * FORGERIES):
            stores = copied()
            log = stores.log()
            try:
                journals = {"cluster": log.cluster, "topic": log.topic("t").journal, "group": log.group("g").journal}
                forge_one(journals[kind], kind, dice, stores)
            except OverflowError:
                continue  # msgpack has no such number
            with within(SECONDS_MAX), contextlib.suppress(LogError):
                log = stores.log()
                if kind == "group":
                    log.group("g", create=True)
                    use_group(log)
                else:
                    use(log, log.topic("t"))
                worked += 1
    assert worked > 0
