"""Journal nodes: which stores hold the journals of a cluster, written on each of them.

    cluster/journal-nodes                 envelope b"PLJN", version 1, body: JSON
    cluster/journal-nodes.<generation, 20 digits>
        {"cluster": ..., "nodes": [{"node": ..., "url": ..., "incarnation": ...}, ...], "generation": ...}

The generation is left out where it is 1. Created when the cluster is, and never replaced. Who is given the address of
any journal node reads it there, and goes on with all of them. A cluster whose journals live on one store has no such
object. It holds what the agreement on entries rests on, so it must not change. Where the journals have moved to other
stores another object says so, beside it, on the stores before and on the new ones; on a store that had none it is the
first one. The highest generation counts, and who knows only an older one finds the newer at the end of the cluster's
journal there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.journal.quorum import ANSWER_SECONDS
from pyspark_log_coordinator.journal.store_threads import Answer, ThreadCalls
from pyspark_log_storage import decoding
from pyspark_log_storage.envelope import seal, unseal
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    LogError,
    NodeAway,
    ObjectMissing,
    StoreError,
    StoreUnavailable,
)
from pyspark_log_storage.layout import CLUSTER_JOURNAL, JOURNAL_NODES, is_of_cluster, number
from pyspark_log_storage.node import read_marker
from pyspark_log_storage.ranges import Count
from pyspark_log_storage.stored_names import NodeName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_storage.store import Store

LEAST = 3
"""With fewer, the loss of one would end the journals."""
PATIENCE_SECONDS = 5.0
"""How long one waits where no store answers."""
_MAGIC = b"PLJN"
_VERSION = 1


class JournalNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node whose store holds the journals, and in which incarnation."""

    node: NodeName
    url: str
    incarnation: str


class JournalNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The journal nodes of a cluster, in an order that never changes."""

    cluster: str
    nodes: tuple[JournalNode, ...]
    generation: Count = 1

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of their stores."""
        return tuple(each.url for each in self.nodes)


_decoder = msgspec.json.Decoder(JournalNodes)


def encode(nodes: JournalNodes) -> bytes:
    """Return the stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.json.encode(nodes))


def decode(data: bytes, name: str) -> JournalNodes:
    """Return the journal nodes in `data`. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    return decoding.decode(_decoder.decode, body, name)


def read(store: Store) -> JournalNodes | None:
    """Return the newest that a store says, None where it says nothing.

    Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    try:
        newest = decode(store.read(JOURNAL_NODES), f"{store.url}/{JOURNAL_NODES}")
    except ObjectMissing:
        return None
    for key in store.list(CLUSTER_JOURNAL, JOURNAL_NODES):
        if not key.startswith(JOURNAL_NODES):
            break
        if is_of_cluster(key):
            newest = decode(store.read(key), f"{store.url}/{key}")
    return newest


def tell(nodes: JournalNodes, store: Store) -> bool:
    """Let a store say where the journals are now; return whether it did not yet. Raises what `read` does.

    Only once the cluster's journal has begun there: who finds this looks for it nowhere else.
    """
    told = read(store)
    if told is not None and told.generation >= nodes.generation:
        return False
    key = JOURNAL_NODES if told is None else f"{JOURNAL_NODES}.{number(nodes.generation)}"
    return store.create(key, encode(nodes))


def newest(stores: Sequence[Store]) -> JournalNodes | None:
    """Return the newest that any of these stores says, as far as they answer; None where none says anything."""
    told, _, _ = _asked(stores, lambda *_: False)
    return max(told.values(), key=lambda each: each.generation, default=None)


def find(stores: Sequence[Store]) -> JournalNodes | None:
    """Return the journal nodes of the cluster that these stores are of, None for one whose journals live on one store.

    Any one of them that answers will do; but one that is not among the journal nodes must say the same, or have said so
    before they moved, else it may be another cluster's. Once they have moved it may also be gone: who was given the
    addresses before goes on. Raises `InvalidOption` where several stores do not belong
    together, or none is a journal node; what a store raises where none can be read.
    """
    if len(stores) == 1:
        return read(stores[0])

    def suffices(told: Mapping[str, JournalNodes], asked: Collection[str]) -> bool:
        known = {*asked, *(url for nodes in told.values() for url in nodes.urls)}
        return bool(told) and all(each.url in known for each in stores)

    told, errors, mute = _asked(stores, suffices)
    if not told:
        raise _nothing_told(stores, errors, mute)
    first, nodes = max(told.items(), key=lambda each: each[1].generation)
    for url, other in told.items():
        if other.cluster != nodes.cluster or (other.generation == nodes.generation and other != nodes):
            raise _refused(f"{first} is of cluster {nodes.cluster}, and {url} of cluster {other.cluster}")
    for store in stores:
        if store.url in mute and store.url not in nodes.urls and not _may_have_left(store, nodes):
            raise _refused(f"{first} is a journal node of a cluster, and {store.url} is none")
    return nodes


def _may_have_left(store: Store, nodes: JournalNodes) -> bool:
    """Return whether a store that names no journal nodes may have been one of them before they moved."""
    if nodes.generation == 1:
        return False
    try:
        marker = read_marker(store)
    except (StoreError, CorruptObject):
        return True
    return marker is None or marker.cluster == nodes.cluster


def _asked(
    stores: Sequence[Store], suffices: Callable[[Mapping[str, JournalNodes], Collection[str]], bool]
) -> tuple[dict[str, JournalNodes], dict[str, LogError], list[str]]:
    """Ask all stores at once, until what was told `suffices`, which takes that and the addresses that have answered.

    Return what they say, what went wrong, and who says nothing, by their addresses.
    """
    told: dict[str, JournalNodes] = {}
    errors: dict[str, LogError] = {}
    mute: list[str] = []
    waited = 0.0
    calls = ThreadCalls()
    for position, store in enumerate(stores):
        calls.start(position, partial(_ask, position, store))
    while len(told) + len(errors) + len(mute) < len(stores):
        if suffices(told, {*told, *errors, *mute}):
            break
        answer = calls.next(ANSWER_SECONDS)
        if answer is None:
            waited += ANSWER_SECONDS
            if told or waited >= PATIENCE_SECONDS:
                break
        elif isinstance(answer.error, LogError):
            errors[stores[answer.store].url] = answer.error
        elif answer.error is not None:
            raise answer.error
        elif answer.result is None:
            mute.append(stores[answer.store].url)
        else:
            told[stores[answer.store].url] = answer.result
    return told, errors, mute


def missing(nodes: JournalNodes, members: Members, environment: Environment) -> dict[str, LogError]:
    """Return what is wrong with journal nodes that do not take part in the journals, by their ids."""

    def look(store: Store) -> None:
        found = read(store)
        if found != nodes:
            told = "none" if found is None else ", ".join(found.urls)
            raise CorruptObject(
                f"{store.url}/{JOURNAL_NODES}",
                f"it names other journal nodes: {told}. If it was away while the journals moved, `pyspark-log "
                "maintain` puts that right",
            )

    answers = members.ask(look, environment, int(PATIENCE_SECONDS * 1000))
    errors = {each.store: each.error for each in answers}
    found = {}
    for position, each in enumerate(nodes.nodes):
        error = errors.get(position, members.unavailable(position, f"no answer within {PATIENCE_SECONDS:g} s"))
        if isinstance(error, LogError):
            found[each.node] = error
    return found


def _ask(position: int, store: Store) -> Answer:
    try:
        return Answer(b"", position, None, read(store), None)
    except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
        return Answer(b"", position, None, None, error)


def _nothing_told(stores: Sequence[Store], errors: Mapping[str, LogError], mute: Sequence[str]) -> LogError:
    """Return the error where no store says which the journal nodes are."""
    if len(mute) == len(stores):
        urls = ", ".join(each.url for each in stores)
        if any(_has_marker(store) for store in stores):
            return _refused(f"none of {urls} is a journal node")
        return NodeAway(
            urls,
            JOURNAL_NODES,
            f"none of {urls} has a marker: are their disks mounted? If they are, these are no journal nodes; give the "
            "addresses of one cluster's journal nodes, or the one address of its root",
        )
    for error in errors.values():
        if not error.retriable:
            return error
    silent = [each.url for each in stores if each.url not in mute]
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
        "path", f"{reason}; give the addresses of one cluster's journal nodes, or the one address of its root"
    )
