"""Values as text for people, in terminals and on pages."""

from __future__ import annotations

from datetime import datetime, timezone

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND = 1000


def number(value: int) -> str:
    """Return a number with separators.

    >>> number(1234567)
    '1,234,567'
    """
    return f"{value:,}"


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


def duration(ms: float) -> str:
    """Return a duration in ms in its largest unit.

    >>> duration(300), duration(45_000), duration(7_200_000), duration(604_800_000)
    ('300 ms', '45 s', '2 h', '7 d')
    """
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{ms / length:.0f} {unit}"
    return f"{ms} ms"
