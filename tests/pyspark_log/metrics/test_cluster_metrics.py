"""What is measured of a cluster: partitions, nodes, groups, and the requests of the process, in Prometheus' format."""

import pytest

from pyspark_log.metrics.cluster_metrics import measure
from pyspark_log_coordinator.group.machine import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.log import node_admin
from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.stores import request_counts
from pyspark_log_storage.stores.request_counts import counts_of
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.three_nodes import ThreeNodes


@pytest.fixture
def log():
    """Topic t with three and no rows in its partitions; group g has committed one."""
    log = PlainLog()
    log.create("t", 2)
    log.append("t", {0: [b"a", b"b", b"c"]})
    new = {log.log.topic("t").topic_id: {0: Offset(1)}}
    log.log.group("g", create=True).submit(OffsetCommit(new))
    return log


def measured(log, *failures):
    """Return the samples by name and labels."""
    found = []
    families = measure(log, lambda what, error: found.append((what, type(error))))
    assert found == list(failures)
    return {
        (each.name.removeprefix("pyspark_log_"), *each.labels.values()): each.value
        for family in families
        for each in family.samples
    }


def test_offsets_sizes_and_lags_are_those_of_the_partitions(log):
    found = measured(log.log)
    for name in ("high_watermark", "log_end_offset"):
        assert [found[f"partition_{name}", "t", number] for number in "01"] == [3, 0]
    assert found["partition_log_start_offset", "t", "0"] == found["partition_leader_epoch", "t", "0"] == 0
    [chunk] = log.log.topic("t").journal.state.partitions[0].chunks
    assert [found["partition_size_bytes", "t", number] for number in "01"] == [chunk.length, 0]
    assert found["topic_journal_entries_total", "t"] == log.log.topic("t").journal.number
    assert (found["topics",], found["partitions",], found["up",]) == (1, 2, 1)
    of_group = ("committed_offset", "lag")
    assert [found[f"consumer_group_{name}", "g", "t", "0"] for name in of_group] == [1, 2]
    assert found["consumer_group_state", "g", "Empty"] == 1
    assert (found["consumer_group_members", "g"], found["consumer_group_generation", "g"]) == (0, 0)
    log.log.group("g").submit(DeleteGroup())
    assert not [key for key in measured(log.log) if key[0].startswith("consumer_group")]


def test_partitions_in_trouble_are_counted_and_named():
    nodes = ThreeNodes(min_insync_replicas=3)
    before = measured(nodes.log)
    assert (before["active_nodes",], before["fenced_nodes",], before["node_up", "1"]) == (3, 0, 1)
    totals = ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions")
    assert [before[name,] for name in totals] == [0, 0, 0]
    nodes.disk("1").broken = StoreUnavailable
    idle = measured(nodes.log)  # nobody has written since, so the ISR has all three
    assert [idle[name,] for name in totals] == [2, 2, 0]
    assert (idle["partition_under_replicated", "t", "0"], idle["partition_in_sync_replicas", "t", "0"]) == (1, 3)
    nodes.disk("1").broken = None
    node_admin.set_fenced(nodes.log, "1", fenced=True)
    node_admin.update_topics(nodes.log, "1")
    found = measured(nodes.log)
    assert (found["active_nodes",], found["fenced_nodes",]) == (2, 1)
    assert [found[name,] for name in totals] == [2, 2, 0]
    assert found["partition_under_replicated", "t", "0"] == 1
    assert (found["partition_replicas", "t", "0"], found["partition_in_sync_replicas", "t", "0"]) == (3, 2)


def test_requests_are_those_of_stores_that_count_them(log, monkeypatch):
    monkeypatch.setattr(request_counts, "_counts", {})
    assert not [key for key in measured(log.log) if key[0].startswith("store")]
    counts_of("s3://b").add("put_object", sent=5, received=1)
    found = measured(log.log)
    for name, value in (("requests", 1), ("sent_bytes", 5), ("received_bytes", 1)):
        assert found[f"store_{name}_total", "s3://b", "put_object"] == value
