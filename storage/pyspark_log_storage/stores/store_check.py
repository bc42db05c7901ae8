"""A check of a store by two users of it at once: whether each sees what the other has just written.

    selftest/<name>-hello-<nonce>             a user is there
    selftest/<name>-<round>-contest           both create it; it holds the nonce of the one that did
    selftest/<name>-<round>-seen-<nonce>      what a user read in it

The two are on different machines, or in one process, where they have a store object each and share the caches of the
operating system. In every round they create one object at once: one must win, and both must read the winner's bytes.
Each waits for the other's answer by reading a name that does not exist yet, and then lists it: a client that remembers
that it was missing would wait for ever. `self_test` has tested what one user can.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreError, StoreUnavailable, StoreUnfit
from pyspark_log_storage.layout import SELF_TEST
from pyspark_log_storage.stores.store_threads import StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")
ROUNDS = 50
PATIENCE_SECONDS = 60.0
"""How long a user waits for the other."""
LATE_SECONDS, LATE_ROUNDS = 3.0, 3
"""If answers take that long in so many rounds, a client remembers too long what was not there."""
_LOOK_SECONDS = 0.002


class Meeting(msgspec.Struct, frozen=True):
    """What one user found."""

    rounds: int
    won: int
    """In how many rounds it created the object."""
    slowest_ms: float
    """The longest time until it had the other's answer, which includes the other's work."""


def meet(store: Store, name: str, nonce: str, patience_seconds: float = PATIENCE_SECONDS) -> Meeting:
    """Be one of the two users; both give the same `name`, and different nonces.

    Raises `StoreUnfit` if the store does not do what `Store` promises, `StoreUnavailable` if no other user comes,
    `InvalidOption` if several do.
    """
    user = _User(store, f"{SELF_TEST}{name}-", nonce, patience_seconds)
    try:
        user.find_the_other()
        return user.meet()
    except BaseException:
        with contextlib.suppress(StoreError):
            user.delete_mine()
        raise


def meet_oneself(stores: Sequence[Store], name: str, patience_seconds: float = PATIENCE_SECONDS) -> Meeting:
    """Be both users, with a store object each, which are of the same store. Raises what `meet` raises."""
    threads = StoreThreads("check")
    for nonce, store in zip("ab", stores, strict=True):
        threads.start(nonce, partial(meet, store, name, nonce, patience_seconds))
    answers = [answer for _ in stores if (answer := threads.next(None))]
    threads.end()
    if errors := [each.error for each in answers if each.error is not None]:
        # If one user fails, the other waits for it in vain: that is not the reason.
        raise min(errors, key=lambda error: not isinstance(error, StoreUnfit))
    found: Meeting = answers[0].result
    return found


class _User:
    """One of the two users."""

    def __init__(self, store: Store, prefix: str, nonce: str, patience_seconds: float) -> None:
        self._store = store
        self._prefix, self._nonce, self._other = prefix, nonce, ""
        self._patience = patience_seconds
        self._slowest, self._late = 0.0, 0

    def find_the_other(self) -> None:
        """Say hello, and wait for the other's."""
        hello = f"{self._prefix}hello-"
        self._store.create(f"{hello}{self._nonce}", self._nonce.encode())

        def others() -> list[str]:
            there = [key for key in self._store.list(SELF_TEST) if key.startswith(hello)]
            return [key.removeprefix(hello) for key in there if key != f"{hello}{self._nonce}"]

        found = self._wait(others, "nobody else has begun to check it; begin on both machines within a minute")
        if len(found) > 1:
            raise InvalidOption("meet", "more than two users met, or an earlier check failed; choose another name")
        self._other = found[0]

    def meet(self) -> Meeting:
        won = sum(self._round(f"{self._prefix}{number:02}-") for number in range(ROUNDS))
        self._store.delete(f"{self._prefix}hello-{self._other}")
        return Meeting(ROUNDS, won, round(self._slowest * 1000, 1))

    def delete_mine(self) -> None:
        """Delete what this user alone has written; the other may need the rest to find the reason, too."""
        for key in list(self._store.list(SELF_TEST)):
            if key.startswith(self._prefix) and key.endswith(f"-{self._nonce}"):
                self._store.delete(key)

    def _round(self, prefix: str) -> bool:
        """Create an object while the other does; return whether this one did."""
        contest, theirs = f"{prefix}contest", f"{prefix}seen-{self._other}"
        self._read(theirs)  # most likely missing, which a client may remember
        won = self._store.create(contest, self._nonce.encode())
        winner = self._read(contest)
        self._must(winner is not None, "it does not find an object that it refused to create, since it exists")
        expected = self._nonce if won else self._other
        self._must(winner == expected.encode(), "two users created one object at once, and both or none of them did")
        assert winner is not None
        self._store.put(f"{prefix}seen-{self._nonce}", winner)
        began = time.monotonic()
        seen = self._wait(lambda: self._read(theirs), "a user does not see what another has written")
        waited = time.monotonic() - began
        self._slowest = max(self._slowest, waited)
        self._late += waited > LATE_SECONDS
        promise = f"a user sees what another has written only {waited:.1f} s later"
        self._must(self._late < LATE_ROUNDS, promise, "mount it without caches of names and attributes")
        self._must(seen == winner, "two users read different bytes in one object")
        self._must(theirs in self._store.list(SELF_TEST), "it does not list an object that it returns")
        self._store.delete(theirs)
        if won:
            self._store.delete(contest)
        return won

    def _read(self, key: str) -> bytes | None:
        try:
            return self._store.read(key)
        except ObjectMissing:
            return None

    def _wait(self, look: Callable[[], T | None], reason: str) -> T:
        deadline = time.monotonic() + self._patience
        while not (found := look()):
            if time.monotonic() >= deadline:
                raise StoreUnavailable(
                    self._store.url, "", f"{self._store.url}: {reason} ({self._patience:g} s have passed)"
                )
            time.sleep(_LOOK_SECONDS)
        return found

    def _must(self, held: object, promise: str, cure: str = "choose another kind of store") -> None:
        if not held:
            message = f"the store at {self._store.url} cannot hold a log: {promise}; {cure}"
            raise StoreUnfit(self._store.url, self._prefix, message)
