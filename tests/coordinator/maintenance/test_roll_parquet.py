"""A roll to Parquet writes the same rows as one to a .log, on every node; what cannot be Parquet stays a .log."""

import random

import pytest

from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.roll_plan import LEVEL_MAX
from pyspark_log_coordinator.segments.tiers import MERGE_COUNT
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, OutcomeUnknown
from pyspark_log_storage.parquet import parquet_footer, parquet_segment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic, write
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.coordinator.troubled_store import ALWAYS, TroubledStore
from tests.support.memory_store import MemoryStore

NOW = AT_ONCE | {"segment_format": "parquet"}


@pytest.fixture
def topic():
    return StoredTopic(**NOW)


def test_rows_of_many_chunks_with_and_without_headers_are_one_row_group_and_are_read_as_before(topic):
    for second in range(6):
        topic.append({0: [b"a", b"b"]}, times_ms=[second * 1000, second * 1000 + 500], with_headers=second == 3)
    topic.roll()
    assert topic.segment_key().endswith(".parquet")
    found = [(each.base_offset, each.rows, each.schema_id) for each in topic.entries()]
    assert found == [(0, 12, schema.RECORD_WITH_HEADERS_ID)]
    assert [offset_for_time(topic.handle, 0, ms) for ms in (0, 1, 500, 3000, 5500, 5501)] == [0, 1, 1, 6, 11, None]
    topic.check()
    assert verify(topic.handle).findings == []


def small_row_groups(patch):
    patch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)
    patch.setattr(parquet_segment, "ROW_BYTES_MAX", 100_000)


UNFIT = {
    "a row too large for a row group": small_row_groups,
    "a column that Parquet cannot have": lambda patch: patch.setattr(
        parquet_segment, "_is_empty", lambda field: field.name == "value"
    ),
    "a footer that no reader would take": lambda patch: patch.setattr(parquet_footer, "TAIL_BYTES_MAX", 100),
}


@pytest.mark.parametrize("why", UNFIT)
def test_rows_that_do_not_fit_into_parquet_stay_a_log_and_are_not_tried_again(topic, monkeypatch, why):
    UNFIT[why](monkeypatch)
    topic.fill(2)
    topic.append({0: [random.Random(1).randbytes(200_000)]})
    topic.roll()
    assert [key.rpartition(".")[2] for key in topic.keys("0/")] == ["index", "log"]
    assert [each.level for each in topic.handle.refresh().partitions[0].segments] == [LEVEL_MAX]
    assert roll_plan.plan(topic.handle.journal.state, 0) == []
    topic.check()


def test_segments_of_two_partitions_that_are_swapped_are_noticed():
    topic = StoredTopic(partitions=2, **NOW)
    topic.fill(2, partitions=(0, 1))
    for partition in (0, 1):
        topic.roll(partition=partition)
    keys = [topic.segment_key(partition=partition) for partition in (0, 1)]
    for ending in ("", ".index"):
        first, second = (topic.store.read(f"{key}{ending}") for key in keys)
        topic.store.put(f"{keys[0]}{ending}", second)
        topic.store.put(f"{keys[1]}{ending}", first)
    with pytest.raises(CorruptObject, match="it does not belong here"):
        topic.read()
    assert [each.partition for each in verify(topic.handle).findings] == [0, 1]


# A topic whose format was changed


def test_of_a_topic_whose_format_was_changed_small_segments_become_parquet_and_large_ones_stay():
    topic = StoredTopic(**NOW | {"segment_format": "log"})
    for batches in (60, 2, 2):
        topic.fill(batches)
        topic.roll()
    topic.fill(1)
    size = topic.handle.refresh().partitions[0].segments[0].log_bytes
    topic.handle.submit(AlterConfig({"segment.format": "parquet", "segment.bytes": str(size * MERGE_COUNT)}))
    topic_roll.roll_and_merge(topic.handle, at_once=True)
    topic.handle.refresh()
    found = topic.handle.journal.state.partitions[0].segments
    assert [(each.is_parquet, each.base_offset) for each in found] == [(False, 0), (True, found[0].end_offset)]
    assert topic.handle.table_end(0) == 0
    topic.check()
    assert verify(topic.handle).findings == []
    assert topic_roll.roll_and_merge(topic.handle, at_once=True)["segments"] == 0


# Small Parquet segments


def test_a_node_rolls_what_it_leads_of_topics_of_parquet():
    topic = ReplicatedTopic(**NOW | {"parquet_max_lag_ms": "0"})
    topic.append(on=ALL, acks="all")
    topic_roll.roll_led_by(topic.log, "1", pytest.fail)
    assert topic.partition().segments == ()
    topic_roll.roll_led_by(topic.log, "0", pytest.fail)
    assert [each.is_parquet for each in topic.partition().segments] == [True]
    assert not list(topic.log.node_store("1").list(f"{layout.topic_folder('t', topic.handle.topic_id)}append/"))


def test_a_node_rolls_what_it_leads_beside_a_topic_with_a_damaged_journal_and_one_that_is_deleted(monkeypatch):
    topic = ReplicatedTopic(**NOW | {"parquet_max_lag_ms": "0"})
    topic.append(on=ALL, acks="all")
    other = topic.stores.log()
    broken, doomed = (other.create_topic(name, 1, replicas=[["0", "1"]]) for name in ("a", "b"))
    for key in list(other.store.list(broken.journal.folder)):
        other.store.put(key, b"damaged")
    topics_on, damaged = topic.log.topics_on, []

    def overtaken(*arguments, **more):
        for handle in topics_on(*arguments, **more):
            if handle.name == "b":
                doomed.submit(DeleteTopic())
            yield handle

    monkeypatch.setattr(topic.log, "topics_on", overtaken)
    topic_roll.roll_led_by(topic.log, "0", pytest.fail, lambda name, _: damaged.append(name))
    assert damaged == ["a"]
    assert [each.is_parquet for each in topic.handle.refresh().partitions[0].segments] == [True]


def test_a_node_rolls_what_it_leads_beside_a_topic_whose_journal_does_not_answer():
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(MemoryStore(url))), **NOW | {"parquet_max_lag_ms": "0"})
    other = topic.log.create_topic("u", 1, topic.handle.config, replicas=[ALL])
    topic.append(on=ALL, acks="all")
    write(topic.log, other, 0, {0: [b"u"]}, on=ALL, acks="all")
    topic.stores.at["/cluster"].lose_answers(f"{topic.handle.journal.folder}entries", times=ALWAYS)
    failures = []
    topic_roll.roll_led_by(topic.log, "0", pytest.fail, lambda *failure: failures.append(failure))
    ((name, error),) = failures
    assert (name, type(error)) == ("t", OutcomeUnknown)
    assert [each.is_parquet for each in other.refresh().partitions[0].segments] == [True]
