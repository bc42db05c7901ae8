"""Tests with Delta tables, which need its jars, and Spark 4.2: there is no Delta for a newer one yet.

`tests/test_older_delta.py` runs them on that Spark; a run on another one passes them over.
"""

import pyspark
import pytest

from tests.servers import maven_jars
from tests.support.delta.delta_session import delta_session

if not pyspark.__version__.startswith("4.2."):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark():
    """A session with Delta."""
    try:
        session = delta_session()
    except maven_jars.Unavailable as unavailable:
        pytest.skip(f"needs the jars of Delta: {unavailable}")
    yield session
    jvm = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()
    jvm.wait()
