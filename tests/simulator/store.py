"""The simulated store: objects in memory, seen by each process through a connection that may fail at any operation.

    crash           the process ends, before the operation or after it, without the answer
    unavailable     nothing is done, and the answer is an error
    lost answer     it is done, and the answer is an error
    delay           before or after it is done: some milliseconds, or so long that the log has moved far on

A list comes in pages, each of its own moment. An object being written is invisible until it is closed, so a crash in
the middle leaves nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from pyspark_log_storage.errors import ObjectMissing, StoreError, StoreUnavailable, StoreUnwritable
from tests.simulator.clock import BEGIN_MS, Clock

_SLEEPS_BEFORE_CREATE = 8
"""How much more often a process sleeps before it creates something: what it has decided upon is old then."""
_ANSWERS_DELAYED = 0.25
"""How often others run between an operation and its answer."""
_TORN = 0.01
"""How often an object that is not flushed is there only in part."""
_CHANGES = {"create", "create unflushed", "put", "delete", "open", "close"}
"""The operations that a read-only disk refuses."""

T = TypeVar("T")


class Crashed(BaseException):
    """The process has ended. No handler of the product may catch it."""


class Weather(msgspec.Struct, frozen=True):
    """How often what goes wrong, as a probability for each operation; times in seconds."""

    crash: float
    unavailable: float
    lost_answer: float
    late_answer: float
    sleep: float
    sleep_seconds_max: float
    latency_seconds: float
    page: int


CALM = Weather(0, 0, 0, 0, 0, 0, 0.001, 1000)


class Watcher(Protocol):
    """Who is told what happens to objects, at the moment when it does."""

    def created(self, key: str, data: bytes) -> None: ...
    def replaced(self, key: str, data: bytes) -> None: ...
    def deleting(self, key: str) -> None: ...


class Objects:
    """What is stored."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.in_hand: Counter[str] = Counter()
        """How many operations are under way at each key."""
        self.watcher: Watcher | None = None


class Place(Protocol):
    """Where a store is, and what is there now."""

    objects: Objects
    slowness: float
    """How many times longer its answers take."""
    read_only: bool

    def silent_to(self, process: str) -> bool:
        """Return whether the store does not answer a process now."""

    def looked(self, key: str) -> None:
        """Take in that somebody looks for an object, or for those whose keys begin so."""


class Fixed:
    """A place that is always there."""

    slowness = 1.0
    read_only = False

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def silent_to(self, process: str) -> bool:
        return False

    def looked(self, key: str) -> None:
        pass


class ProcessState:
    """Whether a process is alive, and its weather: its connections to stores end with it."""

    def __init__(self, name: str, weather: Weather) -> None:
        self.name = name
        self.weather = weather
        self.alive = True
        self.on_sleep: Callable[[], object] = bool


class SimulatedStore:
    """The store as one process sees it."""

    def __init__(
        self,
        objects: Objects | Place,
        clock: Clock,
        chance: random.Random,
        weather: Weather,
        trace: Callable[..., object],
        *,
        owner: ProcessState | None = None,
        url: str = "simulated",
    ) -> None:
        self.url = url
        self.owner = owner or ProcessState("", weather)
        self._place: Place = Fixed(objects) if isinstance(objects, Objects) else objects
        self._clock = clock
        self._chance = chance
        self._trace = trace

    @property
    def objects(self) -> Objects:
        """What is there now."""
        return self._place.objects

    def create(self, key: str, data: bytes) -> bool:
        data = bytes(data)
        return self._act("create", key, lambda: self._create(key, data))

    def exists(self, key: str) -> bool:
        return self._act("exists", key, lambda: key in self.objects.data)

    def create_unflushed(self, key: str, data: bytes) -> bool:
        # A crash in the middle leaves a part of it.
        whole = bytes(data)
        part = whole[: self._chance.randrange(len(whole))] if self._chance.random() < _TORN and whole else whole
        return self._act("create unflushed", key, lambda: self._create(key, part))

    def put(self, key: str, data: bytes) -> None:
        data = bytes(data)

        self._act("put", key, lambda: self._put(key, data))

    def _put(self, key: str, data: bytes) -> None:
        watcher = self.objects.watcher
        if watcher is not None:
            watcher.replaced(key, data)
        self.objects.data[key] = data

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        def effect() -> bytes:
            data = self._get(key)
            return data[start:] if length is None else data[start : start + length]

        return self._act("read", key, effect)

    def size(self, key: str) -> int:
        return self._act("size", key, lambda: len(self._get(key)))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        while True:
            page, is_last = self._act("list", prefix, lambda: self._page(prefix, after))  # noqa: B023 -- called at once
            yield from page
            if is_last:
                return
            after = page[-1]

    def folders(self, prefix: str) -> Iterator[str]:
        def effect() -> Sequence[str]:
            below = (key.removeprefix(prefix) for key in self.objects.data if key.startswith(prefix))
            return sorted({name.partition("/")[0] for name in below if "/" in name})

        yield from self._act("folders", prefix, effect)

    def delete(self, key: str) -> None:
        def effect() -> None:
            watcher = self.objects.watcher
            if key in self.objects.data and watcher is not None:
                watcher.deleting(key)
            self.objects.data.pop(key, None)

        self._act("delete", key, effect)

    def remove_folders(self, prefix: str) -> None:
        self._act("remove folders", prefix, lambda: None)

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> SimulatedWriter:
        return SimulatedWriter(self, key, self._act("open", key, lambda: self.objects), replace=replace)

    def clock_ms(self) -> int | None:
        return self._act("clock", "", lambda: BEGIN_MS + int(self._clock.now * 1000))

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        return self._act("delete_unfinished", "", tuple)

    def publish(self, key: str, data: bytes, begun: Objects, *, replace: bool) -> None:
        """Let a written object appear, if it was `begun` on the disk that is there now."""

        def effect() -> bool:
            if self.objects is not begun:
                raise StoreUnavailable(self.url, key, "what was written so far is not there")
            if replace:
                self._put(key, data)
                return True
            return self._create(key, data)

        if not self._act("close", key, effect):
            raise StoreError(self.url, key, f"{key} exists already")

    def live(self) -> None:
        """Raise `Crashed` once the process has: whatever it still does on its way out has no effect."""
        if not self.owner.alive:
            raise Crashed

    def wait(self, seconds: float) -> None:
        """Let simulated time pass for this process."""
        self.live()
        self._clock.pause(seconds)
        self.live()

    def _act(self, what: str, key: str, effect: Callable[[], T]) -> T:
        """Do one operation."""
        self.live()
        in_hand = self.objects.in_hand
        in_hand[key] += 1
        try:
            return self._acted(what, key, effect)
        finally:
            in_hand[key] -= 1

    def _acted(self, what: str, key: str, effect: Callable[[], T]) -> T:
        """Do one operation, with what goes wrong at it."""
        weather, chance = self.owner.weather, self._chance
        self._delay(what, key, weather.sleep * (_SLEEPS_BEFORE_CREATE if what == "create" else 1))
        fate = chance.random()
        early = chance.random() < 0.5
        if fate < weather.crash and early:
            self._crash(what, key, "before")
        fate -= weather.crash
        if 0 <= fate < weather.unavailable:
            self._trace(what, key, "unavailable")
            raise StoreUnavailable(self.url, key, "the store did not answer")
        fate -= weather.unavailable
        if self._place.silent_to(self.owner.name):
            self._trace(what, key, "silent")
            raise StoreUnavailable(self.url, key, f"{self.url} does not answer")
        if self._place.read_only and what in _CHANGES:
            self._trace(what, key, "read-only")
            raise StoreUnwritable(self.url, key, f"{self.url} is read-only")
        try:
            result: Any = effect()
        except StoreError as error:
            self._trace(what, key, type(error).__name__)
            raise
        except AssertionError as error:
            self._clock.fail(error)
            raise
        self._trace(what, key, result if isinstance(result, bool) else "")
        if fate + weather.unavailable < 0:
            self._crash(what, key, "after")
        if 0 <= fate < weather.lost_answer:
            self._trace(what, key, "answer lost")
            raise StoreUnavailable(self.url, key, "the answer was lost")
        if chance.random() < _ANSWERS_DELAYED:
            self._delay(what, key, weather.late_answer)
        return result

    def _delay(self, what: str, key: str, sleeps: float) -> None:
        chance, weather = self._chance, self.owner.weather
        seconds = chance.expovariate(1 / weather.latency_seconds) * self._place.slowness
        if chance.random() < sleeps:
            seconds = chance.uniform(0, weather.sleep_seconds_max)
            self._trace(what, key, f"sleeps {seconds * 1000:.0f} ms")
            self.owner.on_sleep()
        self.wait(seconds)

    def _crash(self, what: str, key: str, when: str) -> None:
        self._trace(what, key, f"CRASH {when}")
        self.owner.alive = False
        raise Crashed

    def _get(self, key: str) -> bytes:
        self._place.looked(key)
        try:
            return self.objects.data[key]
        except KeyError:
            raise ObjectMissing(self.url, key) from None

    def _create(self, key: str, data: bytes) -> bool:
        if key in self.objects.data:
            return False
        self.objects.data[key] = data
        if self.objects.watcher is not None:
            self.objects.watcher.created(key, data)
        return True

    def _page(self, prefix: str, after: str) -> tuple[Sequence[str], bool]:
        """Return the next keys, and whether they are the last: how many there are at a time may change until then."""
        self._place.looked(prefix)
        keys = [key for key in self.objects.data if key.startswith(prefix) and key > after]
        size = self.owner.weather.page
        return sorted(keys)[:size], len(keys) < size


class SimulatedWriter:
    """An object being written: nothing of it is visible before `close`."""

    def __init__(self, store: SimulatedStore, key: str, begun: Objects, *, replace: bool) -> None:
        self._store = store
        self._replace = replace
        self._begun = begun
        self._key = key
        self._pieces: list[bytes] = []

    def write(self, *pieces: bytes) -> None:
        self._store.live()
        self._pieces += map(bytes, pieces)

    def close(self) -> None:
        self._store.publish(self._key, b"".join(self._pieces), self._begun, replace=self._replace)

    def discard(self) -> None:
        self._pieces.clear()
