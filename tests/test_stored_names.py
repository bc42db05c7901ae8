"""A name that leads out of its folder, or looks like another one, is refused at every door where it is read.

    journals     entries, snapshots and manifests of the cluster, of topics and of groups
    objects      markers, lists of journal nodes, checkpoints, heartbeats, requests to join, inboxes, folders
    Spark        offsets in a checkpoint
    stores       keys, and the addresses of nodes

The names are forged: the bytes are whole, and their checksums are right. Doors where people give names are in
`test_names_at_every_door`.
"""

import msgspec
import pytest

from pyspark_log.reading import source_offset
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.cluster.groups import GroupCreated, GroupRecord
from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig, GroupStarted
from pyspark_log_coordinator.group.machine import MACHINE as GROUP
from pyspark_log_coordinator.journal import journal_entry, journal_nodes, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_EVENTS, Entry, ManifestName
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.maintenance.topic_cleanup import clean_up_topic
from pyspark_log_coordinator.membership.member_objects import Heartbeats, JoinRequests
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.partitions import Partitions
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import PendingDeletion
from pyspark_log_coordinator.rebuild import folder_scan
from pyspark_log_coordinator.replication.reassignment import PartitionsAdded
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import SequencedFile
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, StoreRefused
from pyspark_log_storage.objects import checkpoints, node
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.chaos import ChaosStore
from pyspark_log_storage.stores.faults import ChaosOptions, RandomFaults
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.s3 import S3Store
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.forged import forge
from tests.support.coordinator.forged_worker import segment
from tests.support.coordinator.groups import after, join, started
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import Clock, StoredTopic
from tests.support.hostile_names import ADDRESSES, HOSTILE, KEYS, UNPRINTABLE
from tests.support.memory_store import MemoryStore
from tests.test_names_at_every_door import door, each

NOT_STORED = {"half a character"}
"""msgpack and JSON have no such text."""


MADE_ABSOLUTE = {"a relative path", "a path upwards", "a home folder", "faults and a relative path"}
"""Addresses that people may give, but that no journal has."""


class Watched(MemoryStore):
    """Notes which keys are asked for that lead out of the store."""

    def __init__(self, url="memory"):
        super().__init__(url)
        self.outside = []

    def _note(self, key):
        if not key or set(key.split("/")) & {"", ".", ".."} or "\0" in key:
            self.outside.append(key)

    def read(self, key, start=0, length=None):
        self._note(key)
        return super().read(key, start, length)

    def create(self, key, data):
        self._note(key)
        return super().create(key, data)

    def delete(self, key):
        self._note(key)
        super().delete(key)


@pytest.fixture(scope="module")
def whole():
    """The objects of a topic with rows and a segment."""
    made = StoredTopic()
    made.fill(6)
    made.roll(3)
    made.log.group("g", create=True)
    return {key: made.store.read(key) for key in made.store.list("")}


@pytest.fixture
def stored(whole):
    """A copy of it in which a test forges, opened."""
    made = StoredTopic.__new__(StoredTopic)
    made.store = Watched()
    for key, data in whole.items():
        MemoryStore.put(made.store, key, data)
    made.clock = Clock()
    made.log = made.open()
    made.handle = made.log.topic("t")
    return made


def is_refused(stored, use):
    """Check that a new process is refused, and looks for nothing outside of the store."""
    with pytest.raises(LogError):
        use(stored.open())
    assert stored.store.outside == []


def use_topic(log):
    handle = log.topic("t")
    for act in (clean_up_topic, lambda each: clean_up_cluster(each.log)):
        act(handle)


# The cluster's journal


def topic_record(name="u", topic_id="1", on="0"):
    return cluster.TopicCreated(cluster.TopicRecord(name, topic_id, 0, TopicConfig(), ((on,),), ()))


@door(
    topic=lambda name: topic_record(name=name),
    topic_id=lambda name: topic_record(topic_id=name),
    node=lambda name: nodes.NodeAdded(Node(name, "/disk/9", "", "i")),
    groups_journal=lambda name: GroupCreated(GroupRecord("another", name, 0)),
)
@each(HOSTILE, without=NOT_STORED)
def test_an_entry_of_the_cluster(stored, enter, name):
    forge(stored.store, stored.log.cluster, enter(name))
    is_refused(stored, lambda log: log.topics())


@door(
    group=lambda name: GroupCreated(GroupRecord(name, "1", 0)),
    rack=lambda name: nodes.RackSet("0", name),
)
@each(UNPRINTABLE, without=NOT_STORED)
def test_an_entry_of_the_cluster_with_a_group_or_a_rack(stored, enter, name):
    forge(stored.store, stored.log.cluster, enter(name))
    is_refused(stored, lambda log: log.topics())


# A topic's journal


def sequenced(name):
    return BatchSequenced(None, 1, "all", (SequencedFile(name, (Holder("0", "i"),), ()),), 0)


@door(
    append_file=sequenced,
    segment=lambda name: SegmentsSwapped(0, segment(0, 9, name or "-"), 0),
    node=lambda name: PartitionsAdded(((name,),), {name: "i"}),
)
@each(HOSTILE, without=NOT_STORED)
def test_an_entry_of_a_topic(stored, enter, name):
    forge(stored.store, stored.handle.journal, enter(name))
    is_refused(stored, use_topic)


def renamed(state, name):
    """A state in which an append file has another name."""
    return msgspec.structs.replace(
        state, files=type(state.files)([msgspec.structs.replace(state.files[0], name=name), *list(state.files)[1:]])
    )


def released(state, name):
    pending = state.pending_deletions.append([PendingDeletion(name, 0)])
    return msgspec.structs.replace(state, pending_deletions=pending)


def with_segment(state, name):
    one = state.partitions[0]
    segments = (msgspec.structs.replace(one.segments[0], name=name), *one.segments[1:])
    return msgspec.structs.replace(state, partitions=Partitions((msgspec.structs.replace(one, segments=segments),)))


@door(append_file=renamed, released_file=released, segment=with_segment)
@each(HOSTILE, without=NOT_STORED)
def test_a_snapshot_of_a_topic(stored, enter, name):
    journal = stored.handle.journal
    key, data = journal.encoded_snapshot()
    found = snapshot.decode(data, key)
    state = topic.MACHINE.encode_state(enter(journal.state, name))
    MemoryStore.put(stored.store, key, snapshot.encode(msgspec.structs.replace(found, state=msgspec.Raw(state))))
    is_refused(stored, use_topic)


@each(HOSTILE, without=NOT_STORED)
def test_an_entry_that_names_a_manifest(stored, name):
    journal = stored.handle.journal
    entry = Entry("f" * 32, 0, journal.last_hash, NO_EVENTS, ManifestName(name, b"0" * 32))
    MemoryStore.put(stored.store, journal.entries.keys(journal.number + 1)[0], journal_entry.encode(entry))
    is_refused(stored, use_topic)


# A group's journal


@each(HOSTILE, without=NOT_STORED)
def test_a_member_of_a_group(name):
    with pytest.raises(LogError):
        after(started(), join(name))
    forged = after(started(), join("m"))
    member = forged.members["m"]
    details = msgspec.structs.replace(member.details, member_id=name)
    members = {name: msgspec.structs.replace(member, details=details)}
    with pytest.raises((ValueError, LogError)):
        GROUP.check_state(msgspec.structs.replace(forged, members=members, leader=name), 3)


@each(UNPRINTABLE, without=NOT_STORED)
def test_the_name_in_a_groups_own_journal(stored, name):
    handle = stored.log.group("g")
    forge(stored.store, handle.journal, GroupStarted(name, handle.journal.state.config))
    is_refused(stored, lambda log: log.group("g"))


# Other objects


@each(HOSTILE, without=NOT_STORED)
def test_a_nodes_marker(name):
    store = MemoryStore()
    store.put(layout.MARKER, node.encode(node.Marker("c", name, "i")))
    with pytest.raises(CorruptObject):
        node.read_marker(store)


@each(HOSTILE, without=NOT_STORED)
def test_a_list_of_journal_nodes(name):
    members = tuple(JournalNode(each, "/disk", "i") for each in ("a", "b", name))
    with pytest.raises(LogError):
        journal_nodes.decode(journal_nodes.encode(JournalNodes("c", members, 2)), "it")


@each(HOSTILE, without=NOT_STORED)
def test_a_checkpoint_of_offsets(name):
    with pytest.raises(CorruptObject):
        checkpoints.decode_offsets(checkpoints.encode_offsets({(name, 0): 5}), "it")


@door(
    heartbeats=(layout.heartbeats, lambda handle: Heartbeats(handle, fake_environment()).delete_left_over(set())),
    joins=(layout.join_requests, lambda handle: JoinRequests(handle, fake_environment()).others("m", 1)),
)
def test_files_in_the_folders_of_members_that_no_member_made_are_left_unchanged(stored, enter):
    """Names that cannot be in a folder cannot be listed either."""
    folder_of, act = enter
    handle = stored.log.group("g")
    folder = folder_of(handle.journal_id)
    names = ("a/b.1", "x.0", "x.01", "x", ".1", "x.9999999999999999999999", "\u0441.1", "a b.1", "x.1 ", "x.\u0663")
    foreign = [folder + name for name in names]
    for key in foreign:
        stored.store.put(key, b"")
    act(handle)
    assert set(foreign) <= set(stored.store.list(folder))


@each(HOSTILE, without=NOT_STORED)
def test_the_folder_of_a_topic_on_a_node_that_is_rebuilt(name):
    """Only what can be a name is listed; a folder with another name is no topic."""
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        return
    store = MemoryStore()
    store.create(f"topics/{name}/1/append/x", b"")
    store.create(f"topics/t/{name}/append/x", b"")
    assert list(folder_scan.topic_folders(store)) == []


# Spark's checkpoint


@each(HOSTILE, without=NOT_STORED)
def test_an_offset_in_sparks_checkpoint(stored, name):
    value = {"version": 1, "topics": {name: {"id": stored.handle.topic_id, "end": {"0": [3, 0]}}}}
    with pytest.raises(LogError):
        source_offset.parse(value)


# Stores


def test_names_that_differ_in_case_are_two_topics_that_share_no_folder():
    """Not even on a file system that does not tell them apart: the ids differ."""
    log = Stores().log()
    folders = [layout.topic_folder(name, log.create_topic(name, 1).topic_id).lower() for name in ("t", "T")]
    assert not folders[0].startswith(folders[1])
    assert not folders[1].startswith(folders[0])


@pytest.mark.parametrize("name", ["../../x", "..", "fl\u0456ghts", "a/b"])
def test_the_name_of_a_group_is_in_no_key(name):
    """It is any text that can be printed, as in Kafka."""
    log = Stores().log()
    before = set(log.store.list(""))
    log.group(name, create=True).submit(AlterGroupConfig({"group.initial.rebalance.delay.ms": "0"}))
    new = set(log.store.list("")) - before
    assert new
    assert not any(name in key for key in new)


@door(
    read=lambda store, key: store.read(key),
    size=lambda store, key: store.size(key),
    exists=lambda store, key: store.exists(key),
    create=lambda store, key: store.create(key, b""),
    create_unflushed=lambda store, key: store.create_unflushed(key, b""),
    put=lambda store, key: store.put(key, b""),
    open_write=lambda store, key: store.open_write(key),
    delete=lambda store, key: store.delete(key),
    list=lambda store, key: list(store.list(f"{key}/")),
    folders=lambda store, key: list(store.folders(f"{key}/")),
    remove_folders=lambda store, key: store.remove_folders(f"{key}/"),
)
@each(KEYS)
def test_keys(tmp_path, enter, name):
    local = LocalStore(str(tmp_path / "root"))
    local.create("selftest/x", b"")
    before = sorted(tmp_path.rglob("*"))
    nowhere = StorageOptions.given({"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"})
    wrapped = ChaosStore(local, RandomFaults(ChaosOptions()))
    for store in (local, MemoryStore(), wrapped, S3Store("s3://bucket/log", nowhere)):
        with pytest.raises(StoreRefused):
            enter(store, name)
    assert sorted(tmp_path.rglob("*")) == before


@each(ADDRESSES, without=NOT_STORED)
def test_the_address_of_a_node(stored, name):
    forge(stored.store, stored.log.cluster, nodes.NodeAdded(Node("9", name, "", "i")))

    def use(log):
        log.cluster.refresh()
        open_store(log.cluster.state.nodes["9"].url)

    is_refused(stored, use)


@each(ADDRESSES, without=MADE_ABSOLUTE)
def test_the_address_of_a_node_that_joins(name):
    log = Stores().log()
    with pytest.raises(LogError):
        node_admin.join(log, open_store(absolute_url(name)).url)
