"""The metrics of a cluster: what its journals say of partitions, nodes and groups, and the requests of this process.

Names are close to those that Kafka's metrics have in Prometheus' JMX exporter, with the prefix `pyspark_log_`. Reading
them reads the journals, and no rows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pyspark_log.documents import cluster
from pyspark_log.documents.figures import figures_of, size_of
from pyspark_log.reading.groups import lags
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_storage.errors import LogError, UnknownTopic
from pyspark_log_storage.stores.request_counts import all_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log, TopicHandle

PREFIX = "pyspark_log_"
_PARTITION = ("topic", "partition")
FAMILIES = (
    ("up", "Whether the cluster's journal can be read."),
    ("unreadable", "A topic or group that could not be measured; absent if all could.", "kind", "name"),
    ("active_nodes", "Nodes that are not fenced and answered now."),
    ("fenced_nodes", "Nodes that are fenced."),
    ("node_up", "Whether the node answered now; of nodes that are not fenced.", "node"),
    ("journal_node_up", "Whether the journal node's store answered now, with its marker.", "node"),
    ("journal_node_votes", "Whether the journal node votes: its store answers, and is intact.", "node"),
    ("journal_node_behind", "Journals of which the journal node lacks the newest entries.", "node"),
    ("journal_failures_tolerated", "Further journal nodes that may fail before nothing can be read or written."),
    ("topics", "Topics."),
    ("partitions", "Partitions of all topics."),
    ("under_replicated_partitions", "Partitions with replicas that are not in the ISR, or do not answer now."),
    ("offline_partitions", "Partitions without a leader, or of whose ISR no node answers now."),
    (
        "under_min_isr_partitions",
        "Partitions with fewer replicas in sync, on nodes that answer now, than min.insync.replicas.",
    ),
    ("topic_journal_entries_total", "Number of the topic's newest journal entry.", "topic"),
    ("partition_high_watermark", "Offset of the next row that readers will see.", *_PARTITION),
    ("partition_log_end_offset", "Offset of the next row to be written.", *_PARTITION),
    ("partition_log_start_offset", "Offset of the first row.", *_PARTITION),
    ("partition_size_bytes", "Size of the rows on one node, as they are stored.", *_PARTITION),
    ("partition_leader_epoch", "Leader epoch.", *_PARTITION),
    ("partition_replicas", "Replicas.", *_PARTITION),
    ("partition_in_sync_replicas", "Replicas in the ISR.", *_PARTITION),
    ("partition_under_replicated", "Whether a replica is not in the ISR, or does not answer now.", *_PARTITION),
    ("partition_offline", "Whether there is no leader, or no node of the ISR answers now.", *_PARTITION),
    ("consumer_group_members", "Members of the group.", "group"),
    ("consumer_group_state", "1 for the present state of the group.", "group", "state"),
    ("consumer_group_generation", "Generation of the group.", "group"),
    ("consumer_group_committed_offset", "Offset that the group has committed: its next row.", "group", *_PARTITION),
    ("consumer_group_lag", "Rows that the group has not committed.", "group", *_PARTITION),
    ("store_requests_total", "Requests of this process to a store.", "store", "operation"),
    ("store_sent_bytes_total", "Bytes that these requests sent.", "store", "operation"),
    ("store_received_bytes_total", "Bytes that these requests received.", "store", "operation"),
)
"""Name, meaning and labels of each metric, in the order in which they are shown. Those with `_total` are counters."""


Sample = tuple[Any, ...]
"""Name, value, and the values of the labels."""


def measure(log: Log, failed: Callable[[str, LogError], object]) -> list[Metric]:
    """Return the metrics of the cluster, which is opened first.

    `failed` gets what cannot be read, such as `topic flights`, and why; the rest is measured. If that is the cluster,
    there is `pyspark_log_up 0`, and of the cluster no more than its journal nodes, if they are known.
    """
    families = {
        name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(
            PREFIX + name, meaning, labels=labels
        )
        for name, meaning, *labels in FAMILIES
    }
    for name, value, *labels in itertools.chain(_of_cluster(log, failed), _of_requests()):
        families[name].add_metric([str(each) for each in labels], value)
    return [family for family in families.values() if family.samples]


def _of_cluster(log: Log, failed: Callable[[str, LogError], object]) -> Iterator[Sample]:
    try:
        log.open(create=False)
        names, records = sorted(log.topics()), sorted(log.groups().items())
    except LogError as error:
        failed("the cluster", error)
        yield "up", 0
        yield from _of_journal_nodes(log)
        return
    yield "up", 1
    yield from _of_nodes(log)
    yield from _of_journal_nodes(log)
    handles: list[TopicHandle] = []
    read: list[GroupHandle] = []
    for name in names:
        try:
            handles.append(log.topic(name))
        except UnknownTopic:
            continue  # deleted meanwhile
        except LogError as error:
            yield "unreadable", 1, "topic", name
            failed(f"topic {name}", error)
        else:
            yield from _of_topic(handles[-1])
    for name, record in records:
        handle = log.group_handle(record)
        try:
            yield from list(_of_group(log, handle))
            read.append(handle)
        except LogError as error:
            yield "unreadable", 1, "group", name
            failed(f"group {name}", error)
    found = sum((Counter(figures_of(each.state, log.broken_nodes).troubles) for each in handles), Counter[Trouble]())
    yield "topics", len(handles)
    yield "partitions", sum(len(each.partitions) for each in handles)
    yield "under_replicated_partitions", found[Trouble.UNDER_REPLICATED]
    yield "offline_partitions", found[Trouble.UNAVAILABLE]
    yield "under_min_isr_partitions", found[Trouble.UNDER_MIN_ISR]
    for name, count in log.journals_behind([*handles, *read]).items():
        yield "journal_node_behind", count, name


def _of_nodes(log: Log) -> Iterator[Sample]:
    """Yield the samples of the nodes, as of the last probe."""
    unfenced = [cluster.node(log, each) for each in log.live_nodes.values()]
    yield "active_nodes", sum(each["missing"] is None for each in unfenced)
    yield "fenced_nodes", len(log.nodes) - len(unfenced)
    for each in unfenced:
        yield "node_up", int(each["missing"] is None), each["node"]


def _of_journal_nodes(log: Log) -> Iterator[Sample]:
    """Yield the samples of the journal nodes, if there are several and they are known. They answer now, or not."""
    if log.journals.nodes is None:
        return
    found, replaced = cluster.journal_nodes(log), log.journals.replaced_nodes()
    missing = [each["node"] for each in found if each["missing"] is not None]
    for each in found:
        name = each["node"]
        is_renewed = name in replaced and name not in log.missing_nodes  # it answers, with another marker
        yield "journal_node_up", int(name not in missing or is_renewed), name
        yield "journal_node_votes", int(name not in missing), name
    yield "journal_failures_tolerated", log.journals.failures_tolerated(missing)


def _of_topic(handle: TopicHandle) -> Iterator[Sample]:
    state, broken = handle.state, handle.log.broken_nodes
    yield "topic_journal_entries_total", handle.version, handle.name
    for number, each in enumerate(state.partitions):
        found, where = troubles(each, state.config, broken), (handle.name, number)
        yield "partition_high_watermark", each.high_watermark, *where
        yield "partition_log_end_offset", each.log_end, *where
        yield "partition_log_start_offset", each.log_start, *where
        yield "partition_size_bytes", size_of(each), *where
        yield "partition_leader_epoch", each.leader_epoch, *where
        yield "partition_replicas", len(each.replicas), *where
        yield "partition_in_sync_replicas", len(each.isr), *where
        yield "partition_under_replicated", int(Trouble.UNDER_REPLICATED in found), *where
        yield "partition_offline", int(Trouble.UNAVAILABLE in found), *where


def _of_group(log: Log, handle: GroupHandle) -> Iterator[Sample]:
    state = handle.refresh()
    if state.state is GroupState.DEAD:
        return
    name = state.group_id
    yield "consumer_group_members", len(state.members), name
    yield "consumer_group_state", 1, name, state.state.value
    yield "consumer_group_generation", state.generation, name
    for each in lags(log, state):
        yield "consumer_group_committed_offset", each.committed, name, each.topic, each.partition
        yield "consumer_group_lag", each.lag, name, each.topic, each.partition


def _of_requests() -> Iterator[Sample]:
    """Yield the requests of this process to stores that count them."""
    for url, counts in sorted(all_counts().items()):
        for operation, found in sorted(counts.items()):
            yield "store_requests_total", found.number, url, operation
            yield "store_sent_bytes_total", found.sent, url, operation
            yield "store_received_bytes_total", found.received, url, operation
