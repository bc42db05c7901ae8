"""The log of a Delta table, also as delta-rs reads it, which shares no code with it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_log_storage.delta import delta_checkpoint, delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, Metadata, Transaction
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.stores.local import LocalStore
from tests.support.memory_store import MemoryStore

COLUMNS = {"type": "struct", "fields": [{"name": "offset", "type": "long", "nullable": True, "metadata": {}}]}
METADATA = Metadata(id="6f7e", schema_string=json.dumps(COLUMNS))
BEGIN = [delta_log.commit_info(1, "CREATE TABLE"), Action(protocol=delta_log.PROTOCOL), Action(metadata=METADATA)]
FOLDER = "topics/t/"


def added(path, size=1):
    return Action(add=AddFile(path=path, size=size, modification_time=1, data_change=True, partition_values={}))


def removed(path):
    return delta_log.removal(path, 2)


def version(*actions):
    return [delta_log.commit_info(1, "WRITE"), *actions]


def publish(store, *versions):
    for number, actions in enumerate(versions):
        assert delta_log.publish(store, FOLDER, number, actions)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def on_disk(tmp_path):
    """A store with a table of two files of ten rows."""
    made = LocalStore(str(tmp_path))
    for name, first in (("a b.parquet", 0), ("b.parquet", 10)):
        path = tmp_path / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"offset": pa.array(range(first, first + 10), pa.int64())}), path)
    sizes = [(tmp_path / FOLDER / name).stat().st_size for name in ("a b.parquet", "b.parquet")]
    publish(made, BEGIN, version(added("a%20b.parquet", sizes[0])), version(added("b.parquet", sizes[1])))
    return made


def read_by_delta_rs(tmp_path):
    import deltalake

    rows = deltalake.DeltaTable(str(tmp_path / FOLDER)).to_pyarrow_table()
    return sorted(rows.column("offset").to_pylist())


def test_a_table_is_what_its_versions_add_and_remove(store):
    assert delta_log.read(store, FOLDER).version == -1, "a folder without a log has no table"
    noted = Action(txn=Transaction("the topic", 7))
    publish(store, BEGIN, version(added("a"), added("b")), version(removed("a"), added("c"), noted))
    assert not delta_log.publish(store, FOLDER, 1, version(added("d"))), "a version is published once"
    table = delta_log.read(store, FOLDER)
    assert (table.version, sorted(table.files), table.transactions) == (2, ["b", "c"], {"the topic": 7})
    assert (table.metadata, table.protocol, table.foreign) == (METADATA, delta_log.PROTOCOL, ())


def test_a_checkpoint_replaces_the_versions_before_it(store):
    publish(store, BEGIN, version(added("a"), added("b"), Action(txn=Transaction("x", 3))), version(removed("a")))
    before = delta_log.read(store, FOLDER)
    delta_log.write_checkpoint(store, FOLDER, before)
    delta_log.delete_versions(store, FOLDER, 2)
    assert len(list(store.list(FOLDER))) == 3  # the newest version, its checkpoint, and what names that
    after = delta_log.read(store, FOLDER)
    assert after.checkpoint == 2
    assert (after.version, after.files, after.transactions) == (before.version, before.files, before.transactions)
    assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
    assert delta_log.publish(store, FOLDER, 3, version(added("c")))
    assert sorted(delta_log.read(store, FOLDER).files) == ["b", "c"]


def test_a_missing_version_is_damage(store):
    publish(store, BEGIN, version(added("a")), version(added("b")))
    store.delete(delta_log.commit_key(FOLDER, 1))
    with pytest.raises(CorruptObject, match="lacks version 1, and has 2"):
        delta_log.read(store, FOLDER)


def test_a_version_of_ours_that_says_something_else_is_damage(store):
    publish(store, BEGIN, version(added("a")))
    key = delta_log.commit_key(FOLDER, 1)
    whole = store.read(key)
    for data, why in (
        (whole.replace(b'"path":"a"', b'"path":"b"'), "its checksum is wrong"),
        (b'{"add":5}\n', ".json"),
    ):
        store.put(key, data)
        with pytest.raises(CorruptObject, match=why):
            delta_log.read(store, FOLDER)


def checkpoint_key(number):
    return f"{delta_log.log_of(FOLDER)}{number:020d}.checkpoint.parquet"


def test_a_checkpoint_that_the_log_names_and_does_not_have_is_damage(store):
    publish(store, BEGIN)
    delta_log.write_checkpoint(store, FOLDER, delta_log.read(store, FOLDER))
    store.delete(checkpoint_key(0))
    with pytest.raises(CorruptObject, match="there is no checkpoint of version 0"):
        delta_log.read(store, FOLDER)


def test_a_checkpoint_is_there_before_it_is_named(store, monkeypatch):
    publish(store, BEGIN)
    table, keys = delta_log.read(store, FOLDER), []
    monkeypatch.setattr(store, "put", lambda key, _: keys.append(key))
    delta_log.write_checkpoint(store, FOLDER, table)
    assert keys == [checkpoint_key(0), f"{delta_log.log_of(FOLDER)}_last_checkpoint"]


def test_a_table_that_is_tidied_up_while_it_is_read_is_read_again(store, monkeypatch):
    publish(store, BEGIN, version(added("a")), version(added("b")))
    listing = store.list

    def list_and_tidy_up(prefix, after=""):
        keys = list(listing(prefix, after))
        monkeypatch.undo()
        delta_log.write_checkpoint(store, FOLDER, delta_log.read(store, FOLDER))
        delta_log.delete_versions(store, FOLDER, 2)
        return iter(keys)

    monkeypatch.setattr(store, "list", list_and_tidy_up)
    assert sorted(delta_log.read(store, FOLDER).files) == ["a", "b"]


def test_a_name_in_a_table_may_look_like_the_checksum_of_its_checkpoint():
    actions = [
        *BEGIN[1:],
        added("pyspark_log.crc32c=01234567"),
        Action(txn=Transaction("pyspark_log.crc32c=00000000", 1)),
    ]
    assert delta_checkpoint.decode(delta_checkpoint.encode(actions), "it") == actions


@pytest.mark.deep
def test_delta_rs_reads_the_table_from_its_versions_and_from_its_checkpoint_on(tmp_path, on_disk):
    assert read_by_delta_rs(tmp_path) == list(range(20))
    delta_log.write_checkpoint(on_disk, FOLDER, delta_log.read(on_disk, FOLDER))
    delta_log.delete_versions(on_disk, FOLDER, 2)
    assert read_by_delta_rs(tmp_path) == list(range(20))
    assert delta_log.publish(on_disk, FOLDER, 3, version(removed("a%20b.parquet")))
    assert read_by_delta_rs(tmp_path) == list(range(10, 20))


@pytest.mark.parametrize(
    ("kind", "features"),
    [
        ({"type": "array", "elementType": "timestamp_ntz", "containsNull": True}, (delta_log.NTZ,)),
        ({"type": "map", "keyType": "long", "valueType": "timestamp_ntz"}, (delta_log.NTZ,)),
        ("long", None),
    ],
)
def test_a_time_without_a_zone_in_a_list_or_a_map_needs_its_feature_and_a_name_none(kind, features):
    field = {"name": "timestamp_ntz", "type": kind, "nullable": True, "metadata": {}}
    columns = Metadata(id="6f7e", schema_string=json.dumps({"type": "struct", "fields": [field]}))
    assert delta_log.protocol_of(columns).reader_features == features


@pytest.mark.deep
def test_delta_rs_refuses_to_change_the_table(tmp_path, on_disk):
    import deltalake

    table = deltalake.DeltaTable(str(tmp_path / FOLDER))
    for change in (table.optimize.compact, lambda: table.delete("offset < 5")):
        with pytest.raises(deltalake.exceptions.CommitFailedError, match=delta_log.WRITER_FEATURE):
            change()
    assert delta_log.read(on_disk, FOLDER).version == 2
    assert read_by_delta_rs(tmp_path) == list(range(20))


@pytest.mark.deep
def test_a_checkpoint_that_delta_rs_has_written_is_not_read(tmp_path, on_disk, monkeypatch):
    import deltalake

    deltalake.DeltaTable(str(tmp_path / FOLDER)).create_checkpoint()
    monkeypatch.setattr(pq, "ParquetFile", lambda *_: pytest.fail("it is read"))
    with pytest.raises(CorruptObject, match="another program wrote it"):
        delta_log.read(on_disk, FOLDER)


def test_a_version_of_another_program_is_noticed(store):
    publish(store, BEGIN, [added("a")], version(added("b")))
    store.put(delta_log.commit_key(FOLDER, 3), b'{"commitInfo":{"engineInfo":"other"}}\n{"cdc":{"path":"x"}}\n')
    assert delta_log.read(store, FOLDER).foreign == (1, 3)


def test_objects_of_others_are_noticed_and_deleted_with_the_versions(store):
    publish(store, BEGIN, version(added("a")), version(added("b")))
    delta_log.write_checkpoint(store, FOLDER, delta_log.read(store, FOLDER))
    for name in (f"{1:020d}.crc", f"{delta_log.VERSION_MAX + 1:020d}.json"):
        store.put(f"{delta_log.log_of(FOLDER)}{name}", b"")
    assert delta_log.read(store, FOLDER).foreign == (1, delta_log.VERSION_MAX + 1)
    assert delta_log.newest_version(store, FOLDER) == 2
    delta_log.delete_versions(store, FOLDER, 2)
    assert delta_log.read(store, FOLDER).foreign == ()
