"""msgspec crashes the process when two threads meet a type for the first time together: so no thread may."""

import subprocess
import sys

import pytest

from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.stored_topic import StoredTopic

STARTS = 40


@pytest.mark.deep
def test_many_threads_may_begin_to_decode_at_once(tmp_path):
    topic = StoredTopic(LocalStore(str(tmp_path)))
    topic.fill(260)  # so that there is a snapshot, and entries behind it
    topic.roll(50)
    descriptions.write_on_nodes(topic.handle)
    command = [sys.executable, "-m", "tests.support.coordinator.decode_worker", str(tmp_path), str(STARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"] * STARTS, done.stderr[-2000:]
