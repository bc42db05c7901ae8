"""A manifest: the events of a journal entry, if they are too large to be stored in the entry.

    <journal>/manifests/<born>-<nonce>     envelope b"PLMF", version 2, body: msgpack array of events

Its place is that key; version 1 had none. It is created before the entry, which has its name and hash. Without that
entry it has no meaning.
"""

from __future__ import annotations

from pyspark_log_storage.objects.envelope import seal, unseal

_MAGIC = b"PLMF"
_VERSION = 2


def key(journal: str, name: str) -> str:
    """Return the key of a manifest. `journal` is the journal's folder, and ends with "/"."""
    return f"{journal}manifests/{name}"


def encode(events: bytes, place: str = "") -> bytes:
    """Return the manifest's stored bytes."""
    return seal(_MAGIC, _VERSION, events, place)


def decode(data: bytes, name: str, place: str | None = None) -> bytes:
    """Return the encoded events in `data`. Raises `CorruptObject`, also for another place, and `NewerFormat`."""
    return unseal(_MAGIC, _VERSION, data, name, place)
