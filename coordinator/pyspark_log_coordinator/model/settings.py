"""Settings: Kafka's names, with the only copy of each default and description.

Those of writers and controllers are here: the Spark options, the command line and the components themselves take them
from here. Those that are stored with a topic or a group are fields of `TopicConfig` and `GroupConfig`; how such fields
are listed, read from text and checked is here.
"""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

import msgspec

from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_SIMILAR = 0.6
"""The `difflib` ratio from which on a setting is suggested for an unknown name."""
_MISSPELT = 0.8
"""The same for a name that may also be that of something else."""


class Setting(msgspec.Struct, Generic[T], frozen=True):
    """A setting of a process; `meaning` is what its help and docs say."""

    name: str
    default: T
    meaning: str
    lowest: int = 1
    highest: int = INT_MAX


class Meaning(NamedTuple):
    """What is said about a field of a `StoredConfig`: its meaning, and the numbers that it may be."""

    text: str
    lowest: float = 0
    highest: float = LONG_MAX


class StoredSetting(NamedTuple):
    """A setting that is stored with a topic or a group."""

    name: str
    field: str
    default: Any
    kind: Any
    """The type of its values."""
    meaning: Meaning

    @property
    def words(self) -> tuple[str, ...]:
        """The values, if they are words."""
        return ("true", "false") if self.kind is bool else get_args(self.kind)

    @property
    def takes(self) -> str:
        _, lowest, highest = self.meaning
        if self.kind is str:
            return "the name of a column"
        if self.kind is float:
            return f"a number from {lowest} to {highest}"
        if self.kind is not int:
            return self._listed_words()
        return f"a whole number, {lowest} or more" if highest == LONG_MAX else f"a whole number, {lowest} to {highest}"

    def value(self, text: str, owner: str) -> float | str | bool:
        """Return the value that a user gives as text. Raise `InvalidOption`."""
        if self.kind is str:
            return text
        if self.kind in {int, float}:
            return self._number(text, owner)
        if text not in self.words:
            raise InvalidOption(self.name, f"{self.name}={text!r} is unknown; choose {self._listed_words()}")
        return text == "true" if self.kind is bool else text

    def _number(self, text: str, owner: str) -> float:
        _, lowest, highest = self.meaning
        try:
            number: float = self.kind(text)
        except ValueError:
            number = lowest - 1
        if not lowest <= number <= highest:  # also if it is not a number
            what = "a whole number" if self.kind is int else "a number"
            bounds = f"of {lowest} or more" if highest == LONG_MAX else f"from {lowest} to {highest}"
            raise InvalidOption(self.name, f"{owner} configuration {self.name}={text!r} must be {what} {bounds}")
        return number

    def _listed_words(self) -> str:
        *others, last = self.words
        return f"{', '.join(others)} or {last}"


class StoredConfig(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=lambda field: field.replace("_", ".")
):
    """The settings that are stored with a topic or a group: each is a field, with Kafka's name and a `Meaning`."""

    OWNER: ClassVar[str]
    """What has the settings."""

    @classmethod
    @functools.cache
    def settings(cls) -> tuple[StoredSetting, ...]:
        return tuple(
            StoredSetting(field.encode_name, field.name, field.default, *get_args(field.type))
            for field in msgspec.structs.fields(cls)
        )

    @classmethod
    def defaults(cls, names: Iterable[str]) -> dict[str, str]:
        """Return the default values of these settings, for `alter`. Raise `InvalidOption` for an unknown name."""
        known = cls().words()
        for name in names:
            if name not in known:
                raise cls._unknown(name)
        return {name: known[name] for name in names}

    def alter(self, settings: Mapping[str, str]) -> Self:
        """Return this with `settings`, by Kafka's names, changed. Raise `InvalidOption` for any that is invalid."""
        known = {setting.name: setting for setting in self.settings()}
        values = {}
        for name, text in settings.items():
            if name not in known:
                raise self._unknown(name)
            values[known[name].field] = known[name].value(text, self.OWNER)
        return msgspec.structs.replace(self, **values)

    def show(self) -> dict[str, Any]:
        """Return the values by Kafka's names."""
        return {setting.name: getattr(self, setting.field) for setting in self.settings()}

    def words(self) -> dict[str, str]:
        """Return the values by Kafka's names, each as a user sets it."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.show().items()
        }

    @classmethod
    def _unknown(cls, name: str, advice: str | None = None) -> InvalidOption:
        """Return the error for a name of no setting. `advice` says what to do if it is not a misspelt one either."""
        known = [setting.name for setting in cls.settings()]
        close = difflib.get_close_matches(name, known, 1, cutoff=_SIMILAR if advice is None else _MISSPELT)
        if close:
            hint = f"; did you mean {close[0]!r}?"
        else:
            hint = f"; choose one of {', '.join(known)}" if advice is None else f": {advice}"
        return InvalidOption(name, f"unknown {cls.OWNER} configuration {name!r}{hint}")


RETRIES = Setting(
    "retries",
    INT_MAX,
    "Maximum number of retries of a step that failed with a retriable error, within delivery.timeout.ms.",
    lowest=0,
)
RETRY_BACKOFF_MS = Setting(
    "retry.backoff.ms",
    100,
    "Wait before the first retry, in milliseconds, at least 10. It grows with each retry, up to one second, with "
    "jitter.",
    lowest=0,
)
DELIVERY_TIMEOUT_MS = Setting(
    "delivery.timeout.ms",
    120_000,
    "How long each step of a write is retried, in milliseconds: opening the log, writing files, committing.",
)
REQUEST_TIMEOUT_MS = Setting(
    "request.timeout.ms",
    30_000,
    "How many milliseconds a node may take to write a file after the fastest node has "
    "finished. After that the write continues without it.",
)
NUM_PARTITIONS = Setting(
    "num.partitions", 1, "Number of partitions of a topic that the writer creates.", highest=100_000
)
DEFAULT_REPLICATION_FACTOR = Setting(
    "default.replication.factor",
    3,
    "Number of replicas of each partition of a topic that the writer creates.",
    highest=32_767,
)
BROKER_SESSION_TIMEOUT_MS = Setting(
    "broker.session.timeout.ms",
    9_000,
    "How long a node must be unreachable before another node leads its partitions, in milliseconds.",
)
AUTO_LEADER_REBALANCE_ENABLE = Setting(
    "auto.leader.rebalance.enable",
    True,
    "Move leadership back to preferred leaders that are in sync again.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting(
    "leader.imbalance.check.interval.seconds",
    300.0,
    "How often to check the balance of leaders.",
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = Setting(
    "leader.imbalance.per.broker.percentage",
    10.0,
    "Rebalance a node's leaders when other nodes lead more than this percentage of the partitions it prefers to lead.",
    lowest=0,
    highest=100,
)
