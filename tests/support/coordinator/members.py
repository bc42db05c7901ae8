"""Processes that are members of a group, on one store and one clock that they share."""

import random
from itertools import count

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.machine import AlterGroupConfig
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from tests.support.memory_store import MemoryStore

GUARD = 600
"""Seconds of the clock after which a group that does not settle fails."""
COOPERATIVE = ("cooperative-sticky",)
SESSION = 45.0
"""The default of session.timeout.ms, in seconds."""


class Topics:
    """The reader of a consumer: notes what happens to its partitions, and where it would read on."""

    def __init__(self, partitions, wanted=None):
        self.counts = partitions
        """Shared by all processes."""
        self.wanted = tuple(wanted or partitions)
        self.notes = []
        self.positions = {}
        self.member = None

    def topics(self):
        return self.wanted

    def partitions(self, topics):
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    def assigned(self, added, group):
        self.notes.append(("assigned", list(added)))
        for each in added:
            self.positions[each] = self._committed(group, each)

    def revoked(self, partitions):
        self.notes.append(("revoked", partitions))
        self.member.commit({"t": {each.partition: Offset(self.positions[each]) for each in partitions}})
        for each in partitions:
            del self.positions[each]

    def lost(self, partitions):
        self.notes.append(("lost", partitions))
        for each in partitions:
            del self.positions[each]

    def _committed(self, group, partition):
        found = group.committed(partition.topic, partition.partition)
        return found.offset if found else 0


class Processes:
    """The processes. Time passes only in `run`, and where the journal waits."""

    def __init__(self, store=None, partitions=None, delay_ms=0, **config):
        self.store = store or MemoryStore()
        self.now = 1000.0
        self.topics = partitions or {"t": 6}
        self._nonces = count(1)
        self._dice = random.Random(7)
        self._log = self.log(create=True)
        settings = {"group.initial.rebalance.delay.ms": str(delay_ms)} | config
        self._log.group("g", create=True).submit(AlterGroupConfig(settings))
        self.running = []

    def environment(self):
        return Environment(
            now_ms=lambda: int(self.now * 1000),
            monotonic=lambda: self.now,
            sleep=self._sleep,
            uniform=self._dice.uniform,
            nonce=lambda: f"{next(self._nonces):032x}",
        )

    def log(self, *, create=False):
        log = Log(self.store, self.environment())
        if create:
            log.open(create=True)
        return log

    @property
    def group(self):
        """The group, as who looks on sees it."""
        return self._log.group_handle(self._log.groups()["g"]).journal.refresh()

    def start(self, participant, interval_ms=3000, **settings):
        """A process that does nothing before `run`."""
        session = Session(self.log(), "g", MemberSettings(heartbeat_interval_ms=interval_ms, **settings))
        member = GroupMember(session, participant)
        self.running.append(member)
        return member

    def consumer(self, strategies=("range",), wanted=None, interval_ms=3000, **settings):
        reader = Topics(self.topics, wanted)
        reader.member = self.start(SharedPartitions(strategies, reader), interval_ms, **settings)
        return reader

    def kill(self, member):
        self.running.remove(member)

    def leave(self, member):
        self.kill(member)
        member.leave()

    def run(self, seconds):
        """Let the processes poll for a time, each when it says that it has something to do."""
        until = self.now + seconds
        while self.now < until:
            for member in list(self.running):
                member.poll()
            pauses = [member.pause() for member in self.running]
            self.now = min(until, self.now + max(0.001, min(pauses, default=until)))

    def settle(self, *members):
        """Let the processes poll until all of them work in one generation."""
        begun = self.now
        while not self._is_settled():
            assert self.now < begun + GUARD, (self.group.state, self.group.members)
            self.run(0.05)
        return self.now - begun

    def _is_settled(self):
        group = self.group
        return (
            group.state is GroupState.STABLE
            and len(group.members) == len(self.running)
            and all(each.is_working and each.generation == group.generation for each in self.running)
            and not any(each._has_news for each in self.running)
        )

    def _sleep(self, seconds):
        self.now += seconds


def numbers(consumer):
    return sorted(each.partition for each in consumer.positions)


def shares(*consumers):
    """The partitions of each, which are all, each once."""
    found = [numbers(each) for each in consumers]
    assert sorted(number for each in found for number in each) == list(range(6))
    return [len(each) for each in found]


def told(consumer, what):
    return [[each.partition for each in given] for word, given in consumer.notes if word == what]
