"""A manifest: the events of a journal entry that are too large to lie in it.

    <journal>/manifests/<born>-<nonce>     envelope b"PLMF", version 1, body: msgpack array of events

Created before the entry that names it with its hash; without such an entry it means nothing.
"""

from __future__ import annotations

from pyspark_log_storage.envelope import seal, unseal

_MAGIC = b"PLMF"
_VERSION = 1


def key(journal: str, name: str) -> str:
    """Return where a manifest lies. `journal` is the journal's folder, and ends with "/"."""
    return f"{journal}manifests/{name}"


def encode(events: bytes) -> bytes:
    """Return the manifest's stored bytes."""
    return seal(_MAGIC, _VERSION, events)


def decode(data: bytes, name: str) -> bytes:
    """Return the encoded events in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return unseal(_MAGIC, _VERSION, data, name)
