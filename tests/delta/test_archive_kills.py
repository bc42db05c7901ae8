"""Programs that archive a topic and delete what is archived are killed: each row is in the table or in the log.

PYSPARK_LOG_ARCHIVE_KILLS=20 python -m pytest tests/delta/test_archive_kills.py      kills more often
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pyspark_log
from tests.support.plain_log import PlainLog

KILLS = int(os.environ.get("PYSPARK_LOG_ARCHIVE_KILLS", "1"))
VERSIONS = 4
"""How many versions of the table are made between two kills: a call makes two."""
SEED = 20_261_123

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + 120 * KILLS)]


def versions(table):
    return len(list(Path(table).glob("_delta_log/*.json")))


def test_after_kills_each_row_is_once_in_the_table_and_the_log(spark, tmp_path):
    log, table, dice = PlainLog(tmp_path / "log"), str(tmp_path / "table"), random.Random(SEED + KILLS)
    log.create("t", 2)
    written, stopped = [], threading.Event()

    def produce():
        with pyspark_log.Producer(log.path) as producer:
            while not stopped.is_set():
                written.append(str(len(written)))
                producer.send("t", written[-1], key=written[-1])
                time.sleep(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for nth in range(KILLS):
            with (tmp_path / "output").open("wb") as output:
                program = [sys.executable, "-m", "tests.support.delta.archive_program", log.path, "t", table]
                doomed = subprocess.Popen(program, stdout=output, stderr=output, start_new_session=True)
            due = versions(table) + VERSIONS + nth % 2  # after an append, and after a record of one
            while doomed.poll() is None and versions(table) < due:
                time.sleep(0.005)
            time.sleep(dice.random() * 0.3)
            assert doomed.poll() is None, (tmp_path / "output").read_text()
            os.killpg(doomed.pid, signal.SIGKILL)  # Python and its JVM
            doomed.wait()
            check(pyspark_log.read(spark, log.path, "t", archive=table))
    finally:
        stopped.set()
        thread.join()
    pyspark_log.archive(spark, log.path, "t", table)
    assert min(each.log_start for each in log.log.topic("t").refresh().partitions) > 0
    assert sorted(check(pyspark_log.read(spark, log.path, "t", archive=table))) == sorted(written)


def check(frame):
    """Assert that in each partition every offset is there once, and return the values."""
    rows = sorted(frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect())
    for p in (0, 1):
        offsets = [row.offset for row in rows if row.partition == p]
        assert offsets == list(range(len(offsets)))
    return [row.value for row in rows]
