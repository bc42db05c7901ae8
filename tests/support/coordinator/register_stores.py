"""Three stores with registers of a journal, each of which a test can take away."""

from pyspark_log_coordinator.journal import registers
from pyspark_log_coordinator.journal.paxos import Register
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.memory_store import MemoryStore

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
        calls = calls or ShuffledThreads(seed)
        slots = Registers(SeveralStores(joined, calls), JOURNAL, fake_environment(), PATIENCE_MS)
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
    store.put(layout.MARKER, node.encode(Marker("c", f"n{i}", incarnation or f"incarnation-{i}")))


def content(store, key):
    ballot, _, claim = key.removeprefix(FOLDER).partition(".")[2].partition(".")
    return registers.decode(Register(int(ballot), claim == "claim"), store.read(key), key)


def fail(slots, store, trouble):
    if trouble == "hanging":
        slots.calls.hanging.add(store)
        return
    error = StoreUnavailable if trouble == "silent" else StoreRefused

    def broken(*args):
        raise error(slots.stores[store].url, "key", f"it is {trouble}")

    for name in ("create", "read"):
        setattr(slots.stores[store], name, broken)
