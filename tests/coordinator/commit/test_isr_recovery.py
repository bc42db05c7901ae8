"""Rejoining: whom a writer brings back in passing, and when it is left to others."""

import msgspec
import pytest

from pyspark_log_coordinator.commit import isr_recovery
from pyspark_log_coordinator.commit.isr_recovery import INLINE_EVERY_SECONDS
from pyspark_log_coordinator.replication import file_holders
from pyspark_log_coordinator.sync import catch_up, replica_file
from pyspark_log_storage.errors import StoreUnavailable
from tests.coordinator.breakable_store import BreakableStore
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic, write
from tests.coordinator.several_nodes import Stores


def environment():
    """Return an environment whose clock of the day goes on as the other does."""
    fake = fake_environment()
    return msgspec.structs.replace(fake, now_ms=lambda: int(fake.monotonic() * 1000))


@pytest.fixture
def topic():
    """A topic of which node 2 missed a batch, and is there again."""
    topic = ReplicatedTopic(environment=environment())
    topic.append(on=("0", "1"), acks="all")
    return topic


def isr_after(topic, seconds):
    """Return the ISR after a writer came by, some seconds after whatever was before."""
    topic.log.environment.sleep(seconds)
    isr_recovery.recover_inline(topic.handle)
    return topic.partition().isr


def test_a_node_that_has_just_fallen_out_is_left_to_others_for_a_while(topic):
    assert isr_after(topic, 0) == ("0", "1")
    assert isr_after(topic, INLINE_EVERY_SECONDS / 2) == ("0", "1")
    assert isr_after(topic, INLINE_EVERY_SECONDS / 2) == ALL


def test_a_node_that_has_missed_a_batch_for_long_is_brought_back_by_who_comes_by_first(topic):
    assert isr_after(topic, INLINE_EVERY_SECONDS) == ALL


def test_a_node_that_falls_out_again_is_left_to_others_again(topic):
    assert isr_after(topic, INLINE_EVERY_SECONDS) == ALL
    assert isr_after(topic, 0) == ALL
    topic.append(on=("0", "1"), acks="all")
    assert isr_after(topic, 0) == ("0", "1")
    assert isr_after(topic, INLINE_EVERY_SECONDS) == ALL


def test_a_node_that_cannot_be_copied_to_is_tried_again_no_sooner_than_its_next_turn(topic, monkeypatch):
    tried = []

    def fails(*_, **__):
        tried.append(topic.log.environment.monotonic())
        raise StoreUnavailable("/disk/2", "key", "it takes nothing")

    monkeypatch.setattr(catch_up, "catch_up", fails)
    for _ in range(6):
        isr_after(topic, INLINE_EVERY_SECONDS / 2)
    assert tried == [3.0, 5.0], "found at 1"


def test_a_node_that_lacks_a_segment_is_left_alone_whatever_else_it_lacks(topic):
    topic.append(on=("0", "1"), acks="all")
    name = topic.roll(1, on="0")
    copied = replica_file.missing(topic.handle, "1")
    assert [piece.segment.name for piece in copied if piece.segment is not None] == [name]
    catch_up.catch_up(topic.handle, "1")
    assert isr_after(topic, 0) == ALL


def test_writers_that_write_one_batch_each_bring_back_a_node_that_was_away_for_eight_seconds():
    clock = environment()
    stores = Stores(BreakableStore)
    topic = ReplicatedTopic(stores, environment=clock)
    behind = []
    for batch in range(40):  # twice a second
        is_away = 2 <= batch < 18
        stores.at["/disk/2"].broken = StoreUnavailable if is_away else None
        log = stores.log(clock)
        handle = log.topic("t")
        write(log, handle, batch, {0: [b"row"]}, ("0", "1") if is_away else handle.refresh().partitions[0].isr, "all")
        isr_recovery.recover_inline(handle)
        behind += [batch] if topic.partition().isr != ALL else []
        clock.sleep(0.5)
    assert behind == list(range(2, 18)), "it is back with the first batch after it answers"


def test_a_writer_reads_nothing_where_all_are_in_sync(monkeypatch):
    topic = ReplicatedTopic(environment=environment())
    topic.append(on=ALL, acks="all")
    monkeypatch.setattr(catch_up, "catch_up", pytest.fail)
    monkeypatch.setattr(file_holders, "missing", pytest.fail)
    assert isr_after(topic, 100) == ALL
