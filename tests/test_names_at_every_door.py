"""A name that leads out of its folder, or looks like another one, is refused at every door where it comes in.

    people       options of queries and of Python clients, the column `topic`, the command line and its files
    journals     entries, snapshots and manifests of the cluster, of topics and of groups
    objects      markers, lists of journal nodes, checkpoints, heartbeats, requests to join, folders
    stores       the addresses of nodes

Those in journals and objects are forged: the bytes are whole, and their checksums are right. The rule is in
`tests/storage/test_names.py`; here each door has some names of each kind.
"""

import json

import msgspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pyspark_log.cli.main import app
from pyspark_log.clients.consumer_group import SubscribedTopics
from pyspark_log.options import parse_sink, parse_source
from pyspark_log.options.consumer import parse_consumer
from pyspark_log.reading import source_offset
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
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
from pyspark_log_storage.errors import CorruptObject, InvalidName, LogError
from pyspark_log_storage.objects import checkpoints, node
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from tests.support.command_line import CommandLine
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.forged import forge
from tests.support.coordinator.forged_worker import segment
from tests.support.coordinator.groups import after, join, started
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import Clock, StoredTopic
from tests.support.hostile_names import ADDRESSES, TYPICAL, UNPRINTABLE
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import PlainLog, record

REAL = "flights"


def door(**doors):
    return pytest.mark.parametrize("enter", list(doors.values()), ids=list(doors))


# What people give


def streaming(**options):
    return parse_source({"path": "/x", "subscribe": REAL} | options, streaming=True)


@door(
    subscribe=lambda name: streaming(subscribe=name),
    assign=lambda name: parse_source({"path": "/x", "assign": json.dumps({name: [0]})}, streaming=True),
    starting_offsets=lambda name: streaming(startingOffsets=json.dumps({name: {"0": 1}})),
    starting_timestamps=lambda name: streaming(startingOffsetsByTimestamp=json.dumps({name: {"0": 1}})),
    member=lambda name: streaming(**{"group.id": "g", "group.protocol": "cooperative", "group.instance.id": name}),
    topic=lambda name: parse_sink({"path": "/x", "topic": name}, streaming=True),
    dead_letters=lambda name: parse_sink({"path": "/x", "topic": REAL, "dead.letter.topic": name}, streaming=True),
    member_of_a_client=lambda name: parse_consumer({"path": "/x", "group.id": "g", "group.instance.id": name}, {}),
    topics_of_a_client=lambda name: SubscribedTopics([name], None),
    offset_in_a_checkpoint=lambda name: source_offset.parse({"version": 1, "topics": {name: {"id": "1", "end": {}}}}),
)
def test_options_of_topics_and_members(enter):
    for name in TYPICAL:
        with pytest.raises(LogError):
            enter(name)


@door(
    group=lambda name: streaming(**{"group.id": name}),
    rack=lambda name: streaming(**{"client.rack": name}),
    group_of_a_client=lambda name: parse_consumer({"path": "/x", "group.id": name}, {}),
)
def test_options_of_groups_and_racks(enter):
    for name in UNPRINTABLE:
        with pytest.raises(LogError):
            enter(name)


@pytest.mark.parametrize("name", TYPICAL)
def test_the_column_topic(name):
    log = PlainLog()
    before = list(log.log.store.list(""))
    staging = Staging(
        log.log.store_at,
        lambda each: destination_of(log.log.ensure_topic(each, 1), None, 1000),
        None,
        environment=log.log.environment,
        durable=True,
        sticky=0,
    )
    staging.add(Rows(record([b"x"]), pa.array([name]), None))
    with pytest.raises(InvalidName):
        staging.finish()
    staging.discard()
    assert list(log.log.store.list("")) == before


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    made = CommandLine(tmp_path_factory.mktemp("cli") / "log")
    made.run("topics", "create", REAL)
    return made


def refusal(cli, *words):
    """Return what a command says that exits with an error, and that raises nothing."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"PYSPARK_LOG_PATH": str(cli.path)})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {1, 2}
    return result.stderr


@door(
    create=("topics", "create", "--", "NAME"),
    delete=("topics", "delete", "--yes", "--", "NAME"),
    alter=("topics", "alter", "--config", "retention.ms=1", "--", "NAME"),
    produce=("produce", "--", "NAME"),
    consume=("consume", "--", "NAME"),
    delete_records=("delete-records", "--yes", "--partition", "0", "--before", "1", "--", "NAME"),
    maintain=("maintain", "--", "NAME"),
    recover=("recover", "--", "NAME"),
    reset_offsets=("groups", "reset-offsets", "g", "--to-earliest", "--topic", "NAME", "--execute"),
    node=("nodes", "add", "/tmp/nowhere", "--id", "NAME"),
)
def test_commands(cli, enter):
    before = sorted(cli.path.rglob("*"))
    for name in TYPICAL[::2]:
        said = refusal(cli, *(name if word == "NAME" else word for word in enter))
        assert f"invalid {'node' if '--id' in enter else 'topic'} name" in said or "does not exist" in said
        assert "\x1b[2J" not in said, "the terminal is cleared"
    assert sorted(cli.path.rglob("*")) == before


def test_a_file_of_offsets(cli, tmp_path):
    file = tmp_path / "offsets.csv"
    for name in TYPICAL:
        file.write_text('"' + name + '",0,0\n', newline="")
        for command in (("reset-offsets", "g", "--from-file", file), ("import", file, "--group", "g")):
            assert "invalid topic name" in refusal(cli, "groups", *command, "--execute")


# Journals


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
def copy(whole):
    """Return copies of it in which a test forges, opened."""

    def make():
        made = StoredTopic.__new__(StoredTopic)
        made.store = Watched()
        for key, data in whole.items():
            MemoryStore.put(made.store, key, data)
        made.clock = Clock()
        made.log = made.open()
        made.handle = made.log.topic("t")
        return made

    return make


def is_refused(stored, use):
    """Check that a new process is refused, and looks for nothing outside of the store."""
    with pytest.raises(LogError):
        use(stored.open())
    assert stored.store.outside == []


def use_topic(log):
    handle = log.topic("t")
    for act in (clean_up_topic, lambda each: clean_up_cluster(each.log)):
        act(handle)


def topic_record(name="u", topic_id="1", on="0"):
    return cluster.TopicCreated(cluster.TopicRecord(name, topic_id, 0, TopicConfig(), ((on,),), ()))


@door(
    topic=(lambda name: topic_record(name=name), TYPICAL),
    topic_id=(lambda name: topic_record(topic_id=name), TYPICAL),
    node=(lambda name: nodes.NodeAdded(Node(name, "/disk/9", "", "i")), TYPICAL),
    groups_journal=(lambda name: GroupCreated(GroupRecord("another", name, 0)), TYPICAL),
    group=(lambda name: GroupCreated(GroupRecord(name, "1", 0)), UNPRINTABLE),
    rack=(lambda name: nodes.RackSet("0", name), UNPRINTABLE),
    address=(lambda name: nodes.NodeAdded(Node("9", name, "", "i")), ADDRESSES.values()),
)
def test_an_entry_of_the_cluster(copy, enter):
    def use(log):
        log.topics()
        open_store(log.cluster.state.nodes["9"].url)

    make, names = enter
    for name in names:
        stored = copy()
        forge(stored.store, stored.log.cluster, make(name))
        is_refused(stored, use)


def sequenced(name):
    return BatchSequenced(None, 1, "all", (SequencedFile(name, (Holder("0", "i"),), ()),), 0)


@door(
    append_file=sequenced,
    segment=lambda name: SegmentsSwapped(0, segment(0, 9, name), 0),
    node=lambda name: PartitionsAdded(((name,),), {name: "i"}),
)
def test_an_entry_of_a_topic(copy, enter):
    for name in TYPICAL:
        stored = copy()
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
def test_a_snapshot_of_a_topic(copy, enter):
    for name in TYPICAL:
        stored = copy()
        journal = stored.handle.journal
        key, data = journal.encoded_snapshot()
        found = snapshot.decode(data, key)
        state = topic.MACHINE.encode_state(enter(journal.state, name))
        MemoryStore.put(stored.store, key, snapshot.encode(msgspec.structs.replace(found, state=msgspec.Raw(state))))
        is_refused(stored, use_topic)


def test_an_entry_that_names_a_manifest(copy):
    for name in TYPICAL:
        stored = copy()
        journal = stored.handle.journal
        entry = Entry("f" * 32, 0, journal.last_hash, NO_EVENTS, ManifestName(name, b"0" * 32))
        MemoryStore.put(stored.store, journal.entries.keys(journal.number + 1)[0], journal_entry.encode(entry))
        is_refused(stored, use_topic)


@pytest.mark.parametrize("name", TYPICAL)
def test_a_member_of_a_group(name):
    with pytest.raises(LogError):
        after(started(), join(name))
    forged = after(started(), join("m"))
    member = forged.members["m"]
    details = msgspec.structs.replace(member.details, member_id=name)
    members = {name: msgspec.structs.replace(member, details=details)}
    with pytest.raises((ValueError, LogError)):
        GROUP.check_state(msgspec.structs.replace(forged, members=members, leader=name), 3)


def test_the_name_in_a_groups_own_journal(copy):
    for name in UNPRINTABLE:
        stored = copy()
        handle = stored.log.group("g")
        forge(stored.store, handle.journal, GroupStarted(name, handle.journal.state.config))
        is_refused(stored, lambda log: log.group("g"))


# Other objects


def read_marker(name):
    store = MemoryStore()
    store.put(layout.MARKER, node.encode(node.Marker("c", name, "i")))
    node.read_marker(store)


def read_journal_nodes(name):
    members = tuple(JournalNode(each, "/disk", "i") for each in ("a", "b", name))
    journal_nodes.decode(journal_nodes.encode(JournalNodes("c", members, 2)), "it")


@door(
    marker=read_marker,
    journal_nodes=read_journal_nodes,
    checkpoint=lambda name: checkpoints.decode_offsets(checkpoints.encode_offsets({(name, 0): 5}), "it"),
)
def test_objects_that_name_topics_and_nodes(enter):
    for name in TYPICAL:
        with pytest.raises(CorruptObject):
            enter(name)


@door(
    heartbeats=(layout.heartbeats, lambda handle: Heartbeats(handle, fake_environment()).delete_left_over(set())),
    joins=(layout.join_requests, lambda handle: JoinRequests(handle, fake_environment()).others("m", 1)),
)
def test_files_in_the_folders_of_members_that_no_member_made_are_left_unchanged(copy, enter):
    """Names that cannot be in a folder cannot be listed either."""
    folder_of, act = enter
    stored = copy()
    handle = stored.log.group("g")
    folder = folder_of(handle.journal_id)
    names = ("a/b.1", "x.0", "x.01", "x", ".1", "x.9999999999999999999999", "\u0441.1", "a b.1", "x.1 ", "x.\u0663")
    foreign = [folder + name for name in names]
    for key in foreign:
        stored.store.put(key, b"")
    act(handle)
    assert set(foreign) <= set(stored.store.list(folder))


def test_the_folder_of_a_topic_on_a_node_that_is_rebuilt():
    """Only what can be a name is listed; a folder with another name is no topic."""
    store = MemoryStore()
    for name in TYPICAL[2:]:
        store.create(f"topics/{name}/1/append/x", b"")
        store.create(f"topics/t/{name}/append/x", b"")
    assert list(folder_scan.topic_folders(store)) == []


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


@pytest.mark.parametrize("what", ["a zero byte", "a host and a port", "another machine", "no kind of store"])
def test_the_address_of_a_node_that_joins(what):
    log = Stores().log()
    with pytest.raises(LogError):
        node_admin.join(log, open_store(absolute_url(ADDRESSES[what])).url)
