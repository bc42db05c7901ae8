"""The examples: they run as a reader of the README would run them."""

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.servers import maven_jars

SECONDS_MAX = 500  # a machine with nothing else to do needs a tenth of it
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
IN_THE_TESTS_SESSION = [
    "change_feed.py",
    "exactly_once_chain.py",
    "lost_disk.py",
    "named_sources.py",
    "protobuf_values.py",
    "python_producer.py",
    "worker_pool.py",
    "rewind.py",
    "traced.py",
    "windowed_aggregation.py",
]
"""Each asserts its own result."""
WITHOUT_SPARK = ["duckdb_scan.py", "polars_scan.py"]
"""They run in `tests/examples`."""
WITH_DELTA = ["delta_change_feed.py", "delta_history.py"]
"""tests/delta runs them, on Spark 4.2."""


def run(program, *arguments):
    command = [sys.executable, EXAMPLES / program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends what it started
            printed, _ = process.communicate()
            pytest.fail(f"{program} took more than {SECONDS_MAX} s\n{printed}")
    assert process.returncode == 0, f"{program} ended with {process.returncode}\n{printed}"
    return printed


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_the_demo_proves_a_part_of_the_year_and_leaves_nothing_behind(monkeypatch):
    with tempfile.TemporaryDirectory() as empty:  # not tmp_path: Spark's sockets need a short one
        monkeypatch.setenv("TMPDIR", empty)
        printed = run("flights_demo.py", "--flights", 20_000)
        assert os.listdir(empty) == []
    assert len(re.findall(r"(writer|reader) +killed with SIGKILL at \d+ %", printed)) == 2
    for told in "lost its disk:", "in the log without it", "has a damaged file", "each of the three nodes has all":
        assert printed.count(told) == 1, printed
    last = printed.splitlines()[-1]
    assert re.fullmatch(r"Exactly once: proved for 20,000 flights, in \d+ s\.", last), printed


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_the_first_program_reads_what_it_wrote_and_then_only_what_is_new(tmp_path):
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert re.findall(r"```\n(\+-.*?)```", readme, re.DOTALL)[0] in run("first_program.py", tmp_path)
    program = tmp_path / "of_the_readme.py"
    (text,) = re.findall(r"```python\n(from pyspark.sql import .*?)```", readme, re.DOTALL)
    program.write_text(text.replace("/tmp/cities", str(tmp_path)))
    assert sorted(re.findall(r"\| +\d+\| +\d+\| +\w+\| +(\w+)\|", run(program))) == ["Graz", "Linz", "Lyon"]


@pytest.mark.deep
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_the_pipeline_prints_what_its_page_says(tmp_path):
    page = (EXAMPLES.parent / "docs" / "guides" / "pipeline.md").read_text()
    printed = run("pipeline.py", tmp_path)
    for line in re.findall(r"^(?:pyspark-log .*|\d+ sums, .*)$", page, re.MULTILINE):
        assert line in printed, line


@pytest.mark.parametrize("program", IN_THE_TESTS_SESSION)
def test_the_example_finds_what_it_says(spark, program, tmp_path, monkeypatch):
    run_here(spark, monkeypatch, program, str(tmp_path))


def test_the_example_of_s3_finds_what_it_says(spark, moto, monkeypatch):
    run_here(spark, monkeypatch, "s3.py", f"s3://{moto.new_bucket()}/examples", json.dumps(moto.options))


def test_the_example_of_avro_finds_what_it_says(spark, tmp_path, monkeypatch):
    try:
        (jar,) = maven_jars.jars("avro")
    except maven_jars.Unavailable as unavailable:
        pytest.skip(f"needs the jar of Spark's Avro functions: {unavailable}")
    spark.sql(f"ADD JAR '{jar}'")
    run_here(spark, monkeypatch, "avro_values.py", str(tmp_path))


def run_here(spark, monkeypatch, program, *arguments):
    """Run a program in this process, with its session."""
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    try:
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    finally:
        for query in spark.streams.active:
            query.stop()


def test_each_example_is_run():
    programs = {file.name for file in EXAMPLES.glob("*.py")} - set(WITHOUT_SPARK)
    alone = {"avro_values.py", "first_program.py", "flights_demo.py", "pipeline.py", "s3.py"}
    alone |= {"from_kafka.py", "to_kafka.py"}
    assert programs == {*alone, *IN_THE_TESTS_SESSION, *WITH_DELTA}
