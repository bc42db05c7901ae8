"""Consumers while a store does not answer: commits are repeated, polls wait, and rows of other partitions are read."""

import logging

import pytest

from pyspark_log import Consumer
from pyspark_log.clients.consumer import WARN_SECONDS, Outages
from pyspark_log.clients.reading import AssignedPartition
from pyspark_log_storage.errors import (
    CorruptObject,
    OutcomeUnknown,
    RebalanceInProgress,
    StoreRefused,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.pyspark_log.clients.group_programs import GUARD, T, committed, fill

AWAY = StoreUnavailable("/log", "", "the disk is away")


@pytest.fixture
def reader(log, programs):
    """A simple consumer that has read ten rows of partition 0, and whose commits sleep in no time."""
    fill(log, 10, partitions=[0, 1])
    with Consumer(log.path, **programs.options) as made:
        made.assign(T[:1])
        made._group._commits._environment = fake_environment()
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
            clock = consumer._group._commits._environment = fake_environment()
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

    def test_at_the_end_of_a_consumer_that_commits_by_itself_is_tried_once(self, log, programs, monkeypatch, caplog):
        fill(log, 10, partitions=[0])
        with Consumer(log.path, **programs.options, enable_auto_commit=True, auto_commit_interval_ms=10**6) as made:
            made.assign(T[:1])
            made._group._auto_commit()
            made.poll(GUARD * 1000)
            failed = fail(monkeypatch, made._group._session, "submit", AWAY, for_ever=True)
        assert len(failed) == 1
        assert "auto commit of group 'g' failed: the disk is away" in caplog.text


class TestAPoll:
    def test_waits_until_the_store_answers_and_says_so_once(self, log, reader, monkeypatch, caplog):
        fill(log, 3, partitions=[0])
        failed = fail(monkeypatch, reader._reading, "look", AWAY, AWAY, AWAY)
        with caplog.at_level(logging.WARNING, "pyspark_log"):
            assert [each.offset for each in reader.poll(GUARD * 1000)] == [10, 11, 12]
        assert len(failed) == 3
        assert caplog.messages == ["a consumer waits, and tries again: the disk is away"]

    def test_returns_no_rows_if_the_outage_is_longer(self, reader, monkeypatch):
        fail(monkeypatch, reader._reading, "look", AWAY, for_ever=True)
        assert reader.poll(1) == []
        assert reader.poll_batches(0) == []
        assert reader.position(T[0]) == 10

    def test_of_a_member_waits_for_a_topic_that_is_created_again_too(self, programs, monkeypatch):
        consumer = programs.start()
        programs.settle()
        failed = fail(monkeypatch, consumer._group, "find_missing", AWAY)
        assert consumer.poll(0) == []
        assert failed

    @pytest.mark.parametrize("error", [StoreRefused("/log", "", "no right"), CorruptObject("o", "bad")])
    def test_raises_what_waiting_does_not_change(self, reader, monkeypatch, error):
        fail(monkeypatch, reader._reading, "look", error)
        with pytest.raises(type(error)):
            reader.poll(GUARD * 1000)

    def test_reads_the_other_partitions_meanwhile(self, log, reader, monkeypatch):
        reader.assign(T[:2])
        fill(log, 5, partitions=[0])
        with monkeypatch.context() as patch:
            failed = fail(patch, AssignedPartition, "take", AWAY, when=lambda each, _: each.key == T[0], for_ever=True)
            rows = [row for _ in range(3) for row in reader.poll(0, max_records=4)]
            assert [(row.partition, row.offset) for row in rows] == [(1, offset) for offset in range(10)]
            assert len(failed) == 2, "it comes after those that can be read"
        assert [(row.partition, row.offset) for row in reader.poll(0)] == [(0, 10 + row) for row in range(5)]

    def test_whose_only_partition_cannot_be_read_says_so(self, log, reader, monkeypatch, caplog):
        fill(log, 1, partitions=[0])
        fail(monkeypatch, AssignedPartition, "take", AWAY)
        assert reader.poll(0) == []
        assert caplog.messages == ["a consumer waits, and tries again: the disk is away"]
        assert [row.offset for row in reader.poll(0)] == [10]

    def test_of_an_iteration_goes_on_after_the_outage(self, log, reader, monkeypatch):
        fill(log, 1, partitions=[0])
        fail(monkeypatch, reader._reading, "look", AWAY, AWAY)
        assert next(reader).offset == 10


def test_a_long_outage_is_told_now_and_then_and_ends(monkeypatch, caplog):
    now = 0.0
    monkeypatch.setattr("pyspark_log.clients.consumer.monotonic", lambda: now)
    outages = Outages()
    assert outages.pause == 0
    for now in (1.0, 2.0, 1.0 + WARN_SECONDS, 2.0 + WARN_SECONDS):  # noqa: B007 -- the clock reads it
        outages.note(AWAY)
        assert outages.pause > 0
    assert len(caplog.messages) == 2
    outages.end()
    assert outages.pause == 0


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

    def test_is_not_told_of_a_pattern(self, log, programs, caplog):
        with Consumer(log.path, **programs.options) as consumer:
            consumer.subscribe(pattern="x.*")
            consumer.poll(0)
        assert "UNKNOWN_TOPIC" not in caplog.text
