"""The frame around every stored object that is not a chunk: what it is, which version, and a checksum.

    offset  bytes  field
    0       4      magic: what kind of object this is, for example b"PLJE"
    4       2      version, little-endian
    6       2      zero
    8       4      length of the body in bytes
    12      4      CRC-32C of the fields above and the body
    16      ...    body

One frame for all, so that one test of flipped bits and cut files covers all.
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
    """Return `body` inside its frame."""
    assert len(magic) == _MAGIC_BYTES
    header = _HEADER.pack(magic, version, 0, len(body))
    crc = google_crc32c.extend(google_crc32c.value(header), body)
    return header + _CRC.pack(crc) + body


def is_whole(data: bytes) -> bool:
    """Return whether `data` is a frame as it was sealed, whatever it holds and in whichever version."""
    if len(data) < HEADER_BYTES:
        return False
    length: int = _HEADER.unpack_from(data)[3]
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    body = data[HEADER_BYTES:]
    right: int = google_crc32c.extend(google_crc32c.value(data[: _HEADER.size]), body)
    return length == len(body) and crc == right


def unseal(magic: bytes, version: int, data: bytes, name: str) -> bytes:
    """Return the body of the frame `data`.

    `version` is the newest that the caller reads; `name` is what errors call the object.
    Raises `CorruptObject` where any bit differs from what was sealed or bytes are cut or added, and
    `NewerFormat` for an intact frame of a higher version.
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
