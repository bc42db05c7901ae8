"""A roll to Parquet writes the same rows as one to a .log, on every node; what cannot be Parquet stays a .log."""

import random

import msgspec
import pytest

from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import roll_task, topic_cleanup, topic_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.roll_plan import KEPT_LEVEL, PARQUET_LEVEL_MAX
from pyspark_log_coordinator.sync import damage_reports, replica_file
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteRecords, DeleteTopic, MaintainSegments
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, OutcomeUnknown
from pyspark_log_storage.parquet import parquet_footer, parquet_segment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic, write
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.coordinator.troubled_store import ALWAYS, TroubledStore
from tests.support.elsewhere import PlainStore

NOW = AT_ONCE | {"segment_format": "parquet"}


@pytest.fixture
def topic():
    return StoredTopic(**NOW)


def test_rows_of_many_chunks_are_one_row_group_and_are_read_as_before(topic):
    topic.fill(20)
    topic.roll()
    assert topic.segment_key().endswith(".parquet")
    assert [(each.base_offset, each.rows, each.schema_id) for each in topic.entries()] == [(0, 60, 0)]
    topic.check()
    assert verify(topic.handle).findings == []


def test_rows_with_and_without_headers_are_in_one_segment(topic):
    topic.fill(2)
    topic.append({0: [b"x", b"y"]}, with_headers=True)
    topic.fill(2)
    topic.roll()
    assert [(each.schema_id, each.rows) for each in topic.entries()] == [(schema.RECORD_WITH_HEADERS_ID, 14)]
    topic.check()


def test_segments_of_chunks_are_merged_to_parquet(topic):
    topic.parquet = False
    for _ in range(3):
        topic.fill(3)
        topic.roll()
    topic.parquet = True
    topic.merge(2)
    names = [each.name for each in topic.handle.refresh().partitions[0].segments]
    assert [layout.is_parquet(name) for name in names] == [True, False]
    topic.check()
    assert verify(topic.handle).findings == []


def test_a_row_too_large_for_a_row_group_leaves_the_segment_a_log(topic, monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr(parquet_segment, "ROW_BYTES_MAX", 100_000)
    topic.fill(2)
    topic.append({0: [random.Random(1).randbytes(200_000)]})
    topic.roll()
    assert [key.rpartition(".")[2] for key in topic.keys("0/")] == ["index", "log"]
    topic.check()


def test_columns_that_parquet_cannot_have_leave_the_segment_a_log(topic, monkeypatch):
    monkeypatch.setattr(parquet_segment, "_is_empty", lambda field: field.name == "value")
    topic.fill(2)
    topic.roll()
    assert [key.rpartition(".")[2] for key in topic.keys("0/")] == ["index", "log"]
    topic.check()


def test_a_footer_that_no_reader_would_take_leaves_the_segment_a_log(topic, monkeypatch):
    monkeypatch.setattr(parquet_footer, "TAIL_BYTES_MAX", 100)
    topic.fill(2)
    topic.roll()
    assert [key.rpartition(".")[2] for key in topic.keys("0/")] == ["index", "log"]
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
    with pytest.raises(CorruptObject, match="it is a segment of"):
        topic.read()
    assert [each.partition for each in verify(topic.handle).findings] == [0, 1]


def test_a_damaged_chunk_fails_the_job_and_leaves_nothing(topic):
    topic.fill(3)
    file = topic.handle.journal.state.files[1].name
    topic.damage(topic.handle.append_file(file))
    with pytest.raises(CorruptObject, match=f"topic 't', partition 0, offset 3.*{file}"):
        topic.carry_out(topic.job())
    assert topic.keys("0/") == []


def test_rows_are_found_by_time(topic):
    for second in range(6):
        topic.append({0: [b"a", b"b"]}, times_ms=[second * 1000, second * 1000 + 500])
    topic.roll()
    assert [offset_for_time(topic.handle, 0, ms) for ms in (0, 1, 500, 3000, 5500, 5501)] == [0, 1, 1, 6, 11, None]


def test_deleted_records_and_expired_segments_are_gone(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    topic.handle.submit(DeleteRecords(0, 8))
    assert topic.read() == topic.expected[0][8:]
    topic_cleanup.clean_up_topic(topic.handle)
    assert [key for key in topic.keys("0/") if "checkpoint" not in key] == [
        f"0/{topic.handle.refresh().partitions[0].segments[0].name}{end}" for end in ("", ".index")
    ]
    topic.check()


def test_a_segment_that_no_entry_names_is_deleted(topic):
    topic.fill(2)
    lost = topic.carry_out(topic.job()).segment.name
    topic.roll()
    topic.fill(1)
    topic_cleanup.clean_up_topic(topic.handle)
    topic_cleanup.clean_up_topic(topic.handle)
    assert not any(lost in key for key in topic.keys("0/"))
    assert f"0/{topic.handle.refresh().partitions[0].segments[0].name}" in topic.keys("0/")
    topic.check()


# Which segments become Parquet


def test_maintenance_writes_parquet_for_what_it_will_not_merge_again(monkeypatch):
    monkeypatch.setattr(roll_plan, "ROLL_CHUNKS", 4)
    monkeypatch.setattr(roll_plan, "MERGE_COUNT", 2)
    monkeypatch.setattr(roll_plan, "PARQUET_LEVEL_MAX", 3)
    topic = StoredTopic(**NOW)
    topic.parquet = False
    for _ in range(9):
        topic.fill(4)
        topic_roll.roll_and_merge(topic.handle)
    found = [(each.level, each.is_parquet) for each in topic.handle.refresh().partitions[0].segments]
    assert found == [(3, True), (3, True), (1, False)]
    topic.check()
    assert verify(topic.handle).findings == []


# A topic whose format was changed


def altered(partitions=1, segments=5):
    """Return a topic of Parquet segments with segments of chunks from before, which are not merged again."""
    topic = StoredTopic(partitions=partitions, **(NOW | {"segment_format": "log", "segment_bytes": "1000"}))
    for _ in range(segments):
        topic.fill(20, partitions=range(partitions))
        for partition in range(partitions):
            topic.roll(partition=partition)
    topic.handle.submit(AlterConfig({"segment.format": "parquet"}))
    return topic


def deletion(topic):
    """Return what deletes the replaced files of a topic."""
    return lambda: topic_cleanup.delete_pending(topic.handle, topic.handle.now_ms())


def test_maintenance_converts_the_segments_of_a_topic_whose_format_was_changed():
    topic = altered(partitions=2)
    assert topic_roll.roll_and_merge(topic.handle, between=deletion(topic))["segments"] == 10
    for partition in topic.handle.refresh().partitions:
        assert [(each.is_parquet, each.level) for each in partition.segments] == [(True, PARQUET_LEVEL_MAX)] * 5
    assert not any(key.endswith(".log") for key in topic.store.list(topic.folder))
    topic.check()
    assert verify(topic.handle).findings == []
    assert topic_roll.roll_and_merge(topic.handle)["segments"] == 0


def test_replaced_files_are_deleted_while_others_are_still_to_be_converted():
    topic, most = altered(segments=8), []
    topic_roll.roll_and_merge(topic.handle, lambda _: most.append(len(topic.keys("0/"))), between=deletion(topic))
    assert max(most) == 2 * (8 + 1)


def test_a_row_too_large_for_parquet_keeps_its_segment_a_log_and_is_tried_once(monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr(parquet_segment, "ROW_BYTES_MAX", 100_000)
    topic = altered(segments=1)
    topic.append({0: [random.Random(1).randbytes(200_000)]})
    topic.parquet = False
    topic.roll()
    topic.fill(20)
    topic.roll()
    assert topic_roll.roll_and_merge(topic.handle)["segments"] == 3
    found = [(each.is_parquet, each.level) for each in topic.handle.refresh().partitions[0].segments]
    assert found == [(True, PARQUET_LEVEL_MAX), (False, KEPT_LEVEL), (True, PARQUET_LEVEL_MAX)]
    assert topic_roll.roll_and_merge(topic.handle)["segments"] == 0
    topic.check()


def test_the_attempt_to_write_a_row_too_large_as_parquet_is_not_repeated(topic, monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr(parquet_segment, "ROW_BYTES_MAX", 100_000)
    topic.append({0: [random.Random(1).randbytes(200_000)]})
    topic.roll()
    topic.fill(2)
    topic.roll()
    assert [each.level for each in topic.handle.refresh().partitions[0].segments] == [KEPT_LEVEL, 1]
    assert roll_plan.plan(topic.handle.journal.state, 0) == []


def test_nodes_that_lack_a_converted_segment_copy_it_before_it_is_swapped_in():
    topic = ReplicatedTopic(**NOW | {"segment_format": "log"})
    for _ in range(3):
        topic.append(on=ALL, acks="all")
    old = topic.roll(3)
    for node in ("1", "2"):
        catch_up(topic.handle, node)
    one = topic.partition()
    job = roll_plan.RollJob(0, one.leader_epoch, KEPT_LEVEL, one.segments, (), one.epoch_starts, parquet=True)
    task = msgspec.structs.replace(roll_task.roll_task_of(topic.handle, job), targets=("0",))
    topic.handle.submit(MaintainSegments((roll_task.run_roll(topic.log.store_at, task, topic.log.environment),)))
    assert [each.name for each in topic.partition().segments] == [old]
    for node in ("1", "2"):
        catch_up(topic.handle, node)
    assert [each.is_parquet for each in topic.partition().segments] == [True]
    assert verify(topic.handle).findings == []


# Several nodes


def test_every_node_of_the_isr_gets_the_same_files():
    topic = ReplicatedTopic(segment_format="parquet")
    for _ in range(3):
        topic.append(on=ALL, acks="all")
    one = topic.partition()
    job = roll_plan.RollJob(0, one.leader_epoch, 1, (), tuple(one.chunks), one.epoch_starts, parquet=True)
    swap = roll_task.run_roll(topic.log.store_at, roll_task.roll_task_of(topic.handle, job), topic.log.environment)
    topic.handle.submit(MaintainSegments((swap,)))
    assert [each.node for each in swap.segment.holders] == list(ALL)
    contents = [{key: data for key, data in topic.content(node).items() if swap.segment.name in key} for node in ALL]
    assert sorted(contents[0]) == [f"0/{swap.segment.name}", f"0/{swap.segment.name}.index"]
    assert contents[0] == contents[1] == contents[2]


def test_a_follower_copies_a_parquet_segment_and_a_damaged_copy_is_replaced():
    topic = ReplicatedTopic(segment_format="parquet")
    for _ in range(3):
        topic.append(on=ALL, acks="all")
    name = topic.roll(3)
    for node in ("1", "2"):
        catch_up(topic.handle, node)
    assert topic.partition().segments[0].name == name
    assert topic.content("1")[f"0/{name}"] == topic.content("0")[f"0/{name}"]
    key = topic.handle.segment(0, name)
    store = topic.log.node_store("1")
    data = bytearray(store.read(key))
    data[10] ^= 1
    store.put(key, bytes(data))
    [found] = verify(topic.handle).findings
    assert found.node == "1"
    file = next(each for each in replica_file.held(topic.handle, "1") if each.segment is not None)
    assert damage_reports.report(topic.handle, "1", file)
    catch_up(topic.handle, "1")
    assert verify(topic.handle).findings == []


# Small Parquet segments


def test_small_parquet_segments_are_merged_and_their_rows_are_one_row_group(topic):
    for with_headers in (False, True, False):
        topic.append({0: [b"x", b"y"]}, with_headers=with_headers)
        topic.roll()
    topic.merge(3)
    [entry] = topic.entries()
    assert (entry.rows, entry.schema_id) == (6, schema.RECORD_WITH_HEADERS_ID)
    assert [key.rpartition(".")[2] for key in topic.keys("0/")].count("log") == 0
    topic.check()
    assert verify(topic.handle).findings == []


def test_a_damaged_parquet_segment_fails_its_merge_and_leaves_nothing(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    before = topic.keys("0/")
    topic.damage(f"{topic.segment_key(1)}", position=10)
    with pytest.raises(CorruptObject, match="its checksum does not match"):
        topic.merge(2)
    assert topic.keys("0/") == before


def test_a_parquet_segment_that_is_damaged_on_one_node_is_merged_from_another():
    topic = ReplicatedTopic(**NOW)
    for _ in range(2):
        topic.append(on=ALL, acks="all")
        topic_roll.roll_and_merge(topic.handle, at_once=True)
    one = topic.partition()
    store, key = topic.log.node_store("0"), layout.segment_file(topic.handle.segment(0, one.segments[1].name))
    data = bytearray(store.read(key))
    data[10] ^= 1
    store.put(key, bytes(data))
    job = roll_plan.RollJob(0, one.leader_epoch, 2, one.segments, (), one.epoch_starts, parquet=True)
    swap = roll_task.run_roll(topic.log.store_at, roll_task.roll_task_of(topic.handle, job), topic.log.environment)
    topic.handle.submit(MaintainSegments((swap,)))
    assert [each.rows for each in topic.partition().segments] == [2]
    assert verify(topic.handle).findings == []


def test_a_topic_that_gets_a_few_rows_at_a_time_is_a_table_without_many_files(monkeypatch):
    topic = StoredTopic(**NOW | {"parquet_max_lag_ms": "1000"})
    for _ in range(40):
        topic.fill(2)
        assert topic_roll.roll_and_merge(topic.handle)["segments"] == 0
        topic.clock.now_ms += 1000
        topic_roll.roll_and_merge(topic.handle)
        assert topic.handle.table_end(0) == len(topic.expected[0])
    found = topic.handle.journal.state.partitions[0].segments
    assert len(found) < roll_plan.MERGE_COUNT
    assert topic_roll.roll_and_merge(topic.handle)["segments"] == 0
    topic.check()
    assert verify(topic.handle).findings == []


def test_at_once_ends_although_rows_are_written_all_the_time(topic):
    topic.fill(2)
    done = topic_roll.roll_and_merge(topic.handle, between=lambda: topic.fill(1), at_once=True)
    assert done["segments"] == 1
    topic.handle.refresh()
    assert topic.handle.table_end(0) == 6
    topic.check()


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
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(PlainStore(url))), **NOW | {"parquet_max_lag_ms": "0"})
    other = topic.log.create_topic("u", 1, topic.handle.config, replicas=[ALL])
    topic.append(on=ALL, acks="all")
    write(topic.log, other, 0, {0: [b"u"]}, on=ALL, acks="all")
    topic.stores.at["/cluster"].lose_answers(f"{topic.handle.journal.folder}entries", times=ALWAYS)
    failures = []
    topic_roll.roll_led_by(topic.log, "0", pytest.fail, lambda *failure: failures.append(failure))
    ((name, error),) = failures
    assert (name, type(error)) == ("t", OutcomeUnknown)
    assert [each.is_parquet for each in other.refresh().partitions[0].segments] == [True]
