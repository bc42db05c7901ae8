"""The values of options: a description for people, and the function that parses the text.

A parser raises `ValueError` with the reason. Spark passes every option as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from pyspark_log_coordinator.model.settings import INT_MAX, LONG_MAX
from pyspark_log_storage.errors import InvalidName
from pyspark_log_storage.names import check_group, check_member, check_rack, check_topic
from pyspark_log_storage.stores.storage_options import StorageOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TEXT_LENGTH_MAX = 255
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_WITH_UNIT = re.compile(r"(-?[0-9]{1,19})([a-z]*)")
_MICROSECONDS = {"us": 1, "ms": 10**3, "s": 10**6, "min": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}
_MICROSECONDS |= {"": _MICROSECONDS["ms"], "m": _MICROSECONDS["min"]}
"""Spark's units of time (`JavaUtils.timeStringAsMs`); a bare number is milliseconds."""
_BYTES = {unit + b: 2**power for unit, power in {"k": 10, "m": 20, "g": 30, "t": 40}.items() for b in ("", "b")}
_BYTES |= {"": 1, "b": 1}
"""Spark's units of size (`JavaUtils.byteStringAs`)."""


class Value(msgspec.Struct, Generic[T_co], frozen=True):
    """A kind of value: `takes` describes what `read` accepts. Surrounding blanks are removed unless `verbatim`."""

    takes: str
    read: Callable[[str], T_co]
    verbatim: bool = False


def integer(low: int, high: int = LONG_MAX) -> Value[int]:
    """Return a whole number from `low` to `high`, inclusive."""

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError("it is not a whole number")
        return _bounded(int(text), low, high)

    return Value(f"a whole number from {low} to {high}" if high < LONG_MAX else f"a whole number, {low} or more", read)


def _bounded(number: int, low: int, high: int = LONG_MAX) -> int:
    if not low <= number <= high:
        raise ValueError(f"it is less than {low}" if number < low else f"it is more than {high}")
    return number


def seconds(low: int) -> Value[float]:
    """Return a whole number of milliseconds, `low` or more, as seconds."""
    ms = integer(low, INT_MAX)
    return Value(ms.takes, lambda text: ms.read(text) / 1000)


def choice(meanings: Mapping[str, T]) -> Value[T]:
    """Return one of the values of `meanings`, by lower-case name."""
    *others, last = meanings

    def read(text: str) -> T:
        if text.lower() not in meanings:
            raise ValueError("it is not a known value")
        return meanings[text.lower()]

    return Value(f"{', '.join(others)} or {last}" if others else last, read)


def _name(check: Callable[[str], None], text: str) -> str:
    try:
        check(text)
    except InvalidName as error:
        raise ValueError(error.message) from None
    return text


def read_topic(text: str) -> str:
    """Return the name of a topic. Raise `ValueError`."""
    return _name(check_topic, text)


def check_partition(topic: str, partition: int) -> None:
    """Raise `ValueError` for a number that no partition of a topic can have."""
    if not 0 <= partition <= INT_MAX:
        raise ValueError(f"partition {partition} of topic {topic} is out of range")


def _text(text: str, longest: float = float("inf")) -> str:
    if not text:
        raise ValueError("it is empty")
    if len(text) > longest:
        raise ValueError(f"it has {len(text)} characters")
    return text


def _with_unit(text: str, units: Mapping[str, int]) -> int:
    match = _WITH_UNIT.fullmatch(text.lower())
    if match is None or match[2] not in units:
        raise ValueError("it is not a number with a unit")
    return int(match[1]) * units[match[2]]


def of_topics(text: str, kind: Any) -> Any:
    """Return a JSON text of topics, and of their partitions. Raise `ValueError`. Of two equal names the last counts."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be parsed ({error})") from None


boolean = choice({"true": True, "false": False})
COUNT = integer(1, INT_MAX)
TEXT = Value(f"text of 1 to {TEXT_LENGTH_MAX} characters", lambda text: _text(text, TEXT_LENGTH_MAX), verbatim=True)
URL = Value("a path or a file: URL, or several separated by commas", _text, verbatim=True)
TOPIC = Value("a topic name", read_topic)
GROUP = Value("1 to 255 printable characters", lambda text: _name(check_group, text), verbatim=True)
MEMBER = Value("1 to 249 letters, digits, `.`, `_` and `-`", lambda text: _name(check_member, text))
RACK = Value("1 to 255 printable characters", lambda text: _name(check_rack, _text(text)))
DURATION = Value(
    "a number with a unit (us, ms, s, m, min, h or d), such as 15m",
    lambda text: _bounded(_with_unit(text, _MICROSECONDS) // 1000, 0),
)
"""In milliseconds."""
BYTES = Value(
    "a number of bytes with a unit (b, k, m, g or t), such as 512m; 1 or more",
    lambda text: _bounded(_with_unit(text, _BYTES), 1),
)
JSON = Value('a JSON object, such as {"profile": "prod"}', StorageOptions.parse)
