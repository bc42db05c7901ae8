"""A journal on three stores: crashes, sleepers, lost answers, stores that are away or lost, and one order for all.

In some worlds it moves, again and again, to other stores, some of which are the same.
"""

import contextlib
import random

import pytest

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, registers, trimming
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_storage import layout
from pyspark_log_storage.errors import OutcomeUnknown, StoreError, StoreUnavailable
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.simulator.clock import Clock
from tests.simulator.store import Crashed, Objects, SimulatedStore, Weather
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems, MoveJournal
from tests.support.coordinator.stand_in_threads import SimulatedThreads

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

    disk_count = 3

    def __init__(self, seed):
        self.chance, self.clock = random.Random(seed), Clock()
        chance = self.chance
        self.storm = chance.choice([0, 1, 1, 3])
        self.weather = Weather(
            crash=0.001 * self.storm, unavailable=0.005 * self.storm, lost_answer=0.005 * self.storm,
            late_answer=0.03, sleep=chance.choice([0.001, 0.004]), sleep_seconds_max=chance.choice([0.1, 2.0]),
            latency_seconds=0.002, page=chance.choice([2, 1000]), stale_list_seconds=0,
        )  # fmt: skip
        self.disks = [Objects() for _ in range(self.disk_count)]
        for i, disk in enumerate(self.disks):
            disk.data[layout.MARKER] = node.encode(Marker("c", str(i), f"incarnation-{i}"))
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
            store_threads=lambda _: SimulatedThreads(self.clock),
        )
        return self.journal([Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(stores)], environment)

    def journal(self, members, environment):
        place = SeveralStores(Members(members, SimulatedThreads(self.clock)))
        return Journal(place, FOLDER, MACHINE, environment, PATIENCE_MS)

    def told(self, journal):
        self.readings.append((self.clock.now, journal.state.items))

    def writer(self, name):
        done = [0]

        def work():
            journal = self.open()
            while done[0] < THINGS:
                try:
                    journal.submit(AddItems((f"{name}-{done[0]}" + "x" * (100 if done[0] % 3 == 0 else 0),)))
                except (StoreUnavailable, OutcomeUnknown):
                    self.errors += 1
                    self.clock.pause(0.05)
                    continue
                self.told(journal)
                done[0] += 1
                self.clock.pause(self.chance.expovariate(100))
            self.finished += 1

        return work

    def trimmer(self):
        journal = self.open()
        while self.finished < WRITERS:
            try:
                self.trimmed += trimming.trim(journal)
            except StoreUnavailable:
                self.errors += 1
            self.clock.pause(self.chance.expovariate(20))

    def reader(self):
        journal = self.open()
        while self.finished < WRITERS:
            try:
                journal.refresh()
            except StoreUnavailable:
                self.errors += 1
            else:
                self.told(journal)
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
        journal = self.open(Weather(0, 0, 0, 0, 0, 0, 0.001, 1000, 0))
        final = journal.refresh().items
        names = [item.rstrip("x") for item in final]
        assert sorted(names) == sorted(f"w{i}-{n}" for i in range(WRITERS) for n in range(THINGS))
        for when, items in self.readings:
            assert final[: len(items)] == items, f"at {when} somebody was told another order"
        lengths = [len(items) for _, items in self.readings]
        assert max(lengths) == len(final)
        # Behind a move nothing may have been written yet.
        kept = list(history(journal)) or [(0, [], journal.state)]
        assert kept[-1][2].items == final
        trimming.trim(journal)
        assert self.open(Weather(0, 0, 0, 0, 0, 0, 0.001, 1000, 0)).refresh().items == final


class MovingWorld(World):
    """Five disks, three of which hold the journal; it moves while all goes on, and the disks that it has left go."""

    disk_count = 5

    def __init__(self, seed):
        self.generations = [(0, 1, 2)]
        """The disks of each generation, from the first on."""
        self.settled = 1
        """The newest generation in which the journal is known to have begun."""
        self.votes = {}
        """What was ever proposed, by folder and slot."""
        super().__init__(seed)
        for disk in self.disks:
            disk.lost, disk.watcher = False, self
        self.spawn("mover", self.mover)

    def journal(self, members, environment):
        places = {}

        def place(generation):
            if generation not in places:
                chosen = [members[i] for i in self.generations[generation - 1]]
                places[generation] = SeveralStores(Members(chosen, SimulatedThreads(self.clock)), generation)
            return places[generation]

        def follow(generation):
            """Whoever asks may not have heard yet that a later one has begun."""
            return place(max(generation, self.settled if self.chance.random() < 0.7 else 1))

        began = self.settled if self.finished else self.chance.randint(max(1, self.settled - 1), self.settled)
        journal = Journal(place(began), FOLDER, MACHINE, environment, PATIENCE_MS, follow=follow)
        journal.place_of, journal.environment = place, environment
        return journal

    def mover(self):
        journal = self.open()
        while self.finished < WRITERS:
            self.clock.pause(self.chance.expovariate(2))
            if self.settled == len(self.generations):
                whole = [i for i, disk in enumerate(self.disks) if not disk.lost]
                self.generations.append(tuple(self.chance.sample(whole, 3)))
            generation = len(self.generations)
            while self.settled < generation:
                try:
                    journal.submit(MoveJournal(generation))
                    journal.refresh()
                    if self.chance.random() < 0.7:
                        with contextlib.suppress(StoreError):  # it is trimmed here as well, or a store lacks it
                            left = journal.place_of(generation - 1)
                            trimming.delete_left_behind(journal, left, journal.environment)
                except (StoreUnavailable, OutcomeUnknown):
                    self.errors += 1
                    self.clock.pause(0.05)
                    continue
                self.settled = generation

    def trouble_disks(self):
        """One disk at a time is away, or lost for good if no other one that is needed is; those left behind, too."""
        while self.finished < WRITERS:
            disk = self.chance.choice([each for each in self.disks if not each.lost])
            disk.away = self.chance.random() < 0.6
            self.clock.pause(self.chance.expovariate(6))
            disk.away = False
            needed = {i for disks in self.generations[self.settled - 1 :] for i in disks}
            lost = [i for i, each in enumerate(self.disks) if each.lost]
            may_go = self.disks.index(disk) not in needed or needed.isdisjoint(lost)
            if self.chance.random() < 0.3 and may_go and len(lost) < 2:
                disk.data.clear()
                disk.lost = disk.away = True

    def created(self, key, data):
        folder, _, name = key.removeprefix(FOLDER).partition("/")
        found = registers.parse(name)
        if folder.startswith("entries") and found is not None and not found[1].is_claim:
            generation = int(folder.partition(".")[2] or 1)
            if value := registers.decode(found[1], data, key):
                self.votes.setdefault((generation, found[0]), set()).add(value)

    def replaced(self, key, data):
        raise AssertionError(f"{key} was replaced")

    def deleting(self, key):
        pass

    def audit(self):
        super().audit()
        for generation in range(2, self.settled + 1):
            first = min(slot for where, slot in self.votes if where == generation)
            assert len(self.votes[generation, first]) == 1, "it begins with other bytes than the last entry before"
            assert self.votes[generation, first] <= self.votes[generation - 1, first]
            last = max(slot for where, slot in self.votes if where == generation - 1)
            assert last == first, f"entry {last} was proposed in generation {generation - 1}, which ended at {first}"


@pytest.fixture
def _often(monkeypatch):
    """Let snapshots, trimming and manifests come often."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 60)


def run_worlds(kind, first):
    """Yield twelve worlds that have ended well, by their seeds from `first` on."""
    for seed in range(first, first + 12):
        world = kind(seed)
        try:
            world.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        yield world


@pytest.mark.slow
@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("first", range(0, 24, 12))
def test_whatever_happens_all_agree_on_one_order_while_the_journal_moves(first):
    crashes = moves = lost = 0
    for world in run_worlds(MovingWorld, first):
        crashes, moves = crashes + world.crashes, moves + world.settled - 1
        lost += sum(disk.lost for disk in world.disks)
    assert crashes > 5
    assert moves > 12
    assert lost > 3


@pytest.mark.slow
@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("first", range(0, 36, 12))
def test_whatever_happens_all_agree_on_one_order(first):
    crashes = trimmed = errors = 0
    for world in run_worlds(World, first):
        crashes, trimmed, errors = crashes + world.crashes, trimmed + world.trimmed, errors + world.errors
    assert crashes > 5
    assert trimmed > 500
    assert errors > 0
