"""From staged files to the log: one journal entry for each topic, and patience with what passes."""

import msgspec
import pytest

from pyspark_log.client.write.commit import commit_staged
from pyspark_log.client.write.rows import Rows
from pyspark_log.client.write.staging import Staging, destination_of
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage.errors import BatchMismatch, StoreRefused, StoreUnavailable, UnknownTopic
from tests.coordinator.breakable_store import BreakableStore
from tests.coordinator.fake_environment import fake_environment
from tests.plain_log import PlainLog, record

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
        nonce=log.log.environment.nonce,
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


def test_all_tasks_of_a_topic_are_one_entry(log):
    before = log.log.topic("t").journal.number
    commit(log, task(log, "t", b"a"), [], task(log, "t", b"b"))
    assert log.log.topic("t").journal.number == before + 1
    assert rows(log, "t") == 2


def test_each_topic_is_an_entry_of_its_own(log):
    assert sorted(commit(log, task(log, "t", b"a"), task(log, "u", b"b"))) == ["t", "u"]
    assert (rows(log, "t"), rows(log, "u")) == (1, 1)


def test_a_replayed_batch_changes_nothing(log):
    commit(log, task(log, "t", b"a"), batch=0)
    number = log.log.topic("t").journal.number
    commit(log, task(log, "t", b"a"), batch=0)
    assert log.log.topic("t").journal.number == number
    assert rows(log, "t") == 1


def test_a_replay_without_rows_is_noticed_in_the_topic_of_the_option(log):
    commit(log, task(log, "t", b"a"), batch=0, always="t")
    with pytest.raises(BatchMismatch, match="batch 0 again with 0 rows, but 1 are in the log"):
        commit(log, [], batch=0, always="t")


def test_rows_for_an_earlier_life_of_a_topic_are_refused(log):
    staged = task(log, "t", b"a")
    log.delete("t")
    log.create("t")
    with pytest.raises(UnknownTopic, match="'t' was deleted and created again during the write"):
        commit(log, staged)
    assert rows(log, "t") == 0


def failing(times, error):
    """An attempt that fails so often, and the list of its calls."""
    calls = []

    def attempt():
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return attempt, calls


UNAVAILABLE = StoreUnavailable("/log", "key", "the store does not answer")


def test_what_passes_is_tried_again():
    attempt, calls = failing(3, UNAVAILABLE)
    assert retry(fake_environment(), QUICK, attempt) == "done"
    assert len(calls) == 4


def test_the_number_of_retries_is_bounded():
    attempt, calls = failing(100, UNAVAILABLE)
    with pytest.raises(StoreUnavailable):
        retry(fake_environment(), QUICK, attempt)
    assert len(calls) == 1 + QUICK.retries


def test_the_time_for_retries_is_bounded_and_used_up():
    attempt, calls = failing(10**9, UNAVAILABLE)
    clock = fake_environment()
    with pytest.raises(StoreUnavailable):
        retry(clock, RetryPolicy(), attempt)
    assert clock.monotonic() == 120, "delivery.timeout.ms, by default"
    assert len(calls) >= 120, "at least one call a second"


def test_the_waits_between_tries_grow_from_retry_backoff_ms_to_a_second():
    waits, clock = [], fake_environment()
    slept = msgspec.structs.replace(clock, sleep=lambda seconds: (waits.append(seconds), clock.sleep(seconds)))
    attempt, _ = failing(6, UNAVAILABLE)
    retry(slept, RetryPolicy(retry_backoff_ms=100), attempt)
    assert waits == [0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_a_first_try_of_the_callers_own_counts_as_one():
    attempt, calls = failing(100, UNAVAILABLE)
    with pytest.raises(StoreUnavailable):
        retry(fake_environment(), QUICK, attempt, failed=UNAVAILABLE)
    assert len(calls) == QUICK.retries


def test_whoever_waits_is_told_once_why(caplog):
    attempt, _ = failing(3, UNAVAILABLE)
    retry(fake_environment(), RetryPolicy(), attempt)
    assert [each.getMessage() for each in caplog.records] == ["retrying for up to 120 s: the store does not answer"]


def test_what_does_not_pass_is_not_tried_again():
    attempt, calls = failing(1, StoreRefused("/log", "key", "no permission"))
    with pytest.raises(StoreRefused):
        retry(fake_environment(), QUICK, attempt)
    assert len(calls) == 1


def test_a_journal_that_does_not_answer_is_waited_for_before_the_batch_is_committed():
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
