"""A program whose Spark looks for data sources in a Python without the package."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import PACKAGE_FOLDERS
from tests.support.bare_venv import bare_environment, bare_python
from tests.support.plain_log import PlainLog

PROGRAM = f"""
import json, sys, warnings

sys.path[:0] = {PACKAGE_FOLDERS}
from pyspark.sql import SparkSession
import pyspark_log

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    spark = pyspark_log.configure(SparkSession.builder, "tests").getOrCreate()
seen = {{"warned": [str(each.message) for each in caught if "pyspark_log" in str(each.message)]}}
try:
    pyspark_log.read(spark, "log", "t")
except pyspark_log.LogError as error:
    seen["raised"] = [type(error).__name__, error.message]
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_a_program_is_told_what_to_do_if_spark_looks_for_the_source_in_another_python(tmp_path):
    PlainLog(tmp_path / "log").create("t")
    bare = bare_python(tmp_path / "venv")
    kept = {name: os.environ[name] for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**bare_environment(), **kept, "PYSPARK_PYTHON": str(bare)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    name, message = seen["raised"]
    assert name == "SourceNotFound"
    assert f"PYSPARK_PYTHON={sys.executable}" in message
    assert seen["warned"] == [message]
