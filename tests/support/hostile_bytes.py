"""Bytes that every decoder must survive: changed ones, of which objects of a journal get a right checksum again."""

import random
from collections.abc import Callable, Iterator

import msgspec

from pyspark_log_storage.errors import LogError
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from tests.support import mutations
from tests.support.decoders import ENVELOPED, EVERY

Inputs = Iterator[tuple[str, Callable[[], object]]]
"""What is tried, and the call that reads it."""

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


def attack(inputs: Inputs) -> tuple[list[str], int]:
    """Try inputs. Return those that did not end in a value or a `LogError`, and how many did in an error."""
    wrong, refused = [], 0
    for what, read in inputs:
        try:
            read()
        except LogError:
            refused += 1
        except BaseException as error:  # noqa: BLE001 -- that is what is looked for
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:100]}")
    return wrong, refused
