"""The declaration of an option, and the classes of which the fields are such declarations.

    class ProducerOptions(Options):
        batch_size = AlwaysSet(name="batch.size", value=integer(1, INT_MAX), default="1048576", meaning="Size of ...")

`ProducerOptions.batch_size` is the declaration: the parser, the error messages and docs/reference/options.md come from
it. Of an instance, `batch_size` is the value.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, overload

import msgspec

from pyspark_log.options.value import JSON_OPTIONS, URL, Value, boolean
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import StorageOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SHOWN_LENGTH_MAX = 200


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
    DESCRIBE = "describe"


SOURCE = frozenset({Kind.SOURCE_BATCH, Kind.SOURCE_STREAM})
SINK = frozenset({Kind.SINK_BATCH, Kind.SINK_STREAM})
EVERYWHERE = SOURCE | SINK
CLIENTS = frozenset({Kind.PRODUCER, Kind.CONSUMER, Kind.WORKER})

REQUIRED = "required"


def is_among(kind: Kind, kinds: frozenset[Kind]) -> bool:
    """Return whether an option for `kinds` can be given to `kind`."""
    return kind in kinds or (kind is Kind.READ and not kinds.isdisjoint(SOURCE))


class Option(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """An option: its canonical name, the queries it is for, its values, and its meaning in one sentence.

    As a field of `Options`, it is None if it is not set.
    """

    name: str
    value: Value[T_co]
    meaning: str
    kinds: frozenset[Kind] = frozenset()
    """The queries that it is for; none for an option of the Python clients."""
    default: str | None = None
    """As a user would write it, or None if there is no default."""
    unset: str = "not set"
    """What docs and messages say instead of a default."""
    or_else: Callable[[], T_co] | None = None
    """Makes the value if the option is not set and has no default."""
    differs: str = ""
    """How it differs from Spark's Kafka connector, and why."""
    prefixed: tuple[str, ...] = ()
    """Names of Kafka client settings that mean this option: for a query when written as `kafka.<name>`, for a Python
    client as they are."""
    only_kafkas: frozenset[str] = frozenset()
    """Values, in lower case, that only Kafka clients support. As `kafka.<name>` they are ignored with a warning, so
    that a job can move unchanged; under the option's own name they are refused."""
    not_here: str = ""
    """Why the other kind of query on the same side cannot use it."""
    secret: bool = False
    """Whether no message may show its value."""
    ignored_elsewhere: bool = False
    """Whether that kind of query ignores it with a warning instead of refusing it."""

    @overload
    def __get__(self, instance: None, owner: object) -> Option[T_co]: ...

    @overload
    def __get__(self, instance: object, owner: object) -> T_co | None: ...

    def __get__(self, instance: object, owner: object) -> Option[T_co] | T_co | None:
        """Return the declaration: an instance has the value itself."""
        return self


class AlwaysSet(Option[T_co], frozen=True, kw_only=True):
    """An option that is required, or has a default: its value is never None."""

    @overload
    def __get__(self, instance: None, owner: object) -> AlwaysSet[T_co]: ...

    @overload
    def __get__(self, instance: object, owner: object) -> T_co: ...

    def __get__(self, instance: object, owner: object) -> AlwaysSet[T_co] | T_co:
        """Return the declaration."""
        return self


class Ignored(msgspec.Struct, frozen=True):
    """An option that has no effect, and why."""

    name: str
    why: str


class Given(msgspec.Struct, frozen=True):
    """The options with an effect, as text, and those without."""

    kind: Kind
    texts: Mapping[str, str]
    """By the canonical name."""
    ignored: tuple[Ignored, ...]

    def has(self, option: Option[Any]) -> bool:
        """Return whether the user set the option."""
        return option.name in self.texts

    def find(self, option: Option[T]) -> T | None:
        """Return the option's value, else its default, else None."""
        text = self.texts.get(option.name, option.default)
        if text is None:
            return None if option.or_else is None else option.or_else()
        try:
            return option.value.read(text if option.value.verbatim else text.strip())
        except ValueError as error:
            message = f"option {option.name} is {shown(text)}: {error}; expected {option.value.takes}"
            if option.unset != REQUIRED:
                message += f" (default: {option.unset if option.default is None else option.default})"
            raise InvalidOption(option.name, message) from None

    def get(self, option: Option[T]) -> T:
        """Return the value of an option that is required or has a default."""
        value = self.find(option)
        if value is None:
            raise InvalidOption(
                option.name,
                f"option {option.name} is required for {self.kind.value}; expected {option.value.takes}."
                f" {option.meaning}",
            )
        return value


def shown(text: str) -> str:
    """Return a value as messages show it."""
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "...")


class Options:  # noqa: PLW1641 -- some values are dicts
    """Parsed options. A subclass declares each option once, and makes several into one value by its own code.

    An option whose field begins with `_` has no value of its own: only that code reads it.
    """

    _own: ClassVar[list[tuple[str, Option[Any]]]]
    """The options that have values of their own, by field."""

    def __init_subclass__(cls) -> None:
        """Find the options."""
        cls._own = [(field, each) for field, each in vars(cls).items() if isinstance(each, Option) and field[0] != "_"]

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        for field, option in self._own:
            vars(self)[field] = given.get(option) if isinstance(option, AlwaysSet) else given.find(option)

    def _set(self, **values: object) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: parsed options are not changed."""
        raise AttributeError(f"parsed options are not changed: {name}")

    def __eq__(self, other: object) -> bool:
        """Compare the values."""
        return isinstance(other, (Options, SimpleNamespace)) and vars(self) == vars(other)


def table(options: type[Options]) -> tuple[Option[Any], ...]:
    """Return the options that a class declares, in the order of docs/reference/options.md.

    A field that is such a class itself stands for its options.
    """
    rows: list[Option[Any]] = []
    for each in vars(options).values():
        if isinstance(each, Option):
            rows.append(each)
        elif isinstance(each, type) and issubclass(each, Options):
            rows += table(each)
    return tuple(rows)


PATH = AlwaysSet(
    name="path",
    kinds=EVERYWHERE,
    value=URL,
    unset=REQUIRED,
    meaning=(
        "Address of the cluster: its root, or one or several of its journal nodes. `.load(path)`, `.start(path)` and"
        " `.save(path)` set it too. A table of Spark's catalog has no options: give them with each statement, as in"
        " `FROM events WITH (path='...', subscribe='...')`."
    ),
    differs=(
        "It replaces `kafka.bootstrap.servers`: the address is a place in a store, because there is no broker. The path"
        " of a folder cannot contain a comma, which separates addresses."
    ),
)
STORAGE_OPTIONS = AlwaysSet(
    name="storage_options",
    kinds=EVERYWHERE,
    value=JSON_OPTIONS,
    unset="those in PYSPARK_LOG_STORAGE_OPTIONS",
    or_else=StorageOptions.of_environment,
    meaning=(
        "Credentials and settings of object stores, with s3fs's names: `key`, `secret`, `token`, `profile`,"
        " `endpoint_url` and others. Options under a URL are for the stores below it. See"
        " [credentials](../guides/object-store-credentials.md)."
    ),
    secret=True,
)
ASYNC_PROGRESS = AlwaysSet(
    name="asyncProgressTrackingEnabled",
    kinds=EVERYWHERE,
    value=boolean("Spark would store offsets only after the rows are written, which breaks exactly-once"),
    default="false",
    meaning="Spark's asynchronous progress tracking, which is not supported.",
    differs="Refused: offsets become durable late, so a restart could write rows again.",
)
