"""Registers under races: slow stores, threads, many processes; and their format."""

import random
import threading
import time
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.environment import Environment, real_environment
from pyspark_log_coordinator.journal import quorum, registers
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    NewerFormat,
    OutcomeUnknown,
    StoreUnavailable,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.simulator.clock import Clock
from tests.simulator.store import Crashed, Objects, SimulatedStore, Weather
from tests.support.coordinator.register_stores import JOURNAL, PATIENCE_MS, Stores, fail
from tests.support.coordinator.stand_in_threads import SimulatedThreads
from tests.support.coordinator.troubled_store import TroubledStore

PROCESSES = 4


@pytest.fixture
def stores():
    return Stores()


# Readers


def test_a_value_on_one_of_three_stores_is_not_decided(stores):
    stores.write(0, 1, 0, b"one")
    assert stores.open().read(1) is None
    assert stores.held(1) == [{"0": b"one"}, {}, {}]


def test_a_reader_finishes_what_it_cannot_rule_out(stores):
    stores.write(0, 1, 0, b"one")
    slots = stores.open()
    fail(slots, 1, "silent")
    assert slots.read(1) == b"one"
    assert stores.held(1) == [{"0": b"one"}, {}, {"0": b"one"}]


def test_a_reader_finds_what_a_higher_ballot_decided(stores):
    for store, votes in enumerate([(NIL, b"two"), (b"one", b"two"), (NIL,)]):
        for ballot, data in enumerate(votes):
            stores.write(store, 1, ballot, data)
    assert stores.open().read(1) == b"two"


def test_a_reader_claims_above_all_ballots_where_a_vote_was_closed(stores):
    # Ballot 2 may be decided on stores a and b; b is down, and nobody has claimed ballot 1.
    for store, votes in enumerate([(NIL, NIL, b"two"), (), (NIL, NIL, NIL)]):
        for ballot, data in enumerate(votes):
            stores.write(store, 1, ballot, data)
    slots = stores.open()
    fail(slots, 1, "silent")
    assert slots.read(1) == b"two"
    assert stores.held(1)[2]["3"] == b"two"


def test_confirm_creates_what_it_found_on_a_majority(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    reader = stores.open()
    reader.confirm(0)
    assert sum(len(store.creates) for store in reader.stores) == 0
    reader.confirm(1)
    assert sum(bool(store.creates) for store in reader.stores) >= 2
    reader.confirm(2)
    assert stores.held(2) == [{}, {}, {}]


# Threads, and many processes


@pytest.mark.on_disk("a hundred entries take longer in a bucket than the limit by themselves")
def test_a_store_that_hangs_delays_no_process(stores):
    release = threading.Event()

    class Hanging(TroubledStore):
        def create(self, key, data):
            release.wait()
            return super().create(key, data)

    connections = [TroubledStore(stores.inner[0]), TroubledStore(stores.inner[1]), Hanging(stores.inner[2])]
    joined = [Member(store, f"n{i}", f"incarnation-{i}") for i, store in enumerate(connections)]
    slots = Registers(Members(joined), JOURNAL, real_environment(), PATIENCE_MS)
    began = time.monotonic()
    for n in range(1, 101):
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        assert slots.read(n) == b"%d" % n
    assert time.monotonic() - began < quorum.ANSWER_SECONDS
    release.set()


def test_threads_end_with_the_journal(stores):
    joined = [Member(store, f"n{i}", f"incarnation-{i}") for i, store in enumerate(stores.inner)]
    before = set(threading.enumerate())
    slots = Registers(Members(joined), JOURNAL, real_environment(), PATIENCE_MS)
    slots.propose(1, b"one")
    started = set(threading.enumerate()) - before
    assert len(started) == 3
    del slots
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_racing_processes_agree_on_every_schedule(first):
    silent = []
    for seed in range(first, first + 20):
        told, errors = race(seed)
        silent += [] if told or errors.count("crashed") == PROCESSES else [seed]
        for n, values in told.items():
            assert len(values) == 1, f"seed {seed}: entry {n} is {values}; errors {errors}"
    assert len(silent) <= 1, f"seeds {silent}: no process was given an answer within its patience"


def race(seed, entries=4):
    """Let processes append until they end or crash; return what anybody was told of each entry."""
    chance, clock = random.Random(seed), Clock()
    weather = Weather(
        crash=0.004, unavailable=0.03, lost_answer=0.03, late_answer=0.02, sleep=0.02, sleep_seconds_max=2.0,
        latency_seconds=0.003, page=1000, stale_list_seconds=0,
    )  # fmt: skip
    disks = [Objects() for _ in range(3)]
    for i, disk in enumerate(disks):
        disk.data[layout.MARKER] = node.encode(Marker("c", f"n{i}", f"incarnation-{i}"))
    told, errors = defaultdict(set), []
    lost = chance.choice([None, 0, 1, 2])

    def process(name):
        connections = [SimulatedStore(disk, clock, chance, weather, lambda *_: None) for disk in disks]
        joined = [Member(store, f"n{i}", f"incarnation-{i}") for i, store in enumerate(connections)]
        nonces = iter(range(10**6))
        environment = Environment(
            now_ms=lambda: 0,
            monotonic=lambda: clock.now,
            sleep=clock.pause,
            uniform=chance.uniform,
            nonce=lambda: f"{name}-{next(nonces)}",
        )
        slots = Registers(Members(joined, SimulatedThreads(clock)), JOURNAL, environment, PATIENCE_MS)
        n = 1
        while n <= entries:
            try:
                found = slots.read(n)
                if found is None:
                    found = slots.propose(n, f"{name}:{n}:{environment.nonce()}".encode())
            except (OutcomeUnknown, StoreUnavailable) as error:
                errors.append(error)
                continue
            told[n].add(found)
            n += 1

    def one(name):
        try:
            process(name)
        except Crashed:
            errors.append("crashed")

    for i in range(PROCESSES):
        clock.spawn(f"p{i}", lambda i=i: one(f"p{i}"), chance.uniform(0, 0.02))
    if lost is not None:
        clock.spawn("loss", disks[lost].data.clear, chance.uniform(0, 0.2))
    clock.run()
    if clock.failure is not None:
        raise clock.failure
    return told, errors


# The format


@given(st.binary(min_size=1), st.integers(0, 99), st.booleans())
def test_a_register_holds_what_was_written(data, ballot, is_claim):
    register = Register(ballot, is_claim)
    assert registers.decode(register, registers.encode(register, data), "it") == data


def test_a_vote_may_hold_nil_and_a_claim_may_not():
    nil = registers.encode(Register(1), NIL)
    assert registers.decode(Register(1), nil, "it") == NIL
    with pytest.raises(CorruptObject):
        registers.decode(Register(1, is_claim=True), nil, "it")


def test_a_register_of_a_newer_kind_is_not_guessed_at():
    with pytest.raises(NewerFormat):
        registers.decode(Register(1), registers.seal(registers._MAGIC, 1, b"Zwhat"), "it")
