"""`verify` finds a key that has two rows in the head of a compacted partition."""

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log_coordinator.audit import live_rows
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import compaction_task
from tests.support.coordinator.compacted_topic import CompactedTopic


@pytest.fixture
def topic():
    """A head of two segments."""
    made = CompactedTopic()
    for rows in ([(b"a", b"1"), (b"b", b"1")], [(b"b", b"2"), (b"c", None), (b"d", b"1")]):
        made.write(rows)
        made.do(made.clean_job())
    assert verify(made.handle).findings == []
    return made


def test_a_key_of_which_a_compaction_left_an_older_row_is_found(topic, monkeypatch):
    topic.write([(b"a", b"2"), (b"d", b"2"), (b"e", b"1")])
    monkeypatch.setattr(compaction_task, "matched", lambda found, _: compared_with_nothing(found))
    topic.do(topic.clean_job())
    monkeypatch.undo()
    (finding,) = verify(topic.handle).findings
    assert "has another row in the head of the partition" in finding.detail
    assert "2 such rows" in finding.detail
    topic.write([(b"a", b"3"), (b"d", b"3")])
    topic.do(topic.clean_job())
    assert verify(topic.handle).findings == []


def compared_with_nothing(found):
    for keys, offsets in found:
        yield offsets, np.asarray(keys.is_valid()), np.zeros(len(offsets), bool)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_of_each_key_that_is_there_twice_a_row_is_found_however_many_are_compared_at_once(at_once):
    parts = [
        ([b"a", b"b", None], [3, 5, 7]),
        ([b"a"], [10]),
        ([None, b"c", b"a", b"d"], [12, 13, 14, 15]),
        ([b"d"], [20]),
    ]

    def keys():
        return ((pa.array(each, pa.large_binary()), np.array(offsets)) for each, offsets in parts)

    found = live_rows.of_one_key(keys, at_once)
    of = {at: key for each, offsets in parts for key, at in zip(each, offsets, strict=True)}
    assert {of[at] for at in found} == {b"a", b"d"}
    assert live_rows.of_one_key(lambda: iter(()), at_once) == []
    once = [(pa.array([b"x", b"y"], pa.large_binary()), np.array([1, 2]))]
    assert live_rows.of_one_key(lambda: iter(once), at_once) == []
