"""Stored objects that are read as a whole, as documents to print: what they are, and their fields by name.

Events and states are decoded without their types, so that even those which the product would refuse can be printed.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.journal import journal_entry, journal_nodes, registers, snapshot
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects import node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Documents: TypeAlias = Iterator[dict[str, Any]]


def documents(magic: bytes, data: bytes, name: str) -> Documents | None:
    """Return what to print of an object, by its first four bytes; None for objects of other kinds.

    Iterating raises `CorruptObject`, and any of `decoding.IMPOSSIBLE` for events and states that are impossible.
    """
    show = _BY_MAGIC.get(magic)
    return None if show is None else show(data, name)


def head(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"file": name, "is": kind, **fields}


def _marker(data: bytes, name: str) -> Documents:
    yield head(name, "node marker", **msgspec.to_builtins(node.decode(data, name)))


def _journal_nodes(data: bytes, name: str) -> Documents:
    yield head(name, "journal nodes", **msgspec.to_builtins(journal_nodes.decode(data, name)))


def _register(data: bytes, name: str) -> Documents:
    """Yield a register, and the entry that a vote contains."""
    found = registers.parse(PurePath(name).name)
    if found is None:
        raise CorruptObject(name, "its name is not the name of a register")
    slot, register = found
    content = registers.decode(data, name)
    is_a = "claim" if register.is_claim else "vote"
    first = head(name, "register", entry=slot, ballot=register.ballot, register=is_a)
    if register.is_claim:
        yield first | {"nonce": content.decode("ascii", "backslashreplace")}
    elif not content:
        yield first | {"value": None}
    else:
        yield first
        yield from _entry(content, name)


def _entry(data: bytes, name: str) -> Documents:
    entry = journal_entry.decode(data, name)
    yield head(
        name,
        "journal entry",
        hash=journal_entry.digest(data).hex(),
        previous=entry.previous.hex(),
        nonce=entry.nonce,
        time_ms=entry.time_ms,
    )
    yield from _events(msgspec.msgpack.decode(entry.events))


def _events(events: list[list[Any]]) -> Documents:
    """Yield events with the names of their fields; the fields of an unknown event are numbered."""
    events_of = (get_args(each.Event) for each in (cluster, topic, group))
    known = {each.__name__: each.__struct_fields__ for found in events_of for each in found}
    for kind, *values in events:
        names = known.get(kind, tuple(str(number) for number in range(len(values))))
        yield {"event": kind, **dict(zip(names, plain(values), strict=False))}


def plain(value: Any) -> Any:
    """Return a value that JSON can have; of bytes how many they are."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def _snapshot(data: bytes, name: str) -> Documents:
    found = snapshot.decode(data, name)
    yield head(name, "snapshot", entry=found.number, hash=found.hash.hex())
    yield {"state": plain(msgspec.msgpack.decode(found.state))}


def _description(data: bytes, name: str) -> Documents:
    found = topic_description.decode(data, name)
    nodes = [msgspec.structs.asdict(each) for each in found.nodes]
    yield head(name, "topic description", entry=found.number, created_ms=found.created_ms, nodes=nodes)
    yield {"state": plain(msgspec.msgpack.decode(msgspec.msgpack.encode(found.topic)))}


_BY_MAGIC: dict[bytes, Callable[[bytes, str], Documents]] = {
    b"PLND": _marker,
    b"PLJN": _journal_nodes,
    b"PLRG": _register,
    b"PLJE": _entry,
    b"PLSS": _snapshot,
    b"PLTD": _description,
}
