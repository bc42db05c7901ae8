"""A rebuild that is killed at any point can be repeated, and loses nothing."""

import itertools

import pytest

from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage.errors import NoCluster, NodeMissing, OutcomeUnknown
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.lost_cluster import read
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.countdown import Countdown
from tests.support.faulty_store import Killed

URLS = ("/cluster", "/disk/1", "/disk/2")


@pytest.fixture
def lost():
    """The stores of three nodes without the cluster's journal. The topic's journal is newer than its description."""
    topic = ReplicatedTopic(Stores(), retention_ms="-1")
    for _ in range(3):
        topic.append(on=("0", "1", "2"), acks="all")
    topic.roll(2)
    topic.append(on=("0", "1"), acks="all")
    descriptions.write_on_nodes(topic.handle)
    topic.append(on=("1",), acks="all")
    topic.append(on=("0", "1"), acks="0")
    for store in topic.stores.at.values():
        for key in list(store.list("cluster/")):
            store.delete(key)
    return topic.stores


def clone(stores):
    """Return a copy whose processes can be killed, and what does that."""
    countdown = Countdown()
    copied = Stores(countdown.store)
    for url, store in stores.at.items():
        for key in store.list(""):
            copied.open(url).put(key, store.read(key))
    countdown.made = 0
    return copied, countdown


def rebuild(stores, urls=URLS):
    environment = fake_environment()
    found = survey([stores.open(url) for url in urls], environment, open_node=stores.open)
    execute.rebuild(found, environment, journals_are_lost=True)


def opened(stores):
    log = Log(stores.open("/cluster"), fake_environment(), open_node=stores.open)
    log.open(create=False)
    return log


def is_there(stores):
    try:
        opened(stores)
    except NoCluster:
        return False
    return True


def test_a_rebuild_that_was_killed_can_be_repeated(lost):
    expected = None
    stores, countdown = clone(lost)
    rebuild(stores)
    changes = countdown.made
    repeated = 0
    for after in range(changes + 1):
        stores, countdown = clone(lost)
        countdown.left = after
        try:
            rebuild(stores)
        except Killed:
            countdown.left = None
            if not is_there(stores):
                rebuild(stores)
                repeated += 1
        countdown.left = None
        found = read(opened(stores), "t")
        expected = found if expected is None else expected
        assert found == expected, f"killed after {after} changes"
    assert expected == [b"row of batch %d" % number for number in range(6)]
    assert repeated > 8, "before the last step there is no cluster"


def test_a_rebuild_that_was_killed_loses_nothing_that_more_nodes_have(lost):
    """Without node 1 the log ends after four rows. The killed one may have begun the topic's journal so."""
    for after in itertools.count(1):
        stores, countdown = clone(lost)
        countdown.left = after
        try:
            rebuild(stores, ("/cluster", "/disk/2"))
        except Killed:
            countdown.left = None
            if is_there(stores):
                break
            rebuild(stores)
            assert len(read(opened(stores), "t")) == 6, f"killed after {after} changes"
        else:
            countdown.left = None
            assert len(read(opened(stores), "t")) == 4
            break
    assert after > 6


def test_of_two_rebuilds_at_once_one_fails(lost, monkeypatch):
    environment = fake_environment()
    found = survey([lost.open(url) for url in URLS], environment, open_node=lost.open)
    renew = execute._Rebuild.renew

    def renew_while_another_rebuilds(self):
        renew(self)
        monkeypatch.setattr(execute._Rebuild, "renew", renew)
        rebuild(lost)

    monkeypatch.setattr(execute._Rebuild, "renew", renew_while_another_rebuilds)
    with pytest.raises((NodeMissing, OutcomeUnknown), match=r"another process|another log"):
        execute.rebuild(found, environment)
    assert len(read(opened(lost), "t")) == 6
