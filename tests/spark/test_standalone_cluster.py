"""A program on a real cluster, whose executors have neither the packages nor rights to the journals."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.log_reader import read_topic
from tests.support.spark import cluster_program
from tests.support.spark.cluster_program import HELD_BATCH, NOBODY, ROWS
from tests.support.spark.kills import wait_for
from tests.support.spark.standalone_cluster import may_drop_rights, standalone_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The program's run, in which the worker dies on which the held-up task runs."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, workers=2) as cluster:
        lacks = subprocess.run(
            [cluster.python, "-c", "import pyspark, pyarrow, msgspec; import pyspark_log"],
            env=cluster.environment(),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        output = folder / "driver.txt"
        program = cluster.submit(
            Path(cluster_program.__file__),
            *(str(folder), "closed" if may_drop_rights() else "open"),
            output=output,
        )

        def is_there(name):
            assert program.poll() is None or (folder / name).exists(), output.read_text()[-8000:]
            return (folder / name).exists()

        try:
            wait_for(lambda: is_there("held"), "a task that is held up")
            dead = next(
                worker for worker in cluster.workers if worker.session == os.getsid(int((folder / "held").read_text()))
            )
            dead.kill()
            killed_at = time.monotonic()
            (folder / "go").touch()
            wait_for(lambda: is_there("seen.json"), "the program's end")
            program.wait()
            print(f"{time.monotonic() - killed_at:.1f} s from the kill to the end")
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        tasks = [json.loads(file.read_text()) for file in sorted((folder / "tasks").iterdir())]
        seen = json.loads((folder / "seen.json").read_text())
        yield SimpleNamespace(folder=folder, lacks=lacks, dead=dead.session, tasks=tasks, **seen)


def test_the_package_reaches_the_executors_in_a_zip_alone(run):
    assert "No module named 'pyspark_log'" in run.lacks.stderr
    assert run.rows == ROWS


def test_a_worker_that_dies_in_mid_batch_costs_a_retry_and_no_row(run):
    [retried] = [task for task in run.tasks if task["attempt"] > 0]
    assert (retried["batch"], retried["task"]) == (HELD_BATCH, 0)
    assert retried["session"] != run.dead
    contents = read_topic(run.folder / "log", "out")
    assert sorted(contents.numbers()) == list(range(ROWS))
    assert len(contents.of_producer(run.query)) == len(run.batches) > HELD_BATCH + 1
    assert sum(run.batches) == ROWS
    assert {task["task"] for task in run.tasks} == {0}, "the driver reads small batches, also for executors"
    assert (run.rows, run.distinct) == (ROWS, ROWS)


@pytest.mark.skipif(not may_drop_rights(), reason="needs root, and setpriv, to take rights from the executors")
def test_executors_write_only_into_two_kinds_of_folders_and_need_no_rights_to_the_journals(run):
    assert run.tasks
    assert all(task["opened"] == [] for task in run.tasks)
    temporary, *appended = [run.folder / "log/.tmp", *(run.folder / "log").glob("topics/out/*/append")]
    assert appended
    assert {each.stat().st_uid for each in (temporary, *appended)} == {NOBODY}
