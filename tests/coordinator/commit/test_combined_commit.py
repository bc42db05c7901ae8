"""Commits of several processes to one topic, which carry out each other's batches."""

import pytest

from pyspark_log_coordinator.commit.commit import Batch, commit
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.model.batch import StagedFile
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.topic.machine import CommitBatch
from pyspark_log_storage.errors import OutcomeUnknown, StoreUnavailable
from tests.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.coordinator.troubled_store import TroubledStore

NO_RETRIES = RetryPolicy(retries=0)


@pytest.fixture(autouse=True)
def a_slow_store(monkeypatch):
    monkeypatch.setattr(pace, "SLOW_SECONDS", 0)


@pytest.fixture
def topic():
    topic = StoredTopic(TroubledStore(), **AT_ONCE)
    topic.fill(1)
    return topic


def batch(topic, producer, *rows, claims=True):
    claim = ProducerClaim(producer, producer, "r", 0) if claims else None
    return Batch(claim, (StagedFile("t", topic.handle.topic_id, topic.stage({0: list(rows)})),), swaps=())


def another_process(topic):
    """The topic as another process has it."""
    log = Log(topic.store.inner, real_environment())
    log.open(create=False)
    return log.topic("t")


def row(topic):
    return CommitBatch(None, (topic.stage({0: [b"of another"]}),))


def lose_an_entry(topic):
    """Let another process commit a row before the next entry is written."""
    command = row(topic)
    topic.store.be_slow(f"{topic.folder}journal/entries/", meanwhile=lambda: another_process(topic).submit(command))


def after_put(topic, act):
    """Do something when a batch has been put into the inbox."""
    put = topic.handle.inbox.put

    def put_and_act(*command):
        is_new = not topic.handle.inbox.is_used
        put(*command)
        if is_new:
            act()

    topic.handle.inbox.put = put_and_act


def waiting(topic):
    return topic.keys("journal/inbox/")


def test_a_batch_that_another_process_carries_out_returns_its_offsets(topic):
    mine, theirs, third = batch(topic, "mine", b"a", b"b"), batch(topic, "theirs", b"c"), row(topic)
    other, offsets = another_process(topic), []
    other.submit(row(topic))

    def carry_out():
        another_process(topic).submit(third)
        other.refresh()
        offsets.append(commit(other, theirs, NO_RETRIES))

    lose_an_entry(topic)
    after_put(topic, carry_out)
    entries = topic.handle.journal.number
    assert commit(topic.handle, mine, NO_RETRIES) == {0: (7, 9)}
    assert offsets == [{0: (6, 7)}]
    assert topic.handle.journal.number == entries + 3, "the third has both batches"
    assert waiting(topic) == []


def test_an_error_after_others_may_have_the_batch_leaves_its_outcome_unknown(topic, monkeypatch):
    def fail(key, *_):
        raise StoreUnavailable(topic.store.url, key, "the test made this up")

    lose_an_entry(topic)
    after_put(topic, lambda: monkeypatch.setattr(topic.store, "read", fail))
    with pytest.raises(OutcomeUnknown, match="another process may still append the batch"):
        commit(topic.handle, batch(topic, "mine", b"a"), NO_RETRIES)
    assert waiting(topic) == []


def test_a_batch_without_a_claim_is_never_put_into_the_inbox(topic):
    lose_an_entry(topic)
    after_put(topic, lambda: pytest.fail("its repetition would add its rows again"))
    assert commit(topic.handle, batch(topic, "", b"a", claims=False), NO_RETRIES) == {0: (4, 5)}


def test_batches_of_dead_processes_are_deleted_when_they_can_never_be_sequenced(topic):
    claim = ProducerClaim("dead", "dead", "r", 0)
    command = CommitBatch(claim, (topic.stage({0: [b"lost"]}),))
    other = another_process(topic)
    other.inbox.put(other.journal.place, topic.handle.journal.number, command)
    topic_cleanup.clean_up_topic(topic.handle)
    topic.fill(1)
    assert len(waiting(topic)) == 1
    for _ in range(2):
        topic_cleanup.clean_up_topic(topic.handle)
    assert waiting(topic) == []
    topic.check()
