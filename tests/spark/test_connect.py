"""Spark Connect and Declarative Pipelines: a server that has the packages, and clients on machines that do not."""

import json
import os
import signal
import socket
import subprocess
import textwrap
from types import SimpleNamespace

import pytest

from tests.conftest import PACKAGE_FOLDERS
from tests.support import class_archive
from tests.support.bare_venv import bare_environment, bare_python, environment_with_pandas
from tests.support.log_reader import read_topic
from tests.support.plain_log import PlainLog
from tests.support.spark import connect_client, connect_history
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
    settings = {"spark.connect.grpc.binding.port": port, "spark.sql.warehouse.dir": folder / "warehouse"}
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


def test_a_client_without_the_package_reads_and_writes_through_spark_connect(server):
    folder = server.folder / "client"
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
    for name in ("foreach_batch", "archive", "read with an archive", "latest", "backfill"):
        error, message = seen[name]
        assert (name, error) == (name, "InvalidInput")
        assert "Spark Connect" in message
    assert not list(folder.glob("[!l]*")), "nothing was written beside the log"


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql.functions import col

@dp.table
def events():
    stream = spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
    return stream.load("{log}").select(col("key").cast("string"), col("value").cast("string"))

dp.create_sink("copies", "pyspark_log", {{"path": "{log}", "topic": "out"}})

@dp.append_flow(target="copies")
def copy():
    return spark.readStream.table("events").select("key", "value")
"""


def test_a_pipeline_reads_a_table_from_a_topic_and_writes_a_sink_each_row_once(server):
    folder = server.folder / "pipeline"
    folder.mkdir()
    log = PlainLog(folder / "log")
    log.create("in", 2)
    (folder / "events.py").write_text(PIPELINE.format(log=folder / "log"))
    (folder / "spark-pipeline.yml").write_text(
        textwrap.dedent(f"""\
        name: copies
        storage: file://{folder}/storage
        libraries:
          - glob:
              include: events.py
        """)
    )
    command = [class_archive.HOME / "bin" / "spark-pipelines", "run", "--remote", server.address]
    for values in ([b"0", b"1"], [b"2"]):
        log.append("in", {0: values, 1: [b"1%s" % value for value in values]})
        run(server, *command, "--spec", folder / "spark-pipeline.yml")
    assert sorted(read_topic(folder / "log", "out").numbers()) == [0, 1, 2, 10, 11, 12]
