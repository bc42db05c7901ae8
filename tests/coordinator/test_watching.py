"""Watching: nodes that go are found out in time, and leaders that are back lead again."""

import pytest

from pyspark_log_coordinator import copying, membership, moving, watching
from pyspark_log_coordinator.election import ElectPreferred
from pyspark_log_coordinator.observer import live
from pyspark_log_coordinator.watching import Led, Watcher, WatchSettings
from pyspark_log_storage.errors import StoreUnavailable
from tests.coordinator.breakable_store import BreakableStore
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.coordinator.several_nodes import Stores


class Watched(ReplicatedTopic):
    """A topic that node 1 leads, of which all rows are on all nodes, and a process that watches."""

    def __init__(self, replicas=(("1", "2", "0"),), **settings):
        super().__init__(Stores(BreakableStore), replicas=replicas)
        self.append(on=ALL, acks="all")
        self.watcher = Watcher(self.log, WatchSettings(**settings))
        self.failures = []
        self.watch()

    def watch(self, seconds=0.0):
        self.log.environment.sleep(seconds)
        return self.watcher.watch(lambda name, error: self.failures.append((name, error.message)))

    def take_away(self, node):
        self.stores.at[f"/disk/{node}"].broken = StoreUnavailable
        self.log.call_roll()

    def bring_back(self, node):
        self.stores.at[f"/disk/{node}"].broken = None
        self.log.call_roll()
        copying.catch_up(self.log, self.handle, node)


def test_a_leader_that_stays_away_is_replaced_after_the_session_timeout():
    topic = Watched()
    topic.take_away("1")
    topic.watch(watching.SUSPICION_SECONDS)
    assert topic.partition().leader == "1"
    topic.watch(8.9)
    assert topic.partition().leader == "1"
    topic.watch(watching.SUSPICION_SECONDS)
    assert (topic.partition().leader, topic.partition().isr) == ("2", ("2", "0"))
    assert topic.failures == []


def test_while_nothing_is_the_matter_it_looks_every_half_of_the_lag_time(monkeypatch):
    topic = Watched(auto_leader_rebalance_enable=False)
    looks = []
    monkeypatch.setattr(topic.watcher, "_look", lambda _: looks.append(topic.log.environment.monotonic()))
    for _ in range(31):
        topic.watch(1.0)
    assert looks == [15.0, 30.0]
    topic.take_away("2")
    looks.clear()
    for _ in range(5):
        topic.watch(1.0)
    assert looks == [32.0, 34.0, 36.0]


def test_a_follower_that_stays_away_and_misses_rows_is_out_of_the_isr_after_the_session_timeout():
    topic = Watched()
    topic.take_away("2")
    topic.watch(15.0)
    topic.append(on=("1", "0"))
    topic.watch(8.9)
    assert topic.partition().isr == ("1", "2", "0")
    topic.watch(watching.SUSPICION_SECONDS)
    assert (topic.partition().isr, topic.partition().high_watermark) == (("1", "0"), 2)


def test_a_follower_that_answers_and_gets_no_rows_is_out_of_the_isr_after_the_lag_time():
    topic = Watched(replica_lag_time_max_ms=20_000)
    topic.watch(10.0)
    topic.append(on=("1", "0"))
    for _ in range(2):
        topic.watch(10.0)
    assert (topic.partition().isr, topic.partition().high_watermark) == (("1", "2", "0"), 1)
    topic.watch(10.0)  # caught up was last seen 30 s ago
    assert (topic.partition().isr, topic.partition().high_watermark) == (("1", "0"), 2)
    assert topic.handle.journal.state.suspects == {}
    copying.catch_up(topic.log, topic.handle, "2")
    assert topic.partition().isr == ("1", "2", "0")


def test_followers_that_fall_behind_one_after_another_leave_the_isrs_in_one_entry():
    topic = Watched(replicas=[("1", "2", "0")] * 4, replica_lag_time_max_ms=1_000)

    def fall_behind(partition):
        topic.append({partition: [b"row"]}, on=("1", "0"))
        return topic.handle.journal.number

    def isr_sizes():
        return [len(topic.partition(number).isr) for number in range(4)]

    fall_behind(0)
    for _ in range(4):
        topic.watch(0.5)
    assert isr_sizes() == [2, 3, 3, 3]  # the first for long is published at once
    for partition in (1, 2):
        before = fall_behind(partition)
        for _ in range(4):
            topic.watch(0.5)
        topic.handle.refresh()
        assert topic.handle.journal.number == before
    for _ in range(9):
        topic.watch(0.5)
    assert isr_sizes() == [2, 3, 3, 3]
    for _ in range(2):
        topic.watch(0.5)
    assert isr_sizes() == [2, 2, 2, 3]
    assert topic.handle.journal.number == before + 1


def test_a_change_that_waits_is_looked_after_soon():
    topic = Watched(replicas=[("1", "2", "0")] * 2, auto_leader_rebalance_enable=False)
    for partition in (0, 1):
        topic.append({partition: [b"row"]}, on=("1", "0"))
        for _ in range(3):
            topic.watch(15.0)
    assert [len(topic.partition(number).isr) for number in (0, 1)] == [2, 3]
    for _ in range(3):
        topic.watch(2.5)
    assert [len(topic.partition(number).isr) for number in (0, 1)] == [2, 2]


def test_a_preferred_leader_that_is_back_leads_again_after_the_interval():
    topic = Watched(session_timeout_ms=100)
    topic.take_away("1")
    for _ in range(2):
        topic.watch(watching.SUSPICION_SECONDS)
    assert topic.partition().leader == "2"
    topic.append(on=("0", "2"), acks="all")
    assert topic.watch(300.0) == ()
    topic.bring_back("1")
    assert topic.watch(299.0) == ()
    assert topic.watch(1.0) == (Led("t", 0, "1"),)
    assert (topic.partition().leader, topic.partition().isr) == ("1", ("1", "2", "0"))


def test_the_lead_is_not_given_back_where_that_is_switched_off():
    topic = Watched(session_timeout_ms=100, auto_leader_rebalance_enable=False)
    topic.take_away("1")
    for _ in range(2):
        topic.watch(watching.SUSPICION_SECONDS)
    topic.bring_back("1")
    assert topic.watch(1_000.0) == ()
    assert topic.partition().leader == "2"


def test_a_topic_that_cannot_be_watched_is_told_and_the_others_are_watched(monkeypatch):
    topic = Watched()
    topic.log.create_topic("a", 1, replicas=[["0", "2"]])
    real = topic.log.topic

    def failing(name):
        if name == "a":
            raise StoreUnavailable("/cluster", name, "the test made this up")
        return real(name)

    monkeypatch.setattr(topic.log, "topic", failing)
    topic.take_away("1")
    topic.watch(watching.SUSPICION_SECONDS)
    assert topic.failures == [("a", "the test made this up")]
    assert topic.partition().leader == "1"
    assert topic.handle.journal.state.suspects == {"1": 1}


def test_on_one_node_nothing_is_read():
    stores = Stores(BreakableStore)
    log = stores.log()
    log.create_topic("t", 1)
    watcher = Watcher(log)
    stores.at["/cluster"].broken = StoreUnavailable
    assert watcher.watch(pytest.fail) == ()


def test_a_node_that_was_drained_and_removed_is_not_asked_whether_it_may_lead():
    topic = Watched()
    moving.begin(topic.log, topic.handle, (("2", "0"),))
    moving.carry_out(topic.log, topic.handle)
    membership.set_fenced(topic.log, "1", fenced=True)
    assert membership.remove(topic.log, "1")
    assert {holder.node for holder in live(topic.handle)} == {"0", "2"}
    assert topic.handle.submit(ElectPreferred(live(topic.handle))).events == []
