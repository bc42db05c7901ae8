"""A member's session: how it watches its group, sends heartbeats, and notices members that have failed.

Once in a heartbeat interval a member sends a heartbeat, lists those of all members, and looks for the next entry of the
group's journal. This can be done by a thread of its own (`keep_alive`) while the member works. In a rebalance, and for
some seconds after it, the member also looks more often (`look`). Commits, and everything else that it writes, count as
heartbeats too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.membership.heartbeats import Heartbeats
from pyspark_log_coordinator.membership.liveness import Liveness
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.group import machine as group
    from pyspark_log_coordinator.group.config import MemberSettings
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.journal.state_machine import Outcome
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log

INTERVAL_SHARE = (0.85, 0.95)
"""A member beats after this share of heartbeat.interval.ms, so that all have seen a change within the interval, and do
not act in step."""
GAP_INTERVALS, GAP_SECONDS = 2, 3.0
"""Of a gap between two looks, so many intervals count as time that was observed; of longer intervals, one and so many
seconds more."""
AGAIN_SECONDS = 3.0
"""How soon a member tries again that could not send a heartbeat."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.020
"""Between two looks in a rebalance, in seconds. Afterwards the pauses grow to the heartbeat interval."""
REFRESH_INTERVALS = 10
"""After so many intervals a member refreshes the journal although its looks found nothing."""
PAUSE_SHARE = 8
"""A pause is this part of the time since the last rebalance changed: one rebalance often leads to another."""
PATIENCE_SECONDS = (0.1, 1.0)
"""How much longer than the first member the others wait before they end a wait, so that not all do it at once."""


class Session:
    """The group of one process, for any number of its threads. Opening it reads the journal."""

    def __init__(self, log: Log, group_id: str, settings: MemberSettings) -> None:
        """`log` is used by nobody else. Reads nothing yet."""
        self._log = log
        self.environment = log.environment
        self.group_id = group_id
        self.settings = settings
        self.interval = settings.interval_ms(is_remote=log.is_remote) / 1000
        """heartbeat.interval.ms, in seconds."""
        self.lock = threading.RLock()
        """Held while a thread reads or writes: what it has submitted, and what it makes of that, is one step."""
        self._handle: GroupHandle | None = None
        self._heartbeats: Heartbeats | None = None
        self._liveness = Liveness(min(GAP_INTERVALS * self.interval, self.interval + GAP_SECONDS))
        self._patience = self.environment.uniform(*PATIENCE_SECONDS)
        self._member_id: MemberId | None = None
        self.group = Group()
        """The newest state that is known."""
        self._changed = self._looked = -float("inf")
        self._due = 0.0
        """When to beat, look and listen next."""
        self.beaten: float | None = None
        """When the member has shown last that it is alive."""
        self.longest_silence = 0.0
        """The longest time between two heartbeats, in seconds, since the member joined."""

    def open(self) -> GroupHandle:
        """Return the handle of the group, which is created if it does not exist. Raises `LogError`."""
        with self.lock:
            if self._handle is None:
                self._log.open(create=False)
                handle = self._log.group(self.group_id, create=True)
                self._heartbeats = Heartbeats(handle, self.environment)
                self._handle = handle
                self._note(handle.journal.state)
            return self._handle

    def refresh(self, *, create: bool = False) -> Group:
        """Read everything that is new in the journal. Raises `LogError`, `UnknownGroup` unless `create`."""
        with self.lock:
            self._looked = self.environment.monotonic()
            handle = self.open()
            self._note(handle.refresh())
            if create:
                self._note(handle.alive(create=True))
            return self.group

    def submit(self, command: group.Command) -> Outcome[Group]:
        """Carry out a command of the member. Raises `LogError`; the newest state is known afterwards, if it can be."""
        with self.lock:
            handle = self.open()
            self._log.check_root()
            try:
                outcome = handle.submit(command)
            finally:
                self._note(handle.journal.state)
            if outcome.events:
                self._show_life(self.environment.monotonic())
            return outcome

    def begin(self, member_id: MemberId) -> None:
        """Beat for this member from now on."""
        with self.lock:
            self._member_id = member_id
            self.beaten, self.longest_silence = self.environment.monotonic(), 0.0
            self._due = self.beaten + self.interval * self.environment.uniform(0.0, 1.0)

    def end(self) -> None:
        """Beat no longer."""
        with self.lock:
            if self._member_id is not None and self._heartbeats is not None:
                self._heartbeats.end(self._member_id)
            self._member_id = None

    def pause(self) -> float:
        """Return after how many seconds the next call of `look` or `keep_alive` has something to do."""
        now = self.environment.monotonic()
        return max(0.0, min(self.until_heartbeat(), self._looked + self._look_pause(now) - now))

    def until_heartbeat(self) -> float:
        """Return after how many seconds the next heartbeat is due."""
        if self._member_id is None:
            return self.interval
        return max(0.0, self._due - self.environment.monotonic())

    def look(self) -> None:
        """Look for changes, often in a rebalance, and end one that has waited long enough. Raises `LogError`."""
        with self.lock:
            now = self.environment.monotonic()
            if now - self._looked >= self._look_pause(now):
                self._look(now)

    def keep_alive(self) -> None:
        """Beat if that is due, and look at the journal and the other members. Raises `LogError`."""
        with self.lock:
            now = self.environment.monotonic()
            if self._member_id is None or now < self._due or self._heartbeats is None:
                return
            pause = self.interval * self.environment.uniform(*INTERVAL_SHARE)
            self._due = now + min(pause, AGAIN_SECONDS)  # if this fails
            is_beaten = self.beaten is not None and now - self.beaten < self.interval / 2
            if not is_beaten and self._heartbeats.beat(self._member_id):
                is_beaten = True
                self._show_life(now)
            self._look(now)
            heard = self._heartbeats.listen()
            if heard is None:
                return
            if is_beaten:
                self._due = now + pause
            for command in self._liveness.hear(self.group, heard, self.environment.monotonic()):
                if command.member_id != self._member_id:
                    self._end_wait(command)
            self._due = min(self._due, now + self._liveness.until_expiry(self.group, self._member_id))
            if self.group.leader == self._member_id and not heard.keys() <= self.group.members.keys():
                self._heartbeats.delete_left_over(self.group.members)

    def _look(self, now: float) -> None:
        handle = self.open()
        self._looked = now
        self._note(handle.refresh(polls=True, seconds=REFRESH_INTERVALS * self.interval))
        is_first = next(iter(self.group.members), None) == self._member_id
        command = self._liveness.watch(self.group, now, 0.0 if is_first else self._patience)
        if command is not None:
            self._end_wait(command)

    def _end_wait(self, command: group.Command) -> None:
        """Submit what time has brought about. If it is refused, somebody was faster."""
        handle = self.open()
        try:
            handle.submit(command)
        except LogError as error:
            if error.retriable:
                raise
        finally:
            self._note(handle.journal.state)

    def _note(self, state: Group) -> None:
        known, self.group = self.group, state
        if (known.generation, known.barriers, known.state) != (state.generation, state.barriers, state.state):
            self._changed = self.environment.monotonic()

    def silence(self) -> float:
        """Return the longest time, in seconds, for which the member has sent no heartbeat."""
        if self.beaten is None:
            return self.longest_silence
        return max(self.longest_silence, self.environment.monotonic() - self.beaten)

    def _show_life(self, now: float) -> None:
        if self.beaten is not None:
            self.longest_silence = max(self.longest_silence, now - self.beaten)
        self.beaten = now

    def _look_pause(self, now: float) -> float:
        is_rebalancing = self.group.state in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}
        longest = LONGEST_PAUSE if is_rebalancing else self.interval
        return min(max((now - self._changed) / PAUSE_SHARE, SHORTEST_PAUSE), longest)
