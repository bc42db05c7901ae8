"""Keyed segments: some rows of a range at their offsets, and two lists; never wrong rows, and no part unchecked."""

import contextlib
import itertools
import random

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.columns.key_index import Keys, keys_of
from pyspark_log_storage.columns.schema import RECORD, RECORD_SCHEMAS, TIMESTAMP
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files import index
from pyspark_log_storage.files.index import Index
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.parquet import keyed_segment, parquet_footer, parquet_segment
from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter
from pyspark_log_storage.parquet.parquet_footer import Section
from pyspark_log_storage.parquet.parquet_segment import ParquetRows
from pyspark_log_storage.segments import segment, transfer
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore
from tests.support.rings import deep
from tests.support.segment_reads import entries_between
from tests.support.storage import parquet_rows
from tests.support.storage.parquet_rows import BASE, EPOCHS, FOLDER, KEY, NAME

END = BASE + 100


def batch_of(rows):
    """Return rows, given as key and value. The time is their number, in microseconds."""
    keys, values = zip(*rows, strict=True)
    times = pa.array(range(len(rows)), TIMESTAMP)
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times], RECORD)


def key_index_of(rows):
    """Return the key index of rows, given as offset, key and value."""
    found = keys_of([pa.array([key for _, key, _ in rows], pa.binary())], np.array([each for each, _, _ in rows]))
    return key_index.newest(found)


def versioned(keys, versions):
    """Return a key index with the version of each offset."""
    return keys._replace(versions=np.array([versions[each] for each in keys.offsets.tolist()], np.int64))


def write(store, rows, superseded=(), end=END, *, keys=None, of=KeyedSegmentWriter, cuts=(), tombstones=None):
    """Write a keyed segment. A row is its offset, key and value; `cuts` are the rows at which batches begin."""
    writer = of(store, FOLDER, NAME, BASE, EPOCHS, ParquetRows(2, RECORD_SCHEMAS, "lz4"))
    bounds = sorted({0, len(rows), *cuts})
    for first, last in itertools.pairwise(bounds):
        part = rows[first:last]
        offsets = np.array([each for each, _, _ in part], np.int64)
        writer.append_at(batch_of([row[1:] for row in part]), offsets, 0, 3)
    tombstones = sum(value is None for _, _, value in rows) if tombstones is None else tombstones
    keys = key_index_of(rows) if keys is None else keys
    return writer.close_at(end, np.array(superseded, np.int64), keys, tombstones)


def rows_in(store, key=KEY):
    """Return offset, key and value of all rows."""
    footer = parquet_footer.read(store, key)
    found = []
    for entry in footer.entries:
        batch, offsets = keyed_segment.read_rows(store, key, footer, entry, RECORD_SCHEMAS)
        values = (batch.column(name).to_pylist() for name in ("key", "value"))
        found += zip(offsets.tolist(), *values, strict=True)
    return found


def found_keys(store, keys):
    """Return the offset of the row with each key, or None."""
    found = {}
    for key in keys:
        wanted = keys_of([pa.array([key], pa.binary())], np.array([END]))
        offsets = keyed_segment.find_keys(store, KEY, wanted).offsets.tolist()
        found[key] = offsets[0] if offsets else None
    return found


ROWS = [(BASE + 3 * number, b"key-%d" % number, None if number % 4 == 0 else b"value" * 5) for number in range(12)]
SUPERSEDED = (3, 8, 999)


VERSIONS = {offset: (offset * 7919) % 100 - 50 for offset, _, _ in ROWS}


@pytest.fixture
def store(monkeypatch):
    """A keyed segment of offsets 1000 to 1099 with 12 rows in four row groups, which supersedes three rows."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 250)
    made = CountingStore()
    write(made, ROWS, SUPERSEDED, keys=versioned(key_index_of(ROWS), VERSIONS), cuts=range(0, len(ROWS), 3))
    assert [each.rows for each in segment.scan(made, KEY)] == [3, 3, 3, 3]
    return made


def test_the_footer_is_as_drawn_and_the_rows_are_ordinary_parquet(store):
    file = pq.ParquetFile(pa.BufferReader(store.read(KEY)))
    assert file.read().column("offset").to_pylist() == [offset for offset, _, _ in ROWS]
    statistics = file.metadata.row_group(1).column(1).statistics
    assert (statistics.min, statistics.max) == (1009, 1015)
    stored = msgspec.json.decode(file.metadata.metadata[b"pyspark-log.segment"])
    assert (stored["version"], len(stored["keyed"])) == (2, 4)
    write(plain := MemoryStore(), ROWS, SUPERSEDED)
    parquet_rows.write(dense := MemoryStore(), parquet_rows.simple(3))
    without, none = (
        msgspec.json.decode(parquet_footer.read(each, KEY).parquet.metadata[b"pyspark-log.segment"])
        for each in (plain, dense)
    )
    assert [len(without["keyed"]), *map(len, without["keyed"][1:])] == [3, 3, 3], "no trace of versions"
    assert set(none) == {"version", "base_offset", "leader_epochs", "row_groups", "of"}, "no trace of lists"
    assert (none["version"], {len(each) for each in none["row_groups"]}) == (1, {7})
    assert segment.keyed_counts(dense, KEY) is None
    with pytest.raises(CorruptObject, match="it has every row of its range"):
        keyed_segment.read_keys(dense, KEY)


# What is written is found


keyed_rows = st.dictionaries(
    st.integers(BASE, END - 1),
    st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=40)),
    min_size=1,
    max_size=20,
).map(lambda found: [(offset, *found[offset]) for offset in sorted(found)])
lists = st.sets(st.integers(0, BASE - 1), max_size=20).map(sorted)


@settings(max_examples=30)
@given(keyed_rows, lists, st.integers(1, 400), st.sets(st.integers(1, 19)), st.integers(0, 2**31))
def test_rows_and_lists_are_read_back_and_the_index_covers_the_range(rows, superseded, group_bytes, cuts, beyond):
    store, other = MemoryStore(), MemoryStore()
    end = rows[-1][0] + 1 + beyond
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_segment, "ROW_GROUP_BYTES", group_bytes)
        done = write(store, rows, superseded, end, cuts=[each for each in cuts if each < len(rows)])
    assert rows_in(store) == rows
    assert keyed_segment.read_superseded(store, KEY).tolist() == superseded
    newest = {key: offset for offset, key, _ in rows if key is not None}
    found = keyed_segment.read_keys(store, KEY)
    assert sorted(found.offsets.tolist()) == sorted(newest.values())
    assert found_keys(store, [*newest, b"a key that is not there"]) == {**newest, b"a key that is not there": None}
    entries = segment.scan(store, KEY, RECORD_SCHEMAS, CompactionColumns())
    assert (entries[0].base_offset, entries[-1].end_offset) == (BASE, end)
    assert all(one.end_offset == other.base_offset for one, other in itertools.pairwise(entries))
    assert sum(each.rows for each in entries) == len(rows)
    counts = KeyedCounts(len(rows), sum(value is None for _, _, value in rows))
    assert (done.base_offset, done.end_offset, done.chunks, done.log_bytes) == (
        BASE,
        end,
        len(entries),
        store.size(KEY),
    )
    assert done.keyed == segment.keyed_counts(store, KEY) == counts
    assert (done.min_timestamp, done.max_timestamp) == (0, max(each.max_timestamp for each in entries))
    assert list(Index(store, f"{KEY}.index").read_all()) == entries
    transfer.copy_segment(store, other, KEY, done)
    assert other.read(KEY) == store.read(KEY)
    other.delete(f"{KEY}.index")
    segment.rebuild_index(other, KEY)
    assert other.read(f"{KEY}.index") == store.read(f"{KEY}.index"), "it is made from the file alone"


def test_an_offset_without_a_row_is_found_where_it_is_covered(store):
    entries = segment.scan(store, KEY)
    assert [(each.base_offset, each.end_offset) for each in entries] == [
        (1000, 1007),
        (1007, 1016),
        (1016, 1025),
        (1025, 1100),
    ]
    for _ in range(2):
        for start, end, groups in ((1007, 1008, [1]), (1006, 1017, [0, 1, 2]), (1099, 1100, [3])):
            assert entries_between(store, KEY, start, end) == [entries[each] for each in groups]
        store.delete(f"{KEY}.index")


def test_a_row_is_found_with_its_version_by_reads_of_the_lists_alone():
    store = CountingStore()
    write(store, ROWS, SUPERSEDED, keys=versioned(key_index_of(ROWS), VERSIONS))
    footer = parquet_footer.read(store, KEY)
    wanted = keys_of([pa.array([row[1] for row in ROWS[3:5]], pa.binary())], np.array([END, END]), np.zeros(2, int))
    wanted = key_index.newest(wanted)
    store.forget()
    found = keyed_segment.find_keys(store, KEY, wanted, footer)
    assert (store.reads, store.received) == (2, 24 * len(ROWS))
    assert found.versions.tolist() == [VERSIONS[each] for each in found.offsets.tolist()]
    assert sorted(found.offsets.tolist()) == [ROWS[3][0], ROWS[4][0]]
    store.forget()
    assert keyed_segment.read_superseded(store, KEY, footer).tolist() == list(SUPERSEDED)
    assert (store.reads, store.received) == (1, 8 * len(SUPERSEDED))
    write(store := MemoryStore(), ROWS)
    with pytest.raises(CorruptObject, match="no versions, where the topic has compaction"):
        keyed_segment.find_keys(store, KEY, wanted)


# Damage


def everything(store):
    """Return all that readers find in the file."""
    lists = keyed_segment.read_superseded(store, KEY), *keyed_segment.read_keys(store, KEY)
    return rows_in(store), [each.tolist() for each in lists]


def refused(store, done):
    """Check that a scan and a copy refuse the file, and readers refuse it or find what was written."""
    with pytest.raises(CorruptObject, match=f"the url/{KEY}"):
        segment.scan(store, KEY)
    with pytest.raises(CorruptObject):
        transfer.copy_segment(store, MemoryStore(), KEY, done)
    with contextlib.suppress(CorruptObject):
        found, lists = everything(store)
        keys = versioned(key_index_of(ROWS), VERSIONS)
        assert (found, lists) == (ROWS, [list(SUPERSEDED), *(each.tolist() for each in keys)])


@pytest.fixture
def written(store):
    """The segment as the journal describes it, which a copy must have the counts of."""
    entries = segment.scan(store, KEY)
    counts = segment.keyed_counts(store, KEY)
    times = min(each.min_timestamp for each in entries), max(each.max_timestamp for each in entries)
    found = segment.SegmentFile(NAME, BASE, END, len(entries), store.size(KEY), *times, counts)
    for wrong in (None, KeyedCounts(11, 3), KeyedCounts(12, 2)):
        with pytest.raises(CorruptObject, match="where the journal says"):
            transfer.copy_segment(store, MemoryStore(), KEY, msgspec.structs.replace(found, keyed=wrong))
    return found


@pytest.mark.parametrize("every", [9, deep(1)])
def test_every_flipped_byte_and_every_cut_is_an_error_of_a_scan_and_of_a_copy(store, written, every):
    data = store.read(KEY)
    dice = random.Random(1)
    for position in range(0, len(data), every):
        damaged = bytearray(data)
        damaged[position] ^= 1 << dice.randrange(8)
        for each in (bytes(damaged), data[:position]):
            store.put(KEY, each)
            refused(store, written)
    position = parquet_footer.read(whole(data), KEY).tail.position
    for changed in (data + b"x", data + data[-8:], data[: position - 16] + data[position:], data[:position] + data):
        store.put(KEY, changed)
        refused(store, written)


def whole(data):
    made = MemoryStore()
    made.put(KEY, data)
    return made


# Right checksums, wrong contents


def forged(change=lambda sections: sections, groups=lambda groups: groups):
    """Return a writer whose footer says other lists or row groups than are there, with right checksums."""

    class Forger(KeyedSegmentWriter):
        def _close(self, keyed):
            self._groups = groups(self._groups)
            return super()._close(change(keyed))

    return Forger


def replaced(**changes):
    return lambda found: msgspec.structs.replace(found, **changes)


def of_list(name, **changes):
    return lambda found: replaced(**{name: replaced(**changes)(getattr(found, name))})(found)


def in_first(**changes):
    return lambda groups: [msgspec.structs.replace(groups[0], **changes), *groups[1:]]


@pytest.mark.parametrize(
    "change",
    [
        of_list("superseded", count=2**32 - 1),
        of_list("superseded", count=2**32 - 1, length=8 * (2**32 - 1)),
        of_list("superseded", length=-8),
        of_list("superseded", count=0, length=0),
        of_list("superseded", crc=1),
        of_list("keys", count=13),
        of_list("keys", length=2**62),
        of_list("keys", crc=1),
        of_list("versions", count=11, length=88),
        of_list("versions", length=2**62),
        of_list("versions", crc=1),
        replaced(versions=None),
        replaced(tombstones=13),
        replaced(tombstones=-1),
        # Together as long as they are, but the border is elsewhere.
        lambda found: msgspec.structs.replace(found, superseded=Section(1, 8, 0), keys=Section(13, 208, 0)),
    ],
)
def test_lists_that_do_not_fit_the_file_are_refused_and_take_no_memory(change):
    store = CountingStore()
    write(store, ROWS, SUPERSEDED, keys=versioned(key_index_of(ROWS), VERSIONS), of=forged(change))
    for read in (lambda: segment.scan(store, KEY), lambda: everything(store)):
        store.forget()
        with pytest.raises(CorruptObject):
            read()
        assert store.received <= 4 * store.size(KEY)


@pytest.mark.parametrize(
    "groups", [in_first(span=2), in_first(span=2**32 - 1), in_first(rows=4), lambda groups: groups * 2]
)
def test_row_groups_whose_offsets_do_not_fit_are_refused(monkeypatch, groups):
    monkeypatch.setattr(index, "encode", lambda *_: b"no index has such entries")
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 250)
    store = MemoryStore("the url")
    write(store, ROWS, of=forged(groups=groups), cuts=range(0, len(ROWS), 3))
    with pytest.raises(CorruptObject):
        parquet_footer.read(store, KEY)


@pytest.mark.parametrize(("version", "error"), [(1, CorruptObject), (3, NewerFormat)])
def test_the_version_tells_whether_a_segment_is_keyed_or_newer(monkeypatch, version, error):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr(parquet_footer, "_KEYED_VERSION", version)
        write(store, ROWS)
    for read in (keyed_segment.read_superseded, keyed_segment.read_keys, segment.scan):
        with pytest.raises(error):
            read(store, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(parquet_footer, "_VERSION", 2)
        parquet_rows.write(store, parquet_rows.simple(3), key=KEY.replace("abc", "def"))
    with pytest.raises(CorruptObject, match="version 2, which does not fit its lists"):
        segment.scan(store, KEY.replace("abc", "def"))


@pytest.mark.parametrize("offsets", [[1005, 1004], [1005, 1005], [999, 1000], [1000, 1100]], ids=str)
def test_rows_with_impossible_offsets_are_refused(offsets):
    store = MemoryStore("the url")

    class Forger(KeyedSegmentWriter):
        def _offsets_of(self, rows):
            return rows.column("offset"), 100

        def close_at(self, *_):
            self._flush()
            self.end_offset = END
            empty = Section(0, 0, google_crc32c.value(b""))
            return self._close(parquet_footer.KeyedSections(0, empty, empty))

    rows = [(offset, b"k%d" % at, b"v") for at, offset in enumerate(offsets)]
    write(store, rows, of=Forger)
    segment.scan(store, KEY)  # the bytes are right
    with pytest.raises(CorruptObject, match="wrong offset"):
        segment.scan(store, KEY, RECORD_SCHEMAS)
    with pytest.raises(CorruptObject, match="wrong offset"):
        rows_in(store)


def test_superseded_rows_out_of_order_or_several_of_the_segment_itself_are_refused():
    for superseded in ((3, 3), (8, 3), (-1, 3), (BASE, BASE + 1), (3, END)):
        write(store := MemoryStore("the url"), ROWS, superseded)
        for read in (keyed_segment.read_superseded, segment.scan):
            with pytest.raises(CorruptObject, match="list of superseded rows"):
                read(store, KEY)
    write(store := MemoryStore(), ROWS[-1:], last := (3, ROWS[-1][0]))
    assert tuple(keyed_segment.read_superseded(store, KEY)) == last, "the last row is there only so that there is one"


def with_keys(change):
    """Return a segment whose key index is a changed one, with right checksums."""
    store = MemoryStore("the url")
    hashes, checks, offsets, _ = key_index_of(ROWS)
    write(store, ROWS, keys=Keys(*change(hashes, checks, offsets)))
    return store


def swapped(hashes, checks, offsets):
    hashes[[0, 1]] = hashes[[1, 0]]
    return hashes, checks, offsets


def of_others(hashes, checks, offsets):
    offsets[3] = END
    return hashes, checks, offsets


def doubled(hashes, checks, offsets):
    hashes[1], checks[1] = hashes[0], checks[0]
    return hashes, checks, offsets


@pytest.mark.parametrize("change", [swapped, doubled, of_others])
def test_key_indexes_out_of_order_or_with_offsets_of_others_are_refused(change):
    store = with_keys(change)
    for read in (keyed_segment.read_keys, segment.scan):
        with pytest.raises(CorruptObject, match="key index is out of order, or names rows of others"):
            read(store, KEY)
    if change is not doubled:
        with pytest.raises(CorruptObject, match=r"out of order|rows of others"):
            keyed_segment.find_keys(store, KEY, key_index_of(ROWS))


def other_row(hashes, checks, offsets):
    offsets[5] += 1
    return hashes, checks, offsets


def lacking(hashes, checks, offsets):
    return hashes[1:], checks[1:], offsets[1:]


@pytest.mark.parametrize("change", [other_row, lacking])
def test_a_key_index_that_is_not_that_of_the_rows_is_refused_where_the_column_is_known(change):
    store = with_keys(change)
    assert segment.scan(store, KEY, RECORD_SCHEMAS)
    with pytest.raises(CorruptObject, match="key index is not that of its rows"):
        segment.scan(store, KEY, RECORD_SCHEMAS, CompactionColumns())


@pytest.mark.parametrize("stored", [{1001: 5, 1002: 6}, {1001: 5, 1002: 7}, None])
def test_versions_in_an_index_that_are_not_those_of_the_rows_are_refused_where_the_column_is_known(stored):
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int32()), pa.field("timestamp", TIMESTAMP, nullable=False)])
    rows = pa.record_batch([[1, 2], [5, 7], pa.array([0, 0], TIMESTAMP)], schema=schema)
    offsets = np.array([1001, 1002])
    keys = key_index.newest(keys_of([rows.column("id")], offsets))
    store = MemoryStore("the url")
    writer = KeyedSegmentWriter(store, FOLDER, NAME, BASE, EPOCHS, ParquetRows(2, (schema,), "lz4"))
    writer.append_at(rows, offsets, 0, 3)
    writer.close_at(END, np.zeros(0, np.int64), keys if stored is None else versioned(keys, stored), 0)
    segment.scan(store, KEY, (schema,), CompactionColumns(("id",), "", "", ""))
    columns = CompactionColumns(("id",), "seq", "", "")
    if stored is not None and stored[1002] == 7:
        segment.scan(store, KEY, (schema,), columns)
    else:
        with pytest.raises(CorruptObject, match="key index is not that of its rows"):
            segment.scan(store, KEY, (schema,), columns)
