"""The values of options: a description for people, and the function that parses the text.

A parser raises `ValueError` with the reason. Spark passes every option as text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidName
from pyspark_log_storage.names import check_group, check_member, check_rack, check_topic
from pyspark_log_storage.stores.storage_options import StorageOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LONG_MAX = 2**63 - 1
TEXT_LENGTH_MAX = 255

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_DURATION = re.compile(r"(-?[0-9]{1,18})([a-z]*)")
_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Spark's units of time (`JavaUtils.timeStringAsMs`), in microseconds; a bare number is milliseconds."""
_BYTES = re.compile(r"([0-9]{1,19})(?:([bkmgt])b?)?")
_BINARY_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""Spark's units of size (`JavaUtils.byteStringAs`), as powers of two; a bare number is bytes."""


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
        number = int(text)
        if number < low:
            raise ValueError(f"it is less than {low}")
        if number > high:
            raise ValueError(f"it is more than {high}")
        return number

    return Value(f"a whole number from {low} to {high}" if high < LONG_MAX else f"a whole number, {low} or more", read)


def seconds(low: int) -> Value[float]:
    """Return a whole number of milliseconds, `low` or more, as seconds."""
    ms = integer(low, INT_MAX)
    return Value(ms.takes, lambda text: ms.read(text) / 1000)


def choice(meanings: Mapping[str, T], reasons: Mapping[str, str] | None = None) -> Value[T]:
    """Return one of the values of `meanings`, by lower-case name; `reasons` says why some other names are refused."""

    def read(text: str) -> T:
        if text.lower() not in meanings:
            raise ValueError((reasons or {}).get(text.lower(), "it is not a known value"))
        return meanings[text.lower()]

    return Value(_or(list(meanings)), read)


def boolean(why_not_true: str = "") -> Value[bool]:
    """Return true or false; if `why_not_true` is given, true is refused for that reason."""
    if why_not_true:
        return choice({"false": False}, {"true": why_not_true})
    return choice({"true": True, "false": False})


def _read_text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"it has {len(text)} characters")
    return text


def _read_url(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def read_topic(text: str) -> str:
    """Return the name of a topic. Raise `ValueError`."""
    try:
        check_topic(text)
    except InvalidName as error:
        raise ValueError(error.message) from None
    return text


def decoded(text: str, kind: Any) -> Any:
    """Return a JSON text of topics, and of their partitions. Raise `ValueError`, also if it names one twice."""
    try:
        found = msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be parsed ({error})") from None
    named = json.loads(text, object_pairs_hook=_once)  # of two values, both parsers would keep the last one
    for topic, partitions in found.items():
        if len(partitions) != len(named[topic]):  # 0 and -0 are one partition
            raise ValueError(f"it names a partition of {topic} twice")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = Counter(name for name, _ in pairs)
    if twice := next((name for name, count in named.items() if count > 1), None):
        raise ValueError(f"it names {twice} twice")
    return dict(pairs)


def _read_duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_US:
        raise ValueError("it is not a number with a unit")
    ms = int(match[1]) * _UNITS_US[match[2]] // 1_000
    if ms < 0:
        raise ValueError("it is negative")
    if ms > LONG_MAX:
        raise ValueError(f"it is more than {LONG_MAX} ms")
    return ms


def _read_bytes(text: str) -> int:
    match = _BYTES.fullmatch(text.lower())
    if match is None:
        raise ValueError("it is not a number with a unit")
    size = int(match[1]) << _BINARY_POWERS[match[2] or "b"]
    if size < 1:
        raise ValueError("it is less than 1")
    if size > LONG_MAX:
        raise ValueError(f"it is more than {LONG_MAX} bytes")
    return size


def _read_group(text: str) -> str:
    return _checked(check_group, text)


def _read_member(text: str) -> str:
    return _checked(check_member, text)


def _read_rack(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return _checked(check_rack, text)


def _checked(check: Callable[[str], None], text: str) -> str:
    try:
        check(text)
    except InvalidName as error:
        raise ValueError(error.message) from None
    return text


def _or(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


TEXT = Value(f"text of 1 to {TEXT_LENGTH_MAX} characters", _read_text, verbatim=True)
URL = Value("a path or a file: URL, or several separated by commas", _read_url, verbatim=True)
TOPIC = Value("a topic name", read_topic)
GROUP = Value("1 to 255 printable characters", _read_group, verbatim=True)
MEMBER = Value("1 to 249 letters, digits, `.`, `_` and `-`", _read_member)
RACK = Value("1 to 255 printable characters", _read_rack)
DURATION_MS = Value("a number with a unit (us, ms, s, m, min, h or d), such as 15m", _read_duration_ms)
BYTES = Value("a number of bytes with a unit (b, k, m, g or t), such as 512m; 1 or more", _read_bytes)
JSON_OPTIONS = Value('a JSON object, such as {"profile": "prod"}', StorageOptions.parse)
