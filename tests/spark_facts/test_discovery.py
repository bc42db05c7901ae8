"""How Spark finds data sources, and what else takes a session of its own.

Discovery runs once in a JVM, so it is tried in fresh processes: the lookup alone, and one whole session,
which also may retry tasks (the tests' own runs each task once).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark_facts.bench import Run

pytestmark = pytest.mark.spark

DEADLINE_S = 600
FRESH_SESSION = Path(__file__).with_name("fresh_session.py")
LAZY_SOURCE = """
def __getattr__(name):
    if name != "DefaultSource":
        raise AttributeError(name)
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, partition):
            yield ("found",)

    class DefaultSource(DataSource):
        @classmethod
        def name(cls):
            return "lazy_probe"
        def schema(self):
            return "word STRING"
        def reader(self, schema):
            return Reader()

    return DefaultSource
"""
LOOKUP = """
import io
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql.worker.lookup_data_sources import _main
found = io.BytesIO()
_main(io.BytesIO(), found)
found.seek(0)
for _ in range(read_int(found)):
    print(UTF8Deserializer().loads(found))
    found.read(read_int(found))
"""


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with nothing but `folder` on its path, so that this repository's sources are not found."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,  # `python -m` has its folder on the path too
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def fresh_session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a session with a lazy module on its path and one retry of each task has seen."""
    folder = tmp_path_factory.mktemp("discovery")
    (folder / "pyspark_lazy_probe.py").write_text(LAZY_SOURCE)
    ended = python(folder, str(FRESH_SESSION), str(folder))
    assert ended.returncode == 0, ended.stderr
    return json.loads((folder / "seen.json").read_text())  # type: ignore[no-any-return]


def test_a_default_source_made_by_a_modules_getattr_is_found_by_the_lookup(tmp_path: Path) -> None:
    (tmp_path / "pyspark_lazy_probe.py").write_text(LAZY_SOURCE)
    ended = python(tmp_path, "-c", LOOKUP)
    assert "lazy_probe" in ended.stdout.split(), ended.stderr


@pytest.mark.slow
def test_spark_reads_a_default_source_that_nobody_registered(fresh_session: dict[str, Any]) -> None:
    assert fresh_session["found"] == ["found"]


@pytest.mark.slow
def test_a_retried_task_is_written_again_and_sends_one_message(fresh_session: dict[str, Any]) -> None:
    assert sorted(call["attempt"] for call in fresh_session["writes"]) == [[0, 0], [0, 1], [1, 0]]
    assert [message["rows"] for message in fresh_session["messages"]] == [2, 3]


@pytest.mark.slow
def test_a_retried_task_has_the_same_writer(fresh_session: dict[str, Any]) -> None:
    assert len({call["writer"] for call in fresh_session["writes"]}) == 1


@pytest.mark.slow
def test_a_worker_to_which_spark_talks_over_tcp_knows_it_by_a_variable(
    fresh_session: dict[str, Any], three_batches: Run
) -> None:
    over_tcp = fresh_session["over_tcp"]
    assert (over_tcp["writer"], over_tcp["write"], over_tcp["sink commit"]) == (True, True, True)
    assert not any(call["over_tcp"] for call in three_batches.calls)
