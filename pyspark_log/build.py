"""Which build of the program this is: until something is released, many have the same version."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.abc import Traversable

_PACKAGES = ("pyspark_log", "pyspark_log_coordinator", "pyspark_log_storage")


@functools.cache
def build() -> str:
    """Return the first digits of a digest of the program's files: the same wherever the same program is installed."""
    return digest_of(importlib.resources.files(each) for each in _PACKAGES)


def digest_of(packages: Iterable[Traversable]) -> str:
    """Return the first digits of a digest of the modules in folders. A wheel, a zip and a clone may have the same."""
    digest = hashlib.sha256()
    for each in packages:
        for path, data in sorted(_files(each)):
            digest.update(f"{path} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:8]


def _files(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{path}{each.name}/")
        elif each.name.endswith(".py"):
            yield f"{path}{each.name}", each.read_bytes()
