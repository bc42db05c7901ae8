"""The metrics of a cluster: what its journals say of partitions, nodes and groups, and the requests of this process.

Names are close to those that Kafka's metrics have in Prometheus' JMX exporter, with the prefix `pyspark_log_`. Reading
them reads the journals, and no rows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pyspark_log.documents import cluster, groups, topics
from pyspark_log.documents.figures import figures_of, size_of
from pyspark_log.reading.groups import lags
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_storage.errors import LogError, UnknownTopic
from pyspark_log_storage.stores.request_counts import all_counts

if TYPE_CHECKING:
    from collections.abc import Callable

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


def measure(log: Log, failed: Callable[[str, LogError], object]) -> list[Metric]:
    """Return the metrics of the cluster, which is opened first.

    `failed` gets what cannot be read, such as `topic flights`, and why; the rest is measured. If that is the cluster,
    there is `pyspark_log_up 0`, and of the cluster no more than its journal nodes, if they are known.
    """
    found = _Metrics()
    try:
        log.open(create=False)
        names, records = sorted(log.topics()), sorted(log.groups().items())
    except LogError as error:
        failed("the cluster", error)
        found.add("up", 0)
        found.add_journal_nodes(log)
    else:
        found.add("up", 1)
        found.add_nodes(log)
        found.add_journal_nodes(log)
        for name in names:
            try:
                found.add_topic(log.topic(name))
            except UnknownTopic:
                continue  # deleted meanwhile
            except LogError as error:
                found.add("unreadable", 1, "topic", name)
                failed(f"topic {name}", error)
        for name, record in records:
            try:
                found.add_group(log, log.group_handle(record))
            except LogError as error:
                found.add("unreadable", 1, "group", name)
                failed(f"group {name}", error)
        found.add_totals(log)
    found.add_requests()
    return [family for family in found.families.values() if family.samples]


class _Metrics:
    """The families, being filled."""

    def __init__(self) -> None:
        self.families = {
            name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(
                PREFIX + name, meaning, labels=labels
            )
            for name, meaning, *labels in FAMILIES
        }
        self._read: list[TopicHandle | GroupHandle] = []
        """The topics and groups whose journals could be read."""
        self._topics = self._partitions = 0
        self._troubles: Counter[Trouble] = Counter()

    def add(self, name: str, value: float, *labels: object) -> None:
        """Add a sample; `labels` are the values of the labels in their order."""
        self.families[name].add_metric([str(each) for each in labels], value)

    def add_nodes(self, log: Log) -> None:
        """Add the nodes, as of the last probe."""
        unfenced = [cluster.node(log, each) for each in log.live_nodes.values()]
        self.add("active_nodes", sum(each["missing"] is None for each in unfenced))
        self.add("fenced_nodes", len(log.nodes) - len(unfenced))
        for each in unfenced:
            self.add("node_up", int(each["missing"] is None), each["node"])

    def add_journal_nodes(self, log: Log) -> None:
        """Add the journal nodes, if there are several and they are known. They answer now, or not."""
        if log.journals.nodes is None:
            return
        found, replaced = cluster.journal_nodes(log), log.journals.replaced_nodes()
        missing = [each["node"] for each in found if each["missing"] is not None]
        for each in found:
            name = each["node"]
            is_renewed = name in replaced and name not in log.missing_nodes  # it answers, with another marker
            self.add("journal_node_up", int(name not in missing or is_renewed), name)
            self.add("journal_node_votes", int(name not in missing), name)
        self.add("journal_failures_tolerated", log.journals.failures_tolerated(missing))

    def add_topic(self, handle: TopicHandle) -> None:
        """Add a topic and its partitions."""
        state, broken = handle.state, handle.log.broken_nodes
        self._topics += 1
        self._partitions += len(state.partitions)
        self._troubles.update(figures_of(state, broken).troubles)
        self.add("topic_journal_entries_total", handle.version, handle.name)
        self._read.append(handle)
        for number, each in enumerate(state.partitions):
            found, document = troubles(each, state.config, broken), topics.partition(number, each, broken)
            values = {
                "high_watermark": document["high_watermark"],
                "log_end_offset": document["log_end"],
                "log_start_offset": document["log_start"],
                "size_bytes": size_of(each),
                "leader_epoch": document["leader_epoch"],
                "replicas": len(document["replicas"]),
                "in_sync_replicas": len(document["isr"]),
                "under_replicated": int(Trouble.UNDER_REPLICATED in found),
                "offline": int(Trouble.UNAVAILABLE in found),
            }
            for name, value in values.items():
                self.add(f"partition_{name}", value, handle.name, number)

    def add_group(self, log: Log, handle: GroupHandle) -> None:
        """Add a group and its committed offsets."""
        state = handle.begin()
        self._read.append(handle)
        if state.state is GroupState.DEAD:
            return
        document = groups.group(state, handle.address, lags(log, state), lambda _: None)
        name = document["group"]
        self.add("consumer_group_members", document["member_count"], name)
        self.add("consumer_group_state", 1, name, document["state"])
        self.add("consumer_group_generation", document["generation"], name)
        for each in document["partitions"]:
            self.add("consumer_group_committed_offset", each["committed"], name, each["topic"], each["partition"])
            self.add("consumer_group_lag", each["lag"], name, each["topic"], each["partition"])

    def add_totals(self, log: Log) -> None:
        """Add what was counted over all topics, and in how many of the journals each journal node is behind."""
        self.add("topics", self._topics)
        self.add("partitions", self._partitions)
        self.add("under_replicated_partitions", self._troubles[Trouble.UNDER_REPLICATED])
        self.add("offline_partitions", self._troubles[Trouble.UNAVAILABLE])
        self.add("under_min_isr_partitions", self._troubles[Trouble.UNDER_MIN_ISR])
        for name, count in log.journals_behind(self._read).items():
            self.add("journal_node_behind", count, name)

    def add_requests(self) -> None:
        """Add the requests of this process to stores that count them."""
        for url, counts in sorted(all_counts().items()):
            for operation, found in sorted(counts.by_operation().items()):
                self.add("store_requests_total", found.number, url, operation)
                self.add("store_sent_bytes_total", found.sent, url, operation)
                self.add("store_received_bytes_total", found.received, url, operation)
