"""A snapshot: the folded state of a journal at one entry.

    <journal>/snapshots/<10**20 - 1 - number>     envelope b"PLSS", version 1, body: msgpack array
        number      the entry that is the last one folded in
        hashes      hashes of the newest entries up to that one, oldest first, at most 4,096
        state       the machine's state, msgpack

The key makes the newest list first. Snapshots are created once; two processes that write the one of the same
entry write the same state.
"""

from __future__ import annotations

import msgspec

from pyspark_log_storage.envelope import seal, unseal
from pyspark_log_storage.errors import CorruptObject, NewerFormat

HASHES_MAX = 4096

_MAGIC = b"PLSS"
_VERSION = 1


class Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state after entry `number`, still encoded, and the hashes that a late writer may ask for."""

    number: int
    hashes: list[bytes]
    state: msgspec.Raw


def encode(snapshot: Snapshot) -> bytes:
    """Return the snapshot's stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.msgpack.encode(snapshot))


def decode(data: bytes, name: str) -> Snapshot:
    """Return the snapshot in `data`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.ValidationError as error:
        raise NewerFormat(name, str(error)) from error
    except msgspec.DecodeError as error:
        raise CorruptObject(name, str(error)) from error
