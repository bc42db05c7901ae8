"""What a row looks like on its way through Arrow, to a sink and from a source."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tests.spark_facts.bench import Bench, MakeBench

ID, TEXT = pa.field("id", pa.int64()), pa.field("text", pa.string())
ARROW = pa.schema([ID, TEXT])
TIME_ZONE = "spark.sql.session.timeZone"

ALL_TYPES = """
SELECT true AS bool, 1Y AS byte, 2S AS short, 3 AS int, 4L AS long,
       float(1.5) AS float, 2.5D AS double, 1.25BD AS dec,
       'text' AS string, X'0102' AS binary, DATE'2026-01-02' AS date,
       TIMESTAMP'2026-01-02 03:04:05.678901' AS ts, TIMESTAMP_NTZ'2026-01-02 03:04:05.678901' AS ntz,
       INTERVAL '1 02:03:04.5' DAY TO SECOND AS dt,
       TIME'12:34:56' AS time, array(1, null) AS array, map('k', array(1)) AS map,
       named_struct('a', 1, 'b', named_struct('c', 'd')) AS struct, parse_json('{"a": [1]}') AS variant,
       null AS void, CAST('c' AS CHAR(3)) AS char, CAST('v' AS VARCHAR(3)) AS varchar,
       'co' COLLATE UNICODE_CI AS collated,
       ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040') AS geometry
"""


def arrived(bench: Bench, rows: DataFrame) -> dict[str, tuple[str, bool]]:
    """The Arrow type and nullability of each column when it reaches the sink."""
    bench.save(rows.coalesce(1))
    [call] = bench.calls("write (0, 0)")
    return {name: (type_, nullable) for name, type_, nullable in call["fields"]}


def give(bench: Bench, *tables: pa.Table) -> None:
    """Let the source yield these Arrow batches."""
    for number, table in enumerate(tables):
        with pa.ipc.new_stream(bench.folder / f"{number}.given", table.schema) as stream:
            stream.write_table(table)


def rows_of(schema: pa.Schema) -> pa.Table:
    """One row in this Arrow schema."""
    return pa.table([[1], ["one"]], schema=schema)


def test_strings_and_binaries_are_small_and_timestamps_in_microseconds_of_the_session_time_zone(
    bench: Bench,
) -> None:
    with bench.conf(TIME_ZONE, "America/New_York"):
        types = arrived(bench, bench.spark.sql(ALL_TYPES))
    assert (types["string"][0], types["binary"][0]) == ("string", "binary")
    assert (types["ts"][0], types["ntz"][0]) == ("timestamp[us, tz=America/New_York]", "timestamp[us]")


def test_strings_and_binaries_are_large_under_use_large_var_types(bench: Bench) -> None:
    with bench.conf("spark.sql.execution.arrow.useLargeVarTypes", "true"):
        types = arrived(bench, bench.spark.sql("SELECT 'text' AS string, X'01' AS binary"))
    assert (types["string"][0], types["binary"][0]) == ("large_string", "large_binary")


def test_columns_are_not_null_as_planned(bench: Bench) -> None:
    assert arrived(bench, bench.spark.sql("SELECT id, nullif(id, 1) AS maybe FROM range(1)")) == {
        "id": ("int64", False),
        "maybe": ("int64", True),
    }


def test_the_writer_knows_the_whole_schema_before_any_task(bench: Bench) -> None:
    rows = bench.spark.sql("SELECT id, nullif(id, 1) AS maybe FROM range(1)")
    bench.save(rows)
    assert bench.names()[:3] == ["__init__", "writer", "write"]
    assert StructType.fromJson(json.loads(bench.calls("writer")[0]["schema"])) == rows.schema


def test_a_task_gets_arrow_batches_of_10_000_rows(bench: Bench) -> None:
    with bench.conf("spark.sql.execution.arrow.maxRecordsPerBatch", "10000"):
        bench.save(bench.spark.range(0, 25_000, 1, 1))
    assert [call["rows"] for call in bench.calls("write (0, 0)")] == [[10_000, 10_000, 5_000]]


def test_every_type_but_year_month_intervals_makes_the_round_trip(bench: Bench) -> None:
    rows = bench.spark.sql(ALL_TYPES)
    (bench.folder / "keep").touch()
    bench.save(rows.coalesce(1))
    kept = pa.ipc.open_stream((bench.folder / "kept.arrow").read_bytes()).read_all()
    give(bench, kept.cast(to_arrow_schema(rows.schema, timezone="UTC")))
    read = bench.batch().schema(rows.schema).load()
    assert repr(read.first()) == repr(rows.first())  # a VariantVal knows no ==


def read_ahead(bench: Bench, rows: DataFrame) -> list[str]:
    """What a stream returns of rows that its planner has read."""
    (bench.folder / "keep").touch()
    bench.save(rows.coalesce(1))
    kept = pa.ipc.open_stream((bench.folder / "kept.arrow").read_bytes()).read_all()
    give(bench, kept.cast(to_arrow_schema(rows.schema, timezone="UTC")))
    found: list[str] = []
    writer = bench.stream(kind="ahead").schema(rows.schema).load().writeStream
    writer = writer.foreachBatch(lambda frame, _: found.append(repr(frame.first())))
    bench.run(writer.option("checkpointLocation", str(bench.checkpoint)).trigger(availableNow=True))
    return found


def test_every_flat_type_and_headers_make_it_in_rows_that_the_planner_has_read(make_bench: MakeBench) -> None:
    bench = make_bench(1)
    headers = "array(named_struct('key', 'k', 'value', X'01'), named_struct('key', 'l', 'value', null))"
    flat = f"SELECT * EXCEPT (time, array, map, struct, variant, geometry, collated), {headers} AS headers"
    rows = bench.spark.sql(f"{flat} FROM ({ALL_TYPES})")
    assert read_ahead(bench, rows) == [repr(rows.first())]
    assert "stream read" not in bench.names()


@pytest.mark.parametrize("value", ["array(1, null)", "map('k', CAST(null AS INT))", "'co' COLLATE UNICODE_CI"])
def test_nulls_in_nested_types_and_collations_fail_if_the_planner_has_read_the_rows(
    make_bench: MakeBench, value: str
) -> None:
    bench = make_bench(1)
    with pytest.raises(StreamingQueryException, match=r"Value at index is null|ARROW_TYPE_MISMATCH"):
        read_ahead(bench, bench.spark.sql(f"SELECT {value} AS text"))


def test_a_first_batch_in_exactly_the_schema_is_read(bench: Bench) -> None:
    give(bench, rows_of(ARROW))
    assert [tuple(row) for row in bench.batch().load().collect()] == [(1, "one")]


def test_the_first_batch_has_timestamps_in_utc_whatever_the_session_time_zone(make_bench: MakeBench) -> None:
    bench = make_bench(1)
    arrow = pa.schema([pa.field("ts", pa.timestamp("us", tz="UTC"))])
    give(bench, pa.table([[0]], schema=arrow))
    with bench.conf(TIME_ZONE, "America/New_York"):
        assert bench.batch().schema("ts TIMESTAMP").load().selectExpr("unix_micros(ts) AS us").first() == (0,)
