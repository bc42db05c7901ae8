"""Join requests: many members join at once with few journal entries.

    groups/<journal id>/joins/<member id>.<generation>     envelope b"PLJQ", version 1, body: msgpack JoinRequest

The generation is the one to join. A member that is about to join leaves its request, and waits a moment if others do
the same. The first whose wait is over joins, together with all members whose requests it finds. The others see in the
journal that they have joined. So a rebalance of a hundred members takes some entries instead of a hundred, for which
all would contend.

A request that nobody finds, or that is lost, costs nothing: its member joins by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.group.joining import JoinRequest
from pyspark_log_coordinator.membership.member_objects import MemberObjects
from pyspark_log_storage import layout
from pyspark_log_storage.decoding import decode
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.objects.envelope import seal, unseal

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle

MAGIC = b"PLJQ"
VERSION = 1
TOGETHER_MAX = 500
"""How many requests are taken along at most: an entry has its size."""

_decoder = msgspec.msgpack.Decoder(JoinRequest)


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
