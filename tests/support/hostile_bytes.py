"""Bytes that every decoder must survive: changed ones, and ones that claim to be huge.

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

import msgspec

from pyspark_log_storage.errors import LogError
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from tests.support import mutations
from tests.support.decoders import APPENDED, ENVELOPED, EVERY
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
    for kind, inputs in attacks.items():
        print(f"-- {kind}", file=sys.stderr, flush=True)  # if the process dies
        wrong, *ended = attack(inputs)
        tried += len(wrong) + sum(ended)
        print("".join(f"{kind}: {each}\n" for each in wrong), end="")
    print(tried, mebibytes("VmHWM") - before)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
