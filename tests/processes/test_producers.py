"""Producers of several processes that carry out each other's batches, while one process is killed (SIGKILL)."""

import signal
from collections import Counter

import pyarrow as pa

from pyspark_log import scan
from tests.processes.line_file import LineFile
from tests.processes.producer_workers import PRODUCERS, produce
from tests.support.plain_log import PlainLog

ROWS = 30
NAMES = "abc"


def test_rows_of_producers_that_answer_each_other_are_in_the_log_once_where_they_were_told(fork_server, folder):
    log = PlainLog(folder / "log")
    log.create("t", 3)
    done, answers = LineFile(str(folder / "done")), LineFile(str(folder / "answers"))

    def begin(name, rows):
        return fork_server.fork(produce, log.path, name, str(folder / "done"), str(folder / "answers"), rows)

    victim = begin("victim", None)
    others = [begin(name, ROWS) for name in NAMES]
    victim.wait_for(lambda: answers.lines().count("victim") >= PRODUCERS, "others have committed some of its rows")
    assert victim.kill() == -signal.SIGKILL
    for each in others:
        each.result()
    acknowledged = {}
    for partition, offset, value in (line.split() for line in done.lines()):
        acknowledged[int(partition), int(offset)] = value
    sent = {f"{name}-{number}-{index}" for name in NAMES for number in range(PRODUCERS) for index in range(ROWS)}
    assert sent < set(acknowledged.values()), "and some of the victim's"
    assert len(acknowledged) == len(done.lines()), "two rows were told the same offset"
    assert len(answers.lines()) > len(sent) // 10

    table = pa.table(scan(log.path, "t", columns=["partition", "offset", "value"]))
    rows = {(row["partition"], row["offset"]): row["value"].decode() for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    assert {place: rows.get(place) for place in acknowledged} == acknowledged
    assert max(Counter(rows.values()).values()) == 1
    assert len(rows) - len(acknowledged) <= PRODUCERS, "what the victim was sending"
