"""Consumers and members of a group in trouble: stores that do not answer, interrupts, rewinds, deleted groups."""

import contextlib
import gc
import logging
import re
import time
import weakref

import pytest

from pyspark_log import Consumer
from pyspark_log.clients.reading import AssignedPartition
from pyspark_log_coordinator.group.machine import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_storage.errors import (
    InvalidInput,
    OutcomeUnknown,
    RebalanceInProgress,
    RewindPending,
    StoreRefused,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.pyspark_log.clients.group_programs import (
    GUARD,
    Committing,
    Notes,
    T,
    committed,
    expire,
    fill,
)

AWAY = StoreUnavailable("/log", "", "the disk is away")


@pytest.fixture
def reader(log, programs):
    """A simple consumer that has read ten rows of partition 0, and whose commits sleep in no time."""
    fill(log, 10, partitions=[0, 1])
    with Consumer(log.path, **programs.options) as made:
        made.assign(T[:1])
        made._group._environment = fake_environment()
        assert len(made.poll(GUARD * 1000)) == 10
        yield made


def fail(monkeypatch, owner, name, *errors, when=lambda *_: True, for_ever=False):
    """Let calls that `when` chooses raise these errors in turn; return the list of those that were raised."""
    original, left, raised = getattr(owner, name), list(errors), []

    def call(*given, **named):
        if left and when(*given):
            raised.append(left[0] if for_ever else left.pop(0))
            raise raised[-1]
        return original(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return raised


class TestACommit:
    def test_is_repeated_until_the_store_answers(self, programs, reader, monkeypatch):
        failed = fail(
            monkeypatch, reader._group._session, "submit", AWAY, OutcomeUnknown("the store did not answer"), AWAY
        )
        reader.commit()
        assert len(failed) == 3
        assert committed(programs, 0) == 10

    @pytest.mark.parametrize(("options", "seconds"), [({}, 60), ({"default_api_timeout_ms": 5000}, 5)])
    def test_is_repeated_for_the_time_that_the_options_say(self, log, programs, monkeypatch, options, seconds):
        with Consumer(log.path, **programs.options, **options) as consumer:
            consumer.assign(T[:1])
            clock = consumer._group._environment = fake_environment()
            fail(monkeypatch, consumer._group._session, "submit", AWAY, for_ever=True)
            with pytest.raises(StoreUnavailable, match="the disk is away"):
                consumer.commit({T[0]: 1})
            assert clock.monotonic() == seconds

    @pytest.mark.parametrize(
        "error",
        [RebalanceInProgress("g", "m", "wait"), UnknownMember("g", "m", "gone"), StoreRefused("/log", "", "no right")],
    )
    def test_fails_at_once_if_waiting_does_not_help(self, reader, monkeypatch, error):
        failed = fail(monkeypatch, reader._group._session, "submit", error, error)
        with pytest.raises(type(error)):
            reader.commit()
        assert len(failed) == 1


class TestAPoll:
    def test_waits_until_the_store_answers_and_says_so_once(self, log, reader, monkeypatch, caplog):
        fill(log, 3, partitions=[0])
        failed = fail(monkeypatch, reader._reading, "look", AWAY, AWAY, AWAY)
        with caplog.at_level(logging.WARNING, "pyspark_log"):
            assert [each.offset for each in reader.poll(GUARD * 1000)] == [10, 11, 12]
        assert len(failed) == 3
        assert caplog.messages == [
            "a consumer waits, and tries again: the disk is away",
            "the stores answer a consumer again",
        ]

    def test_returns_no_rows_if_the_outage_is_longer(self, reader, monkeypatch):
        fail(monkeypatch, reader._reading, "look", AWAY, for_ever=True)
        assert reader.poll(1) == []
        assert reader.poll_batches(0) == []
        assert reader.position(T[0]) == 10

    def test_reads_the_other_partitions_meanwhile(self, log, reader, monkeypatch):
        reader.assign(T[:2])
        fill(log, 5, partitions=[0])
        with monkeypatch.context() as patch:
            failed = fail(patch, AssignedPartition, "take", AWAY, when=lambda each, _: each.key == T[0], for_ever=True)
            rows = [row for _ in range(3) for row in reader.poll(0, max_records=4)]
            assert [(row.partition, row.offset) for row in rows] == [(1, offset) for offset in range(10)]
            assert len(failed) == 2, "it comes after those that can be read"
        assert [(row.partition, row.offset) for row in reader.poll(0)] == [(0, 10 + row) for row in range(5)]


class TestATopicThatDoesNotExist:
    def test_is_told_once_and_read_when_it_is_created(self, log, programs, caplog):
        programs.start("later", "t")
        programs.settle()
        programs.poll(lambda: "later" in caplog.text)
        log.create("later")
        log.append("later", {0: [b"a"]})
        programs.poll(programs.all_rows)
        told = [each for each in caplog.messages if "UNKNOWN_TOPIC_OR_PARTITION" in each]
        assert told == [
            "group 'g': topic 'later' does not exist (UNKNOWN_TOPIC_OR_PARTITION); it is read once it is created"
        ]


@pytest.fixture
def group(log, programs):
    return log.log.group("g")


@pytest.fixture
def simple(log, programs):
    """A consumer that is no member, and reads one partition of ten rows."""
    fill(log, 10, partitions=[0])
    with Consumer(log.path, **programs.options) as made:
        made.assign(T[:1])
        yield made


def rewind(log, offset):
    """Reset the offset of partition 0."""
    log.log.group("g", create=True).submit(ResetOffsets({log.log.topic("t").topic_id: {0: Offset(offset)}}))


class TestAnAssignment:
    @pytest.mark.parametrize("error", [StoreUnavailable("", "", "busy"), KeyboardInterrupt()])
    def test_that_cannot_be_read_at_first_is_read_whole_later(self, log, programs, monkeypatch, strategy, error):
        fill(log, 3)
        notes = Notes()
        consumer = programs.start(listener=notes, partition_assignment_strategy=strategy)
        is_second = iter([False, True])
        failures = fail(monkeypatch, consumer._group, "_read_too", error, when=lambda *_: next(is_second))
        with contextlib.suppress(type(error)):  # one that may pass is logged
            programs.poll(lambda: failures)
        programs.poll(lambda: len(programs.all_rows()) == 18)
        assert notes.of("assigned")[0] == [0, 1, 2, 3, 4, 5]
        assert not notes.of("lost")


class TestListeners:
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
        assert committed(programs, 0) == 5


class TestAGroupThatWasDeleted:
    def test_starts_again_with_the_next_commit_of_a_simple_consumer(self, group, programs, simple):
        simple.poll(GUARD * 1000)
        simple.commit({T[0]: 4})
        group.submit(DeleteGroup())
        simple.commit()
        assert committed(programs, 0) == 10

    def test_has_no_member_that_could_commit_and_is_joined_again(self, log, group, programs):
        fill(log, 1)
        consumer = programs.start()
        programs.poll(lambda: len(programs.all_rows()) == 6)
        group.submit(expire(programs, consumer))
        group.submit(DeleteGroup())
        with pytest.raises(UnknownMember, match="was deleted"):
            consumer.commit()
        programs.poll(lambda: programs.state.members)


class TestTheEndOfAConsumer:
    def test_comes_although_its_listener_refers_to_it(self, programs):
        gone = weakref.ref(programs.start(listener=Committing()))
        programs.settle()
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
