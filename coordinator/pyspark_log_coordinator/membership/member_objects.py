"""Small objects that the members of a group leave for each other beside its journal, without durability.

    groups/<journal id>/heartbeats/<member id>.<counter>   an empty object
    groups/<journal id>/joins/<member id>.<generation>     envelope b"PLJQ", version 1, body: msgpack JoinRequest

A member has one object in a folder, and replaces it by one with another number. On several journal nodes a majority
suffices to write and to list. Errors of stores are ignored, because such objects only help.

**Heartbeats.** One listing finds those of all members. Nothing but liveness depends on them.

**Join requests.** Many members join at once with few journal entries. A member that is about to join leaves its
request for that generation, and waits a moment if others do the same. The first whose wait is over joins, together with
all members whose requests it finds. The others see in the journal that they have joined. So a rebalance of a hundred
members takes some entries instead of a hundred, for which all would contend. A request that nobody finds, or that is
lost, costs nothing: its member joins by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_coordinator.group.joining import JoinRequest
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_storage import layout
from pyspark_log_storage.decoding import decode
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.objects.envelope import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_storage.stores.store import Store

PATIENCE_MS = 5_000
"""How long a majority of the journal nodes may take to answer."""
BYTES_MAX = 1024 * 1024
"""Of a larger object only this much is read, which its checksum then refuses."""
TOGETHER_MAX = 500
"""How many requests are taken along at most: an entry has its size."""
MAGIC = b"PLJQ"
VERSION = 1
_decoder = msgspec.msgpack.Decoder(JoinRequest)

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


class Heartbeats:
    """The heartbeats of one group. Used by one thread."""

    def __init__(self, handle: GroupHandle, environment: Environment) -> None:
        self._objects = MemberObjects(handle, layout.heartbeats(handle.journal_id), environment)
        self._counts: dict[MemberId, int] = {}
        """The newest heartbeats of this process."""

    def beat(self, member_id: MemberId) -> bool:
        """Send a heartbeat. Return whether a store, or a majority, has taken it."""
        count = self._counts[member_id] = self._counts.get(member_id, 0) + 1
        return self._objects.create(member_id, count, b"")

    def end(self, member_id: MemberId) -> None:
        """Delete the heartbeat of a member of this process, which has left."""
        count = self._counts.pop(member_id, 0)
        if count:
            self._objects.delete([(member_id, count)])

    def listen(self) -> dict[MemberId, int] | None:
        """Return the newest counter of each member; None if no store answers, or too few."""
        found = self._objects.names()
        if found is None:
            return None
        newest: dict[MemberId, int] = {}
        for member_id, count in found:
            newest[member_id] = max(count, newest.get(member_id, 0))
        return newest

    def delete_left_over(self, members: Collection[MemberId]) -> int:
        """Delete the heartbeats of processes that are no members any more, and return how many."""
        gone = [each for each in self._objects.names() or () if each[0] not in members]
        self._objects.delete(gone)
        return len(gone)


def encode_request(request: JoinRequest) -> bytes:
    """Return the stored bytes."""
    return seal(MAGIC, VERSION, msgspec.msgpack.encode(request))


def decode_request(data: bytes, name: str) -> JoinRequest:
    """Return a stored request. Raises `CorruptObject`, `NewerFormat`."""
    return decode(_decoder.decode, unseal(MAGIC, VERSION, data, name), name)


class JoinRequests:
    """The requests of one group. Used by one thread."""

    def __init__(self, handle: GroupHandle, environment: Environment) -> None:
        self._objects = MemberObjects(handle, layout.join_requests(handle.journal_id), environment)

    def post(self, request: JoinRequest) -> int:
        """Leave a request, and return how many others there are for the same generation."""
        member_id = request.join.member.member_id
        self._objects.create(member_id, request.generation + 1, encode_request(request))
        return sum(number == request.generation + 1 for _, number in self._objects.names() or ()) - 1

    def others(self, member_id: MemberId, generation: int) -> tuple[JoinRequest, ...]:
        """Return the requests of others to join after this generation; delete those that are void."""
        found = sorted(self._objects.names() or ())
        self._objects.delete(each for each in found if each[1] <= generation)
        wanted = [each for each in found if each[1] == generation + 1 and each[0] != member_id][:TOGETHER_MAX]
        requests = []
        for data in self._objects.read(wanted):
            with contextlib.suppress(LogError):
                requests.append(decode_request(data, "a join request"))
        return tuple(sorted(requests, key=lambda each: each.join.member.member_id))

    def withdraw(self, member_id: MemberId) -> None:
        """Delete the request of a member of this process, if there is one."""
        self._objects.delete_own(member_id)

    def delete_void(self, generation: int) -> int:
        """Delete all requests to join a generation that has begun, and return how many."""
        void = [each for each in self._objects.names() or () if each[1] <= generation]
        self._objects.delete(void)
        return len(void)
