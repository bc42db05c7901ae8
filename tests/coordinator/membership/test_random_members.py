"""Members that come, go, die and fall asleep at random: each row is processed and committed once.

Each process reads on in its partitions, and commits now and then. A commit that is accepted must begin where the one
before it ended, whoever made that.
"""

import os
import random

import pytest

from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_storage.errors import FencedInstance, MemberError
from tests.support.coordinator.members import COOPERATIVE, Processes, Topics

STEPS = 120
PARTITIONS = 7
SEEDS = range(int(os.environ.get("PYSPARK_LOG_SEEDS", "4")))


class Ledger:
    """How far each partition was committed, and in how many accepted commits."""

    def __init__(self):
        self.ends = {}
        self.commits = 0


class Program(Topics):
    """A consumer that processes rows."""

    def __init__(self, topics, ledger):
        super().__init__(topics)
        self.ledger = ledger
        self.begins = {}
        """Where the rows begin that were not committed yet, by partition."""

    def assigned(self, added, group):
        super().assigned(added, group)
        for each in added:
            self.begins[each] = self.positions[each]

    def revoked(self, partitions):
        self.commit(partitions)
        self._drop(partitions)

    def lost(self, partitions):
        self._drop(partitions)

    def process(self, dice):
        for each in self.positions:
            self.positions[each] += dice.randrange(3)

    def commit(self, partitions=None):
        chosen = list(self.positions if partitions is None else partitions)
        new = {each.partition: Offset(self.positions[each]) for each in chosen}
        try:
            self.member.commit({"t": new})
        except MemberError:
            return
        for each in chosen:
            if self.positions[each] > self.begins[each]:
                assert self.begins[each] == self.ledger.ends.get(each, 0), "rows are processed twice, or left out"
                self.ledger.ends[each] = self.begins[each] = self.positions[each]
                self.ledger.commits += 1

    def _drop(self, partitions):
        for each in partitions:
            del self.positions[each], self.begins[each]


class World:
    def __init__(self, seed, strategies, *, static):
        self.dice = random.Random(seed)
        self.processes = Processes(partitions={"t": PARTITIONS})
        self.strategies = strategies
        self.static = static
        self.rebalance_ms = self.dice.choice([1_000, 60_000])
        self.ledger = Ledger()
        self.programs, self.asleep = [], []

    def start(self):
        program = Program(self.processes.topics, self.ledger)
        instance = f"i{self.dice.randrange(8)}" if self.static and self.dice.random() < 0.7 else ""
        settings = {"session_timeout_ms": 30_000, "max_poll_interval_ms": self.rebalance_ms}
        program.member = self.processes.start(
            SharedPartitions(self.strategies, program), instance_id=instance, **settings
        )
        self.programs.append(program)

    def step(self):
        program = self.dice.choice(self.programs) if self.programs else None
        match self.dice.randrange(12):
            case 0 if len(self.programs) < 6:
                self.start()
            case 1 if program:
                self.leave(program)
            case 2 if program:
                self.stop(program)
            case 3 | 4 if program:
                self.stop(program)
                self.asleep.append(program)
            case 5 | 6 | 7 if self.asleep:
                awake = self.asleep.pop(self.dice.randrange(len(self.asleep)))
                awake.commit()  # what it was about to do when it fell asleep
                self.programs.append(awake)
                self.processes.running.append(awake.member)
            case 8:
                self.run(self.dice.choice([1, 5, 40]))
            case _:
                self.run(self.dice.uniform(0, 2))

    def run(self, seconds):
        until = self.processes.now + seconds
        while self.processes.now < until:
            for program in list(self.programs):
                try:
                    program.member.poll()
                except FencedInstance:
                    self.stop(program)
                    continue
                program.process(self.dice)
                if self.dice.random() < 0.3:
                    program.commit()
            self.processes.now += self.dice.uniform(0.001, 0.5)

    def leave(self, program):
        program.member._participant.leave()
        self.stop(program)
        program.member.leave()

    def stop(self, program):
        self.programs.remove(program)
        self.processes.kill(program.member)


@pytest.mark.no_faults("makes so many calls that every run meets one")
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategies", [("range",), COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_processed_once(seed, strategies, static):
    world = World(seed, strategies, static=static)
    for _ in range(STEPS):
        world.step()
    world.run(100)
    world.start()
    world.run(50)
    owned = sorted(each.partition for program in world.programs for each in program.positions)
    assert owned == list(range(PARTITIONS)), "the group settles"
    world.run(5)
    for program in world.programs:
        program.commit()
    assert len(world.ledger.ends) == PARTITIONS
    assert world.ledger.commits > STEPS
