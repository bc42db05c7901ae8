"""A task's memory is bounded, whatever the number of rows and of partitions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plain_log import PlainLog

LIMIT_MIB = 512
WORKER = Path(__file__).parents[2] / "support" / "pyspark_log" / "writing" / "memory_worker.py"


@pytest.fixture
def log(root):
    return PlainLog(root)


def worker(log, *arguments):
    """What a process of its own did, and its VmHWM."""
    command = [sys.executable, str(WORKER), arguments[0], log.path, *map(str, arguments[1:])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(" ".join(map(str, arguments)), result)
    return result


@pytest.mark.slow
def test_three_million_rows_are_written_and_read_by_one_task_each(log):
    log.create("t", 1)
    for what in (("write", "t", 3_000_000), ("read", "t")):
        done = worker(log, *what)
        assert done["rows"] == 3_000_000
        assert done["mib"] < LIMIT_MIB


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "rows"), [(8, 3_000_000), (1_000, 1_000_000)])
def test_rows_of_many_partitions_are_written_by_one_task(log, partitions, rows):
    log.create("t", partitions)
    done = worker(log, "write", "t", rows)
    assert done["rows"] == rows == sum(p.high_watermark for p in log.log.topic("t").journal.state.partitions)
    assert done["mib"] < LIMIT_MIB
