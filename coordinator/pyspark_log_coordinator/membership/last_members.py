"""The last members of a group: a process that is none expires them, if all are dead.

Members expire each other. If all of a group are killed, or are static and stopped, none is left to do so. So a command
that needs an empty group watches the members first, as one of them would: it sees whether they send heartbeats.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_log_coordinator.membership.heartbeats import Heartbeats
from pyspark_log_coordinator.membership.liveness import Liveness
from pyspark_log_storage.errors import UnknownGroup

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle

LOOK_SECONDS = 1.0
"""How long the pauses between two looks are at most."""
LOOKS = 10
"""How many looks there are at least in the shortest session."""
QUIET_SECONDS = 4.0
"""How long nothing is said of the wait: most members that live have sent a heartbeat by then."""

Say = Callable[[int, float], object]
"""Says that the members, so many, are watched for so many seconds."""


def expire_last(handle: GroupHandle, environment: Environment, say: Say) -> None:
    """Remove the members of a group that are silent for their session time-outs, unless one of them shows life.

    Returns as soon as one does, when no member is left, and if no store has answered for the longest time-out. Raises
    `LogError`.
    """
    first = handle.refresh().members
    if not first:
        return
    sessions = [each.details.session_timeout_ms / 1000 for each in first.values()]
    pause = min(LOOK_SECONDS, min(sessions) / LOOKS)
    heartbeats, liveness = Heartbeats(handle, environment), Liveness(2 * pause)
    counts: dict[MemberId, int] | None = None
    begun = listened = environment.monotonic()
    is_said = False
    while members := handle.refresh().members:
        heard = heartbeats.listen()
        if heard is None:
            if environment.monotonic() - listened >= max(sessions):
                return
        else:
            listened = environment.monotonic()
            counts = heard if counts is None else counts
            if any(
                name not in first or each.acted != first[name].acted or heard.get(name, 0) > counts.get(name, 0)
                for name, each in members.items()
            ):
                return
            for command in liveness.hear(handle.state, heard, environment.monotonic()):
                with contextlib.suppress(UnknownGroup):  # it was deleted meanwhile, so it has no member left
                    handle.submit(command)
        if not is_said and environment.monotonic() - begun >= QUIET_SECONDS:
            is_said = True
            say(len(first), max(sessions))
        environment.sleep(pause)
