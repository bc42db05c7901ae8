"""A process that reads changed chunks, segments and indexes whose checksums are right: a value or a `LogError`.

hostile_worker.py <kind> <seed> <count>     prints the number of each change before it is tried, then how many were
                                            refused and the most memory that was used, in MiB
"""

import os
import random
import sys
from pathlib import Path

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.schema import RECORD_SCHEMAS
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.parquet import keyed_segment, parquet_footer, row_group
from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import recovery, segment
from tests.support.memory_store import MemoryStore
from tests.support.segment_reads import entries_between, entry_reaching
from tests.support.storage import hostile_chunks as hostile

KEY = "t/0/00000000000000001000-00000000000000000007-abc"
WORDS = (
    0,
    1,
    7,
    8,
    63,
    64,
    65,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def changed(dice, data, start, end):
    """Return bytes with some of those from `start` to `end` changed: bits, words, or pieces from elsewhere."""
    data = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        place = dice.randrange(start, end)
        what = dice.randrange(4)
        if what == 0:
            data[place] ^= 1 << dice.randrange(8)
        elif what == 1:
            size = dice.choice((1, 2, 4, 8))
            place -= place % size
            place = min(place, end - size)
            data[place : place + size] = (dice.choice(WORDS) % 2 ** (8 * size)).to_bytes(size, "little")
        elif what == 2:
            size = dice.choice((1, 2, 4, 8))
            place -= place % size
            place = min(place, end - size)
            old = int.from_bytes(data[place : place + size], "little")
            data[place : place + size] = ((old + dice.randint(-9, 9)) % 2 ** (8 * size)).to_bytes(size, "little")
        else:
            source, size = dice.randrange(start, end - 16), dice.choice((4, 8, 16))
            place = min(place, end - size)
            data[place : place + size] = data[source : source + size]
    return bytes(data)


def use(batch):
    """Touch every value, as readers do: times as numbers, for Python knows none behind the year 9999."""
    batch = batch.set_column(2, "timestamp", batch.column("timestamp").cast(pa.int64()))
    batch.to_pylist()
    assert batch.nbytes >= 0
    pa.concat_batches([batch, batch]).slice(1).to_pylist()


def read_chunk(data):
    buffer = pa.py_buffer(data)
    use(chunk.decode(buffer, chunk.verify(buffer, "the chunk"), RECORD_SCHEMAS, "the chunk"))


def read_segment(log, index_bytes):
    store = MemoryStore()
    store.put(f"{KEY}.log", log)
    store.put(f"{KEY}.index", index_bytes)
    errors = []
    for read in (
        lambda: segment.scan(store, KEY, RECORD_SCHEMAS),
        lambda: entries_between(store, KEY, 0, 2**63),
        lambda: entry_reaching(store, KEY, 5),
        lambda: recovery.recover(store, "t/0/", 0, dry_run=True),
        lambda: list(index.Index(store, f"{KEY}.index").read_all()),
        lambda: read_by_index(store),
    ):
        try:
            read()
        except LogError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def read_by_index(store):
    for entry in segment.indexed_between(store, KEY, 0, 2**63):
        use(append_file.read_chunk(store, f"{KEY}.log", entry.place(), RECORD_SCHEMAS, "the chunk"))


def written():
    store = MemoryStore()
    writer = segment.SegmentWriter(store, "t/0/", KEY.rsplit("/", 1)[1], 1000, ((3, 1000), (5, 1004)))
    for data in hostile.good_chunks() * 15:
        writer.append(chunk.verify(pa.py_buffer(data), "x"), data)
    writer.close()
    return store.read(f"{KEY}.log"), store.read(f"{KEY}.index")


def read_row_group(dice, data):
    """Read a row group with changed bytes as if its checksum was right."""
    footer = parquet_footer.decode(data[1], data[2], "the segment")
    entry = dice.choice(footer.entries)
    start = entry.position
    rows = changed(dice, data[0], start, start + entry.length)[start : start + entry.length]
    use(row_group._decode(footer, entry.place(), rows, RECORD_SCHEMAS, "the row group"))


def read_footer(dice, data):
    """Read a segment whose footer is changed, and its checksum right again."""
    rows, tail, position = data
    begin = len(tail) - int.from_bytes(tail[-8:-4], "little") - 8
    tail = changed(dice, tail, begin if dice.randrange(8) else 0, len(tail))
    if parquet_footer._MARK.search(tail):
        start, end = list(parquet_footer._MARK.finditer(tail))[-1].span(2)
        tail = parquet_footer.sealed(tail[:start] + b"0" * 8 + tail[end:])
    footer = parquet_footer.decode(tail, position, "the segment")
    for entry in footer.entries:
        bytes_ = rows[entry.position : entry.position + entry.length]
        use(row_group._decode(footer, entry.place(), bytes_, RECORD_SCHEMAS, "the row group"))


def written_as_parquet():
    """Return a Parquet segment, its tail, and where that begins."""
    key, store = f"{KEY}.parquet", MemoryStore()
    kind = ParquetRows(0, RECORD_SCHEMAS, "lz4")
    writer = ParquetSegmentWriter(store, "t/0/", key.rsplit("/", 1)[1], 1000, ((3, 1000), (5, 1004)), kind)
    for number, data in enumerate(map(pa.py_buffer, hostile.good_chunks())):
        header = chunk.verify(data, "x")
        writer.append(chunk.decode(data, header, RECORD_SCHEMAS, "x"), header.schema_id, number)
    writer.close()
    position = parquet_footer.read(store, key).tail.position
    return store.read(key), store.read(key)[position:], position


def written_as_keyed():
    """Return the store with a keyed segment, which lacks every third row and supersedes four of others."""
    store = MemoryStore()
    kind = ParquetRows(0, RECORD_SCHEMAS, "lz4")
    writer = KeyedSegmentWriter(store, "t/0/", f"{KEY.rsplit('/', 1)[1]}.parquet", 1000, ((3, 1000),), kind)
    reached, keys = 1000, []
    for number, data in enumerate(map(pa.py_buffer, hostile.good_chunks() * 30)):
        header = chunk.verify(data, "x")
        rows = chunk.decode(data, header, RECORD_SCHEMAS, "x")
        chosen = np.arange(reached, reached + header.rows)
        own = pa.array([b"%d" % each for each in chosen], pa.binary())
        rows = rows.set_column(rows.schema.get_field_index("key"), "key", own)
        kept = chosen % 3 != 0
        reached += header.rows
        if kept.any():
            rows = rows.filter(pa.array(kept))
            writer.append_at(rows, chosen[kept], header.schema_id, number)
            keys.append(key_index.keys_of([rows.column("key")], chosen[kept], chosen[kept] % 7))
    keys = key_index.newest(key_index.joined(keys, is_versioned=True))
    writer.close_at(reached + 5, np.array([2, 3, 900, 999]), keys, 0)
    return store, keys


def read_lists(dice, keyed):
    """Read the lists of a keyed segment with changed bytes, as if their checksums were right."""
    store, keys = keyed
    key = f"{KEY}.parquet"
    footer = parquet_footer.read(store, key)
    found, start = footer.segment, footer.segment.rows_end
    data = store.read(key)
    data = changed(dice, data, start, footer.tail.position)
    sections, at = {}, start
    for name in ("superseded", "keys", "versions"):
        section = getattr(found.keyed, name)
        crc = google_crc32c.value(data[at : at + section.length])
        sections[name] = msgspec.structs.replace(section, crc=crc)
        at += section.length
    found = msgspec.structs.replace(found, keyed=msgspec.structs.replace(found.keyed, **sections))
    footer = msgspec.structs.replace(footer, segment=found)
    other = MemoryStore()
    other.put(key, data)
    errors = []
    for read in (
        lambda: keyed_segment.read_superseded(other, key, footer),
        lambda: keyed_segment.read_keys(other, key, footer).offsets,
        lambda: keyed_segment.find_keys(other, key, keys, footer).offsets,
    ):
        try:
            offsets = read()
            assert not len(offsets) or 0 <= offsets.min() <= offsets.max() < footer.entries[-1].end_offset
        except LogError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def read_keyed_index(dice, keyed):
    """Read the index of a keyed segment with a changed block, whose checksum is right again."""
    store, _ = keyed
    other = MemoryStore()
    other.put(f"{KEY}.parquet.index", change_index(dice, store.read(f"{KEY}.parquet.index")))
    found = list(index.Index(other, f"{KEY}.parquet.index").read_all())
    assert sum(each.rows for each in found) <= found[-1].end_offset - found[0].base_offset < 2**32


def change_index(dice, data):
    """Return an index with its header or a block changed, each checksum right again."""
    begin = dice.choice((0, 64, 64 + index.BLOCK_BYTES))
    data = changed(dice, data, begin + (8 if begin == 0 else 0), begin + (36 if begin == 0 else index.BLOCK_BYTES - 4))
    header = data[:60] + hostile.crc(data[:60])
    parts = [header]
    header_crc = int.from_bytes(header[60:], "little")
    for number, place in enumerate(range(64, len(data), index.BLOCK_BYTES)):
        body = data[place : place + index.BLOCK_BYTES - 4]
        parts += [body, index._block_crc(header_crc, number, body).to_bytes(4, "little")]
    return b"".join(parts)


def change_chunk(dice, log):
    """Return a .log in which the header of one chunk is changed."""
    place = 64
    for _ in range(dice.randrange(3)):
        place += int.from_bytes(log[place + 8 : place + 12], "little")
    end = place + int.from_bytes(log[place + 8 : place + 12], "little")
    return log[:place] + hostile.sealed(changed(dice, log[place:end], 6, 60)) + log[end:]


def main(kind, seed, count):
    good, (log, index_bytes), parquet = hostile.good_chunks(), written(), written_as_parquet()
    keyed = written_as_keyed()
    rows = keyed[0].read(f"{KEY}.parquet")
    position = parquet_footer.read(keyed[0], f"{KEY}.parquet").tail.position
    keyed_parts = rows, rows[position:], position
    refused = 0
    for number in range(count):
        os.write(1, b"%d\n" % number)
        dice = random.Random(f"{kind} {seed} {number}")
        try:
            if kind in {"chunk", "body"}:
                data = dice.choice(good)
                metadata = 72 + int.from_bytes(data[68:72], "little")
                # The metadata says where all else lies.
                data = changed(dice, data, *((64, metadata) if kind == "chunk" else (metadata, len(data))))
                if dice.randrange(4) == 0:
                    data = changed(dice, data, 8, 60)
                read_chunk(hostile.sealed(data))
            elif kind == "rows":
                read_segment(change_chunk(dice, log), index_bytes)
            elif kind == "row group":
                read_row_group(dice, parquet)
            elif kind == "footer":
                read_footer(dice, parquet)
            elif kind == "keyed lists":
                read_lists(dice, keyed)
            elif kind == "keyed footer":
                read_footer(dice, keyed_parts)
            elif kind == "keyed index":
                read_keyed_index(dice, keyed)
            elif kind == "segment":
                header = changed(dice, log[:60], 8, 60)
                read_segment(header + hostile.crc(header) + log[64:], index_bytes)
            else:
                read_segment(log, change_index(dice, index_bytes))
        except LogError:
            refused += 1
    # Not getrusage: that begins with what the parent used.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(refused, int(status["VmHWM"].split()[0]) // 1024)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
