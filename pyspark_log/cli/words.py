"""Words: how numbers of things are told to people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 row` and `2,000 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
