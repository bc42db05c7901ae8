"""Committing staged files: one journal entry for each topic, and retries while a journal does not answer."""

import msgspec
import pytest

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import BatchMismatch, StoreUnavailable, UnknownTopic
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.plain_log import PlainLog, record

QUICK = RetryPolicy(retries=5, retry_backoff_ms=0, delivery_timeout_ms=10_000)


@pytest.fixture
def log():
    made = PlainLog()
    made.create("t", 2)
    made.create("u")
    return made


def task(log, topic, *values):
    staging = Staging(
        log.log.store_at,
        lambda name: destination_of(log.log.topic(name), None, 1000),
        topic,
        environment=log.log.environment,
        durable=True,
        sticky=0,
    )
    staging.add(Rows(record(values), None, None))
    return staging.finish()


def claim(batch):
    return ProducerClaim("query", "query", "run", batch)


def rows(log, topic):
    return sum(partition.high_watermark for partition in log.log.topic(topic).journal.state.partitions)


def commit(log, *tasks, batch=None, always=None):
    return commit_staged(log.log, tasks, None if batch is None else claim(batch), "all", QUICK, always)


def test_a_repeated_batch_has_the_offsets_that_it_got(log):
    commit(log, task(log, "t", b"before"))
    staged = task(log, "t", b"a", b"b")
    assert commit(log, staged, batch=0) == {"t": {0: (1, 3)}}
    commit(log, task(log, "t", b"after"))
    assert commit(log, staged, batch=0) == {"t": {0: (1, 3)}}


def test_a_replay_without_rows_is_noticed_in_the_topic_of_the_option(log):
    commit(log, task(log, "t", b"a"), batch=0, always="t")
    with pytest.raises(BatchMismatch, match="batch 0 again with 0 rows, but 1 are in the log"):
        commit(log, [], batch=0, always="t")


def test_rows_for_an_earlier_topic_of_the_name_are_refused(log):
    staged = task(log, "t", b"a")
    log.delete("t")
    log.create("t")
    with pytest.raises(UnknownTopic, match="'t' was deleted and created again during the write"):
        commit(log, staged)
    assert rows(log, "t") == 0


def test_a_commit_waits_for_a_journal_that_does_not_answer():
    store, clock = BreakableStore("/log"), fake_environment()

    def sleep(seconds):
        clock.sleep(seconds)
        if clock.monotonic() >= 8:
            store.broken = None

    log = PlainLog(store=store)
    log.create("t")
    staged = task(log, "t", b"a")
    log.log.environment = msgspec.structs.replace(clock, sleep=sleep)
    store.broken = StoreUnavailable
    commit_staged(log.log, [staged], None, "all", RetryPolicy(), None)
    assert rows(log, "t") == 1
