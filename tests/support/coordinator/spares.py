"""Damage to an object of a journal and to its spare at once: one of the two alone changes nothing for readers."""

import contextlib
import re
from pathlib import Path
from typing import Protocol

from pyspark_log_storage.errors import ObjectMissing

_OBJECT = re.compile(r"(.*?)((?:entries|snapshots|manifests)/[^/]+)")


class Damageable(Protocol):
    """What these functions ask of a store."""

    def put(self, key: str, data: bytes) -> None: ...
    def delete(self, key: str) -> None: ...
    def read(self, key: str) -> bytes: ...


def spare_of(key: str) -> str:
    """Return the key of an object's spare."""
    found = _OBJECT.fullmatch(key)
    assert found is not None, key
    return f"{found[1]}spares/{found[2]}"


def is_spare(key: str) -> bool:
    """Return whether this is the key of a spare."""
    return "spares/" in key


def lose_both(store: Damageable, key: str) -> None:
    """Remove an object and its spare."""
    store.delete(key)
    store.delete(spare_of(key))


def replace_both(store: Damageable, key: str, data: bytes) -> None:
    """Put `data` in the place of an object and of its spare, if it has one."""
    store.put(key, data)
    with contextlib.suppress(ObjectMissing):
        store.read(spare_of(key))
        store.put(spare_of(key), data)


def spare_file(of: Path) -> Path:
    """Return the file of the spare of an object, of which this is the file."""
    return of.parent.parent / "spares" / of.parent.name / of.name
