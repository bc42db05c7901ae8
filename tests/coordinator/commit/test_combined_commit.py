"""Commits of several processes to one topic, which carry out each other's batches."""

import copy

import msgspec
import pytest

from pyspark_log_coordinator.commit.commit import Batch, commit
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.model.batch import StagedFile
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.topic import sequencing
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic, staged
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.coordinator.troubled_store import TroubledStore

NO_RETRIES, ONE_RETRY = RetryPolicy(retries=0), RetryPolicy(retries=1, retry_backoff_ms=1)


@pytest.fixture(autouse=True)
def a_slow_store(monkeypatch):
    monkeypatch.setattr(pace, "SLOW_SECONDS", 0)


@pytest.fixture
def topic():
    topic = StoredTopic(TroubledStore(), **AT_ONCE)
    topic.fill(1)
    return topic


def batch(topic, producer, *rows, claims=True, expires=False):
    claim = ProducerClaim(producer, producer, "r", 0, expires=expires) if claims else None
    return Batch(claim, (StagedFile("t", topic.handle.topic_id, topic.stage({0: list(rows)})),), swaps=())


def another_process(topic):
    """The topic as another process has it."""
    log = Log(topic.store.inner, real_environment())
    log.open(create=False)
    return log.topic("t")


def row(topic):
    return CommitBatch(None, (topic.stage({0: [b"of another"]}),))


def carry_out(topic, batch):
    """Carry out a batch that is in the inbox, as another process does."""
    another_process(topic).submit(CommitBatch(batch.claim, tuple(each.file for each in batch.files)))


def leave_in_the_inbox(topic, batch):
    """Leave a batch in the inbox, as another process does that waits."""
    other = another_process(topic)
    command = CommitBatch(batch.claim, tuple(each.file for each in batch.files))
    other.inbox.put(topic.handle.journal.number, command)


def of_another_process(topic):
    """Return the topic with which a test acts as another process."""
    other = copy.copy(topic)
    other.handle = another_process(topic)
    return other


def forget_expired_producers(topic):
    """Raise the orphan floor above all files that there are."""
    other = of_another_process(topic)
    for _ in range(2):
        other.fill(1)
        topic_cleanup.clean_up_topic(other.handle)


def lose_an_entry(topic, command=None):
    """Let another process commit a row, or do something else, before the next entry is written."""
    command = command or row(topic)
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


def fail_once(topic):
    """Let the next read fail, so that the commit begins again with the newest entry."""

    def fail(key, *_):
        del topic.store.read
        raise StoreUnavailable(topic.store.url, key, "the test made this up")

    topic.store.read = fail


def waiting(topic):
    return topic.keys("journal/inbox/")


def carried_out_by_another(topic, theirs):
    """Return what makes another process carry out the batches in the inbox, and a list for the offsets of its own."""
    third, other, offsets = row(topic), another_process(topic), []
    other.submit(row(topic))

    def act():
        another_process(topic).submit(third)
        other.refresh()
        offsets.append(commit(other, theirs, NO_RETRIES))

    return act, offsets


def test_a_batch_that_shares_an_entry_with_its_maintenance_and_other_batches_returns_the_offsets_of_its_rows(topic):
    topic.fill(3)
    mine = msgspec.structs.replace(batch(topic, "mine", b"a", b"b"), swaps=(topic.carry_out(topic.job(2)),))
    act, offsets = carried_out_by_another(topic, batch(topic, "theirs", b"c"))
    lose_an_entry(topic)
    after_put(topic, act)
    assert commit(topic.handle, mine, NO_RETRIES) == {0: (16, 18)}
    assert offsets == [{0: (15, 16)}]
    (partition,) = topic.handle.refresh().partitions
    assert partition.segments
    assert partition.log_end == 18


def test_the_claim_tells_the_offsets_of_rows_that_others_have_carried_out_and_rolled(topic):
    mine = batch(topic, "mine", b"a", b"b", expires=True)

    def act():
        carry_out(topic, mine)
        other = of_another_process(topic)
        other.roll()
        fail_once(topic)

    lose_an_entry(topic)
    after_put(topic, act)
    assert commit(topic.handle, mine, ONE_RETRY) == {0: (4, 6)}
    (partition,) = topic.handle.journal.state.partitions
    assert partition.segments[0].end_offset == 6


@pytest.mark.parametrize("error", [StoreUnavailable, StoreRefused])
def test_an_error_after_others_may_have_the_batch_leaves_its_outcome_unknown(topic, monkeypatch, error):
    def fail(key, *_):
        raise error(topic.store.url, key, "the test made this up")

    lose_an_entry(topic)
    after_put(topic, lambda: monkeypatch.setattr(topic.store, "read", fail))
    with pytest.raises(OutcomeUnknown, match="another process may still append the batch"):
        commit(topic.handle, batch(topic, "mine", b"a"), NO_RETRIES)
    assert waiting(topic) == []


def test_a_batch_that_others_may_have_is_not_called_stale_after_its_producer_was_forgotten(topic):
    mine = batch(topic, "mine", b"a", expires=True)

    def act():
        carry_out(topic, mine)
        forget_expired_producers(topic)
        fail_once(topic)

    lose_an_entry(topic)
    after_put(topic, act)
    with pytest.raises(OutcomeUnknown, match=r"longer than orphan\.retention\.ms.*look for its rows") as caught:
        commit(topic.handle, mine, ONE_RETRY)
    assert "write the batch again" not in str(caught.value)


def test_a_batch_without_a_claim_is_never_put_into_the_inbox(topic):
    lose_an_entry(topic)
    after_put(topic, lambda: pytest.fail("its repetition would add its rows again"))
    assert commit(topic.handle, batch(topic, "", b"a", claims=False), NO_RETRIES) == {0: (4, 5)}


def be_served(topic):
    """Let others commit the batches of the topic's process from now on, after it has missed some entries.

    Return the process that does so.
    """
    leader, rows = another_process(topic), [row(topic) for _ in range(4)]  # to stage rows is to look at the topic
    theirs = [batch(topic, f"theirs {each}", b"c") for each in range(2)]
    leader.submit(rows.pop())

    def commit_theirs():
        leader.refresh()
        leader.journal._pace.has_lost = True  # so it looks into the inbox
        commit(leader, theirs.pop(), NO_RETRIES)

    lose_an_entry(topic)
    after_put(topic, commit_theirs)
    for name in ("dead", "dead too"):
        leave_in_the_inbox(topic, batch(topic, name, b"d", expires=True))
    commit(topic.handle, batch(topic, "first", b"x"), NO_RETRIES)
    for each in rows:
        leader.submit(each)
    return leader


def test_a_batch_that_others_commit_returns_its_offsets_without_a_look_at_the_entries(topic):
    mine = batch(topic, "mine", b"a", b"b")
    leader = be_served(topic)
    version, topic.store.reads[:] = topic.handle.version, []
    assert topic.handle.is_served
    assert commit(topic.handle, mine, NO_RETRIES) == {0: (13, 15)}
    assert topic.handle.version == version < leader.version - 3
    assert len({key for key in topic.store.reads if "/entries/" in key}) == 1
    assert leader.refresh().partitions[0].log_end == 15
    topic.handle.refresh()
    assert [each.producer for each in topic.handle.state.files][-1] == "mine"


def test_only_a_process_whose_topic_is_on_one_node_need_not_know_the_newest_entry(topic, monkeypatch):
    several = ReplicatedTopic().handle
    monkeypatch.setattr(Journal, "expects_answer", lambda *_: True)
    assert topic.handle.is_served
    assert not several.is_served


def outcome_of_a_batch(high_watermark):
    """Return a command and its outcome if the high watermark is at some offset."""
    topic = StoredTopic(TroubledStore(), **AT_ONCE)
    command = row(topic)
    outcome = topic.handle.submit(command)
    (partition,) = outcome.state.partitions
    partition = msgspec.structs.replace(partition, high_watermark=high_watermark)
    state = msgspec.structs.replace(outcome.state, partitions=(partition,))
    return command, msgspec.structs.replace(outcome, state=state)


@pytest.mark.parametrize(("high_watermark", "answer"), [(1, {0: (0, 1)}), (0, None)])
def test_only_a_batch_below_the_high_watermark_is_answered(high_watermark, answer):
    assert sequencing.answer(*outcome_of_a_batch(high_watermark)) == answer


def on_all_nodes(topic, claim, rows):
    """Return a batch of one file on all nodes of a replicated topic."""
    file = staged(topic.log, topic.handle, rows, ALL)
    return Batch(claim, (StagedFile("t", topic.handle.topic_id, file),), swaps=())


def test_a_replay_is_not_answered_while_rows_of_the_first_run_in_other_partitions_are_not_committed():
    topic = ReplicatedTopic(replicas=[("0", "1", "2")] * 2)
    topic.append({0: [b"of the first run, whose tasks were others"]}, on=("0",), acks="1")
    replay = on_all_nodes(topic, ProducerClaim("q", "q", "second", 0), {1: [b"of the replay"]})
    _, waiting = topic.open()
    command = CommitBatch(replay.claim, tuple(each.file for each in replay.files))
    waiting.inbox.put(waiting.journal.number, command)
    topic.handle.journal._pace.has_lost = True  # so that it looks for commands that wait
    commit(topic.handle, on_all_nodes(topic, ProducerClaim("p", "p", "r", 0), {1: [b"of another"]}), NO_RETRIES)
    assert topic.partition(0).high_watermark == 0
    assert waiting.inbox.answer() is None
    assert commit(waiting, replay, NO_RETRIES) == {}
    assert topic.partition(0).high_watermark == 1
