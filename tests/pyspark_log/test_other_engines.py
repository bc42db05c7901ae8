"""The table of a topic, read by delta-rs and by DuckDB, which know nothing of the log."""

import json
import re
import shlex
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.segments import tiers
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log import typed_frames

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")

pytestmark = pytest.mark.deep
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "tables.md"
BATCHES, ROWS = 6, 500


def value(row, partition, batch):
    return b"%d of %d in %d" % (row, partition, batch)


@pytest.fixture
def log(tmp_path):
    """Topic t, of which all batches but the last are in Parquet segments."""
    made = PlainLog(tmp_path / "log")
    made.create("t", 2, segment_format="parquet", segment_bytes=1024, flush_messages=1)
    for batch in range(BATCHES):
        made.append("t", {p: [value(row, p, batch) for row in range(ROWS)] for p in range(2)})
        if batch == BATCHES - 2:
            handle = made.log.topic("t")
            topic_roll.roll_and_merge(handle)
            topic_cleanup.clean_up_topic(handle)
    return made


@pytest.fixture
def table(log):
    return deltalake.DeltaTable(f"{log.path}/{layout.topic_folder('t', log.log.topic('t').topic_id)}")


ROLLED = [(p, batch, row) for p in range(2) for batch in range(BATCHES - 1) for row in range(ROWS)]
EXPECTED = [(p, batch * ROWS + row, value(row, p, batch)) for p, batch, row in ROLLED]


def test_delta_rs_reads_the_rows_as_of_the_last_cleanup_and_only_the_files_that_a_filter_needs(table):
    rows = table.to_pyarrow_table(columns=["partition", "offset", "value"])
    assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == EXPECTED
    newest = pc.field("offset") >= (BATCHES - 2) * ROWS
    assert len(list(table.to_pyarrow_dataset().get_fragments(newest))) == 2 < len(table.file_uris())


def test_duckdb_reads_the_files_of_the_table_and_the_table_by_way_of_delta_rs(table):
    with duckdb.connect() as connection:
        connection.execute('SELECT partition, "offset", value FROM read_parquet(?)', [table.file_uris()])
        assert sorted(connection.fetchall()) == EXPECTED
        connection.register("topic", table.to_pyarrow_dataset())
        connection.execute('SELECT partition, count(*), max("offset") FROM topic GROUP BY 1 ORDER BY 1')
        assert connection.fetchall() == [(p, (BATCHES - 1) * ROWS, (BATCHES - 1) * ROWS - 1) for p in range(2)]


def test_the_first_program_of_the_docs_ends_with_rows_in_duckdb(tmp_path, capsys):
    section = PAGE.read_text().partition("## A first table\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python"]
    cli = CommandLine(tmp_path / "log")
    for kind, text in blocks:
        program = text.replace("/data/log", str(cli.path))
        if kind == "python":
            exec(compile(program, str(PAGE), "exec"), {})
            continue
        for line in program.splitlines():
            name, *words = shlex.split(line)
            assert name == "pyspark-log"
            cli.out(*words)
    described = json.loads(cli.out("topics", "describe", "flights", "--json"))
    assert sum(each["table_end"] for each in described["partitions"]) == 10_000
    *_, printed, expected = re.split(
        r"\n|  # ", f"{capsys.readouterr().out}{text.splitlines()[-1].partition('  # ')[2]}"
    )
    assert printed == expected == "[(10000, 10000)]"


def test_files_of_columns_that_became_wider_are_rewritten_when_they_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "MERGE_COUNT", 3)
    cli = CommandLine(tmp_path / "log")

    def grow(columns, rows):
        """Write rows, and to a Parquet file; return the files of the table."""
        typed_frames.write(cli.path, columns, rows, schema="columns", mergeSchema="true", num__partitions=1)
        handle = PlainLog(cli.path).log.topic("t")
        handle.submit(AlterConfig({"segment.format": "parquet", "file.delete.delay.ms": "0"}))
        cli.out("maintain", "--now")
        return deltalake.DeltaTable(f"{cli.path}/{layout.topic_folder('t', handle.topic_id)}").file_uris()

    old = [{"x": value, "s": {"a": value}} for value in range(2)]
    new = [{"x": value + 0.5, "s": {"a": value, "b": "b"}, "new": value} for value in range(300)]
    wider = "x DOUBLE, s STRUCT<a: INT, b: STRING>, new INT"
    grow("x INT, s STRUCT<a: INT>", old)
    files = grow(wider, new[:1])
    assert {str(pq.read_schema(each).field("x").type) for each in files} == {"int32", "double"}
    [merged] = grow(wider, new[1:])  # the third file is merged with the two before it
    assert pq.read_schema(merged).field("x").type == "double"
    assert pq.read_table(merged, columns=["x", "s", "new"]).to_pylist() == [
        *({"x": float(value), "s": {"a": value, "b": None}, "new": None} for value in range(2)),
        *new,
    ]
