"""A snapshot: the folded state of a journal at one entry.

    <journal>/snapshots/<10**20 - 1 - number>     envelope b"PLSS", version 3, body: msgpack array
        number      the last entry in the state
        hash        the hash of that entry
        state       the machine's state, msgpack

Its place is that key. The key makes the newest snapshot list first. Snapshots are created once;
processes that write the snapshot of the same entry write the same state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import decoding
from pyspark_log_storage.layout import newest_first, number_of_newest_first
from pyspark_log_storage.objects.envelope import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_storage.stores.store import Store

_MAGIC = b"PLSS"
_VERSION = 3


class Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state after entry `number`, still encoded, and that entry's hash."""

    number: int
    hash: bytes
    state: msgspec.Raw


_decoder = msgspec.msgpack.Decoder(Snapshot)


def key(journal: str, number: int) -> str:
    """Return the key of the snapshot of an entry. `journal` is the journal's folder, and ends with "/"."""
    return f"{journal}snapshots/{newest_first(number)}"


def numbers(store: Store, journal: str) -> Iterator[int]:
    """Yield the numbers of the snapshots on a store, newest first."""
    begin = folder(journal)
    for each in store.list(begin):
        if (number := number_of(each.removeprefix(begin))) is not None:
            yield number


def folder(journal: str) -> str:
    return f"{journal}snapshots/"


def number_of(name: str) -> int | None:
    """Return the number of the entry of the snapshot of this name, or None for a foreign file."""
    try:
        return number_of_newest_first(name)
    except ValueError:
        return None


def encode(snapshot: Snapshot, place: str = "") -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(snapshot), place)


def decode(data: bytes, name: str, place: str | None = None) -> Snapshot:
    """Return the snapshot in `data`, written for `place`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name, place)
    return decoding.decode(_decoder.decode, body, name)
