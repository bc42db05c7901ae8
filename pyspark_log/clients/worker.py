"""The Python `Worker`: shares named tasks with the other workers of its group, as the workers of Kafka Connect do."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pyspark_log.clients.own_lock import Busy, Client, Closed, OwnTurn
from pyspark_log.clients.records import address_of, seconds_of
from pyspark_log.opening import own_log
from pyspark_log.options.clients import WorkerOptions
from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.group.state import Protocol
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.latch import Latch
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.names import check_group

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import Group, JoinedMember, MemberId

_CLOSE_SECONDS = 0.005
"""How often `close` looks whether another thread has ended its call."""

Tasks: TypeAlias = "Mapping[str, int] | Iterable[str]"


class TaskRunner:
    """Give an object of a subclass to a `Worker`, whose `poll` and `close` call the methods.

    If a method raises, so does that call, and the next one repeats it. The names are sorted.
    """

    def start(self, tasks: list[str]) -> None:
        """Start tasks that the worker got. No other worker runs them."""

    def stop(self, tasks: list[str]) -> None:
        """Stop tasks, and return when they have stopped: another worker may start them then."""


class SharedTasks:
    """The tasks of one worker: the participant of type `connect` (KIP-415).

    A worker continues its tasks during a rebalance. It stops tasks that its assignment revokes, and rejoins, so that
    others get them. If the leader has scheduled lost tasks for later, it rejoins when that delay is over.
    """

    protocol_type = connect.PROTOCOL_TYPE

    def __init__(
        self,
        runner: TaskRunner,
        configured: Callable[[], Mapping[str, int]],
        environment: Environment,
        scheduled_rebalance_max_delay_ms: int = connect.SCHEDULED_REBALANCE_MAX_DELAY_MS,
    ) -> None:
        """`configured` returns all tasks, each with the version of the configuration that added it."""
        self._runner = runner
        self._configured = configured
        self._environment = environment
        self._max_delay_ms = scheduled_rebalance_max_delay_ms
        self._work = connect.TaskAssignment()
        self.running: frozenset[str] = frozenset()
        """The tasks that were started and not stopped."""
        self._shared: Mapping[str, int] = {}
        """The tasks that this worker has shared out as the leader."""
        self._rejoin_at: float | None = None

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        del generation
        return (Protocol(connect.PROTOCOL, b"", connect.encode_assignment(self._work)),)

    def prepare(self) -> None:
        """Go on with all tasks."""

    def assign(self, group: Group, members: tuple[JoinedMember, ...]) -> Mapping[MemberId, bytes]:
        self._shared = dict(self._configured())
        now = self._environment.now_ms()
        return connect.assign_members(members, self._shared, now, self._max_delay_ms)

    def take(self, group: Group, member_id: MemberId) -> bool:
        assignment = connect.decode_assignment(group.members[member_id].assignment, member_id)
        # Until tasks have stopped it says that it runs them: else others would start them.
        claimed = tuple(sorted({*assignment.tasks, *self.running}))
        self._work = msgspec.structs.replace(assignment, tasks=claimed, revoked=())
        delay = assignment.delay_ms if group.leader == member_id else 0
        self._rejoin_at = self._environment.monotonic() + delay / 1000 if delay else None
        self._stop(self.running.difference(assignment.tasks))
        self._work = assignment
        if started := set(assignment.tasks) - self.running:
            self._runner.start(sorted(started))
            self.running |= started
        return bool(assignment.revoked)

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        if group.leader != member_id:
            return False
        return (self._rejoin_at is not None and now >= self._rejoin_at) or dict(self._configured()) != self._shared

    def lose(self) -> None:
        self._work, self._rejoin_at = connect.TaskAssignment(), None
        self._stop(self.running)

    def _stop(self, tasks: frozenset[str]) -> None:
        if tasks:
            self._runner.stop(sorted(tasks))
            self.running -= tasks


class Worker(Client):
    """A member of a group that shares named tasks, such as files to tail or tables to copy.

        class Copies(TaskRunner):
            def start(self, tasks): ...
            def stop(self, tasks): ...

        with Worker("/data/log", "copies", ["orders", "flights"], Copies()) as worker:
            worker.run()

    Each task runs in one worker of the group. If a worker joins, the others stop only the tasks that it gets. If one is
    gone, its tasks wait `scheduled.rebalance.max.delay.ms` (5 minutes) for it to return; then the others get them
    (KIP-415). A worker that was suspended for longer than its session may still run a task that another one has
    started: nothing but `stop` ends a task. Tasks keep what they have done by themselves, for example as the committed
    offsets of a group of their own.

    `tasks` are the names of all tasks of the group, the same in each worker, or a function that returns them and is
    called again and again: tasks may come and go. A dict also says since which version of the configuration each task
    exists, a number that grows with each change: new tasks then start at once. Without it, a new task looks the same
    as one whose worker is gone, and waits as long.

    A Worker is for one thread at a time, except `close`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group_id: str,
        tasks: Tasks | Callable[[], Tasks],
        runner: TaskRunner,
        config: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        """Take the address of a cluster and options by name, as a dict or with `_` for `.`.

        Reads nothing yet. docs/reference/options.md lists the options. Raises `InvalidOption`, `InvalidInput`.
        """
        address = address_of(path, config, "tasks are the third argument")
        parsed = WorkerOptions.parse(config, options)
        check_group(group_id)
        self._tasks = tasks
        configured = self._configured()
        log = own_log(address, parsed.storage_options)
        self._shared = SharedTasks(
            runner,
            self._configured if callable(tasks) else lambda: configured,
            log.environment,
            parsed.scheduled_rebalance_max_delay_ms,
        )
        self._member = GroupMember(Session(log, group_id, parsed.member), self._shared)
        self._thread = MemberThread(self._member.stay)
        weakref.finalize(self, self._thread.stop)
        self._turn = OwnTurn("Worker")
        self._is_left = False
        self._closed = Latch()

    @property
    def tasks(self) -> frozenset[str]:
        """Return the tasks that run in this worker."""
        return self._shared.running

    def poll(self, timeout_ms: float = 0) -> frozenset[str]:
        """Do what is due for `timeout_ms`: join, start and stop tasks; return those that run.

        Call it at least once in `max.poll.interval.ms`. Raises `FencedInstance` if another process has this one's
        `group.instance.id`, `NoCluster`, `LogError`, and what the runner raises. If a store does not answer, it tries
        again.
        """
        seconds = seconds_of(timeout_ms)
        if self._turn.is_mine():
            raise InvalidInput("a TaskRunner cannot poll, nor can a signal handler; return, and poll afterwards")
        if self._closed.is_set():
            raise Closed("this Worker is closed; make a new one")
        try:
            return self._turn.take(partial(self._poll, seconds))
        except Busy:
            raise InvalidInput("this Worker is in use by another thread; use one Worker for each thread") from None
        finally:
            if self._closed.is_set():  # looked at after the turn: `close` leaves it to whoever has the turn
                with contextlib.suppress(Busy):
                    self._turn.take(self._leave)

    def run(self) -> None:
        """Poll until the worker is closed, by another thread or by its runner. Raises what `poll` raises."""
        while not self._closed.is_set():
            with contextlib.suppress(Closed):
                self.poll(timeout_ms=1000)

    def _poll(self, seconds: float) -> frozenset[str]:
        self._thread.start()
        deadline = monotonic() + seconds
        while True:
            self._member.poll()
            left = deadline - monotonic()
            if left <= 0 or self._closed.wait(min(self._member.pause(), left)):
                return self.tasks

    def close(self) -> None:
        """Stop all tasks and leave the group, unless the worker is a static member. For any thread.

        If another thread polls, it does so, and this call waits for it. Called by the runner, it happens after `poll`.
        """
        self._closed.set()
        while not self._turn.is_mine():  # else the call that this one is in the middle of does it
            try:
                self._turn.take(self._leave)
            except Busy:
                sleep(_CLOSE_SECONDS)
            else:
                return

    def _leave(self) -> None:
        if self._is_left:
            return
        self._shared.lose()
        self._is_left = True
        self._thread.stop()
        self._member.leave()

    def _configured(self) -> dict[str, int]:
        given = self._tasks() if callable(self._tasks) else self._tasks
        if not isinstance(given, str):
            found = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, 0)
            if all(isinstance(name, str) and type(version) is int for name, version in found.items()):
                return found
        raise InvalidInput(f"the tasks are {given!r}; give their names, or a dict with the version of each, an int")
