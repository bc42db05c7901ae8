"""What consumers of a group commit, by themselves and automatically."""

import contextlib
import threading

import pytest

from pyspark_log import Consumer, OffsetAndMetadata
from pyspark_log.clients.commits import Commits
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidOption,
    RebalanceInProgress,
    RewindPending,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.pyspark_log.clients.group_programs import EAGER, GUARD, T, committed, fill


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
        consumer._looks.found = lambda: in_another_thread(consumer.close)
        assert consumer.poll(10) == []
        assert [row.offset for row in rows] == list(range(4))
        assert committed(programs, 0) == 4

    def test_of_what_was_committed_already_make_no_entry(self, log, programs):
        fill(log, 1)
        consumer = programs.start()
        programs.poll(lambda: len(programs.all_rows()) == 6, commit=True)
        before = log.log.group("g").journal.number
        consumer.commit()
        assert log.log.group("g").journal.number == before

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
        consumer, answers = programs.start(), []
        programs.settle()
        with pytest.raises(InvalidInput):
            consumer.commit({T[0]: OffsetAndMetadata(1, *wrong)})
        with contextlib.suppress(InvalidInput):
            consumer.commit_async({T[0]: OffsetAndMetadata(1, *wrong)}, lambda _, error: answers.append(error))
        consumer.commit({T[1]: 2})
        assert all(isinstance(error, InvalidInput) for error in answers)
        with Consumer(log.path, **programs.options) as other:
            assert other.committed(T[0]) is None
            assert other.committed(T[1]).offset == 2

    def test_may_be_asynchronous_and_in_order(self, log, programs):
        consumer, answers = programs.start(), []
        programs.settle()
        for offset in range(5):
            consumer.commit_async({T[0]: offset}, lambda offsets, error: answers.append((offsets[T[0]].offset, error)))
        consumer.commit({T[0]: 9})
        assert committed(programs, 0) == 9
        programs.poll(lambda: len(answers) == 5)
        assert answers == [(offset, None) for offset in range(5)]

    def test_that_are_asynchronous_are_carried_out_before_others_get_the_partitions(self, log, programs):
        fill(log, 1)
        first, answers = programs.start(partition_assignment_strategy=EAGER), []
        programs.poll(lambda: len(programs.all_rows()) == 6)
        first._group._thread.wake = lambda: None  # it is slow
        first.commit_async(callback=lambda _, error: answers.append(error))
        programs.start(partition_assignment_strategy=EAGER)
        programs.settle()
        programs.poll(lambda: bool(answers))
        assert answers == [None]
        assert len(programs.all_rows()) == 6

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

    def test_that_wait_together_are_one_if_they_are_of_one_generation(self):
        made = []
        commits = Commits(made.append, fake_environment())
        for generation, offset in ((1, 5), (1, 6), (2, 7)):
            commits.later(OffsetCommit({"id": {0: Offset(offset)}}, "member", generation), lambda _: None)
        commits.carry_out()
        assert [(each.generation, each.offsets["id"][0].offset) for each in made] == [(1, 6), (2, 7)]

    @pytest.mark.parametrize("error", [InvalidOption("offset.metadata.max.bytes", "x"), RewindPending("g", "x")])
    def test_that_wait_together_are_not_refused_for_another_one(self, error):
        answers, asked = [], []

        def submit(command):
            asked.append(sorted(command.offsets["id"]))
            if 0 in command.offsets["id"]:
                raise error

        commits = Commits(submit, fake_environment())
        for number in range(3):
            commits.later(OffsetCommit({"id": {number: Offset(5)}}, "member", 1), answers.append)
        commits.carry_out()
        commits.answer()
        assert answers == [error, None, None]
        assert asked == [[0, 1, 2], [0], [1], [2]]
        commits.later(OffsetCommit({"id": {0: Offset(5)}}, "member", 1), answers.append)
        commits.carry_out()
        assert asked[4:] == [[0]]

    def test_that_are_interrupted_are_carried_out_with_the_next(self):
        made, answers, errors = [], [], [KeyboardInterrupt()]

        def submit(command):
            if errors:
                raise errors.pop()
            made.append(command.generation)

        commits = Commits(submit, fake_environment())
        for generation in (1, 1, 2):
            commits.later(OffsetCommit({"id": {0: Offset(5)}}, "member", generation), answers.append)
        with pytest.raises(KeyboardInterrupt):
            commits.carry_out()
        commits.now(OffsetCommit({"id": {0: Offset(5)}}, "member", 3), 0)
        commits.answer()
        assert (made, answers) == ([1, 2, 3], [None] * 3)

    def test_in_a_rebalance_are_refused_at_once(self):
        made = []

        def submit(command):
            made.append(command)
            raise RebalanceInProgress("g", "member", "poll")

        with pytest.raises(RebalanceInProgress):
            Commits(submit, fake_environment()).now(OffsetCommit({}, "member", 1), 1000)
        assert len(made) == 1

    def test_do_not_undo_a_rewind(self, log, programs):
        fill(log, 10)
        with Consumer(log.path, **programs.options) as simple:
            simple.assign(T[:2])
            simple.poll(GUARD * 1000)
            simple.commit()
            log.log.group("g").submit(ResetOffsets({log.log.topic("t").topic_id: {0: Offset(2)}}))
            with pytest.raises(RewindPending):
                simple.commit({T[0]: 9})
            assert simple.position(T[0]) == 2
            simple.commit()
            assert committed(programs, 0) == 2


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

    def test_commits_now_and_then(self, log, programs):
        fill(log, 10)
        programs.start(enable_auto_commit=True, auto_commit_interval_ms=20)
        programs.poll(lambda: committed(programs, 5) == 10)

    def test_commits_the_same_offset_again_if_that_failed(self, log, programs, monkeypatch):
        fill(log, 10, partitions=[0])
        options = programs.options | {"enable_auto_commit": True, "auto_commit_interval_ms": 0}
        with Consumer(log.path, **options) as simple:
            simple.assign([T[0]])
            simple.poll(GUARD * 1000)
            with monkeypatch.context() as broken:
                broken.setattr(simple._group._session, "submit", fail)
                simple.poll()
                simple._group._commits.carry_out()
            for _ in range(2):  # the first one hears of the failure
                assert simple.poll() == []
                simple._group._commits.carry_out()
            assert committed(programs, 0) == 10
