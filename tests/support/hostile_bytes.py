"""Bytes that every decoder must survive: changed ones, ones that claim to be huge, and whole ones that are wrong.

    python -m tests.support.hostile_bytes SEED COUNT

gives each decoder all that claims too much, and COUNT changed inputs, in a process that may take `MEBIBYTES_MAX` more
of address space than it has when it begins. Prints a line for each input that ended in another error than the log's, or
late, and at last how many were tried and how many MiB more were in use at most.
"""

import itertools
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import msgspec
import pyarrow as pa

from pyspark_log_storage.columns.schema import RECORD_SCHEMAS
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from pyspark_log_storage.parquet import keyed_segment, parquet_footer, row_group
from pyspark_log_storage.segments import segment
from tests.support import mutations
from tests.support.decoders import APPENDED, ENVELOPED, EVERY, INDEX, KEYED, LOG, PARQUET, SEGMENT
from tests.support.memory_store import MemoryStore
from tests.support.segment_reads import entries_between, entry_reaching
from tests.support.storage import hostile_chunks as hostile

Inputs = Iterator[tuple[str, Callable[[], object]]]
"""What is tried, and the call that reads it."""

MEBIBYTES_MAX = 256
SECONDS_MAX = 10
DEEP = 100_000
HUGE = 2**32 - 1
WORDS = (0, 1, 8, 64, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def changed(dice, data, start=0, end=None):
    """Return bytes with some of those from `start` to `end` changed: bits, words, or pieces from elsewhere."""
    data, end = bytearray(data), len(data) if end is None else end
    if start == end:
        return b"\0"
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        size = min(dice.choice((1, 2, 4, 8)), end - start)
        place, source = (dice.randrange(start, end - size + 1) for _ in range(2))
        place = max(start, place - place % size) if dice.randrange(4) else place
        old = int.from_bytes(data[place : place + size], "little")
        new = dice.choice(
            (
                old ^ 1 << dice.randrange(8 * size),
                old + dice.randint(-9, 9),
                dice.choice(WORDS),
                int.from_bytes(data[source : source + size], "little"),
            )
        )
        data[place : place + size] = (new % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(data)


# Whole, and wrong: each checksum is right again


def use(batch):
    """Touch every value, as readers do: times as numbers, for Python knows none behind the year 9999."""
    batch = batch.set_column(2, "timestamp", batch.column("timestamp").cast(pa.int64()))
    batch.to_pylist()
    assert batch.nbytes >= 0
    pa.concat_batches([batch, batch]).slice(1).to_pylist()


def read_chunk(dice):
    """Read a chunk whose header, metadata or columns are changed."""
    data = dice.choice(hostile.good_chunks())
    metadata = 72 + int.from_bytes(data[68:72], "little")  # it says where all else lies
    data = changed(dice, data, *dice.choice(((64, metadata), (metadata, len(data)))))
    buffer = pa.py_buffer(hostile.sealed(changed(dice, data, 8, 60) if dice.randrange(4) == 0 else data))
    use(chunk.decode(buffer, chunk.verify(buffer, "the chunk"), RECORD_SCHEMAS, "the chunk"))


def read_segment(log, index_bytes):
    store = MemoryStore()
    store.put(f"{SEGMENT}.log", log)
    store.put(f"{SEGMENT}.index", index_bytes)
    segment.scan(store, SEGMENT, RECORD_SCHEMAS)
    entries_between(store, SEGMENT, 0, 2**63)
    entry_reaching(store, SEGMENT, 5)
    for entry in index.Index(store, f"{SEGMENT}.index").read_all():
        use(append_file.read_chunk(store, f"{SEGMENT}.log", entry.place(), RECORD_SCHEMAS, "the chunk"))


def read_header(dice):
    header = changed(dice, LOG[:60], 8, 60)
    read_segment(header + hostile.crc(header) + LOG[64:], INDEX)


def read_log(dice):
    """Read a segment in which the header of its first chunk is changed."""
    end = 64 + int.from_bytes(LOG[72:76], "little")
    read_segment(LOG[:64] + hostile.sealed(changed(dice, LOG[64:end], 6, 60)) + LOG[end:], INDEX)


def changed_index(dice, data):
    """Return an index with its header or its block changed."""
    begin, end = dice.choice(((8, 36), (64, 64 + index.BLOCK_BYTES - 4)))
    data = changed(dice, data, begin, end)
    header = data[:60] + hostile.crc(data[:60])
    body = data[64 : 64 + index.BLOCK_BYTES - 4]
    block_crc = index._block_crc(int.from_bytes(header[60:], "little"), 0, body)
    return header + body + block_crc.to_bytes(4, "little")


def tail_of(data):
    """Return the tail of a Parquet segment, and where it begins."""
    store = MemoryStore()
    store.put(f"{SEGMENT}.parquet", data)
    position = parquet_footer.read(store, f"{SEGMENT}.parquet").tail.position
    return data[position:], position


def read_row_group(dice):
    footer = parquet_footer.decode(*tail_of(PARQUET), "the segment")
    entry = dice.choice(footer.entries)
    rows = changed(dice, PARQUET[entry.position : entry.position + entry.length])
    use(row_group._decode(footer, entry.place(), rows, RECORD_SCHEMAS, "the row group"))


def read_footer(dice, data):
    tail, position = tail_of(data)
    begin = len(tail) - int.from_bytes(tail[-8:-4], "little") - 8
    tail = changed(dice, tail, begin if dice.randrange(8) else 0)
    if marks := list(parquet_footer._MARK.finditer(tail)):
        start, end = marks[-1].span(2)
        tail = parquet_footer.sealed(tail[:start] + b"0" * 8 + tail[end:])
    footer = parquet_footer.decode(tail, position, "the segment")
    for entry in footer.entries:
        rows = data[entry.position : entry.position + entry.length]
        use(row_group._decode(footer, entry.place(), rows, RECORD_SCHEMAS, "the row group"))


def read_lists(dice):
    """Read the lists of a keyed segment."""
    footer = parquet_footer.decode(*tail_of(KEYED), "the segment")
    at = footer.segment.rows_end
    data, sections = changed(dice, KEYED, at, footer.tail.position), {}
    for name in ("superseded", "keys", "versions"):
        section = getattr(footer.segment.keyed, name)
        crc = google_crc32c.value(data[at : at + section.length])
        sections[name] = msgspec.structs.replace(section, crc=crc)
        at += section.length
    keyed = msgspec.structs.replace(footer.segment.keyed, **sections)
    footer = msgspec.structs.replace(footer, segment=msgspec.structs.replace(footer.segment, keyed=keyed))
    store = MemoryStore()
    store.put(f"{SEGMENT}.parquet", data)
    for offsets in (
        keyed_segment.read_superseded(store, f"{SEGMENT}.parquet", footer),
        keyed_segment.read_keys(store, f"{SEGMENT}.parquet", footer).offsets,
    ):
        assert not len(offsets) or 0 <= offsets.min() <= offsets.max() < footer.entries[-1].end_offset


WHOLE: dict[str, Callable[[random.Random], object]] = {
    "chunk": read_chunk,
    "header of a segment": read_header,
    "chunk of a segment": read_log,
    "index of a segment": lambda dice: read_segment(LOG, changed_index(dice, INDEX)),
    "row group": read_row_group,
    "footer": lambda dice: read_footer(dice, PARQUET),
    "footer of a keyed segment": lambda dice: read_footer(dice, KEYED),
    "lists of a keyed segment": read_lists,
}
"""What checksums protect in files of rows, by which a forger or a faulty machine would have right ones."""


def whole_but_wrong(kind: str, seed: int, count: int) -> Inputs:
    for number in range(count):
        yield f"{seed} {number}", lambda number=number: WHOLE[kind](random.Random(f"{kind} {seed} {number}"))


# Changed


def cut(dice, data):
    """Return bytes of which some are missing, doubled, or inserted."""
    at, size = dice.randrange(len(data) + 1), dice.choice((1, 2, 16, 64))
    if dice.randrange(2):
        return data[:at] + (data[at + size :] if dice.randrange(2) else b"")
    return data[:at] + dice.choice((data[at : at + size], dice.randbytes(size))) + data[at:]


def resealed(dice, data):
    """Return an enveloped object with another body, and with the checksum of that."""
    version, place = (int.from_bytes(data[at : at + 2], "little") for at in (4, 6))
    begin = HEADER_BYTES + place
    body = data[begin:]
    coder = msgspec.json if body[:1] in {b"{", b"["} else msgspec.msgpack
    try:
        body = bytes(coder.encode(mutations.changed(coder.decode(body), dice)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
        body = changed(dice, cut(dice, body))  # it is another kind of body, or became one that cannot be written
    return seal(data[:4], version, body, data[HEADER_BYTES:begin].decode())


def changed_inputs(kind: str, seed: int, count: int) -> Inputs:
    """Yield what one decoder is given that is random, or nearly right."""
    valid, decode = EVERY[kind]
    changes = [changed, cut, lambda dice, data: changed(dice, cut(dice, data)), lambda dice, _: dice.randbytes(300)]
    for number in range(count):
        dice = random.Random(f"{kind} {seed} {number}")
        change = resealed if kind in ENVELOPED and number % 2 else changes[number // 2 % len(changes)]
        data = change(dice, valid)
        yield f"{seed} {number}", lambda data=data: decode(data)


# Too much


def claims() -> Iterator[tuple[str, bytes]]:
    """Yield short inputs that claim to be long or deep, and long ones that are tedious."""
    for opening in (b"\x91", b"\x81\xa1a", b"\x92\x91", b"\xc7\xff\x01", b"[", b'{"a":', b'{"version":1,"topics":'):
        yield f"{opening!r} again and again", opening * DEEP
    for depth in (900, DEEP):
        yield f"an unknown field of depth {depth}", b'{"unknown":' + b"[" * depth + b"]" * depth + b"}"
    for kind in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        yield f"msgpack {kind!r} of {HUGE}", kind + HUGE.to_bytes(4, "big") + b"\x01" * 50
        yield f"arrays of msgpack {kind!r}", b"\x95" + (kind + HUGE.to_bytes(4, "big")) * 5
    for each in (b"\0", b"\xff", b"9", b",", b"\n"):
        yield f"many {each!r}", each * 2**20
    yield "a long number in JSON", b'{"version":' + b"9" * 2**20 + b"}"
    yield "a number with a large exponent", b'{"version":1e999999999,"t":{"0":1e999999999}}'
    yield "a long text", b'"' + b"a" * 2**22 + b'",0,0\n'
    yield "many keys", json.dumps({str(number): {} for number in range(50_000)}).encode()
    yield "a checkpoint of many lines", b"0\n" + str(HUGE).encode() + b"\n" + b"t 0 0\n" * 1000
    yield "half a character", b'seed=\xff{"key":"","value":{"":[2]},"headers":""'


def too_much(kind: str, every: int = 1) -> Inputs:
    """Yield what is made to fill the memory or the stack of a process that has one decoder."""
    valid, decode = EVERY[kind]
    found = list(claims())
    if kind in ENVELOPED:
        version = int.from_bytes(valid[4:6], "little")
        found += [(f"{what}, sealed", seal(valid[:4], version, data)) for what, data in claims()]
        found += [
            (f"{what}, begun", seal(valid[:4], version, valid[HEADER_BYTES:][:20] + data)) for what, data in claims()
        ]
        found.append(("a body of 4 GiB", valid[:8] + HUGE.to_bytes(4, "little") + valid[12:]))
    if kind in {"append file", "segment", "index"}:
        for compression, rows in itertools.product(("lz4", "zstd"), (1, hostile.MANY)):
            found.append((f"a {compression} bomb of {rows} rows", hostile.bomb(200, rows, compression)))
        for place, word in itertools.product(range(0, 64, 4), (HUGE, 2**31, 2**31 - 64)):
            data = APPENDED[:place] + word.to_bytes(4, "little") + APPENDED[place + 4 :]
            found.append((f"{word} at byte {place} of a chunk", hostile.sealed(data)))
    for place in range(0, min(len(valid), 200), 4):
        found.append((f"huge at byte {place}", valid[:place] + HUGE.to_bytes(4, "little") + valid[place + 4 :]))
    for what, data in found[::every]:
        yield what, lambda data=data: decode(data)


# The attack


def attack(inputs: Inputs) -> tuple[list[str], int, int]:
    """Try inputs. Return those that did not end in a value or a `LogError` in time, how many did in each."""
    wrong, values, refused = [], 0, 0
    for what, read in inputs:
        begun = time.process_time()
        try:
            read()
            values += 1
        except LogError:
            refused += 1
        except BaseException as error:  # noqa: BLE001 -- that is what is looked for
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:100]}")
        if time.process_time() - begun > SECONDS_MAX:
            wrong.append(f"{what}: it took {time.process_time() - begun:.0f} s")
    return wrong, values, refused


def mebibytes(name: str) -> int:
    """Return how much memory the process has: VmSize, VmRSS or, at most, VmHWM."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0]) // 1024


def main(seed: int, count: int) -> None:
    for valid, decode in EVERY.values():
        decode(valid)
    before, limit = mebibytes("VmHWM"), (mebibytes("VmSize") + MEBIBYTES_MAX) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tried = 0
    attacks = {kind: itertools.chain(too_much(kind), changed_inputs(kind, seed, count)) for kind in EVERY}
    for kind, inputs in {**attacks, **{kind: whole_but_wrong(kind, seed, 5 * count) for kind in WHOLE}}.items():
        print(f"-- {kind}", file=sys.stderr, flush=True)  # if the process dies
        wrong, *ended = attack(inputs)
        tried += len(wrong) + sum(ended)
        print("".join(f"{kind}: {each}\n" for each in wrong), end="")
    print(tried, mebibytes("VmHWM") - before)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
