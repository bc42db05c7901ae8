"""A process that gives every decoder what is made to fill its memory or its stack.

    python -m tests.support.decoder_worker

It may take `MEBIBYTES_MAX` more of address space than it has when it begins. Prints a line for each error that is none
of the log's, and at last how many inputs were tried and how many MiB more were in use at most.
"""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark_log_storage.errors import LogError
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from tests.support.decoders import APPENDED, ENVELOPED, EVERY
from tests.support.storage import hostile_chunks

MEBIBYTES_MAX = 256
SECONDS_MAX = 10
DEEP = 100_000
HUGE = 2**32 - 1


def bombs() -> Iterator[tuple[str, bytes]]:
    """Yield short inputs that claim to be long or deep, and long ones that are tedious."""
    for what, opening in (
        ("array", b"\x91"),
        ("map", b"\x81\xa1a"),
        ("two arrays", b"\x92\x91"),
        ("ext", b"\xc7\xff\x01"),
    ):
        yield f"deep msgpack of {what}", opening * DEEP
    for what, opening in (("array", b"["), ("object", b'{"a":'), ("topics", b'{"version":1,"topics":')):
        yield f"deep JSON of {what}", opening * DEEP
    yield "deep JSON in an unknown field", b'{"unknown":' + b"[" * DEEP + b"]" * DEEP + b"}"
    yield "JSON that is less deep than the stack", b'{"unknown":' + b"[" * 900 + b"]" * 900 + b"}"
    for kind in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        yield f"msgpack {kind!r} of {HUGE}", kind + HUGE.to_bytes(4, "big") + b"\x01" * 50
        yield f"arrays of msgpack {kind!r}", b"\x95" + (kind + HUGE.to_bytes(4, "big")) * 5
    yield "zeros", bytes(2**20)
    yield "ones", b"\xff" * 2**20
    yield "a long number", b"9" * 2**20
    yield "a long number in JSON", b'{"version":' + b"9" * 2**20 + b"}"
    yield "a number with a large exponent", b'{"version":1e999999999,"t":{"0":1e999999999}}'
    yield "a long text", b'"' + b"a" * 2**22 + b'"'
    yield "many fields of a line", b"," * 2**20 + b"\n"
    yield "a long quoted field", b'"' + b"a" * 2**20 + b'",0,0\n'
    yield "many lines", b"\n" * 2**20
    yield "many keys", json.dumps({str(number): {} for number in range(50_000)}).encode()
    yield "a checkpoint of many lines", b"0\n" + str(HUGE).encode() + b"\n" + b"t 0 0\n" * 1000


def of_rows() -> Iterator[tuple[str, bytes]]:
    """Yield files of rows that claim to be larger than they are, or become larger."""
    for compression in ("lz4", "zstd"):
        for rows in (1, hostile_chunks.MANY):
            yield f"a {compression} bomb of {rows} rows", hostile_chunks.bomb(200, rows, compression)
    for place in range(0, 64, 4):
        for word in (HUGE, 2**31, 2**31 - 64):
            changed = APPENDED[:place] + word.to_bytes(4, "little") + APPENDED[place + 4 :]
            yield f"{word} at byte {place} of a chunk", changed
            yield f"{word} at byte {place} of a chunk, with its checksum", hostile_chunks.sealed(changed)


def inputs(kind: str, valid: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what one decoder is given."""
    for what, data in bombs():
        yield what, data
        if kind in ENVELOPED:
            version = int.from_bytes(valid[4:6], "little")
            yield f"{what}, sealed", seal(valid[:4], version, data)
            yield f"{what} after a sealed beginning", seal(valid[:4], version, valid[HEADER_BYTES:][:20] + data)
    if kind in ENVELOPED:
        yield "a body of 4 GiB", valid[:8] + HUGE.to_bytes(4, "little") + valid[12:]
    for place in range(0, min(len(valid), 200), 4):
        yield f"a huge number at byte {place}", valid[:place] + HUGE.to_bytes(4, "little") + valid[place + 4 :]
    if kind in {"append file", "segment", "index"}:
        yield from of_rows()


def used() -> tuple[int, int]:
    """Return how much address space the process has, and how much memory it had at most, in MiB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmSize"].split()[0]) // 1024, int(status["VmHWM"].split()[0]) // 1024


def main() -> None:
    for valid, decode in EVERY.values():
        decode(valid)
    space, before = used()
    limit = (space + MEBIBYTES_MAX) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tried = 0
    for kind, (valid, decode) in EVERY.items():
        for what, data in inputs(kind, valid):
            tried += 1
            begun = time.process_time()
            try:
                decode(data)
            except LogError:
                pass
            except BaseException as error:  # noqa: BLE001 -- that is what is looked for
                print(f"{kind}: {what}: {type(error).__name__}: {str(error)[:100]}")
            if time.process_time() - begun > SECONDS_MAX:
                print(f"{kind}: {what}: it took {time.process_time() - begun:.0f} s")
    print(tried, used()[1] - before)


if __name__ == "__main__":
    main()
