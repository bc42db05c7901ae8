"""`archive` copies a topic into a Delta table, each row once, and deletes only what is there; `read` goes over both."""

import datetime as dt
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pyspark_log
from pyspark_log.history import archive as archive_module
from pyspark_log.history.archive_table import ArchiveTable
from pyspark_log.opening import forget_logs
from pyspark_log.reading import batch_read_plan
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import DataLoss, InvalidInput, StoreUnavailable
from pyspark_log_storage.stores.addresses import open_store
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import PlainLog
from tests.support.unsteady_topic import UnsteadyTopic

pytestmark = pytest.mark.spark
SECONDS = float(os.environ.get("PYSPARK_LOG_ARCHIVE_SECONDS", "10"))
"""How long everything goes on at once."""
HOUR_MS = 3_600_000
DAY = {"columns": {"day": "CAST(timestamp AS DATE)"}, "partition_by": ["day"]}


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path / "log")
    made.create("t", 2)
    return made


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "a table")


def append(log, *values, topic="t", age_ms=0):
    """Append values to both partitions of a topic."""
    now = int(time.time() * 1000) - age_ms
    log.append(topic, {p: [value.encode() for value in values] for p in (0, 1)}, [now] * 2 * len(values))


def in_order(frame):
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return sorted((row.partition, row.offset, row.value) for row in rows)


def expected(*values):
    return [(p, offset, value) for p in (0, 1) for offset, value in enumerate(values)]


def log_starts(log, topic="t"):
    return [each.log_start for each in log.log.topic(topic).journal.state.partitions]


def stored(spark, table):
    return spark.read.format("delta").load(table)


def test_each_call_copies_what_the_table_lacks_in_the_layout_of_the_user(spark, log, table):
    append(log, "a", "b")
    assert pyspark_log.archive(spark, log.path, "t", table, **DAY) == {0: (0, 2), 1: (0, 2)}
    append(log, "c")
    assert pyspark_log.archive(spark, log.path, "t", table, **DAY) == {0: (0, 3), 1: (0, 3)}
    assert in_order(stored(spark, table)) == expected("a", "b", "c")
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").first()
    assert detail.partitionColumns == ["day"]
    version = ArchiveTable(spark, table).version()
    assert pyspark_log.archive(spark, log.path, "t", table, **DAY) == {0: (0, 3), 1: (0, 3)}
    assert ArchiveTable(spark, table).version() == version
    assert log_starts(log) == [0, 0]


def test_of_two_calls_that_append_after_the_same_rows_one_does(spark, log, table, monkeypatch):
    append(log, "a")
    pyspark_log.archive(spark, log.path, "t", table)
    append(log, "b")
    append_once = ArchiveTable.append

    def overtaken(self, frame, state):
        monkeypatch.setattr(ArchiveTable, "append", append_once)
        pyspark_log.archive(spark, log.path, "t", table)
        append(log, "c")
        append_once(self, frame, state)

    monkeypatch.setattr(ArchiveTable, "append", overtaken)
    assert pyspark_log.archive(spark, log.path, "t", table) == {0: (0, 2), 1: (0, 2)}
    assert in_order(stored(spark, table)) == expected("a", "b")
    assert pyspark_log.archive(spark, log.path, "t", table) == {0: (0, 3), 1: (0, 3)}
    assert in_order(stored(spark, table)) == expected("a", "b", "c")


def test_what_is_archived_is_deleted_from_the_log_and_a_read_goes_over_both(spark, log, table):
    append(log, "a", age_ms=2 * HOUR_MS)
    append(log, "b")
    pyspark_log.archive(spark, log.path, "t", table, cluster_by=["timestamp"], local_retention=dt.timedelta(hours=1))
    assert log_starts(log) == [1, 1]
    append(log, "c")
    pyspark_log.archive(spark, log.path, "t", table, local_retention=dt.timedelta(0))
    assert log_starts(log) == [3, 3]
    frame = pyspark_log.read(spark, log.path, "t", archive=table)
    assert frame.schema == pyspark_log.read(spark, log.path, "t").schema
    assert in_order(frame) == expected("a", "b", "c")
    append(log, "d")
    assert in_order(frame) == expected("a", "b", "c"), "its rows are settled"
    assert in_order(pyspark_log.read(spark, log.path, "t", archive=table)) == expected("a", "b", "c", "d")
    one = pyspark_log.read(spark, log.path, "t", archive=table, partitions=[1])
    assert in_order(one) == expected("a", "b", "c", "d")[4:]


def test_a_table_restored_to_before_an_append_is_an_error_and_nothing_is_deleted(spark, log, table):
    append(log, "a")
    pyspark_log.archive(spark, log.path, "t", table)
    version = ArchiveTable(spark, table).version()
    append(log, "b")
    pyspark_log.archive(spark, log.path, "t", table)
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}").collect()
    with pytest.raises(InvalidInput, match="restored to a version from before rows were archived"):
        pyspark_log.archive(spark, log.path, "t", table, local_retention=dt.timedelta(0))
    assert log_starts(log) == [0, 0]
    assert in_order(stored(spark, table)) == expected("a")


def rebuilt_without_journals(log):
    """Return the log as a rebuild makes it: rows that were written after its checkpoints are lost."""
    lose_folder(f"{log.path}/cluster")
    lose_folder(next(Path(log.path).glob("topics/t/*/journal")))
    found = survey([open_store(log.path)], real_environment(), open_node=open_store)
    execute.rebuild(found, real_environment())
    forget_logs()
    return PlainLog(log.path)


def test_rows_at_offsets_whose_archived_rows_the_log_has_lost_are_neither_deleted_nor_left_out(spark, log, table):
    """The journals are lost, and with them where the newest rows belong: the rebuilt log ends before these."""
    append(log, "a")
    descriptions.write_on_nodes(log.log.topic("t"))
    append(log, "b")
    assert pyspark_log.archive(spark, log.path, "t", table) == {0: (0, 2), 1: (0, 2)}
    rebuilt = rebuilt_without_journals(log)
    append(rebuilt, "c", "d")
    with pytest.raises(DataLoss, match="offsets 1 to 1 that the log has lost"):
        pyspark_log.archive(spark, log.path, "t", table, local_retention=dt.timedelta(0))
    with pytest.raises(DataLoss, match="offsets 1 to 1 that the log has lost"):
        pyspark_log.read(spark, log.path, "t", archive=table)
    assert in_order(pyspark_log.read(spark, log.path, "t")) == expected("a", "c", "d")
    anew = f"{table} of the rebuilt log"
    assert pyspark_log.archive(spark, log.path, "t", anew) == {0: (0, 3), 1: (0, 3)}
    append(rebuilt, "e")
    assert pyspark_log.archive(spark, log.path, "t", anew) == {0: (0, 4), 1: (0, 4)}


def test_a_store_that_fails_for_a_moment_does_not_end_a_call(spark, log, table, monkeypatch):
    topic_of = archive_module._topic
    monkeypatch.setattr(archive_module, "_topic", lambda given: UnsteadyTopic(topic_of(given)))
    ranges_of, planned = batch_read_plan.ranges_of, itertools.count()

    def unsteady(options):
        if next(planned) % 2 == 0:
            raise StoreUnavailable("the store", "a read", "it failed for a moment")
        return ranges_of(options)

    monkeypatch.setattr(batch_read_plan, "ranges_of", unsteady)
    append(log, "a")
    assert pyspark_log.archive(spark, log.path, "t", table) == {0: (0, 1), 1: (0, 1)}
    append(log, "b")
    delete = {"local_retention": dt.timedelta(microseconds=1)}
    assert pyspark_log.archive(spark, log.path, "t", table, **delete) == {0: (0, 2), 1: (0, 2)}
    assert log_starts(log) == [2, 2]


def test_a_compacted_topic_is_not_archived(spark, log, table):
    append(log, "a")
    log.log.topic("t").alter_config({"cleanup.policy": "compact"})
    with pytest.raises(InvalidInput, match="topic 't' is compacted, and an archive has every row"):
        pyspark_log.archive(spark, log.path, "t", table)
    assert not os.path.exists(table)


def test_an_archive_gets_no_rows_behind_a_gap(spark, log, table):
    append(log, "a")
    pyspark_log.archive(spark, log.path, "t", table)
    append(log, "b", "c")
    log.log.topic("t").submit(DeleteRecords(1, 2))
    with pytest.raises(DataLoss, match=r"partition 1: offsets 1 to 1 expired .* archive the others into another table"):
        pyspark_log.archive(spark, log.path, "t", table)
    with pytest.raises(InvalidInput, match="failOnDataLoss=false"):
        pyspark_log.archive(spark, log.path, "t", table, options={"failOnDataLoss": "false"})
    assert in_order(stored(spark, table)) == expected("a")


def test_only_a_table_of_this_topic_is_its_archive(spark, log, table, tmp_path):
    append(log, "a")
    with pytest.raises(InvalidInput, match="there is no table"):
        pyspark_log.read(spark, log.path, "t", archive=table)
    log.create("u")
    pyspark_log.archive(spark, log.path, "u", table)
    for call in (pyspark_log.archive, lambda *given: pyspark_log.read(*given[:3], archive=given[3])):
        with pytest.raises(InvalidInput, match="is the archive of topic 'u'"):
            call(spark, log.path, "t", table)
    log.delete("u")
    log.create("u")
    with pytest.raises(InvalidInput, match="a former topic of this name"):
        pyspark_log.archive(spark, log.path, "u", table)
    other = str(tmp_path / "other")
    spark.range(3).write.format("delta").save(other)
    with pytest.raises(InvalidInput, match="is no archive of a topic"):
        pyspark_log.archive(spark, log.path, "t", other)
    with pytest.raises(InvalidInput, match="has one of them"):
        pyspark_log.archive(spark, log.path, "t", table, partition_by=["a"], cluster_by=["b"])
    with pytest.raises(InvalidInput, match="columns has 'value'"):
        pyspark_log.archive(spark, log.path, "t", str(tmp_path / "new"), columns={"value": "1"})


def test_backfill_live_writes_archive_and_deletion_at_once_and_a_read_of_both_has_what_was_written(spark, log, table):
    """For minutes with PYSPARK_LOG_ARCHIVE_SECONDS."""
    live, stopped, reads = [], threading.Event(), 0

    def produce():
        with pyspark_log.Producer(log.path) as producer:
            while not stopped.is_set():
                live.append(len(live))
                producer.send("t", f"live {live[-1]}", key=str(live[-1]))
                time.sleep(0.002)

    def fill():
        frame = spark.range(3000).selectExpr("id", "CAST(id AS STRING) AS key", "concat('old ', id) AS value")
        given = {"backfill_id": "b", "checkpoint": str(log.path) + "-backfill", "order_by": "id"}
        pyspark_log.backfill(frame, log.path, "t", rows_per_range=300, **given)

    with ThreadPoolExecutor(2) as threads:
        deadline = time.monotonic() + SECONDS
        produced, filled = threads.submit(produce), threads.submit(fill)
        try:
            while time.monotonic() < deadline or reads < 2 or not filled.done():
                pyspark_log.archive(spark, log.path, "t", table, **DAY, local_retention=dt.timedelta(0))
                check(in_order(pyspark_log.read(spark, log.path, "t", archive=table)), None)
                reads += 1
        finally:
            stopped.set()
        filled.result()
        produced.result()
    written = [f"live {each}" for each in live] + [f"old {each}" for each in range(3000)]
    check(in_order(pyspark_log.read(spark, log.path, "t", archive=table)), written)
    assert min(log_starts(log)) > 0


def check(rows, written):
    """Assert that in each partition every offset is there once, and that the values are those written."""
    for p in (0, 1):
        offsets = [offset for partition, offset, _ in rows if partition == p]
        assert offsets == list(range(len(offsets)))
    values = [value for _, _, value in rows]
    assert len(set(values)) == len(values)
    assert written is None or sorted(values) == sorted(written)
