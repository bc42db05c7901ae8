"""A rebuild that is killed at any point can be repeated, and loses nothing."""

import pytest

from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import checkpoint_files
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage.errors import NoCluster, NodeMissing
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
    checkpoint_files.write_on_nodes(topic.handle)
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


def test_a_rebuild_that_was_killed_can_be_repeated(lost):
    expected = None
    stores, countdown = clone(lost)
    rebuild(stores)
    changes = countdown.made
    assert changes > 20
    for after in range(changes + 1):
        stores, countdown = clone(lost)
        countdown.left = after
        try:
            rebuild(stores)
        except Killed:
            countdown.left = None
            with pytest.raises(NoCluster):
                opened(stores)
            rebuild(stores)
        countdown.left = None
        found = read(opened(stores), "t")
        expected = found if expected is None else expected
        assert found == expected, f"killed after {after} changes"
    assert expected == [b"row of batch %d" % number for number in range(6)]


def test_of_two_rebuilds_at_once_one_fails(lost):
    environment = fake_environment()
    found = survey([lost.open(url) for url in URLS], environment, open_node=lost.open)

    def meanwhile(what):
        if what == "beginning the cluster's journal":
            rebuild(lost)

    with pytest.raises(NodeMissing, match="another process rebuilds this cluster too"):
        execute.rebuild(found, environment, progress=meanwhile)
    assert len(read(opened(lost), "t")) == 6
