"""One row of the table of options, and the four places where an option can stand."""

from __future__ import annotations

import enum
from typing import Generic, TypeVar

import msgspec

from pyspark_log.options.value import Value

T = TypeVar("T")


class Kind(enum.Enum):
    """What the options are for."""

    SOURCE_BATCH = "a batch read"
    SOURCE_STREAM = "a streaming read"
    SINK_BATCH = "a batch write"
    SINK_STREAM = "a streaming write"
    READ = "a read"
    """Of either kind, where Spark does not say yet which it is. No option is for this one: it has those of both."""


SOURCE = frozenset({Kind.SOURCE_BATCH, Kind.SOURCE_STREAM})
SINK = frozenset({Kind.SINK_BATCH, Kind.SINK_STREAM})
EVERYWHERE = SOURCE | SINK

REQUIRED = "required"


def is_among(kind: Kind, kinds: frozenset[Kind]) -> bool:
    """Return whether what stands in the places `kinds` can stand in `kind`."""
    return kind in kinds or (kind is Kind.READ and not kinds.isdisjoint(SOURCE))


class Option(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An option: its canonical name, where it stands, what it takes, and what it means in one sentence."""

    name: str
    kinds: frozenset[Kind]
    value: Value[T]
    meaning: str
    default: str | None = None
    """As a user would write it; None where nothing is set unless a user sets it."""
    unset: str = "not set"
    """What docs say in place of a default that there is not."""
    differs: str = ""
    """How it differs from Spark's Kafka connector, and why; empty where it does not."""
    prefixed: tuple[str, ...] = ()
    """Names of Kafka's clients that mean this option when written as `kafka.<name>`."""
    only_kafkas: frozenset[str] = frozenset()
    """Values, in lower case, that mean something to Kafka's clients alone: as `kafka.<name>` they are ignored with the
    warning, so that a job moves with them; under the option's own name they are refused."""
    not_here: str = ""
    """What is said where it is given on its side of the log for the wrong kind of query."""
    ignored_elsewhere: bool = False
    """Whether it is ignored there with the warning, instead of refused."""
