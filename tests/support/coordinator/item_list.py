"""The smallest state machine that a journal can drive: a list to which items are added."""

from typing import Any

import msgspec

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded, Machine, decide_end, events_decoder
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


class ItemAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """An item was added."""

    item: str


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The items, in the order in which they were added."""

    items: tuple[str, ...] = ()
    generation: int = 1


def decide(state: ItemList, command: AddItems | EndJournal, now: int) -> list[Any]:
    if isinstance(command, EndJournal):
        return decide_end(state.generation, command)
    if len(state.items) + len(command.items) > command.items_max:
        raise ListFull("the list is full")
    return [ItemAdded(item) for item in command.items if item not in state.items]


def evolve(state: ItemList, event: ItemAdded | JournalEnded) -> ItemList:
    if isinstance(event, JournalEnded):
        return msgspec.structs.replace(state, generation=event.generation)
    return msgspec.structs.replace(state, items=(*state.items, event.item))


MACHINE: Machine[ItemList, AddItems | EndJournal] = Machine(
    initial=ItemList(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(ItemAdded | JournalEnded),
    encode_state=msgspec.msgpack.encode,
    decode_state=msgspec.msgpack.Decoder(ItemList).decode,
    generation=lambda state: state.generation,
    answer=lambda _, outcome: {0: (0, len(outcome.state.items))},
)


def open_list(
    store: Store | ThreeStores, environment: Environment | None = None
) -> Journal[ItemList, AddItems | EndJournal]:
    """Return the journal as a new process sees it."""
    environment = environment or fake_environment()
    place: JournalPlace = store.place(environment) if isinstance(store, ThreeStores) else OneStore(store, environment)
    return Journal(place, FOLDER, MACHINE)
