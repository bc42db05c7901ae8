"""Members of a group in trouble: interrupts, errors of stores and listeners, rewinds, and groups that are deleted."""

import contextlib
import gc
import re
import threading
import time
import weakref

import pytest

from pyspark_log import Consumer, ConsumerRebalanceListener, TopicPartition
from pyspark_log_coordinator.group.joining import JoinTogether
from pyspark_log_coordinator.group.leaving import ExpireMember
from pyspark_log_coordinator.group.lifecycle import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_coordinator.membership import group_member
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidInput,
    RebalanceInProgress,
    RewindPending,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.pyspark_log.clients.group_programs import GUARD, Committing, Notes, Programs

T = [TopicPartition("t", number) for number in range(3)]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


@pytest.fixture
def programs(log):
    made = Programs(log)
    yield made
    made.close()


@pytest.fixture
def group(log, programs):
    return log.log.group("g")


@pytest.fixture(params=[EAGER, COOPERATIVE])
def strategy(request):
    return request.param


@pytest.fixture
def simple(log, programs):
    """A consumer that is no member, and reads one partition of ten rows."""
    fill(log, 10, partitions=[0])
    with Consumer(log.path, **programs.options) as made:
        made.assign(T[:1])
        yield made


def fill(log, rows, partitions=range(3)):
    log.append("t", {number: [b"%d" % row for row in range(rows)] for number in partitions})


def committed(programs, partition=0):
    found = programs.state.committed(programs.log.log.topic("t").topic_id, partition)
    return None if found is None else found.offset


def rewind(log, offset):
    """Reset the offset of partition 0."""
    log.log.group("g", create=True).submit(ResetOffsets({log.log.topic("t").topic_id: {0: Offset(offset)}}))


def expire(programs, group, consumer):
    member_id = consumer.group_metadata().member_id
    group.submit(ExpireMember(member_id, programs.state.members[member_id].acted))


def fail_once(monkeypatch, owner, name, error, when=lambda *_: True):
    """Let the next call that `when` chooses raise `error`; return what says whether it has."""
    original, failures = getattr(owner, name), []

    def call(*given, **named):
        if not failures and when(*given):
            failures.append(error)
            raise error
        return original(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return failures


class TestAnAssignment:
    @pytest.mark.parametrize(
        "error", [StoreUnavailable("", "", "busy"), CorruptObject("t", "bad"), KeyboardInterrupt()]
    )
    def test_that_cannot_be_read_at_first_is_read_whole_later(self, log, programs, monkeypatch, strategy, error):
        fill(log, 3)
        notes = Notes()
        consumer = programs.start(listener=notes, partition_assignment_strategy=strategy)
        calls = iter(range(100))
        failures = fail_once(
            monkeypatch, consumer._group, "_read_too", error, when=lambda *_: next(calls) == 1
        )  # of the second of three partitions
        with contextlib.suppress(type(error)):  # one that may pass is logged
            programs.poll(lambda: failures)
        programs.poll(lambda: len(programs.all_rows()) == 9)
        assert notes.of("assigned")[0] == [0, 1, 2]
        assert not notes.of("lost")

    def test_is_taken_again_if_its_listener_was_interrupted(self, log, programs, strategy):
        fill(log, 3)

        class Listener(Notes):
            def on_partitions_assigned(self, assigned):
                super().on_partitions_assigned(assigned)
                if len(self.all) == 1:
                    raise KeyboardInterrupt

        listener = Listener()
        consumer = programs.start(listener=listener, partition_assignment_strategy=strategy)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(GUARD * 1000)
        assert not consumer.assignment()
        programs.poll(lambda: len(programs.all_rows()) == 9)
        assert listener.of("assigned")[:2] == [[0, 1, 2]] * 2

    def test_whose_topics_are_not_wanted_any_more_is_given_back_at_once(self, log, programs, monkeypatch, strategy):
        monkeypatch.setattr(group_member, "NEWS_SECONDS", GUARD)
        consumer = programs.start(partition_assignment_strategy=strategy)
        join = JoinTogether
        submit = consumer._group._session.submit

        def subscribe_then_submit(command):
            if isinstance(command, join):
                consumer._group._session.submit = submit
                consumer.subscribe(["one"])
            return submit(command)

        consumer._group._session.submit = subscribe_then_submit
        programs.poll(lambda: consumer.assignment() == {TopicPartition("one", 0)})


class TestAnInterrupt:
    def test_of_a_revocation_leaves_no_partition_that_two_members_read(self, log, programs, monkeypatch):
        fill(log, 3)
        first = programs.start(partition_assignment_strategy=COOPERATIVE)
        programs.poll(lambda: len(programs.all_rows()) == 9)
        fail_once(monkeypatch, first._group, "revoked", KeyboardInterrupt())
        second = programs.start(partition_assignment_strategy=COOPERATIVE)
        with pytest.raises(KeyboardInterrupt):
            programs.settle(partitions=3)
        programs.settle(partitions=3)
        assert not first.assignment() & second.assignment()

    def test_of_a_loss_leaves_no_partition_that_two_members_read(self, group, programs, monkeypatch):
        first = programs.start(partition_assignment_strategy=COOPERATIVE)
        programs.settle(partitions=3)
        expire(programs, group, first)
        programs.running.remove(first)
        second = programs.start(partition_assignment_strategy=COOPERATIVE)
        programs.settle(partitions=3)
        fail_once(monkeypatch, first._group, "lost", KeyboardInterrupt())
        programs.running.append(first)
        with pytest.raises(KeyboardInterrupt):
            first.poll(GUARD * 1000)
        programs.settle(partitions=3)
        assert not first.assignment() & second.assignment()

    def test_at_the_end_of_poll_loses_no_row(self, simple, monkeypatch):
        lock = simple._in_use

        class Interrupted:
            """The interrupt comes when the lock is released."""

            acquire = lock.acquire

            def release(self):
                lock.release()
                raise KeyboardInterrupt

        monkeypatch.setattr(simple, "_in_use", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            simple.poll(GUARD * 1000)
        monkeypatch.undo()
        assert len(simple.poll(GUARD * 1000)) == 10


class TestListeners:
    def test_whose_commit_fails_tell_the_program_although_it_may_be_tried_again(self, log, programs, monkeypatch):
        fill(log, 3)
        first = programs.start(listener=Committing(), partition_assignment_strategy=COOPERATIVE)
        programs.poll(lambda: len(programs.all_rows()) == 9)
        fail_once(monkeypatch, first._group._commits, "now", StoreUnavailable("", "", "the disk is away"))
        programs.start(partition_assignment_strategy=COOPERATIVE)
        with pytest.raises(StoreUnavailable, match="the disk is away"):
            programs.settle(partitions=3)
        programs.settle(partitions=3)

    def test_and_callbacks_cannot_unsubscribe_or_poll(self, programs):
        refused = []

        def try_all(*_):
            for call in (consumer.unsubscribe, consumer.poll):
                with pytest.raises(InvalidInput, match="a rebalance listener or callback cannot"):
                    call()
                refused.append(call)

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                try_all()

        consumer = programs.start(listener=Listener())
        programs.settle(partitions=3)
        consumer.commit_async({T[0]: 0}, try_all)
        consumer.commit()
        assert len(refused) == 4

    @pytest.mark.parametrize("listener", [Notes, lambda: None, "x"])
    def test_are_objects_of_the_class(self, log, programs, listener):
        with Consumer(log.path, **programs.options) as consumer, pytest.raises(InvalidInput, match="listener is"):
            consumer.subscribe(["t"], listener=listener)


@pytest.mark.parametrize(
    "given", [{"topics": [5]}, {"topics": [b"t"]}, {"pattern": b"t"}, {"pattern": re.compile(b"t")}]
)
def test_a_subscription_that_is_not_text_is_refused(log, programs, given):
    with Consumer(log.path, **programs.options) as consumer, pytest.raises(InvalidInput, match="is not text"):
        consumer.subscribe(**given)


class TestCallbacks:
    def test_are_called_by_a_commit_that_waits_for_them(self, log, programs):
        fill(log, 1)
        consumer, answers = programs.start(), []
        programs.poll(lambda: len(programs.all_rows()) == 3)
        consumer.commit_async(callback=lambda _, error: answers.append(error))
        consumer.commit({T[0]: 0})
        assert answers == [None]

    def test_are_called_if_there_is_nothing_to_commit(self, programs):
        consumer, answers = programs.start(), []
        consumer.commit_async(callback=lambda *given: answers.append(given))
        programs.poll(lambda: answers)
        assert answers == [({}, None)]

    def test_are_called_later_if_the_commit_is_interrupted(self, programs, monkeypatch):
        consumer, answers = programs.start(), []
        programs.settle(partitions=3)
        monkeypatch.setattr(consumer._group._thread, "wake", lambda: None)  # it is slow
        for offset in (1, 2):
            consumer.commit_async({T[0]: offset}, lambda given, _: answers.append(given[T[0]].offset))
        fail_once(monkeypatch, consumer._group._member, "carry_out", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            consumer.commit({T[0]: 3})
        consumer.commit({T[0]: 3})
        assert answers == [1, 2]
        assert committed(programs) == 3


class TestRewindsOfASimpleConsumer:
    def test_end_an_iteration_through_the_rows_before(self, log, programs, simple):
        found, refused = [], 0
        for record in simple:
            found.append(record.offset)
            if len(found) == 5:
                rewind(log, 2)
            try:
                simple.commit()
            except RewindPending:
                refused += 1
            if len(found) == 8:
                break
        assert (found, refused) == ([0, 1, 2, 3, 4, 2, 3, 4], 1)
        assert committed(programs) == 5

    def test_are_taken_up_by_asynchronous_commits(self, log, simple):
        errors = []
        assert len(simple.poll(GUARD * 1000)) == 10
        rewind(log, 8)
        simple.commit_async(callback=lambda _, error: errors.append(error))
        assert [record.offset for record in simple.poll(GUARD * 1000)] == [8, 9]
        simple.commit_async(callback=lambda _, error: errors.append(error))
        simple.commit()
        assert [type(each) for each in errors] == [RewindPending, type(None)]

    def test_are_not_undone_by_another_assign(self, log, programs, simple):
        simple.poll(GUARD * 1000)
        rewind(log, 2)
        simple.assign(T[:2])
        assert simple.position(T[0]) == 2
        simple.commit()
        assert committed(programs) == 2

    def test_do_not_overrule_the_start_that_is_given(self, log, simple):
        simple.poll(GUARD * 1000)
        rewind(log, 2)
        simple.assign(T[:2], {T[0]: 7})
        assert simple.position(T[0]) == 7


class TestAGroupThatWasDeleted:
    def test_starts_again_with_the_next_commit_of_a_simple_consumer(self, group, programs, simple):
        simple.poll(GUARD * 1000)
        simple.commit({T[0]: 4})
        group.submit(DeleteGroup())
        simple.commit()
        assert committed(programs) == 10

    def test_has_no_member_that_could_commit_and_is_joined_again(self, log, group, programs):
        fill(log, 1)
        consumer = programs.start()
        programs.poll(lambda: len(programs.all_rows()) == 3)
        expire(programs, group, consumer)
        group.submit(DeleteGroup())
        with pytest.raises(UnknownMember, match="was deleted"):
            consumer.commit()
        programs.poll(lambda: programs.state.members)


class TestTheEndOfAConsumer:
    def test_comes_although_its_listener_refers_to_it(self, programs):
        gone = weakref.ref(programs.start(listener=Committing()))
        programs.settle(partitions=3)
        thread = gone()._group._thread._thread
        assert thread.is_alive()
        programs.running.clear()
        programs.rows.clear()
        deadline = time.monotonic() + GUARD
        while gone() is not None:  # as long as the thread is in the middle of a request
            assert time.monotonic() < deadline
            gc.collect()
        thread.join(GUARD)
        assert not thread.is_alive()

    def test_leaves_the_group_although_its_join_was_interrupted(self, group, programs):
        consumer = programs.start()
        session = consumer._group._session
        submit = session.submit

        def join_and_interrupt(command):
            session.submit = submit
            group.submit(command)
            raise KeyboardInterrupt

        session.submit = join_and_interrupt
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(GUARD * 1000)
        assert programs.state.members
        programs.stop(consumer)
        assert not programs.state.members

    def test_is_not_missed_if_another_thread_closes_it_while_a_call_ends(self, programs, monkeypatch):
        consumer = programs.start()
        programs.settle(partitions=3)
        programs.running.clear()
        lock = consumer._in_use

        class LateLock:
            """Lets another thread close the consumer just before the lock is released."""

            def acquire(self, blocking=True):
                return lock.acquire(blocking=blocking)

            def release(self):
                monkeypatch.setattr(consumer, "_in_use", lock)
                closing = threading.Thread(target=consumer.close)
                closing.start()
                closing.join(GUARD)
                lock.release()

        monkeypatch.setattr(consumer, "_in_use", LateLock())
        consumer.poll()
        assert not programs.state.members

    def test_refuses_everything_afterwards(self, simple):
        simple.close()
        for call in (simple.poll, simple.commit, lambda: simple.assign(T)):
            with pytest.raises(InvalidInput, match="is closed"):
                call()


def test_a_commit_before_the_assignment_is_taken_is_refused_and_may_be_repeated(log, programs, monkeypatch):
    fill(log, 1)
    first = programs.start(partition_assignment_strategy=COOPERATIVE)
    programs.poll(lambda: len(programs.all_rows()) == 3)
    failures = fail_once(monkeypatch, first._group, "assigned", StoreUnavailable("", "", "busy"))
    programs.start(partition_assignment_strategy=COOPERATIVE)
    monkeypatch.setattr(group_member, "BACKOFF_SECONDS", GUARD)
    programs.poll(lambda: failures)
    kept = min(first.assignment())
    with pytest.raises(RebalanceInProgress, match="poll"):
        first.commit({kept: 1})
    first._group._member._resting_until = 0
    programs.settle(partitions=3)
    assert kept in first.assignment()
    first.commit({kept: 1})
    assert committed(programs, kept.partition) == 1
