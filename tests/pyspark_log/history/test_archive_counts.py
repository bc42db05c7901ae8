"""What an archive concludes from the counts of its table, without Spark. The counts themselves are in `tests/delta`."""

import time
from datetime import timedelta

import pytest
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_log.history import archive, archive_table
from pyspark_log.history.archive import _Counted
from pyspark_log.history.archive_table import ArchiveState
from pyspark_log_storage.errors import DataLoss, InvalidInput
from tests.support.plain_log import PlainLog

WHOLE = _Counted(rows=5, offsets=5, first=0, end=5)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class Table:
    """A table with these counts."""

    name = "table"

    def __init__(self, monkeypatch, *counts):
        self.asked = []
        monkeypatch.setattr(archive, "_count", self._count)
        self._counts = dict(enumerate(counts))

    def _count(self, _, starts):
        self.asked.append(starts)
        return {p: each for p, each in self._counts.items() if p in starts and each is not None}

    def version(self):
        return 1

    def rows(self, _):
        return None


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t")
    now = int(time.time() * 1000)
    made.append("t", {0: [b"0", b"1", b"2", b"3", b"4"]}, [now - HOUR_MS] * 3 + [now - MINUTE_MS] * 2)
    return made


def state_of(log, end=5):
    return ArchiveState("t", log.log.topic("t").topic_id, {0: (0, end)}, {0: 0})


def counted_ends(table, since, end=5):
    return archive._counted_ends(table, ArchiveState("t", "1", {0: (0, end)}, {0: 0}), {0: since})


def test_rows_that_the_properties_do_not_name_yet_are_counted(monkeypatch):
    assert counted_ends(Table(monkeypatch, _Counted(2, 2, 5, 7)), since=5) == {0: 7}
    assert counted_ends(Table(monkeypatch, None), since=5) == {0: 5}, "there are none"


@pytest.mark.parametrize(
    "counted",
    [
        None,
        WHOLE._replace(rows=6),
        WHOLE._replace(rows=4, offsets=4),
        WHOLE._replace(rows=5, offsets=4),
        WHOLE._replace(rows=4, offsets=4, first=1),
        WHOLE._replace(rows=4, offsets=4, end=4),
    ],
    ids=["none", "double", "missing", "double and missing", "first missing", "last missing"],
)
def test_a_table_in_which_a_row_is_missing_or_double_was_altered(monkeypatch, counted):
    with pytest.raises(InvalidInput, match=r"it was altered\. Nothing was deleted from the log"):
        counted_ends(Table(monkeypatch, counted), since=0)


def delete(log, table, retention, state=None):
    given, handle = {"path": log.path, "subscribe": "t"}, log.log.topic("t")
    archive._delete(given, handle, table, state or state_of(log), retention)


def log_start(log):
    return log.log.topic("t").partitions[0].log_start


def test_only_rows_that_were_counted_in_the_table_and_are_old_enough_are_deleted_from_the_log(log, monkeypatch):
    with pytest.raises(InvalidInput, match="it was altered"):
        delete(log, Table(monkeypatch, WHOLE._replace(rows=6)), timedelta(0))
    assert log_start(log) == 0
    table = Table(monkeypatch, _Counted(2, 2, 0, 2))
    delete(log, table, timedelta(0), state_of(log, end=2))
    assert (table.asked, log_start(log)) == ([{0: 0}], 2)
    delete(log, Table(monkeypatch, _Counted(3, 3, 2, 5)), timedelta(minutes=30))
    assert log_start(log) == 3


def test_rows_that_the_table_has_and_the_log_has_lost_are_an_error(log):
    handle = log.log.topic("t")
    archive.check_topic(state_of(log, end=5), handle, "table")
    with pytest.raises(DataLoss, match="partition 0: table table has rows of offsets 5 to 6 that the log has lost"):
        archive.check_topic(state_of(log, end=7), handle, "table")


def struct(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_of_a_table_are_not_made_narrower_by_narrower_rows():
    stored = struct(n=LongType(), f=DoubleType(), s=struct(n=LongType()), a=ArrayType(LongType()), t=StringType())
    rows = struct(N=IntegerType(), f=FloatType(), s=struct(n=IntegerType()), a=ArrayType(IntegerType()), u=LongType())
    changes = []
    held = archive_table._wider(stored, rows, "", changes)
    assert held == struct(N=LongType(), f=DoubleType(), s=struct(n=LongType()), a=ArrayType(LongType()), u=LongType())
    assert changes == []


def test_columns_of_a_table_are_made_wider_for_wider_rows_wherever_they_are():
    stored = struct(n=IntegerType(), s=struct(n=IntegerType()), a=ArrayType(struct(f=FloatType())))
    rows = struct(n=LongType(), s=struct(n=LongType(), new=LongType()), a=ArrayType(struct(f=DoubleType())))
    stored.add("m", MapType(IntegerType(), IntegerType()))
    rows.add("m", MapType(LongType(), LongType()))
    changes = []
    assert archive_table._wider(stored, rows, "", changes) == rows
    numbers, fractions = (IntegerType(), LongType()), (FloatType(), DoubleType())
    wanted = {
        "`n`": numbers,
        "`s`.`n`": numbers,
        "`a`.element.`f`": fractions,
        "`m`.key": numbers,
        "`m`.value": numbers,
    }
    assert {path: types for path, *types in changes} == {path: [*types] for path, types in wanted.items()}


class Catalog:
    """A session that knows the properties of one table."""

    def __init__(self, properties):
        self._detail = {"format": "delta", "properties": properties}

    def sql(self, _):
        return self

    def head(self):
        return self._detail


def test_the_properties_of_a_table_come_back():
    state = ArchiveState("t", "1", {1: (0, 98), 0: (5, 120)}, {0: 3, 1: 0})
    found = dict(part.split("' = '") for part in archive_table._properties(state)[1:-1].split("', '"))
    assert archive_table.ArchiveTable(Catalog(found), "table").state() == state
    offsets = "pyspark_log.archive.offsets"
    for properties in ({}, found | {offsets: '{"0":[5]}'}, found | {offsets: "0:5-120"}):
        with pytest.raises(InvalidInput, match="table is no archive of a topic"):
            archive_table.ArchiveTable(Catalog(properties), "table").state()
