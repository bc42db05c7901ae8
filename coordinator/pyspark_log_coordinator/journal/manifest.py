"""A manifest: the events of a journal entry, if they are too large to be stored in the entry.

    <journal>/manifests/<born>-<nonce>     envelope b"PLMF", version 1, body: msgpack array of events

It is created before the entry, which has its name and hash. Without that entry it has no meaning.
"""

from __future__ import annotations

from pyspark_log_storage.envelope import seal, unseal

_MAGIC = b"PLMF"
_VERSION = 1


def key(journal: str, name: str) -> str:
    """Return the key of a manifest. `journal` is the journal's folder, and ends with "/"."""
    return f"{journal}manifests/{name}"


def encode(events: bytes) -> bytes:
    """Return the manifest's stored bytes."""
    return seal(_MAGIC, _VERSION, events)


def decode(data: bytes, name: str) -> bytes:
    """Return the encoded events in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return unseal(_MAGIC, _VERSION, data, name)
