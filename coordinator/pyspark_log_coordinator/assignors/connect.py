"""The assignor of Kafka Connect (KIP-415): workers share named tasks, and lost tasks wait for their worker to return.

A worker that joins tells which tasks it runs. The leader compares these with all tasks:

    task                                 the leader
    runs on one worker                -> leaves it there, unless that worker has more than its share
    runs nowhere, and is new          -> assigns it
    runs nowhere, as it was revoked   -> assigns it
    runs nowhere otherwise: it is lost -> waits for scheduled.rebalance.max.delay.ms, then assigns it
    runs on two workers, or is deleted -> revokes it

This is the deferred resolution of KIP-415's three designs. While a delay is running, no task moves, and a worker that
returns gets nothing. When it is over, the leader rejoins, and the lost tasks go to the workers that have fewest: to the
one that returned, as it has none, or to the others. A worker revokes a task and rejoins before another one gets it. So
tasks that keep their worker never stop.

The leader remembers nothing. What the next one needs is in every assignment, and comes back with every join: the end of
the delay, and the newest version of the configuration that was assigned, which tells new tasks from lost ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.decoding import decode
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.group.state import JoinedMember

PROTOCOL_TYPE = "connect"
PROTOCOL = "incremental"
SCHEDULED_REBALANCE_MAX_DELAY_MS = 300_000
VERSION = 1
NOTHING_ASSIGNED = -1


class TaskAssignment(msgspec.Struct, frozen=True, array_like=True):
    """What a worker has to do, and, as it joins, what it says of its newest assignment, which it has carried out."""

    tasks: tuple[str, ...] = ()
    """The tasks to run: those that it runs already, and new ones."""
    revoked: tuple[str, ...] = ()
    """The tasks to stop, or that it has stopped. Then the worker rejoins."""
    config_version: int = NOTHING_ASSIGNED
    """The newest version of the configuration of which tasks were assigned."""
    until_ms: int = 0
    """When lost tasks will be assigned, by the clock of the leader; 0 if none are lost."""
    delay_ms: int = 0
    """The same from now on: the leader rejoins when it has waited for this long."""


_assignment = msgspec.msgpack.Decoder(tuple[int, TaskAssignment]).decode


def encode_assignment(assignment: TaskAssignment) -> bytes:
    """Return the bytes that the leader stores for a worker, and with which the worker joins. It has no metadata."""
    return msgspec.msgpack.encode((VERSION, assignment))


def decode_assignment(data: bytes, worker: str) -> TaskAssignment:
    """Return the assignment of a worker, an empty one for no bytes. Raise `CorruptObject` if it is not understood."""
    if not data:
        return TaskAssignment()
    return decode(_assignment, data, f"the assignment of worker {worker!r}", CorruptObject)[1]


def assign_members(
    members: Sequence[JoinedMember], tasks: Mapping[str, int], now_ms: int, max_delay_ms: int
) -> dict[str, bytes]:
    """Return the assignments of a generation, as the leader stores them."""
    workers = {each.member_id: _worker(each) for each in members}
    shares = assign(workers, tasks, now_ms, max_delay_ms)
    return {name: encode_assignment(each) for name, each in shares.items()}


def _worker(member: JoinedMember) -> TaskAssignment:
    """Return what a worker runs. One that is away may not have stopped yet what its assignment revokes."""
    if member.away is None:
        return decode_assignment(member.state, member.member_id)
    last = decode_assignment(member.away, member.member_id)
    return msgspec.structs.replace(last, tasks=(*last.tasks, *last.revoked), revoked=())


def assign(
    workers: Mapping[str, TaskAssignment],
    tasks: Mapping[str, int],
    now_ms: int,
    max_delay_ms: int = SCHEDULED_REBALANCE_MAX_DELAY_MS,
) -> dict[str, TaskAssignment]:
    """Share the `tasks` out. Each comes with the version of the configuration that added it."""
    assert workers, "a group with a leader has members"
    running = _running(workers, tasks)
    stopped = {name: set(state.tasks) - running[name] for name, state in workers.items()}
    free = sorted(tasks.keys() - set().union(*running.values(), *stopped.values()))
    known = max(each.config_version for each in workers.values())
    revoked = set().union(*(each.revoked for each in workers.values()))
    lost = [task for task in free if tasks[task] <= known and task not in revoked]
    wait_until_ms = _delay_end(workers, lost, now_ms, max_delay_ms)
    if wait_until_ms <= now_ms:
        _deal(lost, running)
    _deal([task for task in free if task not in lost], running)
    if wait_until_ms <= now_ms:
        wait_until_ms = 0
        _stop_surplus(running, stopped)
    version = max(known, *tasks.values()) if tasks else known
    return {
        name: TaskAssignment(
            tuple(sorted(running[name])),
            tuple(sorted(stopped[name])),
            version,
            wait_until_ms,
            max(0, wait_until_ms - now_ms),
        )
        for name in workers
    }


def _running(workers: Mapping[str, TaskAssignment], tasks: Mapping[str, int]) -> dict[str, set[str]]:
    """Return the tasks that may stay where they are: on one worker, and not deleted."""
    claims: dict[str, int] = {}
    for state in workers.values():
        for task in state.tasks:
            claims[task] = claims.get(task, 0) + 1
    return {
        name: {task for task in state.tasks if task in tasks and claims[task] == 1} for name, state in workers.items()
    }


def _delay_end(workers: Mapping[str, TaskAssignment], lost: Sequence[str], now_ms: int, max_delay_ms: int) -> int:
    """Return when lost tasks are assigned: at the end of the delay that is running, or of a new one."""
    if not lost:
        return 0
    running = max(each.until_ms for each in workers.values())
    # Another worker may have set it, whose clock differs: no delay is longer than the maximum.
    return min(running, now_ms + max_delay_ms) if running else now_ms + max_delay_ms


def _deal(tasks: Sequence[str], running: Mapping[str, set[str]]) -> None:
    """Give each task to the worker that has fewest; of equals, to one that had none, as a worker that has returned."""
    idle = {name for name, share in running.items() if not share}
    for task in tasks:
        taker = min(running, key=lambda name: (len(running[name]), name not in idle, name))
        running[taker].add(task)


def _stop_surplus(running: Mapping[str, set[str]], stopped: Mapping[str, set[str]]) -> None:
    """Stop what a worker has more than its share. It is assigned to others when the worker has rejoined.

    No task that was dealt out just now is stopped: only a worker with fewest got one.
    """
    share, remainder = divmod(sum(map(len, running.values())), len(running))
    for index, name in enumerate(sorted(running, key=lambda name: (-len(running[name]), name))):
        count = len(running[name]) - (share + (index < remainder))
        surplus = sorted(running[name])[::-1][: max(0, count)]
        running[name].difference_update(surplus)
        stopped[name].update(surplus)
