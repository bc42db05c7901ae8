"""What the remains of a topic's journal say: the newest state that the given nodes' snapshots and entries lead to.

An entry on one store was decided when it was created. On several journal nodes a store has votes, of which a majority
decides. If that is lost, the votes that are left still show most of what it decided, because each entry names the hash
of the entry before it, and is proposed only after that one was decided:

    entry 7   votes a and b      decided: b, whose hash is named in a vote for entry 8
    entry 8   vote c             decided or not: no vote for entry 9 names it

The newest vote may be all that is left of an acknowledged batch. But another value may have been decided in its place,
and readers may have read other rows at these offsets. So its rows are kept if they are whole, and begin a new leader
epoch, in which readers notice that the end of the log has changed. An undecided vote that does anything else, such as
deleting the topic or its records, is not used.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log_coordinator.journal import journal_entry, registers, snapshot
from pyspark_log_coordinator.journal.journal_entry import digest
from pyspark_log_coordinator.journal.paxos import NIL
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.replay import Replay
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.topic_state import Topic, with_partition
from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_coordinator.rebuild.topic_plan import EPOCH_MARGIN
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.objects.envelope import read_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.model.partition import ChunkRef
    from pyspark_log_storage.stores.store import Store


class Remains(NamedTuple):
    """A topic as its journal's remains show it."""

    description: Description
    decided_ends: dict[int, int]
    """Of the partitions that end with rows of a vote that may not have been decided: where these begin."""


def read(
    stores: Sequence[Store], folder: TopicFolder, rolled: Mapping[int, int], environment: Environment
) -> Remains | None:
    """Return what the journal's remains on these stores show; None if they do not lead to any state.

    `rolled` is where the last segment of each partition ends. Raises `NewerFormat`, `StoreError`.
    """
    replay = _RemainsReplay(stores, folder, environment)
    if not replay.fold():
        return None
    number, state, before = replay.number, replay.state, replay.before_undecided
    ends: dict[int, int] = {}
    if before is not None and before.started:
        if _only_adds_rows(before, state, rolled) and _are_whole(stores, folder, before, state):
            added = _added_rows(before, state)
            ends = {index: before.partitions[index].log_end for index, rows in added.items() if rows}
            state = _in_new_epoch(state, ends)
        else:
            number, state = number - 1, before
    return Remains(topic_description.describe(state, number, 0, ()), ends)


class _Vote(NamedTuple):
    """An entry, or a value that was proposed for one, on a store."""

    generation: int
    ballot: int
    previous: bytes
    data: bytes
    store: Store
    is_entry: bool
    """Whether it is on the one store that had the journal."""


class _RemainsReplay(Replay[Topic, Any]):
    """Folds the votes that follow from the newest snapshot on any of the stores."""

    def __init__(self, stores: Sequence[Store], folder: TopicFolder, environment: Environment) -> None:
        super().__init__(OneStore(stores[0]), layout.topic_journal(*folder), topic.MACHINE, environment)
        self._stores = stores
        self.before_undecided: Topic | None = None
        """The state before the newest entry, if that may not have been decided."""

    def fold(self) -> bool:
        """Fold as far as the remains lead, and return whether they lead to any state."""
        votes: dict[int, list[_Vote]] = {}
        for store in self._stores:
            for number, vote in _votes(store, self.folder):
                votes.setdefault(number, []).append(vote)
        snapshots = [(number, store) for store in self._stores for number in snapshot.numbers(store, self.folder)]
        for number, store in sorted(snapshots, key=lambda each: each[0], reverse=True):
            self._use(OneStore(store))
            with contextlib.suppress(CorruptObject, ObjectMissing):
                self.load(number)
                self._fold_votes(votes)
                # The first entry of a rebuild that was cut short adds nothing to what the folders show.
                if self.state.restored != self.number:
                    return True
        self._reset()
        self._fold_votes(votes)
        return self.state.started

    def _fold_votes(self, votes: Mapping[int, Sequence[_Vote]]) -> None:
        """Fold the votes that follow from the known state."""
        self.before_undecided = None
        while fitting := [each for each in votes.get(self.number + 1, ()) if each.previous == self.last_hash]:
            named = {each.previous for each in votes.get(self.number + 2, ())}
            decided = [each for each in fitting if each.is_entry or digest(each.data) in named]
            chosen = max(decided or fitting, key=lambda each: (each.generation, each.ballot))
            before = self.state
            if not self._fold_vote(chosen):
                return
            if not decided:
                self.before_undecided = before

    def _fold_vote(self, vote: _Vote) -> bool:
        """Fold the next entry, and return whether its events could be read. Any store may have its manifest."""
        for store in (vote.store, *self._stores):
            self._use(OneStore(store))
            with contextlib.suppress(CorruptObject, ObjectMissing):
                self._fold(vote.data, self._decode(vote.data, self.entries.name(self.number + 1)))
                return True
        return False


def _votes(store: Store, journal: str) -> Iterator[tuple[int, _Vote]]:
    """Yield what is left of a journal's entries on a store, each with the entry's number."""
    for key in store.list(journal):
        folder, _, name = key.removeprefix(journal).rpartition("/")
        kind, _, generation = folder.partition(".")
        if kind != "entries" or not layout.is_of_journal(key.removeprefix(journal)):
            continue
        register = registers.parse(name)
        is_entry = register is None and name.isascii() and name.isdigit()
        number = int(name) if is_entry else 0 if register is None else register[0]
        if number == 0 or (register is not None and register[1].is_claim):
            continue
        data = read_if_there(store, key)
        if data is None:
            continue
        where = f"{store.url}/{key}"
        with contextlib.suppress(CorruptObject):
            if register is not None:
                data = registers.decode(register[1], data, where, key)
                if data == NIL:
                    continue
            previous = journal_entry.decode(data, where, journal_entry.place(journal, number)).previous
            ballot = 0 if register is None else register[1].ballot
            yield number, _Vote(int(generation or 1), ballot, previous, data, store, is_entry)


def _added_rows(before: Topic, after: Topic) -> dict[int, int]:
    """Return by how many rows each partition of `before` has grown."""
    pairs = zip(before.partitions, after.partitions, strict=False)
    return {number: new.log_end - old.log_end for number, (old, new) in enumerate(pairs)}


def _only_adds_rows(before: Topic, after: Topic, rolled: Mapping[int, int]) -> bool:
    """Return whether an entry adds rows, which no segment shows to be others, and takes none away."""
    if after.deleted or len(before.partitions) != len(after.partitions):
        return False
    added = _added_rows(before, after)
    return any(added.values()) and all(
        new.log_start == old.log_start
        and new.epoch_starts[-1][1] <= old.log_end <= new.log_end
        and (not added[number] or rolled.get(number, 0) <= old.log_end)
        for number, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True))
    )


def _new_chunks(before: Topic, after: Topic, number: int) -> list[ChunkRef]:
    end = before.partitions[number].log_end
    return [each for each in after.partitions[number].chunks if each.base_offset >= end]


def _are_whole(stores: Sequence[Store], folder: TopicFolder, before: Topic, after: Topic) -> bool:
    """Return whether each chunk that an entry has added is whole on some store. Raises `NewerFormat`, `StoreError`."""
    folders = [NodeFolder(store, folder) for store in stores]
    return all(
        any(wrong is None for here in folders for _, _, wrong in here.chunks(after, number, [chunk]))
        for number in range(len(after.partitions))
        for chunk in _new_chunks(before, after, number)
    )


def _in_new_epoch(after: Topic, ends: Mapping[int, int]) -> Topic:
    """Return the state with the rows after these ends of partitions in a new leader epoch."""
    for number, end in ends.items():
        one = after.partitions[number]
        epoch = one.leader_epoch + EPOCH_MARGIN
        chunks = [
            msgspec.structs.replace(each, leader_epoch=epoch) if each.base_offset >= end else each
            for each in one.chunks
        ]
        starts = (*one.epoch_starts, (epoch, end))
        changed = msgspec.structs.replace(one, leader_epoch=epoch, epoch_starts=starts, chunks=AppendList(chunks))
        after = with_partition(after, number, changed)
    return after
