"""A process that is a member of a group."""

import time

from pyspark_log import Consumer
from tests.processes.line_file import LineFile
from tests.processes.small_topic import error_of
from tests.processes.workers import told

SESSION_MS = 1_000
OPTIONS = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 100,
    "max_poll_records": 10,
}


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
        said = told(error_of(consumer.commit))
        before = consumer.group_metadata().member_id
        while not consumer.assignment() or consumer.group_metadata().member_id == before:
            consumer.poll(10)
        return said
