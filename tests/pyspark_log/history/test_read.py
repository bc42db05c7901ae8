"""`read`: the rows of a topic between two positions."""

from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

import pyspark_log
from pyspark_log.writing.rows import Rows
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput
from tests.support.direct import DirectSpark, values
from tests.support.plain_log import NOON_MS, PlainLog

NOON = datetime.fromtimestamp(NOON_MS / 1000, timezone.utc)


@pytest.fixture
def log(tmp_path):
    """Topic t with a row in each second since noon, alternating between two partitions."""
    made = PlainLog(tmp_path)
    made.create("t", 2)
    times = [[NOON_MS + 1000 * n for n in range(20) if n % 2 == p] for p in (0, 1)]
    rows = {p: [b"%d" % n for n in range(20) if n % 2 == p] for p in (0, 1)}
    made.append("t", rows, times_ms=[*times[0], *times[1]])
    return made


def found(log, *bounds, **options):
    """The numbers of the rows by partition."""
    rows = pyspark_log.read(DirectSpark(), log.path, "t", *bounds, **options)
    return {p: [int(value) for value in found] for p, found in values(rows).items()}


def second(number):
    return NOON + timedelta(seconds=number)


@pytest.mark.parametrize("name", ["path", "subscribe", "Assign", "startingOffsets", "endingTimestamp", "versionAsOf"])
def test_an_option_that_says_which_rows_are_read_is_refused(log, name):
    with pytest.raises(InvalidInput, match=f"options has {name}"):
        found(log, options={name: "1"})


def test_other_options_are_passed_on(log):
    spark = DirectSpark()
    assert "headers" in pyspark_log.read(spark, log.path, "t")[0]
    pyspark_log.read(spark, log.path, "t", options={"client.rack": "here", "includeheaders": "false"})
    assert {"client.rack": "here", "includeHeaders": "false"}.items() <= spark.given.items()


def test_times_are_of_the_first_rows_that_reach_them(log):
    there = timezone(timedelta(hours=-9, minutes=-30))
    assert found(log, second(5).astimezone(there), second(8)) == {0: [6], 1: [5, 7]}
    assert found(log, second(18)) == {0: [18], 1: [19]}
    assert found(log, end=second(1)) == {0: [0]}


def test_a_time_between_two_milliseconds_leaves_out_no_row_and_where_ranges_meet_they_share_none(tmp_path):
    us = 500
    log = PlainLog(tmp_path)
    log.create("t")
    times = [NOON_MS * 1000 + each for each in (-1, 0, us, 999, 1000)]
    numbers = [pa.array([b"%d" % n for n in range(5)], pa.binary()), pa.array(times, schema.TIMESTAMP)]
    rows = pa.RecordBatch.from_arrays([pa.nulls(5, pa.binary()), *numbers], schema=schema.RECORD)
    log.append_rows("t", Rows(rows, None, pa.array([0] * 5, pa.int32())))
    time = NOON + timedelta(microseconds=us)
    before, after = found(log, end=time)[0], found(log, time)[0]
    assert {2, 3, 4} <= {*after}
    assert [*before, *after] == [0, 1, 2, 3, 4]


def test_offsets_are_given_by_partition(log):
    assert found(log, {0: 1, 1: 8}, {0: 3, 1: 9}) == {0: [2, 4], 1: [17]}
    assert found(log, {1: 8}) == {1: [17, 19]}
    assert found(log, second(15), {0: 9}) == {0: [16]}
    assert found(log, dict(enumerate(np.array([1, 8]))), {0: 3, 1: 9}) == {0: [2, 4], 1: [17]}
    with pytest.raises(InvalidInput, match="start has an offset for partition 1"):
        found(log, {0: 1, 1: 1}, partitions=[0])


@pytest.mark.parametrize(
    ("bounds", "more"), [(({0: "1"},), {}), (({0: 1.5},), {}), (({"0": 1},), {}), ((), {"partitions": ["0"]})]
)
def test_what_is_no_whole_number_is_refused(log, bounds, more):
    with pytest.raises(InvalidInput, match="expected a whole number"):
        found(log, *bounds, **more)


def test_read_returns_all_rows_of_a_topic_or_of_partitions_or_of_a_version(log):
    version = log.log.topic("t").journal.number
    log.append("t", {0: [b"20"]})

    def numbers(**options):
        found = values(pyspark_log.read(DirectSpark(), log.path, "t", **options))
        return {p: [int(value) for value in some] for p, some in found.items()}

    assert numbers() == {0: [*range(0, 22, 2)], 1: [*range(1, 20, 2)]}
    assert numbers(partitions=[1]) == {1: [*range(1, 20, 2)]}
    assert numbers(partitions=[0], version=version) == {0: [*range(0, 20, 2)]}


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (("latest",), "start is 'latest'; expected 'earliest', a datetime, or a dict of offsets"),
        (("earliest", "earliest"), "end is 'earliest'; expected 'latest', a datetime, or a dict of offsets"),
        ((5,), "start is 5; expected 'earliest', a datetime, or a dict of offsets"),
        ((datetime(2026, 1, 1),), "start is 2026-01-01 00:00:00; expected a time since 1970 with a time zone"),  # noqa: DTZ001 -- it is tested
        ((NOON - timedelta(days=50_000 // 2),), "expected a time since 1970"),
        (({0: 1}, {1: 5}), "start has no offset for partition 1; give start and end offsets of the partitions to read"),
    ],
)
def test_a_bound_that_cannot_be_used_is_refused(log, bounds, message):
    with pytest.raises(InvalidInput) as caught:
        found(log, *bounds)
    assert message in str(caught.value)
