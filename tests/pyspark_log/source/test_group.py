"""Streaming queries that commit their offsets to a group, start from committed offsets, and follow rewinds."""

from functools import partial

import pytest

from pyspark_log.opening import forget_logs
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.log.group_handle import GroupHandle
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import (
    DataLoss,
    OutcomeUnknown,
    StoreUnavailable,
    UnknownGroup,
    UnknownMember,
)
from tests.support.direct import Stream
from tests.support.plain_log import PlainLog

IN_GROUP = {"subscribe": "t", "group.id": "g"}
FROM_GROUP = {**IN_GROUP, "startingOffsets": "group"}


@pytest.fixture
def log(tmp_path):
    """Topic t with ten rows in each of two partitions."""
    log = PlainLog(tmp_path)
    log.create("t", 2)
    append(log, range(10))
    return log


@pytest.fixture
def stream(log):
    return partial(Stream, log.path)


def append(log, numbers):
    log.append("t", {p: [b"%d" % n for n in numbers] for p in (0, 1)})


def topic_id(log):
    return log.log.topic("t").topic_id


def committed(log):
    state = log.log.group("g").refresh()
    return {p: state.committed(topic_id(log), p).offset for p in (0, 1)}


def commit(log, offset, rewinds=0):
    offsets = {topic_id(log): dict.fromkeys((0, 1), Offset(offset))}
    log.log.group("g", create=True).submit(OffsetCommit(offsets, rewinds=rewinds))


def rewind(log, offsets, group="g"):
    new = {topic_id(log): {p: Offset(offset) for p, offset in offsets.items()}}
    log.log.group(group, create=True).submit(ResetOffsets(new))


def numbers(rows, partition=0):
    return [int(row["value"]) for row in rows if row["partition"] == partition]


def test_what_spark_has_committed_is_committed_to_the_group_by_the_next_call(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    assert log.log.group("g").refresh().offsets == {}
    assert query.batch() is None
    assert committed(log) == {0: 10, 1: 10}


def test_an_idle_query_adds_no_entries_to_the_groups_journal(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    query.batch()
    number = log.log.group("g").journal.number
    for _ in range(3):
        query.batch()
    again = stream(**IN_GROUP, start=query.start)
    again.batch()
    assert log.log.group("g").journal.number == number


def test_a_new_query_starts_at_the_committed_offsets_and_elsewhere_at_latest(log, stream):
    log.log.group("g", create=True).submit(OffsetCommit({topic_id(log): {0: Offset(7)}}))
    query = stream(**FROM_GROUP)
    rows = query.batch()
    assert (numbers(rows), numbers(rows, 1)) == ([7, 8, 9], [])
    append(log, [10])
    rows = query.batch()
    assert (numbers(rows), numbers(rows, 1)) == ([10], [10])


def test_a_query_and_a_group_beyond_the_end_of_a_log_that_has_lost_its_newest_entry_fail(log, stream):
    append(log, [10, 11])
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    commit(log, 12)
    log.newest_entry("t").unlink()
    forget_logs()
    for begin in ({"start": query.start, **IN_GROUP}, FROM_GROUP):
        with pytest.raises(DataLoss, match="offset 12 of epoch 0 was truncated, that epoch ends at 10"):
            stream(**begin).batch()


def test_a_committed_offset_that_has_expired_fails_the_query_unless_it_may_lose_rows(log, stream):
    commit(log, 2)
    for partition in (0, 1):
        log.log.topic("t").submit(DeleteRecords(partition, 5))
    with pytest.raises(DataLoss, match="offset 2 has expired"):
        stream(**FROM_GROUP).batch()
    assert numbers(stream(**FROM_GROUP, failOnDataLoss="false").batch()) == [5, 6, 7, 8, 9]


def test_a_running_query_takes_up_a_rewind_with_its_next_batch(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    rewind(log, {0: 4})
    rows = query.batch()
    assert numbers(rows) == list(range(4, 10))
    assert numbers(rows, 1) == []
    assert query.batch() is None, "it takes it up once"
    assert committed(log) == {0: 10, 1: 10}


def test_rows_that_are_written_while_a_batch_is_planned_may_be_skipped_by_a_rewind(log, stream, monkeypatch):
    commit(log, 3)
    query, refresh = stream(**FROM_GROUP), GroupHandle.refresh

    def overtaken(handle, **options):
        monkeypatch.setattr(GroupHandle, "refresh", refresh)
        append(log, range(10, 20))
        rewind(log, {0: 20, 1: 20})
        return handle.refresh(**options)

    monkeypatch.setattr(GroupHandle, "refresh", overtaken)
    query.batch()
    append(log, [20])
    assert numbers(query.batch()) == [20]


def test_the_batch_after_a_rewind_is_repeated_exactly(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    before = query.start
    rewind(log, {0: 4})
    rows = query.batch()
    rewind(log, {0: 0})
    append(log, [10])
    replay = stream(**IN_GROUP, start=query.start)
    assert replay.between(before, query.start) == rows
    assert numbers(replay.batch()) == list(range(11)), "the later rewind"


def test_a_group_whose_members_share_the_work_takes_no_offsets_of_a_query(log, stream):
    member = MemberDetails("m", (Protocol("range"),))
    log.log.group("g", create=True).submit(JoinGroup(member, "consumer"))
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    with pytest.raises(UnknownMember, match="or stop the members"):
        query.batch()


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("/log", "k", "the store does not answer"),
        OutcomeUnknown("it is unknown"),
        UnknownGroup("g", "it was deleted"),
    ],
)
def test_a_commit_that_fails_for_now_is_repeated_and_fails_no_query(log, stream, monkeypatch, caplog, error):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    with monkeypatch.context() as patch:
        patch.setattr(GroupHandle, "submit", lambda *_: (_ for _ in ()).throw(error))
        assert query.batch() is None
    assert f"committing offsets to group 'g' failed: {error.message}" in caplog.text
    query.batch()
    assert committed(log) == {0: 10, 1: 10}


def test_a_store_of_the_groups_journal_that_is_away_stops_no_query(log, stream, monkeypatch, caplog):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    append(log, [10])

    def fails(*_, **__):
        raise StoreUnavailable("/log", "k", "the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(GroupHandle, "refresh", fails)
        assert numbers(query.batch()) == [10]
        rewind_later = query.start
    assert caplog.text.count("the store is away") == 1
    rewind(log, {0: 9})
    assert numbers(stream(**IN_GROUP, start=rewind_later).batch()) == [9, 10]


def test_a_query_that_has_joined_a_group_is_not_restarted_past_a_rewind(log, stream):
    query = stream(subscribe="t", startingOffsets="earliest")
    query.batch()
    joined = stream(**IN_GROUP, start=query.start)
    assert joined.batch() == [], "it notes the group in its checkpoint, once"
    assert joined.batch() is None
    rewind(log, {0: 3})
    again = stream(**IN_GROUP, start=joined.start)
    assert numbers(again.batch()) == list(range(3, 10))


def test_the_rewinds_of_one_group_do_not_count_for_another(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest")
    query.batch()
    for offset in (1, 2, 3):
        rewind(log, {0: offset})
        assert numbers(query.batch()) == list(range(offset, 10))
    other = stream(**{**IN_GROUP, "group.id": "h"}, start=query.start)
    assert other.batch() == []
    rewind(log, {0: 5}, group="h")
    assert numbers(other.batch()) == [5, 6, 7, 8, 9]


def test_a_query_whose_rows_have_expired_goes_on_where_the_group_was_reset_to(log, stream):
    query = stream(**IN_GROUP, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.batch()
    for partition in (0, 1):
        log.log.topic("t").submit(DeleteRecords(partition, 5))
    with pytest.raises(DataLoss):
        query.batch()
    rewind(log, {0: 6, 1: 6})
    assert numbers(stream(**IN_GROUP, start=query.start).batch()) == [6, 7, 8, 9]
