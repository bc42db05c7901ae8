"""Cleaning up a topic on several nodes: files are deleted from each, and an unreachable node is cleaned up later."""

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import follower, topic_cleanup
from pyspark_log_coordinator.segments.orphans import RaiseOrphanFloor
from pyspark_log_storage.errors import StoreRefused, StoreUnavailable
from pyspark_log_storage.layout import born_name
from tests.support.coordinator.journal_disks import URLS
from tests.support.coordinator.migrated_journals import cluster_of_six, write
from tests.support.coordinator.rolled_nodes import breakable, disk, fill, roll


@pytest.fixture
def topic():
    return breakable(retention_ms="-1", file_delete_delay_ms="0", orphan_retention_ms="0")


def orphan(topic, name):
    """Leave a file on a node that no entry will ever name; return its key."""
    key = topic.handle.append_file(born_name(0, topic.log.environment.nonce()))
    disk(topic, name).create(key, b"nobody names it")
    return key


def raise_floor(topic):
    for _ in range(2):
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))


def test_a_missing_node_is_cleaned_up_later_than_the_others(topic):
    fill(topic, 3)
    made = roll(topic)
    kept = [key for key in topic.keys("1") if key.startswith("append/")]
    disk(topic, "1").broken = StoreUnavailable
    topic.log.probe_nodes()
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("0") == topic.keys("2") == [f"0/{made.name}.index", f"0/{made.name}.log"]
    assert len(topic.handle.refresh().pending_deletions) == 0
    disk(topic, "1").broken = None
    topic.log.probe_nodes()
    assert [key for key in topic.keys("1") if key.startswith("append/")] == kept
    raise_floor(topic)
    assert follower.clean_up_node(topic.log, "1") == 3
    assert topic.keys("1") == topic.keys("0")


def test_a_failing_node_is_reported_after_the_others_were_cleaned_up(topic):
    fill(topic, 3)
    made = roll(topic)
    disk(topic, "1").broken_writes = StoreUnavailable
    told = []
    done = topic_cleanup.clean_up_topic(topic.handle, failed=lambda *each: told.append(each))
    assert done.deleted > 0
    assert [(name, type(error)) for name, error in told] == [("1", StoreUnavailable)]
    assert topic.keys("2") == [f"0/{made.name}.index", f"0/{made.name}.log"]
    assert len(topic.handle.refresh().pending_deletions) == 0
    with pytest.raises(StoreUnavailable):
        topic_cleanup.clean_up_topic(topic.handle)


def test_deletions_stay_pending_while_a_node_that_may_be_well_keeps_the_files(topic):
    fill(topic, 3)
    roll(topic)
    disk(topic, "1").broken_writes = StoreRefused
    told = []
    topic_cleanup.clean_up_topic(topic.handle, failed=lambda *each: told.append(each))
    assert [name for name, _ in told] == ["1"]
    assert len(topic.handle.refresh().pending_deletions) == 3
    disk(topic, "1").broken_writes = None
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("1") == topic.keys("0")
    assert len(topic.handle.refresh().pending_deletions) == 0


def test_nothing_is_removed_from_a_disk_that_is_another(topic):
    fill(topic, 1)
    left = orphan(topic, "1")
    raise_floor(topic)
    disk(topic, "1").delete("node")
    topic_cleanup.clean_up_topic(topic.handle)
    assert disk(topic, "1").size(left) > 0


@pytest.mark.parametrize("how", ["fenced", "fails now"])
def test_the_journal_is_trimmed_while_the_journal_node_with_the_inbox_fails(monkeypatch, how):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    cluster, told = cluster_of_six(), []
    log, first = cluster.log(), URLS[0]
    for value in range(30):
        write(log, "t", value)
    if how == "fenced":
        node_admin.set_fenced(log, "0", fenced=True)
    cluster.away_from[first] = 0
    log = log if how == "fails now" else cluster.log()
    topic_cleanup.clean_up_topic(log.topic("t"), failed=lambda node, _: told.append(node))
    cluster.bring_back()
    assert told == (["0"] if how == "fails now" else [])
    assert cluster.log().topic("t").journal.entries.read(1) is None
