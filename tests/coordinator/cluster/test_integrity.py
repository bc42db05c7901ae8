"""The integrity of a cluster: a snapshot or an entry with an impossible value is refused."""

import msgspec
import pytest

from pyspark_log_coordinator.cluster import integrity
from pyspark_log_coordinator.cluster.groups import GroupRecord
from pyspark_log_coordinator.cluster.journal_stores import JournalStores
from pyspark_log_coordinator.cluster.machine import Cluster, Node, TopicRecord
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidInput

ID = "0123456789abcdef" * 2
NODES = {name: Node(name, f"/disk/{name}", "", f"incarnation of {name}") for name in "012"}
TOPIC = TopicRecord("t", ID, 0, TopicConfig(), (("0", "1"), ("1", "2")), (b"schema",))
GROUP = GroupRecord("g", ID, 0)
JOURNAL_NODES = tuple(JournalNode(each.node_id, each.url, each.incarnation) for each in NODES.values())
SOUND = Cluster("c", NODES, {"t": TOPIC}, (), JournalStores(2, JOURNAL_NODES), {"g": GROUP})


def altered(value, **fields):
    return msgspec.structs.replace(value, **fields)


def test_a_sound_cluster_passes():
    integrity.check_snapshot(SOUND, 1)
    integrity.check_entry(SOUND, [], SOUND, 2)


@pytest.mark.parametrize(
    "impossible",
    [
        {"cluster_id": ""},
        {"nodes": {}},
        {"nodes": {**NODES, "3": NODES["0"]}},
        {"nodes": {**NODES, "0": altered(NODES["0"], rack="a\nb")}},
        {"nodes": {**NODES, "..": altered(NODES["0"], node_id="..")}},
        {"topics": {"u": TOPIC}},
        {"topics": {"..": altered(TOPIC, name="..")}},
        {"topics": {"t": altered(TOPIC, topic_id="../../t")}},
        {"topics": {"t": altered(TOPIC, config=TopicConfig(min_insync_replicas=0))}},
        {"topics": {"t": altered(TOPIC, assignments=(("0", "1"), ("1", "1")))}},
        {"topics": {"t": altered(TOPIC, assignments=(("0", "1"), ()))}},
        {"topics": {"t": altered(TOPIC, assignments=())}},
        {"nodes": {**NODES, "0": altered(NODES["0"], fencings=2**63 - 1)}},
        {"journals": JournalStores(2**63 - 1, JOURNAL_NODES)},
        {"groups": {"h": GROUP}},
        {"groups": {"": altered(GROUP, group_id="")}},
        {"groups": {"g": altered(GROUP, journal_id="../../g")}},
        {"journals": JournalStores(2, JOURNAL_NODES[:2])},
    ],
)
def test_an_impossible_cluster_is_refused_in_a_snapshot_and_after_an_entry(impossible):
    after = altered(SOUND, **impossible)
    with pytest.raises((ValueError, InvalidInput)):
        integrity.check_snapshot(after, 1)
    with pytest.raises((ValueError, InvalidInput)):
        integrity.check_entry(SOUND, [], after, 2)


def test_an_entry_does_not_make_it_another_cluster():
    with pytest.raises(ValueError, match="the cluster is d now"):
        integrity.check_entry(SOUND, [], altered(SOUND, cluster_id="d"), 2)
