"""The thread that keeps a query a member of its group, also while a long micro-batch runs."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Protocol

from pyspark_log_storage import logs

if TYPE_CHECKING:
    import weakref

    from pyspark_log_coordinator.membership.group_member import GroupMember

SHORTEST_PAUSE, LONGEST_JOIN_PAUSE = 0.005, 0.02
"""In seconds. The second is for a query that waits for its place in the group."""


class Actor(Protocol):
    """What the thread keeps alive."""

    def act(self) -> float | None:
        """Do what is due; return after how many seconds there is more to do, None if there never is."""


def pause_of(member: GroupMember) -> float:
    """Return how long a query that waits for its place in the group does nothing, in seconds."""
    return min(max(member.pause(), SHORTEST_PAUSE), LONGEST_JOIN_PAUSE)


def start(reference: weakref.ref[Actor], woken: threading.Event) -> None:
    """Start the thread. `woken` ends its pauses."""
    target = functools.partial(_run, reference, woken)
    threading.Thread(target=target, name="pyspark_log query member", daemon=True).start()


def _run(reference: weakref.ref[Actor], woken: threading.Event) -> None:
    """Keep a query a member, as long as it exists."""
    while (member := reference()) is not None:
        woken.clear()
        try:
            pause = member.act()
        except BaseException:  # the thread must live for the next heartbeat
            logs.exception("a query's member of a group failed, and tries again")
            pause = 1.0
        if pause is None:
            return
        del member
        woken.wait(max(pause, SHORTEST_PAUSE))
