"""An immutable list that is cheap to append to.

Copying a tuple for each append would make a state machine's fold quadratic. Here all values share one list that only
grows, and each value knows its part. Appending to a value that is not the newest copies its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class AppendList(Sequence[T], Generic[T]):
    """An immutable sequence. The cost of `append` and `drop` is linear in what they add or drop; `[i]` is constant."""

    __slots__ = ("_end", "_items", "_start")

    def __init__(self, items: list[T] | None = None, start: int = 0) -> None:
        """Take over `items` without copying them; those before `start` are not part of the value."""
        self._items: list[T] = [] if items is None else items
        self._start = start
        self._end = len(self._items)

    def append(self, new: list[T]) -> AppendList[T]:
        """Return this sequence with `new` at its end."""
        if len(self._items) == self._end:
            self._items.extend(new)
            return AppendList(self._items, self._start)
        return AppendList([*self._items[self._start : self._end], *new])

    def drop(self, count: int) -> AppendList[T]:
        """Return this sequence without its first `count` items. Raise `IndexError` if it has fewer."""
        if not 0 <= count <= len(self):
            raise IndexError(f"{count} of {len(self)} items")
        start = self._start + count
        if len(self._items) == self._end and start <= self._end - start:
            return AppendList(self._items, start)
        # More is dropped than is left: copy, so that the shared list can be freed.
        return AppendList(self._items[start : self._end])

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return [self._items[self._start + i] for i in range(first, last, step)]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._items[self._start + index if index >= 0 else self._end + index]

    def __iter__(self) -> Iterator[T]:
        for i in range(self._start, self._end):
            yield self._items[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppendList) and self[:] == other[:]

    def __hash__(self) -> int:
        return hash(len(self))

    def __repr__(self) -> str:
        return f"AppendList({self[:]!r})"


def to_builtin(value: Any) -> Any:
    """Return an `AppendList` as a list: msgspec's hook for encoding a state."""
    if isinstance(value, AppendList):
        return value[:]
    raise NotImplementedError(f"a state cannot hold {type(value)}")
