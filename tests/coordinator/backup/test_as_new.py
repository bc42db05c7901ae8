"""The copy of a root that becomes a cluster of its own, in place: it keeps its rows, and the original its nodes."""

import contextlib
import itertools

import pytest

from pyspark_log_coordinator.audit.verify import verify, verify_cluster
from pyspark_log_coordinator.backup import as_new
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import adoption, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, LogError
from pyspark_log_storage.objects import node
from tests.coordinator.backup.test_backup import Failing, Killed, commit, rows_in
from tests.support.coordinator.several_nodes import Stores, one_after_another
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.memory_store import MemoryStore


class Mortal(Failing):
    """A store at which a process is killed at its n-th write or deletion."""

    def delete(self, key):
        self._count(key)
        super().delete(key)


class Original:
    """A log with rows in segments and in append files, and a further node; and a copy of its root."""

    def __init__(self, copy=None):
        self.stores = Stores(MemoryStore)
        self.topic = StoredTopic(self.stores.open("/cluster"), partitions=2, **AT_ONCE)
        self.topic.fill(3, partitions=(0, 1))
        self.topic.roll(2)
        commit(self.topic, 3)
        log = self.topic.open()
        log._stores._open_store = self.stores.open
        node_admin.join(log, "/disk/1")
        self.copy = self.stores.at["/copy"] = copy or MemoryStore("/copy")
        self.copy.url = "/copy"
        for key in self.stores.at["/cluster"].list(""):
            MemoryStore.put(self.copy, key, self.stores.at["/cluster"].read(key))
        self.before = self.contents()

    def contents(self):
        stores = {url: each for url, each in self.stores.at.items() if url != "/copy"}
        return {url: {key: each.read(key) for key in each.list("")} for url, each in stores.items()}

    def log(self):
        return Log(self.copy, real_environment(), open_node=self.stores.open, probe=one_after_another)

    def adopt(self):
        found = as_new.begun(self.copy) or as_new.states([self.copy], self.log())
        return as_new.make(self.copy, found, real_environment())

    def adopted(self):
        log = self.log()
        log.open(create=False)
        return log


def assert_no_problems(log):
    reports = [verify_cluster(log), *(verify(log.topic(name)) for name in log.topics())]
    assert [each for one in reports for each in (*one.findings, *one.orphans, *one.damaged_spares)] == []


def test_a_copy_becomes_a_cluster_of_its_own_with_its_rows_producers_and_offsets():
    original = Original()
    state = original.topic.handle.refresh()
    inbox = layout.inbox(layout.topic_journal("t", state.topic_id))
    original.copy.put(f"{inbox}{layout.born_name(3, 'waits')}", b"a batch that a writer of the original waits for")
    made = original.adopt()
    assert list(original.copy.list(inbox)) == []
    journals = ("/entries/", "/snapshots/", "/manifests/")
    old = [key for key in original.before["/cluster"] if any(each in key for each in journals)]
    assert old
    assert [key for key in old if original.copy.exists(key)] == []
    log = original.adopted()
    assert made != node.read_marker(original.stores.at["/cluster"]).cluster
    assert (log.cluster.state.cluster_id, node.read_marker(original.copy).cluster) == (made, made)
    assert list(log.cluster.state.nodes) == ["0"]
    now = log.topic("t").journal.state
    assert now.producers == state.producers
    assert [each.leader for each in now.partitions] == ["0", "0"]
    for number in (0, 1):
        assert rows_in(original.topic, log, number) == original.topic.expected[number]
    assert log.group("g").journal.state.committed(now.topic_id, 0).offset == 3
    topic_cleanup.clean_up_topic(log.topic("t"))
    assert_no_problems(log)
    log.create_topic("u", 1)
    log.delete_topic("t")
    assert original.contents() == original.before
    assert list(original.stores.log().topics()) == ["t"]


def test_an_adoption_that_is_killed_at_any_write_is_no_log_to_write_to_and_is_continued():
    ids = set()
    for calls in itertools.count(1):
        original = Original(Mortal())
        original.copy.left = calls
        try:
            original.adopt()
        except Killed:
            was_used = False
            with contextlib.suppress(LogError):
                log = original.adopted()
                log.create_topic("u", 1)
                was_used = log.cluster.state.cluster_id == node.read_marker(original.copy).cluster
                assert was_used
                log.cluster.create_snapshot()
            if original.copy.exists(layout.backup(0)) or not was_used:
                original.adopt()
            assert ("u" in original.adopted().topics()) == was_used
        else:
            break
        log = original.adopted()
        ids.add(log.cluster.state.cluster_id)
        for number in (0, 1):
            assert rows_in(original.topic, log, number) == original.topic.expected[number]
        assert list(original.copy.list(layout.BACKUPS)) == []
        assert_no_problems(log)
        assert original.contents() == original.before
    assert calls > 8
    assert len(ids) == calls - 1


def test_a_copy_that_lacks_rows_or_has_damaged_ones_is_refused_with_their_partitions_and_not_changed():
    for change in (MemoryStore.delete, lambda store, key: store.put(key, b"damaged")):
        original = Original()
        (segment,) = [key for key in original.copy.list(layout.TOPICS) if key.endswith(layout.LOG)]
        change(original.copy, segment)
        before = {key: original.copy.read(key) for key in original.copy.list("")}
        with pytest.raises(InvalidOption, match=r"rows of these partitions, undamaged: t-0\. .*restore"):
            original.adopt()
        assert {key: original.copy.read(key) for key in original.copy.list("")} == before


def test_a_log_at_its_own_address_is_refused():
    original = Original()
    original.copy.url = "/cluster"
    with pytest.raises(InvalidOption, match="is not a copy"):
        original.adopt()


def test_a_copy_that_was_changed_since_its_states_were_read_is_left_as_it_is():
    original = Original()
    found = as_new.states([original.copy], original.log())
    adoption.adopt([original.copy], original.log())
    before = {key: original.copy.read(key) for key in original.copy.list("")}
    with pytest.raises(InvalidOption, match="changed meanwhile"):
        as_new.make(original.copy, found, real_environment())
    assert {key: original.copy.read(key) for key in original.copy.list("")} == before


def test_several_stores_are_refused_with_the_way_to_copy_them():
    original = Original()
    with pytest.raises(InvalidOption, match=r"copy of one root alone.*restore --as-new"):
        as_new.states([original.copy, original.stores.at["/disk/1"]], original.log())
