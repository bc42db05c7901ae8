"""What consumers of a group commit, by themselves and automatically."""

import threading

import pytest

from pyspark_log import Consumer, OffsetAndMetadata
from pyspark_log_storage.errors import (
    InvalidInput,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.pyspark_log.clients.group_programs import GUARD, T, committed, fill


def in_another_thread(call):
    other = threading.Thread(target=call)
    other.start()
    other.join(GUARD)


def fail(_):
    raise StoreUnavailable("", "", "it does not answer")


class TestCommits:
    def test_are_of_what_was_returned_or_as_given_with_metadata(self, log, programs):
        fill(log, 10)
        consumer = programs.start(max_poll_records=10)
        programs.poll(lambda: len(programs.all_rows()) >= 10)
        consumer.commit()
        rows = programs.rows[consumer]
        for number in {partition for partition, _ in rows}:
            assert committed(programs, number) == 1 + max(offset for partition, offset in rows if partition == number)
        consumer.commit({("t", 5): OffsetAndMetadata(3, "why"), T[4]: 2})
        assert consumer.committed(("t", 5)) == OffsetAndMetadata(3, "why")
        assert consumer.committed(T[4]).offset == 2
        several = consumer.committed([T[4], ("t", 5), T[0]])
        assert several == {key: consumer.committed(key) for key in (T[4], T[5], T[0])}
        with pytest.raises(InvalidInput, match="'t' is not a partition"):
            consumer.committed("t")

    @pytest.mark.parametrize("auto", [False, True])
    def test_the_rows_of_a_call_during_which_another_thread_closes_the_consumer_are_left_to_others(
        self, log, programs, auto
    ):
        fill(log, 10, partitions=[0])
        consumer = programs.start(enable_auto_commit=auto, auto_commit_interval_ms=60_000)
        programs.running.clear()
        while not (rows := consumer.poll(10, max_records=4)):
            pass
        if not auto:
            consumer.commit()
        consumer._poller.note_rows = lambda: in_another_thread(consumer.close)
        assert consumer.poll(10) == []
        assert [row.offset for row in rows] == list(range(4))
        assert committed(programs, 0) == 4

    def test_of_a_partition_that_is_not_assigned_are_refused(self, log, programs):
        first = programs.start()
        programs.settle()
        programs.start()
        programs.settle()
        (other, *_) = sorted(set(T) - first.assignment())
        with pytest.raises(InvalidInput, match=r"is not assigned to this consumer.*nothing was committed"):
            first.commit({other: 1})
        for wrong in ({("t", 77): 1}, {("t", 0): -1}, {("t", 0): "x"}, 5):
            with pytest.raises(InvalidInput):
                first.commit(wrong)
        assert committed(programs, 0) is None

    @pytest.mark.parametrize("wrong", [("", -2), ("", "0"), ("", 2**63), ("\ud800", -1), (5, -1)])
    def test_of_what_no_entry_may_have_are_refused_and_disturb_no_other(self, log, programs, wrong):
        consumer = programs.start()
        programs.settle()
        with pytest.raises(InvalidInput):
            consumer.commit({T[0]: OffsetAndMetadata(1, *wrong)})
        consumer.commit({T[1]: 2})
        with Consumer(log.path, **programs.options) as other:
            assert other.committed(T[0]) is None
            assert other.committed(T[1]).offset == 2

    def test_of_a_simple_consumer_are_for_a_group_without_members(self, log, programs):
        fill(log, 10)
        with Consumer(log.path, **programs.options) as simple:
            simple.assign(T[:2])
            simple.poll(GUARD * 1000)
            simple.commit({T[0]: 4, T[1]: 6})
            assert simple.group_metadata().generation_id == -1
        with Consumer(log.path, **programs.options) as simple:
            simple.assign(T[:3])
            assert [simple.position(each) for each in T[:3]] == [4, 6, 0]
            simple.seek(T[1], 7)
            simple.assign(T[:3], {T[0]: 1})
            assert [simple.position(each) for each in T[:3]] == [1, 7, 0]
            programs.start()
            programs.settle()
            with pytest.raises(UnknownMember, match="has members"):
                simple.commit()


class TestAutoCommit:
    """Its two faults, and how manual commits avoid them. The program processes a batch in two halves."""

    def test_commits_what_was_returned_when_the_consumer_is_closed_or_gives_up_partitions(self, log, programs):
        fill(log, 10)
        consumer = programs.start(enable_auto_commit=True, auto_commit_interval_ms=60_000)
        programs.poll(lambda: len(programs.all_rows()) == 60)
        other = programs.start(enable_auto_commit=True, auto_commit_interval_ms=60_000)
        programs.settle()
        assert committed(programs, 5) == 10
        assert programs.rows[other] == []
        fill(log, 1)
        programs.poll(lambda: len(programs.all_rows()) == 66)
        programs.stop(consumer)
        programs.stop(other)
        assert [committed(programs, number) for number in range(6)] == [11] * 6

    def test_commits_what_was_returned_of_partitions_that_are_not_assigned_any_more(self, log, programs):
        fill(log, 10)
        options = programs.options | {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
        with Consumer(log.path, **options) as simple:
            for number in range(3):
                simple.assign([T[number]])
                assert len(simple.poll(GUARD * 1000)) == 10
            assert [committed(programs, number) for number in range(3)] == [10, 10, None]
            simple.unsubscribe()
            assert committed(programs, 2) == 10
            simple.assign([T[3]])
            simple.poll(GUARD * 1000)
            simple.subscribe(["t"])
            assert committed(programs, 3) == 10

    def test_commits_the_same_offset_again_if_that_failed(self, log, programs, monkeypatch):
        fill(log, 10, partitions=[0])
        options = programs.options | {"enable_auto_commit": True, "auto_commit_interval_ms": 0}
        with Consumer(log.path, **options) as simple:
            simple.assign([T[0]])
            simple.poll(GUARD * 1000)
            with monkeypatch.context() as broken:
                broken.setattr(simple._group._session, "submit", fail)
                assert simple.poll() == []
            assert committed(programs, 0) is None
            assert simple.poll() == []
            assert committed(programs, 0) == 10
