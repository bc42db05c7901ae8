"""A tail: the newest part of a growing list, as an immutable value that is cheap to append to.

Copying a tuple for each append would make a state machine's fold quadratic. Here all values share one list
that only ever grows, and each knows how much of it is its own; an append to a value that is not the newest
copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Tail(Sequence[T], Generic[T]):
    """An immutable sequence. `append` costs what is appended, `[i]` is constant."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T] | None = None, length: int | None = None) -> None:
        """`items` is taken over, not copied."""
        self._items: list[T] = [] if items is None else items
        self._length = len(self._items) if length is None else length

    def append(self, new: list[T]) -> Tail[T]:
        """Return this sequence with `new` at its end."""
        items = self._items if len(self._items) == self._length else self._items[: self._length]
        items.extend(new)
        return Tail(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._items[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[T]:
        for i in range(self._length):
            yield self._items[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tail) and self[:] == other[:]

    def __hash__(self) -> int:
        return hash(self._length)

    def __repr__(self) -> str:
        return f"Tail({self[:]!r})"


def to_builtin(value: Any) -> Any:
    """Turn a `Tail` into a list: msgspec's hook for encoding a state."""
    if isinstance(value, Tail):
        return value[:]
    raise NotImplementedError(f"a state cannot hold {type(value)}")
