"""What tests put into a real Kafka cluster, and read from it."""

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from pyspark_log.opening import own_log
from pyspark_log_storage.errors import LogError
from tests.servers.kafka import Broker
from tests.support.command_line import CommandLine

QUIET = {"log_level": 0}
WAIT = 30
NOON_MS = 1_700_000_000_000
SMALL_BATCHES = """
from pyspark_log.cli.main import app
from pyspark_log.kafka import row_import
row_import.BATCH_ROWS = row_import.AT_ONCE_MAX = 1000
app()
"""


class KafkaCluster:
    """A broker, and clients of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config: dict[str, Any] = {"bootstrap.servers": broker.address, **QUIET}
        self.admin = AdminClient(self.config)
        self.producer = Producer(self.config | {"linger.ms": 0, "enable.idempotence": True})  # a retry keeps the order
        self._topics = 0

    def unused(self) -> str:
        """Return a name that no topic has."""
        self._topics += 1
        return f"t{self._topics}"

    def create(self, partitions: int = 1, **config: str) -> str:
        """Create a topic whose rows stay, and return its name."""
        name = self.unused()
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT)
        deadline = time.monotonic() + WAIT
        for number in range(partitions):
            while trouble := self._trouble(name, number):
                assert time.monotonic() < deadline, f"no broker leads partition {number} of {name}: {trouble}"
                self.admin = AdminClient(self.config)  # the old one may remember for minutes that there is no leader
                time.sleep(0.1)
        return name

    def _trouble(self, topic: str, partition: int) -> KafkaException | None:
        """Return why the broker does not answer for a partition, as it does some moments after it was created."""
        try:
            self.end(topic, partition)
        except KafkaException as error:
            return error
        return None

    def write(self, topic: str, values: Iterable[bytes | None], partition: int = 0, **fields: Any) -> None:
        """Write rows to a partition."""
        for value in values:
            self.producer.produce(topic, value, partition=partition, **({"timestamp": NOON_MS} | fields))
        assert self.producer.flush(WAIT) == 0

    def write_transaction(self, topic: str, values: Sequence[bytes], *, commits: bool = True) -> None:
        """Write rows to partition 0 in one transaction. Its marker takes an offset of its own."""
        end = self.end(topic) + len(values) + 1
        producer = Producer(self.config | {"transactional.id": f"writer of {topic}"})
        producer.init_transactions(WAIT)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0, timestamp=NOON_MS)
        producer.flush(WAIT)
        producer.commit_transaction(WAIT) if commits else producer.abort_transaction(WAIT)
        while self.end(topic) < end:  # Kafka answers before it writes the marker
            time.sleep(0.01)

    def expire(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the rows before an offset."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(WAIT)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group."""
        places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(WAIT)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of a group, by partition."""
        answer = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT)
        return {each.partition: each.offset for each in answer.topic_partitions if each.topic == topic}

    def end(self, topic: str, partition: int = 0, **options: Any) -> int:
        """Return the end of a partition."""
        place = TopicPartition(topic, partition)
        return self.admin.list_offsets({place: OffsetSpec.latest()}, **options)[place].result(WAIT).offset

    def rows(self, topic: str, partitions: int = 1) -> dict[int, list[Any]]:
        """Return the committed messages of each partition."""
        consumer = Consumer(self.config | {"group.id": "reader", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
        ended = 0
        while ended < partitions:
            for each in consumer.consume(1000, 0.1):
                ended += each.error() is not None
                if each.error() is None:
                    found[each.partition()].append(each)
        consumer.close()
        return found


class Transfer:
    """`pyspark-log import kafka` and `export kafka`, between one log and one Kafka cluster."""

    def __init__(self, cli: CommandLine, kafka: KafkaCluster) -> None:
        self.cli = cli
        self.kafka = kafka

    def words(self, command: str, topic: str, *options: object) -> Sequence[object]:
        return (command, "kafka", "--bootstrap-server", self.kafka.broker.address, "--topic", topic, *options)

    def import_(self, topic: str, *options: object) -> Any:
        """Import a topic, and return what is printed."""
        [document] = self.cli.documents(*self.words("import", topic, "--execute", *options))
        return document

    def export(self, topic: str, *options: object) -> Any:
        """Export a topic, and return what is printed."""
        [document] = self.cli.documents(*self.words("export", topic, "--execute", *options))
        return document

    def start(self, command: str, topic: str, *options: object) -> "subprocess.Popen[bytes]":
        """Start a program that imports or exports in small batches."""
        words = [str(each) for each in (*self.words(command, topic, "--execute", *options), "--path", self.cli.path)]
        return subprocess.Popen([sys.executable, "-c", SMALL_BATCHES, *words], stdout=subprocess.DEVNULL)

    def rows(self, topic: str) -> list[Any]:
        """Return the rows of a topic of the log, by partition."""
        return self.cli.documents("consume", topic)

    def places(self, topic: str) -> list[tuple[int, int, str]]:
        """Return partition, offset and value of the rows of a topic of the log."""
        return [(each["partition"], each["offset"], each["value"]) for each in self.rows(topic)]


def values(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def exported(kafka, topic, partitions=2):
    """Return the offset here and the value of each row of a topic in Kafka, by partition."""
    return {
        number: [(int(dict(each.headers())["pyspark-log.offset"]), each.value()) for each in rows]
        for number, rows in kafka.rows(topic, partitions).items()
    }


def imported(transfer, topic):
    """Return the number of rows that are in the log."""
    try:
        handle = own_log(str(transfer.cli.path)).topic(topic)
    except LogError:
        return 0
    return sum(each.log_end for each in handle.journal.state.partitions)


class FailingCommit:
    """A commit after which, or else before which, the program ends."""

    def __init__(self, commit, *, after):
        self.commit, self.after, self.failed = commit, after, False

    def __call__(self, *given):
        self.failed = True
        if self.after:
            self.commit(*given)
        raise LogError("the program ends")
