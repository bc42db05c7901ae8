"""Registers of a journal on three stores: one entry at each number, whichever store is down, lost, slow or in doubt."""

import os

import msgspec
import pytest

from pyspark_log_coordinator.journal.paxos import NIL, Register, majority
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from tests.support.coordinator.register_stores import FOLDER, JOURNAL, PATIENCE_MS, Stores, fail, mark
from tests.support.elsewhere import PlainStore


@pytest.fixture
def stores():
    return Stores()


def test_half_of_the_stores_is_no_majority():
    assert [majority(stores) for stores in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


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
        assert store.reads == [f"{JOURNAL}spares/entries/{2:020d}.0", layout.MARKER]


def test_after_an_entry_of_another_a_process_claims_a_ballot(stores):
    stores.open().propose(1, b"another")
    slots = stores.open()
    assert slots.propose(1, b"mine") == b"another"
    slots.propose(2, b"mine")
    claimed = [held for held in stores.held(2) if "1" in held]
    assert len(claimed) >= 2
    assert all("1.claim" in held and held["0"] == NIL for held in claimed)


def test_a_former_leader_reads_the_decided_entry_and_claims_nothing(stores):
    slots, other = stores.open(), stores.open()
    slots.propose(1, b"one")
    other.propose(2, b"another")
    began = slots._environment.monotonic()
    assert slots.propose(2, b"mine") == b"another"
    assert slots._environment.monotonic() == began  # it has not waited for anybody
    assert all(len([key for key in store.creates if f"{2:020d}" in key]) <= 1 for store in slots.stores)


def test_no_process_leads_twice_at_one_entry(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.hanging = {0, 1, 2}
    with pytest.raises(OutcomeUnknown):
        slots.propose(2, b"two")
    assert not slots.leads(2)
    slots.calls.hanging = set()
    assert slots.propose(1, b"one") == b"one"
    slots.propose(2, b"three")
    assert b"three" not in [held["0"] for held in stores.held(2) if "0" in held]


@pytest.mark.on_disk("s3fs refuses to work in a forked process")
def test_a_forked_process_does_not_lead(stores, monkeypatch):
    slots = stores.open()
    slots.propose(1, b"one")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    slots.propose(2, b"two")
    assert b"two" not in [held.get("0") for held in stores.held(2)]


def test_votes_that_are_lost_after_the_answer_are_read_from_their_spares(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.finish()
    for store in stores.inner:
        store.delete(slots.key(1, Register(0)))
    assert stores.open().read(1) == b"one"


def test_an_entry_of_which_one_store_has_a_vote_is_not_known_to_exist(stores):
    stores.write(0, 1, 0, b"on one store")
    for number in (0, 2):
        stores.write(number, 2, 0, b"on two")
    assert list(stores.open().numbers_below(3)) == [2]


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
        assert "2 of 3 stores failed, and 2 must answer" in raised.value.message
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


def test_two_stores_that_refuse_are_an_error_at_once_and_nothing_is_proposed(stores):
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
    stores.inner[0] = PlainStore("store-a")
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


def test_two_unmounted_stores_are_an_error_at_once_that_can_be_retried(stores):
    stores.open().propose(1, b"one")
    markers = {i: stores.inner[i].read(layout.MARKER) for i in (0, 1)}
    for i in (0, 1):
        stores.inner[i].delete(layout.MARKER)
    slots = stores.open()
    began = slots._environment.monotonic()
    with pytest.raises(StoreUnavailable, match=r"'n0' at store-a.*is its disk mounted.*try again"):
        slots.read(1)
    assert slots._environment.monotonic() - began < 1
    for i in (0, 1):
        stores.inner[i].put(layout.MARKER, markers[i])
    assert slots.read(1) == b"one"


def test_a_proposal_that_one_store_has_waits_for_the_stores_that_are_not_mounted(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    markers = {i: stores.inner[i].read(layout.MARKER) for i in (0, 1)}
    for i in (0, 1):
        stores.inner[i].delete(layout.MARKER)

    def sleep(seconds):
        environment.sleep(seconds)
        if environment.monotonic() >= 8:
            for i in (0, 1):
                stores.inner[i].put(layout.MARKER, markers[i])

    environment = slots._environment
    slots._environment = msgspec.structs.replace(environment, sleep=sleep)
    assert slots.propose(2, b"two") == b"two"


def test_an_answer_does_not_count_where_the_marker_went_meanwhile(stores):
    slots = stores.open()
    slots.propose(1, b"one")
    for i in (0, 1):
        slots.stores[i].be_slow(FOLDER, lambda i=i: stores.inner[i].delete(layout.MARKER))
    with pytest.raises(OutcomeUnknown, match="2 of 3 stores"):
        slots.propose(2, b"two")


def test_nothing_is_written_below_a_mount_point(stores):
    slots = stores.open()
    stores.inner[0].delete(layout.MARKER)
    slots.propose(1, b"one")
    slots.read(1)
    assert slots.stores[0].creates == []


def test_a_leader_whose_vote_was_closed_elsewhere_does_not_say_that_nothing_was_proposed(stores):
    """One store has its vote, one the closed vote of a process that is no more; then two stores do not answer."""
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.finish()
    stores.write(1, 2, 0, NIL)
    slots.calls.hanging = {2}

    def hang_at_the_next_read():
        slots.stores[1].be_slow_to_read(f"{FOLDER}{2:020d}.0", lambda: fail(slots, 1, "hanging"))

    slots.stores[1].be_slow(FOLDER, hang_at_the_next_read)
    with pytest.raises(OutcomeUnknown, match="may or may not be decided"):
        slots.propose(2, b"two")
    assert stores.open().propose(2, b"another") == b"two"


def test_a_leader_whose_vote_was_closed_elsewhere_counts_a_store_that_answers_late(stores):
    """The store that hung has its vote by then, and the one that closed it does not answer any more."""
    slots = stores.open()
    slots.propose(1, b"one")
    slots.calls.finish()
    stores.write(1, 2, 0, NIL)
    slots.calls.hanging = {2}

    def change_places():
        slots.calls.hanging = {1}

    slots.stores[1].be_slow_to_read(f"{FOLDER}{2:020d}.1", change_places)
    assert slots.propose(2, b"two") == b"two"
    assert slots._environment.monotonic() < PATIENCE_MS / 1000


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
