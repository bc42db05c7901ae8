"""One object of a Delta table is lost, cut or flipped: the next cleanup makes the table right, and the log is unharmed.

The table is read by delta-rs, before that as well: then it has the right rows, or those of an older version, or fails.
"""

import json

import deltalake
import pytest

from pyspark_log_coordinator.maintenance import delta_table, topic_cleanup
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.delta import delta_checkpoint, delta_log
from pyspark_log_storage.delta.delta_actions import Action
from pyspark_log_storage.errors import CorruptObject
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.delta_reader import DeltaFolder

SETTINGS = AT_ONCE | {"segment_format": "parquet"}
SEGMENTS, ROWS = 7, 3
LAST = "_delta_log/_last_checkpoint"
CHECKPOINT = f"_delta_log/{3:020d}.checkpoint.parquet"
VERSIONS = [f"_delta_log/{number:020d}.json" for number in range(SEGMENTS)]


@pytest.fixture
def topic(monkeypatch):
    """A topic whose table has versions before and after a checkpoint."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 4)
    made = StoredTopic(**SETTINGS)
    for _ in range(SEGMENTS):
        made.fill(1, ROWS)
        made.roll()
        topic_cleanup.clean_up_topic(made.handle)
    assert made.keys("_delta_log/") == sorted([*VERSIONS, CHECKPOINT, LAST])
    return made


def flips(data):
    """Return the object with one flipped bit, at several places."""
    for position in range(0, len(data), max(1, len(data) // 5)):
        yield data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


def objects(store):
    return {key: store.read(key) for key in store.list("")}


def restore(store, whole):
    """Make the objects of a store those that it had before."""
    for key in set(store.list("")) - whole.keys():
        store.delete(key)
    for key, data in whole.items():
        store.put(key, data)


def read(topic, folder):
    folder.take(objects(topic.store), topic.folder)
    found = folder.read()
    return {} if found is None else found[1].get(0, {})


@pytest.mark.no_faults("makes so many calls that every run meets one")
@pytest.mark.parametrize("name", [*VERSIONS[2:], CHECKPOINT, LAST])
def test_whatever_is_damaged_is_published_again(topic, name, tmp_path):
    right = dict(enumerate(topic.expected[0]))
    folder, key = DeltaFolder(tmp_path), f"{topic.folder}{name}"
    whole = objects(topic.store)
    for damaged in (None, whole[key][:-7], b"", *flips(whole[key])):
        restore(topic.store, whole)
        topic.store.delete(key)
        if damaged is not None:
            topic.store.put(key, damaged)
        try:
            found = read(topic, folder)
        except (deltalake.exceptions.DeltaError, ValueError, OSError):
            found = {}
        assert found.items() <= right.items()
        topic_cleanup.clean_up_topic(topic.handle)
        assert read(topic, folder) == right, f"{name} was {damaged!r}"
        topic.check()


def test_a_damaged_entry_number_does_not_stop_publishing(topic, tmp_path):
    key = f"{topic.folder}{VERSIONS[-1]}"
    data = topic.store.read(key)
    topic.store.put(key, data.replace(b'"version":', b'"version":9'))
    topic.fill(1, ROWS)
    topic.roll()
    topic_cleanup.clean_up_topic(topic.handle)
    assert read(topic, DeltaFolder(tmp_path)) == dict(enumerate(topic.expected[0]))


def test_a_checkpoint_that_is_written_late_does_not_take_the_table_back(topic, tmp_path):
    right = dict(enumerate(topic.expected[0]))
    late = {key: topic.store.read(key) for key in (f"{topic.folder}{CHECKPOINT}", f"{topic.folder}{LAST}")}
    for _ in range(6):
        topic.fill(1, ROWS)
        topic.roll()
        topic_cleanup.clean_up_topic(topic.handle)
    right = dict(enumerate(topic.expected[0]))
    for key, data in late.items():
        topic.store.put(key, data)
    assert read(topic, DeltaFolder(tmp_path)) == right
    assert delta_log.read(topic.store, topic.folder).checkpoint > 3
    before = topic.keys("_delta_log/")
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("_delta_log/") == before


def test_a_file_that_another_program_adds_again_with_deleted_rows_is_put_right(topic, tmp_path):
    path = next(iter(delta_log.read(topic.store, topic.folder).files))
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    added = {"path": path, "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {}}
    foreign = json.dumps({"add": added | {"deletionVector": vector}})
    topic.store.create(delta_log.commit_key(topic.folder, SEGMENTS), foreign.encode())
    topic_cleanup.clean_up_topic(topic.handle)
    assert read(topic, DeltaFolder(tmp_path)) == dict(enumerate(topic.expected[0]))
    assert delta_log.read(topic.store, topic.folder).foreign == ()


@pytest.mark.parametrize("harm", ["damaged", "foreign", "deleted"])
def test_a_process_with_an_older_state_publishes_a_table_anew_without_deleted_files(topic, harm, tmp_path):
    older, entry = topic.handle.refresh(), topic.handle.journal.number
    topic.handle.submit(DeleteRecords(0, SEGMENTS * ROWS - ROWS))
    topic_cleanup.clean_up_topic(topic.handle)
    found = delta_log.read(topic.store, topic.folder)
    if harm == "damaged":
        topic.store.put(f"{topic.folder}_delta_log/{found.checkpoint:020d}.checkpoint.parquet", b"")
    elif harm == "deleted":
        for key in list(topic.store.list(delta_log.log_of(topic.folder))):
            topic.store.delete(key)
    else:
        topic.store.create(delta_log.commit_key(topic.folder, found.version + 1), b'{"commitInfo": {}}')
    assert delta_table.publish(topic.store, topic.handle, older, "0", entry=entry, now=0)
    right = dict(list(enumerate(topic.expected[0]))[-ROWS:])
    assert read(topic, DeltaFolder(tmp_path)) == right


def lying_checkpoint(topic):
    """Return the table without its first file, as another program writes a checkpoint."""
    table = delta_log.read(topic.store, topic.folder)
    added = [Action(add=each) for each in table.files.values()][1:]
    data = delta_checkpoint.encode([Action(protocol=table.protocol), Action(metadata=table.metadata), *added])
    mine, others = (b"pyspark_log.crc32c", b"parquet-cpp-arrow"), (b"another_name.crc32", b"parquet-of-others")
    return data.replace(mine[0], others[0]).replace(mine[1], others[1])


@pytest.mark.parametrize(
    ("version", "ending"),
    [
        (SEGMENTS - 1, "checkpoint.parquet"),
        (SEGMENTS - 1, "checkpoint.0000000001.0000000001.parquet"),
        (SEGMENTS - 1, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"),
        (SEGMENTS + 5, "checkpoint.0000000001.0000000001.parquet"),
        (2**63 - 1, "checkpoint.parquet"),
    ],
)
def test_a_checkpoint_of_another_program_that_lies_is_put_right(topic, version, ending, tmp_path):
    folder, right = DeltaFolder(tmp_path), dict(enumerate(topic.expected[0]))
    topic.store.put(f"{topic.folder}_delta_log/{version:020d}.{ending}", lying_checkpoint(topic))
    assert read(topic, folder) != right
    check_put_right(topic, folder)


@pytest.mark.parametrize(
    ("version", "ending"), [(4, f"{6:020d}.compacted.json"), (6, "crc"), (7, "json/x"), (10**20 - 1, "json")]
)
def test_whatever_another_program_gives_the_number_of_a_version_is_deleted(topic, version, ending, tmp_path):
    topic.store.put(f"{topic.folder}_delta_log/{version:020d}.{ending}", b"{}")
    check_put_right(topic, DeltaFolder(tmp_path))


def check_put_right(topic, folder):
    """The next cleanup makes the table right, and the one after that has nothing to do."""
    topic_cleanup.clean_up_topic(topic.handle)
    assert read(topic, folder) == dict(enumerate(topic.expected[0]))
    after = topic.keys("_delta_log/")
    assert [name.partition(".")[2] for name in after] == ["checkpoint.parquet", "json", ""]
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("_delta_log/") == after


def test_a_table_that_is_whole_when_it_is_read_again_is_not_published_anew(topic, monkeypatch):
    missing, really_read = [CorruptObject("_last_checkpoint", "there is no checkpoint")], delta_log.read

    def found(store, folder):
        if missing:  # the disk was unmounted in the middle
            raise missing.pop()
        return really_read(store, folder)

    monkeypatch.setattr(delta_log, "read", found)
    topic_cleanup.clean_up_topic(topic.handle)
    assert missing == []
    assert topic.keys("_delta_log/") == sorted([*VERSIONS, CHECKPOINT, LAST])
