"""Keyed segments: some rows of a range at their offsets, and two lists; never wrong rows, and no part unchecked."""

import io
import itertools
import random

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.columns.key_index import Keys, keys_of
from pyspark_log_storage.columns.schema import RECORD, RECORD_SCHEMAS, RECORD_WITH_HEADERS, TIMESTAMP
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files import index
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX, Index
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.parquet import keyed_segment, parquet_footer, parquet_segment
from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter
from pyspark_log_storage.parquet.parquet_footer import Section
from pyspark_log_storage.parquet.parquet_segment import ParquetRows
from pyspark_log_storage.segments import recovery, segment, transfer
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore
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


@pytest.fixture(params=["without versions", "with versions"])
def store(request, monkeypatch):
    """A keyed segment of offsets 1000 to 1099 with 12 rows in four row groups, which supersedes three rows."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 250)
    made = CountingStore()
    keys = key_index_of(ROWS)
    if request.param == "with versions":
        keys = versioned(keys, VERSIONS)
    write(made, ROWS, SUPERSEDED, keys=keys, cuts=range(0, len(ROWS), 3))
    assert [each.rows for each in segment.scan(made, KEY)] == [3, 3, 3, 3]
    return made


# What is written is found


keyed_rows = st.dictionaries(
    st.integers(BASE, END - 1),
    st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=40)),
    min_size=1,
    max_size=20,
).map(lambda found: [(offset, *found[offset]) for offset in sorted(found)])
lists = st.sets(st.integers(0, BASE - 1), max_size=20).map(sorted)


@given(keyed_rows, lists, st.integers(1, 400), st.sets(st.integers(1, 19)), st.integers(0, 2**31))
def test_rows_and_lists_are_read_back_and_the_index_covers_the_range(rows, superseded, group_bytes, cuts, beyond):
    store = MemoryStore()
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


@given(keyed_rows, lists)
def test_a_copy_and_an_index_made_from_the_file_alone_are_what_was_written(rows, superseded):
    store, other = MemoryStore(), MemoryStore()
    done = write(store, rows, superseded)
    transfer.copy_segment(store, other, KEY, done)
    for name in (KEY, f"{KEY}.index"):
        assert other.read(name) == store.read(name)
    assert segment.index_is_right(store, KEY, segment.scan(store, KEY))
    other.delete(f"{KEY}.index")
    segment.rebuild_index(other, KEY)
    assert other.read(f"{KEY}.index") == store.read(f"{KEY}.index")


def test_an_entry_covers_offsets_from_the_end_of_the_one_before_to_its_last_row(store):
    covered = [(each.base_offset, each.end_offset) for each in segment.scan(store, KEY)]
    assert covered == [(1000, 1007), (1007, 1016), (1016, 1025), (1025, 1100)]


@pytest.mark.parametrize(("start", "end", "groups"), [(1007, 1008, [1]), (1006, 1017, [0, 1, 2]), (1099, 1100, [3])])
def test_an_offset_without_a_row_is_found_where_it_is_covered(store, start, end, groups):
    entries = segment.scan(store, KEY)
    for indexed in (True, False):
        if not indexed:
            store.delete(f"{KEY}.index")
        assert entries_between(store, KEY, start, end) == [entries[each] for each in groups]


def test_a_list_is_read_without_the_rows(store):
    footer = parquet_footer.read(store, KEY)
    store.forget()
    keyed_segment.read_superseded(store, KEY, footer)
    assert (store.reads, store.received) == (1, 8 * len(SUPERSEDED))
    store.forget()
    wanted = key_index_of(ROWS)
    keyed_segment.find_keys(store, KEY, wanted, footer)
    assert (store.reads, store.received) == (1, 16 * len(ROWS))
    if footer.segment.keyed.versions is not None:
        store.forget()
        keyed_segment.find_keys(store, KEY, versioned(wanted, VERSIONS), footer)
        assert (store.reads, store.received) == (2, 24 * len(ROWS))


def test_the_last_row_may_be_superseded_itself():
    """It is there only because a segment has rows."""
    store = MemoryStore()
    write(store, ROWS[-1:], (3, ROWS[-1][0]))
    assert keyed_segment.read_superseded(store, KEY).tolist() == [3, ROWS[-1][0]]


def test_a_footer_without_versions_has_no_trace_of_them():
    store = MemoryStore()
    write(store, ROWS, SUPERSEDED)
    stored = msgspec.json.decode(parquet_footer.read(store, KEY).parquet.metadata[b"pyspark-log.segment"])
    assert stored["version"] == 2
    assert [len(stored["keyed"]), *map(len, stored["keyed"][1:])] == [3, 3, 3]


def test_a_row_is_found_with_its_version():
    store = MemoryStore()
    write(store, ROWS, keys=versioned(key_index_of(ROWS), VERSIONS))
    wanted = keys_of([pa.array([row[1] for row in ROWS[3:5]], pa.binary())], np.array([END, END]), np.zeros(2, int))
    wanted = key_index.newest(wanted)
    found = keyed_segment.find_keys(store, KEY, wanted)
    assert found.versions.tolist() == [VERSIONS[each] for each in found.offsets.tolist()]
    assert sorted(found.offsets.tolist()) == [ROWS[3][0], ROWS[4][0]]
    store = MemoryStore()
    write(store, ROWS)
    with pytest.raises(CorruptObject, match="no versions, where the topic has compaction"):
        keyed_segment.find_keys(store, KEY, wanted)


def test_other_engines_read_ordinary_parquet_with_the_offsets_of_the_rows(store):
    table = pq.read_table(io.BytesIO(store.read(KEY)))
    assert table.column("offset").to_pylist() == [offset for offset, _, _ in ROWS]
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    file = pq.ParquetFile(io.BytesIO(store.read(KEY)))
    statistics = file.metadata.row_group(1).column(1).statistics
    assert (statistics.min, statistics.max) == (1009, 1015)


def test_rows_with_and_without_headers_are_read_with_the_columns_of_the_newest_of_their_group():
    store = MemoryStore()
    writer = KeyedSegmentWriter(store, FOLDER, NAME, BASE, EPOCHS, ParquetRows(2, RECORD_SCHEMAS, "zstd"))
    headers = [{"key": "k", "value": b"v"}]
    writer.append_at(batch_of([(b"a", b"1")]), np.array([1001]), 0, 3)
    with_headers = parquet_rows.batch_of([(b"b", 1, headers)], RECORD_WITH_HEADERS)
    writer.append_at(with_headers, np.array([1004]), 1, 5)
    writer.close_at(END, np.zeros(0, np.int64), key_index_of([(1001, b"a", b"1"), (1004, b"b", b"b")]), 0)
    footer = parquet_footer.read(store, KEY)
    assert [(each.schema_id, each.leader_epoch) for each in footer.entries] == [(0, 3), (1, 5)]
    batch, offsets = keyed_segment.read_rows(store, KEY, footer, footer.entries[1], RECORD_SCHEMAS)
    assert (offsets.tolist(), batch.column("headers").to_pylist()) == ([1004], [headers])


def test_files_of_other_segments_have_no_trace_of_keyed_ones():
    store = MemoryStore()
    parquet_rows.write(store, parquet_rows.simple(3))
    stored = msgspec.json.decode(parquet_footer.read(store, KEY).parquet.metadata[b"pyspark-log.segment"])
    assert stored["version"] == 1
    assert set(stored) == {"version", "base_offset", "leader_epochs", "row_groups", "of"}
    assert {len(each) for each in stored["row_groups"]} == {7}
    assert segment.keyed_counts(store, KEY) is None
    for read in (keyed_segment.read_superseded, keyed_segment.read_keys):
        with pytest.raises(CorruptObject, match="it has every row of its range"):
            read(store, KEY)


def test_a_writer_whose_rows_are_discarded_leaves_nothing():
    store = MemoryStore()
    writer = KeyedSegmentWriter(store, FOLDER, NAME, BASE, EPOCHS, ParquetRows(2, RECORD_SCHEMAS, "lz4"))
    writer.append_at(batch_of([(b"a", b"1")]), np.array([1001]), 0, 3)
    writer.discard()
    assert list(store.list("")) == []


# Damage


def everything(store):
    """Return all that readers find in the file."""
    lists = keyed_segment.read_superseded(store, KEY), *keyed_segment.read_keys(store, KEY)
    return rows_in(store), [each.tolist() for each in lists if each is not None]


def refused(store, done):
    """Check that a scan and a copy refuse the file, and readers refuse it or find what was written."""
    with pytest.raises(CorruptObject, match=f"the url/{KEY}"):
        segment.scan(store, KEY)
    with pytest.raises(CorruptObject):
        transfer.copy_segment(store, MemoryStore(), KEY, done)
    try:
        found, (superseded, *index) = everything(store)
        assert (found, superseded) == (ROWS, list(SUPERSEDED))
        assert index[:3] == [each.tolist() for each in key_index_of(ROWS)[:3]]
        assert index[3:] in ([], [[VERSIONS[offset] for offset in index[2]]])
    except CorruptObject:
        return


@pytest.fixture
def written(store):
    """The segment as the journal describes it."""
    entries = segment.scan(store, KEY)
    counts = segment.keyed_counts(store, KEY)
    times = min(each.min_timestamp for each in entries), max(each.max_timestamp for each in entries)
    return segment.SegmentFile(NAME, BASE, END, len(entries), store.size(KEY), *times, counts)


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_every_flipped_byte_is_an_error_of_a_scan_and_of_a_copy(store, written):
    data = store.read(KEY)
    dice = random.Random(1)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << dice.randrange(8)
        store.put(KEY, bytes(damaged))
        refused(store, written)


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_every_cut_and_every_addition_is_an_error_of_a_scan_and_of_a_copy(store, written):
    data = store.read(KEY)
    for length in range(len(data)):
        store.put(KEY, data[:length])
        refused(store, written)
    position = parquet_footer.read(whole(data), KEY).tail.position
    for changed in (data + b"x", data + data[-8:], data[: position - 16] + data[position:], data[:position] + data):
        store.put(KEY, changed)
        refused(store, written)


def whole(data):
    made = MemoryStore()
    made.put(KEY, data)
    return made


@pytest.mark.parametrize("which", ["superseded", "keys"])
def test_a_segment_with_a_damaged_list_is_not_recovered(store, which):
    footer = parquet_footer.read(store, KEY)
    data = bytearray(store.read(KEY))
    data[footer.segment.rows_end + (0 if which == "superseded" else 8 * len(SUPERSEDED))] ^= 1
    store.put(KEY, bytes(data))
    found = recovery.read_segment(store, KEY)
    assert not found.is_indexed
    assert "its checksum does not match" in found.why
    assert recovery.recover(store, FOLDER, BASE, schemas=None).end_offset == BASE


def test_a_whole_segment_is_recovered_up_to_its_end(store):
    store.delete(f"{KEY}.index")
    found = recovery.recover(store, FOLDER, BASE)
    assert (found.end_offset, found.rebuilt, found.damage) == (END, (KEY,), None)


@pytest.mark.parametrize(
    "counts", [None, KeyedCounts(11, 3), KeyedCounts(12, 2)], ids=["dense", "other rows", "other tombstones"]
)
def test_a_copy_must_have_the_counts_of_the_journal(store, written, counts):
    with pytest.raises(CorruptObject, match="where the journal says"):
        transfer.copy_segment(store, MemoryStore(), KEY, msgspec.structs.replace(written, keyed=counts))


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
    return lambda found: msgspec.structs.replace(
        found, **{name: msgspec.structs.replace(getattr(found, name), **changes)}
    )


def in_first(**changes):
    return lambda groups: [msgspec.structs.replace(groups[0], **changes), *groups[1:]]


@pytest.mark.parametrize(
    "change",
    [
        of_list("superseded", count=2**32 - 1),
        of_list("superseded", count=2**32 - 1, length=8 * (2**32 - 1)),
        of_list("superseded", length=2**62),
        of_list("superseded", length=-8),
        of_list("superseded", count=0),
        of_list("superseded", count=0, length=0),
        of_list("superseded", crc=1),
        of_list("keys", count=11),
        of_list("keys", count=13),
        of_list("keys", count=2**32 - 1, length=16 * (2**32 - 1)),
        of_list("keys", length=2**62),
        of_list("keys", count=0, length=0),
        of_list("keys", crc=1),
        of_list("versions", count=11),
        of_list("versions", count=11, length=88),
        of_list("versions", count=2**32 - 1, length=8 * (2**32 - 1)),
        of_list("versions", length=2**62),
        of_list("versions", length=-8),
        of_list("versions", crc=1),
        replaced(versions=None),
        replaced(tombstones=13),
        replaced(tombstones=-1),
        # Together as long as they are, but the border is elsewhere.
        lambda found: msgspec.structs.replace(found, superseded=Section(5, 40, 0), keys=Section(11, 176, 0)),
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
    "groups",
    [
        in_first(span=0),
        in_first(span=2),
        in_first(span=2**32 - 1),
        in_first(rows=4),
        in_first(span=SEGMENT_ROWS_MAX + 1),
        in_first(rows=2**31, span=2**31),
        lambda groups: groups * 2,
    ],
    ids=["no span", "fewer than rows", "beyond", "more rows", "too many", "huge", "twice"],
)
def test_row_groups_whose_offsets_do_not_fit_are_refused(monkeypatch, groups):
    monkeypatch.setattr(index, "encode", lambda *_: b"no index has such entries")
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 250)
    store = MemoryStore("the url")
    write(store, ROWS, of=forged(groups=groups), cuts=range(0, len(ROWS), 3))
    with pytest.raises(CorruptObject):
        parquet_footer.read(store, KEY)


def test_more_keys_than_rows_are_refused():
    store = MemoryStore()
    write(store, ROWS, keys=key_index_of([*ROWS, (END - 1, b"another key", b"")]))
    with pytest.raises(CorruptObject, match="do not fit their entries, or its rows"):
        keyed_segment.read_keys(store, KEY)


def test_fewer_versions_than_keys_are_refused():
    store = MemoryStore()
    write(store, ROWS, keys=key_index_of(ROWS)._replace(versions=np.zeros(11, np.int64)))
    with pytest.raises(CorruptObject, match="do not fit their entries, or its rows"):
        keyed_segment.read_keys(store, KEY)


def test_bytes_that_are_in_no_list_are_refused():
    class Forger(KeyedSegmentWriter):
        def _close(self, keyed):
            self._sink.write(b"bytes without a checksum")
            return super()._close(keyed)

    store = MemoryStore()
    write(store, ROWS, SUPERSEDED, of=Forger)
    with pytest.raises(CorruptObject, match="row groups of 12 rows up to byte"):
        segment.scan(store, KEY)


@pytest.mark.parametrize("spans", [(3, 7, 5), (3, 0, 6), (0, 7, 6), (0, 0, 9)], ids=str)
def test_an_index_whose_entries_cover_what_they_cannot_is_refused(store, spans):
    """Entries of a keyed segment cover as many offsets as they have rows, or more; those of others say nothing."""
    entries, offset = [], BASE
    for entry, span in zip(segment.scan(store, KEY), spans, strict=False):
        entries.append(msgspec.structs.replace(entry, base_offset=offset, rows=6, span=span))
        offset = entries[-1].end_offset
    end = entries[-1].position + entries[-1].length
    store.put(f"{KEY}.index", index.encode(BASE, end + 1, entries, index.Tail(end, 0)))
    with pytest.raises(CorruptObject, match="not contiguous, or are outside"):
        list(Index(store, f"{KEY}.index").read_all())


def test_a_newer_version_is_distinguished_from_damage(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr(parquet_footer, "_KEYED_VERSION", 3)
        write(store, ROWS)
    for read in (keyed_segment.read_superseded, keyed_segment.read_keys, segment.scan):
        with pytest.raises(NewerFormat):
            read(store, KEY)


def test_the_version_tells_whether_a_segment_is_keyed(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr(parquet_footer, "_KEYED_VERSION", 1)
        write(store, ROWS)
    with pytest.raises(CorruptObject, match="version 1, which does not fit its lists"):
        segment.scan(store, KEY)
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


@pytest.mark.parametrize("superseded", [(3, 3), (8, 3), (-1, 3), (BASE, BASE + 1), (3, END), (3, 2**62)], ids=str)
def test_superseded_rows_out_of_order_or_several_of_the_segment_itself_are_refused(superseded):
    store = MemoryStore("the url")
    write(store, ROWS, superseded)
    for read in (keyed_segment.read_superseded, segment.scan):
        with pytest.raises(CorruptObject, match="list of superseded rows"):
            read(store, KEY)


def with_keys(change):
    """Return a segment whose key index is a changed one, with right checksums."""
    store = MemoryStore("the url")
    hashes, checks, offsets, _ = key_index_of(ROWS)
    write(store, ROWS, keys=Keys(*change(hashes, checks, offsets)))
    return store


def swapped(hashes, checks, offsets):
    hashes[[0, 1]] = hashes[[1, 0]]
    return hashes, checks, offsets


def doubled(hashes, checks, offsets):
    hashes[1], checks[1] = hashes[0], checks[0]
    return hashes, checks, offsets


def checks_swapped(hashes, checks, offsets):
    hashes[1] = hashes[0]
    checks[:2] = 7, 6
    return hashes, checks, offsets


def of_others(hashes, checks, offsets):
    offsets[3] = END
    return hashes, checks, offsets


@pytest.mark.parametrize("change", [swapped, doubled, checks_swapped, of_others])
def test_key_indexes_out_of_order_or_with_offsets_of_others_are_refused(change):
    store = with_keys(change)
    for read in (keyed_segment.read_keys, segment.scan):
        with pytest.raises(CorruptObject, match="key index is out of order, or names rows of others"):
            read(store, KEY)


def test_keys_are_not_looked_up_in_an_index_out_of_order_or_of_other_rows():
    wanted = key_index_of(ROWS)
    for change, why in ((swapped, "out of order"), (of_others, "rows of others")):
        with pytest.raises(CorruptObject, match=why):
            keyed_segment.find_keys(with_keys(change), KEY, wanted)


def other_hash(hashes, checks, offsets):
    hashes[0] -= np.uint64(1)
    return hashes, checks, offsets


def other_check(hashes, checks, offsets):
    checks[5] ^= np.uint32(1)
    return hashes, checks, offsets


def other_row(hashes, checks, offsets):
    offsets[5] += 1
    return hashes, checks, offsets


def lacking(hashes, checks, offsets):
    return hashes[1:], checks[1:], offsets[1:]


@pytest.mark.parametrize("change", [other_hash, other_check, other_row, lacking])
def test_a_key_index_that_is_not_that_of_the_rows_is_refused_where_the_column_is_known(change):
    store = with_keys(change)
    assert segment.scan(store, KEY, RECORD_SCHEMAS)
    with pytest.raises(CorruptObject, match="key index is not that of its rows"):
        segment.scan(store, KEY, RECORD_SCHEMAS, CompactionColumns())


def test_an_older_row_of_a_key_is_not_the_one_in_the_index():
    rows = [(1001, b"a", b"1"), (1002, b"a", b"2")]
    store = MemoryStore()
    write(store, rows)
    segment.scan(store, KEY, RECORD_SCHEMAS, CompactionColumns())
    older = keys_of([pa.array([b"a"], pa.binary())], np.array([1001]))
    store = MemoryStore()
    write(store, rows, keys=older)
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
