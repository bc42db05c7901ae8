"""The smallest state machine that a journal can drive: things are put on a shelf, and stay there."""

import msgspec

from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore
from pyspark_log_coordinator.journal.state_machine import Machine, events_decoder
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.store import Store
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.three_stores import ThreeStores

FOLDER = "shelf/"


class ShelfFull(LogError):
    """There is no room."""


class Place(msgspec.Struct, frozen=True):
    """Put things on the shelf, one event each; what lies there already is left alone."""

    things: tuple[str, ...]
    room: int = 10**9


class Move(msgspec.Struct, frozen=True):
    """Let the journal go on in this generation of its stores."""

    generation: int


class Placed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A thing lies on the shelf."""

    thing: str


class Moved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The journal goes on in this generation."""

    generation: int


class Shelf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The things, in the order in which they came."""

    things: tuple[str, ...] = ()
    generation: int = 1


def decide(state: Shelf, command: Place | Move, now: int) -> list[Placed | Moved]:
    if isinstance(command, Move):
        return [Moved(command.generation)] if state.generation < command.generation else []
    if len(state.things) + len(command.things) > command.room:
        raise ShelfFull("the shelf is full; build another")
    return [Placed(thing) for thing in command.things if thing not in state.things]


def evolve(state: Shelf, event: Placed | Moved) -> Shelf:
    if isinstance(event, Moved):
        return msgspec.structs.replace(state, generation=event.generation)
    return msgspec.structs.replace(state, things=(*state.things, event.thing))


MACHINE: Machine[Shelf, Place | Move] = Machine(
    initial=Shelf(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(Placed | Moved),
    encode_state=msgspec.msgpack.encode,
    decode_state=msgspec.msgpack.Decoder(Shelf).decode,
    generation=lambda state: state.generation,
)


def open_shelf(store: Store | ThreeStores, environment: Environment | None = None) -> Journal[Shelf, Place | Move]:
    """Return the journal of a shelf as a process sees it that has just begun."""
    place: JournalPlace = store.place() if isinstance(store, ThreeStores) else OneStore(store)
    return Journal(place, FOLDER, MACHINE, environment or fake_environment())
