"""A state machine: `decide`, `evolve`, and how its events and states are stored.

All machines have two things in common: a command with which a journal begins anew, and an event with which it ends,
because it goes on at other stores (`journal_move`). No entry follows that one.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Callable

S = TypeVar("S")
C = TypeVar("C")


def events_decoder(event_types: Any) -> Callable[[bytes | msgspec.Raw], list[Any]]:
    """Return a decoder for a list of events. `event_types` is the union of the event structs, all tagged."""
    return msgspec.msgpack.Decoder(GenericAlias(list, (event_types,))).decode


class Machine(msgspec.Struct, Generic[S, C], frozen=True):
    """A state machine: two pure functions over frozen values, and how its values are stored."""

    initial: S
    decide: Callable[[S, C, int], list[Any]]
    """(state, command, now in ms) -> events; raises `LogError` if the command is refused."""
    evolve: Callable[[S, Any], S]
    decode_events: Callable[[bytes | msgspec.Raw], list[Any]]
    """See `events_decoder`."""
    encode_state: Callable[[S], bytes]
    decode_state: Callable[[bytes | msgspec.Raw], S]
    check: Callable[[S, S], None] = lambda _before, _after: None
    """(state before an entry, state after it); raises `ValueError` if only a bug can lead from one to the other."""
    generation: Callable[[S], int] = lambda _state: 1
    """The generation of the journal's stores in which the entry after the state belongs, if it is a later one."""
    answer: Callable[[C, Outcome[S]], dict[int, tuple[int, int]] | None] = lambda _command, _outcome: None
    """What the process that gave the command needs to know of its outcome: the first offset and the end of its rows, by
    partition. None if it has to read the state itself."""


class Outcome(msgspec.Struct, Generic[S], frozen=True):
    """The result of a command: its events, none if nothing had to change, and the number and state after them."""

    number: int
    state: S
    events: list[Any]
    answer: dict[int, tuple[int, int]] | None = None
    """See `Machine.answer`, if another process has carried out the command: then `state` may be an older one."""


class BeginJournal(msgspec.Struct, frozen=True):
    """Begin a journal with a state that is known from elsewhere, as it is stored in a snapshot."""

    state: bytes


class JournalBegun(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    state: bytes


class EndJournal(msgspec.Struct, frozen=True):
    """End the journal of a topic or a group: it goes on in a later generation of the journals' stores."""

    to: JournalEnded


class JournalEnded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The journal ends here, and goes on at these stores, which form the generation."""

    generation: Count
    nodes: tuple[JournalNode, ...]


def decide_end(generation: int, command: EndJournal) -> list[JournalEnded]:
    """Return the event that ends a journal, none if it has gone on in that `generation`."""
    return [command.to] if generation < command.to.generation else []
