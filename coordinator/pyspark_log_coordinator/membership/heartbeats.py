"""Heartbeats: small objects that the members of a group leave for each other beside its journal, without durability.

    groups/<journal id>/heartbeats/<member id>.<counter>   an empty object

A member has one object, and replaces it by one with a higher counter. One listing finds those of all members. On
several journal nodes a majority suffices to write and to list. Errors of stores are ignored: nothing but liveness
depends on heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_log_storage import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_storage.stores.store import Store

PATIENCE_MS = 5_000
"""How long a majority of the journal nodes may take to answer."""

T = TypeVar("T")


class Heartbeats:
    """The heartbeats of one group. Used by one thread."""

    def __init__(self, handle: GroupHandle, environment: Environment) -> None:
        self._handle = handle
        self._folder = layout.heartbeats(handle.journal_id)
        self._environment = environment
        self._counts: dict[MemberId, int] = {}
        """The newest heartbeats of this process."""

    def beat(self, member_id: MemberId) -> bool:
        """Send a heartbeat. Return whether a store, or a majority, has taken it."""
        former = self._counts.get(member_id, 0)
        self._counts[member_id] = former + 1

        def write(store: Store) -> None:
            store.create_unflushed(self._key(member_id, former + 1), b"")
            if former:
                store.delete(self._key(member_id, former))

        return bool(self._at_stores(write))

    def end(self, member_id: MemberId) -> None:
        """Delete the heartbeat of a member of this process, which has left."""
        if count := self._counts.pop(member_id, 0):
            self._delete([(member_id, count)])

    def listen(self) -> dict[MemberId, int] | None:
        """Return the newest counter of each member; None if no store answers, or too few."""
        found = self._listed()
        return None if found is None else dict(sorted(found))  # of two counters of a member the higher one comes last

    def delete_left_over(self, members: Collection[MemberId]) -> int:
        """Delete the heartbeats of processes that are no members any more, and return how many."""
        gone = sorted(each for each in self._listed() or () if each[0] not in members)
        if gone:
            self._delete(gone)
        return len(gone)

    def _listed(self) -> set[tuple[MemberId, int]] | None:
        """Return the member ids and counters of all heartbeats; None if no store answers, or too few."""

        def listed(store: Store) -> list[tuple[MemberId, int]]:
            found = (layout.of_heartbeat(key.removeprefix(self._folder)) for key in store.list(self._folder))
            return [each for each in found if each is not None]

        answers = self._at_stores(listed)
        return {each for names in answers for each in names} if answers else None

    def _delete(self, heartbeats: Collection[tuple[MemberId, int]]) -> None:
        def delete(store: Store) -> None:
            for member_id, count in heartbeats:
                store.delete(self._key(member_id, count))

        self._at_stores(delete)

    def _key(self, member_id: MemberId, count: int) -> str:
        return f"{self._folder}{layout.heartbeat(member_id, count)}"

    def _at_stores(self, act: Callable[[Store], T]) -> list[T]:
        """Return the results of `act` at the stores of the group's journal; none if they fail."""
        place = self._handle.journal.place
        majority = place.is_majority
        answers = place.ask(act, patience_ms=PATIENCE_MS, enough=majority, settled=majority)
        return [each.result for each in answers if each.error is None] if majority(answers) else []
