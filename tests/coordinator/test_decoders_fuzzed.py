"""Every decoder of a stored object gives a value or a `LogError`, whatever the bytes are, and soon.

Real objects are changed: one of their values, or some of their bytes. What has a checksum gets it made right again. The
bytes of chunks and indexes, which Arrow and numpy read, have tests of their own (`hostile_worker`).
"""

import contextlib
import io
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from pyspark_log.cli import describe, dump
from pyspark_log.client.read.fetch import fetch
from pyspark_log.client.read.planning import Range, split_of
from pyspark_log.client.write.staging import destination_of
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group.joining import JoinGroup, JoinRequest
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.journal import journal_entry, journal_nodes, manifest, registers, snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.replay import Replay
from pyspark_log_coordinator.journal.state_machine import Machine
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_description, topic_roll
from pyspark_log_coordinator.membership import join_requests
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.sync import catch_up, failure_detector
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import AlterConfig, ElectLeaders, ElectPreferred, Holder
from pyspark_log_storage import checkpoints, decoding, layout, node, schema
from pyspark_log_storage.errors import LogError
from tests.coordinator.forged import forge, within
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic, write
from tests.coordinator.several_nodes import Stores
from tests.memory_store import MemoryStore
from tests.mutations import arbitrary, changed, cut_or_flipped, resealed

MUTANTS = 500
"""Of each kind of object."""
FORGERIES = 150
"""Of each kind of journal, in each way."""
SECONDS_MAX = 10.0
"""Of what is done with one of them, on a busy machine."""
MEGABYTES_MAX = 300

Decode = Callable[[bytes], object]


def filled() -> ReplicatedTopic:
    """Return a topic with segments and chunks, which are on three nodes, and with rows that are not on all of them."""
    made = ReplicatedTopic(replicas=(ALL, ("1", "2", "0")), retention_ms="-1")
    for _ in range(6):
        made.append({0: [b"a"] * 3, 1: [b"b"]}, on=ALL, acks="all")
    made.roll(3)
    made.append({0: [b"a"] * 3, 1: [b"b"]}, on=ALL[:2])
    return made


FILLED = filled()
OBJECTS = {url: {key: store.read(key) for key in store.list("")} for url, store in FILLED.stores.at.items()}
HANDLE = FILLED.handle
FOLDER = layout.topic_folder("t", HANDLE.topic_id)


def entry_of(journal: Journal[Any, Any]) -> bytes:
    """Return a journal's newest entry."""
    return journal.entries.read(journal.number) or b""


def snapshot_of(journal: Journal[Any, Any]) -> bytes:
    return journal.encoded_snapshot()[1]


def as_entry(journal: Journal[Any, Any]) -> Decode:
    """Return what reads an entry as one that follows all but the newest of a journal's entries."""

    def read(data: bytes) -> object:
        past = journal.begin()
        while past.number < journal.number - 1:
            past.take_next()
        past._fold(data, past._decode(data, "the entry"))
        return past.state

    return read


def as_snapshot(journal: Journal[Any, Any], machine: Machine[Any, Any]) -> Decode:
    past = Replay(OneStore(MemoryStore()), "j/", machine, real_environment())
    return lambda data: past.state_in(snapshot.decode_of(journal.number, data, "the snapshot"))


def as_manifest(machine: Machine[Any, Any]) -> Decode:
    return lambda data: decoding.decode(machine.decode_events, manifest.decode(data, "the manifest"), "the manifest")


NODES = JournalNodes("c", tuple(JournalNode(name, f"/{name}", name) for name in "abc"), 2)
VOTE, CLAIM = Register(1), Register(1, is_claim=True)
MARKER = node.Marker("c", "0", "i", root=True)
OFFSETS = checkpoints.encode_offsets({("t", 0): 5, ("t", 1): 7})
EPOCHS = checkpoints.encode_epochs([(0, 0), (3, 7)])
EVENTS = msgspec.msgpack.encode(topic.decide(HANDLE.refresh(), AlterConfig({"retention.ms": "5"}), 0))

REQUEST = JoinRequest(JoinGroup(MemberDetails("m", (Protocol("range", b"a", b"b"),)), "consumer"), 3, 7)

ENVELOPED: dict[str, tuple[bytes, Decode]] = {
    "entry of a topic": (entry_of(HANDLE.journal), as_entry(HANDLE.journal)),
    "entry of a cluster": (entry_of(FILLED.log.cluster), as_entry(FILLED.log.cluster)),
    "snapshot of a topic": (snapshot_of(HANDLE.journal), as_snapshot(HANDLE.journal, topic.MACHINE)),
    "snapshot of a cluster": (snapshot_of(FILLED.log.cluster), as_snapshot(FILLED.log.cluster, cluster.MACHINE)),
    "manifest": (manifest.encode(EVENTS), as_manifest(topic.MACHINE)),
    "vote": (registers.encode(VOTE, b"a value"), lambda data: registers.decode(VOTE, data, "it")),
    "empty vote": (registers.encode(VOTE, NIL), lambda data: registers.decode(VOTE, data, "it")),
    "claim": (registers.encode(CLAIM, b"f" * 32), lambda data: registers.decode(CLAIM, data, "it")),
    "node marker": (node.encode(MARKER), lambda data: node.decode(data, "it")),
    "journal nodes": (journal_nodes.encode(NODES), lambda data: journal_nodes.decode(data, "it")),
    "description": (
        topic_description.encode(topic_description.of(HANDLE)),
        lambda data: topic_description.decode(data, "it"),
    ),
    "join request": (join_requests.encode_request(REQUEST), lambda data: join_requests.decode_request(data, "it")),
}
PLAIN: dict[str, tuple[bytes, Decode]] = {
    "offset checkpoint": (OFFSETS, lambda data: checkpoints.decode_offsets(data, "it")),
    "epoch checkpoint": (EPOCHS, lambda data: checkpoints.decode_epochs(data, "it")),
    "schema": (schema.encode(schema.RECORD_WITH_HEADERS), lambda data: schema.decode(data, "it")),
}


@contextlib.contextmanager
def within_bounds():
    """Hold that what is done inside takes little memory, and that each part of it ends."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < MEGABYTES_MAX, f"it took {grown} MB"


def is_refused(decode: Decode, data: bytes) -> bool:
    begun = time.process_time()
    try:
        decode(data)
    except LogError:
        return True
    finally:
        assert time.process_time() - begun < SECONDS_MAX, f"it took too long: {data[:200]!r}"
    return False


@pytest.mark.parametrize("kind", [*ENVELOPED, *PLAIN])
def test_a_changed_object_is_a_value_or_an_error_of_the_log(kind):
    data, decode = (ENVELOPED | PLAIN)[kind]
    assert not is_refused(decode, data)
    dice = random.Random(kind)
    change = resealed if kind in ENVELOPED else cut_or_flipped
    with within_bounds():
        refused = sum(is_refused(decode, change(data, dice)) for _ in range(MUTANTS))
    assert refused > 0


@pytest.mark.parametrize("kind", ENVELOPED)
def test_a_changed_object_without_a_right_checksum_is_refused(kind):
    data, decode = ENVELOPED[kind]
    dice = random.Random(kind)
    mutants = (cut_or_flipped(data, dice) for _ in range(MUTANTS))
    assert all(is_refused(decode, each) for each in mutants if each != data)


def test_a_changed_file_is_dumped_or_refused(tmp_path):
    dice = random.Random(1)
    files = [(key, data) for key, data in OBJECTS["/cluster"].items() if "selftest" not in key]
    file = Path()
    for key, data in (dice.choice(files) for _ in range(MUTANTS)):
        file = tmp_path / key.rsplit("/", 1)[-1]
        has_envelope = data[:4] in {b"PLND", b"PLJE", b"PLSS", b"PLMF", b"PLTD", b"PLRG", b"PLJN"}
        file.write_bytes(resealed(data, dice) if has_envelope else cut_or_flipped(data, dice))
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.suppress(LogError):
            dump.dump([file], rows=True)


def copied() -> Stores:
    """Return the stores of the filled topic, for one test to forge in."""
    stores = Stores()
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
        lambda: [describe._troubles(each, state.config) for each in state.partitions],
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


EVENTS_OF = {"topic": events_of(HANDLE.journal), "cluster": events_of(FILLED.log.cluster)}
TYPES_OF = {"topic": get_args(topic.Event), "cluster": get_args(cluster.Event)}


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


@pytest.mark.parametrize("kind", ["topic", "cluster"])
@pytest.mark.parametrize("forge_one", [forge_events, forge_snapshot])
def test_whatever_is_forged_the_log_works_or_says_what_is_wrong(kind, forge_one, capsys):
    dice = random.Random(f"{kind} {forge_one.__name__}")
    worked = 0
    with within_bounds():
        for _ in range(FORGERIES):
            stores = copied()
            log = stores.log()
            try:
                forge_one(log.cluster if kind == "cluster" else log.topic("t").journal, kind, dice, stores)
            except OverflowError:
                continue  # msgpack has no such number
            with within(SECONDS_MAX), contextlib.suppress(LogError):
                log = stores.log()
                use(log, log.topic("t"))
                worked += 1
    assert 0 < worked < FORGERIES
