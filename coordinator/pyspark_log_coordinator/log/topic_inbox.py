"""The inbox of a topic's journal: batches that wait for the next entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.journal.inbox import Inbox
from pyspark_log_coordinator.topic.sequencing import CommitBatch

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.topic.machine import Command

_decoder = msgspec.msgpack.Decoder(CommitBatch)


def inbox_of(journal: str, environment: Environment) -> Inbox[Command]:
    """Return the inbox of a topic's journal. Only for batches with a claim: without one a repetition adds rows."""
    return Inbox(journal, _decode, environment)


def _decode(body: bytes | msgspec.Raw) -> CommitBatch:
    """Return a batch without its maintenance, which is its own process's."""
    return msgspec.structs.replace(_decoder.decode(body), swaps=())
