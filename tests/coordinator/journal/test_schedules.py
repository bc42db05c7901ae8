"""A journal on three stores: crashes, sleepers, lost answers, stores that are away or lost, and one order for all.

It moves, again and again, to other stores, some of which are the same.
"""

import contextlib
import random
from collections import Counter, defaultdict
from functools import partial

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
from tests.support.rings import deep

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
    """Five disks, three of which hold the journal, which moves; processes that use it, and what they were told.

    `settled` is the newest generation in which the journal is known to have begun.
    """

    def __init__(self, seed):
        self.chance, self.clock = random.Random(seed), Clock()
        chance = self.chance
        self.storm = chance.choice([0, 1, 1, 3])
        self.weather = Weather(
            crash=0.001 * self.storm, unavailable=0.005 * self.storm, lost_answer=0.005 * self.storm,
            late_answer=0.03, sleep=chance.choice([0.001, 0.004]), sleep_seconds_max=chance.choice([0.1, 2.0]),
            latency_seconds=0.002, page=chance.choice([2, 1000]), stale_list_seconds=0,
        )  # fmt: skip
        self.disks = [Objects() for _ in range(5)]
        for i, disk in enumerate(self.disks):
            disk.data[layout.MARKER] = node.encode(Marker("c", str(i), f"incarnation-{i}"))
            disk.away, disk.lost, disk.watcher = False, False, self
        self.generations, self.settled = [(0, 1, 2)], 1
        self.votes = defaultdict(set)
        """What was ever proposed, by generation and slot."""
        self.readings = []
        """States as somebody was told them, with the time of it."""
        self.finished = 0
        self.crashes = self.errors = self.trimmed = 0
        for i in range(WRITERS):
            self.spawn(f"writer-{i}", partial(self.write, f"w{i}", [0]))
        self.spawn("trimmer", partial(self.repeat, 20, self.trim))
        self.spawn("reader", partial(self.repeat, 10, lambda journal: (journal.refresh(), self.told(journal))))
        self.spawn("mover", partial(self.repeat, 2, self.move))
        self.clock.spawn("disks", self.trouble_disks)

    def spawn(self, name, work):
        """Run `work` in a process; if it crashes, in another."""

        def live():
            while True:
                try:
                    return work(self.open(self.weather))
                except Crashed:
                    self.crashes += 1

        self.clock.spawn(name, live, self.chance.uniform(0, 0.01))

    def open(self, weather):
        stores = [Connection(disk, self.clock, self.chance, weather, lambda *_: None) for disk in self.disks]
        members = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(stores)]
        environment = Environment(
            now_ms=lambda: 0,
            monotonic=lambda: self.clock.now,
            sleep=self.clock.pause,
            uniform=self.chance.uniform,
            nonce=lambda: f"{self.chance.getrandbits(128):032x}",
            store_threads=lambda _: SimulatedThreads(self.clock),
        )
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

    def told(self, journal):
        self.readings.append((self.clock.now, journal.state.items))

    def write(self, name, done, journal):
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

    def repeat(self, times_a_second, act, journal):
        while self.finished < WRITERS:
            try:
                act(journal)
                self.clock.pause(self.chance.expovariate(times_a_second))
            except (StoreUnavailable, OutcomeUnknown):
                self.errors += 1
                self.clock.pause(0.05)

    def trim(self, journal):
        self.trimmed += trimming.trim(journal)

    def move(self, journal):
        if self.settled == len(self.generations):
            whole = [i for i, disk in enumerate(self.disks) if not disk.lost]
            self.generations.append(tuple(self.chance.sample(whole, 3)))
        journal.submit(MoveJournal(len(self.generations)))
        journal.refresh()
        if self.chance.random() < 0.7:
            with contextlib.suppress(StoreError):  # it is trimmed here as well, or a store lacks it
                left = journal.place_of(len(self.generations) - 1)
                trimming.delete_left_behind(journal, left, journal.environment)
        self.settled = len(self.generations)

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
        is_vote = folder.startswith("entries") and found is not None and not found[1].is_claim
        if is_vote and (value := registers.decode(found[1], data, key)):
            self.votes[int(folder.partition(".")[2] or 1), found[0]].add(value)

    def replaced(self, key, data):
        raise AssertionError(f"{key} was replaced")

    def deleting(self, key):
        pass

    def run(self):
        for name, work in (("all", lambda: None), ("auditor", self.audit)):
            self.clock.spawn(name, work)
            self.clock.run()
            if self.clock.failure is not None:
                raise self.clock.failure

    def audit(self):
        calm = Weather(0, 0, 0, 0, 0, 0, 0.001, 1000, 0)
        journal = self.open(calm)
        final = journal.refresh().items
        names = [item.rstrip("x") for item in final]
        assert sorted(names) == sorted(f"w{i}-{n}" for i in range(WRITERS) for n in range(THINGS))
        for when, items in self.readings:
            assert final[: len(items)] == items, f"at {when} somebody was told another order"
        assert max(len(items) for _, items in self.readings) == len(final)
        # Behind a move nothing may have been written yet.
        kept = list(history(journal)) or [(0, [], journal.state)]
        assert kept[-1][2].items == final
        trimming.trim(journal)
        assert self.open(calm).refresh().items == final
        for generation in range(2, self.settled + 1):
            first = min(slot for where, slot in self.votes if where == generation)
            assert len(self.votes[generation, first]) == 1, "it begins with other bytes than the last entry before"
            assert self.votes[generation, first] <= self.votes[generation - 1, first]
            last = max(slot for where, slot in self.votes if where == generation - 1)
            assert last == first, f"entry {last} was proposed in generation {generation - 1}, which ended at {first}"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(1, 3), *(deep(range(first, first + 8)) for first in range(3, 35, 8))], ids=str)
def test_whatever_happens_all_agree_on_one_order_while_the_journal_moves(monkeypatch, seeds):
    # Snapshots, trimming and manifests come often.
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 2)
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 60)
    happened = Counter()
    for seed in seeds:
        world = World(seed)
        try:
            world.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        lost = sum(disk.lost for disk in world.disks)
        happened += Counter(crashes=world.crashes, errors=world.errors, moves=world.settled - 1, lost=lost)
        happened["trimmed"] += world.trimmed
    print(happened)
    assert all(happened[each] >= len(seeds) / 4 for each in ("crashes", "errors", "moves", "lost"))
    assert happened["trimmed"] > 10 * len(seeds)
