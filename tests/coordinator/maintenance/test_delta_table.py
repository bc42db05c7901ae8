"""The Delta table of a topic has the rows of its Parquet segments, each once, on every node that holds them."""

import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_log_coordinator.maintenance import delta_table, topic_cleanup
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.topic.machine import AlterReplicaNode, DeleteRecords
from pyspark_log_storage.columns import schema
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.delta.delta_actions import Action
from pyspark_log_storage.errors import StoreUnwritable
from pyspark_log_storage.layout import topic_folder
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.coordinator.topics import after, commit, file, rolled, started

NOW = AT_ONCE | {"segment_format": "parquet"}


@pytest.fixture
def topic():
    return StoredTopic(partitions=2, **NOW)


def clean_up(topic):
    topic_cleanup.clean_up_topic(topic.handle)


def table_of(topic):
    return delta_log.read(topic.store, topic.folder)


def rows_in(store, folder):
    """Return the values of a table's rows by partition and offset, which no two rows share."""
    found = {}
    for path, each in delta_log.read(store, folder).files.items():
        data = store.read(f"{folder}{path}")
        assert each.size == len(data)
        rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        assert json.loads(each.stats)["numRecords"] == len(rows)
        for row in rows:
            assert (row["partition"], row["offset"]) not in found
            found[row["partition"], row["offset"]] = row["value"]
    return found


def expected(topic, ends):
    return {(p, offset): topic.expected[p][offset] for p, end in ends.items() for offset in range(end)}


def test_the_table_has_the_rows_of_the_parquet_segments_and_changes_only_with_them(topic):
    topic.fill(5, partitions=(0, 1))
    topic.roll(3)
    older, entry = topic.handle.refresh(), topic.handle.journal.number
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 9})
    columns = json.loads(table_of(topic).metadata.schema_string)["fields"]
    others = [name for name in schema.RECORD_WITH_HEADERS.names if name != "timestamp"]
    assert [each["name"] for each in columns] == ["partition", "offset", "timestamp", *others]
    before = topic.keys("_delta_log/")
    topic.fill(1)
    clean_up(topic)
    assert topic.keys("_delta_log/") == before
    topic.roll(3)
    topic.roll(5, partition=1)
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 18, 1: 15})
    # A process that knows less does not take it back.
    assert not delta_table.publish(topic.store, topic.handle, older, "0", entry=entry, now=0)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 18, 1: 15})


def test_deleted_rows_leave_the_table_with_their_segment_before_its_file_is_deleted(topic, monkeypatch):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    topic.handle.submit(DeleteRecords(0, 12))
    delete, found = topic_cleanup.delete_all, []

    def deleted(store, keys):
        found.append(sorted(rows_in(store, topic.folder)))
        delete(store, keys)

    monkeypatch.setattr(topic_cleanup, "delete_all", deleted)
    clean_up(topic)
    assert found == [[(0, offset) for offset in range(9, 18)]] * len(found) != []


def test_the_times_in_the_statistics_enclose_those_of_all_rows():
    state = rolled(after(started(), commit(None, file({0: 9}))), 0, 9, max_timestamp=1_001, parquet=True)
    (one,) = state.partitions
    year_five = msgspec.structs.replace(one.segments[0], min_timestamp=-62_009_366_400_000_000)
    changed = msgspec.structs.replace(one, segments=(year_five,))
    state = msgspec.structs.replace(state, partitions=(changed, *state.partitions[1:]))
    (found,) = delta_table.content(state, "A", 0).values()
    stats = json.loads(found.stats)
    assert stats["minValues"]["timestamp"] == "0005-01-01T00:00:00.000Z"
    assert stats["maxValues"] == {"partition": 0, "offset": 8, "timestamp": "1970-01-01T00:00:00.002Z"}


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_a_damaged_table_is_published_again(topic, damage, caplog):
    for _ in range(4):
        topic.fill(3)
        topic.roll()
        clean_up(topic)
    key = delta_log.commit_key(topic.folder, 2)
    data = topic.store.read(key)
    topic.store.delete(key)
    if damage == "cut":
        topic.store.put(key, data[:-9])
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 36})
    assert "is damaged, and is published again" in caplog.text


def test_a_version_that_another_process_publishes_first_is_read_and_nothing_is_there_twice(topic, monkeypatch):
    topic.fill(6)
    clean_up(topic)
    topic.roll(3)
    state, entry = topic.handle.refresh(), topic.handle.journal.number
    topic.roll(3)
    publish = delta_log.publish

    def second(*arguments):
        monkeypatch.setattr(delta_log, "publish", publish)
        delta_table.publish(topic.store, topic.handle, state, "0", entry=entry, now=0)
        return publish(*arguments)

    monkeypatch.setattr(delta_log, "publish", second)
    clean_up(topic)
    assert table_of(topic).version == 2
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 18})


def test_a_full_disk_gets_room_although_its_table_cannot_be_published(topic, monkeypatch):
    topic.fill(6)
    topic.roll()
    clean_up(topic)
    topic.handle.submit(DeleteRecords(0, 18))
    create = topic.store.create

    def full(key, data):
        if "_delta_log" in key and any(each.endswith(".parquet") for each in topic.keys("0/")):
            raise StoreUnwritable(topic.store.url, key, "the disk is full")
        return create(key, data)

    monkeypatch.setattr(topic.store, "create", full)
    clean_up(topic)
    assert topic.keys("0/") == []
    assert rows_in(topic.store, topic.folder) == {}


def test_what_another_program_did_to_the_table_is_reported_and_undone(topic, caplog):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    before = rows_in(topic.store, topic.folder)
    table = table_of(topic)
    path, gone = next(iter(table.files.items()))
    topic.store.put(f"{topic.folder}compacted.parquet", topic.store.read(f"{topic.folder}{path}"))
    foreign = Action(add=msgspec.structs.replace(gone, path="compacted.parquet"))
    topic.store.create(delta_log.commit_key(topic.folder, 1), delta_log.encode([delta_log.removal(path, 0), foreign]))
    assert rows_in(topic.store, topic.folder) == before
    clean_up(topic)
    assert sorted(table_of(topic).files) == sorted(table.files)
    assert rows_in(topic.store, topic.folder) == before
    assert "changed by another program, in its versions 1;" in caplog.text
    version = delta_log.decode(topic.store.read(delta_log.commit_key(topic.folder, 2)), "version 2")
    assert [each.remove.path for each in version if each.remove is not None] == ["compacted.parquet"]
    topic.check()


@pytest.mark.parametrize(
    ("version", "ending"),
    [
        (3, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"),
        (2**63 - 1, "checkpoint.parquet"),
        (2, f"{3:020d}.compacted.json"),
        (5, "json/x"),
        (10**20 - 1, "json"),
    ],
)
def test_whatever_another_program_gives_the_number_of_a_version_is_deleted(topic, version, ending):
    for _ in range(4):
        topic.fill(3)
        topic.roll()
        clean_up(topic)
    name = f"_delta_log/{version:020d}.{ending}"
    topic.store.put(f"{topic.folder}{name}", b"{}")
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 36})
    after_it = topic.keys("_delta_log/")
    assert name not in after_it
    clean_up(topic)
    assert topic.keys("_delta_log/") == after_it


def test_each_node_has_a_table_of_what_it_holds():
    topic = ReplicatedTopic(**NOW)
    for _ in range(4):
        topic.append({0: [b"a"] * 3}, on=ALL, acks="all")
    topic.roll(4)
    folder = topic_folder("t", topic.handle.topic_id)

    def rows():
        topic_cleanup.clean_up_topic(topic.handle)
        return {node: len(rows_in(topic.log.node_store(node), folder)) for node in ALL}

    assert rows() == dict.fromkeys(ALL, 12)
    topic.handle.submit(AlterReplicaNode("2", "another"))
    assert rows() == {"0": 12, "1": 12, "2": 0}


def test_no_file_is_deleted_of_a_disk_that_was_not_mounted_when_its_table_was_looked_at(monkeypatch):
    topic = ReplicatedTopic(**NOW)
    topic.append({0: [b"a"] * 3}, on=ALL, acks="all")
    topic.roll(1, on="0")
    for node in ALL[1:]:
        catch_up(topic.handle, node)
    topic_cleanup.clean_up_topic(topic.handle)
    disk, publish = topic.log.node_store("2"), topic_cleanup.publish_before_deletion

    def while_it_is_away(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(disk, "_objects", {})
            publish(*arguments)

    monkeypatch.setattr(topic_cleanup, "publish_before_deletion", while_it_is_away)
    topic.handle.submit(DeleteRecords(0, 3))
    failed = []
    topic_cleanup.clean_up_topic(topic.handle, failed=lambda node, _: failed.append(node))
    assert failed == ["2"]
    assert [bool(topic.keys(node)) for node in ALL] == [False, False, True]
    assert len(rows_in(disk, topic_folder("t", topic.handle.topic_id))) == 3
