"""One stored object is lost, cut, flipped or put in the wrong place: readers and writers get right rows or an error.

Every object of a small log is damaged in turn, whatever it is, or copied to its neighbour's name, or the two are
swapped. Processes that were there go on, and others begin. What they acknowledge is there at the end: at once, or when
the object is back.
"""

import itertools
import logging
import random
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from unittest import mock

import msgspec
import pytest

from pyspark_log_coordinator.audit import repair, verify
from pyspark_log_coordinator.journal import registers, spare_repair
from pyspark_log_coordinator.journal.trimming import oldest_kept
from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import LogError
from tests.processes.small_topic import SNAPSHOT_EVERY, TopicClient, error_of, make_constants_small, rows_of_all, seeded
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.elsewhere import PlainStore

ROOT = ("/root",)
THREE = ("/disk/a", "/disk/b", "/disk/c")
PRODUCER = "p"
BATCHES = 14
MISPLACED_MIN = 300
DISPLACED = 10
AUDITED = 15
"""How many of the misplaced objects the suite tries. All of them take some five minutes:

    python -m tests.coordinator.test_lost_objects
"""

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


def filled(urls: tuple[str, ...], earlier: list[Contents] | None = None) -> Contents:
    """Return the objects of a small log in which everything has happened once, with unrolled rows.

    Those of an earlier time are added to `earlier`.
    """
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
    if earlier is not None:
        earlier.append(cluster.contents())
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


def neighbours(objects: dict[str, bytes], key: str) -> list[str]:
    """Return the names beside that of an object: the next in its folder, and of what is numbered the next number."""
    folder = key.rpartition("/")[0]
    later = [each for each in sorted(objects) if each > key and each.rpartition("/")[0] == folder][:1]
    found = re.search(r"(?<=/)[0-9]{20}(?=[^/]*$)", key)
    if found is not None:
        for number in (int(found[0]) - 1, int(found[0]) + 1):
            later.append(f"{key[: found.start()]}{number:020d}{key[found.end() :]}")
    return sorted({*later} - {key})


def copies(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    """Yield what a write that went astray leaves behind: the object under another name."""
    for other in neighbours(objects, key):
        if objects.get(other) != objects[key]:
            yield {other: objects[key]}


def swaps(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for other in neighbours(objects, key):
        if other in objects and objects[other] != objects[key]:
            yield {other: objects[key], key: objects[other]}


class Story:
    """A damaged object, and the processes that meet it."""

    def __init__(self, contents: Contents, url: str, changes: Mapping[str, bytes | None]) -> None:
        """`changes` are the objects that are damaged, with what they have become: None if they are lost."""
        self.cluster = Cluster(contents)
        self.warm = self.cluster.begin()
        self.warm.handle  # noqa: B018 -- which reads the topic's journal
        self._store, self._changes = self.cluster.stores[url], changes
        self._before = {key: contents[url].get(key) for key in changes}
        self.acknowledged = self.warm.batches(PRODUCER)
        self.errors: list[LogError] = []
        for key, data in changes.items():
            self._set(key, data)

    def _set(self, key: str, data: bytes | None) -> None:
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
        """Restore what was there, or was not, from a backup, unless a process has changed it."""
        there = set(self._store.list(""))
        for key, data in self._changes.items():
            if (self._store.read(key) if key in there else None) == data:
                self._set(key, self._before[key])


def hold(contents: Contents, url: str, key: str, damage) -> None:
    """Check that damage to one object loses no row."""
    if damage(contents[url][key]) != contents[url][key]:
        hold_changes(contents, url, {key: damage(contents[url][key])}, f"{key} was {damage.__name__}")


def hold_changes(contents: Contents, url: str, changes: Mapping[str, bytes | None], what: str) -> list[LogError]:
    """Check that changes of objects on one store lose no row; return the errors that processes met."""
    story = Story(contents, url, changes)
    try:
        story.go_on()
        story.put_back()
        story.write(story.cluster.begin())
        story.read(story.cluster.begin())
    except BaseException as error:
        error.add_note(f"{url}: {what}; errors until then: {story.errors}")
        raise
    return story.errors


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_object_on_one_root_loses_no_row(damage, monkeypatch):
    make_constants_small(monkeypatch.setattr)
    contents = filled(ROOT)
    for key in contents["/root"]:
        hold(contents, "/root", key, damage)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(THREE)))
def test_one_damaged_object_on_one_of_three_nodes_loses_no_row(number, monkeypatch):
    """An object on all three nodes is lost on one, cut on the next and flipped on the third, each in its own log."""
    make_constants_small(monkeypatch.setattr)
    contents = filled(THREE)
    for each, key in enumerate(sorted(contents[THREE[number]])):
        hold(contents, THREE[number], key, DAMAGE[(number + each) % len(DAMAGE)])


@pytest.mark.parametrize("folder", ["cluster/", "/journal/"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_no_object_of_a_journal_on_one_root_is_missed(damage, folder, monkeypatch):
    """No error occurs, because each object has a spare."""
    make_constants_small(monkeypatch.setattr)
    contents = filled(ROOT)
    for key in contents["/root"]:
        if folder in key and key != "cluster/journal-nodes":
            story = Story(contents, "/root", {key: damage(contents["/root"][key])})
            story.go_on()
            assert story.errors == [], key


def displaced(url: str) -> tuple[Contents, list[tuple[str, dict[str, bytes]]]]:
    """Return a small log, and the ways to copy an object of a store beside itself, swap two, or put an old one back."""
    earlier: list[Contents] = []
    contents = filled(ROOT if url in ROOT else THREE, earlier)
    objects, old = contents[url], earlier[0][url]
    found = [
        (f"{kind.__name__} of {key} in {sorted(changes)}", changes)
        for key in sorted(objects)
        for kind in (copies, swaps)
        for changes in kind(objects, key)
    ]
    found += [(f"{key} of an earlier time", {key: old[key]}) for key in sorted(old) if old[key] != objects.get(key)]
    return contents, found


def is_of_open_journal(changes: Mapping[str, bytes]) -> bool:
    """Return whether one of the changed objects is in the journal of the cluster or of the topic with the rows."""
    return any(re.match(r"(cluster|topics/t/[0-9a-f]*/journal)/(entries|snapshots)/", key) for key in changes)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["/root", "/disk/a"])
def test_an_object_that_is_put_in_the_wrong_place_loses_no_row(url, monkeypatch):
    make_constants_small(monkeypatch.setattr)
    contents, found = displaced(url)
    assert len(found) > MISPLACED_MIN
    for what, changes in random.Random(24).sample(found, DISPLACED):
        hold_changes(contents, url, changes, what)


def is_trimmed(client: TopicClient, key: str) -> bool:
    """Return whether the next trimming deletes a register, whatever it is."""
    journal = client.log.cluster if key.startswith("cluster/") else client.handle.journal
    slot = registers.slot_of(key.rpartition("/")[2])
    return slot is not None and slot < oldest_kept(journal)


def hold_audit(contents: Contents, url: str, changes: Mapping[str, bytes]) -> None:
    """Check that an audit notices what is in the wrong place, and that a repair leaves nothing that can be repaired."""
    cluster = Cluster(contents)
    for key, data in changes.items():
        cluster.stores[url].put(key, data)
    client = cluster.begin()
    reports = [client.report(), verify.verify_cluster(client.log)]
    is_noticed = any(each.findings or each.damaged_spares for each in reports)
    assert is_noticed or all(is_trimmed(client, key) for key in changes), changes.keys()
    repair.repair(client.handle)
    spare_repair.repair(client.log.cluster, contents=True)
    for report in (client.report(), verify.verify_cluster(client.log)):
        assert not report.damaged_spares
        for each in report.findings:
            is_next = url in THREE and "no other store tells" in each.detail
            assert is_next, f"{sorted(changes)}: {each}"


@pytest.mark.parametrize("url", ["/root", "/disk/a"])
def test_an_object_of_a_journal_in_the_wrong_place_is_noticed_by_an_audit_and_mended(url, monkeypatch):
    make_constants_small(monkeypatch.setattr)
    contents, found = displaced(url)
    audited = [changes for _, changes in found if is_of_open_journal(changes)]
    for changes in random.Random(24).sample(audited, AUDITED):
        hold_audit(contents, url, changes)


def main(urls: list[str]) -> int:
    """Put every object of these stores, or of all, in each wrong place; print and count what is lost."""
    logging.disable(logging.CRITICAL)
    make_constants_small(lambda *changed: mock.patch.object(*changed).start())
    failed = 0
    for url in urls or [*ROOT, *THREE]:
        contents, found = displaced(url)
        for what, changes in found:
            try:
                hold_changes(contents, url, changes, what)
                if is_of_open_journal(changes):
                    hold_audit(contents, url, changes)
            except Exception:  # noqa: BLE001 -- told
                failed += 1
                print(what, traceback.format_exc(), sep="\n", flush=True)
        print(f"{url}: {len(found)} cases; {failed} failed so far", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
