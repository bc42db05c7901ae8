"""The topic that is audited."""

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.segments.retention import DeleteRecords
from tests.support.coordinator.stored_topic import StoredTopic


@pytest.fixture
def topic(monkeypatch):
    """A topic with segments of two levels, unrolled chunks, a moved log start, snapshots and files to delete."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 8)
    made = StoredTopic(partitions=2)
    for _ in range(3):
        made.fill(3, partitions=(0, 1))
        made.roll(partition=0)
    made.merge(2)
    made.handle.submit(DeleteRecords(0, 4))
    made.fill(4, partitions=(0, 1))
    return made
