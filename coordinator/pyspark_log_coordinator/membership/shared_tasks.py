"""Named tasks that a worker shares with the others of its group: the participant of type `connect` (KIP-415).

A worker continues its tasks during a rebalance. It stops tasks that its assignment revokes, and rejoins, so that others
get them. If the leader has scheduled lost tasks for later, it rejoins when that delay is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.group.state import Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import Group, JoinedMember, MemberId


class Runner(Interface):
    """What runs the tasks of a worker. A call that raises is repeated, with the same tasks or others."""

    def start(self, tasks: list[str]) -> None:
        """Start tasks, in alphabetical order."""

    def stop(self, tasks: list[str]) -> None:
        """Stop tasks, and return when they have stopped: others start them next."""


class SharedTasks:
    """The tasks of one worker."""

    protocol_type = connect.PROTOCOL_TYPE

    def __init__(
        self,
        runner: Runner,
        configured: Callable[[], Mapping[str, int]],
        environment: Environment,
        scheduled_rebalance_max_delay_ms: int = connect.SCHEDULED_REBALANCE_MAX_DELAY_MS,
    ) -> None:
        """`configured` returns all tasks, each with the version of the configuration that added it."""
        self._runner = runner
        self._configured = configured
        self._environment = environment
        self._max_delay_ms = scheduled_rebalance_max_delay_ms
        self._work = connect.WorkerState()
        self.running: frozenset[str] = frozenset()
        """The tasks that were started and not stopped."""
        self._shared: Mapping[str, int] = {}
        """The tasks that this worker has shared out as the leader."""
        self._rejoin_at: float | None = None

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        del generation
        return (Protocol(connect.PROTOCOL, b"", connect.encode_state(self._work)),)

    def prepare(self) -> None:
        """Go on with all tasks."""

    def assign(self, group: Group, members: tuple[JoinedMember, ...]) -> Mapping[MemberId, bytes]:
        self._shared = dict(self._configured())
        now = self._environment.now_ms()
        return connect.assign_members(members, self._shared, now, self._max_delay_ms)

    def take(self, group: Group, member_id: MemberId) -> bool:
        assignment = connect.decode_assignment(group.members[member_id].assignment, member_id)
        self._work = connect.after(assignment)
        delay = assignment.delay_ms if group.leader == member_id else 0
        self._rejoin_at = self._environment.monotonic() + delay / 1000 if delay else None
        self._stop(self.running.difference(assignment.tasks))
        if started := set(assignment.tasks) - self.running:
            self._runner.start(sorted(started))
            self.running |= started
        return bool(assignment.revoked)

    def rewound(self, group: Group, since: int) -> None:
        """Do nothing: tasks keep their own offsets."""

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        if group.leader != member_id:
            return False
        return (self._rejoin_at is not None and now >= self._rejoin_at) or dict(self._configured()) != self._shared

    def lose(self) -> None:
        self._work, self._rejoin_at = connect.WorkerState(), None
        self._stop(self.running)

    def _stop(self, tasks: frozenset[str]) -> None:
        if tasks:
            self._runner.stop(sorted(tasks))
            self.running -= tasks
