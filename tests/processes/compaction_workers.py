"""Who uses a compacted topic: writers, compactors, and readers that know what they may see. Each may be killed."""

import contextlib
import random
import time

import msgspec

import pyspark_log
from pyspark_log.clients.records import TopicPartition
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import DataLoss, LogError
from tests.processes.jepsen_workers import PATIENCE, PAUSE_S, SESSION_TIMEOUT_MS
from tests.processes.keyed_topic import KeyedClient, Placed, Row, keyed, newest_of, scanned, states, written
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES
from tests.processes.small_topic import PARTITIONS, TOPIC, make_constants_small, rows_of

ONCE = "x"
"""A producer whose batches have no ids: one that is not acknowledged may be in the log later than the next ones."""
SENT, ACKNOWLEDGED = "sent", "acknowledged"


def write(root: str, producer: str, progress: str, stop: str) -> None:
    """Write batch after batch, each until it is acknowledged: in the progress file is a line with its offsets."""
    make_constants_small()
    client, outcomes = KeyedClient(root), LineFile(progress)
    batch = len(outcomes.lines())
    pending = False
    while pending or not LineFile(stop).lines():
        pending = True
        try:
            client.log.open(create=False)  # as Spark does for each batch
            offsets = client.write(producer, batch, PATIENCE)
        except LogError:
            time.sleep(PAUSE_S)
            continue
        time.sleep(PAUSE_S)  # whoever is killed here writes the batch again
        outcomes.append(msgspec.json.encode(offsets).decode())
        batch += 1
        pending = False


def produce(root: str, producer: str, progress: str, stop: str) -> None:
    """Write batch after batch with a Producer, each once: whether one that fails is in the log, nobody knows."""
    make_constants_small()
    outcomes = LineFile(progress)
    batch = sum(line.startswith(SENT) for line in outcomes.lines())
    with contextlib.suppress(LogError), pyspark_log.Producer(root, {"delivery.timeout.ms": 1000}) as client:
        while not LineFile(stop).lines():
            outcomes.append(f"{SENT} {batch}")
            with contextlib.suppress(LogError):
                with client.batch() as rows:
                    for p, names in rows_of(producer, batch).items():
                        for key, value, timestamp in map(keyed, names):
                            rows.send(TOPIC, value, key=key, partition=p, timestamp_ms=timestamp // 1000)
                outcomes.append(f"{ACKNOWLEDGED} {batch}")
            time.sleep(PAUSE_S)
            batch += 1


def compact(root: str, stop: str, *, nodes_go: bool = False) -> None:
    """Compact and clean up, as fast as it goes."""
    make_constants_small()
    client = KeyedClient(root)
    while not LineFile(stop).lines():
        with contextlib.suppress(LogError) if nodes_go else contextlib.nullcontext():
            client.log.open(create=False)
            client.maintain()
            client.clean_up_topic()


def keep(root: str, end: str) -> None:
    """Do what `pyspark-log node run` does, for every node."""
    make_constants_small()
    client = KeyedClient(root)
    controller = Controller(client.log, ControllerSettings(SESSION_TIMEOUT_MS))
    followers = [Follower(client.log, node) for node in NODES]
    while not LineFile(end).lines():
        with contextlib.suppress(LogError):
            controller.round(lambda *_: None)
        for node, follower in zip(NODES, followers, strict=True):
            with contextlib.suppress(LogError):  # its node is away
                follower.round()
                topic_roll.roll_led_by(client.log, node, lambda *_: None)
        time.sleep(PAUSE_S)


def move(root: str, stop: str) -> None:
    """Move replicas between the nodes, again and again; in the end each node has one of each partition."""
    make_constants_small()
    client, dice = KeyedClient(root), random.Random()
    while True:
        is_last = bool(LineFile(stop).lines())
        wanted = [
            tuple(NODES) if is_last else tuple(dice.sample(NODES, dice.choice([2, 3]))) for _ in range(PARTITIONS)
        ]
        try:
            client.log.open(create=False)
            handle = client.handle
            reassigner.begin(handle, tuple(wanted))
            reassigner.run(handle)
        except LogError:  # a node is away
            time.sleep(PAUSE_S)
        else:
            if is_last and not reassigner.reassigning_partitions(handle.refresh()):
                return


def look(root: str, progress: dict[str, str], looks: str, stop: str, *, nodes_go: bool = False) -> None:
    """Read the newest rows again and again, and hold them against what was acknowledged; `looks` has a line for each.

    `progress` are the files of the producers. Of each the rows are those after some number of its batches, the same in
    both partitions: all that were acknowledged before the look, and at most the one after those that were after it.
    An error is that rows were compacted while they were read, or, if `nodes_go`, that they cannot be read now.
    """
    make_constants_small()
    outcomes = LineFile(looks)
    while not LineFile(stop).lines():
        least = {producer: len(LineFile(path).lines()) for producer, path in progress.items()}
        try:
            rows = scanned(root, latest=True)
        except LogError as error:
            is_compacted = isinstance(error, DataLoss) and "were compacted while they were read" in error.message
            if not is_compacted and not (nodes_go and error.retriable):
                raise
            outcomes.append("compacted" if is_compacted else "failed")
            continue
        for producer, path in progress.items():
            check_look(producer, rows, least[producer], len(LineFile(path).lines()) + 1)
        outcomes.append("seen")


def check_look(producer: str, rows: list[Placed], least: int, most: int) -> None:
    """Hold that the newest rows of a producer are those after so many of its batches, `least` to `most`."""
    found = states(placed for placed in rows if placed.row.key.startswith(b"%s/" % producer.encode()))
    for batches in range(least, most + 1):
        rows_then = written(producer, batches)
        if all(found[p] == newest_of(rows_then.get(p, ())) for p in range(PARTITIONS)):
            return
    raise AssertionError(f"after {least} to {most} batches of {producer} there is {found}")


class Followed(msgspec.Struct):
    """The newest rows by partition and key that a consumer has seen, deletions too, and where it is."""

    state: dict[int, dict[bytes, Row]]
    offsets: list[int]
    failed: int = 0


def follow(root: str, end: str, *, nodes_go: bool = False) -> Followed:
    """Consume the topic from its first row to its end, and keep the newest row of each key."""
    make_constants_small()
    seen = Followed({p: {} for p in range(PARTITIONS)}, [0] * PARTITIONS)
    with pyspark_log.Consumer(root, auto_offset_reset="none", max_poll_records=5) as consumer:
        places = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        consumer.assign(places, dict.fromkeys(places, 0))
        while True:
            is_last = bool(LineFile(end).lines())
            try:
                records = consumer.poll()
            except LogError as error:
                if not (nodes_go and error.retriable):
                    raise
                seen.failed += 1
                continue
            for each in records:
                assert each.offset >= seen.offsets[each.partition], "an offset goes back"
                seen.offsets[each.partition] = each.offset + 1
                row = Row(each.key, each.value, each.timestamp * 1000)
                older = seen.state[each.partition].get(each.key, row)
                may_be_late = each.key.startswith(b"%s/" % ONCE.encode())
                assert may_be_late or older is row or older.timestamp < row.timestamp, f"{row} comes after {older}"
                seen.state[each.partition][each.key] = row
            if is_last and not records:
                return seen
