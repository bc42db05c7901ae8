"""A journal on three stores: crashes, sleepers, lost answers, stores that are away or lost, and one order for all."""

import random

import pytest

from pyspark_log_coordinator import journal as journal_module
from pyspark_log_coordinator import journal_entry
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.history import history
from pyspark_log_coordinator.journal import Journal
from pyspark_log_coordinator.journal_place import SeveralStores
from pyspark_log_coordinator.members import Member, Members
from pyspark_log_storage import node
from pyspark_log_storage.errors import OutcomeUnknown, StoreUnavailable
from pyspark_log_storage.node import Marker
from tests.coordinator.calls import SimulatedCalls
from tests.coordinator.shelf import FOLDER, MACHINE, Place
from tests.simulator.clock import Clock
from tests.simulator.store import Crashed, Objects, SimulatedStore, Weather

WRITERS, THINGS = 3, 14
PATIENCE_MS = 20_000


class Connection(SimulatedStore):
    """A store that may be away, for all processes at once."""

    def _act(self, what, key, effect):
        if self.objects.away:
            self.wait(0.002)
            raise StoreUnavailable(self.url, key, "it is away")
        return super()._act(what, key, effect)


class World:
    """Three disks, processes that write, read and trim, and what they were told."""

    def __init__(self, seed):
        self.chance, self.clock = random.Random(seed), Clock()
        chance = self.chance
        self.storm = chance.choice([0, 1, 1, 3])
        self.weather = Weather(
            crash=0.001 * self.storm, unavailable=0.005 * self.storm, lost_answer=0.005 * self.storm,
            late_answer=0.03, sleep=chance.choice([0.001, 0.004]), sleep_seconds_max=chance.choice([0.1, 2.0]),
            latency_seconds=0.002, page=chance.choice([2, 1000]), stale_list_seconds=0,
        )  # fmt: skip
        self.disks = [Objects() for _ in range(3)]
        for i, disk in enumerate(self.disks):
            disk.data[node.KEY] = node.encode(Marker("c", str(i), f"life-{i}"))
            disk.away = False
        self.readings = []
        """States as somebody was told them, with the time of it."""
        self.finished = 0
        self.crashes = self.errors = self.trimmed = 0
        for i in range(WRITERS):
            self.spawn(f"writer-{i}", self.writer(f"w{i}"))
        self.spawn("trimmer", self.trimmer)
        self.spawn("reader", self.reader)
        self.clock.spawn("disks", self.trouble_disks)

    def spawn(self, name, work):
        """Run `work` in a process; if it crashes, in another."""

        def live():
            while True:
                try:
                    return work()
                except Crashed:
                    self.crashes += 1

        self.clock.spawn(name, live, self.chance.uniform(0, 0.01))

    def open(self, weather=None):
        weather = weather or self.weather
        stores = [Connection(disk, self.clock, self.chance, weather, lambda *_: None) for disk in self.disks]
        environment = Environment(
            now_ms=lambda: 0,
            monotonic=lambda: self.clock.now,
            sleep=self.clock.pause,
            uniform=self.chance.uniform,
            nonce=lambda: f"{self.chance.getrandbits(128):032x}",
        )
        members = [Member(store, str(i), f"life-{i}") for i, store in enumerate(stores)]
        place = SeveralStores(Members(members, SimulatedCalls(self.clock)))
        return Journal(place, FOLDER, MACHINE, environment, PATIENCE_MS)

    def told(self, shelf):
        self.readings.append((self.clock.now, shelf.state.things))

    def writer(self, name):
        done = [0]

        def work():
            shelf = self.open()
            while done[0] < THINGS:
                try:
                    shelf.submit(Place((f"{name}-{done[0]}" + "x" * (100 if done[0] % 3 == 0 else 0),)))
                except (StoreUnavailable, OutcomeUnknown):
                    self.errors += 1
                    self.clock.pause(0.05)
                    continue
                self.told(shelf)
                done[0] += 1
                self.clock.pause(self.chance.expovariate(100))
            self.finished += 1

        return work

    def trimmer(self):
        shelf = self.open()
        while self.finished < WRITERS:
            try:
                self.trimmed += shelf.trim()
            except StoreUnavailable:
                self.errors += 1
            self.clock.pause(self.chance.expovariate(20))

    def reader(self):
        shelf = self.open()
        while self.finished < WRITERS:
            try:
                shelf.refresh()
            except StoreUnavailable:
                self.errors += 1
            else:
                self.told(shelf)
            self.clock.pause(self.chance.expovariate(10))

    def trouble_disks(self):
        """One disk at a time is away; at last one may be wiped for good, and the others go on."""
        while self.finished < WRITERS:
            disk = self.chance.choice(self.disks)
            disk.away = self.chance.random() < 0.6
            self.clock.pause(self.chance.expovariate(3))
            disk.away = False
            if self.chance.random() < 0.05:
                disk.data.clear()
                disk.away = True
                return

    def run(self):
        self.clock.run()
        if self.clock.failure is not None:
            raise self.clock.failure
        self.clock.spawn("auditor", self.audit)
        self.clock.run()
        if self.clock.failure is not None:
            raise self.clock.failure

    def audit(self):
        shelf = self.open(Weather(0, 0, 0, 0, 0, 0, 0.001, 1000, 0))
        final = shelf.refresh().things
        names = [thing.rstrip("x") for thing in final]
        assert sorted(names) == sorted(f"w{i}-{n}" for i in range(WRITERS) for n in range(THINGS))
        for when, things in self.readings:
            assert final[: len(things)] == things, f"at {when} somebody was told another order"
        lengths = [len(things) for _, things in self.readings]
        assert max(lengths) == len(final)
        *_, last = history(shelf)
        assert last[2].things == final
        assert shelf.trim() >= 0


@pytest.mark.parametrize("first", range(0, 36, 12))
def test_whatever_happens_all_agree_on_one_order(first, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(journal_module, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 60)
    crashes = trimmed = errors = 0
    for seed in range(first, first + 12):
        world = World(seed)
        try:
            world.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        crashes, trimmed, errors = crashes + world.crashes, trimmed + world.trimmed, errors + world.errors
    assert crashes > 5
    assert trimmed > 500
    assert errors > 0
