"""The clients of the torture. Each is a process that writes down what it sees, and is stopped or killed at any time.

An error of the log is no news to them: they write down what it says of their call, and go on. Any other ends them.
"""

import contextlib
import functools
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import ParamSpec

import msgspec
import pyarrow as pa

from pyspark_log import Consumer, ConsumerRebalanceListener, Producer, scan
from pyspark_log.clients.records import BatchMetadata, ConsumerBatch, ConsumerRecord, RecordMetadata, TopicPartition
from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_storage.errors import LogError, LogMoved, NotEnoughReplicasAfterAppend, OutcomeUnknown, StoreError
from tests.history.events import Assign, Commit, Committed, Delete, Poll, Read, Result, Row, Send
from tests.history.recorder import LineFile, Recorder
from tests.support.coordinator.keyed_topic import KeyedClient
from tests.support.coordinator.small_topic import PARTITIONS, TOPIC, TopicClient, rows_of
from tests.torture.nodes import NODES

P = ParamSpec("P")
KEYED, EXPIRING, TYPED = "keyed", "expiring", "typed"
TOPICS = (TOPIC, KEYED, EXPIRING, TYPED)
"""The first has rows that are deleted, the second is compacted, rows of the third expire, the last is typed."""
COLUMNS = pa.schema([("value", pa.string())])
"""Those of the typed topic."""
GROUP = "group"
KEYS = 40
ROWS_KEPT = 2_000
ROWS_AT_ONCE = 30
DELIVERY_MS = (200, 3_000)
SESSION_TIMEOUT_MS = 150
PAUSE_S = 0.02
PATIENCE = RetryPolicy(retry_backoff_ms=10, delivery_timeout_ms=2_000, session_timeout_ms=SESSION_TIMEOUT_MS)
NEWEST = 200
"""So many rows of a partition a scan reads, if it does not read all."""


def result_of(error: BaseException | None) -> Result:
    """Return what the error of a row says of it: each is definite but these."""
    if error is None:
        return "ok"
    return "unknown" if isinstance(error, (OutcomeUnknown, NotEnoughReplicasAfterAppend)) else "refused"


def starts_again(work: Callable[P, None]) -> Callable[P, None]:
    """Let a worker begin anew when the journals have moved, as a query or a program with a client does."""

    @functools.wraps(work)
    def work_again(*args: P.args, **named: P.kwargs) -> None:
        while True:
            try:
                return work(*args, **named)
            except LogMoved:
                time.sleep(PAUSE_S)

    return work_again


def produce(root: str, histories: str, stop: str) -> None:
    """Send rows with a Producer until the stop, a few at once to one of the topics, and wait for them."""
    pace.SLOW_SECONDS = 0.0  # memory is so fast that nobody would use the inbox
    history, dice, numbers = Recorder(histories, "producer"), random.Random(), itertools.count()
    options = {
        "delivery.timeout.ms": dice.choice(DELIVERY_MS),
        "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
        "linger.ms": 1,
    }
    with Producer(root, options) as producer:
        while not LineFile(stop).lines():
            topic = dice.choice(TOPICS)
            rows = [_row(dice, topic, f"{history.who}/{next(numbers)}") for _ in range(dice.randint(1, ROWS_AT_ONCE))]
            send(producer, history, topic, rows)
            time.sleep(dice.choice([0, dice.uniform(0, PAUSE_S * 10)]))


def send(producer: Producer, history: Recorder, topic: str, rows: list[Row], acks: Acks = "all") -> set[Result]:
    """Send rows at once, and write down what becomes of each; return which outcomes there were."""
    began = history.now()
    history.add(Send(history.who, began, began, topic, rows, "unknown", acks))
    outcomes: defaultdict[Result, list[Row]] = defaultdict(list)
    for row, error in _sent_batch(producer, rows) if topic == TYPED else _sent(producer, topic, rows):
        assert error is None or isinstance(error, LogError), error
        outcomes[result_of(error)].append(row)
    for result, those in outcomes.items():
        history.add(Send(history.who, began, history.now(), topic, those, result, acks))
    return set(outcomes)


def _row(dice: random.Random, topic: str, value: str) -> Row:
    key = f"key-{dice.randrange(KEYS)}" if topic == KEYED else None
    return Row(sum(map(ord, key)) % PARTITIONS if key else dice.randrange(PARTITIONS), None, value, key)


def _sent(producer: Producer, topic: str, rows: list[Row]) -> Iterator[tuple[Row, BaseException | None]]:
    """Send rows, and return each with its place, if it is acknowledged, or with its error."""
    for row, future in [(row, _send(producer, topic, row)) for row in rows]:
        error = future.exception()
        yield row if error else _placed(row, future.result()), error


def _sent_batch(producer: Producer, rows: list[Row]) -> Iterator[tuple[Row, BaseException | None]]:
    """Send rows as one batch to the typed topic, and return what `_sent` returns."""
    places: dict[int, Iterator[int]] = {}
    error: LogError | None = None
    columns = {"value": [row.value for row in rows], "partition": pa.array([row.partition for row in rows], pa.int32())}
    try:
        found: BatchMetadata = producer.send_batch(TYPED, pa.table(columns)).result()
        places = {p: iter(range(begin, end)) for p, (begin, end) in found.offsets.items()}
    except LogError as raised:
        error = raised
    for row in rows:
        yield row._replace(offset=next(places[row.partition], None) if row.partition in places else None), error


def _send(producer: Producer, topic: str, row: Row) -> "Future[RecordMetadata]":
    try:
        return producer.send(topic, row.value, key=row.key, partition=row.partition)
    except LogError as error:
        refused: Future[RecordMetadata] = Future()
        refused.set_exception(error)
        return refused


def _placed(row: Row, metadata: RecordMetadata) -> Row:
    return row._replace(offset=metadata.offset if metadata.offset >= 0 else None)


class _Listener(ConsumerRebalanceListener):
    """Writes down where a member begins with the partitions that it gets: at what the group has committed."""

    def __init__(self, consumer: Consumer, history: Recorder) -> None:
        self._consumer, self._history = consumer, history

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.on_partitions_revoked(assigned)
        began, now = self._history.now(), self._history.now
        with contextlib.suppress(LogError):
            found = self._consumer.committed(list(assigned))
            for topic in {key.topic for key in found}:
                offsets = {key.partition: each and each.offset for key, each in found.items() if key.topic == topic}
                self._history.add(Committed(self._history.who, began, now(), GROUP, topic, offsets))
                self._assign(topic, {p: offset or 0 for p, offset in offsets.items()})

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        for topic, p in revoked:
            self._assign(topic, {p: None})

    on_partitions_lost = on_partitions_revoked

    def _assign(self, topic: str, offsets: dict[int, int | None]) -> None:
        self._history.add(Assign(self._history.who, self._history.now(), self._history.now(), topic, offsets))


@starts_again
def consume(root: str, histories: str, end: str) -> None:
    """Be a member of a group that shares the topics, and commit."""
    history, dice = Recorder(histories, "member"), random.Random()
    options = {
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 2_000,
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": "cooperative-sticky",
        "default.api.timeout.ms": 2_000,
    }
    is_typed = dice.random() < 0.7
    with Consumer(root, options) as consumer:
        topics = [topic for topic in TOPICS if is_typed or topic != TYPED]
        consumer.subscribe(topics, listener=_Listener(consumer, history))
        while not LineFile(end).lines():
            try:
                rows = _poll(consumer, history, as_batches=is_typed)
                if rows and dice.random() < 0.7:
                    _commit(history, consumer, rows)
            except LogMoved:
                raise
            except LogError:
                time.sleep(PAUSE_S)
        with contextlib.suppress(LogError):
            consumer.close()


def _poll(consumer: Consumer, history: Recorder, *, as_batches: bool) -> list[tuple[str, Row]]:
    """Poll, write down the rows, and return each with its topic. Rows of typed topics are only got as batches."""
    began = history.now()
    rows: list[tuple[str, Row]] = []
    for each in consumer.poll_batches(100) if as_batches else consumer.poll(100):
        rows += _rows_of(each) if isinstance(each, ConsumerBatch) else [_row_of(each)]
    for topic in {topic for topic, _ in rows}:
        history.add(Poll(history.who, began, history.now(), topic, [row for of, row in rows if of == topic]))
    return rows


def _row_of(record: ConsumerRecord) -> tuple[str, Row]:
    return record.topic, Row(record.partition, record.offset, record.value.decode())


def _rows_of(batch: ConsumerBatch) -> Iterator[tuple[str, Row]]:
    offsets = (
        range(batch.offset, batch.offset + len(batch.rows)) if batch.offsets is None else batch.offsets.to_pylist()
    )
    for offset, value in zip(offsets, _texts(batch.rows), strict=True):
        yield batch.topic, Row(batch.partition, offset, value)


def _texts(rows: pa.RecordBatch) -> list[str]:
    return rows.column("value").cast(pa.string()).to_pylist()


def _commit(history: Recorder, consumer: Consumer, rows: list[tuple[str, Row]]) -> None:
    offsets = {TopicPartition(topic, p): offset + 1 for topic, (p, offset, _, _) in rows if offset is not None}
    began = history.now()
    error: LogError | None = None

    def add(result: Result) -> None:
        for topic in {key.topic for key in offsets}:
            those = {key.partition: offset for key, offset in offsets.items() if key.topic == topic}
            history.add(Commit(history.who, began, history.now(), GROUP, topic, those, result))

    add("unknown")
    try:
        consumer.commit(offsets)
    except LogError as raised:
        error = raised
    add("unknown" if isinstance(error, (OutcomeUnknown, StoreError)) else "refused" if error else "ok")


@starts_again
def follow(root: str, histories: str, topic: str, end: str) -> None:
    """Read a topic without a group from its first row to its end."""
    history = Recorder(histories, f"reader of {topic}")
    with Consumer(root, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(places, dict.fromkeys(places, 0))
        history.add(Assign(history.who, history.now(), history.now(), topic, dict.fromkeys(range(PARTITIONS), 0)))
        while True:
            is_last = bool(LineFile(end).lines())
            began = history.now()
            try:
                rows = _poll(consumer, history, as_batches=topic == TYPED)
                if is_last and not rows:
                    reached = {p: consumer.position(places[p]) for p in range(PARTITIONS)}
                    history.add(Read(history.who, began, began, topic, [], reached))
                    return
            except LogMoved:
                raise
            except LogError:
                time.sleep(PAUSE_S)


def look(root: str, histories: str, end: str) -> None:
    """Scan the topics again and again, whole or their newest rows."""
    history, dice = Recorder(histories, "scanner"), random.Random()
    reached: dict[str, dict[int, int]] = {topic: {} for topic in TOPICS}
    while not LineFile(end).lines():
        topic = dice.choice(TOPICS)
        start = {p: max(0, offset - NEWEST) for p, offset in reached[topic].items()} if dice.random() < 0.9 else {}
        is_latest = topic == KEYED and dice.random() < 0.3
        with contextlib.suppress(LogError):
            rows = scan_once(root, history, topic, {} if is_latest else start, latest=is_latest)
            reached[topic] |= {p: offset for p, offset, _, _ in rows}
        time.sleep(PAUSE_S * 5)


def scan_once(root: str, history: Recorder, topic: str, start: dict[int, int], *, latest: bool = False) -> list[Row]:
    """Scan a topic, and write down what there is, by partition in the order of offsets."""
    began = history.now()
    columns = ["partition", "offset", "value"]
    bounds = start if len(start) == PARTITIONS else {}
    found = scan(root, topic, bounds or "earliest", columns=columns, latest=latest, options={"failOnDataLoss": "false"})
    rows = [
        Row(p, offset, value)
        for batch in found
        for p, offset, value in zip(*(batch.column(c).to_pylist() for c in columns[:2]), _texts(batch), strict=True)
    ]
    history.add(Read(history.who, began, history.now(), topic, rows, bounds))
    return rows


def maintain(root: str, histories: str, end: str) -> None:
    """Roll, compact, expire and clean up, and delete old rows."""
    history = Recorder(histories, "maintainer")
    clients = {topic: TopicClient(root, topic=topic) for topic in TOPICS}
    while not LineFile(end).lines():
        for topic, client in clients.items():
            with contextlib.suppress(LogError):
                client.log.open(create=False)
                client.maintain()
                client.clean_up_topic()
                if topic == TOPIC:
                    _delete(history, client)
        time.sleep(PAUSE_S * 10)


def _delete(history: Recorder, client: TopicClient) -> None:
    handle = client.handle
    for p, each in enumerate(handle.partitions):
        before = each.high_watermark - ROWS_KEPT
        if before > each.log_start + ROWS_KEPT / 4:
            history.add(Delete(history.who, history.now(), history.now(), TOPIC, {p: before}))
            handle.submit(DeleteRecords(p, before))


def query(root: str, producer: str, progress: str, histories: str, stop: str) -> None:
    """Write batch after batch, each until it is acknowledged: then the progress file has a line for it."""
    pace.SLOW_SECONDS = 0.0  # memory is so fast that nobody would use the inbox
    client, outcomes, history = TopicClient(root), LineFile(progress), Recorder(histories, producer)
    pending = False
    while pending or not LineFile(stop).lines():
        pending = True
        batch = len(outcomes.lines())
        sent = _begin_batch(history, producer, batch)
        try:
            client.log.open(create=False)  # as Spark does for each batch
            _end_batch(history, sent, client.write(producer, batch, PATIENCE))
        except LogError:
            time.sleep(PAUSE_S)
            continue
        time.sleep(PAUSE_S)  # whoever is killed here writes the batch again
        outcomes.append("written")
        pending = False


def _begin_batch(history: Recorder, producer: str, batch: int) -> Send:
    """Note that a batch is about to be written; return what was noted."""
    rows = [Row(p, None, value.decode()) for p, values in rows_of(producer, batch).items() for value in values]
    now = history.now()
    sent = Send(history.who, now, now, TOPIC, rows, "unknown")
    history.add(sent)
    return sent


def _end_batch(history: Recorder, sent: Send, offsets: dict[int, tuple[int, int]]) -> None:
    """Note that a batch was acknowledged. Where it is may not be known, if it was rolled before it was repeated."""
    places = {p: itertools.count(begin) for p, (begin, _) in offsets.items()}
    rows = [row._replace(offset=next(places[row.partition]) if row.partition in places else None) for row in sent.rows]
    history.add(msgspec.structs.replace(sent, ended=history.now(), rows=rows, result="ok"))


def keep(root: str, end: str) -> None:
    """Do what `pyspark-log node run` does, for every node."""
    client = KeyedClient(root)
    controller = Controller(client.log, ControllerSettings(SESSION_TIMEOUT_MS))
    followers = [Follower(client.log, node) for node in NODES]
    while not LineFile(end).lines():
        with contextlib.suppress(LogError):
            client.log.open(create=False)
            controller.round(lambda *_: None)
        for node, follower in zip(NODES, followers, strict=True):
            with contextlib.suppress(LogError):  # its node is away
                follower.round()
                topic_roll.roll_led_by(client.log, node, lambda *_: None)
        time.sleep(PAUSE_S)
