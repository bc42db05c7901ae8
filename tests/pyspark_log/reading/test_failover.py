"""A reader whose nodes fail or hang continues with the next node, and every row comes once."""

import itertools
import logging
import pickle
import threading
import time

import msgspec
import pytest

from pyspark_log.reading import failover
from pyspark_log.reading.failover import lane_of
from pyspark_log.reading.planning import find_again
from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.audit.verify import verify, verify_cluster
from pyspark_log_coordinator.backup import backup
from pyspark_log_coordinator.cluster.nodes import FenceNode
from pyspark_log_coordinator.journal import journal
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.reachable_stores import reachable_nodes
from pyspark_log_coordinator.maintenance import delta_table, descriptions
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.errors import CorruptObject, DataLoss, LogError, NoCluster, StoreRefused, StoreUnavailable
from pyspark_log_storage.files import index
from pyspark_log_storage.segments import transfer
from tests.support import direct
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.counted_bucket import CountedBucket
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.replicated_rows import (
    BATCHES,
    ROWS,
    Fallible,
    damage,
    lose,
    planned,
    read,
    reads,
    row,
    store,
)


@pytest.fixture
def topic():
    """Topic t of BATCHES large rows in as many files, which are on all three nodes; node 0 leads."""
    topic = ReplicatedTopic(Stores(Fallible))
    for number in range(BATCHES):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    return topic


def file_key(topic, number):
    return topic.handle.append_file(topic.handle.journal.state.file(number).name)


# A bucket, whose answers can be damaged on their way


class BadConnection(CountedBucket):
    """A bucket whose answer to one of the next reads is damaged."""

    left = -1
    """How many reads are answered before it; none is damaged below 0."""

    def __init__(self, url, spoil):
        super().__init__(url)
        self.spoil = spoil

    def read(self, key, start=0, length=None):
        data = super().read(key, start, length)
        self.left -= 1
        return self.spoil(data) if self.left == -1 else data


def flip(data, at):
    return data[:at] + bytes(byte ^ 1 for byte in data[at : at + 1]) + data[at + 1 :]


SPOILED = {
    "a bit in the middle": lambda data: flip(data, len(data) // 2),
    "a bit in the version": lambda data: flip(data, 5),
    "the first bit": lambda data: flip(data, 0),
    "the last byte": lambda data: data[:-1],
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("settings", [{}, {"segment_format": "parquet"}], ids=["chunks", "parquet"])
def test_a_damaged_answer_of_a_bucket_is_no_damaged_object(monkeypatch, settings, spoil):
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 4)
    bucket, vault = BadConnection("bucket", spoil), BadConnection("vault", spoil)
    topic = StoredTopic(bucket, **settings)
    topic.fill(4)
    topic.roll(2)
    topic.fill(2)
    descriptions.write_on_nodes(topic.handle)
    if settings:
        delta_table.publish_on_nodes(topic.handle, reachable_nodes(topic.log))
        delta_log.write_checkpoint(bucket, topic.folder, delta_log.read(bucket, topic.folder))
    backup.back_up(topic.log, vault)
    key, [ref] = topic.segment_key(), topic.handle.state.partitions[0].segments

    def opened():
        return topic.open().topic("t")

    def backed_up():
        copy = MemoryStore("a copy")
        backup.back_up(topic.log, copy)
        return {name: copy.read(name) for name in copy.list("topics/")}

    acts = {
        "read": lambda: topic.read(handle=opened()),
        "look up": lambda: index.read(bucket, key),
        "check": lambda: transfer.check(bucket, key, ref),
        "verify": lambda: verify(opened()).document(),
        "verify the cluster": lambda: verify_cluster(opened().log).document(),
        "read the table": lambda: delta_log.read(bucket, topic.folder).files,
        "back up": backed_up,
        "check a backup": lambda: backup.check(vault, [1]),
    }
    for name, act in acts.items():
        good = act()
        for number in itertools.count():
            bucket.left = vault.left = number
            assert act() == good, f"read {number} of: {name}"
            if min(bucket.left, vault.left) >= 0:
                break
        assert number > 0 or (name == "read the table" and not settings)


# One node fails


def test_a_chunk_that_is_damaged_on_the_leader_is_read_from_another(topic, caplog):
    split, number = planned(topic), 7
    damage(topic, "0", file_key(topic, number))
    reads(topic)
    assert read(topic, split) == ROWS
    assert reads(topic) == {"0": number + 1, "1": BATCHES - number}
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    message = warning.getMessage()
    assert f"topic 't', partition 0, offset {number} cannot be read from node '0': " in message
    assert "does not match" in message
    assert message.endswith("It was read from node '1'")


@pytest.mark.parametrize("error", [StoreUnavailable, StoreRefused])
def test_a_node_that_fails_during_the_read_loses_no_row_and_is_avoided(topic, caplog, error):
    def go(got):
        if got >= BATCHES // 2:
            store(topic, "0").error = error

    assert read(topic, planned(topic), go) == ROWS
    counts = reads(topic)
    assert counts["0"] + counts["1"] == BATCHES + 1
    assert len(caplog.records) == 1
    # The next task of this process does not try it either.
    assert read(topic, planned(topic)) == ROWS
    assert reads(topic) == {"1": BATCHES}


def test_a_node_is_trusted_again_after_some_time(topic, monkeypatch, caplog):
    began, passed = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: began() + passed)
    store(topic, "0").error = StoreUnavailable
    for _ in range(3):
        assert read(topic, planned(topic)) == ROWS
        passed += failover.AVOID_SECONDS
    store(topic, "0").error = None
    reads(topic)
    assert read(topic, planned(topic)) == ROWS
    assert reads(topic) == {"0": BATCHES}
    away, back = caplog.messages
    assert away.startswith("topic 't', partition 0, offset 0 cannot be read from node '0': ")
    assert back == "node '0' can be read again"


# All of them fail


def test_if_no_node_answers_the_error_is_the_leaders(topic):
    split = planned(topic)
    for node in ALL:
        store(topic, node).error = StoreUnavailable
    with pytest.raises(StoreUnavailable) as caught:
        read(topic, split, again={0: split}.get)
    assert caught.value.url == "/cluster"
    # The rows are where they were, so nobody is asked a second time.
    assert reads(topic) == {"0": 1, "1": 1, "2": 1}


@pytest.mark.parametrize("away", [StoreUnavailable("/cluster", "journal", "away"), NoCluster("not seen here")])
def test_if_no_node_and_no_journal_answers_the_error_names_the_rows(topic, away):
    split = planned(topic)
    for node in ALL:
        damage(topic, node, file_key(topic, 0))

    def no_journal(offset):
        raise away

    with pytest.raises(CorruptObject, match="offsets 0 to 0"):
        read(topic, split, again=no_journal)


def test_rows_without_a_holder_are_an_error(topic):
    state = topic.handle.journal.state
    gone = dict.fromkeys(state.incarnations, "another incarnation")
    topic.handle.journal.state = msgspec.structs.replace(state, incarnations=gone)
    split = planned(topic)
    assert split.nodes == ()
    with pytest.raises(StoreUnavailable, match="topic 't', partition 0, offset 0: each node that held it was wiped"):
        read(topic, split)


@pytest.mark.parametrize("are_replaced", [False, True])
def test_rows_that_an_unclean_election_cuts_during_the_read_are_a_loss(topic, are_replaced):
    topic.append(on=("0", "2"), acks="all")
    split = planned(topic)
    for node in ("0", "2"):
        topic.handle.submit(Suspect(node, topic.handle.journal.state.incarnations[node]))
    gone = topic.handle.journal.state.suspects
    alive = (Holder("1", topic.handle.journal.state.incarnations["1"]),)
    topic.handle.submit(ElectLeaders(alive, gone, unclean=True))
    if are_replaced:
        topic.append(on=("1",), acks="all")
        assert topic.handle.refresh().partitions[0].high_watermark == split.end
    for node in ALL:
        lose(topic, node)

    def again(offset):
        return find_again(topic.log, split, offset)

    message = f"topic 't', partition 0: offsets {BATCHES} to {BATCHES} were cut by an unclean election"
    with pytest.raises(DataLoss, match=message):
        read(topic, split, again=again)


# A node hangs


@pytest.fixture
def hanging(topic, monkeypatch):
    """Node 0 hangs until the test is over."""
    monkeypatch.setattr(failover, "ANSWER_SECONDS", 0.5)
    store(topic, "0").gate = threading.Event()
    yield topic
    store(topic, "0").gate.set()


def test_a_node_that_hangs_is_waited_for_once(hanging, caplog):
    begin = time.monotonic()
    for _ in range(3):
        assert read(hanging, planned(hanging)) == ROWS
    assert time.monotonic() - begin < failover.LAST_ANSWER_SECONDS / 2
    assert reads(hanging) == {"0": 1, "1": 3 * BATCHES}
    (warning,) = caplog.records
    assert "/cluster does not answer" in warning.getMessage()


def test_a_node_that_hangs_is_asked_last_and_not_waited_for_if_the_others_fail(hanging):
    assert read(hanging, planned(hanging)) == ROWS
    begin = time.monotonic()
    for node in ("1", "2"):
        store(hanging, node).error = StoreUnavailable
    with pytest.raises(StoreUnavailable, match="/cluster does not answer"):
        read(hanging, planned(hanging))
    assert time.monotonic() - begin < failover.LAST_ANSWER_SECONDS / 2
    assert reads(hanging)["0"] == 1
    # Once it has answered it is asked again.
    store(hanging, "0").gate.set()
    deadline = time.monotonic() + 10
    while lane_of(store(hanging, "0")).hangs and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read(hanging, planned(hanging)) == ROWS


# Which node is read


@pytest.fixture
def racks():
    """A log of nodes 0 to 3, of which 1 and 3 are in the rack east, and topic t on all of them, led by node 0."""
    topic = ReplicatedTopic.__new__(ReplicatedTopic)
    topic.stores = Stores(Fallible)
    topic.log = topic.stores.log()
    for number, rack in ((1, "east"), (2, "west"), (3, "east")):
        node_admin.join(topic.log, f"/disk/{number}", rack=rack)
    topic.handle = topic.log.create_topic("t", 1, replicas=[list("0123")])
    topic._batches = iter(range(100))
    topic.append({0: [b"a"]}, on=list("0123"), acks="all")
    return topic


def order(topic, rack=""):
    return [each.node for each in planned(topic, rack=rack).nodes]


def test_the_node_of_the_readers_rack_is_the_one_that_is_read(racks):
    split = planned(racks, rack="west")
    assert find_again(racks.log, split, 0) == split
    assert read(racks, split) == [b"a"]
    assert reads(racks) == {"2": 1}
    assert offset_for_time(racks.handle, 0, 0, "east") == 0
    assert reads(racks) == {"1": 1}


def test_fenced_and_missing_nodes_come_last(racks):
    racks.log.cluster.submit(FenceNode("1"))
    racks.log.missing_nodes = {"0": LogError("gone")}
    assert order(racks, "east") == ["3", "2", "1", "0"]


# On disks, as Spark reads


@pytest.fixture
def disks(tmp_path):
    """Topic t on three disks, of which the first leads and the third is in the rack east."""
    log = PlainLog(tmp_path / "0")
    node_admin.join(log.log, str(tmp_path / "1"))
    node_admin.join(log.log, str(tmp_path / "2"), rack="east")
    log.log.create_topic("t", 1, replicas=[ALL])
    log.append("t", {0: [b"a", b"b"]})
    return tmp_path


def test_a_query_reads_in_its_own_rack(disks):
    for number in (0, 1):
        for file in disks.glob(f"{number}/topics/t/*/append/*"):
            file.unlink()
    reader = direct.source(disks / "0", subscribe="t", **{"kafka.client.rack": "east"})
    made = reader.reader(reader.schema())
    (partition,) = pickle.loads(pickle.dumps(made.partitions()))
    assert partition.split.nodes[0].url == str(disks / "2")
    assert [value for batch in made.read(partition) for value in batch.column("value").to_pylist()] == [b"a", b"b"]


@pytest.fixture
def leaderless(disks):
    """Topic u, which only a node that is away may lead. Two rows are on another node too, the third is not."""
    log = PlainLog(disks / "0")
    handle = log.log.create_topic("u", 1, replicas=[["1", "2"]])
    log.append("u", {0: [b"a", b"b"]})
    (disks / "2").rename(disks / "2.away")
    log.log.open(create=False)
    log.append("u", {0: [b"c"]})
    (disks / "2.away").rename(disks / "2")
    (disks / "1").rename(disks / "1.away")
    detector = failure_detector_of(handle, session_timeout_ms=0)
    for _ in range(2):
        detector.look(handle)
    partition = handle.refresh().partitions[0]
    assert (partition.leader, partition.isr, partition.high_watermark) == (None, ("1",), 3)
    return detector, handle


def test_a_leaderless_partition_is_read_from_the_nodes_that_answer(disks, leaderless):
    until = {"endingOffsets": '{"u": {"0": 2}}'}
    assert [row["value"] for row in direct.read(disks / "0", subscribe="u", **until)] == [b"a", b"b"]
    stream = direct.Stream(disks / "0", subscribe="u", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert [row["value"] for row in stream.batch()] == [b"a", b"b"]
    assert stream.reader.reportLatestOffset()["offlinePartitions"] == "1"
    with pytest.raises(LogError, match=f"{disks}/1"):
        stream.batch()
    detector, handle = leaderless
    (disks / "1.away").rename(disks / "1")
    detector.look(handle)
    assert handle.refresh().partitions[0].leader == "1"
    assert [row["value"] for row in stream.batch()] == [b"c"]


def test_a_version_of_which_rows_were_cut_has_no_others_in_their_places(disks, leaderless):
    detector, handle = leaderless
    version = handle.journal.number
    detector.look(handle)
    handle.submit(ElectLeaders(live(handle), detector.unreachable, unclean=True))
    PlainLog(disks / "0").append("u", {0: [b"d", b"e"]})
    as_of = {"subscribe": "u", "versionAsOf": version}
    with pytest.raises(DataLoss, match="topic 'u', partition 0: rows of the version from offset 2 on were cut by an"):
        direct.read(disks / "0", **as_of)
    assert [row["value"] for row in direct.read(disks / "0", failOnDataLoss="false", **as_of)] == [b"a", b"b"]
    newest = {"subscribe": "u", "versionAsOf": handle.refresh() and handle.journal.number}
    assert [row["value"] for row in direct.read(disks / "0", **newest)] == [b"a", b"b", b"d", b"e"]
