"""How a Producer gathers rows and writes them: its threads, its buffer, and who does the maintenance."""

import contextlib
import queue
import threading

import msgspec
import pyarrow as pa
import pytest

from pyspark_log import Producer
from pyspark_log.clients import housekeeper, sender
from pyspark_log.clients.housekeeper import Housekeeper
from pyspark_log.clients.sender import Sender
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_storage.errors import BufferExhausted, InvalidRecord, StoreUnavailable
from pyspark_log_storage.layout import born_of
from tests.support.pyspark_log.clients.written_rows import GUARD, rows_of, values_of


@contextlib.contextmanager
def committing(log, monkeypatch, **options):
    """A Producer that is committing a first row for as long as the block lasts, and what it stages from then on."""
    begun, go, staged = threading.Event(), threading.Event(), queue.SimpleQueue()
    stage, commit = Sender._stage, Sender._commit
    monkeypatch.setattr(Sender, "_commit", lambda *given: (begun.set(), go.wait(GUARD), commit(*given))[2])
    with Producer(log.path, linger_ms=0, **options) as producer:
        producer.send("one", b"first")
        assert begun.wait(GUARD)
        monkeypatch.setattr(Sender, "_stage", lambda *given: (staged.put(given), stage(*given))[1])
        try:
            yield producer, staged
        finally:
            go.set()


class TestTheSender:
    def test_makes_those_who_look_a_topic_up_wait_no_longer_than_they_said(self, log, monkeypatch):
        go, begun, commit = threading.Event(), threading.Event(), Sender._commit
        monkeypatch.setattr(Sender, "_commit", lambda *given: (begun.set(), go.wait(GUARD), commit(*given))[2])
        with Producer(log.path, linger_ms=0, max_block_ms=50) as producer:
            producer.send("t", b"")
            assert begun.wait(GUARD)
            try:
                with pytest.raises(BufferExhausted, match=r"'one' could not be looked up within max\.block\.ms"):
                    producer.send("one", b"")
            finally:
                go.set()

    def test_looks_at_the_topic_again_after_a_long_time(self, log, monkeypatch):
        # Its files would be named after an entry that is below the orphan floor by then.
        monkeypatch.setattr("pyspark_log.clients.sender.REFRESH_SECONDS", 0.0)
        with Producer(log.path, linger_ms=0) as producer:
            producer.send("one", b"").result(GUARD)
            for _ in range(10):
                log.append("one", {0: [b"of another writer"]})
            producer.send("one", b"").result(GUARD)
        *_, newest = log.log.topic("one").journal.state.files
        assert born_of(newest.name) == log.log.topic("one").journal.number - 1

    def test_writes_to_the_new_topic_of_a_name_once_it_has_looked(self, log, monkeypatch):
        monkeypatch.setattr("pyspark_log.clients.sender.REFRESH_SECONDS", 0.0)
        with Producer(log.path, linger_ms=0) as producer:
            producer.send("one", b"").result(GUARD)
            log.delete("one")
            log.create("one")
            assert producer.send("one", b"").result(GUARD).offset == 0

    def test_gathers_what_is_sent_while_one_batch_is_committed_by_a_fast_store(self, log, monkeypatch):
        monkeypatch.setattr(TopicHandle, "waits_for_store", False)
        with committing(log, monkeypatch) as (producer, staged):
            producer.send("one", b"second")
            with pytest.raises(queue.Empty):
                staged.get(timeout=0.05)
            producer.send("one", b"third")
        assert staged.qsize() == 1

    @pytest.mark.parametrize("reason", ["is full", "is committed by others", "waits for the store"])
    def test_stages_the_next_batch_while_one_is_committed_that(self, log, monkeypatch, reason):
        monkeypatch.setattr(TopicHandle, "waits_for_store", reason == "waits for the store")
        monkeypatch.setattr(TopicHandle, "is_served", reason == "is committed by others")
        batch_size = 1 if reason == "is full" else 1_000_000
        with committing(log, monkeypatch, batch_size=batch_size) as (producer, staged):
            producer.send("one", b"second")
            assert staged.get(timeout=GUARD)

    def test_goes_on_after_rows_that_could_not_be_staged(self, log, monkeypatch):
        stage = Sender._stage

        def fail_once(*given):
            monkeypatch.setattr(Sender, "_stage", stage)
            raise StoreUnavailable("", "", "it does not answer")

        monkeypatch.setattr(Sender, "_stage", fail_once)
        producer = Producer(log.path, linger_ms=0)
        try:
            with pytest.raises(StoreUnavailable):
                producer.send("one", b"").result(GUARD)
            futures = [producer.send("one", b"") for _ in range(2)]
            assert producer.flush(20) == 0
            assert [each.result(0).offset for each in futures] == [0, 1]
        finally:
            producer.close(0)

    def test_stages_rows_again_whose_file_became_stale_before_its_commit(self, log, monkeypatch):
        log.create("stale", orphan_retention_ms=0)
        stale, commit = [True], Sender._commit

        def commit_late(sender, staged):
            if stale and staged.request.batches[0].counts.sum() == 2:
                stale.clear()
                for _ in range(3):
                    log.append("stale", {0: [b"of another writer"]})
                    topic_cleanup.clean_up_topic(log.log.topic("stale"))
            return commit(sender, staged)

        monkeypatch.setattr(Sender, "_commit", commit_late)
        with Producer(log.path) as producer:
            producer.send("stale", b"first").result(GUARD)
            late = producer.send_batch("stale", pa.table({"value": [b"a", b"b"]}))
        assert not stale
        assert late.result(GUARD).offsets == {0: (4, 6)}
        assert values_of(log, "stale")[0][4:] == [b"a", b"b"]

    def test_keeps_the_partitions_of_rows_that_are_staged_again_after_some_were_added(self, log, monkeypatch):
        failures = [StoreUnavailable("", "", "made up by the test")]

        class FailingStaging(Staging):
            def finish(self):
                if failures:
                    reassigner.add_partitions(log.log.topic("one"), 4)
                    raise failures.pop()
                return super().finish()

        monkeypatch.setattr("pyspark_log.clients.sender.Staging", FailingStaging)
        with Producer(log.path) as producer:
            sent = {b"%d" % number: producer.send("one", b"%d" % number, key=b"%d" % number) for number in range(20)}
        assert producer._sender._topics["one"].destination.partitions == 4
        rows = values_of(log, "one")
        for value, future in sent.items():
            _, partition, offset, _ = future.result(GUARD)
            assert rows[partition][offset] == value

    def test_keeps_the_partitions_of_all_rows_that_it_stages_together(self, log, monkeypatch):
        failures = [StoreUnavailable("", "", "made up by the test")]

        class FailingStaging(Staging):
            def add(self, rows):
                if failures:
                    reassigner.add_partitions(log.log.topic("one"), 4)
                    raise failures.pop()
                super().add(rows)

        monkeypatch.setattr(TopicHandle, "waits_for_store", False)
        rows = pa.table({"value": [b"v"] * 20, "key": [b"%d" % number for number in range(20)]})
        with committing(log, monkeypatch) as (producer, staged):
            monkeypatch.setattr("pyspark_log.clients.sender.Staging", FailingStaging)
            sent = [producer.send_batch("one", rows) for _ in range(2)]
        assert producer._sender._topics["one"].destination.partitions == 4
        assert [each.result(GUARD).offsets for each in sent] == [{0: (1, 21)}, {0: (21, 41)}]
        assert staged.qsize() == 1

    def test_looks_at_the_topic_again_before_it_refuses_a_row(self, log, monkeypatch):
        with Producer(log.path, linger_ms=0) as producer:
            producer.send("one", b"first").result(GUARD)
            reassigner.add_partitions(log.log.topic("one"), 4)
            with pytest.raises(InvalidRecord, match="a row names partition 1, but the topic has only"):
                producer.send("one", b"so soon after the last look", partition=1)
            monkeypatch.setattr(sender, "REFRESH_SECONDS", 0.0)
            sent = producer.send("one", b"a", headers=iter([("h", b"v")]), partition=1)
            assert (sent.result(GUARD).partition, sent.result().offset) == (1, 0)
            reassigner.add_partitions(log.log.topic("one"), 5)
            rows = pa.table({"value": [b"b"], "partition": [4]})
            assert producer.send_batch("one", rows).result(GUARD).offsets == {4: (0, 1)}
        assert rows_of(log, "one")[1][0].headers == (("h", b"v"),)

    def test_leaves_the_maintenance_to_a_thread_of_its_own(self, log, monkeypatch):
        monkeypatch.setattr("pyspark_log.clients.housekeeper.CLEAN_UP_SECONDS", 0.0)
        cleaned, roll = [], housekeeper.roll_inline
        monkeypatch.setattr(
            housekeeper, "clean_up", lambda handle, _: cleaned.append((handle.name, threading.current_thread().name))
        )
        rolled = []
        monkeypatch.setattr(housekeeper, "roll_inline", lambda *given: (rolled.append(given), roll(*given))[1])
        with Producer(log.path, linger_ms=0) as producer:
            for _ in range(200):
                producer.send("one", b"x").result(GUARD)
        assert rolled
        assert set(cleaned) == {("one", "pyspark_log housekeeper")}
        assert log.log.topic("one").journal.state.partitions[0].segments
        assert len(values_of(log, "one")[0]) == 200


class TestTheBuffer:
    @pytest.fixture
    def go(self, monkeypatch):
        """Nothing is written before this is set, or for ten seconds."""
        event, stage = threading.Event(), Sender._stage
        monkeypatch.setattr(Sender, "_stage", lambda self, request: (event.wait(10), stage(self, request))[1])
        return event

    def test_refuses_a_row_when_it_is_full_for_too_long(self, log, go):
        with Producer(log.path, linger_ms=0, buffer_memory=10_000, max_block_ms=50) as producer:
            accepted = 10_000 // 164
            for _ in range(accepted):
                producer.send("one", b"x" * 100)
            with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
                producer.send("one", b"x" * 100)
            go.set()
        assert len(values_of(log, "one")[0]) == accepted

    def test_makes_send_wait_until_there_is_room(self, log, go):
        with Producer(log.path, linger_ms=0, buffer_memory=10_000, max_block_ms=10_000) as producer:
            threading.Timer(0.05, go.set).start()
            for _ in range(500):
                producer.send("one", b"x" * 100)
        assert len(values_of(log, "one")[0]) == 500

    def test_lets_rows_that_linger_go_when_it_is_full(self, log):
        with Producer(log.path, linger_ms=3_600_000, buffer_memory=10_000) as producer:
            for _ in range(500):
                producer.send("one", b"x" * 100)
        assert len(values_of(log, "one")[0]) == 500

    def test_refuses_a_row_that_never_fits(self, log):
        with Producer(log.path, buffer_memory=100) as producer, pytest.raises(BufferExhausted):
            producer.send("one", b"x" * 100)


class TestFlush:
    def test_says_how_much_is_left_when_the_time_is_over(self, log, monkeypatch):
        go, stage = threading.Event(), Sender._stage
        monkeypatch.setattr(Sender, "_stage", lambda self, request: (go.wait(GUARD), stage(self, request))[1])
        with Producer(log.path) as producer:
            producer.send("t", b"")
            assert producer.flush(0.01) == 1
            go.set()
            assert producer.flush(GUARD) == 0


@pytest.fixture
def rolled(monkeypatch):
    """The rolls that were begun."""
    begun = []
    monkeypatch.setattr(housekeeper, "roll_inline", lambda *given: (begun.append(given), ())[1])
    monkeypatch.setattr(housekeeper, "plan_inline", lambda _: ("what is due",))
    return begun


def commit(log, *, entries, lot):
    """Let a producer draw `lot`, between 0 and 1, after so many entries of which the last is its own."""
    environment = msgspec.structs.replace(real_environment(), uniform=lambda low, high: low + lot * (high - low))
    keeper, handle = Housekeeper(log.path, environment), log.log.topic("one")
    handle.refresh()
    keeper.begin(handle)
    for _ in range(entries):
        log.append("one", {0: [b"x"]})
    handle.refresh()
    keeper.committed(handle)
    keeper.stop([handle])


@pytest.mark.parametrize(("entries", "lot", "times"), [(1, 1, 1), (10, 0.05, 1), (10, 0.2, 0), (10, 1, 0)])
def test_a_producer_does_as_much_of_what_is_due_as_it_has_of_the_entries(log, rolled, entries, lot, times):
    commit(log, entries=entries, lot=lot)
    assert len(rolled) == times


def test_a_cleanup_is_told_from_which_entry_on_it_is_due(log, rolled, monkeypatch):
    told = []
    monkeypatch.setattr(housekeeper, "clean_up", lambda handle, first: told.append((handle.version, first)))
    monkeypatch.setattr(housekeeper, "CLEAN_UP_EVERY_ENTRIES", 4)
    before = log.log.topic("one").version
    commit(log, entries=4, lot=0)
    assert told == [(before + 4, before + 1)]


def test_a_job_that_fails_keeps_no_other_from_being_done(log):
    keeper, done = Housekeeper(log.path, real_environment()), []
    keeper._start(lambda: 1 / 0)
    keeper._start(lambda: done.append(True))
    keeper.stop([])
    assert done


def test_what_was_rolled_is_swapped_in_also_if_no_commit_follows(log):
    for _ in range(roll_plan.ROLL_CHUNKS):
        log.append("one", {0: [b"x"]})
    with Producer(log.path) as producer:
        producer.send("one", b"the only row").result(GUARD)
    handle = log.log.topic("one")
    assert [each.end_offset for each in handle.state.partitions[0].segments] == [roll_plan.ROLL_CHUNKS + 1]
    assert len(values_of(log, "one")[0]) == roll_plan.ROLL_CHUNKS + 1


def test_entries_of_others_before_the_last_commit_do_not_count(log, rolled):
    for _ in range(10):
        log.append("one", {0: [b"x"]})
    commit(log, entries=1, lot=0.99)
    assert len(rolled) == 1
