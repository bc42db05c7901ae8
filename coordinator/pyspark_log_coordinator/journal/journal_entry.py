"""A journal entry: the events of one decision.

    <journal>/entries/<number, 20 digits>     envelope b"PLJE", version 3, body: msgpack array
        nonce       32 hex digits, unique to the attempt that wrote the entry
        time_ms     the log's clock (`log_clock`), for people
        previous    hash of the entry before (16 bytes), zeros for entry 1
        events      msgpack array of events

Its place is that key, also if the entry is the value of a register.

Entries are created once and never replaced. The hash of an entry is the 16-byte BLAKE2b of its stored bytes, so each
entry confirms all entries before it.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from pyspark_log_storage import decoding
from pyspark_log_storage.layout import entries, number
from pyspark_log_storage.objects.envelope import seal, unseal

HASH_BYTES = 16
NO_HASH = bytes(HASH_BYTES)

_MAGIC = b"PLJE"
_VERSION = 3
_NAME = re.compile(r"([0-9]{20})(\.[0-9]+(\.claim)?)?")


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A journal entry. `events` is still encoded, because only the journal's machine knows their types."""

    nonce: str
    time_ms: int
    previous: bytes
    events: msgspec.Raw


_decoder = msgspec.msgpack.Decoder(Entry)


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def place(journal: str, n: int) -> str:
    """Return the place of entry `n`. `journal` is the journal's folder, and ends with "/"."""
    return f"{entries(journal, 1)}{number(n)}"


def slot_of(name: str) -> int | None:
    """Return the number of the entry to which a file of this name belongs, or None for a foreign file.

    That is the entry itself on one store, and a register (`registers`) on several.
    """
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def encode(entry: Entry, place: str = "") -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(entry), place)


def decode(data: bytes, name: str, place: str | None = None) -> Entry:
    """Return the entry in `data`, which must have been written for `place`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name, place)
    return decoding.decode(_decoder.decode, body, name)
