"""Deletion vectors are read as they were written: by a reader of Roaring's format, by delta-rs, and by our own."""

import json

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_log_storage.delta import deletion_vector, delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, DeletionVector, Metadata
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.stores.local import LocalStore
from tests.support.storage import vector_reader

EXAMPLE = deletion_vector.encode(np.array([3, 4, 7, 11, 18, 29]))


def by_the_specification(vector):
    return vector_reader.rows_of(msgspec.to_builtins(vector))


@st.composite
def row_sets(draw):
    """Return the number of rows of a file, and some of them: single ones, dense parts, or every one."""
    rows = draw(st.sampled_from([1, 2, 100, 4096, 4097, 65_535, 65_536, 65_537, 200_000]))
    share = draw(st.sampled_from([0, 0.0001, 0.01, 0.0625, 0.5, 0.99, 1]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = np.flatnonzero(chance.random(rows) < share)
    singles = draw(st.lists(st.integers(0, rows - 1), max_size=5))
    return rows, np.union1d(chosen, np.array(singles, np.int64))


@settings(max_examples=20, deadline=None)
@given(row_sets())
@example((2**32 - 1, np.array([2**32 - 2])))
def test_a_vector_has_the_rows_that_were_given(given_rows):
    rows, chosen = given_rows
    vector = deletion_vector.encode(chosen)
    if vector is None:
        assert len(chosen) == 0
        return
    assert by_the_specification(vector) == chosen.tolist()
    assert deletion_vector.decode(vector, rows, "it").tolist() == chosen.tolist()


@pytest.mark.parametrize("count", [4095, 4096, 4097, 65_535, 65_536])
def test_a_container_is_a_list_up_to_4096_rows_and_bits_from_there_on(count):
    chosen = np.concatenate([np.array([1]), 65_536 + np.arange(count)])
    vector = deletion_vector.encode(chosen)
    assert by_the_specification(vector) == chosen.tolist()
    assert vector.size_in_bytes == 40 + 2 + min(2 * count, 8192)
    assert deletion_vector.decode(vector, 131_072, "it").tolist() == chosen.tolist()


def test_each_byte_of_the_text_counts():
    assert by_the_specification(EXAMPLE) == [3, 4, 7, 11, 18, 29]
    text = EXAMPLE.path_or_inline_dv
    assert text == "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"  # as pyroaring 1.2.0 writes it
    for place in range(len(text)):
        changed = text[:place] + ("1" if text[place] == "0" else "0") + text[place + 1 :]
        with pytest.raises(CorruptObject, match="its deletion vector is not one"):
            deletion_vector.decode(msgspec.structs.replace(EXAMPLE, path_or_inline_dv=changed), 30, "it")


@pytest.mark.parametrize(
    "changed",
    [
        {"storage_type": "u"},
        {"offset": 1},
        {"cardinality": 7},
        {"size_in_bytes": 43},
        {"path_or_inline_dv": EXAMPLE.path_or_inline_dv[:-5]},
        {"path_or_inline_dv": f"{EXAMPLE.path_or_inline_dv}00000"},
        {"path_or_inline_dv": "ä" * 55},
    ],
)
def test_a_vector_that_is_not_ours_or_of_a_shorter_file_is_damage(changed):
    with pytest.raises(CorruptObject):
        deletion_vector.decode(msgspec.structs.replace(EXAMPLE, **changed), 30, "it")
    with pytest.raises(CorruptObject):
        deletion_vector.decode(EXAMPLE, 29, "it")


@pytest.mark.deep
@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_delta_rs_reads_vectors_from_versions_and_from_checkpoints(tmp_path, from_checkpoint):
    import deltalake

    rows, dead = 150_000, np.array([0, 7, *range(65_536, 90_000), *range(100_000, 149_999, 100), 149_999])
    path = tmp_path / "t" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"offset": pa.array(range(rows), pa.int64())}), path)
    field = {"name": "offset", "type": "long", "nullable": True, "metadata": {}}
    columns = Metadata(
        id="6f7e",
        schema_string=json.dumps({"type": "struct", "fields": [field]}),
        configuration={delta_log.ENABLE_VECTORS: "true"},
    )
    added = AddFile(
        path="a.parquet",
        size=path.stat().st_size,
        modification_time=1,
        data_change=True,
        partition_values={},
        stats=json.dumps({"numRecords": rows, "tightBounds": False}),
        deletion_vector=deletion_vector.encode(dead),
    )
    store, table = LocalStore(str(tmp_path)), delta_log.DeltaTable()
    protocol = delta_log.protocol_of(columns)
    actions = [
        delta_log.commit_info(1, "WRITE"),
        Action(protocol=protocol),
        Action(metadata=columns),
        Action(add=added),
    ]
    assert delta_log.publish(store, "t/", 0, actions)
    if from_checkpoint:
        table.apply(actions)
        delta_log.write_checkpoint(store, "t/", table)
        store.delete(delta_log.commit_key("t/", 0))
        assert delta_log.read(store, "t/").files == table.files
    read = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path.parent)))
    found = pa.table(read.execute('SELECT "offset" FROM t').read_all())
    assert sorted(found.column(0).to_pylist()) == np.setdiff1d(np.arange(rows), dead).tolist()


def test_a_table_without_vectors_needs_nothing_of_its_readers():
    columns = Metadata(id="x", schema_string="{}")
    enabled = msgspec.structs.replace(columns, configuration={delta_log.ENABLE_VECTORS: "true"})
    assert delta_log.protocol_of(columns) == delta_log.PROTOCOL
    with_vectors = delta_log.protocol_of(enabled)
    assert with_vectors.reader_features == ("deletionVectors",)
    assert "deletionVectors" in with_vectors.writer_features
    assert delta_log.protocol_of(columns, with_vectors) == with_vectors  # older versions have vectors


def test_a_vector_of_another_program_is_as_it_stands():
    other = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    stored = {"add": {"path": "a", "size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {}}}
    stored["add"]["deletionVector"] = other | {"cardinality": 6}
    (found,) = delta_log.decode(json.dumps(stored).encode(), "it")
    assert found.add.deletion_vector == DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
