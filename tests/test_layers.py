"""The three packages import lightly, and look into one another only where they may. `make check` has the layers."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.support.bare_venv import environment_with_pandas
from tests.support.direct import Stream, source
from tests.support.plain_log import PlainLog

ROOT = Path(__file__).parent.parent

IMPORT_ALL = """
import sys
import pyspark_log, pyspark_log_coordinator, pyspark_log_storage
print(*{name.partition(".")[0] for name in sys.modules})
"""

HEAVY = {"numpy", "pandas", "pyarrow", "pyspark", "rich", "typer"}

# What Spark's worker process has by itself comes first. pandas need not be there: to look for it is enough.
TASKS = """
import json, pickle, sys
import pyarrow, pyspark.worker, pyspark.sql.datasource, pyspark.sql.streaming.datasource
from pyspark import TaskContext

class Lookout:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            sought.append(name)

def imported():
    return sorted({*sys.modules, *sought} - before)

sought, found, before = [], {}, set(sys.modules)
sys.meta_path.insert(0, Lookout())
context = TaskContext._getOrCreate()
context._partitionId, context._localProperties = 0, {}
for name, task, given in pickle.load(sys.stdin.buffer):
    task = pickle.loads(task)
    if name.startswith("read"):
        assert sum(batch.num_rows for split in pickle.loads(given) for batch in task.read(split)) == 2
    else:
        assert task.write(pyarrow.ipc.open_stream(given)).files
    found[name] = imported()
print(json.dumps(found))
"""

MAY_COME_WITH_A_TASK = {
    "cluster",
    "cluster.nodes",
    "environment",
    "model",
    "model.batch",
    "model.partition",
    "model.settings",
    "model.timestamps",
    "model.topic_config",
    "retry",
}
"""Modules of the coordinator: small values, and no state machine."""


def python(script: str, stdin: bytes = b"") -> str:
    command, env = [sys.executable, "-c", script], environment_with_pandas()
    process = subprocess.run(command, cwd=ROOT, env=env, input=stdin, capture_output=True, check=False)
    assert process.returncode == 0, (process.stdout + process.stderr).decode()
    return process.stdout.decode()


def test_pyspark_log_asks_handles_and_does_not_look_into_journals():
    # Else no rule of the coordinator could change the shape of its state alone.
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "pyspark_log").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "journal"
    ]
    assert not found


@pytest.mark.deep
def test_importing_the_packages_imports_nothing_heavy():
    # Spark imports every top-level pyspark_* module, in a new process, when it looks for sources.
    heavy = HEAVY & set(python(IMPORT_ALL).split())
    assert not heavy


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What a worker process has imported after each of some tasks, which it does one after another."""
    path = tmp_path_factory.mktemp("log")
    log = PlainLog(path)
    log.create("t", 2)
    log.append("t", {0: [b"a"], 1: [b"b"]})
    batch = source(path, subscribe="t")
    reader = batch.reader(batch.schema())
    stream = Stream(path, subscribe="t", startingOffsets="earliest")
    begin = stream.start
    assert stream.batch() is not None
    frame = StructType([StructField("value", BinaryType())])
    tasks = [
        ("read a batch", reader, cloudpickle.dumps(reader.partitions())),
        ("read a stream", stream.reader, cloudpickle.dumps(stream.reader.partitions(begin, stream.start))),
        ("write", source(path, topic="t").writer(frame, overwrite=False), ipc(pa.record_batch({"value": [b"c"]}))),
    ]
    pickled = [(name, cloudpickle.dumps(task), given) for name, task, given in tasks]
    return {name: set(modules) for name, modules in json.loads(python(TASKS, cloudpickle.dumps(pickled))).items()}


def ipc(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes: to make it would import what the task must not."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.deep
def test_a_task_imports_neither_state_machines_nor_what_the_driver_does_nor_pandas(imported):
    """Each worker process pays for it, and each of its tasks for what the collector then walks through.

    pyarrow would import pandas for many a conversion, where it is installed: a quarter of a second for each worker. A
    writing task ends with such a conversion of pyspark's own.
    """
    for modules in imported.values():
        coordinator = {name.partition(".")[2] for name in modules if name.startswith("pyspark_log_coordinator.")}
        assert coordinator <= MAY_COME_WITH_A_TASK
        assert not [name for name in modules if name.startswith("pyspark_log.options")]
        assert not modules & {"pyspark_log.reading.planning", "pyspark_log_coordinator.commit.inline_maintenance"}
    assert "pandas" not in imported["read a stream"]
