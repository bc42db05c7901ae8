"""Processes that are members of a group."""

import signal
import time
from contextlib import suppress

from pyspark_log import Consumer
from pyspark_log_coordinator.membership.shared_partitions import PartitionSharing
from pyspark_log_storage.errors import LogError
from tests.processes.line_file import LineFile
from tests.processes.workers import told

SESSION_MS = 1_000
OPTIONS = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 100,
    "max_poll_records": 10,
}
"""A program that waits for something tells it what it has, and may then be stopped or killed."""


def work_once(path, has, may_go_on):
    """Poll rows, wait until the test lets it go on, and return what a commit says then, and what the next poll does."""
    with Consumer(path, **OPTIONS) as consumer:
        consumer.subscribe(["t"])
        while not (rows := consumer.poll(100)):
            pass
        has_file, go_file = LineFile(has), LineFile(may_go_on)
        has_file.append(len(rows))
        while not go_file.lines():
            time.sleep(0.001)
        said = told(_error_of(consumer.commit))
        before = consumer.group_metadata().member_id
        while not consumer.assignment() or consumer.group_metadata().member_id == before:
            consumer.poll(10)
        return said


def work(path, done):
    """Poll rows forever, commit them, and note each that was committed."""
    done_file = LineFile(done)
    with Consumer(path, **OPTIONS) as consumer:
        consumer.subscribe(["t"])
        while True:
            rows = consumer.poll(100)
            with suppress(LogError):
                consumer.commit()
                for row in rows:
                    done_file.append(f"{row.partition} {row.offset}")


def lead_without_assigning(path, completed, count):
    """Lead the group; note that the join of so many members is complete, and do not assign their work."""
    assign = PartitionSharing.assign

    def assign_or_stall(self, group, members):
        if len(members) == count:
            LineFile(completed).append(group.generation)
            while True:  # its other thread shows that it is alive
                signal.pause()
        return assign(self, group, members)

    PartitionSharing.assign = assign_or_stall
    with Consumer(path, **OPTIONS) as consumer:
        consumer.subscribe(["t"])
        while True:
            consumer.poll(100)


def _error_of(call):
    try:
        call()
    except LogError as error:
        return error
    return None
