"""Who answers Jepsen's questions: writers, readers, and a keeper of the nodes, each a process that may be killed."""

import contextlib
import time

import msgspec

from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync.controller import Controller, ControllerSettings
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import BatchMismatch, LogError
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES
from tests.processes.small_topic import PARTITIONS, TOPIC, TopicClient, Values
from tests.support.direct import Stream

SESSION_TIMEOUT_MS = 150
PAUSE_S = 0.02
PATIENCE = RetryPolicy(retry_backoff_ms=10, delivery_timeout_ms=2_000, session_timeout_ms=SESSION_TIMEOUT_MS)


class Seen(msgspec.Struct):
    """What a reader saw: by partition the values from offset 0 on, in how many polls, and how many of these failed."""

    rows: Values
    polls: int
    failed: int


def write(root: str, producer: str, acks: Acks, progress: str, stop: str) -> int:
    """Write batch after batch, each until it is acknowledged or reported lost; return how often one was tried again.

    Start with the first batch that has no line in the progress file. The line of a batch has its offsets.
    """
    pace.SLOW_SECONDS = 0.0  # memory is so fast that nobody would use the inbox
    client, outcomes, again = TopicClient(root), LineFile(progress), 0
    batch = len(outcomes.lines())
    pending = False
    while pending or not LineFile(stop).lines():
        pending = True
        try:
            client.log.open(create=False)  # as Spark does for each batch
            offsets = client.write(producer, batch, PATIENCE, acks=acks)
        except BatchMismatch:
            if acks == "all":
                raise
            outcomes.append("lost")
        except LogError:
            again += 1
            time.sleep(PAUSE_S)
            continue
        else:
            time.sleep(PAUSE_S)  # whoever is killed here writes the batch again
            outcomes.append(msgspec.json.encode(offsets).decode())
        batch += 1
        pending = False
    return again


def keep(root: str, end: str) -> None:
    """Do what `pyspark-log node run` does, for every node."""
    client = TopicClient(root)
    controller = Controller(client.log, ControllerSettings(SESSION_TIMEOUT_MS))
    followers = [Follower(client.log, node) for node in NODES]
    while not LineFile(end).lines():
        with contextlib.suppress(LogError):
            controller.round(lambda *_: None)
        for follower in followers:
            with contextlib.suppress(LogError):  # its node is away
                follower.round()
        time.sleep(PAUSE_S)


def read(root: str, end: str) -> Seen:
    """Poll the topic until all of it is read, and hold that nothing goes back and nothing is left out."""
    seen = Seen({p: [] for p in range(PARTITIONS)}, 0, 0)
    stream = Stream(root, subscribe=TOPIC, startingOffsets="earliest")
    while True:
        is_last = bool(LineFile(end).lines())
        seen.polls += 1
        try:
            rows = stream.batch()
        except LogError as error:
            if not error.retriable:
                raise
            seen.failed += 1
            continue
        if rows is None:
            if is_last:
                return seen
            time.sleep(PAUSE_S)
            continue
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
            p, offset = row["partition"], row["offset"]
            due = len(seen.rows[p])
            assert offset == due, f"partition {p}: offset {offset} comes where {due} is due"
            seen.rows[p].append(row["value"])
