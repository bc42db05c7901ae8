"""The micro-batches of a stream over a compacted topic, planned and read step by step: one batch, the same rows."""

import pytest

from pyspark_log_coordinator.backup import backup
from pyspark_log_coordinator.backup.restore import restore
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import DataLoss
from pyspark_log_storage.stores.addresses import open_store
from tests.support.direct import Stream
from tests.support.memory_store import MemoryStore
from tests.support.pyspark_log.compacted_log import CompactedLog


@pytest.fixture
def log(tmp_path):
    return CompactedLog(tmp_path / "log")


def offsets(rows):
    return [row["offset"] for row in rows]


def stream(log, start=None, **options):
    return Stream(
        log.path, start, **{"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 2} | options
    )


def planned(log, **options):
    """Read a batch, begin the one after it, and return its offsets: Spark repeats it when the query starts again."""
    begun = stream(log, **options)
    begun.batch()
    return begun.start, begun.reader.latestOffset(begun.start, begun.limit)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_batch_that_was_compacted_since_is_no_other_batch_whatever_the_topic_was_when_it_was_planned(log, policy):
    log.add([b"a", b"b", b"a", b"b", b"c", b"a"])
    log.current.alter_config({"cleanup.policy": policy})
    start, end = planned(log)
    log.clean()
    with pytest.raises(DataLoss, match=r"offsets 2 to 3 were compacted after a batch with them was planned"):
        stream(log, start).between(start, end)
    assert offsets(stream(log, start, failOnDataLoss="false").between(start, end)) == [3]


def test_a_batch_of_compacted_rows_is_repeated_as_long_as_they_stay(log):
    log.add([b"a", b"b", b"a", b"b", b"c", b"a"])
    log.clean()
    start, end = planned(log, maxOffsetsPerTrigger=4)
    assert end["topics"]["t"]["compacted"] == {"0": 1}
    log.add([b"a"])
    assert offsets(stream(log, start).between(start, end)) == [4, 5]


def test_a_batch_behind_all_compacted_rows_is_repeated_whatever_is_compacted(log):
    log.add([b"a", b"b"])
    log.add([b"a", b"b"])
    start, end = planned(log)
    log.clean(1)
    assert offsets(stream(log, start).between(start, end)) == [2, 3]


def test_a_query_that_may_lose_rows_does_not_mix_those_of_two_states(log):
    log.add([b"a", b"b", b"a", b"b", b"c", b"a"])
    begun = stream(log, failOnDataLoss="false", maxRecordsOnDriver=0)
    [split] = begun.reader.partitions(begun.start, begun.reader.latestOffset(begun.start, begun.limit))
    log.clean()
    with pytest.raises(DataLoss, match="offsets 0 to 1 were compacted while they were read; start the read again"):
        list(begun.reader.read(split))


def test_that_is_so_though_nothing_was_compacted_in_the_backup(log, tmp_path):
    for keys in ([b"a", b"b"], [b"a", b"b"], [b"c", b"a"]):
        log.add(keys)
    log.current.alter_config({"cleanup.policy": "compact"})
    made, _ = backup.back_up(log.log, saved := MemoryStore("saved"))
    log.clean()
    begun = stream(log, maxOffsetsPerTrigger=4)
    end = begun.reader.latestOffset(begun.start, begun.limit)
    assert (offsets(begun.between(begun.start, end)), end["topics"]["t"]["compacted"]) == ([3], {"0": 1})
    restore(made, saved, open_store(str(tmp_path / "restored")), real_environment(), as_new=False)
    log.log = Log(open_store(str(tmp_path / "restored")), real_environment())
    log.log.open(create=False)
    log.handle = log.log.topic("t")
    log.clean(2)
    with pytest.raises(DataLoss, match=r"were compacted after a batch with them was planned"):
        Stream(tmp_path / "restored", subscribe="t", startingOffsets="earliest").between(begun.start, end)
