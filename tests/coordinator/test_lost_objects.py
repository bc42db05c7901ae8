"""One stored object is lost, cut or flipped: readers and writers get right rows or an error.

Every object of a small log is damaged in turn, whatever it is. Processes that were there go on, and others begin. What
they acknowledge is there at the end: at once, or when the object is back.
"""

import itertools

import msgspec
import pytest

from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import LogError
from tests.processes.small_topic import SNAPSHOT_EVERY, TopicClient, error_of, make_constants_small, rows_of_all, seeded
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.elsewhere import PlainStore
from tests.support.rings import deep

ROOT = ("/root",)
THREE = ("/disk/a", "/disk/b", "/disk/c")
PRODUCER = "p"
BATCHES = 14

Contents = dict[str, dict[str, bytes]]
"""The stored objects by address."""


class Cluster:
    """The stores of a cluster in memory, and the processes that use them."""

    def __init__(self, contents: Contents) -> None:
        self.stores = {url: PlainStore(url) for url in contents}
        for url, objects in contents.items():
            for key, data in objects.items():
                self.stores[url].put(key, data)
        self._lives = itertools.count(1)

    def begin(self) -> TopicClient:
        """Return a new process, which asks several stores in an order that chance chooses. Raises `LogError`."""
        life = next(self._lives)
        log = Log(
            list(self.stores.values()),
            msgspec.structs.replace(seeded(life * 10**6), store_threads=lambda _: ShuffledThreads(life)),
            open_node=self.stores.__getitem__,
            probe=one_after_another,
        )
        return TopicClient(log)

    def contents(self) -> Contents:
        return {url: {key: store.read(key) for key in store.list("")} for url, store in self.stores.items()}


def filled(urls: tuple[str, ...]) -> Contents:
    """Return the objects of a small log in which everything has happened once, with unrolled rows."""
    cluster = Cluster({url: {} for url in urls})
    if len(urls) > 1:
        bootstrap.mark(list(cluster.stores.values()), seeded(1))
    client = cluster.begin()
    client.create()
    client.log.create_topic("other", 1)
    client.log.delete_topic("other")
    client.fill(PRODUCER, range(BATCHES - 3))
    client.maintain()
    client.clean_up_topic()
    client.clean_up_cluster()
    client.fill(PRODUCER, range(BATCHES - 3, BATCHES))
    # No snapshot has the newest entries.
    for number in itertools.count():
        if client.log.cluster.number % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
            break
        client.log.create_topic(f"empty-{number}", 1)
    while client.handle.journal.number % SNAPSHOT_EVERY != SNAPSHOT_EVERY - 1:
        client.fill(PRODUCER, [client.batches(PRODUCER)])
    return cluster.contents()


def lost(data: bytes) -> bytes | None:
    return None


def cut(data: bytes) -> bytes | None:
    return data[: len(data) * 2 // 3]


def flipped(data: bytes) -> bytes | None:
    damaged = bytearray(data)
    damaged[len(data) * 2 // 3] ^= 4
    return bytes(damaged)


DAMAGE = (lost, cut, flipped)


class Story:
    """A damaged object, and the processes that meet it."""

    def __init__(self, contents: Contents, url: str, key: str, data: bytes | None) -> None:
        """`data` is what the object has become: None if it is lost."""
        self.cluster = Cluster(contents)
        self.warm = self.cluster.begin()
        self.warm.handle  # noqa: B018 -- which reads the topic's journal
        self._store, self._key, self._data, self._before = self.cluster.stores[url], key, data, contents[url][key]
        self.acknowledged = self.warm.batches(PRODUCER)
        self.errors: list[LogError] = []
        if data is None:
            self._store.delete(key)
        else:
            self._store.put(key, data)

    def go_on(self) -> None:
        """Let a warm and a new process read, write and maintain in turn. Each may fail with an error."""
        for act in (self.read, self.write, self.maintain, self.write, self.read):
            for begin in (lambda: self.warm, self.cluster.begin):
                error = error_of(lambda act=act, begin=begin: act(begin()))
                self.errors += [error] if error is not None else []

    def read(self, client: TopicClient) -> None:
        """Compare what a reader gets with the acknowledged batches; the next batch may be there, too."""
        state = client.handle.journal.state
        assert state.producers[PRODUCER].batch_id + 1 in {self.acknowledged, self.acknowledged + 1}
        expected = rows_of_all(PRODUCER, state.producers[PRODUCER].batch_id + 1)
        for partition, values in expected.items():
            begin, found = client.read(partition)
            assert found == values[begin:]
            assert found

    def write(self, client: TopicClient) -> None:
        client.write(PRODUCER, self.acknowledged)
        self.acknowledged += 1

    def maintain(self, client: TopicClient) -> None:
        client.maintain()
        client.clean_up_topic()
        client.clean_up_cluster()

    def put_back(self) -> None:
        """Restore the object from a backup, unless a process has changed it."""
        found = self._store.read(self._key) if self._key in set(self._store.list("")) else None
        if found == self._data:
            self._store.put(self._key, self._before)


def hold(contents: Contents, url: str, key: str, damage) -> None:
    """Check that damage to one object loses no row, and that nobody notices where the object has a spare."""
    data = damage(contents[url][key])
    if data == contents[url][key]:
        return
    story = Story(contents, url, key, data)
    try:
        story.go_on()
        if url in ROOT and ("/journal/" in key or key.startswith("cluster/")) and key != "cluster/journal-nodes":
            assert story.errors == []
        story.put_back()
        story.write(story.cluster.begin())
        story.read(story.cluster.begin())
    except BaseException as error:
        error.add_note(f"{url}: {key} was {damage.__name__}; errors until then: {story.errors}")
        raise


@pytest.mark.slow
@pytest.mark.parametrize("every", [12, deep(3)])
@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_object_on_one_root_loses_no_row(damage, every, monkeypatch):
    make_constants_small(monkeypatch.setattr)
    contents = filled(ROOT)
    for key in sorted(contents["/root"])[::every]:
        hold(contents, "/root", key, damage)


@pytest.mark.slow
@pytest.mark.parametrize("every", [30, deep(6)])
@pytest.mark.parametrize("number", range(len(THREE)))
def test_one_damaged_object_on_one_of_three_nodes_loses_no_row(number, every, monkeypatch):
    """An object on all three nodes is lost on one, cut on the next and flipped on the third, each in its own log."""
    make_constants_small(monkeypatch.setattr)
    contents = filled(THREE)
    for each, key in list(enumerate(sorted(contents[THREE[number]])))[::every]:
        hold(contents, THREE[number], key, DAMAGE[(number + each) % len(DAMAGE)])
