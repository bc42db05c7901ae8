"""The faults that a `ChaosStore` makes, and the options that say how often.

A store may always do these (`Store`), and the log stays right:

    unavailable         nothing is done, and the answer is an error
    slow_down           the same, with the words of S3's 503 SlowDown
    lost_answers        the call is done, and the answer is an error; a list ends in the middle
    missing_markers     the node's marker seems to be missing, as on a disk that is not mounted
    kills               the process is killed (SIGKILL), before the call is done or after it
    delay_ms            the call takes longer, by a random time up to this one

These break the promises of `Store`. `self_test` finds a store that always makes one of them:

    stale_lists         a list is an old one: new objects are not in it, and deleted ones are
    ignored_conditions  `create` replaces an existing object, and says that it created it
    torn_writes         an object is stored in part, and the answer is that all is well
    bit_rot             an object is stored with one bit flipped, and the answer is that all is well
    bad_reads           what is read has one bit flipped, and the stored object has not

An address names them: chaos+file:///data/log?seed=7&lost_answers=0.01&delay_ms=50. Each is a probability, of each call
at which it can happen, except `delay_ms`. With a `seed` a process that makes the same calls in the same order meets the
same faults.
"""

from __future__ import annotations

import enum
import random
import threading
from typing import Protocol
from urllib.parse import parse_qsl, quote

import msgspec

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.layout import MARKER

SCHEME = "chaos+"
"""How the address of a store begins that is wrapped: the rest is the address of the store in it, and the options."""
DELAY_MS_MAX = 3_600_000


class Fault(enum.Enum):
    """What goes wrong at a call."""

    UNAVAILABLE = "unavailable"
    SLOW_DOWN = "slow_down"
    LOST_ANSWER = "lost_answers"
    MISSING_MARKER = "missing_markers"
    KILL_BEFORE = "kills"
    KILL_AFTER = "kills, after the call is done"
    STALE_LIST = "stale_lists"
    IGNORED_CONDITION = "ignored_conditions"
    TORN_WRITE = "torn_writes"
    BIT_ROT = "bit_rot"
    BAD_READ = "bad_reads"


_ANY_CALL = (Fault.UNAVAILABLE, Fault.SLOW_DOWN, Fault.LOST_ANSWER, Fault.KILL_BEFORE, Fault.KILL_AFTER)
_WRITES = (Fault.TORN_WRITE, Fault.BIT_ROT)
_AT_CALLS: dict[str, tuple[Fault, ...]] = {
    "create": (Fault.IGNORED_CONDITION, *_WRITES),
    "create_unflushed": (Fault.IGNORED_CONDITION, *_WRITES),
    "open": (Fault.IGNORED_CONDITION, *_WRITES),
    "put": _WRITES,
    "read": (Fault.MISSING_MARKER, Fault.BAD_READ),
    "size": (Fault.MISSING_MARKER,),
    "list": (Fault.STALE_LIST,),
}


def faults_at(call: str, key: str) -> tuple[Fault, ...]:
    """Return the faults that can happen at a call, in a fixed order."""
    special = (each for each in _AT_CALLS.get(call, ()) if each is not Fault.MISSING_MARKER or key == MARKER)
    return (*_ANY_CALL, *special)


class Faults(Protocol):
    """Says what goes wrong at each call to a store."""

    def at(self, call: str, key: str) -> Fault | None:
        """Return the fault of the next call, a name in `_AT_CALLS` or of another method of `Store`; or None."""

    def delay(self) -> float:
        """Return how many seconds the next call takes longer."""

    def below(self, count: int) -> int:
        """Return a number from 0 to count - 1: which byte or bit a fault changes."""


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How often what goes wrong: probabilities from 0 to 1, by default 0."""

    seed: int | None = None
    """None: different faults in each process."""
    delay_ms: int = 0
    unavailable: float = 0
    slow_down: float = 0
    lost_answers: float = 0
    missing_markers: float = 0
    kills: float = 0
    stale_lists: float = 0
    ignored_conditions: float = 0
    torn_writes: float = 0
    bit_rot: float = 0
    bad_reads: float = 0


def split_address(address: str) -> tuple[str, str]:
    """Return the address of the store in a `chaos+...` address, and the text of its options."""
    inner, question_mark, options = address[len(SCHEME) :].rpartition("?")
    return (inner, options) if question_mark else (options, "")


def join_address(inner: str, options: str) -> str:
    """Return the address that `split_address` splits so. `inner` is canonical, and may be the path of a folder."""
    if inner.startswith("/"):
        inner = "file://" + quote(inner)
    return f"{SCHEME}{inner}" + (f"?{options}" if options else "")


def parse_options(text: str) -> ChaosOptions:
    """Return the options in the query of an address. Raises `InvalidOption`."""
    try:
        found = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        raise _refused(f"{text[:300]!r} is not a list of options like seed=7&lost_answers=0.01") from None
    names = [name for name, _ in found]
    for name in names:
        if name not in ChaosOptions.__struct_fields__:
            known = ", ".join(ChaosOptions.__struct_fields__)
            raise _refused(f"there is no option {name!r}; choose from {known}")
        if names.count(name) > 1:
            raise _refused(f"option {name!r} is given twice")
    try:
        options = msgspec.convert(dict(found), ChaosOptions, strict=False)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise _refused(f"{text[:300]!r}: {error}") from None
    if not 0 <= options.delay_ms <= DELAY_MS_MAX:
        raise _refused(f"delay_ms is {options.delay_ms}; choose 0 to {DELAY_MS_MAX} milliseconds")
    for fault in Fault:
        rate = getattr(options, fault.value, 0)
        if not 0 <= rate <= 1:
            raise _refused(f"{fault.value} is {rate:g}; choose a probability from 0 to 1")
    return options


def _refused(reason: str) -> InvalidOption:
    return InvalidOption("path", f"the address of a store with faults ({SCHEME}...) cannot be used: {reason}")


class RandomFaults:
    """Chooses faults at random, with the probabilities of the options. Safe for any number of threads."""

    def __init__(self, options: ChaosOptions) -> None:
        self._options = options
        self._chance = random.Random(options.seed)
        self._lock = threading.Lock()

    def at(self, call: str, key: str) -> Fault | None:
        with self._lock:
            for fault in faults_at(call, key):
                if fault is Fault.KILL_AFTER:
                    continue
                rate = getattr(self._options, fault.value)
                if rate and self._chance.random() < rate:
                    is_late = fault is Fault.KILL_BEFORE and self._chance.random() < 0.5  # noqa: PLR2004 -- half
                    return Fault.KILL_AFTER if is_late else fault
        return None

    def delay(self) -> float:
        with self._lock:
            return self._chance.uniform(0, self._options.delay_ms / 1000) if self._options.delay_ms else 0.0

    def below(self, count: int) -> int:
        with self._lock:
            return self._chance.randrange(count)
