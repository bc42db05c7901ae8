"""The controller notices failed nodes in time, and preferred leaders that are back lead again."""

import itertools

import pytest

from pyspark_log_coordinator.sync import catch_up, controller, operator_elections
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_storage.errors import StoreRefused, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores


class Watched(ReplicatedTopic):
    """A topic that node 1 leads, with all rows on all nodes, and a controller."""

    def __init__(self, replicas=(("1", "2", "0"),), config=None, **settings):
        super().__init__(Stores(BreakableStore), replicas=replicas, **config or {})
        self.append(on=ALL, acks="all")
        self.controller = Controller(self.log, ControllerSettings(**settings))
        self.failures = []
        self.round()

    def round(self, seconds=0.0):
        self.log.environment.sleep(seconds)
        elected = self.controller.round(lambda name, error: self.failures.append((name, error.message)))
        return [(name, each.partition, each.leader) for name, each in elected]

    def take_away(self, node):
        self.stores.at[f"/disk/{node}"].broken = StoreUnavailable
        self.log.probe_nodes()

    def answer_again(self, node):
        self.stores.at[f"/disk/{node}"].broken = None
        self.log.probe_nodes()

    def bring_back(self, node):
        self.answer_again(node)
        catch_up.catch_up(self.handle, node)


def test_an_unreachable_leader_is_replaced_after_the_session_timeout():
    topic = Watched()
    topic.take_away("1")
    topic.round(controller.SUSPICION_SECONDS)
    assert topic.partition().leader == "1"
    assert topic.round(8.9) == []
    assert topic.partition().leader == "1"
    assert topic.round(controller.SUSPICION_SECONDS) == [("t", 0, "2")]
    assert (topic.partition().leader, topic.partition().isr) == ("2", ("2", "0"))
    assert topic.failures == []


@pytest.mark.parametrize("is_noticed", [True, False], ids=["at the marker", "at its files"])
def test_a_leader_that_this_process_may_not_use_is_well_as_far_as_it_knows(is_noticed, monkeypatch):
    topic = Watched()
    topic.append(on=("1",), acks="1")
    topic.stores.at["/disk/1"].broken = StoreRefused
    if not is_noticed:
        monkeypatch.setattr(topic.log, "probe", lambda _: {})
    for _ in range(10):
        assert topic.round(controller.SUSPICION_SECONDS) == []
    state = topic.handle.refresh()
    assert (state.suspects, topic.partition().leader, topic.partition().isr) == ({}, "1", ("1", "2", "0"))
    assert topic.failures == []
    assert {each.node for each in live(topic.handle)} == {"0", "2"}


def test_the_controller_looks_every_half_of_the_lag_time_while_all_is_well(monkeypatch):
    topic = Watched(auto_leader_rebalance_enable=False)
    looks = []
    monkeypatch.setattr(topic.controller, "_look", lambda _: looks.append(topic.log.environment.monotonic()) or [])
    for _ in range(31):
        topic.round(1.0)
    assert looks == [15.0, 30.0]
    topic.take_away("2")
    looks.clear()
    for _ in range(5):
        topic.round(1.0)
    assert looks == [32.0, 34.0, 36.0]


@pytest.mark.parametrize(("first", "others"), [(0.7, 0.7), (5.0, 0.0), (0.0, 5.0)])
def test_an_operators_election_knows_the_unreachable_node_if_looks_take_a_while(first, others, monkeypatch):
    topic = Watched()
    topic.take_away("1")
    probe, sleep = topic.log.probe, topic.log.environment.sleep
    seconds = itertools.chain([first], itertools.repeat(others))
    monkeypatch.setattr(topic.log, "probe", lambda members: sleep(next(seconds)) or probe(members))
    assert [*operator_elections.find_unreachable(topic.handle, 3000)] == ["1"]


def test_an_unreachable_follower_that_lacks_rows_leaves_the_isr_after_the_session_timeout():
    topic = Watched()
    topic.take_away("2")
    topic.round(15.0)
    topic.append(on=("1", "0"))
    topic.round(8.9)
    assert topic.partition().isr == ("1", "2", "0")
    topic.round(controller.SUSPICION_SECONDS)
    assert (topic.partition().isr, topic.partition().high_watermark) == (("1", "0"), 2)


@pytest.mark.parametrize(("lag_time", "behind_since"), [(4, 1), (30, 0), (30, 7)])
def test_a_reachable_follower_that_lags_leaves_the_isr_exactly_when_its_time_is_over(lag_time, behind_since):
    topic = Watched(config={"replica_lag_time_max_ms": str(1000 * lag_time)})
    for _ in range(behind_since):
        topic.round(1.0)
    topic.append(on=("1", "0"))
    waited = 0
    while topic.partition().isr == ("1", "2", "0"):
        topic.round(1.0)  # `node run` asks every second
        waited += 1
    assert lag_time < waited <= 1.5 * lag_time + 1
    assert topic.partition().high_watermark == 2
    assert topic.handle.journal.state.suspects == {}
    catch_up.catch_up(topic.handle, "2")
    assert topic.partition().isr == ("1", "2", "0")


# A node that comes back


@pytest.mark.parametrize("misses_rows", [True, False])
def test_a_node_that_is_back_within_the_session_timeout_stays_in_the_isr(misses_rows):
    topic = Watched()
    topic.take_away("2")
    topic.round(15.0)
    if misses_rows:
        topic.append(on=("1", "0"))
    topic.round(5.0)
    assert topic.handle.journal.state.suspects == {"2": 1}
    topic.answer_again("2")
    topic.round(2.0)
    assert topic.handle.journal.state.suspects == {}
    for _ in range(10):
        topic.round(2.0)
    assert topic.partition().isr == ("1", "2", "0")


@pytest.mark.parametrize("enabled", [True, False])
def test_a_preferred_leader_that_is_back_leads_again_after_the_interval_unless_that_is_switched_off(enabled):
    topic = Watched(session_timeout_ms=100, auto_leader_rebalance_enable=enabled)
    topic.take_away("1")
    for _ in range(2):
        topic.round(controller.SUSPICION_SECONDS)
    assert topic.partition().leader == "2"
    topic.append(on=("0", "2"), acks="all")
    assert topic.round(300.0) == []
    topic.bring_back("1")
    assert topic.round(299.0) == []
    assert topic.round(1.0) == ([("t", 0, "1")] if enabled else [])
    assert (topic.partition().leader, topic.partition().isr) == ("1" if enabled else "2", ("1", "2", "0"))


def test_a_topic_that_fails_is_reported_and_the_others_go_on(monkeypatch):
    topic = Watched()
    topic.log.create_topic("a", 1, replicas=[["0", "2"]])
    real = topic.log.topic

    def failing(name, **given):
        if name == "a":
            raise StoreUnavailable("/cluster", name, "the test made this up")
        return real(name, **given)

    monkeypatch.setattr(topic.log, "topic", failing)
    topic.take_away("1")
    topic.round(controller.SUSPICION_SECONDS)
    assert topic.failures == [("a", "the test made this up")]
    assert topic.partition().leader == "1"
    assert topic.handle.journal.state.suspects == {"1": 1}


def test_on_one_node_nothing_is_read():
    stores = Stores(BreakableStore)
    log = stores.log()
    log.create_topic("t", 1)
    each = Controller(log)
    stores.at["/cluster"].broken = StoreUnavailable
    assert each.round(pytest.fail) == []
