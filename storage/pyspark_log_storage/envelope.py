"""The envelope of every stored object that is not a chunk: its kind, its version and a checksum.

offset  bytes  field
0       4      magic: the kind of object, for example b"PLJE"
4       2      version, little-endian
6       2      zero
8       4      length of the body in bytes
12      4      CRC-32C of the fields above and the body
16      ...    body
"""

from __future__ import annotations

import struct

import google_crc32c

from pyspark_log_storage.errors import CorruptObject, NewerFormat

_MAGIC_BYTES = 4
_HEADER = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size


def seal(magic: bytes, version: int, body: bytes) -> bytes:
    """Return `body` in an envelope."""
    assert len(magic) == _MAGIC_BYTES
    header = _HEADER.pack(magic, version, 0, len(body))
    crc = google_crc32c.extend(google_crc32c.value(header), body)
    return header + _CRC.pack(crc) + body


def is_whole(data: bytes) -> bool:
    """Return whether `data` is an undamaged envelope, of any kind and version."""
    if len(data) < HEADER_BYTES:
        return False
    length: int = _HEADER.unpack_from(data)[3]
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    body = data[HEADER_BYTES:]
    right: int = google_crc32c.extend(google_crc32c.value(data[: _HEADER.size]), body)
    return length == len(body) and crc == right


def unseal(magic: bytes, version: int, data: bytes, name: str) -> bytes:
    """Return the body of the envelope `data`.

    `version` is the newest that the caller reads; `name` names the object in errors. Raises `CorruptObject` if any bit
    was changed or bytes were cut or added, and `NewerFormat` for an intact envelope of a higher version.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptObject(name, f"it has {len(data)} bytes, fewer than its {HEADER_BYTES}-byte header")
    found, found_version, _, length = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    body = data[HEADER_BYTES:]
    if crc != google_crc32c.extend(google_crc32c.value(data[: _HEADER.size]), body):
        raise CorruptObject(name, "its checksum does not match its bytes")
    if found != magic:
        raise CorruptObject(name, f"it begins with {found!r} where {magic!r} is expected")
    if length != len(body):
        raise CorruptObject(name, f"its body has {len(body)} bytes where {length} are expected")
    if found_version > version:
        raise NewerFormat(name, f"format {found_version}, this version reads up to {version}")
    return body
