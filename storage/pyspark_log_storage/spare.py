"""Spares: every object of a journal is there twice on its store.

    <journal>/entries/<name>            the object: created once, atomic and durable
    <journal>/spares/entries/<name>     its spare: the same bytes, written next and not flushed

An entry vouches for all before it, so one that is lost or damaged would cost every decision since. Whoever reads an
object that is missing or damaged reads its spare instead. File systems keep their own metadata twice on one disk for
the same reason (ZFS's ditto blocks, the DUP profile of Btrfs).

A spare is not flushed and may be torn, for a commit must not wait for it. Its checksum tells; one that is missing or
damaged only means that the object has no spare. `mend` makes it again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_storage.envelope import is_whole
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError
from pyspark_log_storage.layout import SPARES, is_of_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_storage.store import Store

FOLDER = SPARES

T = TypeVar("T")


class Fault(msgspec.Struct, frozen=True):
    """An object or its spare that is missing or damaged, while the other of the two is whole."""

    key: str
    """Which of the two it is."""
    of: str
    """The object."""
    is_missing: bool
    good: bytes

    @property
    def detail(self) -> str:
        """What is wrong, for people."""
        what = "missing" if self.is_missing else "damaged"
        return f"it is {what}; its spare is whole" if self.key == self.of else f"this spare is {what}"


def key(journal: str, of: str) -> str:
    """Return where the spare of the object `of` lies. `journal` is the journal's folder, and ends with "/"."""
    assert of.startswith(journal)
    return f"{journal}{FOLDER}{of.removeprefix(journal)}"


def add(store: Store, journal: str, of: str, data: bytes) -> bytes:
    """Write the spare of an object that holds `data` and is durable; return what the object holds now.

    That is something else only if the object was created before, was lost, and was created with `data` then: the spare
    that is there already tells, and the object is put back. A store that takes no spare fails nothing. Raises
    `StoreError` if the object cannot be put back.
    """
    other = None
    with contextlib.suppress(StoreError):
        if not store.create_unflushed(key(journal, of), data):
            other = spare_of(store, journal, of)
    if other is None or other == data:
        return data
    if _read(store, of) == data:  # else the slot was trimmed and filled again while this process slept
        store.put(of, other)
    return other


def read(store: Store, journal: str, of: str) -> bytes | None:
    """Return an object's bytes or, if they are missing or damaged, its spare's; None if both are missing.

    Bytes that are damaged are returned if there is nothing better. Raises `StoreError`.
    """
    data = _read(store, of)
    if data is not None and is_whole(data):
        return data
    other = spare_of(store, journal, of)
    if other is None and data is not None:
        return _read(store, of)  # both may have been removed meanwhile, which is no damage
    return other


def spare_of(store: Store, journal: str, of: str) -> bytes | None:
    """Return the bytes of an object's spare, None if it has none that is whole. Raises `StoreError`."""
    if not store.exists(key(journal, of)):
        return None
    data = _read(store, key(journal, of))
    return data if data is not None and is_whole(data) else None


def decoded(store: Store, journal: str, of: str, decode: Callable[[bytes], T]) -> T:
    """Return what `decode` makes of an object or, if that is missing or damaged, of its spare.

    Raises what is wrong with the object if the spare is no better; `StoreError`.
    """
    try:
        return decode(store.read(of))
    except (CorruptObject, ObjectMissing):
        with contextlib.suppress(CorruptObject, ObjectMissing):
            return decode(store.read(key(journal, of)))
        return decode(store.read(of))  # both may have been removed meanwhile, which is no damage


def listed(store: Store, journal: str, folder: str) -> tuple[set[str], set[str]]:
    """Return the objects in one of the journal's folders, and the objects of the spares that are there."""
    objects = set(store.list(folder))
    return objects, {journal + each.removeprefix(f"{journal}{FOLDER}") for each in store.list(key(journal, folder))}


def faults(store: Store, journal: str, folder: str, *, contents: bool) -> Iterator[Fault]:
    """Yield what is missing or damaged in one of the journal's folders and can be made again from the other of the two.

    What is missing is found by names; what is damaged only if `contents` are read. Raises `StoreError`.
    """
    objects, spares = listed(store, journal, folder)
    for of in sorted(each for each in objects | spares if is_of_journal(each.removeprefix(journal))):
        if contents or not (of in objects and of in spares):
            data, other = _read(store, of), _read(store, key(journal, of))
            has_object, has_spare = data is not None and is_whole(data), other is not None and is_whole(other)
            if data is not None and has_object and not has_spare:
                yield Fault(key(journal, of), of, other is None, data)
            elif other is not None and has_spare and not has_object:
                yield Fault(of, of, data is None, other)


def mend(store: Store, fault: Fault) -> None:
    """Make an object or a spare again. Raises `StoreError`."""
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
