"""Committing staged files: for the topic that they were staged for, and while a journal does not answer."""

import msgspec
import pytest

from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import StoreUnavailable, UnknownTopic
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.plain_log import PlainLog, record


def staged_by(log):
    """Return what a task has staged: a row of topic t."""
    staging = log.staging("t")
    staging.add(Rows(record([b"a"]), None, None))
    return staging.finish()


def commit(log, staged):
    commit_staged(log.log, [staged], None, "all", RetryPolicy(), None)


def rows(log):
    return log.log.topic("t").partitions[0].high_watermark


def test_rows_for_an_earlier_topic_of_the_name_are_refused():
    log = PlainLog()
    log.create("t")
    staged = staged_by(log)
    log.delete("t")
    log.create("t")
    with pytest.raises(UnknownTopic, match="'t' was deleted and created again during the write"):
        commit(log, staged)
    assert rows(log) == 0


def test_a_commit_waits_for_a_journal_that_does_not_answer():
    store, clock = BreakableStore("/log"), fake_environment()

    def sleep(seconds):
        clock.sleep(seconds)
        if clock.monotonic() >= 8:
            store.broken = None

    log = PlainLog(store=store)
    log.create("t")
    staged = staged_by(log)
    log.log.environment = msgspec.structs.replace(clock, sleep=sleep)
    store.broken = StoreUnavailable
    commit(log, staged)
    assert rows(log) == 1
