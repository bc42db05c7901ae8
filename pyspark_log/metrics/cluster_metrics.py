"""The metrics of a cluster: what its journals say of partitions, nodes and groups, and the requests of this process.

Names are close to those that Kafka's metrics have in Prometheus' JMX exporter, with the prefix `pyspark_log_`. Reading
them reads the journals, and no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.metrics.family import Family, MetricKind
from pyspark_log.reading.groups import lags
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_storage.errors import LogError, NodeAway, StoreUnavailable, UnknownTopic
from pyspark_log_storage.stores.request_counts import all_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

PREFIX = "pyspark_log_"


def measure(log: Log, failed: Callable[[str, LogError], object]) -> list[Family]:
    """Return the metrics of the cluster, which is opened first.

    `failed` gets what cannot be read, such as `topic flights`, and why; the rest is measured. If that is the cluster,
    there is `pyspark_log_up 0`, and of the cluster no more than its journal nodes, if they are known.
    """
    found = _Metrics()
    try:
        log.open(create=False)
        topics, groups = sorted(log.topics()), sorted(log.groups().items())
    except LogError as error:
        failed("the cluster", error)
        found.up.add(0)
        found.add_journal_nodes(log)
        return [*found.families, *_requests()]
    found.up.add(1)
    found.add_nodes(log)
    found.add_journal_nodes(log)
    for name in topics:
        try:
            found.add_topic(log.topic(name))
        except UnknownTopic:
            continue  # deleted meanwhile
        except LogError as error:
            found.unreadable.add(1, "topic", name)
            failed(f"topic {name}", error)
    for name, record in groups:
        try:
            handle = log.group_handle(record)
            state = handle.begin()
            found.handles.append(handle)
            if state.state is not GroupState.DEAD:
                found.add_group(log, state)
        except LogError as error:
            found.unreadable.add(1, "group", name)
            failed(f"group {name}", error)
    found.add_totals()
    found.add_journals_behind(log)
    return [*found.families, *_requests()]


class _Metrics:
    """The families, being filled."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.up = self._family("up", "Whether the cluster's journal can be read.")
        self.unreadable = self._family(
            "unreadable", "A topic or group that could not be measured; absent if all could.", "kind", "name"
        )
        self._active = self._family("active_nodes", "Nodes that are not fenced and answered now.")
        self._fenced = self._family("fenced_nodes", "Nodes that are fenced.")
        self._node_up = self._family("node_up", "Whether the node answered now; of nodes that are not fenced.", "node")
        self._journal_up = self._family(
            "journal_node_up", "Whether the journal node's store answered now, with its marker.", "node"
        )
        self._journal_votes = self._family(
            "journal_node_votes",
            "Whether the journal node votes: its store answers, and is intact.",
            "node",
        )
        self._journal_behind = self._family(
            "journal_node_behind", "Journals of which the journal node lacks the newest entries.", "node"
        )
        self._tolerated = self._family(
            "journal_failures_tolerated", "Further journal nodes that may fail before nothing can be read or written."
        )
        self.handles: list[TopicHandle | GroupHandle] = []
        """The topics and groups whose journals could be read."""
        self._topics = self._family("topics", "Topics.")
        self._partitions = self._family("partitions", "Partitions of all topics.")
        self._totals = {
            Trouble.UNDER_REPLICATED: self._family(
                "under_replicated_partitions", "Partitions with replicas that are not in the ISR, or do not answer now."
            ),
            Trouble.UNAVAILABLE: self._family(
                "offline_partitions", "Partitions without a leader, or of whose ISR no node answers now."
            ),
            Trouble.UNDER_MIN_ISR: self._family(
                "under_min_isr_partitions",
                "Partitions with fewer replicas in sync, on nodes that answer now, than min.insync.replicas.",
            ),
        }
        self._counted = dict.fromkeys(self._totals, 0)
        self._topic_count = self._partition_count = 0
        self._entries = self._family(
            "topic_journal_entries_total",
            "Number of the topic's newest journal entry.",
            "topic",
            kind=MetricKind.COUNTER,
        )
        self._high_watermark = self._of_partition("high_watermark", "Offset of the next row that readers will see.")
        self._log_end = self._of_partition("log_end_offset", "Offset of the next row to be written.")
        self._log_start = self._of_partition("log_start_offset", "Offset of the first row.")
        self._size = self._of_partition("size_bytes", "Size of the rows on one node, as they are stored.")
        self._epoch = self._of_partition("leader_epoch", "Leader epoch.")
        self._replicas = self._of_partition("replicas", "Replicas.")
        self._isr = self._of_partition("in_sync_replicas", "Replicas in the ISR.")
        self._under_replicated = self._of_partition(
            "under_replicated", "Whether a replica is not in the ISR, or does not answer now."
        )
        self._offline = self._of_partition("offline", "Whether there is no leader, or no node of the ISR answers now.")
        self._members = self._family("consumer_group_members", "Members of the group.", "group")
        self._state = self._family("consumer_group_state", "1 for the present state of the group.", "group", "state")
        self._generation = self._family("consumer_group_generation", "Generation of the group.", "group")
        self._committed = self._of_group("committed_offset", "Offset that the group has committed: its next row.")
        self._lag = self._of_group("lag", "Rows that the group has not committed.")

    def add_nodes(self, log: Log) -> None:
        """Add the nodes, as of the last probe."""
        nodes = log.nodes
        unfenced = log.live_nodes
        self._active.add(len(unfenced.keys() - log.missing_nodes.keys()))
        self._fenced.add(len(nodes) - len(unfenced))
        for name in unfenced:
            self._node_up.add(int(name not in log.missing_nodes), name)

    def add_journal_nodes(self, log: Log) -> None:
        """Add the journal nodes, if there are several and they are known. They answer now, or not."""
        journals = log.journals.nodes
        if journals is None:
            return
        missing = log.journals.missing_nodes()
        for each in journals.nodes:
            self._journal_up.add(int(not isinstance(missing.get(each.node), (StoreUnavailable, NodeAway))), each.node)
            self._journal_votes.add(int(each.node not in missing), each.node)
        self._tolerated.add(log.journals.failures_tolerated(missing))

    def add_journals_behind(self, log: Log) -> None:
        """Add in how many of the measured journals each journal node is behind."""
        for name, count in log.journals_behind(self.handles).items():
            self._journal_behind.add(count, name)

    def add_topic(self, handle: TopicHandle) -> None:
        """Add a topic and its partitions."""
        state = handle.state
        self._topic_count += 1
        self._partition_count += len(state.partitions)
        self._entries.add(handle.version, handle.name)
        self.handles.append(handle)
        for number, each in enumerate(state.partitions):
            found = troubles(each, state.config, handle.log.broken_nodes)
            for kind in self._counted.keys() & found:
                self._counted[kind] += 1
            self._add_partition(handle.name, number, each)
            self._under_replicated.add(int(Trouble.UNDER_REPLICATED in found), handle.name, number)
            self._offline.add(int(Trouble.UNAVAILABLE in found), handle.name, number)

    def _add_partition(self, topic: str, number: int, partition: Partition) -> None:
        self._high_watermark.add(partition.high_watermark, topic, number)
        self._log_end.add(partition.log_end, topic, number)
        self._log_start.add(partition.log_start, topic, number)
        stored = (each.length for kind in (partition.segments, partition.chunks) for each in kind)
        self._size.add(sum(stored), topic, number)
        self._epoch.add(partition.leader_epoch, topic, number)
        self._replicas.add(len(partition.replicas), topic, number)
        self._isr.add(len(partition.isr), topic, number)

    def add_group(self, log: Log, group: Group) -> None:
        """Add a group and its committed offsets."""
        name = group.group_id
        behind = lags(log, group)
        self._members.add(len(group.members), name)
        self._state.add(1, name, group.state.value)
        self._generation.add(group.generation, name)
        for each in behind:
            self._committed.add(each.committed, name, each.topic, each.partition)
            self._lag.add(each.lag, name, each.topic, each.partition)

    def add_totals(self) -> None:
        """Add what was counted over all topics."""
        self._topics.add(self._topic_count)
        self._partitions.add(self._partition_count)
        for kind, family in self._totals.items():
            family.add(self._counted[kind])

    def _family(self, name: str, meaning: str, *labels: str, kind: MetricKind = MetricKind.GAUGE) -> Family:
        family = Family(PREFIX + name, kind, meaning, labels)
        self.families.append(family)
        return family

    def _of_partition(self, name: str, meaning: str) -> Family:
        return self._family(f"partition_{name}", meaning, "topic", "partition")

    def _of_group(self, name: str, meaning: str) -> Family:
        return self._family(f"consumer_group_{name}", meaning, "group", "topic", "partition")


def _requests() -> Sequence[Family]:
    """Return the requests of this process to stores that count them."""
    labels = ("store", "operation")
    count, sent, received = (
        Family(f"{PREFIX}store_{name}_total", MetricKind.COUNTER, meaning, labels)
        for name, meaning in (
            ("requests", "Requests of this process to a store."),
            ("sent_bytes", "Bytes that these requests sent."),
            ("received_bytes", "Bytes that these requests received."),
        )
    )
    for url, counts in sorted(all_counts().items()):
        for operation, found in sorted(counts.by_operation().items()):
            count.add(found.number, url, operation)
            sent.add(found.sent, url, operation)
            received.add(found.received, url, operation)
    return count, sent, received
