"""A reader whose nodes fail: it goes on with the next one in the middle, and every row comes once."""

import gc
import logging
import os
import pickle
import threading
import time
import weakref
from collections import Counter

import msgspec
import pytest

from pyspark_log.client.read import failover, timed_reads
from pyspark_log.client.read.fetch import fetch
from pyspark_log.client.read.planning import Range, find_again, split_of
from pyspark_log.client.read.positions import offset_for_time
from pyspark_log.client.read.timed_reads import lane_of
from pyspark_log_coordinator.cluster.machine import FenceNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_probe import live
from pyspark_log_coordinator.topic.machine import Holder, Suspect, Suspicion
from pyspark_log_storage import segment
from pyspark_log_storage.errors import CorruptObject, DataLoss, LogError, ObjectMissing, StoreRefused, StoreUnavailable
from pyspark_log_storage.memory import MemoryStore
from tests import direct
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.coordinator.several_nodes import Stores
from tests.counting_store import CountingStore
from tests.plain_log import PlainLog, flip_bit

BATCHES = 30
LARGE = 700_000
"""Rows of so many bytes are not all joined into one batch, so that something can happen between two."""


class Fallible(MemoryStore):
    """Notes what is read of rows, and fails or hangs where a test says so."""

    def __init__(self, url):
        super().__init__(url)
        self.reads = []
        self.error = None
        self.gate = None

    def read(self, key, start=0, length=None):
        if "/append/" in key or key.endswith((".log", ".index")):
            self.reads.append(key)
            if self.gate is not None:
                self.gate.wait(60)
            if self.error is not None:
                raise self.error(self.url, key, "the test made this up")
        return super().read(key, start, length)


@pytest.fixture
def topic():
    """Topic t of BATCHES large rows in as many files, which are on all three nodes; node 0 leads."""
    topic = ReplicatedTopic(Stores(Fallible))
    for number in range(BATCHES):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    return topic


def row(number):
    return b"%d" % number * (LARGE // len(b"%d" % number))


ROWS = [row(number) for number in range(BATCHES)]


def planned(topic, start=0, end=None, rack=""):
    end = topic.partition().high_watermark if end is None else end
    return split_of(topic.log, topic.handle, Range("t", 0, start, end), rack)


def read(topic, split, between=bool, again=None):
    """Return the rows of a split; `between` is told how many came so far after each batch."""
    rows = []
    for offset, batch in fetch(topic.log.store_at, split, again):
        assert offset == split.start + len(rows)
        rows += batch.column("value").to_pylist()
        between(len(rows))
    return rows


def store(topic, name):
    return topic.log.node_store(name)


def reads(topic):
    """Return how often each node was read since this was asked last."""
    found = Counter({name: len(store(topic, name).reads) for name in topic.log.cluster.state.nodes})
    for name in found:
        store(topic, name).reads.clear()
    return +found


def damage(topic, name, key, position=-1):
    data = bytearray(store(topic, name).read(key))
    data[position] ^= 1
    store(topic, name).put(key, bytes(data))


def file_key(topic, number):
    return topic.handle.append_file(topic.handle.journal.state.file(number).name)


def lose(topic, name):
    """Remove all that a node has of the topic."""
    for key in list(store(topic, name).list("topics/t/")):
        if "/journal/" not in key:
            store(topic, name).delete(key)


def rolled(topic, chunks):
    """Roll the oldest chunks, and let all nodes have the segment; return its key."""
    name = topic.roll(chunks)
    for node in ("1", "2"):
        catch_up.catch_up(topic.handle, node)
    topic.handle.refresh()
    reads(topic)
    return topic.handle.segment(0, name)


# One node fails


def test_only_the_leader_is_read(topic):
    assert read(topic, planned(topic)) == ROWS
    assert reads(topic) == {"0": BATCHES}


@pytest.mark.parametrize("number", [0, 7, BATCHES - 1])
def test_a_chunk_that_is_damaged_on_the_leader_is_read_from_another(topic, caplog, number):
    split = planned(topic)
    damage(topic, "0", file_key(topic, number))
    reads(topic)
    assert read(topic, split) == ROWS
    assert reads(topic) == {key: count for key, count in {"0": number + 1, "1": BATCHES - number}.items() if count}
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


def test_a_node_that_lost_its_files_is_asked_once_in_a_task_and_again_in_the_next(topic):
    lose(topic, "0")
    for _ in range(2):
        assert read(topic, planned(topic)) == ROWS
        assert reads(topic) == {"0": 1, "1": BATCHES}


def test_two_nodes_that_fail_one_after_the_other_lose_no_row(topic):
    def go(got):
        store(topic, "0").error = StoreUnavailable if got > 5 else None
        store(topic, "1").error = StoreUnavailable if got > 15 else None

    assert read(topic, planned(topic), go) == ROWS
    assert set(reads(topic)) == {"0", "1", "2"}


def test_rows_are_put_together_from_nodes_that_each_have_a_part(topic):
    split = planned(topic)
    for number in range(BATCHES):
        for node in ALL:
            if number % 3 != int(node):
                damage(topic, node, file_key(topic, number))
    assert read(topic, split) == ROWS


def test_a_node_is_trusted_again_after_some_time(topic, monkeypatch):
    store(topic, "0").error = StoreUnavailable
    assert read(topic, planned(topic)) == ROWS
    store(topic, "0").error = None
    began = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: began() + timed_reads.AVOID_SECONDS)
    reads(topic)
    assert read(topic, planned(topic)) == ROWS
    assert reads(topic) == {"0": BATCHES}


# All of them fail


def test_if_all_copies_are_damaged_the_error_is_the_leaders(topic):
    split = planned(topic)
    for node in ALL:
        damage(topic, node, file_key(topic, 20))
    got = []
    with pytest.raises(CorruptObject, match=r"topic 't', partition 0, offsets 20 to 20 \(/cluster/"):
        read(topic, split, got.append)
    assert 0 < max(got) <= 20


def test_if_no_node_answers_the_error_is_the_leaders(topic):
    split = planned(topic)
    for node in ALL:
        store(topic, node).error = StoreUnavailable
    with pytest.raises(StoreUnavailable) as caught:
        read(topic, split, again={0: split}.get)
    assert caught.value.url == "/cluster"
    # The second time nobody is asked a second time for each chunk.
    assert reads(topic) == {"0": 2, "1": 2, "2": 2}


def test_only_the_last_node_is_waited_for_long(topic, monkeypatch):
    split = planned(topic)
    given = []

    class Noted(failover.TimedReads):
        def __init__(self, store, lane, seconds):
            given.append(seconds)
            super().__init__(store, lane, seconds)

    monkeypatch.setattr(failover, "TimedReads", Noted)
    for node in ALL:
        store(topic, node).error = StoreUnavailable
    with pytest.raises(StoreUnavailable):
        read(topic, split)
    assert given[: len(ALL)] == [failover.ANSWER_SECONDS] * 2 + [failover.LAST_ANSWER_SECONDS]


def test_if_no_node_and_no_journal_answers_the_error_names_the_rows(topic):
    split = planned(topic)
    for node in ALL:
        damage(topic, node, file_key(topic, 0))

    def no_journal(offset):
        raise StoreUnavailable("/cluster", "journal", "the journal does not answer")

    with pytest.raises(CorruptObject, match="offsets 0 to 0"):
        read(topic, split, again=no_journal)


def test_rows_that_maintenance_moved_are_found_again_after_all_nodes_lack_the_file(topic, caplog):
    split, asked = planned(topic), []
    rolled(topic, BATCHES)
    for node in ALL:
        for number in range(topic.handle.journal.state.first_file, topic.handle.journal.state.next_file):
            store(topic, node).delete(file_key(topic, number))
        for key in list(store(topic, node).list("topics/t/")):
            if "/append/" in key:
                store(topic, node).delete(key)

    def again(offset):
        asked.append(offset)
        return find_again(topic.log, split, offset)

    assert read(topic, split, again=again) == ROWS
    assert asked == [0]
    assert caplog.records == []


def test_rows_without_a_holder_are_an_error(topic):
    state = topic.handle.journal.state
    gone = dict.fromkeys(state.incarnations, "another incarnation")
    topic.handle.journal.state = msgspec.structs.replace(state, incarnations=gone)
    split = planned(topic)
    assert split.nodes == ()
    with pytest.raises(StoreUnavailable, match="topic 't', partition 0, offset 0: each node that held it was wiped"):
        read(topic, split)


def test_rows_that_an_unclean_election_cuts_during_the_read_are_a_loss(topic):
    topic.append(on=("0", "2"), acks="all")
    split = planned(topic)
    for node in ("0", "2"):
        topic.handle.submit(Suspect(node, topic.handle.journal.state.incarnations[node]))
    gone = tuple(Suspicion(*each) for each in topic.handle.journal.state.suspects.items())
    alive = (Holder("1", topic.handle.journal.state.incarnations["1"]),)
    topic.handle.submit(ElectLeaders(alive, gone, unclean=True))
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
    while lane_of(store(hanging, "0"))._overdue.empty() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read(hanging, planned(hanging)) == ROWS


def test_a_forked_process_has_threads_of_its_own(topic):
    split = planned(topic)
    assert read(topic, split) == ROWS
    assert reads(topic) == {"0": BATCHES}
    child = os.fork()
    if child == 0:
        os._exit(0 if read(topic, split) == ROWS and reads(topic) == {"0": BATCHES} else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_thread_of_a_store_ends_with_the_store(topic):
    assert read(topic, planned(topic)) == ROWS
    kept = weakref.ref(store(topic, "0"))
    before = threading.active_count()
    topic.stores.at.clear()
    topic.log = topic.handle = None
    gc.collect()
    assert kept() is None
    deadline = time.monotonic() + 10
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() < before


# Segments


@pytest.mark.parametrize("spoil", ["damage", "lose"])
def test_another_nodes_index_is_read_before_the_whole_log_is(topic, spoil):
    key = rolled(topic, 20)
    split = planned(topic, 5, 6)
    if spoil == "damage":
        damage(topic, "0", f"{key}.index", 80)
    else:
        store(topic, "0").delete(f"{key}.index")
    reads(topic)
    assert read(topic, split) == ROWS[5:6]
    counts = reads(topic)
    assert counts["0"] <= 2
    assert counts["1"] <= 4
    assert "2" not in counts


def test_the_log_is_scanned_if_no_index_is_whole(topic, caplog):
    key = rolled(topic, 20)
    for node in ALL:
        damage(topic, node, f"{key}.index", 80)
    assert read(topic, planned(topic, 5, 25)) == ROWS[5:25]
    assert caplog.records == []


def test_the_log_is_not_read_if_no_node_answers_for_the_index(topic):
    rolled(topic, 20)
    split = planned(topic, 5, 6)
    for node in ALL:
        store(topic, node).error = StoreUnavailable
    with pytest.raises(StoreUnavailable):
        read(topic, split)
    assert reads(topic) == {"0": 1, "1": 1, "2": 1}


def test_the_only_whole_log_is_scanned_if_no_index_is_whole(topic):
    key = rolled(topic, 20)
    for node in ALL:
        store(topic, node).delete(f"{key}.index")
    for node in ("0", "1"):
        damage(topic, node, f"{key}.log", 3 * LARGE)
    assert read(topic, planned(topic)) == ROWS


def test_a_segment_that_was_cut_on_one_node_is_read_from_another(topic):
    key = rolled(topic, 20)
    damaged = store(topic, "0")
    whole = damaged.read(f"{key}.log")
    # Between two chunks, where nothing but the journal says that more is to come.
    damaged.put(f"{key}.log", whole[: segment.scan(damaged, key)[11].position])
    segment.rebuild_index(damaged, key)
    assert read(topic, planned(topic)) == ROWS


# Positions


def offsets_of_times(topic, number):
    return offset_for_time(topic.log, topic.handle, 0, number)


def test_a_time_that_only_rows_above_the_high_watermark_have_reached_has_no_position():
    topic = ReplicatedTopic(Stores(Fallible))
    topic.append({0: [b"on the leader alone"]}, on=("0",), acks="1")
    assert (topic.partition().log_end, topic.partition().high_watermark) == (1, 0)
    assert offsets_of_times(topic, 0) is None


@pytest.mark.parametrize("rolls", [0, 5])
@pytest.mark.parametrize("trouble", ["damaged", "lost", "unavailable"])
def test_a_position_by_time_is_found_on_another_node(rolls, trouble):
    topic = ReplicatedTopic(Stores(Fallible))
    for number in range(8):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    if rolls:
        rolled(topic, rolls)
    if trouble == "damaged":
        for key in topic.keys("0"):
            damage(topic, "0", topic.handle.append_file("").removesuffix("append/") + key, 80)
    elif trouble == "lost":
        lose(topic, "0")
    else:
        store(topic, "0").error = StoreUnavailable
    assert offsets_of_times(topic, 0) == 0
    assert offsets_of_times(topic, 1) is None


def test_a_position_by_time_that_no_node_can_give_is_the_leaders_error(topic):
    for node in ALL:
        lose(topic, node)
    with pytest.raises(ObjectMissing, match="/cluster"):
        offsets_of_times(topic, 0)


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


def test_the_leader_comes_first_unless_a_node_is_in_the_readers_rack(racks):
    assert order(racks) == ["0", "1", "2", "3"]
    assert order(racks, "east") == ["1", "3", "0", "2"]
    assert order(racks, "west") == ["2", "0", "1", "3"]
    assert order(racks, "nowhere") == ["0", "1", "2", "3"]


def test_the_leader_of_the_rack_comes_first_in_it(racks):
    partition = msgspec.structs.replace(racks.partition(), leader="3")
    state = msgspec.structs.replace(racks.handle.journal.state, partitions=(partition,))
    racks.handle.journal.state = state
    range_ = Range("t", 0, 0, 1)
    assert [each.node for each in split_of(racks.log, racks.handle, range_, "east").nodes] == ["3", "1", "0", "2"]


def test_the_node_of_the_readers_rack_is_the_one_that_is_read(racks):
    split = planned(racks, rack="west")
    assert find_again(racks.log, split, 0) == split
    assert read(racks, split) == [b"a"]
    assert reads(racks) == {"2": 1}
    assert offset_for_time(racks.log, racks.handle, 0, 0, "east") == 0
    assert reads(racks) == {"1": 1}


def test_fenced_and_missing_nodes_come_last(racks):
    racks.log.cluster.submit(FenceNode("1"))
    racks.log.missing_nodes = {"0": LogError("gone")}
    assert order(racks, "east") == ["3", "2", "1", "0"]


def test_a_node_that_only_holds_a_file_is_read_too():
    topic = ReplicatedTopic(Stores(Fallible), replicas=[["0", "1"], ["1", "2"]])
    topic.append({0: [b"a"], 1: [b"other"]}, on=ALL, acks="all")
    for node in ("0", "1"):
        lose(topic, node)
    assert topic.partition().replicas == ("0", "1")
    assert read(topic, planned(topic)) == [b"a"]


def test_only_holders_are_asked_for_a_file():
    topic = ReplicatedTopic(Stores(Fallible))
    topic.append({0: [b"a"]}, on=ALL, acks="all")
    topic.append({0: [b"b"]}, on=["0", "2"], acks="all")
    topic.append({0: [b"c"]}, on=["0"])
    split = planned(topic, 0, 3)
    names = {key: [each.node for each in split.holders(key)] for key in split.files.values()}
    assert list(names.values()) == [["0", "1", "2"], ["0", "2"], ["0"]]
    lose(topic, "0")
    assert read(topic, planned(topic, 0, 2)) == [b"a", b"b"]
    assert "1" in reads(topic)


def test_a_former_incarnation_holds_nothing(topic):
    state = topic.handle.journal.state
    topic.handle.journal.state = msgspec.structs.replace(state, incarnations={**state.incarnations, "1": "former"})
    split = split_of(topic.log, topic.handle, Range("t", 0, 0, BATCHES))
    assert [each.node for each in split.nodes] == ["0", "2"]


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


def test_a_query_continues_if_the_leaders_copy_is_damaged(disks, caplog):
    (file,) = disks.glob("0/topics/t/*/append/*")
    flip_bit(file, 8 * 100)
    assert [row["value"] for row in direct.read(disks / "0", subscribe="t")] == [b"a", b"b"]
    assert "cannot be read from node '0'" in caplog.text


def test_a_query_reads_in_its_own_rack(disks):
    for number in (0, 1):
        for file in disks.glob(f"{number}/topics/t/*/append/*"):
            file.unlink()
    reader = direct.source(disks / "0", subscribe="t", **{"kafka.client.rack": "east"})
    made = reader.reader(reader.schema())
    (partition,) = pickle.loads(pickle.dumps(made.partitions()))
    assert partition.split.nodes[0].url == str(disks / "2")
    assert [value for batch in made.read(partition) for value in batch.column("value").to_pylist()] == [b"a", b"b"]


def test_a_streaming_query_reads_in_its_own_rack(disks):
    stream = direct.Stream(disks / "0", subscribe="t", startingOffsets="earliest", **{"client.rack": "east"})
    (partition,) = stream.reader.partitions(stream.start, stream.reader.latestOffset(stream.start, stream.limit))
    assert [each.node for each in partition.split.nodes] == ["2", "0", "1"]


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
    observer = failure_detector_of(handle, session_timeout_ms=0)
    for _ in range(2):
        observer.look(handle)
    partition = handle.refresh().partitions[0]
    assert (partition.leader, partition.isr, partition.high_watermark) == (None, ("1",), 3)
    return observer, handle


def test_a_leaderless_partition_is_read_from_the_nodes_that_answer(disks, leaderless):
    until = {"endingOffsets": '{"u": {"0": 2}}'}
    assert [row["value"] for row in direct.read(disks / "0", subscribe="u", **until)] == [b"a", b"b"]
    stream = direct.Stream(disks / "0", subscribe="u", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert [row["value"] for row in stream.batch()] == [b"a", b"b"]
    with pytest.raises(LogError, match=f"{disks}/1"):
        stream.batch()
    observer, handle = leaderless
    (disks / "1.away").rename(disks / "1")
    observer.look(handle)
    assert handle.refresh().partitions[0].leader == "1"
    assert [row["value"] for row in stream.batch()] == [b"c"]


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_were_read_and_then_cut_are_a_loss_even_if_others_took_their_offsets(disks, leaderless, fails):
    (disks / "1.away").rename(disks / "1")
    fail = {"failOnDataLoss": str(fails).lower()}
    stream = direct.Stream(disks / "0", subscribe="u", startingOffsets="earliest", **fail)
    assert [row["value"] for row in stream.batch()] == [b"a", b"b", b"c"]
    (disks / "1").rename(disks / "1.away")
    observer, handle = leaderless
    observer.look(handle)
    handle.submit(ElectLeaders(live(handle), observer.gone, unclean=True))
    PlainLog(disks / "0").append("u", {0: [b"d", b"e"]})
    assert handle.refresh().partitions[0].high_watermark == 4
    if fails:
        with pytest.raises(DataLoss, match="offset 3 of epoch 1 was truncated, that epoch ends at 2"):
            stream.batch()
    else:
        assert [(row["offset"], row["value"]) for row in stream.batch()] == [(2, b"d"), (3, b"e")]


# One node


def test_with_one_node_nothing_costs_more():
    one = CountingStore()
    log = PlainLog(store=one)
    log.create("t")
    for number in range(20):
        log.append("t", {0: [b"%d" % number]})
    handle, threads = log.log.topic("t"), threading.active_count()
    one.forget()
    split = split_of(log.log, handle, Range("t", 0, 0, 20))
    assert one.reads == 0
    assert ([each.url for each in split.nodes], split.partial_holders) == (["."], {})
    rows = [value for _, batch in fetch(log.log.store_at, split) for value in batch.column("value").to_pylist()]
    assert rows == [b"%d" % number for number in range(20)]
    assert one.reads == len(split.chunks) == 20
    assert threading.active_count() <= threads


def test_a_single_copy_is_read_without_a_thread_or_a_time_limit():
    topic = ReplicatedTopic(Stores(Fallible), replicas=[["1"]])
    topic.append({0: [b"a"]}, on=["1"])
    threads = threading.active_count()
    assert read(topic, planned(topic)) == [b"a"]
    assert reads(topic) == {"1": 1}
    assert threading.active_count() <= threads
    store(topic, "1").error = StoreUnavailable
    with pytest.raises(StoreUnavailable):
        read(topic, planned(topic), again=pytest.fail)
