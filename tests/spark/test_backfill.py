"""`backfill` writes a frame into a topic in the order of a column, each row once, whatever is killed or written."""

import contextlib
import datetime as dt
import itertools
import json
import subprocess
import sys
import threading
import time
from decimal import Decimal

import psutil
import pytest
from pyspark.sql import functions as f

import pyspark_log
from pyspark_log.history import backfill as backfill_module
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidOption,
    InvalidRecord,
    StoreUnavailable,
)
from tests.support.log_reader import read_topic
from tests.support.spark.kills import wait_for
from tests.support.spark.spark_log import SparkLog
from tests.support.unsteady_topic import UnsteadyTopic

pytestmark = pytest.mark.spark
ROWS = 400


@pytest.fixture
def log(spark, tmp_path):
    return SparkLog(spark, tmp_path)


@pytest.fixture(scope="module")
def done(spark, tmp_path_factory):
    """A backfill of topic t that is complete, and an empty topic u."""
    made = SparkLog(spark, tmp_path_factory.mktemp("done"))
    made.create("t", 3)
    made.create("u")
    assert start(made, history(spark)) == ROWS
    return made


def history(spark, rows=ROWS):
    """Rows with numbers from 0 on, in no order: the key is one of ten."""
    number = f.expr(f"(id * 7919) % {rows}")
    return spark.range(rows).select(
        number.alias("number"),
        (number % 10).cast("string").alias("key"),
        number.cast("string").alias("value"),
        f.timestamp_micros(number * 1_000_000).alias("timestamp"),
    )


def start(log, frame, topic="t", **given):
    settings = {"backfill_id": "b", "checkpoint": str(log.folder / "backfill"), "order_by": "number"} | given
    return pyspark_log.backfill(frame, log.path, topic, **({"rows_per_range": 100} | settings))


def batches(log, topic="t", name="b"):
    """The numbers of the ranges in the topic, and the rows of each, as the journal has them."""
    found = [each for each in read_topic(log.path, topic).batches if each.claim and each.claim.producer == name]
    return {each.claim.batch_id: each.rows for each in found}


def newest_range(log):
    known = log.log.topic("t").journal.state.producers.get("b")
    return -1 if known is None else known.batch_id


def numbers_by_partition(log, topic="t"):
    found = {}
    for row in read_topic(log.path, topic).rows:
        found.setdefault(row.partition, []).append(int(row.value))
    return found


def test_rows_are_in_the_order_of_the_column_in_each_partition_once_with_their_times(done):
    log, found = done, numbers_by_partition(done)
    assert len(found) == 3
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(itertools.chain.from_iterable(found.values())) == list(range(ROWS))
    sizes = {number: len(rows) for number, rows in batches(log).items()}
    assert sizes == dict.fromkeys(range(4), 100)
    times = log.read(subscribe="t").selectExpr("unix_seconds(timestamp) - CAST(CAST(value AS STRING) AS BIGINT) AS d")
    assert times.distinct().collect() == [(0,)]


def test_a_second_call_writes_nothing_and_computes_no_row(spark, done):
    explodes = history(spark).withColumn("value", f.expr("raise_error('computed')").cast("string"))
    assert start(done, explodes) == 0
    assert done.rows("t") == ROWS


def test_a_store_that_fails_for_a_moment_does_not_end_a_call(spark, log, monkeypatch):
    topic_of = backfill_module._topic
    monkeypatch.setattr(backfill_module, "_topic", lambda *given, **more: UnsteadyTopic(topic_of(*given, **more)))
    failed = []

    def failing_once(call):
        def wrapped(*given):
            if call in failed:
                return call(*given)
            failed.append(call)
            raise StoreUnavailable("the store", call.__name__, "it failed for a moment")

        return wrapped

    for call in (backfill_module.read_plan, backfill_module.create_plan):
        monkeypatch.setattr(backfill_module, call.__name__, failing_once(call))
    assert start(log, history(spark, 20), rows_per_range=10) == 20
    assert {number: len(rows) for number, rows in batches(log).items()} == {0: 10, 1: 10}


@pytest.mark.parametrize("value", ["greatest(number - 300, 0)", "7", "IF(number < 300, -double('Infinity'), number)"])
def test_the_smallest_value_may_have_more_rows_than_a_range(spark, log, value):
    frame = history(spark).withColumn("order", f.expr(value))
    for wanted in (ROWS, 0):
        assert start(log, frame, order_by="order") == wanted
    assert sorted(itertools.chain.from_iterable(numbers_by_partition(log).values())) == list(range(ROWS))


def test_a_typed_topic_is_made_and_filled_by_the_order_of_two_columns(spark, log):
    frame = spark.range(200).selectExpr("id", "concat('k', id % 7) AS carrier", "CAST(id AS DOUBLE) AS delay")
    options = {"schema": "columns", "key.column": "carrier", "num.partitions": "2"}
    assert start(log, frame, order_by=["carrier", "id"], options=options) == 200
    rows = log.read(subscribe="t").orderBy("partition", "offset").collect()
    assert sorted(row.id for row in rows) == list(range(200))
    for partition in {row.partition for row in rows}:
        found = [(row.carrier, row.id) for row in rows if row.partition == partition]
        assert found == sorted(found)


VALUES = {
    "int": [3, -5, 0],
    "decimal(20,4)": [Decimal("1.5000"), Decimal("-2.2500"), Decimal("99999999999.0001")],
    "double": [0.1, float("inf"), -1e300, float("nan"), 1 / 3],
    "float": [0.1, 2.5, -7.25],
    "string": ["b", "", "a'\"\\`", "ä\n"],
    "binary": [b"", b"\xff\x00", b"a"],
    "date": [dt.date(1, 1, 1), dt.date(2026, 2, 28), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.timezone.utc), dt.datetime.now(dt.timezone.utc)],
    "timestamp_ntz": [dt.datetime.fromisoformat("2026-03-29T02:30:00.000001"), dt.datetime.fromisoformat("1900-01-01")],
}


@pytest.mark.parametrize("kind", VALUES)
def test_ranges_of_every_type_share_no_row_and_leave_none_out(spark, kind):
    frame = spark.createDataFrame([(each,) for each in [*VALUES[kind], None]], f"`a column` {kind}")
    fields = backfill_module.fields_of(frame, ["A column"])
    bounds = backfill_module.bounds_of(frame, fields[0], 1)
    ranges = [
        backfill_module.rows_between(frame, fields, bounds, number).collect() for number in range(len(bounds) + 1)
    ]
    assert len(bounds) == len(VALUES[kind])
    assert [repr(row) for rows in ranges for row in rows] == [repr(row) for row in frame.sort("`a column`").collect()]


def test_the_ranges_of_times_do_not_depend_on_the_time_zone_of_a_session(spark):
    zones = itertools.cycle(["UTC", "Asia/Kolkata", "Europe/Paris"])
    seconds = range(1_774_740_000, 1_774_740_000 + 12 * 1800, 1800)  # Paris has no 2:30 in this night
    frame = spark.createDataFrame([(each,) for each in seconds], "n LONG").select(
        f.timestamp_seconds("n").alias("time")
    )
    fields = backfill_module.fields_of(frame, ["time"])
    before, found = spark.conf.get("spark.sql.session.timeZone"), []
    try:
        bounds = backfill_module.bounds_of(frame, fields[0], 1)
        for number in range(len(bounds) + 1):
            spark.conf.set("spark.sql.session.timeZone", next(zones))
            found += (
                backfill_module.rows_between(frame, fields, bounds, number).select(f.unix_seconds("time")).collect()
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [row[0] for row in found] == list(seconds)


def test_what_cannot_be_written_is_refused_before_anything_is_there(spark, log):
    frame = history(spark)
    with pytest.raises(InvalidInput, match="order_by is 'nothing', and the frame has number, key"):
        start(log, frame, order_by="nothing")
    with pytest.raises(InvalidInput, match="of type array<int>"):
        start(log, frame.withColumn("number", f.array(f.lit(1))))
    with pytest.raises(InvalidInput, match="rows_per_range is 0"):
        start(log, frame, rows_per_range=0)
    with pytest.raises(InvalidOption, match="txnVersion follows"):
        start(log, frame, options={"txnVersion": "5"})
    with pytest.raises(InvalidRecord, match="no column 'value'"):
        start(log, frame.drop("value"))
    assert not (log.folder / "backfill").exists()
    assert log.log.topics() == {}


@pytest.mark.slow
def test_a_killed_backfill_continues_beside_a_live_producer_and_each_row_is_there_once_in_order(spark, log):
    log.create("t", 3)
    files = str(log.folder / "files")
    history(spark).write.parquet(files)
    given = {"backfill_id": "b", "checkpoint": str(log.folder / "backfill"), "order_by": "number", "rows_per_range": 20}
    program = [sys.executable, "-m", "tests.support.spark.backfill_program"]
    live, stopped = [], threading.Event()

    def produce():
        with pyspark_log.Producer(log.path) as producer:
            while not stopped.is_set():
                live.append(-1 - len(live))
                producer.send("t", str(live[-1]), key=str(live[-1])).result()
                time.sleep(0.01)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        arguments = json.dumps({"files": files, "path": log.path, "topic": "t"} | given)
        with (log.folder / "out").open("wb") as out:
            doomed = subprocess.Popen([*program, arguments], stdout=out, stderr=out)
        wait_for(lambda: doomed.poll() is not None or newest_range(log) >= 2, "three ranges are written")
        kill(doomed)
        left = newest_range(log)
        assert 2 <= left < 19, (log.folder / "out").read_text()
        assert pyspark_log.backfill(spark.read.parquet(files), log.path, "t", **given) == (19 - left) * 20
    finally:
        stopped.set()
        thread.join()
    found = {}
    for row in log.read(subscribe="t").orderBy("partition", "offset").collect():
        found.setdefault(row.partition, []).append(int(row.value))
    assert sorted(itertools.chain.from_iterable(found.values())) == sorted([*range(ROWS), *live])
    for numbers in found.values():
        written = [each for each in numbers if each >= 0]
        assert written == sorted(written)
    mixed = [each >= 0 for numbers in found.values() for each in numbers]
    assert sum(one != other for one, other in itertools.pairwise(mixed)) > 10, "live rows are in between"


def kill(program):
    """SIGKILL a driver and its processes, the JVM first: it is what acts."""
    with contextlib.suppress(psutil.NoSuchProcess):
        processes = psutil.Process(program.pid).children(recursive=True)
        for each in sorted(processes, key=lambda process: process.name() != "java"):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    program.kill()
    program.wait()
