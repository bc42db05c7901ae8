"""A topic with real bytes on several nodes, each a store in memory, to which a test writes as it likes."""

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance import isr_copies, roll_task
from pyspark_log_coordinator.model.batch import Acks, SequencedFile
from pyspark_log_coordinator.model.partition import Holder, Partition
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name, topic_folder
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import batch_of

ALL = ("0", "1", "2")


class ReplicatedTopic:
    """Topic t, whose partitions are on nodes 0, 1 and 2, of which 0 leads, unless `replicas` says otherwise."""

    def __init__(
        self,
        stores: Stores | None = None,
        replicas: Sequence[Sequence[str]] = (ALL,),
        environment: Environment | None = None,
        **settings: str,
    ) -> None:
        """`settings` are of the topic, with "_" for each "." of Kafka's names."""
        self.stores = stores or Stores()
        self.log = self.stores.with_nodes(3, environment)
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.handle = self.log.create_topic("t", len(replicas), parse(config), replicas=replicas)
        self._batches = itertools.count()

    def open(self) -> tuple[Log, TopicHandle]:
        """Return the log and the topic as another process would open them."""
        log = self.stores.log()
        return log, log.topic("t")

    def partition(self, number: int = 0) -> Partition:
        """Return a partition's newest state."""
        return self.handle.refresh().partitions[number]

    def keys(self, node: str) -> list[str]:
        """Return the keys of the files and segments that a node has, without the topic's folder."""
        folder = topic_folder("t", self.handle.topic_id)
        keys = (key.removeprefix(folder) for key in self.log.node_store(node).list(folder))
        return [key for key in keys if key.startswith("append/") or key.endswith((".log", ".parquet", ".index"))]

    def content(self, node: str) -> dict[str, bytes]:
        """Return what a node has of the topic's rows."""
        folder = topic_folder("t", self.handle.topic_id)
        return {key: self.log.node_store(node).read(folder + key) for key in self.keys(node)}

    def append(
        self,
        rows: Mapping[int, Sequence[bytes]] | None = None,
        on: Sequence[str] = ("0",),
        acks: Acks = "1",
    ) -> str:
        """Append a batch of one file, which lies on some nodes; return the file's name."""
        batch = next(self._batches)
        return write(self.log, self.handle, batch, rows or {0: [b"row of batch %d" % batch]}, on, acks)

    def job(self, chunks: int | None = None, partition: int = 0) -> roll_plan.RollJob:
        """Return the roll of the oldest chunks of a partition, all where no number is given."""
        one, parquet = self.partition(partition), self.handle.state.config.segment_format == "parquet"
        return roll_plan.RollJob(
            partition, one.leader_epoch, 1, (), tuple(one.chunks[:chunks]), one.epoch_starts, parquet
        )

    def rolled(self, chunks: int, on: str = "0", partition: int = 0) -> SwapSegments:
        """Roll the oldest chunks into a segment on one node, and swap nothing in."""
        work = msgspec.structs.replace(roll_task.roll_task_of(self.handle, self.job(chunks, partition)), targets=(on,))
        return roll_task.run_roll(self.log.store_at, work, self.log.environment)

    def roll(self, chunks: int, on: str = "0", partition: int = 0) -> str:
        """Roll the oldest chunks into a segment on one node, copy it to the rest of the ISR; return its name."""
        swap = self.rolled(chunks, on, partition)
        self.handle.submit(MaintainSegments(isr_copies.with_copies(self.handle, [swap])))
        return swap.segments[0].name

    def damage(self, node: str, key: str, position: int = -1) -> None:
        """Flip one bit of an object on a node."""
        store = self.log.node_store(node)
        data = bytearray(store.read(key))
        data[position] ^= 1
        store.put(key, bytes(data))


def staged(log: Log, handle: TopicHandle, rows: Mapping[int, Sequence[bytes]], on: Sequence[str]) -> SequencedFile:
    """Write a file that lies on some nodes, and that no entry names yet."""
    state = handle.refresh()
    name = born_name(handle.journal.number, log.environment.nonce())
    chunks = ()
    for node in on:
        writer = AppendFileWriter(log.node_store(node).open_write(handle.append_file(name), durable=True))
        for partition, values in rows.items():
            writer.append(partition, batch_of(values), schema.RECORD_ID, "none")
        writer.close()
        chunks = tuple(writer.chunks)
    return SequencedFile(name, tuple(Holder(node, state.incarnations[node]) for node in on), chunks)


def write(
    log: Log, handle: TopicHandle, batch: int, rows: Mapping[int, Sequence[bytes]], on: Sequence[str], acks: Acks = "1"
) -> str:
    """Append a batch of one file, which lies on some nodes; return the file's name."""
    file = staged(log, handle, rows, on)
    handle.submit(CommitBatch(ProducerClaim("q", "q", "r", batch), (file,), acks=acks))
    return file.name
