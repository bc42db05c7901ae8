"""The Delta table of a topic has the rows of its Parquet segments, each once, on every node that holds them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import delta_table, topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteRecords
from pyspark_log_storage.columns import schema
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.delta.delta_actions import Action, DeletionVector
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


def test_a_topic_of_chunks_has_no_table():
    topic = StoredTopic()
    topic.fill(4)
    topic.roll()
    clean_up(topic)
    assert not any("_delta_log" in key for key in topic.store.list(topic.folder))


def test_the_table_has_the_rows_of_the_parquet_segments(topic):
    topic.fill(5, partitions=(0, 1))
    topic.roll(3)
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 9})
    topic.roll(2)
    topic.roll(5, partition=1)
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 15, 1: 15})


def test_a_segment_behind_one_of_chunks_is_not_in_the_table_so_no_row_is_missing_between_two(topic):
    topic.fill(9)
    topic.roll(3)
    topic.parquet = False
    topic.roll(3)
    topic.parquet = True
    topic.roll(3)
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 9})


def test_the_table_of_a_topic_whose_format_was_changed_gets_its_older_rows():
    topic = StoredTopic(partitions=2, **(NOW | {"segment_format": "log", "segment_bytes": "1000"}))
    for _ in range(2):
        topic.fill(20, partitions=(0, 1))
        for partition in (0, 1):
            topic.roll(partition=partition)
    topic.handle.submit(AlterConfig({"segment.format": "parquet"}))
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == {}
    topic_roll.roll_and_merge(topic.handle)
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 120, 1: 120})


def test_publishing_again_changes_nothing(topic):
    topic.fill(5)
    topic.roll(3)
    clean_up(topic)
    before = topic.keys("_delta_log/")
    clean_up(topic)
    topic.fill(1)
    clean_up(topic)
    assert topic.keys("_delta_log/") == before


def test_a_process_that_knows_less_does_not_take_the_table_back(topic):
    topic.fill(6)
    topic.roll(3)
    older, entry = topic.handle.refresh(), topic.handle.journal.number
    topic.roll(3)
    clean_up(topic)
    assert not delta_table.publish(topic.store, topic.handle, older, "0", entry=entry, now=0)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 18})


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


def test_rows_that_retention_deletes_leave_the_table_with_their_segment(topic):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    topic.handle.submit(DeleteRecords(0, 12))
    clean_up(topic)
    assert sorted(rows_in(topic.store, topic.folder)) == [(0, offset) for offset in range(9, 18)]


def test_a_process_that_was_suspended_before_it_published_does_not_bring_a_deleted_file_back(topic, monkeypatch):
    topic.fill(6)
    topic.roll(3)
    clean_up(topic)
    topic.roll(3)
    state, entry = topic.handle.refresh(), topic.handle.journal.number
    publish = delta_log.publish

    def suspended(*arguments):
        monkeypatch.setattr(delta_log, "publish", publish)
        topic.handle.submit(DeleteRecords(0, 18))
        clean_up(topic)
        return publish(*arguments)

    monkeypatch.setattr(delta_log, "publish", suspended)
    delta_table.publish(topic.store, topic.handle, state, "0", entry=entry, now=0)
    assert rows_in(topic.store, topic.folder) == {}


def test_a_segment_leaves_the_table_before_its_file_is_deleted(topic, monkeypatch):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    topic.handle.submit(DeleteRecords(0, 9))
    delete, found = topic_cleanup.delete_all, []

    def deleted(store, keys):
        found.append(rows_in(store, topic.folder))
        delete(store, keys)

    monkeypatch.setattr(topic_cleanup, "delete_all", deleted)
    clean_up(topic)
    assert [sorted(each) for each in found] == [[(0, offset) for offset in range(9, 18)]] * len(found)


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
    assert topic.keys("0/") == ["0/leader-epoch-checkpoint"]
    assert rows_in(topic.store, topic.folder) == {}


def test_rows_of_the_first_millennium_have_statistics_that_others_read(topic):
    year_five = -62_009_366_400_000
    topic.append({0: [b"old"]}, times_ms=[year_five])
    topic.roll()
    clean_up(topic)
    (found,) = table_of(topic).files.values()
    assert json.loads(found.stats)["minValues"]["timestamp"] == "0005-01-01T00:00:00.000Z"


def test_the_largest_time_in_the_statistics_is_not_before_that_of_any_row():
    state = rolled(after(started(), commit(None, file({0: 9}))), 0, 9, max_timestamp=1_001, parquet=True)
    (found,) = delta_table.content(state, "A", 0).values()
    stats = json.loads(found.stats)
    assert stats["maxValues"] == {"partition": 0, "offset": 8, "timestamp": "1970-01-01T00:00:00.002Z"}


def test_the_table_of_a_topic_whose_format_is_not_parquet_any_more_loses_deleted_rows(topic):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    topic.handle.submit(AlterConfig({"segment.format": "log"}))
    topic.handle.submit(DeleteRecords(0, 9))
    clean_up(topic)
    assert {offset for _, offset in rows_in(topic.store, topic.folder)} == set(range(9, 18))
    topic.fill(3)
    topic.roll(3)
    clean_up(topic)
    assert {offset for _, offset in rows_in(topic.store, topic.folder)} == set(range(9, 27))


def test_the_table_notes_the_entry_that_it_was_derived_from(topic):
    topic.fill(3)
    topic.roll()
    topic.handle.refresh()
    entry = topic.handle.journal.number
    clean_up(topic)
    assert entry <= table_of(topic).transactions[topic.handle.topic_id] <= topic.handle.journal.number


def test_versions_are_kept_short_by_checkpoints(topic):
    for _ in range(3 * delta_log.CHECKPOINT_EVERY):
        topic.fill(1)
        topic.roll()
        clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: len(topic.expected[0])})
    assert table_of(topic).version == 3 * delta_log.CHECKPOINT_EVERY - 1
    assert len(topic.keys("_delta_log/")) <= 2 * delta_log.CHECKPOINT_EVERY + 4


def test_what_another_program_did_to_the_table_is_reported_and_undone(topic, caplog):
    topic.fill(6)
    topic.roll(3)
    topic.roll(3)
    clean_up(topic)
    before = rows_in(topic.store, topic.folder)
    table = table_of(topic)
    path, gone = next(iter(table.files.items()))
    topic.store.put(f"{topic.folder}compacted.parquet", topic.store.read(f"{topic.folder}{path}"))
    foreign = Action(add=delta_table.AddFile(**(_fields(gone) | {"path": "compacted.parquet"})))
    topic.store.create(delta_log.commit_key(topic.folder, 1), delta_log.encode([delta_log.removal(path, 0), foreign]))
    assert rows_in(topic.store, topic.folder) == before
    clean_up(topic)
    assert sorted(table_of(topic).files) == sorted(table.files)
    assert rows_in(topic.store, topic.folder) == before
    assert "changed by another program, in its versions 1;" in caplog.text
    version = delta_log.decode(topic.store.read(delta_log.commit_key(topic.folder, 2)), "version 2")
    assert [each.remove.path for each in version if each.remove is not None] == ["compacted.parquet"]
    topic.check()


def test_a_file_that_another_program_gave_a_deletion_vector_is_removed_with_it(topic):
    """Of the two actions which say that, the one that adds the file may come first."""
    topic.fill(6)
    topic.roll(3)
    clean_up(topic)
    path, known = next(iter(table_of(topic).files.items()))
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 34, 1, 1)
    foreign = Action(add=delta_table.AddFile(**(_fields(known) | {"deletion_vector": vector})))
    topic.store.create(delta_log.commit_key(topic.folder, 1), delta_log.encode([foreign, delta_log.removal(path, 0)]))
    clean_up(topic)
    version = delta_log.decode(topic.store.read(delta_log.commit_key(topic.folder, 2)), "version 2")
    removed = [(each.remove.path, each.remove.deletion_vector) for each in version if each.remove is not None]
    assert removed == [(path, vector)]
    assert table_of(topic).files[path].deletion_vector is None


@pytest.mark.parametrize("damage", ["cut", "lost", "flipped"])
def test_a_damaged_table_is_published_again(topic, damage, caplog):
    for _ in range(4):
        topic.fill(3)
        topic.roll()
        clean_up(topic)
    key = delta_log.commit_key(topic.folder, 2)
    data = topic.store.read(key)
    if damage == "lost":
        topic.store.delete(key)
    else:
        topic.store.put(key, data[:-9] if damage == "cut" else data.replace(b"{", b"}", 3))
    clean_up(topic)
    assert rows_in(topic.store, topic.folder) == expected(topic, {0: 36})
    assert "is damaged, and is published again" in caplog.text
    topic.check()


def test_the_table_of_a_deleted_topic_is_deleted_with_its_files(topic):
    for _ in range(delta_log.CHECKPOINT_EVERY + 2):
        topic.fill(1)
        topic.roll()
        clean_up(topic)
    assert any(key.endswith(".checkpoint.parquet") for key in topic.keys("_delta_log/"))
    topic.log.delete_topic("t")
    clean_up_cluster(topic.log)
    assert topic.keys("_delta_log/") == []


def test_each_node_has_a_table_of_what_it_holds():
    topic = ReplicatedTopic(**NOW)
    for _ in range(4):
        topic.append({0: [b"a"] * 3}, on=ALL, acks="all")
    topic.roll(4, on="0")
    folder = topic_folder("t", topic.handle.topic_id)

    def rows():
        topic_cleanup.clean_up_topic(topic.handle)
        return {node: len(rows_in(topic.log.node_store(node), folder)) for node in ALL}

    assert rows() == dict.fromkeys(ALL, 0)  # the segment takes the place of its chunks when the ISR holds it
    for node in ALL[1:]:
        catch_up(topic.handle, node)
    assert rows() == dict.fromkeys(ALL, 12)
    incarnation = topic.handle.journal.state.incarnations["2"]
    lost = (0, topic.partition().segments[0].name, 0)
    topic.handle.submit(ReportDamage("2", incarnation, segments=(lost,)))
    assert rows() == {"0": 12, "1": 12, "2": 0}


def test_a_version_that_is_hidden_below_a_mount_point_is_published_again_before_files_are_deleted(monkeypatch):
    topic = ReplicatedTopic(**NOW)
    for _ in range(4):
        topic.append({0: [b"a"] * 3}, on=ALL, acks="all")
    topic.roll(4, on="0")
    for node in ALL[1:]:
        catch_up(topic.handle, node)
    topic_cleanup.clean_up_topic(topic.handle)
    folder, hiding = topic_folder("t", topic.handle.topic_id), [topic.log.node_store("2")]
    assert len(rows_in(hiding[0], folder)) == 12
    publish, delete, deleted = delta_log.publish, topic_cleanup.delete_all, []

    def hidden(store, *arguments):
        if store in hiding:
            hiding.remove(store)
            return True  # it was written, and then the disk was mounted over it
        return publish(store, *arguments)

    def delete_all(store, keys):
        named = delta_log.read(store, folder).files
        deleted.extend(key.removeprefix(folder) in named for key in keys if key.endswith(".parquet"))
        delete(store, keys)

    monkeypatch.setattr(delta_log, "publish", hidden)
    monkeypatch.setattr(topic_cleanup, "delete_all", delete_all)
    topic.handle.submit(DeleteRecords(0, 12))
    topic_cleanup.clean_up_topic(topic.handle)
    assert hiding == []
    assert deleted == [False] * 3


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


def test_a_node_that_is_removed_while_files_are_deleted_is_left_out(monkeypatch):
    topic = ReplicatedTopic(replicas=(("0", "1"),), **NOW)
    topic.append({0: [b"a"] * 3}, on=("0", "1"), acks="all")
    topic.roll(1, on="0")
    catch_up(topic.handle, "1")
    topic.handle.submit(DeleteRecords(0, 3))
    publish = topic_cleanup.publish_before_deletion

    def after_a_removal(*arguments):
        if "2" in topic.log.cluster.state.nodes:
            node_admin.set_fenced(topic.log, "2", fenced=True)
            node_admin.remove(topic.log, "2")
        publish(*arguments)

    monkeypatch.setattr(topic_cleanup, "publish_before_deletion", after_a_removal)
    topic_cleanup.clean_up_topic(topic.handle)
    assert "2" not in topic.log.cluster.state.nodes
    assert [bool(topic.keys(node)) for node in ("0", "1")] == [False, False]


def test_the_columns_of_the_table_are_those_of_the_rows(topic):
    clean_up(topic)
    columns = json.loads(table_of(topic).metadata.schema_string)["fields"]
    others = [name for name in schema.RECORD_WITH_HEADERS.names if name != "timestamp"]
    assert [each["name"] for each in columns] == ["partition", "offset", "timestamp", *others]


def _fields(added):
    return {name: getattr(added, name) for name in added.__struct_fields__}
