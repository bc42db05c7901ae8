"""Heartbeats: the signs of life of a group's members, without journal entries.

    groups/<journal id>/heartbeats/<member id>.<counter>      an empty object

A member creates the object with the next counter and deletes the one before. One listing finds those of all members. On
several journal nodes a majority suffices for either. They are not durable, and nothing but liveness depends on them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_storage.store import Store

PATIENCE_MS = 5_000
"""How long a majority of the journal nodes may take to answer. The next heartbeat tries again."""

T = TypeVar("T")


class Heartbeats:
    """The heartbeats of one group. Used by one thread."""

    def __init__(self, handle: GroupHandle, environment: Environment) -> None:
        self._handle = handle
        self._environment = environment
        self._counts: dict[MemberId, int] = {}
        """The newest heartbeats of this process."""

    def beat(self, member_id: MemberId) -> None:
        """Give a sign of life."""
        count = self._counts[member_id] = self._counts.get(member_id, 0) + 1

        def write(store: Store) -> None:
            store.create_unflushed(self._key(member_id, count), b"")
            if count > 1:
                store.delete(self._key(member_id, count - 1))

        self._at_stores(write)

    def end(self, member_id: MemberId) -> None:
        """Delete the heartbeat of a member of this process, which has left."""
        count = self._counts.pop(member_id, 0)
        if count:
            self._at_stores(lambda store: store.delete(self._key(member_id, count)))

    def listen(self) -> dict[MemberId, int] | None:
        """Return the newest counter of each member; None if no store answers, or too few."""
        answers = self._at_stores(self._names)
        if not answers:
            return None
        newest: dict[MemberId, int] = {}
        for names in answers:
            for member_id, count in names:
                newest[member_id] = max(count, newest.get(member_id, 0))
        return newest

    def delete_left_over(self, members: Collection[MemberId]) -> int:
        """Delete the heartbeats of processes that are no members any more, and return how many."""

        def clean(store: Store) -> int:
            gone = [each for each in self._names(store) if each[0] not in members]
            for member_id, count in gone:
                store.delete(self._key(member_id, count))
            return len(gone)

        return max(self._at_stores(clean), default=0)

    def _names(self, store: Store) -> list[tuple[MemberId, int]]:
        folder = layout.heartbeats(self._handle.journal_id)
        found = (layout.heartbeat_of(key.removeprefix(folder)) for key in store.list(folder))
        return [each for each in found if each is not None]

    def _key(self, member_id: MemberId, count: int) -> str:
        return layout.heartbeat(self._handle.journal_id, member_id, count)

    def _at_stores(self, act: Callable[[Store], T]) -> list[T]:
        """Return the results of `act` at the stores of the group's journal; none if they fail."""
        place = self._handle.journal.place
        if isinstance(place, OneStore):
            with contextlib.suppress(LogError):
                return [act(place.stores[0])]
            return []
        majority = place.members.is_majority
        answers = place.members.ask(act, self._environment, PATIENCE_MS, enough=majority, settled=majority)
        return [each.result for each in answers if each.error is None] if majority(answers) else []
