"""A hundred members of one group that join, leave, die, restart and fall asleep at random, for a simulated hour.

    python -m tests.simulator.churn

The group's machine, the member (`membership`), the assignors and the observers are the production code. There is no
store: the journal and what lies beside it are values. So only what the group protocol itself does is counted, for
three kinds of members and the same random events:

eager          range: all members give up all partitions in each rebalance
static         range, and each process has a group.instance.id, which its successor has, too
cooperative    cooperative-sticky: only partitions that move are given up

Time is simulated. A member that waits in a rebalance looks at the journal when that goes on to another stage; one that
works looks at each of its heartbeats.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

from pyspark_log_coordinator.assignors.subscription import TopicPartition, decode_assignment, flat
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.group.offsets import OffsetCommit
from pyspark_log_coordinator.group.rebalance import GenerationStarted
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.group.sync import WorkAssigned
from pyspark_log_coordinator.membership import member_objects
from pyspark_log_coordinator.membership import session as sessions
from tests.simulator.churn_members import STRATEGIES, TOPIC, Journal, Notes, Process
from tests.simulator.invariants import require

LOOK_SECONDS = 0.02
EVENTS = {"start": 25, "leave": 15, "die": 10, "restart": 40, "sleep": 10}
"""What happens, and how often compared with the others."""
QUIET_SECONDS = 600.0
"""How long nothing happens in the end."""
LONGEST_SETTLING_SECONDS = 180.0
"""In which members that died or sleep are expired (45 s each), and the last rebalances end."""
BUCKETS, BAR = 30, 24
"""Of the plot: how many parts the time has, and how long a bar is at most."""


class Churn:
    """A run: the processes of one kind, what happens to them, and what is counted."""

    def __init__(self, kind: str, members: int, partitions: int, seconds: float, seed: int) -> None:
        self.kind = kind
        self.partitions = partitions
        self.seconds = seconds
        self.now = 0.0
        self.chance = random.Random(f"{kind} of {seed}")
        self._fate = random.Random(f"events of {seed}")
        """What happens is the same for each kind."""
        self.environment = Environment(
            now_ms=lambda: int(self.now * 1000),
            monotonic=lambda: self.now,
            sleep=lambda _: None,
            uniform=self.chance.uniform,
            nonce=lambda: f"{self.chance.getrandbits(128):032x}",
        )
        self.journal = Journal(self)
        self.processes = [Process(self, number) for number in range(members)]
        self.counts: Counter[str] = Counter()
        self.rebalanced: list[float] = []
        """When each generation began."""
        self.stopped_members = self.moved = self.changes = 0
        self.unread = 0.0
        """Seconds that partitions were read by nobody, of all partitions together."""
        self.churned = 0.0
        """When something happened last."""
        self.committing: Process | None = None
        self._waiting: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._assigned_to: dict[TopicPartition, str] = {}
        """The processes that own partitions by the newest assignment."""
        self._owners: dict[TopicPartition, str] = {}
        """The process that had each partition last."""
        self._readers = 0
        self._read_since = 0.0

    def run(self) -> None:
        """Run it to its end, and hold that the group has settled."""
        for each in self.processes:
            self.at(self._fate.uniform(0, 5), each.start)
        self.at(60.0, self._happen)
        while self._waiting and self._waiting[0][0] <= self.seconds:
            when, _, what = heapq.heappop(self._waiting)
            if isinstance(what, Process):
                if what.wakes != when:
                    continue
                self.now = when
                what.wakes = float("inf")
                what.poll()
            else:
                self.now = when
                what()
        self.now = self.seconds
        self.reads((), 0)
        self._hold_settled()

    def at(self, when: float, what: Any) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._waiting, (when, next(self._order), what))

    def schedule(self, process: Process, seconds: float) -> None:
        """Let a process wake after a time, unless it does so earlier."""
        when = self.now + max(seconds, 0.001)
        if process.member is not None and when < process.wakes:
            process.wakes = when
            self.at(when, process)

    def decided(self, events: list[Any], before: Group) -> None:
        """Count what an entry brings about, and wake those who wait for it."""
        after = self.journal.group
        if any(isinstance(each, GenerationStarted) and after.members for each in events):
            self.rebalanced.append(self.now)
        if any(isinstance(each, WorkAssigned) for each in events):
            self._assigned(after)
        stage = (after.state, after.generation, after.barriers)
        if stage == (before.state, before.generation, before.barriers):
            return
        for each in self.processes:
            if each.member is not None and each.session.is_rebalancing:
                self.schedule(each, self.chance.uniform(0, LOOK_SECONDS))
        if after.barrier is not None:
            # Who has waited for the barrier's time ends the wait; else they would find out at their next heartbeats.
            self.at(self.now + after.barrier.wait_ms / 1000 + sessions.PATIENCE_SECONDS[1], self._wake_all)

    def committed(self, before: Group, command: OffsetCommit) -> None:
        """Hold that a commit is of its member's own partitions, and of rows that nobody else has committed."""
        process = self.committing
        assert process is not None
        for number, new in command.offsets[TOPIC].items():
            known = before.committed(TOPIC, number)
            where = f"partition {number}: {command.member_id} commits {new.offset}"
            # A cooperative member commits what it gives up, which nobody has been assigned yet.
            owner = self._assigned_to.get(TopicPartition(TOPIC, number), process.name)
            require(owner == process.name, f"{where}, and {owner} owns it")
            base = 0 if known is None else known.offset
            mine = process.based[TopicPartition(TOPIC, number)]
            require(mine == base, f"{where} for rows from {mine} on, and {base} is committed")

    def reads(self, partitions: Sequence[TopicPartition], change: int) -> None:
        """Note that partitions have a reader now, or none any more."""
        self.unread += (self.now - self._read_since) * (self.partitions - self._readers)
        self._read_since = self.now
        self._readers += change * len(partitions)

    def _assigned(self, group: Group) -> None:
        members = group.members
        shares = {name: flat(decode_assignment(each.assignment, name).partitions) for name, each in members.items()}
        self._assigned_to = {each: members[name].details.client_id for name, share in shares.items() for each in share}
        given = sum(map(len, shares.values()))
        require(given == len(self._assigned_to), f"generation {group.generation} gives a partition to two members")
        self.moved += sum(self._owners.get(each, owner) != owner for each, owner in self._assigned_to.items())
        self._owners |= self._assigned_to

    def _wake_all(self) -> None:
        for each in self.processes:
            if each.member is not None and each.session.is_rebalancing:
                self.schedule(each, 0.0)

    def _happen(self) -> None:
        """Let one thing happen to one process, and the next one later."""
        fate = self._fate
        if self.now > self.seconds - QUIET_SECONDS:
            return
        self.at(self.now + fate.uniform(5, 35), self._happen)
        what = fate.choices(list(EVENTS), list(EVENTS.values()))[0]
        process, pause = fate.choice(self.processes), fate.uniform(5, 20)
        awake = process.wakes < float("inf")
        if what == "start":
            process = next((each for each in self.processes if each.member is None), process)
        if (process.member is None) != (what == "start") or not (awake or what == "start"):
            return
        self.counts[what] += 1
        self.changes += 1
        self.churned = self.now
        if what == "start":
            process.start()
        elif what == "leave":
            process.leave()
        elif what == "die":
            process.stop()
        elif what == "restart":
            process.leave()
            self.at(self.now + pause, lambda: process.member or process.start())
        else:
            process.wakes = float("inf")
            self.at(self.now + 60 + pause, lambda: self._wake_up(process))

    def _wake_up(self, process: Process) -> None:
        """Let a process go on that slept longer than its session: it commits first, which must be refused."""
        if process.member is not None:
            self.churned = self.now
            process._commit(process.positions)
            self.schedule(process, 0.0)

    def _hold_settled(self) -> None:
        group = self.journal.group
        alive = {each.member.member_id: each for each in self.processes if each.member is not None}
        require(group.state is GroupState.STABLE, f"the group is {group.state.value}")
        require(group.members.keys() == alive.keys(), f"{len(group.members)} members, {len(alive)} processes")
        for name, process in alive.items():
            assigned = set(flat(decode_assignment(group.members[name].assignment, name).partitions))
            require(set(process.positions) == assigned, f"{name} does not read what it was assigned")
        every = [each for process in alive.values() for each in process.positions]
        require(len(every) == self.partitions == len(set(every)), f"{len(every)} of {self.partitions} are read")
        last = self.rebalanced[-1] - self.churned
        require(last < LONGEST_SETTLING_SECONDS, f"the last rebalance came {last:.0f} s after the last event")


def run(kind: str, members: int = 100, partitions: int = 300, minutes: float = 60, seed: int = 0) -> Churn:
    """Run one kind of members."""
    churn = Churn(kind, members, partitions, minutes * 60, seed)
    logger = logging.getLogger("pyspark_log")
    with (
        mock.patch.object(member_objects, "MemberObjects", Notes),
        mock.patch.object(logger, "disabled", True),
    ):
        churn.run()
    return churn


def table(runs: Mapping[str, Churn]) -> list[str]:
    """Return what was counted, as a table of Markdown."""
    columns = {
        "members": lambda each: each.kind,
        "changes": lambda each: each.changes,
        "rebalances": lambda each: len(each.rebalanced),
        "per change": lambda each: f"{len(each.rebalanced) / each.changes:.2f}",
        "members stopped per rebalance": lambda each: f"{each.stopped_members / len(each.rebalanced):.1f}",
        "partitions moved per change": lambda each: f"{each.moved / each.changes:.1f}",
        "partitions unread": lambda each: f"{100 * each.unread / (each.seconds * each.partitions):.2f} %",
    }
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    return lines + [f"| {' | '.join(str(of(each)) for of in columns.values())} |" for each in runs.values()]


def plot(runs: Mapping[str, Churn]) -> list[str]:
    """Return how many rebalances there were in each part of the time: a column of bars for each kind."""
    found = {kind: Counter(int(at / each.seconds * BUCKETS) for at in each.rebalanced) for kind, each in runs.items()}
    scale = min(1.0, BAR / max(count for counts in found.values() for count in counts.values()))
    minutes = next(iter(runs.values())).seconds / BUCKETS / 60
    lines = ["minute  " + "".join(f"{kind:{BAR + 5}}" for kind in runs).rstrip()]
    for bucket in range(BUCKETS):
        bars = [f"{'#' * round(counts[bucket] * scale)} {counts[bucket] or ''}" for counts in found.values()]
        lines.append(f"{bucket * minutes:6.1f}  {''.join(f'{bar:{BAR + 5}}' for bar in bars)}".rstrip())
    return lines


def main() -> int:
    """Print the table and the plot."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.churn", description="Let members come and go.")
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs = {}
    for kind in STRATEGIES:
        began = time.process_time()
        runs[kind] = run(kind, options.members, options.partitions, options.minutes, options.seed)
        found = runs[kind]
        counts = ", ".join(f"{count} {name}" for name, count in sorted(found.counts.items()))
        print(f"{kind}: {found.journal.number} entries, {counts}; {time.process_time() - began:.0f} s", file=sys.stderr)
    print("\n".join([*table(runs), "", *plot(runs)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
