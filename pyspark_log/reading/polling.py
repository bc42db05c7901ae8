"""The pauses between two looks for new rows, of consumers and of queries.

A pause is an eighth of the time since the last rows, up to `fetch.max.wait.ms`. So the next row is seen within an
eighth of the time since the last one. In an object store a look is a request for each journal, so the default is longer
there.
"""

from __future__ import annotations

QUIET_SHARE = 8
"""A pause is this part of the time since the last rows."""
LONGEST_PAUSE, LONGEST_PAUSE_REMOTE = 0.1, 2.5
"""The default of fetch.max.wait.ms in seconds; in an object store for each journal."""


def longest_pause(given: float | None, journals: int, more: float = 0.0, *, is_remote: bool) -> float:
    """Return the longest pause in seconds between two looks at so many journals: the one `given`, or the default.

    In an object store the default is longer by `more` seconds.
    """
    if given is not None:
        return given
    return LONGEST_PAUSE_REMOTE * max(1, journals) + more if is_remote else LONGEST_PAUSE


def pause_after(quiet: float, longest: float) -> float:
    """Return the pause after `quiet` seconds without rows."""
    return min(quiet / QUIET_SHARE, longest)
