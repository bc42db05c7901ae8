"""The entry with a process's own command and, after it, those that wait in the inbox."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.decoding import IMPOSSIBLE
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.inbox import Inbox
    from pyspark_log_coordinator.journal.replay import Replay
    from pyspark_log_coordinator.journal.state_machine import C, Machine, S


def combine(
    journal: Replay[S, C], machine: Machine[S, C], events: list[Any], after: S, inbox: Inbox[C], now_ms: int
) -> tuple[list[Any], S]:
    """Return the events of the journal's next entry, with those of all commands, and the state after them.

    `events` are those of the own command, and `after` is the state after them.
    """
    for key, command in inbox.others(journal.place):
        try:
            more = machine.decide(after, command, now_ms)
            then = functools.reduce(machine.evolve, more, after)
            machine.check_entry(journal.state, [*events, *more], then, journal.number + 1)
        except (LogError, *IMPOSSIBLE):
            more, then = [], after  # its own process will meet the error, if it is one
        if not more:
            inbox.settle(key)
        events, after = [*events, *more], then
    return events, after
