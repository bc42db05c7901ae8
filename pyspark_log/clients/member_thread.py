"""The thread of a client that is a member of a group: it stays a member while the program works.

It sends heartbeats, looks for other members that have failed, carries out asynchronous commits, and leaves the group if
`poll` was not called for `max.poll.interval.ms`. It takes no part in rebalances: `poll` does.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log.clients.commits import Commits
    from pyspark_log_coordinator.membership.group_member import GroupMember

SHORTEST_PAUSE = 0.05


class MemberThread:
    """The thread. It starts with its first use. It keeps nothing alive, so that a forgotten client is deleted."""

    def __init__(self, commits: Commits | None = None) -> None:
        self._commits = None if commits is None else weakref.ref(commits)
        self._member: weakref.ref[GroupMember] | None = None
        self._is_stopped = False
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, member: GroupMember | None) -> None:
        """Keep the process a member by this, or none."""
        self._member = None if member is None else weakref.ref(member)
        self._start()

    def wake(self) -> None:
        """Carry out the commits that wait."""
        self._start()
        self._woken.set()

    def stop(self) -> None:
        """End the thread soon. A member that was not left is expired after its session time-out."""
        self._is_stopped = True
        self._woken.set()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyspark_log member", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped:
            self._woken.clear()
            pause = None
            try:
                pause = self._work()
            except LogError as error:
                logs.warning("a member of a group could not send a heartbeat, and tries again: %(error)s", error=error)
                pause = 1.0
            except BaseException:  # the thread must live for the next heartbeat
                logs.exception("a member of a group could not send a heartbeat")
                pause = 1.0
            self._woken.wait(pause)

    def _work(self) -> float | None:
        """Do what is due, and return after how many seconds there is more to do; None: when it is woken."""
        kept = self._member
        commits = None if self._commits is None else self._commits()
        if commits is not None:
            commits.carry_out()
        member = None if kept is None else kept()
        if member is None:
            return None
        member.stay()
        return max(member.until_due(), SHORTEST_PAUSE)
