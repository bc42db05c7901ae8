"""A journal on three stores: one entry at each number, whichever store is down, lost, slow or in doubt."""

import os
import random
import threading
import time
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.environment import Environment, real_environment
from pyspark_log_coordinator.journal import quorum, registers
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import (
    CorruptObject,
    NewerFormat,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.memory import MemoryStore
from pyspark_log_storage.node import Marker
from tests.coordinator.calls import ShuffledCalls, SimulatedCalls
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.troubled_store import TroubledStore
from tests.simulator.clock import Clock
from tests.simulator.store import Crashed, Objects, SimulatedStore, Weather

JOURNAL = "journal/"
FOLDER = f"{JOURNAL}entries/"
PATIENCE_MS = 30_000


class Stores:
    """Three stores, a node each, and processes that open the journal on them."""

    def __init__(self) -> None:
        self.inner = [MemoryStore(f"store-{letter}") for letter in "abc"]
        for i, store in enumerate(self.inner):
            mark(store, i)

    def open(self, seed=0, calls=None):
        """Return the journal as another process sees it: connections of its own, and no right to anything."""
        connections = [TroubledStore(store) for store in self.inner]
        joined = [Member(store, f"n{i}", f"incarnation-{i}") for i, store in enumerate(connections)]
        calls = calls or ShuffledCalls(seed)
        slots = Registers(Members(joined, calls), JOURNAL, fake_environment(), PATIENCE_MS)
        slots.stores = connections
        slots.calls = calls
        return slots

    def held(self, n=None):
        """Return what lies in the votes and claims of each store, by short names: `0`, `1.claim`, `1`."""
        return [
            {
                key.partition(".")[2]: content(store, key)
                for key in store.list(FOLDER)
                if n is None or int(key.removeprefix(FOLDER).partition(".")[0]) == n
            }
            for store in self.inner
        ]

    def write(self, store, n, ballot, data):
        """Write a vote as a process did that is no more."""
        register = Register(ballot)
        self.inner[store].create(f"{FOLDER}{n:020d}.{ballot}", registers.encode(register, data))


def mark(store, i, incarnation=None):
    store.put(layout.KEY, node.encode(Marker("c", f"n{i}", incarnation or f"incarnation-{i}")))


def content(store, key):
    ballot, _, claim = key.removeprefix(FOLDER).partition(".")[2].partition(".")
    return registers.decode(Register(int(ballot), claim == "claim"), store.read(key), key)


@pytest.fixture
def stores():
    return Stores()


# With all stores


def test_what_is_proposed_first_is_decided_and_read_by_all(stores):
    slots = stores.open()
    assert slots.read(1) is None
    assert slots.propose(1, b"first") == b"first"
    assert stores.open().propose(1, b"second") == b"first"
    assert stores.open().read(1) == b"first"
    assert stores.open().read(2) is None


def test_after_its_own_entry_a_process_decides_with_one_create_at_each_store(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.finish()
    for store in slots.stores:
        store.creates.clear()
        store.reads.clear()
    assert slots.propose(2, b"two") == b"two"
    slots.calls.finish()  # the one that was not waited for
    for store in slots.stores:
        assert store.creates == [f"{FOLDER}{2:020d}.0"]
        assert store.reads == [f"{JOURNAL}spares/entries/{2:020d}.0", layout.KEY]


def test_after_an_entry_of_another_a_process_claims_a_ballot(stores):
    stores.open().propose(1, b"another")
    slots = stores.open()
    assert slots.propose(1, b"mine") == b"another"
    slots.propose(2, b"mine")
    claimed = [held for held in stores.held(2) if "1" in held]
    assert len(claimed) >= 2
    assert all("1.claim" in held and held["0"] == NIL for held in claimed)


def test_who_led_and_was_overtaken_reads_what_was_decided_and_claims_nothing(stores):
    slots, other = stores.open(), stores.open()
    slots.propose(1, b"one")
    other.propose(2, b"another")
    began = slots._environment.monotonic()
    assert slots.propose(2, b"mine") == b"another"
    assert slots._environment.monotonic() == began  # it has not waited for anybody
    assert all(len([key for key in store.creates if f"{2:020d}" in key]) <= 1 for store in slots.stores)


def test_nobody_leads_twice_at_one_entry(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.hanging = {0, 1, 2}
    with pytest.raises(OutcomeUnknown):
        slots.propose(2, b"two")
    slots.calls.hanging = set()
    assert slots.propose(1, b"one") == b"one"
    slots.propose(2, b"three")
    assert b"three" not in [held["0"] for held in stores.held(2) if "0" in held]


def test_a_forked_process_does_not_lead(stores, monkeypatch):
    slots = stores.open()
    slots.propose(1, b"one")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    slots.propose(2, b"two")
    assert b"two" not in [held.get("0") for held in stores.held(2)]


# A store is down


@pytest.mark.parametrize("down", [0, 1, 2])
@pytest.mark.parametrize("trouble", ["silent", "refusing", "hanging"])
def test_one_store_that_is_down_is_not_missed(stores, down, trouble):
    slots = stores.open(seed=down)
    fail(slots, down, trouble)
    for n in range(1, 5):
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        assert slots.read(n) == b"%d" % n
    assert not stores.held()[down]
    assert stores.open().propose(4, b"late") == b"4"


def fail(slots, store, trouble):
    if trouble == "hanging":
        slots.calls.hanging.add(store)
        return
    error = StoreUnavailable if trouble == "silent" else StoreRefused

    def broken(*args):
        raise error(slots.stores[store].url, "key", f"it is {trouble}")

    for name in ("create", "read"):
        setattr(slots.stores[store], name, broken)


def test_two_stores_down_is_an_error_that_names_them_and_can_be_tried_again(stores):
    slots = stores.open()
    fail(slots, 0, "silent")
    fail(slots, 2, "silent")
    for what in (lambda: slots.propose(1, b"mine"), lambda: slots.read(1), lambda: slots.confirm(1)):
        with pytest.raises(
            StoreUnavailable, match="'n0' at store-a: it is silent; node 'n2' at store-c: it is"
        ) as raised:
            what()
        assert raised.value.retriable
        assert "2 of 3 stores do not answer, and 2 must" in raised.value.message
    assert stores.held()[1].keys() <= {"1.claim"}


def test_two_stores_that_hang_are_an_error_too(stores):
    slots = stores.open()
    slots.calls.hanging = {1, 2}
    with pytest.raises(StoreUnavailable, match="'n1' at store-b: no answer within 1 s"):
        slots.propose(1, b"mine")


def test_what_one_store_has_taken_of_a_leader_may_be_decided_yet(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    fail(slots, 0, "silent")
    fail(slots, 1, "silent")
    with pytest.raises(OutcomeUnknown, match="may or may not be decided"):
        slots.propose(2, b"two")
    assert stores.open().propose(2, b"other") in {b"two", b"other"}


def test_two_stores_that_refuse_are_told_at_once_and_nothing_was_proposed(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    for store in range(3):
        fail(slots, store, "refusing")
    began = slots._environment.monotonic()
    with pytest.raises(StoreRefused, match="repair a store"):
        slots.propose(2, b"two")
    assert slots._environment.monotonic() - began < 1


# A store is another


@pytest.mark.parametrize("marker", ["missing", "another"])
def test_a_store_in_another_incarnation_counts_for_nothing(stores, marker):
    slots = stores.open()
    slots.propose(1, b"one")
    stores.inner[0] = MemoryStore("store-a")
    if marker == "another":
        mark(stores.inner[0], 0, "incarnation-of-a-new-disk")
    slots = stores.open()
    assert slots.propose(1, b"again") == b"one"
    assert slots.propose(2, b"two") == b"two"
    assert stores.open().read(2) == b"two"
    assert stores.held()[0] == {}


def test_two_stores_in_other_incarnations_decide_nothing(stores):
    for i in (0, 1):
        mark(stores.inner[i], i, "new")
    with pytest.raises(StoreRefused, match=r"'n0' at store-a.*is its disk mounted, or was it wiped"):
        stores.open().propose(1, b"mine")


def test_two_stores_that_are_not_mounted_are_told_at_once_and_may_be_asked_again(stores):
    stores.open().propose(1, b"one")
    markers = {i: stores.inner[i].read(layout.KEY) for i in (0, 1)}
    for i in (0, 1):
        stores.inner[i].delete(layout.KEY)
    slots = stores.open()
    began = slots._environment.monotonic()
    with pytest.raises(StoreUnavailable, match=r"'n0' at store-a.*is its disk mounted.*try again"):
        slots.read(1)
    assert slots._environment.monotonic() - began < 1
    for i in (0, 1):
        stores.inner[i].put(layout.KEY, markers[i])
    assert slots.read(1) == b"one"


def test_a_proposal_that_one_store_has_waits_for_the_stores_that_are_not_mounted(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    markers = {i: stores.inner[i].read(layout.KEY) for i in (0, 1)}
    for i in (0, 1):
        stores.inner[i].delete(layout.KEY)

    def sleep(seconds):
        environment.sleep(seconds)
        if environment.monotonic() >= 8:
            for i in (0, 1):
                stores.inner[i].put(layout.KEY, markers[i])

    environment = slots._environment
    slots._environment = msgspec.structs.replace(environment, sleep=sleep)
    assert slots.propose(2, b"two") == b"two"


def test_an_answer_does_not_count_where_the_marker_went_meanwhile(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    for i in (0, 1):
        slots.stores[i].be_slow(FOLDER, lambda i=i: stores.inner[i].delete(layout.KEY))
    with pytest.raises(OutcomeUnknown, match="2 of 3 stores"):
        slots.propose(2, b"two")


def test_nothing_is_written_below_a_mount_point(stores):
    slots = stores.open()
    stores.inner[0].delete(layout.KEY)
    slots.propose(1, b"one")
    slots.read(1)
    assert slots.stores[0].creates == []


# A create is in doubt


@pytest.mark.parametrize("seed", range(10))
def test_a_doubtful_create_is_asked_again_with_the_same_bytes(stores, seed):
    slots = stores.open(seed)
    for n in (1, 2):
        for store in slots.stores:
            store.lose_answers(FOLDER, times=2)
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        values = {held[key] for held in stores.held(n) for key in held if "claim" not in key} - {NIL}
        assert values == {b"%d" % n}


def test_after_doubt_other_bytes_go_into_another_ballot(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    for store in slots.stores[:2]:
        store.lose_answers(FOLDER, times=10**6)
    with pytest.raises(OutcomeUnknown):
        slots.propose(2, b"two")
    for store in slots.stores:
        store.troubles.clear()
    assert slots.propose(2, b"three") == b"two"


def test_a_damaged_register_counts_for_nothing(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    slots.propose(2, b"two")
    slots.read(2)
    stores.inner[1].put(f"{FOLDER}{2:020d}.0", b"rotten")
    assert stores.open().read(2) == b"two"
    assert stores.open().propose(2, b"other") == b"two"


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


def test_a_store_that_hangs_holds_up_nobody(stores):
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
        silent += [] if told else [seed]
        for n, values in told.items():
            assert len(values) == 1, f"seed {seed}: entry {n} is {values}; errors {errors}"
    assert len(silent) <= 1, f"seeds {silent}: no process was given an answer within its patience"


def race(seed, processes=4, entries=4):
    """Let processes append until they end or crash; return what anybody was told of each entry."""
    chance, clock = random.Random(seed), Clock()
    weather = Weather(
        crash=0.004, unavailable=0.03, lost_answer=0.03, late_answer=0.02, sleep=0.02, sleep_seconds_max=2.0,
        latency_seconds=0.003, page=1000, stale_list_seconds=0,
    )  # fmt: skip
    disks = [Objects() for _ in range(3)]
    for i, disk in enumerate(disks):
        disk.data[layout.KEY] = node.encode(Marker("c", f"n{i}", f"incarnation-{i}"))
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
        slots = Registers(Members(joined, SimulatedCalls(clock)), JOURNAL, environment, PATIENCE_MS)
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
            errors.append(name)

    for i in range(processes):
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
