"""The envelope of every stored object that is not a chunk: its kind, its version and a checksum.

offset  bytes  field
0       4      magic: the kind of object, for example b"PLJE"
4       2      version, little-endian
6       2      length of the place in bytes (n), 0 if there is none
8       4      CRC-32C of the fields above, the place and the body
12      n      place: the key that the object was written for, UTF-8
12 + n  ...    body

An object with a place is damaged under any other key: a write that went astray, a restored backup or a tool that
copies put it there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c

from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

_MAGIC_BYTES = 4
_HEADER = struct.Struct("<4sHH")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size


def seal(magic: bytes, version: int, body: bytes, place: str = "") -> bytes:
    """Return `body` in an envelope, which is damaged under any other key than `place` if that is given."""
    assert len(magic) == _MAGIC_BYTES
    key = place.encode()
    header = _HEADER.pack(magic, version, len(key))
    crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(header), key), body)
    return b"".join((header, _CRC.pack(crc), key, body))


def is_whole(data: bytes, key: str | None = None) -> bool:
    """Return whether `data` is an undamaged envelope, of any kind and version; with a `key` one that belongs there."""
    if not _is_right(data):
        return False
    _, _, place = _HEADER.unpack_from(data)
    return place == 0 or key is None or data[HEADER_BYTES:][:place] == key.encode()


def _is_right(data: bytes) -> bool:
    """Return whether the checksum of an envelope is that of its bytes."""
    if len(data) < HEADER_BYTES:
        return False
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    found: int = google_crc32c.extend(google_crc32c.value(data[: _HEADER.size]), data[HEADER_BYTES:])
    return found == int(crc)


def read_if_there(store: Store, key: str) -> bytes | None:
    """Return the bytes of an object, damaged or not, or None if it is missing. Raises `StoreError`.

    An answer of an object store may be damaged on its way, so there a damaged one is read once more.
    """
    try:
        data = store.read(key)
        return store.read(key) if is_object_store(store) and not is_whole(data, key) else data
    except ObjectMissing:
        return None


def unseal(magic: bytes, version: int, data: bytes, name: str, key: str | None = None) -> bytes:
    """Return the body of the envelope `data`.

    `version` is the newest that the caller reads; `name` names the object in errors. Raises `CorruptObject` if any bit
    was changed, bytes were cut or added, or the object was written for another key than `key`; `NewerFormat` for an
    intact envelope of a higher version.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptObject(name, f"it has {len(data)} bytes, fewer than its {HEADER_BYTES}-byte header")
    if not _is_right(data):
        raise CorruptObject(name, "its checksum does not match its bytes")
    found, found_version, place = _HEADER.unpack_from(data)
    body = data[HEADER_BYTES:]
    if found != magic:
        raise CorruptObject(name, f"it begins with {found!r} where {magic!r} is expected")
    if found_version > version:
        raise NewerFormat(name, f"format {found_version}, this version reads up to {version}")
    if place and key is not None and body[:place] != key.encode():
        written_for = body[:place].decode(errors="replace")
        raise CorruptObject(name, f"it does not belong here: it was written as {written_for}")
    return body[place:]
