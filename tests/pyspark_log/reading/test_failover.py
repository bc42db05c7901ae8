"""A reader whose nodes fail or hang continues with the next node, and every row comes once."""

import gc
import logging
import os
import threading
import time
import weakref

import msgspec
import pytest

from pyspark_log.reading import failover
from pyspark_log.reading.failover import lane_of
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.topic.machine import Holder, Suspect, Suspicion
from pyspark_log_storage.errors import CorruptObject, DataLoss, NoCluster, StoreRefused, StoreUnavailable
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.counting_store import CountingStore
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
    rolled,
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
    monkeypatch.setattr(time, "monotonic", lambda: began() + failover.AVOID_SECONDS)
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


@pytest.mark.parametrize(
    "away",
    [
        StoreUnavailable("/cluster", "journal", "the journal does not answer"),
        NoCluster("an executor does not see the journal"),
        CorruptObject("the journal", "both copies of an entry are damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_if_no_node_and_no_journal_answers_the_error_names_the_rows(topic, away):
    split = planned(topic)
    for node in ALL:
        damage(topic, node, file_key(topic, 0))

    def no_journal(offset):
        raise away

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


@pytest.mark.parametrize("are_replaced", [False, True])
def test_rows_that_an_unclean_election_cuts_during_the_read_are_a_loss(topic, are_replaced):
    topic.append(on=("0", "2"), acks="all")
    split = planned(topic)
    for node in ("0", "2"):
        topic.handle.submit(Suspect(node, topic.handle.journal.state.incarnations[node]))
    gone = tuple(Suspicion(*each) for each in topic.handle.journal.state.suspects.items())
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


@pytest.mark.no_faults("counts the reads of each node")
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


# One node


def test_with_one_node_nothing_costs_more():
    one = CountingStore()
    log = PlainLog(store=one)
    log.create("t")
    for number in range(20):
        log.append("t", {0: [b"%d" % number]})
    handle, threads = log.log.topic("t"), threading.active_count()
    one.forget()
    split = split_of(handle, Range("t", 0, 0, 20))
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
