"""Recovery of a partition's folder from its files alone."""

import datetime as dt

import pyarrow as pa
import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.columns.schema import RECORD, RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.files import chunk
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment
from pyspark_log_storage.segments.recovery import recover
from tests.support.counting_store import CountingStore

FOLDER = "topics/t/1/0/"
WHEN = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)


class Folder(CountingStore):
    """A store, and the format of the segments that `write` puts there."""

    parquet = False


@pytest.fixture(params=["log", "parquet"])
def store(request):
    made = Folder()
    made.parquet = request.param == "parquet"
    return made


def write(store, base, *chunks, nonce="a"):
    """Write a segment of chunks of so many rows; return its key."""
    name = layout.segment_name(base, 7, nonce, parquet=store.parquet)
    of_parquet = ParquetRows(0, RECORD_SCHEMAS, "none")
    if store.parquet:
        writer = ParquetSegmentWriter(store, FOLDER, name, base, ((0, 0),), of_parquet)
    else:
        writer = segment.SegmentWriter(store, FOLDER, name, base, ((0, 0),))
    for epoch, rows in enumerate(chunks):
        batch = pa.RecordBatch.from_pylist([{"key": None, "value": b"v", "timestamp": WHEN}] * rows, RECORD)
        if store.parquet:
            writer.append(batch, RECORD_ID, epoch)  # each epoch has a row group of its own
        else:
            writer.append(*chunk.encode(batch, RECORD_ID, "none"))
    writer.close()
    return FOLDER + name


def flip_row(store, key, number=-1):
    """Damage one of the chunks of a segment."""
    flip(store, layout.segment_file(key), segment.scan(store, key)[number].position + 70)


def flip(store, key, position=-1):
    data = bytearray(store.read(key))
    data[position] ^= 1
    store.put(key, bytes(data))


def cut(store, key, chunks):
    """Cut a .log behind so many chunks."""
    entries = segment.scan(store, key)
    end = entries[chunks - 1].position + entries[chunks - 1].length if chunks else entries[0].position
    store.put(layout.segment_file(key), store.read(layout.segment_file(key))[:end])


def test_a_folder_in_order_is_good_up_to_its_end(store):
    assert recover(store, FOLDER, 42).end_offset == 42, "it is empty"
    keys = [write(store, 0, 10, 10), write(store, 20, 10), write(store, 30, 5)]
    for name in ("leader-epoch-checkpoint", "notes.log", ".nfs1"):
        store.put(FOLDER + name, b"mine")
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.checked, found.rebuilt, found.damage) == (35, tuple(keys), (), None)


@pytest.mark.parametrize(("point", "first"), [(0, 0), (19, 0), (20, 1), (30, 2), (35, 3)])
def test_only_the_segment_of_the_recovery_point_and_later_ones_are_read(store, point, first):
    keys = [write(store, 0, 10, 10), write(store, 20, 10), write(store, 30, 5)]
    for key in keys[:first]:
        flip_row(store, key)
    store.forget()
    found = recover(store, FOLDER, point)
    assert (found.end_offset, found.checked, found.damage) == (35, tuple(keys[first:]), None)
    if first == len(keys):
        assert store.received < 3 * 64 + 1


def test_the_good_rows_end_at_the_first_bad_chunk(store):
    bad = write(store, 0, 10, 10, 10)
    write(store, 30, 10)
    flip_row(store, bad, 1)
    store.delete(f"{bad}.index")
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage.file, found.rebuilt) == (10, bad, ())
    assert "checksum" in found.damage.why
    assert f"{bad}.index" not in store.list(""), "no index is made of a damaged log"
    flip(store, layout.segment_file(bad), -1 if store.parquet else 10)
    assert recover(store, FOLDER, 0).end_offset == 0, "a damaged header leaves nothing"


def test_rows_that_only_a_damaged_segment_had_are_reported_although_another_has_some_of_its_rows(store):
    bad = write(store, 0, 10, 10, 10, nonce="merged")
    write(store, 0, 20, nonce="small")
    flip_row(store, bad, 1)
    found = recover(store, FOLDER, 0)
    assert found.end_offset == 20
    assert found.damage.file == bad


@pytest.mark.parametrize(("chunks", "end"), [(0, 10), (1, 20), (2, 30)])
def test_a_log_that_was_cut_between_chunks_is_found_by_its_index(store, chunks, end):
    write(store, 0, 10)
    bad = write(store, 10, 10, 10, 1)
    cut(store, bad, chunks)
    found = recover(store, FOLDER, 0)
    if store.parquet:  # without its footer nothing of it can be read
        end = 10
    assert (found.end_offset, found.damage.file, found.rebuilt) == (end, bad, ())


def test_the_rows_of_a_segment_under_the_name_of_another_are_not_good(store):
    write(store, 0, 10)
    key, renamed = write(store, 500, 5), FOLDER + layout.segment_name(10, 7, "a", parquet=store.parquet)
    for of in (layout.segment_file, "{}.index".format):
        store.put(of(renamed), store.read(of(key)))
        store.delete(of(key))
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage.file) == (10, renamed)
    assert "it is another segment" in found.damage.why


def test_a_missing_segment_ends_the_good_rows(store):
    gone = write(store, 10, 10)
    write(store, 0, 10)
    later = write(store, 20, 10)
    store.delete(layout.segment_file(gone))
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage.file) == (10, later)
    assert "begins at 20" in found.damage.why


@pytest.mark.parametrize("how", ["missing", "flipped", "longer"])
def test_lost_indexes_are_rebuilt(store, how):
    key = write(store, 0, 10, 10)
    whole = store.read(f"{key}.index")
    if how == "missing":
        store.delete(f"{key}.index")
    elif how == "longer":
        store.put(f"{key}.index", whole + b"\0")
    else:
        flip(store, f"{key}.index")
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.rebuilt) == (20, (key,))
    assert store.read(f"{key}.index") == whole


def test_a_dry_run_writes_nothing(store):
    key = write(store, 0, 10)
    store.delete(f"{key}.index")
    assert recover(store, FOLDER, 0, dry_run=True).rebuilt == (key,)
    assert list(store.list("")) == [layout.segment_file(key)]


def test_what_was_merged_stands_in_for_a_damaged_merge(store):
    write(store, 0, 10)
    write(store, 10, 10)
    merged = write(store, 0, 10, 10, nonce="merged")
    flip_row(store, merged)
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage) == (20, None)


def test_a_merge_stands_in_for_what_was_removed_in_part(store):
    first = write(store, 0, 10)
    write(store, 10, 10)
    write(store, 0, 10, 10, nonce="merged")
    write(store, 20, 10)
    store.delete(layout.segment_file(first))
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage) == (30, None)


def test_a_segment_within_a_merge_does_not_end_the_good_rows(store):
    write(store, 0, 10, 10, 10, nonce="merged")
    write(store, 10, 10)
    write(store, 30, 10)
    found = recover(store, FOLDER, 0)
    assert (found.end_offset, found.damage) == (40, None)


def test_a_merge_that_holds_the_recovery_point_is_found_behind_its_lower_base(store):
    write(store, 10, 10)
    merged = write(store, 0, 10, 10, 10, nonce="merged")
    found = recover(store, FOLDER, 25)
    assert (found.end_offset, found.checked) == (30, (merged,))
