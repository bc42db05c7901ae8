"""The topics that a consumer subscribes to: by name, or by a pattern that matches whole names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.names import check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class SubscribedTopics:
    """One subscription."""

    def __init__(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Raises `InvalidInput` unless there is exactly one of both, `InvalidName` for an invalid name."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise InvalidInput("give the topics to subscribe to, or a pattern; unsubscribe ends a subscription")
        for name in names:
            if not isinstance(name, str):
                raise InvalidInput(f"topic {name!r} is not text; give the names of topics")
            check_topic(name)
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
            if self._pattern is not None:
                self._pattern.fullmatch("")
        except TypeError:
            raise InvalidInput(f"pattern {pattern!r} is not text; give a regular expression of text") from None
        except re.error as error:
            raise InvalidInput(f"pattern {pattern!r} is not a valid regular expression ({error}); correct it") from None
        self._names = tuple(sorted(set(names)))
        self._unseen = set(self._names)
        """Topics that have not existed at any look."""
        self._told: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """Return the topics as they are known; those that match the pattern are known after the first `poll`."""
        return self._names

    def refresh(self, existing: Callable[[], Iterable[str]]) -> tuple[str, ...]:
        """Return the topics; `existing` returns all that exist now."""
        if self._pattern is not None:
            self._names = tuple(sorted(name for name in existing() if self._pattern.fullmatch(name)))
        elif self._unseen:
            self._unseen -= set(existing())
        return self._names

    def newly_unknown(self) -> list[str]:
        """Return the topics that have never existed at a look, each once."""
        found = sorted(self._unseen - self._told)
        self._told |= self._unseen
        return found
