"""A member of a group: carries out its next steps. Any process becomes one, for work of any protocol type.

    member = GroupMember(Session(log, group_id, settings), participant)
    while True:
        member.poll()            joins, assigns, takes, rejoins: whatever is next. It waits for nothing
        ...                      work for `member.generation`, for up to max.poll.interval.ms
        member.commit(...)       commits offsets
    member.leave()

A process with one thread needs nothing else. `stay` may be called by a second thread meanwhile, so that long work does
not end the session.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn
from typing import Protocol as Interface

import msgspec

from pyspark_log_coordinator.group.fencing import check_member
from pyspark_log_coordinator.group.joining import JoinGroup, LeaveGroup
from pyspark_log_coordinator.group.offsets import OffsetCommit
from pyspark_log_coordinator.group.rebalance import SyncGroup
from pyspark_log_coordinator.group.state import GroupState, MemberDetails, joined_members
from pyspark_log_coordinator.membership.next_step import (
    Standing,
    Step,
    after_join,
    after_loss,
    after_take,
    has_joined_newer,
    has_missed_a_join,
    next_step,
)
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    FencedInstance,
    IllegalGeneration,
    InvalidInput,
    LogError,
    MemberError,
    OutcomeUnknown,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.group.offsets import NewOffsets
    from pyspark_log_coordinator.group.state import Group, JoinedMember, MemberId, Protocol
    from pyspark_log_coordinator.membership.session import Session

NEWS_SECONDS = 5.0
"""How often a working member asks whether the work has to be assigned anew; its settings may have a longer time."""
BACKOFF_SECONDS = 0.1
"""How long a member waits after a store did not answer."""
SHORTEST_STAY = 0.05
"""The shortest time between two calls of `stay`, in seconds."""


class Participant(Interface):
    """What a group shares: the part of a member that depends on the protocol type.

    `shared_partitions` has the participant of consumers. A program may have one of its own, for any work that processes
    share or for the election of a leader: the group stores the metadata of its members, and the assignments, as bytes.
    All methods are called by the thread that calls `GroupMember.poll`.

    Source: the hooks of Kafka's `AbstractCoordinator` (metadata, onJoinPrepare, onLeaderElected, onJoinComplete,
    rejoinNeededOrPending, onLeavePrepare).
    """

    protocol_type: str
    """Members of a group have the same."""

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        """Return what the member says as it joins, the preferred protocol first.

        `generation` is the one whose assignment it has taken last, -1 if none.
        """

    def prepare(self) -> None:
        """Give up, before the member joins, what another member may get. It can still be committed."""

    def assign(self, group: Group, members: tuple[JoinedMember, ...]) -> Mapping[MemberId, bytes]:
        """Return the assignments of the generation, as its leader."""

    def take(self, group: Group, member_id: MemberId) -> bool:
        """Take the member's assignment, and return whether it has to rejoin, because it has given something up."""

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        """Return whether the work has to be assigned anew. Called while it works; `now` is in monotonic seconds."""

    def lose(self) -> None:
        """Drop everything: the member was removed, and others may have its work. Nothing can be committed."""


class GroupMember:
    """A member, driven by one thread. A second one may call `stay`."""

    def __init__(self, session: Session, participant: Participant) -> None:
        """Do nothing yet: the first `poll` joins."""
        self.session = session
        self._participant = participant
        self._settings = session.settings
        self._environment = session.environment
        self._standing = self._new_standing()
        self._is_prepared = False
        """Whether the participant has given up what others may get, and the member has not joined since."""
        self._has_news = self._is_changed = False
        self._asked = self._resting_until = -float("inf")
        self._polled: float | None = None
        self.dropped = ""
        """Why the member has left by itself, until `poll` joins again."""
        self._fenced: FencedInstance | None = None

    @property
    def member_id(self) -> str:
        """Return the member id, made anew after each loss."""
        return self._standing.member_id

    @property
    def generation(self) -> int:
        """Return the generation whose assignment the member has taken, -1 if none."""
        return self._standing.generation

    @property
    def is_working(self) -> bool:
        """Return whether the member has the assignment of the newest known generation."""
        return (
            self.session.group.state is GroupState.STABLE and self._standing.generation == self.session.group.generation
        )

    def poll(self) -> None:
        """Carry out all steps that are due.

        Raises `FencedInstance` if another process has taken the member's place, `InconsistentProtocol`,
        `InvalidOption`, and what the participant raises. Errors of a store that may answer later are logged.
        """
        now = self._polled = self._environment.monotonic()
        if self._fenced is not None:
            raise self._fenced
        if now < self._resting_until:
            return
        try:
            self.session.open()
            if self.dropped:
                self._lose()
            self.session.keep_alive()
            self.session.look()
            while self._go_on():
                pass
        except LogError as error:
            if not (error.retriable or isinstance(error, OutcomeUnknown)):
                raise
            self._resting_until = self._environment.monotonic() + BACKOFF_SECONDS
            self._warn(f"tries again: {error}")

    def pause(self) -> float:
        """Return after how many seconds `poll` has something to do again, if nothing else happens."""
        now = self._environment.monotonic()
        if now < self._resting_until:
            return self._resting_until - now
        return self.session.pause()

    def rejoin(self) -> None:
        """Join again at the next `poll`: the member wants something else than when it joined."""
        self._has_news = self._is_changed = True

    def offset_commit(self, offsets: NewOffsets) -> OffsetCommit:
        """Return the commit of offsets for the generation whose assignment was taken."""
        mine = self._standing
        return OffsetCommit(offsets, mine.member_id, mine.generation, mine.instance_id)

    def carry_out(self, command: OffsetCommit) -> Group:
        """Commit, and return the group after that.

        Raises `UnknownMember`, `IllegalGeneration`, `FencedInstance`, `RebalanceInProgress`: nothing was committed, and
        the next `poll` finds out what the member has now. After `RebalanceInProgress` a member that is cooperative
        still has most of it, and commits that then. Raises `LogError`.
        """
        try:
            return self.session.submit(command).state
        except IllegalGeneration as error:
            if has_joined_newer(self.session.group, self._standing, command):
                raise _in_a_rebalance(error) from None
            raise
        except UnknownGroup as error:
            raise UnknownMember(error.group, command.member_id, error.message) from None
        except UnknownMember as error:
            why = self._why_removed()
            if not why:
                raise
            raise UnknownMember(error.group, error.member, f"{error.message} ({why})") from None

    def commit(self, offsets: NewOffsets) -> Group:
        """Commit offsets for the generation whose assignment was taken. Raises as `carry_out`."""
        return self.carry_out(self.offset_commit(offsets))

    def _why_removed(self) -> str:
        """Return why this process believes that it was removed, empty if it does not know."""
        return self.dropped or _silent(self.session.silence(), self._settings.session_timeout_ms)

    def stay(self) -> float:
        """Send a heartbeat if one is due, and return after how many seconds to call this again; for a second thread.

        Raises `LogError`. A member that was not polled for max.poll.interval.ms leaves instead, so that others get its
        work. A static member falls silent, and is expired after its session time-out.
        """
        standing, longest = self._standing, self._settings.max_poll_interval_ms
        if self.dropped or self._polled is None:
            return self.session.interval
        idle = self._environment.monotonic() - self._polled
        if idle * 1000 < longest:
            self.session.keep_alive()
        elif not self._settings.instance_id:
            self.dropped = _not_polled(idle, longest)
            self._warn(f"leaves: {self.dropped}")
            self._leave(standing)
            return self.session.interval
        late = self._polled + longest / 1000 - self._environment.monotonic()
        return max(min(self.session.until_heartbeat(), late), SHORTEST_STAY) if late > 0 else 1.0

    def leave(self) -> None:
        """Leave the group, unless the member is static: then another process may take its place.

        If a store does not answer, that is logged, and the member is expired after its session time-out.
        """
        try:
            if not self._standing.is_member and self._is_prepared:
                self.session.refresh()  # the answer to its join may have been lost
            is_member = self._standing.is_member or self.member_id in self.session.group.members
            if is_member and not self.dropped and not self._settings.instance_id:
                self._leave(self._standing)
        except LogError as error:
            message = "leaving group %(group)r failed, and its session will expire: %(error)s"
            logs.warning(message, group=self.session.group_id, error=error)
        finally:
            self.session.end()
            self._standing, self._is_prepared = self._new_standing(), False

    def _warn(self, what: str) -> None:
        message = "member %(member)r of group %(group)r %(what)s"
        logs.warning(message, member=self.member_id, group=self.session.group_id, what=what)

    def _leave(self, standing: Standing) -> None:
        with contextlib.suppress(MemberError, UnknownGroup):
            self.session.submit(LeaveGroup(standing.member_id, standing.instance_id))

    def _go_on(self) -> bool:
        """Carry out the next step, and return whether there may be another one."""
        group = self.session.group
        if not self._standing.is_member and self.member_id in group.members:
            self.session.begin(self.member_id)
            self._standing = msgspec.structs.replace(self._standing, is_member=True)  # the answer to the join was lost
        step = next_step(group, self._standing, has_news=self._has_news or self._wants_rebalance(group))
        match step:
            case Step.START:
                self.session.refresh(create=True)
            case Step.JOIN:
                return self._join(group)
            case Step.ASSIGN:
                self._assign(group)
            case Step.TAKE:
                self._take(group)
            case Step.LOST:
                self._lose()
            case Step.FENCED:
                self._fail()
            case Step.WAIT | Step.WORK:
                return False
        return True

    def _wants_rebalance(self, group: Group) -> bool:
        """Ask the participant now and then, while it works."""
        now = self._environment.monotonic()
        if not self.is_working or now - self._asked < max(NEWS_SECONDS, self._settings.news_seconds):
            return False
        self._asked = now
        self._has_news = self._participant.wants_rebalance(group, self.member_id, now)
        return self._has_news

    def _join(self, group: Group) -> bool:
        """Join, after the participant has given up what others may get; return whether there may be another step."""
        if not self._is_prepared:
            if has_missed_a_join(group, self._standing):
                self._participant.lose()
                self._standing = after_loss(self._standing)
            self._participant.prepare()
            self._is_prepared = True
        standing = self._standing
        self._is_changed = False
        details = MemberDetails(
            standing.member_id,
            self._participant.protocols(standing.generation),
            standing.instance_id,
            self._settings.session_timeout_ms,
            self._settings.max_poll_interval_ms,
            self._settings.client_id,
            self._settings.host,
        )
        command = JoinGroup(details, self._participant.protocol_type, standing.is_member)
        try:
            # A commit in another thread that sees the group after the join also sees what is known of the join.
            with self.session.lock:
                self._standing = after_join(self.session.submit(command).state, standing)
        except FencedInstance:
            self._fail()
        except (MemberError, UnknownGroup):
            return True  # what the group is now says what comes next
        except InvalidInput:
            self._is_prepared = False
            raise
        if not standing.is_member:
            self.session.begin(standing.member_id)
        self._has_news, self._is_prepared = self._is_changed, False
        return True

    def _assign(self, group: Group) -> None:
        work = dict(self._participant.assign(group, joined_members(group)))
        command = SyncGroup(self.member_id, group.generation, work, self._settings.instance_id)
        with contextlib.suppress(MemberError, UnknownGroup):
            self.session.submit(command)

    def _take(self, group: Group) -> None:
        missed = has_missed_a_join(group, self._standing)
        if missed:
            self._participant.lose()
        before, self._standing = self._standing, after_take(group, self._standing)
        try:
            self._asked = self._environment.monotonic()
            self._is_prepared = False
            gave_up = self._participant.take(group, self.member_id)
        except BaseException:
            # It takes the assignment again, and then rejoins, as it may have given something up.
            self._standing, self._is_changed = before, True
            raise
        # What was lost may be kept for it, until it joins without that.
        self._has_news = gave_up or missed or self._is_changed

    def _lose(self) -> None:
        self._participant.lose()  # first, so that it is repeated if it is interrupted
        self.session.end()
        self._standing, self._is_prepared = self._new_standing(), False
        self._has_news, self._is_changed, self.dropped = False, False, ""

    def _fail(self) -> NoReturn:
        """Raise `FencedInstance`, now and at each later call."""
        self.session.end()
        try:
            check_member(self.session.group, self.member_id, self._settings.instance_id)
        except FencedInstance as error:
            self._fenced = error
        assert self._fenced is not None, "nobody else has its place"
        self._participant.lose()
        raise self._fenced

    def _new_standing(self) -> Standing:
        return Standing(self._settings.new_member_id(self._environment.nonce()), self._settings.instance_id)


def _in_a_rebalance(error: IllegalGeneration) -> RebalanceInProgress:
    """Return the error for a member that has joined a newer generation, and keeps most of what it has."""
    return RebalanceInProgress(
        error.group,
        error.member,
        f"group {error.group!r} is rebalancing, and member {error.member!r} has joined it, so it cannot commit for "
        f"generation {error.generation} any more; poll, which ends that, then commit what the member still has",
    )


def _silent(seconds: float, session_timeout_ms: int) -> str:
    """Return why a member that sent no heartbeat for so long was removed; empty if that was not too long."""
    if seconds * 1000 < session_timeout_ms:
        return ""
    return f"this process gave no sign of life for {seconds:.1f} s, and session.timeout.ms={session_timeout_ms}"


def _not_polled(seconds: float, max_poll_interval_ms: int) -> str:
    """Return why a member left by itself."""
    return (
        f"poll was not called for {seconds:.1f} s, longer than max.poll.interval.ms={max_poll_interval_ms}, so it left "
        "the group; raise that, or lower max.poll.records"
    )
