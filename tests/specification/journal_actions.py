"""What the stores of a journal got, in the words of Journals.tla."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pyspark_log_coordinator.journal import journal_entry, registers, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, digest
from pyspark_log_coordinator.journal.paxos import NIL, Register, majority
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from tests.simulator.ballots import ClusterHistory
from tests.simulator.invariants import History, Write
from tests.specification.tlc import Records

Action = dict[str, Any]
NOBODY = "nobody"
_ENTRIES = re.compile(r"entries(?:\.([0-9]+))?/(.*)")
_SNAPSHOTS = "snapshots/"


def trace(history: History, cluster: ClusterHistory) -> dict[str, Any]:
    """Return how a journal began, and for each entry what the stores got and lost until it was decided."""
    journal = _Journal(history, cluster)
    entries: list[dict[str, Any]] = []
    actions: list[Action] = []
    newest = 0
    for write in history.writes:
        actions += journal.actions(write)
        if write.newest != newest or write is history.writes[-1]:
            newest = write.newest
            entries.append({"number": newest, "actions": actions, "seen": journal.seen(newest)})
            actions = []
    assert journal.first is not None
    nothing: frozenset[str] = frozenset()
    decided = Records([{"place": journal.first, "entry": _start(journal.first)}])
    begin = {"decided": decided, **dict.fromkeys(("claims", "votes", "snapshots", "lost"), nothing)}
    return {"begin": begin, "entries": entries}


def _start(place: dict[str, Any]) -> dict[str, Any]:
    return {"n": 0, "id": (), "previous": (), "by": NOBODY, "place": place}


_NIL = _start({"generation": 0, "stores": frozenset()})


class _Journal:
    """What is known of a journal's entries and registers after some writes."""

    def __init__(self, history: History, cluster: ClusterHistory) -> None:
        self._history = history
        self._cluster = cluster
        self.first: dict[str, Any] | None = None
        """The place where the journal begins."""
        self._ids: dict[bytes, tuple[int, ...]] = {NO_HASH: ()}
        """Short names of the entries' hashes."""
        self._entries: dict[bytes, dict[str, Any]] = {}
        """The entries that anybody has proposed, by their hashes."""
        self._there: set[tuple[str, str]] = set()
        """The registers that are on a store."""
        self._claims: defaultdict[tuple[int, int, int], dict[str, str]] = defaultdict(dict)
        """Who has claimed a ballot of a slot of a generation, on each store."""
        self._first_votes: dict[tuple[str, bytes], str] = {}
        """Who put an entry into a vote first."""

    def seen(self, newest: int) -> dict[str, Any]:
        """Return what the simulator knows of the newest entry."""
        history = self._history
        generation = history.machine.generation(history.states[newest])
        return {"n": newest, "id": self._id(history.hashes[newest]), "generation": generation}

    def actions(self, write: Write) -> Iterable[Action]:
        """Return what a write was, if it counts."""
        if write.name.startswith(_SNAPSHOTS) and write.data is not None and write.store:
            entry = self._entries[snapshot.decode(write.data, write.name).hash]
            return [{"kind": "snapshot", "store": write.store, "entry": entry}]
        if (found := _ENTRIES.fullmatch(write.name)) is not None and (named := registers.parse(found[2])) is not None:
            return self._of_register(write, int(found[1] or 1), *named)
        return []

    def _of_register(self, write: Write, generation: int, n: int, register: Register) -> Iterable[Action]:
        place = self._place(generation)
        self.first = self.first or place
        on_store = write.store, write.name
        slot = {"place": place, "n": n}
        if write.store not in place["stores"] or (on_store in self._there) == (write.data is not None):
            return []  # of another incarnation, or the register's lost copy is put back
        if write.data is None:
            self._there.discard(on_store)
            trim = {"kind": "trim", **slot, "store": write.store, "ballots": frozenset({register.ballot})}
            return [trim]
        self._there.add(on_store)
        content = registers.decode(write.data, write.name)
        ballot = {**slot, "ballot": register.ballot}
        claims = self._claims[generation, n, register.ballot]
        if register.is_claim:
            claims[write.store] = content.decode()
            return [{"kind": "claim", **ballot, "stores": frozenset({write.store}), "by": content.decode()}]
        vote = {"kind": "vote", **ballot, "store": write.store}
        if content == NIL:
            return [{**vote, "entry": _NIL, "by": NOBODY}]
        entry = self._entry(content, n, place, write.writer)
        by = self._first_votes.setdefault((write.name, content), write.writer)
        if register.ballot > 0:
            owners = list(claims.values())
            by = next((each for each in owners if owners.count(each) >= majority(len(place["stores"]))), NOBODY)
        return [{**vote, "entry": entry, "by": by}]

    def _id(self, hash_: bytes) -> tuple[int, ...]:
        return self._ids.setdefault(hash_, (len(self._ids),))

    def _place(self, generation: int) -> dict[str, Any]:
        return {"generation": generation, "stores": frozenset(self._cluster.journal_nodes(generation).values())}

    def _entry(self, data: bytes, n: int, place: dict[str, Any], writer: str) -> dict[str, Any]:
        """Return an entry. Who puts it into a register first has written it."""
        if (hash_ := digest(data)) not in self._entries:
            entry = journal_entry.decode(data, f"entry {n}")
            for event in self._history.machine.decode_events(entry.events):
                if isinstance(event, JournalEnded):
                    stores = frozenset(each.incarnation for each in event.nodes)
                    place = {"generation": event.generation, "stores": stores}
            told = {"n": n, "id": self._id(hash_), "previous": self._id(entry.previous)}
            self._entries[hash_] = {**told, "by": writer, "place": place}
        return self._entries[hash_]
