"""`foreach_batch`: micro-batches whose rows in Parquet segments Spark reads itself; each row once, also after kills."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_log
from pyspark_log.source import checkpoint
from pyspark_log_storage.errors import CorruptObject, InvalidInput, InvalidOption, NewerFormat
from tests.support.log_reader import read_topic
from tests.support.plain_log import PlainLog
from tests.support.spark.faulty_source import HANDED, WRITTEN, Trap
from tests.support.spark.kills import Query, driver
from tests.support.spark.rolled import roll

pytestmark = pytest.mark.spark
PARTITIONS = 3
KILLS = int(os.environ.get("PYSPARK_LOG_FOREACH_BATCH_KILLS", "2"))
ENOUGH_NOW = {"availableNow": True}


@dataclass
class Seen:
    """What a function has been handed: of each batch its number, its rows, and whether Spark read files itself."""

    batches: list[tuple[int, list[tuple[int, int]], bool]] = field(default_factory=list)
    columns: list[list[str]] = field(default_factory=list)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        rows = sorted((row.partition, row.offset) for row in frame.collect())
        self.batches.append((batch_id, rows, "FileScan parquet" in plan))
        self.columns.append(frame.columns)

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for _, rows, _ in self.batches for row in rows)


def append(log: PlainLog, topic: str, first: int, end: int) -> None:
    """Append the rows with these numbers to each partition."""
    log.append(topic, {p: [b"%d" % (row * PARTITIONS + p) for row in range(first, end)] for p in range(PARTITIONS)})


def offsets(first: int, end: int) -> list[tuple[int, int]]:
    return [(p, offset) for p in range(PARTITIONS) for offset in range(first, end)]


@pytest.fixture
def log(tmp_path: Path) -> PlainLog:
    """Topic t: partition 0 is rolled, of partition 1 the half, of partition 2 nothing."""
    made = PlainLog(tmp_path / "log")
    made.create("t", PARTITIONS, segment_format="parquet")
    for first in range(0, 40, 10):
        append(made, "t", first, first + 10)
    roll(made, "t", 0, 4)
    roll(made, "t", 1, 2)
    return made


@pytest.fixture
def run(spark: SparkSession, log: PlainLog, tmp_path: Path) -> Callable[..., Seen]:
    """Run a query up to the end of the topic."""

    def ran(**options: Any) -> Seen:
        seen = Seen()
        given = {"startingOffsets": "earliest"} | {name.replace("__", "."): value for name, value in options.items()}
        folder = str(tmp_path / "checkpoint")
        query = pyspark_log.foreach_batch(
            spark, log.path, "t", seen, checkpoint=folder, options=given, trigger=ENOUGH_NOW
        )
        query.awaitTermination()
        return seen

    return ran


@pytest.mark.default
def test_history_is_read_from_files_and_the_newest_rows_as_in_every_stream(
    log: PlainLog, run: Callable[..., Seen]
) -> None:
    first = run(maxOffsetsPerTrigger="60", group__id="g")
    assert [(number, len(rows), native) for number, rows, native in first.batches] == [(0, 60, True), (1, 60, True)]
    assert first.rows == offsets(0, 40)
    append(log, "t", 40, 45)
    second = run(maxOffsetsPerTrigger="60", group__id="g")
    assert [(number, native) for number, _, native in second.batches] == [(2, False)]
    assert second.rows == offsets(40, 45)
    group, topic = log.log.group("g").refresh(), log.log.topic("t").topic_id
    assert [group.committed(topic, p).offset for p in range(PARTITIONS)] == [45] * PARTITIONS


def test_a_repeated_batch_has_the_same_rows_whatever_was_rolled_meanwhile(
    log: PlainLog, run: Callable[..., Seen], tmp_path: Path
) -> None:
    before = run(maxOffsetsPerTrigger="60")
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    roll(log, "t", 1, 2)
    roll(log, "t", 2, 4)
    append(log, "t", 40, 45)
    again = run(maxOffsetsPerTrigger="60")
    assert [number for number, _, _ in again.batches] == [1, 2]
    assert again.batches[0][:2] == before.batches[1][:2]
    assert again.batches[1][1] == offsets(40, 45)


@pytest.mark.parametrize(
    ("later", "native"), [(("CAST(id AS SMALLINT) AS n", "2.5 AS extra"), True), (("id AS n",), False)]
)
def test_a_typed_topic_keeps_the_columns_with_which_the_query_began(
    spark: SparkSession, tmp_path: Path, later: tuple[str, ...], native: bool
) -> None:
    log = PlainLog(tmp_path / "typed")

    def write(*columns: str) -> None:
        write = spark.range(30).selectExpr(*columns).write.format("pyspark_log").mode("append")
        write.options(topic="t", schema="columns", mergeSchema="true").option("num.partitions", 1).save(log.path)
        roll(log, "t", 0, 9)

    seen = Seen()

    def see_and_evolve(frame: DataFrame, batch_id: int) -> None:
        seen(frame, batch_id)
        if batch_id == 0:
            write("'x' AS name", *later)

    write("'x' AS name", "CAST(id AS SMALLINT) AS n")
    query = pyspark_log.foreach_batch(
        spark,
        log.path,
        "t",
        see_and_evolve,
        checkpoint=str(tmp_path / "checkpoint"),
        options={"startingOffsets": "earliest"},
        query_name="typed",
    )
    try:
        assert query.name == "typed"
        while len(seen.batches) < 2 and query.isActive:
            time.sleep(0.05)
    finally:
        query.stop()
    assert query.exception() is None
    assert seen.rows == [(0, offset) for offset in range(60)]
    assert [by_files for _, _, by_files in seen.batches] == [True, native]
    assert seen.columns == [["topic", "partition", "offset", "timestamp", "name", "n"]] * 2


def test_the_checkpoint_may_be_on_another_file_system_that_only_the_session_knows(
    spark: SparkSession, log: PlainLog, tmp_path: Path
) -> None:
    """One of Hadoop's, as its clients of object stores are: no local path, and settings that are credentials there."""
    settings = {
        "fs.viewfs.mounttable.store.linkFallback": f"file://{tmp_path / 'disk'}",
        "fs.viewfs.impl.disable.cache": "true",  # otherwise we would get Spark's own client, with its settings
    }
    (tmp_path / "disk").mkdir()
    seen = Seen()
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        pyspark_log.foreach_batch(
            spark,
            log.path,
            "t",
            seen,
            checkpoint="viewfs://store/checkpoint",
            options={"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"},
            trigger=ENOUGH_NOW,
        ).awaitTermination()
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert [(number, native) for number, _, native in seen.batches] == [(0, True), (1, True)]
    assert seen.rows == offsets(0, 40)
    assert {each.name for each in (tmp_path / "disk" / "checkpoint" / "offsets").iterdir()} >= {"0", "1"}


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "assign", "path"])
def test_options_that_the_arguments_give_are_refused(spark: SparkSession, option: str) -> None:
    with pytest.raises(InvalidInput, match=f"options has {option}; give the path and the topic as arguments"):
        pyspark_log.foreach_batch(spark, "/log", "t", print, checkpoint="/checkpoint", options={option: "u"})


def test_a_session_of_spark_connect_is_refused() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidInput, match="foreach_batch needs the session of the driver, and this is one of Spark C"):
        pyspark_log.foreach_batch(session, "/log", "t", print, checkpoint="/checkpoint")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("v2\n{}\n0:{}", NewerFormat, "its first line is 'v2' instead of 'v1'"),
        ("", NewerFormat, "its first line is '' instead of 'v1'"),
        ("v1\n{}", CorruptObject, "it has offsets of 0 sources instead of one"),
        ("v1\n{}\n{}\n{}", CorruptObject, "it has offsets of 2 sources instead of one"),
        ("v1\n{}\n{", CorruptObject, "its offset is no JSON"),
        ("v1\n{}\n5", CorruptObject, "its offset is '5'"),
        ('v1\n{}\n{"row":5}', InvalidOption, "that of a query with another source: its offset is {'row': 5}"),
        ('v1\n{}\n{"t":{"0":5}}', InvalidOption, "that of a query that read Kafka"),
    ],
)
def test_a_checkpoint_that_is_not_of_such_a_query_is_refused(text: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        checkpoint.parse(text, "offsets/5")


@pytest.mark.slow
@pytest.mark.timeout(max(1200, 300 * KILLS))
def test_a_function_whose_driver_is_killed_writes_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    log = PlainLog(tmp_path / "log")
    log.create("in", PARTITIONS, segment_format="parquet")
    log.create("out", PARTITIONS)
    chunks = 10 * KILLS
    for first in range(0, 10 * chunks, 10):
        append(log, "in", first, first + 10)
    query = Query(
        log.path,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "trap"),
        {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"},
        {"topic": "out", "txnAppId": "copies"},
        by_function=True,
    )
    trap, dice, repeated = Trap(query.trap), random.Random(35), 0
    for nth in range(KILLS):
        for partition in range(PARTITIONS - 1):
            roll(log, "in", partition, 4)
        done = query.newest("commits")
        point = [HANDED, WRITTEN][nth % 2]
        if nth < 2 or nth % 4 == 0:
            trap.set(point, signal.SIGSTOP, done + 2)
        with driver([query], tmp_path / f"driver {nth}.txt") as doomed:
            if nth < 2 or nth % 4 == 0:
                doomed.wait_for(lambda point=point: trap.caught(point), point)
                assert query.sequenced_batch("out") == done + (2 if point == WRITTEN else 1)
                for file in trap.folder.iterdir():
                    file.unlink()
            else:
                doomed.wait_for(lambda done=done: query.newest("commits") > done, "a batch")
                time.sleep(dice.random())
        repeated += query.sequenced_batch("out") > query.newest("commits")
    assert repeated
    append(log, "in", 10 * chunks, 10 * chunks + 5)
    query.run(spark)
    rows = 10 * chunks + 5
    if not any(each.segments for each in log.log.topic("out").refresh().partitions):  # many batches are rolled
        values = [[b"%d" % (row * PARTITIONS + p) for row in range(rows)] for p in range(PARTITIONS)]
        batches = read_topic(log.path, "out").of_producer("copies")
        for number in range(query.newest("commits") + 1):
            assert batches[number].values == query.planned(number, lambda _: values), f"batch {number}"
    written = pyspark_log.read(spark, log.path, "out").select("value").collect()
    assert sorted(int(row.value) for row in written) == list(range(PARTITIONS * rows))
    print(
        f"{KILLS} kills, {repeated} left a batch that was written and not committed; {query.newest('commits')} batches"
    )
