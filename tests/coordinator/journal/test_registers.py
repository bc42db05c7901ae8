"""Registers of a journal on three stores: one entry at each number, whichever store is down, lost, slow or in doubt."""

import os
import re
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import place, registers
from pyspark_log_coordinator.journal.paxos import NIL
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_storage import layout
from pyspark_log_storage.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment, with_journal_threads
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.three_stores import mark, marked_stores
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.memory_store import MemoryStore

JOURNAL = "journal/"
FOLDER = f"{JOURNAL}entries/"
PATIENCE_MS = 30_000


class Stores:
    """Three stores, a node each, and processes that open the journal on them."""

    def __init__(self):
        self.inner = marked_stores()

    def open(self, seed=0):
        """Return the journal as another process sees it: connections of its own, and no right to anything."""
        connections = [TroubledStore(store) for store in self.inner]
        joined = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(connections)]
        calls = ShuffledThreads(seed)
        environment = with_journal_threads(fake_environment(), calls)
        slots = Registers(SeveralStores(joined, environment, patience_ms=PATIENCE_MS), JOURNAL)
        slots.stores, slots.calls = connections, calls
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
        self.inner[store].create(f"{FOLDER}{n:020d}.{ballot}", registers.encode(data))


def content(store, key):
    return registers.decode(store.read(key), key)


def fail(slots, store, trouble):
    if trouble == "hanging":
        slots.calls.hanging.add(store)
        return
    error = StoreUnavailable if trouble == "silent" else StoreRefused

    def broken(*args):
        raise error(slots.stores[store].url, "key", f"it is {trouble}")

    for name in ("create", "read"):
        setattr(slots.stores[store], name, broken)


@pytest.fixture
def stores():
    return Stores()


@pytest.fixture
def leader(stores):
    """A process that has decided entry 1, and leads the next."""
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.finish()
    return slots


def test_a_former_leader_reads_the_decided_entry_and_claims_nothing(stores, leader):
    stores.open().propose(2, b"another")
    began = leader._environment.monotonic()
    assert leader.propose(2, b"mine") == b"another"
    assert leader._environment.monotonic() == began  # it has not waited for anybody
    assert all(len([key for key in store.creates if f"{2:020d}" in key]) <= 1 for store in leader.stores)


def test_no_process_leads_twice_at_one_entry(stores, leader):
    leader.calls.hanging = {0, 1, 2}
    with pytest.raises(OutcomeUnknown):
        leader.propose(2, b"two")
    assert not leader.leads(2)
    leader.calls.hanging = set()
    assert leader.propose(1, b"one") == b"one"
    leader.propose(2, b"three")
    assert b"three" not in [held["0"] for held in stores.held(2) if "0" in held]


def test_a_forked_process_does_not_lead(stores, leader, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    leader.propose(2, b"two")
    assert b"two" not in [held.get("0") for held in stores.held(2)]


# A store is down


@pytest.mark.parametrize(("down", "trouble"), [(0, "silent"), (1, "refusing"), (2, "hanging"), (0, "hanging")])
def test_one_store_that_is_down_is_not_missed(stores, down, trouble):
    slots = stores.open(seed=down)
    fail(slots, down, trouble)
    for n in range(1, 5):
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        assert slots.read(n) == b"%d" % n
    assert not stores.held()[down]
    assert stores.open().propose(4, b"late") == b"4"


@pytest.mark.parametrize(("trouble", "said"), [("silent", "it is silent"), ("hanging", "no answer within 1 s")])
def test_two_stores_down_is_an_error_that_names_them_and_can_be_tried_again(stores, trouble, said):
    slots = stores.open()
    fail(slots, 0, trouble)
    fail(slots, 2, trouble)
    for what in (lambda: slots.propose(1, b"mine"), lambda: slots.read(1), lambda: slots.confirm(1)):
        with pytest.raises(StoreUnavailable, match=f"'0' at store-a: {said}") as raised:
            what()
        assert raised.value.retriable
        assert "2 of 3 stores failed, and 2 must answer" in raised.value.message
    assert stores.held()[1].keys() <= {"1.claim"}


def test_stores_that_refuse_are_an_error_at_once_and_nothing_is_proposed(leader):
    for store in range(3):
        fail(leader, store, "refusing")
    began = leader._environment.monotonic()
    with pytest.raises(StoreRefused, match="repair a store"):
        leader.propose(2, b"two")
    assert leader._environment.monotonic() - began < 1


# A store is another


@pytest.mark.parametrize("marker", ["missing", "another"])
def test_a_store_in_another_incarnation_counts_for_nothing(stores, leader, marker):
    stores.inner[0] = MemoryStore("store-a")
    if marker == "another":
        mark(stores.inner[0], 0, "incarnation-of-a-new-disk")
    slots = stores.open()
    assert slots.propose(1, b"again") == b"one"
    assert slots.propose(2, b"two") == b"two"
    assert stores.open().read(2) == b"two"
    assert stores.held()[0] == {}
    assert slots.stores[0].creates == [], "nothing is written below a mount point"
    mark(stores.inner[1], 1, "new")
    with pytest.raises(StoreRefused if marker == "another" else StoreUnavailable, match="is its disk mounted"):
        stores.open().propose(3, b"mine")


def test_a_proposal_that_one_store_has_waits_for_the_stores_that_are_not_mounted_and_says_so(stores, leader, caplog):
    markers = {i: stores.inner[i].read(layout.MARKER) for i in (0, 1)}
    for i in (0, 1):
        stores.inner[i].delete(layout.MARKER)
    reader = stores.open()
    with pytest.raises(StoreUnavailable, match=r"'0' at store-a.*is its disk mounted.*try again"):
        reader.read(1)
    assert reader._environment.monotonic() < 1, "a reader does not wait"
    environment = leader._environment

    def sleep(seconds):
        environment.sleep(seconds)
        if environment.monotonic() >= 8:
            for i in (0, 1):
                stores.inner[i].put(layout.MARKER, markers[i])

    leader._environment = msgspec.structs.replace(environment, sleep=sleep)
    assert leader.propose(2, b"two") == b"two"
    (warning,) = caplog.messages
    assert re.match(r"retrying for up to .* s: .* is on too few stores: .*'0' at store-a.*disk mounted", warning)
    assert reader.read(1) == b"one"


def test_an_answer_does_not_count_where_the_marker_went_meanwhile(stores, leader):
    for i in (0, 1):
        leader.stores[i].be_slow(FOLDER, lambda i=i: stores.inner[i].delete(layout.MARKER))
    with pytest.raises(OutcomeUnknown, match="2 of 3 stores"):
        leader.propose(2, b"two")


def test_a_leader_whose_vote_was_closed_elsewhere_does_not_say_that_nothing_was_proposed(stores, leader):
    """One store has its vote, one the closed vote of a process that is no more; then two stores do not answer."""
    stores.write(1, 2, 0, NIL)
    leader.calls.hanging = {2}

    def hang_at_the_next_read():
        leader.stores[1].be_slow_to_read(f"{FOLDER}{2:020d}.0", lambda: fail(leader, 1, "hanging"))

    leader.stores[1].be_slow(FOLDER, hang_at_the_next_read)
    with pytest.raises(OutcomeUnknown, match="may or may not be decided"):
        leader.propose(2, b"two")
    assert stores.open().propose(2, b"another") == b"two"


# Threads


def test_a_store_that_hangs_delays_no_process_and_threads_end_with_the_journal(stores):
    release, before = threading.Event(), set(threading.enumerate())

    class Hanging(TroubledStore):
        def create(self, key, data):
            release.wait()
            return super().create(key, data)

    connections = [TroubledStore(stores.inner[0]), TroubledStore(stores.inner[1]), Hanging(stores.inner[2])]
    joined = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(connections)]
    slots = Registers(SeveralStores(joined, real_environment(), patience_ms=PATIENCE_MS), JOURNAL)
    began = time.monotonic()
    for n in range(1, 101):
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        assert slots.read(n) == b"%d" % n
    assert time.monotonic() - began < place.ANSWER_SECONDS
    release.set()
    started = set(threading.enumerate()) - before
    assert len(started) == 3
    del slots
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


# The format


@settings(max_examples=30, deadline=None)
@given(st.binary())
def test_a_register_holds_what_was_written(data):
    assert registers.decode(registers.encode(data), "it") == data


@pytest.mark.parametrize("seed", range(3))
def test_a_doubtful_create_is_asked_again_with_the_same_bytes(stores, seed):
    slots = stores.open(seed)
    for n in (1, 2):
        for store in slots.stores:
            store.lose_answers(FOLDER, times=2)
        assert slots.propose(n, b"%d" % n) == b"%d" % n
        values = {held[key] for held in stores.held(n) for key in held if "claim" not in key} - {NIL}
        assert values == {b"%d" % n}


def test_a_damaged_register_counts_for_nothing(stores, leader):
    leader.propose(2, b"two")
    leader.read(2)
    stores.inner[1].put(f"{FOLDER}{2:020d}.0", b"rotten")
    assert stores.open().read(2) == b"two"
    assert stores.open().propose(2, b"other") == b"two"
