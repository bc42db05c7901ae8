"""The rules for keys. Most keys contain names that were read from files, which may be forged.

A key is a relative path: parts with "/" between them, none of which is empty, "." or "..". So no key leads out of its
store. The folder ".tmp" at the root belongs to the store.
"""

from __future__ import annotations

from pyspark_log_storage.errors import StoreRefused

TEMPORARY = ".tmp"
_NO_PARTS = frozenset({"", ".", ".."})


def is_key(key: str) -> bool:
    """Return whether `key` is a valid object key."""
    parts = key.split("/")
    return _NO_PARTS.isdisjoint(parts) and "\0" not in key and parts[0] != TEMPORARY


def check_key(url: str, key: str) -> None:
    """Raise `StoreRefused` unless `key` is a valid object key. `url` is that of the store."""
    if is_key(key):
        return
    raise StoreRefused(
        url,
        key,
        f"{key[:300]!r} is not a valid object key in {url}: the object that names it is damaged or forged; nothing was "
        "read, written or deleted. Find the damage with pyspark-log verify",
    )


def check_prefix(url: str, prefix: str) -> None:
    """Raise `StoreRefused` unless `prefix` is empty, or a key and a "/"."""
    if prefix:
        check_key(url, prefix.removesuffix("/") if prefix.endswith("/") else "")
