"""A rebuild that is killed at any point can be repeated, and loses nothing."""

import pytest

from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import checkpoint_files
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage.errors import NoCluster, NodeMissing
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.lost_cluster import read
from tests.coordinator.replicated_topic import ReplicatedTopic
from tests.coordinator.several_nodes import Stores
from tests.memory_store import MemoryStore

URLS = ("/cluster", "/disk/1", "/disk/2")


class Killed(BaseException):
    """The process was killed."""


class Countdown:
    """How many more changes the process makes; None for any number."""

    left = None
    made = 0


class MortalStore(MemoryStore):
    """A store that kills its process at a change."""

    countdown = Countdown()

    def _change(self):
        self.countdown.made += 1
        if self.countdown.left is not None:
            if self.countdown.left == 0:
                raise Killed
            self.countdown.left -= 1

    def create(self, key, data):
        self._change()
        return super().create(key, data)

    def put(self, key, data):
        self._change()
        super().put(key, data)

    def delete(self, key):
        self._change()
        super().delete(key)

    def open_write(self, key, *, durable=True, replace=False):
        self._change()
        return super().open_write(key, durable=durable, replace=replace)


@pytest.fixture
def lost():
    """The stores of three nodes without the cluster's journal. The topic's journal is newer than its description."""
    MortalStore.countdown = Countdown()
    topic = ReplicatedTopic(Stores(MortalStore), retention_ms="-1")
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
    MortalStore.countdown = Countdown()
    copied = Stores(MortalStore)
    for url, store in stores.at.items():
        for key in store.list(""):
            copied.open(url).put(key, store.read(key))
    MortalStore.countdown = Countdown()
    return copied


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
    rebuild(clone(lost))
    changes = MortalStore.countdown.made
    assert changes > 30
    for after in range(changes + 1):
        stores = clone(lost)
        MortalStore.countdown.left = after
        try:
            rebuild(stores)
        except Killed:
            MortalStore.countdown.left = None
            with pytest.raises(NoCluster):
                opened(stores)
            rebuild(stores)
        MortalStore.countdown.left = None
        found = read(opened(stores), "t")
        expected = found if expected is None else expected
        assert found == expected, f"killed after {after} changes"
    assert expected == [b"row of batch %d" % number for number in range(6)]


def test_before_its_last_step_a_killed_rebuild_leaves_no_cluster(lost):
    """It was given only a node that had been missing, and began the topic's journal with its rows."""
    rebuild(clone(lost), URLS[2:])
    changes = MortalStore.countdown.made
    stores = clone(lost)
    MortalStore.countdown.left = changes - 1
    with pytest.raises(Killed):
        rebuild(stores, URLS[2:])
    MortalStore.countdown.left = None
    rebuild(stores)
    assert len(read(opened(stores), "t")) == 6


def test_of_two_rebuilds_at_once_one_fails(lost):
    environment = fake_environment()
    found = survey([lost.open(url) for url in URLS], environment, open_node=lost.open)

    def meanwhile(what):
        if what == "beginning the cluster's journal":
            rebuild(lost)

    with pytest.raises(NodeMissing, match="another process rebuilds this cluster too"):
        execute.rebuild(found, environment, progress=meanwhile)
    assert len(read(opened(lost), "t")) == 6
