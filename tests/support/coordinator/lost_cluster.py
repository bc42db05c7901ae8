"""A cluster of three nodes in local folders, whose journals are lost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import Survey, survey
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_coordinator.sync import catch_up as copying
from pyspark_log_storage import layout
from pyspark_log_storage.stores.addresses import open_store
from tests.support.coordinator.replicated_topic import ALL, write
from tests.support.lost_folders import lose_folder

KEEP = {"retention.ms": "-1", "compression.type": "none"}


class LostCluster:
    """Nodes 0 (the root), 1 and 2, each in a folder."""

    parquet = False
    """Whether `roll` writes Parquet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = Log(open_store(self.url("0")), real_environment())
        self.log.open(create=True)
        for node in ("1", "2"):
            node_admin.join(self.log, self.url(node))
        self.expected: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.batches = 0

    def url(self, node: str) -> str:
        return str(self.path / f"node{node}")

    def create(self, topic: str, partitions: int = 1, **settings: str) -> TopicHandle:
        """Create a topic on all nodes. `settings` are Kafka's names with "_" for "."."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        return self.log.create_topic(topic, partitions, parse(KEEP | config), replicas=[ALL] * partitions)

    def append(self, topic: str, batches: int = 1, on: Sequence[str] = ALL, rows: int = 2) -> str:
        """Append batches with rows in every partition; return the name of the last one's file."""
        handle = self.log.topic(topic)
        name = ""
        for _ in range(batches):
            count = len(handle.journal.state.partitions)
            values = {
                p: [b"%s %d %d %d" % (topic.encode(), p, self.batches, row) for row in range(rows)]
                for p in range(count)
            }
            name = write(self.log, handle, self.batches, values, on, "all")
            self.batches += 1
            for p, each in values.items():
                self.expected[topic, p] += each
        return name

    def roll(self, topic: str, chunks: int | None = None, partition: int = 0) -> str:
        """Roll the oldest chunks of a partition (default: all); return the segment's name."""
        handle = self.log.topic(topic)
        one = handle.refresh().partitions[partition]
        taken = tuple(one.chunks[:chunks])
        job = roll_plan.RollJob(partition, one.leader_epoch, 1, (), taken, one.epoch_starts, self.parquet)
        swap = run_roll(self.log.store_at, roll_task_of(handle, job), self.log.environment)
        handle.submit(MaintainSegments((swap,)))
        return swap.segments[0].name

    def checkpoint(self, topic: str) -> None:
        """Write descriptions, as maintenance does."""
        descriptions.write_on_nodes(self.log.topic(topic))

    def folder(self, node: str, topic: str) -> Path:
        """Return the topic's folder on a node."""
        (found,) = (Path(self.url(node)) / "topics" / topic).iterdir()
        return found

    def segment(self, node: str, topic: str, name: str, partition: int = 0) -> Path:
        return self.folder(node, topic) / str(partition) / layout.segment_file(name)

    def lose_journals(self) -> None:
        """Remove every journal."""
        for node in ALL:
            root = Path(self.url(node))
            lose_folder(root / "cluster")
            for journal in root.glob("topics/*/*/journal"):
                lose_folder(journal)

    def lose_node(self, node: str) -> None:
        lose_folder(self.url(node))

    def survey(self, nodes: Sequence[str] = ALL) -> Survey:
        return look(*map(self.url, nodes))

    def rebuild(self, nodes: Sequence[str] = ALL, **flags: Any) -> Survey:
        """Rebuild the cluster from some nodes, and open it."""
        found = self.survey(nodes)
        execute.rebuild(found, real_environment(), **flags)
        self.open(found)
        return found

    def open(self, found: Survey) -> None:
        """Open the rebuilt cluster."""
        self.log = Log(list(found.journal_stores), real_environment())
        self.log.open(create=False)

    def read(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the values of a partition; check their offsets."""
        return read(self.log, topic, partition)

    def check(self, lost: Mapping[tuple[str, int], int] | None = None) -> None:
        """Check that every partition has the written rows, without the newest `lost` ones."""
        for (topic, partition), values in self.expected.items():
            missing = (lost or {}).get((topic, partition), 0)
            assert self.read(topic, partition) == values[: len(values) - missing], (topic, partition)

    def forget(self, topic: str, rows: int) -> None:
        """Stop expecting the newest rows of each partition of a topic."""
        for (name, _), values in self.expected.items():
            if name == topic:
                del values[len(values) - rows :]

    def catch_up(self, topic: str, node: str) -> None:
        """Let a node catch up."""
        copying.catch_up(self.log.topic(topic), node)


def look(*urls: str) -> Survey:
    """Return the survey of the nodes at these addresses."""
    return survey([open_store(url) for url in urls], real_environment(), open_node=open_store)


def read(log: Log, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values of a partition; check their offsets."""
    handle = log.topic(topic)
    one = handle.journal.state.partitions[partition]
    values: list[bytes] = []
    if one.log_start == one.high_watermark:
        return values
    split = split_of(handle, Range(topic, partition, one.log_start, one.high_watermark))
    for offsets, batch in fetch(log.store_at, split):
        assert offsets[0] == one.log_start + len(values)
        values += batch.column("value").to_pylist()
    return values
