"""Processes that have several producers of one topic."""

import threading
from itertools import count, islice

from pyspark_log import Producer
from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.journal.inbox import Inbox
from tests.processes.line_file import LineFile

PRODUCERS = 5


def produce(path: str, name: str, done: str, answers: str, rows: int | None) -> None:
    """Send rows from several producers, each one at a time, and note each that was acknowledged, and each answer.

    `rows` is how many each producer sends; None is forever.
    """
    pace.SLOW_SECONDS = 0.0  # as on a disk, so that those that lose an entry use the inbox
    answer = Inbox.answer

    def answer_and_note(inbox):
        found = answer(inbox)
        if found is not None:
            LineFile(answers).append(name)
        return found

    Inbox.answer = answer_and_note  # type: ignore[method-assign]

    def send(number: int) -> None:
        done_file = LineFile(done)
        with Producer(path, linger_ms=0) as producer:
            for index in islice(count(), rows):
                value = f"{name}-{number}-{index}"
                row = producer.send("t", value.encode()).result()
                done_file.append(f"{row.partition} {row.offset} {value}")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(PRODUCERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
