"""A connection to a Kafka cluster, by confluent-kafka: its clients with the settings of the user, and its errors.

librdkafka reconnects forever, so each wait has a limit here; the last trouble that it reported is in the error.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log.kafka import properties
from pyspark_log_storage.errors import InvalidInput, LogError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

HOW_TO_INSTALL = "this command needs the package confluent-kafka; install it with: pip install confluent-kafka"
_GROUP = "pyspark-log"
"""librdkafka wants a name. Nothing is committed to this group."""
_QUEUE_KBYTES = 32 * 1024
"""How much librdkafka reads ahead."""
_BACKOFF_MS = 10
"""How long librdkafka waits when it has read that much ahead. With its default, 1,000, it reads a quarter as fast."""
_POLL_SECONDS = 0.1
"""How long to wait for more messages, if some have arrived."""
_OF_THE_FUTURE = (
    "; the time of a row is further in the future than Kafka allows: set message.timestamp.after.max.ms of the topic "
    "there"
)
_logger = logging.getLogger("pyspark_log.kafka")
_logger.addHandler(logging.NullHandler())  # what librdkafka says is not printed, unless the program wants it


class PartitionOffsets(msgspec.Struct, frozen=True):
    """Where a partition of Kafka begins, and where it ends for readers of committed rows."""

    begin: int
    end: int


class KafkaTopic(msgspec.Struct, frozen=True):
    """A topic as Kafka describes it."""

    name: str
    cluster_id: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]


class Kafka:
    """A Kafka cluster."""

    def __init__(self, bootstrap_server: str, settings: Mapping[str, str], timeout_seconds: float) -> None:
        """`settings` are librdkafka's, and `timeout_seconds` bounds each wait.

        Raises `LogError` if confluent-kafka is not installed.
        """
        try:
            import confluent_kafka as library
            from confluent_kafka import admin
        except ImportError as error:
            raise LogError(HOW_TO_INSTALL) from error
        self.library: Any = library
        self._admin_library: Any = admin
        self.bootstrap_server = bootstrap_server
        self.timeout_seconds = timeout_seconds
        self._settings = dict(settings)
        self._trouble = ""
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The client for questions and administration."""
        if self._admin is None:
            with self.errors():
                self._admin = self._admin_library.AdminClient(self._config())
        return self._admin

    def consumer(self, **settings: Any) -> Consumer:
        """Return a consumer that reads committed rows and commits nothing."""
        own = {
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": _QUEUE_KBYTES,
            "fetch.queue.backoff.ms": _BACKOFF_MS,
        }
        with self.errors():
            consumer: Consumer = self.library.Consumer(self._config() | own | settings)
        return consumer

    @contextlib.contextmanager
    def reading(self) -> Iterator[Consumer]:
        """Make a consumer, and close it in the end."""
        consumer = self.consumer()
        try:
            yield consumer
        finally:
            consumer.close()

    def producer(self, **settings: Any) -> Producer:
        """Return a producer."""
        with self.errors():
            producer: Producer = self.library.Producer(self._config() | settings)
        return producer

    def topic(self, name: str) -> KafkaTopic | None:
        """Return a topic, None if Kafka has none of this name."""
        library, admin = self.library, self.admin
        with self.errors():
            cluster_id = str(admin.list_topics(timeout=self.timeout_seconds).cluster_id)
            described = admin.describe_topics(library.TopicCollection([name]), request_timeout=self.timeout_seconds)
            resource = self._admin_library.ConfigResource(self._admin_library.ResourceType.TOPIC, name)
            try:  # another broker may answer each of the two, and not know the topic yet, or any more
                found = self._result(described[name])
                answer = admin.describe_configs([resource], request_timeout=self.timeout_seconds)
                config = self._result(answer[resource])
            except library.KafkaException as error:
                if error.args[0].code() == library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                raise
            values = {key: entry.value for key, entry in config.items() if entry.value is not None}
        return KafkaTopic(name, cluster_id, str(found.topic_id), len(found.partitions), values)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> KafkaTopic:
        """Create a topic with the cluster's default replication factor, and wait until brokers know it."""
        new = self._admin_library.NewTopic(name, partitions, replication_factor=-1, config=dict(config))
        with self.errors():
            self._result(self.admin.create_topics([new], operation_timeout=self.timeout_seconds)[name])
        deadline = time.monotonic() + self.timeout_seconds
        while time.monotonic() < deadline:
            found = self.topic(name)
            if found is not None:
                return found
            time.sleep(_POLL_SECONDS)
        raise LogError(f"{self._where} does not find the topic {name!r} that it has created; try again")

    def offsets(self, consumer: Consumer, topic: str, partitions: int) -> list[PartitionOffsets]:
        """Return begin and end of each partition. The end is the last stable offset: open transactions come after."""
        found = []
        with self.errors():
            for number in range(partitions):
                place = self.library.TopicPartition(topic, number)
                begin, end = consumer.get_watermark_offsets(place, timeout=self.timeout_seconds)
                found.append(PartitionOffsets(begin, end))
        return found

    def offsets_at(self, consumer: Consumer, topic: str, ms: int, ends: Sequence[int]) -> list[int]:
        """Return the offset of the first row of each partition at or after a time, or the end if there is none."""
        places = [self.library.TopicPartition(topic, number, ms) for number in range(len(ends))]
        with self.errors():
            found = consumer.offsets_for_times(places, timeout=self.timeout_seconds)
            self.raise_first(found)
        return [each.offset if each.offset >= 0 else end for each, end in zip(found, ends, strict=True)]

    def receive(self, consumer: Consumer, at_most: int) -> list[Message]:
        """Return the next messages, ends of partitions among them (`is_end`): at least one.

        Raises `LogError` if nothing arrives within the time-out, and for errors of a partition.
        """
        deadline = time.monotonic() + self.timeout_seconds
        while time.monotonic() < deadline:
            with self.errors():
                found = consumer.consume(at_most, timeout=_POLL_SECONDS)
                for message in found:
                    error = message.error()
                    if error is not None and error.code() != self.library.KafkaError._PARTITION_EOF:  # noqa: SLF001 -- a public constant
                        raise self.library.KafkaException(error)
            if found:
                return found
        raise LogError(self._shown(f"{self._where} sent nothing for {self.timeout_seconds:g} s{self._last_trouble()}"))

    def raise_first(self, places: Iterable[TopicPartition]) -> None:
        """Raise the first error in an answer: librdkafka raises none if other partitions have an answer."""
        for each in places:
            if each.error is not None:
                raise self.library.KafkaException(each.error)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of Kafka into errors of one sentence, without secrets."""
        try:
            yield
        except FutureTimeout:
            answer = f"{self._where} did not answer within {self.timeout_seconds:g} s{self._last_trouble()}"
            raise LogError(self._shown(f"{answer}; check the address, and --command-config if it needs one")) from None
        except self.library.KafkaException as error:
            reason = error.args[0]
            text = reason.str() if hasattr(reason, "str") else str(reason)
            if hasattr(reason, "code") and reason.code() == self.library.KafkaError._INVALID_ARG:  # noqa: SLF001 -- as above
                raise InvalidInput(self._shown(f"--command-config: {text}; correct the file")) from None
            if hasattr(reason, "code") and reason.code() == self.library.KafkaError.INVALID_TIMESTAMP:
                text += _OF_THE_FUTURE
            raise LogError(self._shown(f"{self._where}: {text}{self._last_trouble()}")) from None

    @property
    def _where(self) -> str:
        return f"Kafka at {self.bootstrap_server}"

    def _config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": "pyspark-log",
            "error_cb": self._note,
            "logger": _logger,
        } | self._settings

    def _note(self, error: Any) -> None:
        self._trouble = error.str()

    def _last_trouble(self) -> str:
        if self._admin is not None:
            self._admin.poll(0)  # calls `_note`
        return f" (last trouble: {self._trouble})" if self._trouble else ""

    def _shown(self, text: str) -> str:
        return properties.without_secrets(text, self._settings)

    def _result(self, future: Future[Any]) -> Any:
        return future.result(self.timeout_seconds)


def is_end(message: Message) -> bool:
    """Whether a message says that a partition ends at its offset. `Kafka.receive` lets no other errors through."""
    return message.error() is not None
