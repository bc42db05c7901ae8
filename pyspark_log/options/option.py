"""One row of a table of options, and the kinds of query or client that an option is for."""

from __future__ import annotations

import enum
from typing import Generic, TypeVar

import msgspec

from pyspark_log.options.value import Value

T = TypeVar("T")


class Kind(enum.Enum):
    """The kinds of query, and the Python clients."""

    SOURCE_BATCH = "a batch read"
    SOURCE_STREAM = "a streaming read"
    SINK_BATCH = "a batch write"
    SINK_STREAM = "a streaming write"
    READ = "a read"
    """A read of which Spark does not say yet whether it is a batch or a stream. It takes the options of both."""
    PRODUCER = "a Producer"
    CONSUMER = "a Consumer"
    WORKER = "a Worker"


SOURCE = frozenset({Kind.SOURCE_BATCH, Kind.SOURCE_STREAM})
SINK = frozenset({Kind.SINK_BATCH, Kind.SINK_STREAM})
EVERYWHERE = SOURCE | SINK
PRODUCER = frozenset({Kind.PRODUCER})
CONSUMER = frozenset({Kind.CONSUMER})
WORKER = frozenset({Kind.WORKER})

REQUIRED = "required"


def is_among(kind: Kind, kinds: frozenset[Kind]) -> bool:
    """Return whether an option for `kinds` can be given to `kind`."""
    return kind in kinds or (kind is Kind.READ and not kinds.isdisjoint(SOURCE))


class Option(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An option: its canonical name, the queries it is for, its values, and its meaning in one sentence."""

    name: str
    kinds: frozenset[Kind]
    value: Value[T]
    meaning: str
    default: str | None = None
    """As a user would write it, or None if there is no default."""
    unset: str = "not set"
    """What docs and messages say instead of a default."""
    differs: str = ""
    """How it differs from Spark's Kafka connector, and why."""
    prefixed: tuple[str, ...] = ()
    """Names of Kafka client settings that mean this option when written as `kafka.<name>`."""
    only_kafkas: frozenset[str] = frozenset()
    """Values, in lower case, that only Kafka clients support. As `kafka.<name>` they are ignored with a warning, so
    that a job can move unchanged; under the option's own name they are refused."""
    not_here: str = ""
    """Why the other kind of query on the same side cannot use it."""
    secret: bool = False
    """Whether no message may show its value."""
    ignored_elsewhere: bool = False
    """Whether that kind of query ignores it with a warning instead of refusing it."""
