"""Three stores that hold a journal together, behind the face of the one store that tests look at and damage."""

import contextlib
from collections.abc import Callable, Iterator

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal import journal_entry, registers
from pyspark_log_coordinator.journal.paxos import majority
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_storage import layout
from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.support.coordinator.fake_environment import with_journal_threads
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.troubled_store import ALWAYS, TroubledStore
from tests.support.memory_store import MemoryStore

ENTRIES = "entries/"


def mark(store: MemoryStore, number: int, incarnation: str = "incarnation") -> None:
    """Give a store the marker under which `ThreeStores` expects it."""
    store.put(layout.MARKER, node.encode(Marker("c", str(number), f"{incarnation}-{number}")))


def marked_stores(kind: type[MemoryStore] = MemoryStore) -> list[MemoryStore]:
    """Return three empty stores that belong together."""
    stores = [kind(f"store-{letter}") for letter in "abc"]
    for number, store in enumerate(stores):
        mark(store, number)
    return stores


class ThreeStores:
    """A process's connections to three stores. An entry is what is decided; other objects are what any store has.

    What is written by its methods is on all three. An entry's key is that of a journal on one store.
    """

    def __init__(self, inner: list[MemoryStore] | None = None) -> None:
        self.inner = inner or marked_stores()
        self.connections = [TroubledStore(store) for store in self.inner]
        self._opened: list[ShuffledThreads] = []

    def place(self, environment: Environment) -> SeveralStores:
        """Return the place of the journals, as a process sees it that has just begun."""
        joined = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(self.connections)]
        threads = ShuffledThreads()
        self._opened.append(threads)
        return SeveralStores(joined, with_journal_threads(environment, threads))

    def keys(self) -> list[str]:
        """Return the keys on each of the stores, without their markers, once all that was begun is done."""
        for each in self._opened:
            each.finish()
        return [key for store in self.inner for key in store.list("") if key != layout.MARKER]

    def lose_answers(self, folder: str, times: int = 1, meanwhile: Callable[[], object] | None = None) -> None:
        act = None if meanwhile is None else _once(meanwhile)
        for each in self.connections:
            each.lose_answers(folder, times, act)

    def be_silent(self, folder: str, times: int = ALWAYS) -> None:
        for each in self.connections:
            each.be_silent(folder, times)

    def refuse(self, folder: str, times: int = ALWAYS) -> None:
        for each in self.connections:
            each.refuse(folder, times)

    def be_slow(self, folder: str, meanwhile: Callable[[], object]) -> None:
        """Let another process act before the first of the stores writes."""
        act = _once(meanwhile)
        for each in self.connections:
            each.be_slow(folder, act)

    def be_slow_to_read(self, folder: str, meanwhile: Callable[[], object]) -> None:
        """Let another process act before the first of the stores is read."""
        act = _once(meanwhile)
        for each in self.connections:
            each.be_slow_to_read(folder, act)

    def forget_troubles(self) -> None:
        for each in self.connections:
            each.troubles.clear()

    def create(self, key: str, data: bytes) -> bool:
        created = [store.create(*_stored(key, data)) for store in self.inner]
        return all(created)

    def put(self, key: str, data: bytes) -> None:
        """Replace an object; of an entry the bytes that are decided, whoever decided them at which ballot."""
        for store in self.inner:
            if _slot(key) is not None:
                self._remove_registers(store, key)
            store.put(*_stored(key, data))

    def delete(self, key: str) -> None:
        for store in self.inner:
            if _slot(key) is None:
                store.delete(key)
            else:
                self._remove_registers(store, key)

    def read(self, key: str) -> bytes:
        if _slot(key) is not None:
            decided = self._decided(key)
            if decided is None:
                raise ObjectMissing("three stores", key)
            return decided
        for store in self.inner:
            with contextlib.suppress(ObjectMissing):
                return store.read(key)
        raise ObjectMissing("three stores", key)

    def size(self, key: str) -> int:
        return len(self.read(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield the keys of what counts: entries that are decided, and other objects that any store has."""
        found = set()
        for store in self.inner:
            for key in store.list(prefix, after):
                folder, _, name = key.rpartition("/")
                slot = journal_entry.slot_of(name)
                if slot is not None and f"{folder}/".endswith(ENTRIES):
                    found.add(f"{folder}/{slot:020d}")
                elif key != layout.MARKER:
                    found.add(key)
        yield from sorted(key for key in found if _slot(key) is None or self._decided(key) is not None)

    def _decided(self, key: str) -> bytes | None:
        folder, slot = _split(key)
        for ballot in range(20):
            votes = []
            name = f"{folder}{slot:020d}.{ballot}"
            for store in self.inner:
                with contextlib.suppress(ObjectMissing):
                    votes.append(registers.decode(store.read(name), name))
            for vote in votes:
                if vote and votes.count(vote) >= majority(len(self.inner)):
                    return vote
        return None

    def _remove_registers(self, store: MemoryStore, key: str) -> None:
        folder, slot = _split(key)
        for each in list(store.list(folder)):
            if journal_entry.slot_of(each.removeprefix(folder)) == slot:
                store.delete(each)


def _once(act: Callable[[], object]) -> Callable[[], object]:
    waiting = [act]
    return lambda: waiting.pop()() if waiting else None


def _split(key: str) -> tuple[str, int]:
    folder, _, name = key.rpartition("/")
    return f"{folder}/", int(name)


def _slot(key: str) -> int | None:
    folder, _, name = key.rpartition("/")
    return int(name) if f"{folder}/".endswith(ENTRIES) and name.isdigit() else None


def _stored(key: str, data: bytes) -> tuple[str, bytes]:
    """Return where, and as what bytes, the object under a key lies on each store."""
    return (key, data) if _slot(key) is None else (f"{key}.0", registers.encode(data))
