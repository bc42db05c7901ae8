"""Spares: the second copy that each object of a journal has on its store.

    <journal>/entries/<name>            the object: created once, atomic and durable
    <journal>/spares/entries/<name>     its spare: the same bytes, written afterwards and not flushed

A lost or damaged entry would cost every later decision. So if an object is missing or damaged its spare is read. File
systems keep two copies of their metadata for the same reason (ZFS's ditto blocks, the DUP profile of Btrfs).

On an object store there are no spares: it keeps copies of its own, and each would cost a request.

A spare is not flushed, because a commit must not wait for it, and may be torn, which its checksum shows. A missing or
damaged spare is not an error; `repair` writes it again. An object that was written for another key counts as damaged.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError
from pyspark_log_storage.layout import SPARES, is_of_journal
from pyspark_log_storage.objects.envelope import is_misplaced, is_whole
from pyspark_log_storage.stores.failover import reread
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_storage.stores.store import Store

FOLDER = SPARES

T = TypeVar("T")


class SpareFault(msgspec.Struct, frozen=True):
    """An object or its spare that is missing or damaged, while the other of the two is intact."""

    key: str
    """The key of the missing or damaged one."""
    of: str
    """The key of the object."""
    is_missing: bool
    good: bytes

    @property
    def detail(self) -> str:
        """What is wrong, for people."""
        what = "missing" if self.is_missing else "damaged"
        return f"it is {what}; its spare is intact" if self.key == self.of else f"this spare is {what}"


def key(journal: str, of: str) -> str:
    """Return the key of the spare of the object `of`. `journal` is the journal's folder, and ends with "/"."""
    assert of.startswith(journal)
    return f"{journal}{FOLDER}{of.removeprefix(journal)}"


def add(store: Store, journal: str, of: str, data: bytes) -> bytes:
    """Write the spare of a durable object that was created with `data`; return the bytes of the object.

    They differ from `data` only if the object had existed before and was lost: then it is restored from its spare,
    which exists already. An error of the store while it writes the spare is ignored. Raises `StoreError` if the object
    cannot be restored.
    """
    if is_object_store(store):
        return data
    other = None
    with contextlib.suppress(StoreError):
        if not store.create_unflushed(key(journal, of), data):
            other = spare_of(store, journal, of)
    if other is None or other == data:
        return data
    if _read(store, of) == data:  # if not, the slot was trimmed and filled again while this process was suspended
        store.put(of, other)
    return other


def read(store: Store, journal: str, of: str) -> bytes | None:
    """Return the bytes of an object or, if it is missing or damaged, of its spare; None if both are missing.

    Returns damaged bytes if the spare is no better. Raises `StoreError`.
    """
    data = _read(store, of)
    if data is None and is_object_store(store):
        return None
    if data is not None and is_whole(data, of):
        return data
    if is_object_store(store):
        return _read(store, of)  # as `reread` does
    other = spare_of(store, journal, of)
    if other is None and data is not None:
        return _read(store, of)  # both may have been deleted meanwhile
    return other


def spare_of(store: Store, journal: str, of: str) -> bytes | None:
    """Return the bytes of an object's spare, or None if it has no intact one. Raises `StoreError`."""
    if is_object_store(store) or not store.exists(key(journal, of)):
        return None
    data = _read(store, key(journal, of))
    return data if data is not None and is_whole(data, of) else None


def decoded(store: Store, journal: str, of: str, decode: Callable[[bytes], T]) -> T:
    """Return the result of `decode` for an object or, if it is missing or damaged, for its spare.

    Raises the error of the object if the spare is no better, and `StoreError`.
    """
    try:
        return reread(store, lambda: decode(store.read(of)))
    except (CorruptObject, ObjectMissing):
        if is_object_store(store):
            raise
        with contextlib.suppress(CorruptObject, ObjectMissing):
            return decode(store.read(key(journal, of)))
        return decode(store.read(of))  # both may have been deleted meanwhile


def listed(store: Store, journal: str, folder: str) -> tuple[set[str], set[str]]:
    """Return the keys of the objects in one of the journal's folders, and of the objects that have spares."""
    objects = set(store.list(folder))
    if is_object_store(store):
        return objects, set()
    return objects, {journal + each.removeprefix(f"{journal}{FOLDER}") for each in store.list(key(journal, folder))}


def faults(store: Store, journal: str, folder: str, *, contents: bool) -> Iterator[SpareFault]:
    """Yield the missing objects and spares in one of the journal's folders that can be repaired from the other copy.

    Damaged ones are found, too, if `contents` are to be read. Raises `StoreError`.
    """
    if is_object_store(store):
        return
    objects, spares = listed(store, journal, folder)
    for of in sorted(each for each in objects | spares if is_of_journal(each.removeprefix(journal))):
        if contents or not (of in objects and of in spares):
            data, other = _read(store, of), _read(store, key(journal, of))
            has_object, has_spare = (each is not None and is_whole(each, of) for each in (data, other))
            if data is not None and has_object and not has_spare:
                yield SpareFault(key(journal, of), of, other is None, data)
            elif other is not None and has_spare and not has_object:
                yield SpareFault(of, of, data is None, other)


def damaged(store: Store, journal: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield key and bytes of the damaged objects in one of the journal's folders that have no intact spare.

    Raises `StoreError`.
    """
    for of in sorted(each for each in store.list(folder) if is_of_journal(each.removeprefix(journal))):
        data = read(store, journal, of)
        if data is not None and not is_whole(data, of):
            yield of, data


def is_astray(store: Store, journal: str, of: str) -> bool:
    """Return whether what is stored as the object `of` was written for another key, and there is no spare of it.

    Then nothing shows that there ever was an object of this name. Raises `StoreError`.
    """
    data = read(store, journal, of)
    if data is None and not is_object_store(store):
        data = _read(store, key(journal, of))
    return data is not None and is_misplaced(data, of)


def repair(store: Store, fault: SpareFault) -> None:
    """Write the missing or damaged copy again. Raises `StoreError`."""
    if not fault.is_missing:
        store.put(fault.key, fault.good)
    elif fault.key == fault.of:
        store.create(fault.key, fault.good)
    else:
        store.create_unflushed(fault.key, fault.good)


def _read(store: Store, of: str) -> bytes | None:
    try:
        return store.read(of)
    except ObjectMissing:
        return None
