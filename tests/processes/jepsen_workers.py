"""Writers and readers that write a history down, each a process that may be killed."""

import itertools
import time

import msgspec

from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import LogError
from tests.history.events import Assign, Poll, Read, Row, Send
from tests.history.recorder import Recorder
from tests.processes.line_file import LineFile
from tests.processes.small_topic import PARTITIONS, TOPIC, TopicClient, rows_of
from tests.support.direct import Stream

SESSION_TIMEOUT_MS = 150
PAUSE_S = 0.02
PATIENCE = RetryPolicy(retry_backoff_ms=10, delivery_timeout_ms=2_000, session_timeout_ms=SESSION_TIMEOUT_MS)


def write(root: str, producer: str, progress: str, histories: str, stop: str) -> None:
    """Write batch after batch, each until it is acknowledged: then the progress file has a line for it."""
    pace.SLOW_SECONDS = 0.0  # memory is so fast that nobody would use the inbox
    client, outcomes, history = TopicClient(root), LineFile(progress), Recorder(histories, producer)
    pending = False
    while pending or not LineFile(stop).lines():
        pending = True
        batch = len(outcomes.lines())
        sent = begin_batch(history, producer, batch)
        try:
            client.log.open(create=False)  # as Spark does for each batch
            end_batch(history, sent, client.write(producer, batch, PATIENCE))
        except LogError:
            time.sleep(PAUSE_S)
            continue
        time.sleep(PAUSE_S)  # whoever is killed here writes the batch again
        outcomes.append("written")
        pending = False


def begin_batch(history: Recorder, producer: str, batch: int) -> Send:
    """Note that a batch is about to be written; return what was noted."""
    rows = [Row(p, None, value.decode()) for p, values in rows_of(producer, batch).items() for value in values]
    now = history.now()
    sent = Send(history.who, now, now, TOPIC, rows, "unknown")
    history.add(sent)
    return sent


def end_batch(history: Recorder, sent: Send, offsets: dict[int, tuple[int, int]]) -> None:
    """Note that a batch was acknowledged. Where it is may not be known, if it was rolled before it was repeated."""
    places = {p: itertools.count(begin) for p, (begin, _) in offsets.items()}
    rows = [row._replace(offset=next(places[row.partition]) if row.partition in places else None) for row in sent.rows]
    history.add(msgspec.structs.replace(sent, ended=history.now(), rows=rows, result="ok"))


def read(root: str, histories: str, end: str) -> int:
    """Poll the topic until all of it is read; return how many polls failed."""
    history, failed = Recorder(histories, "reader"), 0
    history.add(Assign(history.who, history.now(), history.now(), TOPIC, dict.fromkeys(range(PARTITIONS), 0)))
    stream, reached = Stream(root, subscribe=TOPIC, startingOffsets="earliest"), dict.fromkeys(range(PARTITIONS), 0)
    while True:
        is_last = bool(LineFile(end).lines())
        began = history.now()
        try:
            rows = stream.batch()
        except LogError as error:
            if not error.retriable:
                raise
            failed += 1
            continue
        if rows is not None:
            seen = [Row(row["partition"], row["offset"], row["value"].decode()) for row in rows]
            history.add(Poll(history.who, began, history.now(), TOPIC, sorted(seen)))
            reached |= {row.partition: row.offset + 1 for row in sorted(seen)}
        elif is_last:
            history.add(Read(history.who, began, history.now(), TOPIC, [], reached))
            return failed
        else:
            time.sleep(PAUSE_S)
