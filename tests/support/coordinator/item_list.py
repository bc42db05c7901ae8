"""The smallest state machine that a journal can drive: a list to which items are added."""

import msgspec

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore
from pyspark_log_coordinator.journal.state_machine import Machine, events_decoder
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores.store import Store
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.three_stores import ThreeStores

FOLDER = "items/"


class ListFull(LogError):
    """The list has as many items as it may have."""


class AddItems(msgspec.Struct, frozen=True):
    """Add items, one event each; items that the list has are ignored."""

    items: tuple[str, ...]
    items_max: int = 10**9


class MoveJournal(msgspec.Struct, frozen=True):
    """Migrate the journal to this generation of its stores."""

    generation: int


class ItemAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """An item was added."""

    item: str


class JournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The journal was migrated to this generation."""

    generation: int


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The items, in the order in which they were added."""

    items: tuple[str, ...] = ()
    generation: int = 1


def decide(state: ItemList, command: AddItems | MoveJournal, now: int) -> list[ItemAdded | JournalMoved]:
    if isinstance(command, MoveJournal):
        return [JournalMoved(command.generation)] if state.generation < command.generation else []
    if len(state.items) + len(command.items) > command.items_max:
        raise ListFull("the list is full")
    return [ItemAdded(item) for item in command.items if item not in state.items]


def evolve(state: ItemList, event: ItemAdded | JournalMoved) -> ItemList:
    if isinstance(event, JournalMoved):
        return msgspec.structs.replace(state, generation=event.generation)
    return msgspec.structs.replace(state, items=(*state.items, event.item))


MACHINE: Machine[ItemList, AddItems | MoveJournal] = Machine(
    initial=ItemList(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(ItemAdded | JournalMoved),
    encode_state=msgspec.msgpack.encode,
    decode_state=msgspec.msgpack.Decoder(ItemList).decode,
    generation=lambda state: state.generation,
    answer=lambda _, outcome: {0: (0, len(outcome.state.items))},
)


def open_list(
    store: Store | ThreeStores, environment: Environment | None = None
) -> Journal[ItemList, AddItems | MoveJournal]:
    """Return the journal as a new process sees it."""
    place: JournalPlace = store.place() if isinstance(store, ThreeStores) else OneStore(store)
    return Journal(place, FOLDER, MACHINE, environment or fake_environment())
