"""Values as text for people, in terminals and on pages, and the times that they type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from pyspark_log_storage.errors import InvalidInput

_MS = re.compile("-?[0-9]{1,15}")
"""More digits are no ms that microseconds in 64 bits can be."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND = 1000


def number(value: int) -> str:
    """Return a number with separators.

    >>> number(1234567)
    '1,234,567'
    """
    return f"{value:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(2000, "row"), counted(3, "entry")
    ('1 row', '2,000 rows', '3 entries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"


def named(noun: str, names: Sequence[object]) -> str:
    """Return things with their noun.

    >>> named("node", "0"), named("partition", [1, 2])
    ('node 0', 'partitions 1, 2')
    """
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(map(str, names))}"


def size(value: float) -> str:
    """Return a size in bytes for people.

    >>> size(999), size(36_480), size(2_500_000_000)
    ('999 B', '36.5 kB', '2.5 GB')
    """
    unit = 0
    while value >= _THOUSAND and unit < len(_UNITS) - 1:
        value /= _THOUSAND
        unit += 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{value:.0f} {_UNITS[0]}"


def rate(value: float | None) -> str:
    """Return rows a second for people; None is not known yet.

    >>> rate(None), rate(0.0), rate(0.26), rate(12345.6)
    ('…', '0/s', '0.3/s', '12,346/s')
    """
    if value is None:
        return "…"
    return f"{value:.1f}/s" if 0 < value < 10 else f"{value:,.0f}/s"  # noqa: PLR2004 -- a digit for small ones


def time_of(ms: int) -> str:
    """Return a time (ms since 1970) in UTC.

    >>> time_of(1_700_000_000_123)
    '2023-11-14 22:13:20.123Z'
    """
    try:
        found = datetime.fromtimestamp(ms // 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"  # a row may have any timestamp
    return f"{found:%Y-%m-%d %H:%M:%S}.{ms % 1000:03}Z"


def time_ms_of(text: str) -> int:
    """Return a time in ms: a number of ms since 1970, or ISO 8601, which is UTC unless it says otherwise.

    It is rounded down, so that no row of that time is left out. Before 1970 it is negative. Raises `InvalidInput`.

    >>> time_ms_of("1700000000123"), time_ms_of("2023-11-14T22:13:20Z"), time_ms_of("2023-11-14 22:13")
    (1700000000123, 1700000000000, 1699999980000)
    >>> time_ms_of("-1000"), time_ms_of("1969-12-31T23:59:59Z")
    (-1000, -1000)
    """
    text = text.strip()
    if _MS.fullmatch(text):
        return int(text)
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise InvalidInput(f"time {text[:40]!r} is not a time; write it as 2026-01-31T12:00:00Z, or as ms") from None
    return ((found if found.tzinfo else found.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(milliseconds=1)


def duration(ms: float) -> str:
    """Return a duration in ms in its largest unit, and in the next one if it says more.

    >>> duration(300), duration(45_000), duration(5_400_000), duration(604_800_000)
    ('300 ms', '45 s', '1 h 30 min', '7 d')
    """
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    for place, (unit, length) in enumerate(units):
        if ms >= length:
            whole, rest = divmod(int(ms), length)
            if whole >= 10 or place == len(units) - 1:  # noqa: PLR2004 -- then the next unit says little
                return f"{ms / length:.0f} {unit}"
            more, below = units[place + 1]
            return f"{whole} {unit} {rest // below} {more}" if rest // below else f"{whole} {unit}"
    return f"{ms:.0f} ms"
