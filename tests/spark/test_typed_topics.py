"""Typed topics with Spark: a frame's columns come back as they were, in batches and streams, while they evolve."""

import re
import signal
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.spark.faulty_source import COMMITTING, Trap
from tests.support.spark.kills import Query
from tests.support.spark.spark_log import SparkLog

ALL_TYPES = """
    cast(id as tinyint) a, cast(id as smallint) b, cast(id as int) c, id d, cast(id as float) e, cast(id as double) f,
    cast(id as decimal(12, 3)) g, concat('n', id) h, cast(concat('n', id) as binary) i, id % 2 = 0 j,
    date'2024-01-01' + cast(id as int) k, timestamp'2024-01-01 12:00:00' l, timestamp_ntz'2024-01-01 12:00:00' m,
    array(id, null) n, map('x', id, 'y', null) o, named_struct('p', id, 'q', array(named_struct('r', 'deep'))) s,
    if(id = 3, null, named_struct('u', id)) t
"""


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    return SparkLog(spark, tmp_path_factory.mktemp("typed"))


def frame(log, *columns, rows=20):
    return log.spark.range(rows).selectExpr(*columns)


@pytest.mark.default
def test_columns_of_every_type_come_back_in_a_batch_and_in_a_stream(log):
    written = log.spark.range(20).selectExpr(*[each.strip() for each in _split(ALL_TYPES)])
    log.write(written, topic="all", schema="columns")
    found = log.read(subscribe="all")
    assert found.columns[:4] == ["topic", "partition", "offset", "timestamp"]
    assert (
        found.drop("topic", "partition", "offset", "timestamp").schema.simpleString() == written.schema.simpleString()
    )
    expected = sorted(written.collect(), key=lambda row: row["d"])
    assert found.select(*written.columns).orderBy("d").collect() == expected
    [rows] = log.gathered(log.stream(subscribe="all", startingOffsets="earliest"))
    assert sorted((tuple(row)[4:] for row in rows), key=lambda row: row[3]) == [tuple(row) for row in expected]


def _split(text):
    """Return the columns of a SELECT: the commas outside of parentheses divide them."""
    depth, begin, parts = 0, 0, []
    for place, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


@pytest.mark.default
def test_a_stream_writes_a_typed_topic_whose_columns_evolve_after_a_restart(log):
    log.write(frame(log, "cast(id as int) id"), topic="from", schema="columns", **{"num.partitions": 1})
    log.write(frame(log, "cast(1 as int) id", rows=1), topic="to", schema="columns")

    def drain():
        rows = log.stream(subscribe="from", startingOffsets="earliest")
        columns = [name for name in rows.columns if name not in {"topic", "partition", "offset", "timestamp"}]
        log.drain(rows.select(*columns), "evolving", topic="to", mergeSchema="true")

    drain()
    log.write(
        frame(log, "cast(2 * (id + pow(2, 40)) as bigint) id", "'new' name"),
        topic="from",
        mergeSchema="true",
    )
    drain()
    found = log.read(subscribe="to")
    assert found.schema["id"].dataType.simpleString() == "bigint"
    assert found.count() == log.rows("to") == 41
    assert found.where("name = 'new'").count() == 20
    assert found.where("name is null").count() == 21


def test_a_stream_keeps_the_columns_with_which_it_began(log):
    log.write(frame(log, "id", rows=3), topic="kept", schema="columns")
    stream = log.stream(subscribe="kept", startingOffsets="earliest")
    log.write(frame(log, "id", "'x' name", rows=3), topic="kept", mergeSchema="true")
    [rows] = log.gathered(stream)
    assert sorted(row["id"] for row in rows) == [0, 0, 1, 1, 2, 2]
    assert "name" not in rows[0]


def test_a_running_stream_fails_at_the_first_value_that_is_too_large_and_goes_on_when_it_is_loaded_again(log, tmp_path):
    log.write(frame(log, "cast(id as int) id", rows=3), topic="grows", schema="columns")
    seen = []

    def see_and_evolve(batch, number):
        seen.append((number, sorted(row["id"] for row in batch.collect())))
        if number < 2:
            log.write(frame(log, f"id + {[0, 2**40][number]} id", rows=3), topic="grows", mergeSchema="true")

    def start(**trigger):
        stream = log.stream(subscribe="grows", startingOffsets="earliest")
        writer = stream.writeStream.foreachBatch(see_and_evolve).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(**trigger).start()

    with pytest.raises(StreamingQueryException, match=r"from offset 6: column 'id': .*load again"):
        start(processingTime="0 seconds").awaitTermination()
    start(availableNow=True).awaitTermination()
    assert seen == [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [2**40 + n for n in range(3)])]


def test_spark_reads_no_columns_at_all_to_count(log):
    log.write(frame(log, "id"), topic="counted", schema="columns")
    assert log.read(subscribe="counted").count() == 20
    assert log.spark.read.format("pyspark_log").schema("id bigint, topic string").option("subscribe", "counted").load(
        log.path
    ).agg({"id": "sum"}).collect() == [(190,)]


def test_a_process_that_is_killed_between_an_evolution_and_its_batch_loses_and_doubles_nothing(log, spark, tmp_path):
    log.write(frame(log, "id", "'x' name"), topic="grown-in", schema="columns")
    log.write(frame(log, "cast(-1 as int) id", rows=1), topic="grown", schema="columns")
    query = Query(
        log.path,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "trap"),
        {"subscribe": "grown-in", "startingOffsets": "earliest"},
        {"topic": "grown", "mergeSchema": "true"},
        ["id", "name"],
    )
    trap = Trap(query.trap)
    trap.set(COMMITTING, signal.SIGKILL, 0)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(COMMITTING)
    assert (log.rows("grown"), len(log.log.topic("grown").schemas)) == (1, 2)
    query.run(spark)
    assert (log.rows("grown"), len(log.log.topic("grown").schemas)) == (21, 2)
    assert sorted(row["id"] for row in log.read(subscribe="grown").collect()) == list(range(-1, 20))


def test_the_program_of_the_documentation_runs(spark, tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "typed-topics.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(program.replace("/data/log", str(tmp_path / "log")), {})
    assert re.search(r"\|\s*0\|1545\|\s*UA\|2013-01-01\|\s*2.5\|", capsys.readouterr().out)
