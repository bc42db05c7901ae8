"""A read over an archive and the log has each row once: where the two meet, with a table that Python holds.

With Delta tables it is in `tests/delta/test_archive.py`.
"""

from datetime import datetime, timedelta, timezone

import pytest

import pyspark_log
from pyspark_log.history import batch_frame
from pyspark_log.history.archive_table import ArchiveState
from pyspark_log.source.row import row_schema
from pyspark_log_coordinator.replication.reassignment import AddPartitions
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import DataLoss, InvalidInput
from tests.support.direct import DirectSpark, read
from tests.support.plain_frame import Frame, Functions
from tests.support.plain_log import NOON_MS, PlainLog

SCHEMA = row_schema(include_headers=True)


def frame_of(rows):
    return Frame(SCHEMA, [tuple(row[name] for name in SCHEMA.names) for row in rows])


class Archive:
    """What takes the place of `ArchiveTable`: rows that were copied from the log, and what the properties say."""

    name = "table"

    def __init__(self, log):
        self.log = log
        self.copied = {}
        self.named = {}
        self.looks = []
        """What happens after each of the next looks at the properties."""
        self.topic_id = log.log.topic("t").topic_id

    def __call__(self, spark, name):
        assert name == self.name
        self.spark = spark
        return self

    def copy(self, *partitions, named=True):
        """Copy all rows of partitions; without `named` the properties do not say so yet."""
        for row in read(self.log.path, subscribe="t", includeHeaders="true"):
            if row["partition"] in partitions:
                self.copied[row["partition"], row["offset"]] = tuple(row[name] for name in SCHEMA.names)
        if named:
            for p in partitions:
                self.named[p] = (0, 1 + max(offset for number, offset in self.copied if number == p))

    def delete(self, partition, offset):
        self.log.log.topic("t").submit(DeleteRecords(partition, offset))

    def state(self):
        found = ArchiveState("t", self.topic_id, dict(self.named), dict.fromkeys(self.named, 0))
        if self.looks:
            self.looks.pop(0)()
        return found

    def version(self):
        return 1

    def rows(self, version):
        assert version == 1
        return Frame(SCHEMA, self.copied.values())


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2)
    made.append("t", {0: [b"0", b"1"], 1: [b"0"]})
    return made


@pytest.fixture
def table(log, monkeypatch):
    made = Archive(log)
    made.copy(0, 1)
    monkeypatch.setattr(batch_frame, "ArchiveTable", made)
    monkeypatch.setattr(batch_frame, "f", Functions())
    return made


def found(log, *bounds, **options):
    """The values of the rows by partition, in the order of their offsets."""
    rows = pyspark_log.read(DirectSpark(frame_of), log.path, "t", *bounds, archive="table", **options).dicts()
    values = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        values.setdefault(row["partition"], []).append(int(row["value"]))
    return values


def test_archived_rows_are_in_the_table_and_later_ones_in_the_log(log, table):
    table.delete(0, 2)
    log.append("t", {0: [b"2"], 1: [b"1"]})
    assert found(log) == {0: [0, 1, 2], 1: [0, 1]}
    assert found(log, partitions=[1]) == {1: [0, 1]}


def test_a_read_between_offsets_takes_of_each_side_what_is_between_them(log, table):
    table.delete(0, 2)
    log.append("t", {0: [b"2", b"3"], 1: [b"1"]})
    assert found(log, {0: 1, 1: 0}, {0: 3, 1: 1}) == {0: [1, 2], 1: [0]}
    assert found(log, {0: 3}) == {0: [3]}
    assert found(log, {0: 0}, {0: 1}) == {0: [0]}
    for bounds in (({0: 5},), ({0: 0}, {0: 5})):
        with pytest.raises(DataLoss, match="partition 0 has no offset 5: the archive and the log have 0 to 4"):
            found(log, *bounds)


def test_a_time_is_looked_for_in_the_table_and_then_in_the_log(log, table):
    for number in (2, 3, 4):
        log.append("t", {0: [b"%d" % number]}, times_ms=[NOON_MS + number])
        if number == 3:
            table.copy(0)
    table.delete(0, 4)
    noon = datetime.fromtimestamp(NOON_MS / 1000, timezone.utc)
    second, third, fourth, fifth = (noon + timedelta(milliseconds=each) for each in (2, 3, 4, 5))
    assert found(log, second)[0] == [2, 3, 4]
    assert found(log, fourth)[0] == [4]
    assert found(log, third, fourth)[0] == [3]
    assert 0 not in found(log, fifth)


def test_rows_that_the_table_has_and_does_not_name_yet_are_read_from_the_log(log, table):
    log.append("t", {0: [b"2", b"3"], 1: [b"1"]})
    table.copy(0, 1, named=False)
    assert found(log) == {0: [0, 1, 2, 3], 1: [0, 1]}


def test_a_version_has_no_rows_that_were_written_and_archived_after_it(log, table):
    version = log.log.topic("t").journal.number
    log.append("t", {0: [b"2"], 1: [b"1"]})
    assert found(log, version=version) == {0: [0, 1], 1: [0]}
    table.copy(0, 1)
    assert found(log, version=version) == {0: [0, 1], 1: [0]}


def test_a_version_has_the_partitions_that_the_topic_had(log, table):
    version = log.log.topic("t").journal.number
    handle = log.log.topic("t")
    incarnations = handle.journal.state.incarnations
    handle.submit(AddPartitions((tuple(incarnations),), incarnations))
    log.append("t", {2: [b"0"]})
    assert found(log, version=version) == {0: [0, 1], 1: [0]}
    assert found(log) == {0: [0, 1], 1: [0], 2: [0]}
    assert found(log, partitions=[2]) == {2: [0]}


def test_a_partition_that_is_not_archived_yet_is_read_from_where_the_log_has_it(log, table):
    del table.named[1]
    log.append("t", {1: [b"1", b"2"]})
    table.delete(1, 2)
    assert found(log) == {0: [0, 1], 1: [2]}


def test_rows_that_are_archived_and_deleted_between_the_looks_at_the_table_and_the_log_are_read(log, table):
    log.append("t", {0: [b"2"]})

    def archive_and_delete():
        table.copy(0)
        table.delete(0, 3)

    table.looks = [archive_and_delete]
    assert found(log) == {0: [0, 1, 2], 1: [0]}


def test_rows_that_neither_has_are_an_error(log, table):
    log.append("t", {0: [b"2", b"3"]})
    table.delete(0, 3)
    with pytest.raises(DataLoss):
        found(log)


def test_the_archive_of_a_former_topic_of_the_name_is_refused(log, table):
    log.delete("t")
    log.create("t", 2)
    with pytest.raises(InvalidInput, match="a former topic of this name"):
        found(log)
