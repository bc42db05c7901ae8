"""Who uses a compacted topic: writers, compactors, and readers that know what they may see. Each may be killed."""

import contextlib
import time

import pyspark_log
from pyspark_log.clients.records import TopicPartition
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import DataLoss, LogError
from tests.processes.jepsen_workers import PATIENCE, PAUSE_S, SESSION_TIMEOUT_MS
from tests.processes.keyed_topic import KeyedClient, newest_of, scanned, states, written
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES
from tests.processes.small_topic import PARTITIONS, TOPIC, make_constants_small


def write(root: str, producer: str, progress: str, stop: str) -> None:
    """Write batch after batch, each until it is acknowledged: then the progress file has a line for it."""
    make_constants_small()
    client, outcomes = KeyedClient(root), LineFile(progress)
    while not LineFile(stop).lines():
        with contextlib.suppress(LogError):
            client.write(producer, len(outcomes.lines()), PATIENCE)
            time.sleep(PAUSE_S)  # whoever is killed here writes the batch again
            outcomes.append("written")


def compact(root: str, stop: str) -> None:
    """Compact and clean up, as fast as it goes."""
    make_constants_small()
    client = KeyedClient(root)
    while not LineFile(stop).lines():
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


def look(root: str, producer: str, progress: str, looks: str, stop: str) -> None:
    """Read the newest rows again and again, and hold them against what was acknowledged; `looks` has a line for each.

    The rows are those after some number of the producer's batches, the same in both partitions: all that were
    acknowledged before the look, and at most the one after those that were after it.
    """
    make_constants_small()
    outcomes = LineFile(looks)
    while not LineFile(stop).lines():
        least = len(LineFile(progress).lines())
        try:
            found = states(scanned(root, latest=True))
        except DataLoss as error:
            if "were compacted while they were read" not in error.message:
                raise
            continue
        expected = (written(producer, batches) for batches in range(least, len(LineFile(progress).lines()) + 2))
        newest = [{p: newest_of(rows.get(p, ())) for p in range(PARTITIONS)} for rows in expected]
        assert found in newest, f"after {least} batches or more there is {found}"
        outcomes.append("seen")


def follow(root: str, end: str) -> None:
    """Consume the topic from its first row on: offsets ascend, and no older row of a key comes after a newer one."""
    make_constants_small()
    newest: dict[tuple[int, bytes], int] = {}
    offsets = [0] * PARTITIONS
    with pyspark_log.Consumer(root, auto_offset_reset="none", max_poll_records=5) as consumer:
        places = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        consumer.assign(places, dict.fromkeys(places, 0))
        while not LineFile(end).lines():
            for each in consumer.poll():
                assert each.offset >= offsets[each.partition], "an offset goes back"
                offsets[each.partition] = each.offset + 1
                assert newest.get((each.partition, each.key), -1) < each.timestamp, f"{each} comes after a newer row"
                newest[each.partition, each.key] = each.timestamp
