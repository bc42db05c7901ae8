"""Verify and repair on several nodes: every copy is read, and damaged ones are named and copied again."""

import random

import msgspec
import pytest

from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.audit.verify import _replication, bytes_to_read, verify
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments.orphans import RaiseOrphanFloor
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.segments import segment
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores

HOW = ["flipped", "cut", "missing", "another"]


@pytest.fixture(params=["log", "parquet"])
def topic(request):
    """Three nodes with a segment of three chunks, and two append files."""
    settings = {"retention_ms": "-1", "orphan_retention_ms": "0", "segment_format": request.param}
    topic = ReplicatedTopic(Stores(BreakableStore), **settings)
    dice = random.Random(1)
    for _ in range(5):
        topic.append({0: [dice.randbytes(50_000), dice.randbytes(50_000)]}, on=ALL, acks="all")
    topic.roll(3)
    for name in ALL:
        catch_up.catch_up(topic.handle, name)
    topic_cleanup.delete_pending(topic.handle, 10**15)
    return topic


def disk(topic, name):
    return topic.log.node_store(name)


def audit(topic, node=None):
    """Return the report of verify in a new process."""
    _, handle = topic.open()
    return verify(handle, node=node)


def spoil(topic, name, key, how):
    store = disk(topic, name)
    if how == "missing":
        store.delete(key)
        return
    data = bytearray(store.read(key))
    if how == "flipped":
        data[-1] ^= 4
    elif how == "cut":
        del data[-1]
    else:
        data = bytearray(store.read(other_of(topic, key)))
    store.put(key, bytes(data))


def file_key(topic, number=0):
    return topic.handle.append_file(topic.handle.refresh().files[number].name)


def log_key(topic):
    return layout.segment_file(topic.handle.segment(0, topic.partition().segments[0].name))


def other_of(topic, key):
    return file_key(topic, 1) if key == file_key(topic, 0) else file_key(topic, 0)


# Sound topics


def test_all_copies_are_read_and_sound(topic):
    told = []
    _, handle = topic.open()
    report = verify(handle, told.append)
    assert report.findings == []
    assert (report.rows, report.segments, report.orphans) == (10, 1, [])
    assert report.bytes == sum(told) == bytes_to_read(handle)
    assert report.bytes == 3 * bytes_to_read(handle, "1") > 0


def test_with_a_node_only_its_copies_are_read(topic):
    report = audit(topic, "2")
    assert (report.sound, report.rows) == (True, 10)
    spoil(topic, "1", log_key(topic), "flipped")
    assert audit(topic, "2").sound
    assert not audit(topic, "1").sound


def test_orphans_are_reported_with_their_node(topic):
    key = topic.handle.append_file(born_name(0, "ab" * 16))
    disk(topic, "2").create(key, b"nobody names it")
    for _ in range(2):
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))
    report = audit(topic)
    assert (report.sound, report.orphans) == (True, [f"node 2: {key}"])
    assert audit(topic, "1").orphans == []


# Damage


@pytest.mark.parametrize(("of_segment", "offset"), [(True, 0), (False, 8)], ids=["a segment", "an append file"])
@pytest.mark.parametrize(("name", "how"), [*(("1", each) for each in HOW), ("0", "flipped")])
def test_a_bad_copy_is_named_and_repaired(topic, name, how, of_segment, offset):
    key = log_key(topic) if of_segment else file_key(topic, 1)
    whole = disk(topic, name).read(key)
    spoil(topic, name, key, how)
    [found] = audit(topic).findings
    assert (found.node, found.partition, found.offset, found.repairable) == (name, 0, offset, True)
    assert found.what == f"node {name!r}, partition 0, offset {offset}"
    assert key in found.detail
    assert repair(topic.handle) == [f"{key} on node {name!r}"]
    assert disk(topic, name).read(key) == whole
    assert audit(topic).findings == []


def test_with_a_node_its_copies_are_repaired_and_those_that_turn_out_to_be_bad_sources(topic):
    key = log_key(topic)
    for name in ("0", "1"):
        spoil(topic, name, key, "flipped")
    spoil(topic, "0", file_key(topic), "flipped")
    assert repair(topic.handle, "1") == [f"{key} on node '1'"]
    assert [(each.node, each.offset) for each in audit(topic).findings] == [("0", 6)]


@pytest.mark.parametrize("topic", ["log"], indirect=True)
def test_copies_that_are_whole_and_differ_are_named(topic):
    store = disk(topic, "2")
    key = log_key(topic).removesuffix(".log")
    chunks = [(header, data) for _, header, data in segment.chunks(store, key)]
    for end in (".log", ".index"):
        store.delete(key + end)
    writer = segment.SegmentWriter(store, key, topic.partition().epoch_starts)
    for header, data in (chunks[1], chunks[0], chunks[2]):
        writer.append(header, data)
    writer.close()
    [found] = audit(topic).findings
    assert (found.node, found.repairable) == ("2", False)
    assert "differ from those on node '0'" in found.detail
    assert repair(topic.handle) == []


# Nodes that are not there


def test_a_missing_node_is_reported_once(topic):
    disk(topic, "1").broken = StoreUnavailable
    [found] = audit(topic).findings
    assert (found.what, found.node) == ("node '1'", "1")
    assert "taken away" in found.detail
    [found] = audit(topic, "1").findings
    assert found.what == "node '1'"
    assert audit(topic, "2").sound


# What the journal says


def replication(topic, **facts):
    state = topic.handle.refresh()
    partition = msgspec.structs.replace(state.partitions[0], **facts)
    return [each.detail for each in _replication(msgspec.structs.replace(state, partitions=(partition,)), 0)]


@pytest.mark.parametrize(
    ("ends", "isr", "said"),
    [
        ((11, 11, 11), ALL, "the LEO of node '1' is 11, but it holds rows up to 10 only"),
        ((11, 8, 11), ALL, "node '1' is in the ISR, but its LEO 8 is below the HW 11"),
        ((8, 10, 11), ("2",), "node '0' is the leader, but its LEO 8 is not the log end 11"),
    ],
)
def test_what_a_journal_says_of_replicas_that_cannot_be_is_named(topic, ends, isr, said):
    topic.append(on=("0", "2"), acks="all")
    assert replication(topic) == []
    assert replication(topic, log_end_offsets=dict(zip(ALL, ends, strict=True)), isr=isr)[0] == said
