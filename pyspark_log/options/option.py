"""The declaration of an option, and the classes of which the fields are such declarations.

    class ProducerOptions(Options, kinds={Kind.PRODUCER}):
        batch_size = opt("batch.size", COUNT, "4194304")

`ProducerOptions.batch_size` is the declaration; of an instance, `batch_size` is the value. What an option means is in
docs/reference/options.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, overload

import msgspec

from pyspark_log.options.value import Value
from pyspark_log_storage.errors import InvalidOption

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_SHOWN = 200
"""The longest value in a message."""
REQUIRED = "(required)"
"""In the place of a default."""


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


Kinds = AbstractSet[Kind]
BATCH = frozenset({Kind.SOURCE_BATCH, Kind.READ})
STREAM = frozenset({Kind.SOURCE_STREAM, Kind.READ})
SOURCE = BATCH | STREAM
SINK = frozenset({Kind.SINK_BATCH, Kind.SINK_STREAM})
QUERIES = SOURCE | SINK
PRODUCER = frozenset({Kind.PRODUCER})
CONSUMER = frozenset({Kind.CONSUMER})
MEMBERS = CONSUMER | {Kind.WORKER}
CLIENTS = PRODUCER | MEMBERS


class Option(msgspec.Struct, Generic[T_co], frozen=True):
    """A declared option, see `opt`."""

    name: str
    value: Value[T_co]
    default: str | None
    """As a user would write it."""
    kinds: Kinds
    """Those that have it; empty: all of the class."""
    also: str = ""
    """Other names that mean it."""
    unset: Any = None
    """Its value, or what makes it, if it is neither given nor has a default."""
    lenient: bool = False
    """Whether the other kind of read ignores it, with a warning."""

    @overload
    def __get__(self, instance: None, owner: object) -> Option[T_co]: ...
    @overload
    def __get__(self, instance: object, owner: object) -> T_co: ...
    def __get__(self, instance: object, owner: object) -> Option[T_co] | T_co:
        """Return the declaration: an instance has the value itself."""
        return self


@overload
def opt(name: str, value: Value[T], default: str, kinds: Kinds = ..., **more: Any) -> Option[T]: ...
@overload
def opt(name: str, value: Value[T], *, unset: T | Callable[[], T], **more: Any) -> Option[T]: ...
@overload
def opt(name: str, value: Value[T], **more: Any) -> Option[T | None]: ...
def opt(name: str, value: Any, default: str | None = None, kinds: Kinds = frozenset(), **more: Any) -> Option[Any]:
    """Declare an option by its canonical name, its values and its default; `more` are other fields of `Option`."""
    return Option(name, value, default, kinds, **more)


class Given(msgspec.Struct, frozen=True):
    """The options with an effect, as text by their canonical names, and those without."""

    kind: Kind
    texts: Mapping[str, str]
    ignored: tuple[str, ...]
    sparks: Mapping[str, str]
    """Spark's own, by their names in lower case."""

    def has(self, option: Option[Any]) -> bool:
        """Return whether the user set the option."""
        return option.name in self.texts

    def require(self, option: Option[Any], needed: Option[Any]) -> None:
        """Raise `InvalidOption` if the user set one option, and not to false, without another one that it needs."""
        if self.has(option) and self.get(option) is not False and not self.has(needed):
            message = f"option {option.name}={self.texts[option.name]} needs the option {needed.name}; set it too, or"
            raise InvalidOption(option.name, f"{message} remove {option.name}")

    def get(self, option: Option[T]) -> T:
        """Return the option's value, else its default. Raise `InvalidOption`."""
        text = self.texts.get(option.name, option.default)
        if text is None:
            unset: T = option.unset() if callable(option.unset) else option.unset
            return unset
        expected = f"expected {option.value.takes}"
        if option.default == REQUIRED and not self.has(option):
            message = f"option {option.name} is required for {self.kind.value}; {expected}; in SQL: FROM events WITH"
            raise InvalidOption(option.name, f"{message} ({option.name}='...')")
        try:
            return option.value.read(text if option.value.verbatim else text.strip())
        except ValueError as error:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise InvalidOption(option.name, f"option {option.name} is {shown!r}: {error}; {expected}") from None


class Options:  # noqa: PLW1641 -- some values are dicts
    """Parsed options. A subclass declares each option once, and makes several into one value (`made_of`).

    An option whose field begins with `_` has no value of its own: only that code reads it.
    """

    OF: ClassVar[dict[Kind, dict[str, Option[Any]]]] = {}
    """The options of each kind, by all of their names in lower case."""
    kinds: ClassVar[Kinds]
    declared: ClassVar[list[Option[Any]]]
    """Those of the class. A field that is such a class itself stands for its options."""
    _own: ClassVar[dict[str, Option[Any]]]
    """The options that have values of their own, by field."""

    def __init_subclass__(cls, kinds: Kinds = frozenset()) -> None:
        """Find the options. They are those of `kinds`, or of the class that has this one as a field."""
        cls.kinds = kinds
        fields = {name: each for name, each in vars(cls).items() if isinstance(each, (Option, type))}
        cls.declared = [each for field in fields.values() for each in getattr(field, "declared", [field])]
        cls._own = {name: each for name, each in fields.items() if isinstance(each, Option) and name[0] != "_"}
        for kind in kinds:
            declared = [option for option in cls.declared if kind in (option.kinds or kinds)]
            cls.OF[kind] = {name.lower(): option for option in declared for name in [option.name, *option.also.split()]}

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        vars(self).update({field: given.get(option) for field, option in self._own.items()})
        vars(self).update(self.made_of(given))

    def made_of(self, given: Given) -> dict[str, Any]:
        """Return the values that several options make, and check options together. Raise `InvalidOption`."""
        return {}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: parsed options are not changed."""
        raise AttributeError(f"parsed options are not changed: {name}")

    def __eq__(self, other: object) -> bool:
        """Compare the values."""
        return isinstance(other, (Options, SimpleNamespace)) and vars(self) == vars(other)
