"""Spark Connect and Declarative Pipelines: a server that has the packages, and clients on machines that do not."""

import json
import os
import re
import signal
import socket
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pyspark_log import Producer, scan
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.columns.column_ddl import parse
from tests.conftest import PACKAGE_FOLDERS
from tests.support import class_archive
from tests.support.bare_venv import bare_environment, bare_python, environment_with_pandas
from tests.support.log_reader import read_topic
from tests.support.plain_log import PlainLog
from tests.support.spark import connect_client, connect_history, merge_catalog
from tests.support.spark.connect_client import ROWS
from tests.support.spark.kills import wait_for

pytestmark = pytest.mark.slow

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server, and what its clients need."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    properties = class_archive.CONF / "spark-defaults.conf"
    jar = folder / "catalog.jar"
    merge_catalog.make_jar(jar)
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.jars": jar,
        "spark.sql.catalog.lake": merge_catalog.CLASS,
    }
    command = [class_archive.HOME / "bin" / "spark-submit", "--class", SERVER, "--properties-file", properties]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with (folder / "server.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=folder,
            env=environment_with_pandas(),  # foreachBatch makes a client in the server's Python worker
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def listens():
        assert process.poll() is None, (folder / "server.txt").read_text()
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, "the server listens", poll_s=0.05)
        bare = bare_python(folder / "venv")
        yield SimpleNamespace(address=f"sc://127.0.0.1:{port}", python=bare, folder=folder)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def run(server, *command, **variables):
    """Run a client, and return what it prints."""
    quick = {
        name: class_archive.environment()[name] for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
    }
    environment = {
        **bare_environment(),
        **quick,
        "PYSPARK_PYTHON": str(server.python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **variables,
    }
    done = subprocess.run(
        list(map(str, command)), env=environment, cwd=server.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_client_without_the_package_reads_and_writes_through_spark_connect(server, tmp_path):
    folder = tmp_path / "client"
    seen = json.loads(run(server, server.python, connect_client.__file__, server.address, folder).splitlines()[-1])
    assert not seen["has the packages"]
    everything = list(range(ROWS))
    assert seen["batch"] == seen["stream"] == seen["foreachBatch"] == everything
    assert sum(seen["progress"]) == seen["SQL"] == ROWS
    assert sorted(read_topic(folder / "log", "out").numbers()) == everything
    name, condition, first_line = seen["error"]
    assert (name, condition) == ("AnalysisException", "PYTHON_DATA_SOURCE_ERROR")
    assert "topic 'nowhere' does not exist" in first_line


def test_a_client_with_the_package_reads_parts_of_typed_topics_and_is_told_what_needs_another_session(server):
    paths = os.pathsep.join(PACKAGE_FOLDERS)
    folder = server.folder / "history"
    shown = run(server, server.python, connect_history.__file__, server.address, folder, PYTHONPATH=paths)
    seen = json.loads(shown.splitlines()[-1])
    typed = ["topic", "partition", "offset", "timestamp", "id", "name"]
    count = connect_history.ROWS
    assert seen["typed"] == {"columns": typed, "ids": list(range(2 * count))}
    assert seen["part"] == {"columns": typed, "ids": list(range(5, 15))}
    assert seen["before"]["ids"] == list(range(count))
    assert seen["records"]["ids"] == list(range(count))
    assert "headers" in seen["records"]["columns"]
    for name in ("archive", "read with an archive", "latest", "backfill"):
        error, message = seen[name]
        assert (name, error) == (name, "InvalidInput")
        assert "Spark Connect" in message
    assert not list(folder.glob("[!l]*")), "nothing was written beside the log"


def pipeline(server, folder, program):
    """Make a pipeline in a folder, and return a function that runs it until it has read what is there."""
    (folder / "program.py").write_text(program)
    (folder / "spark-pipeline.yml").write_text(
        textwrap.dedent(f"""\
        name: {folder.name}
        storage: file://{folder}/storage
        libraries:
          - glob:
              include: program.py
        """)
    )
    command = [class_archive.HOME / "bin" / "spark-pipelines", "run", "--remote", server.address]
    return lambda: run(server, *command, "--spec", folder / "spark-pipeline.yml")


FEED = [
    [
        (1, "Ada", "London", 1, "c"),
        (2, "Blaise", "Paris", 2, "c"),
        (1, "Ada", "Rome", 3, "u"),
        (1, "Ada", "Turin", 4, "u"),
    ],
    [
        (2, "Blaise", "Lyon", 5, "u"),
        (2, None, None, 6, "d"),
        (3, "Carl", "Gotha", 7, "c"),
        (3, "Carl", "Gotha", 7, "c"),
    ],
]
"""Changes of customers, in two parts: id, name, city, number, and what the change is. One is there twice."""


def deliver(log, number):
    rows = pa.table(dict(zip(["id", "name", "city", "lsn", "op"], zip(*FEED[number], strict=True), strict=True)))
    with Producer(log.path) as producer:
        producer.send_batch("feed", rows)


def programs_of_the_guide(folder):
    """Return the programs of pipelines that the guide shows, with the log of the test."""
    text = (Path(__file__).parents[2] / "docs" / "guides" / "change-feeds.md").read_text()
    found = re.findall(r"```python\n(from pyspark import pipelines.*?)```", text, re.DOTALL)
    return [program.replace("/data/log", str(folder / "log")) for program in found]


@pytest.fixture
def fed(server, request):
    """A log with a feed of changes, in a folder of its own."""
    folder = server.folder / request.node.name
    folder.mkdir()
    log = PlainLog(folder / "log")
    columns = parse("id BIGINT, name STRING, city STRING, lsn BIGINT, op STRING")
    log.log.create_topic("feed", 2, TopicConfig(key_column="id"), columns=columns)
    deliver(log, 0)
    return SimpleNamespace(folder=folder, log=log)


def test_a_pipeline_writes_a_change_feed_into_a_compacted_topic(server, fed):
    columns = parse("id BIGINT, name STRING, city STRING, lsn BIGINT, deleted BOOLEAN")
    config = TopicConfig(cleanup_policy="compact", key_column="id", delete_when="deleted")
    fed.log.log.create_topic("customers", 2, config, columns=columns)
    program, _ = programs_of_the_guide(fed.folder)
    run_pipeline = pipeline(server, fed.folder, program)

    def newest():
        rows = pa.Table.from_batches(scan(fed.log.path, "customers", latest=True)).to_pylist()
        return sorted((row["id"], row["name"], row["city"]) for row in rows)

    run_pipeline()
    assert newest() == [(1, "Ada", "Turin"), (2, "Blaise", "Paris")]
    deliver(fed.log, 1)
    run_pipeline()
    assert newest() == [(1, "Ada", "Turin"), (3, "Carl", "Gotha")]
    handle = fed.log.log.topic("customers")
    assert sum(each.log_end for each in handle.refresh().partitions) == sum(map(len, FEED)), "each change is there once"
    topic_roll.roll_and_merge(handle, at_once=True)
    assert newest() == [(1, "Ada", "Turin"), (3, "Carl", "Gotha")]


def table(server, name):
    """Return the rows of a table of the server's."""
    program = f"""
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({server.address!r}).getOrCreate()
rows = spark.table({name!r}).drop("__spark_autocdc_metadata").collect()
print(json.dumps(sorted(map(tuple, rows), key=str)))
"""
    return json.loads(run(server, server.python, "-c", program).splitlines()[-1])


def test_auto_cdc_takes_its_changes_from_a_topic(server, fed):
    _, program = programs_of_the_guide(fed.folder)
    history = program[program.index("dp.create_streaming_table") :].replace(
        "lake.default.customers", "lake.default.past"
    )
    run_pipeline = pipeline(server, fed.folder, program + history.replace("scd_type=1", "scd_type=2"))
    run_pipeline()
    assert table(server, "lake.default.customers") == [[1, "Ada", "Turin"], [2, "Blaise", "Paris"]]
    deliver(fed.log, 1)
    run_pipeline()
    assert table(server, "lake.default.customers") == [[1, "Ada", "Turin"], [3, "Carl", "Gotha"]]
    assert table(server, "lake.default.past") == [
        [1, "Ada", "London", 1, 3],
        [1, "Ada", "Rome", 3, 4],
        [1, "Ada", "Turin", 4, None],
        [2, "Blaise", "Lyon", 5, 6],
        [2, "Blaise", "Paris", 2, 5],
        [3, "Carl", "Gotha", 7, None],
    ]


def test_auto_cdc_cannot_write_to_a_table_of_sparks_own_formats(server, fed):
    _, program = programs_of_the_guide(fed.folder)
    with pytest.raises(AssertionError, match="AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"):
        pipeline(server, fed.folder, program.replace("lake.default.customers", "spark_catalog.default.customers"))()
