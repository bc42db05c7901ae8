"""The journal nodes of a cluster, whose stores hold the journals. Each of these stores has the list.

    cluster/journal-nodes                 envelope b"PLJN", version 1, body: JSON
        {"cluster": ..., "nodes": [{"node": ..., "url": ..., "incarnation": ...}, ...], "generation": ...,
        "former": ...}

Generation 1 and an empty `former` are left out. A process that knows one journal node reads the addresses of the others
from it. A cluster whose journals are on one store has no such object. When the journals migrate, the old and the new
stores get the list of the next generation in place of theirs. The highest generation counts. A process that knows only
an older one finds the newer one at the end of the cluster's journal there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.journal.place import ANSWER_SECONDS
from pyspark_log_storage import decoding
from pyspark_log_storage.errors import (
    CopiedLog,
    CorruptObject,
    InvalidOption,
    LogError,
    NodeAway,
    ObjectMissing,
    StoreError,
    StoreUnavailable,
)
from pyspark_log_storage.layout import JOURNAL_NODES
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.stored_fields import Count, NodeName
from pyspark_log_storage.stores.addresses import is_same_place
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.stores.store import Store

LEAST = 3
"""With fewer, the journals would not survive the loss of one."""
PATIENCE_SECONDS = 5.0
"""How long to wait if no store answers."""
BYTES_MAX = 1024 * 1024
"""More than any list has: a node takes its address and some 150 bytes. Of a larger object no more is read, and it is
damaged."""
_MAGIC = b"PLJN"
_VERSION = 1


class JournalNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node whose store holds the journals, and its incarnation."""

    node: NodeName
    url: str
    incarnation: str


class JournalNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The journal nodes of a cluster, in an order that never changes."""

    cluster: str
    nodes: tuple[JournalNode, ...]
    generation: Count = 1
    former: tuple[JournalNode, ...] = ()
    """Those of earlier lists of the same store, which may have left the journals. They do not vote."""

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(each.url for each in self.nodes)


_decoder = msgspec.json.Decoder(JournalNodes)


def encode(nodes: JournalNodes) -> bytes:
    return seal(_MAGIC, _VERSION, msgspec.json.encode(nodes))


def decode(data: bytes, name: str) -> JournalNodes:
    """Return the journal nodes in `data`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    return decoding.decode(_decoder.decode, body, name)


@rereads
def read(store: Store) -> JournalNodes | None:
    """Return the list of journal nodes on a store, or None if it has none.

    Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    try:
        return decode(store.read(JOURNAL_NODES, 0, BYTES_MAX), f"{store.url}/{JOURNAL_NODES}")
    except ObjectMissing:
        return None


def read_at_its_address(store: Store) -> JournalNodes | None:
    """Do the same. Raises `CopiedLog` if the store is a journal node that its list has at another address.

    It may have left in a migration, and may have been wiped since, and got a list in which its node is not. A store
    with a list and without a marker may be anything.
    """
    listed = read(store)
    if listed is None or store.url in listed.urls:
        return listed
    marker, known = read_marker(store), (*listed.nodes, *listed.former)
    is_known = marker is None or any(each.node == marker.node for each in known)
    if is_known and not any(is_same_place(store.url, each.url) for each in known):
        raise CopiedLog(store.url, ", ".join(listed.urls))
    return listed


def write(nodes: JournalNodes, store: Store) -> bool:
    """Write the list to a store, unless it has this or a newer one; return whether it was written.

    The cluster's journal must have begun at `nodes`: a process that reads the list looks nowhere else. If an older one
    is written over a newer one at the same moment, or over a damaged one, it leads to the newer one. Raises
    `NewerFormat`, `StoreError`.
    """
    try:
        present = read(store)
    except CorruptObject:
        store.put(JOURNAL_NODES, encode(nodes))
        return True
    if present is None:
        return store.create(JOURNAL_NODES, encode(nodes))
    if present.generation >= nodes.generation:
        return False
    former = tuple(dict.fromkeys((*present.former, *present.nodes)))
    store.put(JOURNAL_NODES, encode(msgspec.structs.replace(nodes, former=former)))
    return True


def replace(nodes: JournalNodes, store: Store) -> bool:
    """Make this the list on a store of a log that was moved; return whether it was not.

    Only the addresses may differ from those of the newest list. Raises what `read` raises.
    """
    present = read(store)
    former = () if present is None else present.former
    wanted = msgspec.structs.replace(nodes, former=former)
    if present != wanted:
        store.put(JOURNAL_NODES, encode(wanted))
    return present != wanted


def newest(stores: Sequence[Store], environment: Environment) -> JournalNodes | None:
    """Return the newest list on those of the stores that answer, or None if they have none."""
    lists, _, _ = _read_all(read, stores, environment, lambda *_: False)
    return max(lists.values(), key=lambda each: each.generation, default=None)


def find(stores: Sequence[Store], environment: Environment) -> JournalNodes | None:
    """Return the journal nodes of the cluster that has these stores, or None if its journals are on one store.

    One store that answers suffices. But a store that is not among its journal nodes must have a list of the same
    cluster, or may have left the journal nodes in a migration. Raises `InvalidOption` if the stores do not belong to
    one cluster, or none is a journal node; `CopiedLog` if one is at another address than it has recorded; the error of
    a store if none can be read.
    """
    if len(stores) == 1:
        return read_at_its_address(stores[0])

    def suffices(lists: Mapping[str, JournalNodes], answered: Collection[str]) -> bool:
        known = {*answered, *(url for nodes in lists.values() for url in nodes.urls)}
        return bool(lists) and all(each.url in known for each in stores)

    lists, errors, without = _read_all(read_at_its_address, stores, environment, suffices)
    for error in errors.values():
        if isinstance(error, CopiedLog):
            raise error
    if not lists:
        raise _no_list(stores, errors, without)
    first, nodes = max(lists.items(), key=lambda each: each[1].generation)
    for url, other in lists.items():
        if other.cluster != nodes.cluster or (other.generation == nodes.generation and other.nodes != nodes.nodes):
            raise _refused(f"{first} is of cluster {nodes.cluster}, and {url} of cluster {other.cluster}")
    for store in stores:
        if store.url in without and store.url not in nodes.urls and not _may_have_left(store, nodes):
            raise _refused(f"{first} is a journal node of a cluster, and {store.url} is not")
    return nodes


def _may_have_left(store: Store, nodes: JournalNodes) -> bool:
    """Return whether a store without a list may have been a journal node before a migration."""
    if nodes.generation == 1:
        return False
    try:
        marker = read_marker(store)
    except (StoreError, CorruptObject):
        return True
    return marker is None or marker.cluster == nodes.cluster


def _read_all(
    read: Callable[[Store], JournalNodes | None],
    stores: Sequence[Store],
    environment: Environment,
    suffices: Callable[[Mapping[str, JournalNodes], Collection[str]], bool],
) -> tuple[dict[str, JournalNodes], dict[str, LogError], list[str]]:
    """Read the lists of all stores at once, until `suffices` accepts the lists and the addresses that have answered.

    Return the lists and the errors by address, and the addresses without a list.
    """
    lists: dict[str, JournalNodes] = {}
    errors: dict[str, LogError] = {}
    without: list[str] = []
    waited = 0.0
    threads = environment.store_threads("journal nodes of")
    for position, store in enumerate(stores):
        threads.start(position, partial(read, store))
    while len(lists) + len(errors) + len(without) < len(stores):
        if suffices(lists, {*lists, *errors, *without}):
            break
        answer = threads.next(ANSWER_SECONDS)
        if answer is None:
            waited += ANSWER_SECONDS
            if lists or waited >= PATIENCE_SECONDS:
                break
        elif isinstance(answer.error, LogError):
            errors[stores[answer.store].url] = answer.error
        elif answer.error is not None:
            raise answer.error
        elif answer.result is None:
            without.append(stores[answer.store].url)
        else:
            lists[stores[answer.store].url] = answer.result
    return lists, errors, without


def _no_list(stores: Sequence[Store], errors: Mapping[str, LogError], without: Sequence[str]) -> LogError:
    """Return the error if no list of the journal nodes could be read."""
    if len(without) == len(stores):
        urls = ", ".join(each.url for each in stores)
        if any(_has_marker(store) for store in stores):
            return _refused(f"none of {urls} is a journal node")
        return NodeAway(
            urls,
            JOURNAL_NODES,
            f"none of {urls} has a marker: are their disks mounted? If they are, these are not journal nodes; give the "
            "addresses of the journal nodes of one cluster, or the one address of its root",
        )
    for error in errors.values():
        if not error.retriable:
            return error
    silent = [each.url for each in stores if each.url not in without]
    facts = "; ".join(str(error) for error in errors.values()) or f"no answer within {PATIENCE_SECONDS:g} s"
    return StoreUnavailable(
        ", ".join(silent), JOURNAL_NODES, f"no journal node can be read at {', '.join(silent)}: {facts}; try again"
    )


def _has_marker(store: Store) -> bool:
    try:
        return read_marker(store) is not None
    except (StoreError, CorruptObject):
        return True


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(
        "path", f"{reason}; give the addresses of the journal nodes of one cluster, or the one address of its root"
    )
