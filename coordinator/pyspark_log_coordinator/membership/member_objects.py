"""Small objects that the members of a group leave for each other beside its journal, without durability.

    <folder of the group>/<member id>.<number>

A member has one object in a folder, and replaces it by one with another number. On several journal nodes a majority
suffices to write and to list. Errors of stores are ignored, because such objects only help.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_storage.stores.store import Store

PATIENCE_MS = 5_000
"""How long a majority of the journal nodes may take to answer."""
BYTES_MAX = 1024 * 1024
"""Of a larger object only this much is read, which its checksum then refuses."""

T = TypeVar("T")
Name = tuple["MemberId", int]


class MemberObjects:
    """The objects in one folder of a group. Used by one thread."""

    def __init__(self, handle: GroupHandle, folder: str, environment: Environment) -> None:
        self._handle = handle
        self._folder = folder
        self._environment = environment
        self._own: dict[MemberId, int] = {}
        """The newest objects of this process."""

    def create(self, member_id: MemberId, number: int, data: bytes) -> bool:
        """Create a member's object, and delete the former one; return whether a store, or a majority, has done so.

        `data` that is not empty needs a checksum.
        """
        former = self._own.get(member_id)
        self._own[member_id] = number

        def write(store: Store) -> None:
            if former == number:
                store.delete(self._key(member_id, number))
            store.create_unflushed(self._key(member_id, number), data)
            if former not in {None, number}:
                store.delete(self._key(member_id, former or 0))

        return bool(self._at_stores(write))

    def names(self) -> set[Name] | None:
        """Return the member ids and numbers of all objects; None if no store answers, or too few."""

        def listed(store: Store) -> list[Name]:
            found = (layout.of_member_object(key.removeprefix(self._folder)) for key in store.list(self._folder))
            return [each for each in found if each is not None]

        answers = self._at_stores(listed)
        return {each for names in answers for each in names} if answers else None

    def read(self, names: Iterable[Name]) -> list[bytes]:
        """Return the objects, as many as can be read, without order."""
        chosen = list(names)

        def read(store: Store) -> list[bytes]:
            found = []
            for name in chosen:
                with contextlib.suppress(LogError):
                    found.append(store.read(self._key(*name), 0, BYTES_MAX))
            return found

        return list({data for found in self._at_stores(read) for data in found}) if chosen else []

    def delete(self, names: Iterable[Name]) -> None:
        """Delete objects, of this process or of others that have left them."""
        chosen = sorted(names)
        for member_id, number in chosen:
            if self._own.get(member_id) == number:
                del self._own[member_id]

        def delete(store: Store) -> None:
            for name in chosen:
                store.delete(self._key(*name))

        if chosen:
            self._at_stores(delete)

    def delete_own(self, member_id: MemberId) -> None:
        """Delete the object of a member of this process, if it has one."""
        if member_id in self._own:
            self.delete([(member_id, self._own[member_id])])

    def _key(self, member_id: MemberId, number: int) -> str:
        return f"{self._folder}{layout.member_object(member_id, number)}"

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
