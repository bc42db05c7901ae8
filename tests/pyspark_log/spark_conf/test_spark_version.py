"""A Python without Spark, and a Spark that is too old."""

import subprocess
import sys

import pyspark
import pytest
from pyspark.sql import SparkSession

import pyspark_log
from pyspark_log_storage.errors import InvalidInput
from tests.support.direct import source

NEEDS = "pyspark_log needs Spark 4.2 or newer, and this is Spark {}; upgrade Spark"
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
import pyspark_log
from pyspark_log.cli.main import app

path = sys.argv[1]
app(["topics", "create", "t", "--path", path], standalone_mode=False)
with pyspark_log.Producer(path) as producer:
    producer.send("t", b"x", key=b"k")
with pyspark_log.Consumer(path, group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["t"])
    print([record.value for record in consumer.poll(timeout_ms=60_000)])
print(pyspark_log.scan(path, "t", columns=["key", "offset"]).to_reader().read_all().to_pylist())
app(["groups", "describe", "g", "--state", "--path", path], standalone_mode=False)
for name in sorted(set(pyspark_log.__all__) - {"__version__"}):
    try:
        getattr(pyspark_log, name)
    except ImportError as error:
        print(error)
"""


def test_a_spark_that_is_too_old_is_refused_in_words_and_a_newer_one_used(monkeypatch):
    for version in ("4.1.1", "3.5.8", "4.0.0.dev1"):
        monkeypatch.setattr(pyspark, "__version__", version)
        with pytest.raises(InvalidInput, match=NEEDS.format(version)):
            pyspark_log.configure(SparkSession.builder)
        with pytest.raises(InvalidInput, match=NEEDS.format(version)):
            source("/data/log", subscribe="t")
    for version in ("4.2.0", "4.10.1", "5.0.0", "4.3.0.dev0"):
        monkeypatch.setattr(pyspark, "__version__", version)
        source("/data/log", subscribe="t")


@pytest.mark.deep
def test_clients_and_commands_need_no_spark_and_the_rest_says_how_to_get_it(tmp_path):
    command = [sys.executable, "-c", WITHOUT_SPARK, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "[b'x']" in done.stdout
    assert "[{'key': b'k', 'offset': 0}]" in done.stdout
    needing = ["DefaultSource", "archive", "backfill", "latest", "latest_with_offsets", "read"]
    assert [line for line in done.stdout.splitlines() if line.startswith("pyspark_log.")] == [
        f"pyspark_log.{name} needs Spark, and this Python has no pyspark; install it with: "
        "pip install 'pyspark>=4.2,<5', or use the Python of your Spark"
        for name in needing
    ]
