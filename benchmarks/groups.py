"""Members of consumer groups: what an idle one costs, and how long a rebalance of many takes.

An idle hour is measured on a clock that is moved on, so it takes seconds. Rebalances are measured in real time, from
the start, join or leave of a member until every member has its partitions. All members are threads of one process, so
they share one core's worth of Python. Kafka's intervals apply: a member notices a rebalance within 3 seconds, and a new
group waits 3 seconds for members.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.report import Line, at_most, detail, information
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pyspark_log_coordinator.group.state import Group

IDLE_MEMBERS = 10
HOUR_SECONDS, HOUR_MINUTES = 3600, 60
REBALANCE_SECONDS = 3
GUARD_SECONDS = 120
QUIET_SECONDS = 30
"""After a rebalance: from then on members look for the next one only with their heartbeats."""
LOOK_SECONDS = 0.01
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.5
STRATEGY = "cooperative-sticky"
REQUESTS = ("create", "create_unflushed", "delete", "exists", "list", "put", "read", "size")


def measure_groups(folder: Path, members: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about an idle group, and about rebalances of a group with some members."""
    return [*_idle(folder / "idle-group", log), *_rebalances(folder / "groups", members, log)]


class CountedStore(LocalStore):
    """A store that counts what it is asked."""

    requests = 0

    def __getattribute__(self, name: str) -> Any:
        if name in REQUESTS:
            self.requests += 1
        return super().__getattribute__(name)


class _Reader:
    """A consumer that reads nothing."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def topics(self) -> tuple[str, ...]:
        return ("t",)

    def partitions(self, topics: Iterable[str]) -> Mapping[str, int]:
        return {"t": self._partitions}

    def assigned(self, *_: object) -> None: ...

    def revoked(self, *_: object) -> None: ...

    def rewound(self, *_: object) -> None: ...

    def lost(self, *_: object) -> None: ...


def _member(log: Log, partitions: int) -> GroupMember:
    session = Session(log, "g", MemberSettings())
    return GroupMember(session, SharedPartitions([STRATEGY], _Reader(partitions)))


def _idle(folder: Path, log: Callable[[str], object]) -> list[Line]:
    log(f"an hour of a group with {IDLE_MEMBERS} members that is idle")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    environment = msgspec.structs.replace(real_environment(), monotonic=lambda: now, sleep=sleep)
    watcher = _Group(folder)
    stores = [CountedStore(str(folder)) for _ in range(IDLE_MEMBERS)]
    members = [_member(Log(store, environment), IDLE_MEMBERS) for store in stores]

    def run(seconds: float) -> None:
        until = now + seconds
        while now < until:
            for each in members:
                each.poll()
            sleep(max(LOOK_SECONDS, min(each.pause() for each in members)))

    run(HOUR_MINUTES)
    assert watcher.state.state is GroupState.STABLE, "the group has its members"
    entries, requests = watcher.entries, sum(store.requests for store in stores)
    run(HOUR_SECONDS)
    entries, requests = watcher.entries - entries, sum(store.requests for store in stores) - requests
    return [
        Line("journal entries of an idle group in an hour", "entries", entries, target=at_most(0, "entries")),
        information("store requests of an idle member", "requests/min", requests / IDLE_MEMBERS / HOUR_MINUTES),
    ]


class _Group:
    """The group as an onlooker sees it, and members in threads."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)
        self._log = Log(LocalStore(self._path), real_environment())
        self._log.open(create=True)
        self._log.group("g", create=True)
        self._running: dict[GroupMember, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._over = False

    @property
    def state(self) -> Group:
        return self._log.group("g").journal.state

    @property
    def entries(self) -> int:
        return self._log.group("g").journal.number

    def start(self, count: int, partitions: int) -> None:
        for _ in range(count):
            member = _member(Log(LocalStore(self._path), real_environment()), partitions)
            self._running[member] = stopped = threading.Event()
            thread = threading.Thread(target=self._poll, args=(member, stopped), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, count: int) -> None:
        for member in list(self._running)[:count]:
            self._running.pop(member).set()

    def end(self) -> None:
        """End all threads; nobody leaves."""
        self._over = True
        self.stop(len(self._running))
        for each in self._threads:
            each.join()

    def _poll(self, member: GroupMember, stopped: threading.Event) -> None:
        while not stopped.is_set():
            member.poll()
            stopped.wait(max(SHORTEST_PAUSE, min(member.pause(), LONGEST_PAUSE)))
        if not self._over:
            member.leave()

    def until_settled(self, begun: float) -> float:
        """Return the seconds until all members work in one generation that has all of them."""
        while not self._is_settled():
            assert time.perf_counter() - begun < GUARD_SECONDS, "the group does not settle"
            time.sleep(LOOK_SECONDS)
        return time.perf_counter() - begun

    def _is_settled(self) -> bool:
        group = self.state
        if group.state is not GroupState.STABLE or len(group.members) != len(self._running):
            return False
        return all(each.is_working and each.generation == group.generation for each in list(self._running))


def _rebalances(folder: Path, members: int, log: Callable[[str], object]) -> list[Line]:
    log(f"rebalances of {members} members")
    group = _Group(folder)
    lines: list[Line] = []
    waits = group.state.config.initial_rebalance_delay_ms / 1000
    acts: tuple[tuple[str, Callable[[], None], float], ...] = (
        (f"{members} members begin a group", lambda: group.start(members, 2 * members), waits),
        (f"a rebalance of {members} members: one joins", lambda: group.start(1, 2 * members), 0.0),
        (f"a rebalance of {members} members: one leaves", lambda: group.stop(1), 0.0),
    )
    for name, act, waited in acts:
        entries, cpu, begun = group.entries, time.process_time(), time.perf_counter()
        act()
        seconds = group.until_settled(begun)
        note = f"{time.process_time() - cpu:.1f} s of processor time"
        if waited:
            note += f"; of that {waited:g} s are group.initial.rebalance.delay.ms"
        lines += [
            Line(name, "s", seconds, target=at_most(REBALANCE_SECONDS + waited, "s"), note=note),
            detail("journal entries", "", group.entries - entries),
        ]
        time.sleep(QUIET_SECONDS)
    group.end()
    return lines
