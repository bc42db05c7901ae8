"""The partitions of a topic: an immutable sequence in which a change costs what it changes, however many there are.

Partitions are kept in blocks, and two values share the blocks in which they do not differ. So replacing some partitions
copies their blocks only, and what has changed between two values is found without a look at the rest. What a rule has
to know of all partitions is a `Fact`: it is found once for each partition, and combined once for each block.

    OLDEST_FILE = Fact(oldest_file, min)                  # oldest_file(partition) -> int
    min(topic.partitions.facts(OLDEST_FILE))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from pyspark_log_coordinator.model.partition import Partition

BLOCK = 32
"""Partitions in a block. A change costs something for each of a block, and a little for each block of the topic."""

T = TypeVar("T")


class Fact(Generic[T]):
    """What a rule has to know of each partition, and of several together. Both functions are pure."""

    __slots__ = ("combine", "of_each")

    def __init__(self, of_each: Callable[..., Any], combine: Callable[[list[Any]], T]) -> None:
        """`of_each(partition, context, *given)`. `combine` gets what that says of at least one partition."""
        self.of_each = of_each
        self.combine = combine


class _Known:
    """What is known of a fact: of the partitions of a block, or of the blocks."""

    __slots__ = ("context", "each", "missing")

    def __init__(self, context: object, each: list[Any], missing: Collection[int]) -> None:
        self.context = context
        self.each = each
        self.missing = missing
        """The indices that `each` lacks."""

    def without(self, changed: Collection[int]) -> _Known:
        """Return what is known after some have changed."""
        return _Known(self.context, self.each.copy(), {*self.missing, *changed})


class _Facts(dict[Fact[Any], _Known]):
    """What is known of a block, or of the blocks."""

    def without(self, changed: Collection[int]) -> _Facts:
        """Return what is known after some have changed."""
        return _Facts((fact, known.without(changed)) for fact, known in self.items())

    def of(self, fact: Fact[Any], context: object, count: int) -> _Known:
        """Return what is known of a fact; `count` is the number of partitions or blocks."""
        known = self.get(fact)
        if known is None or not (known.context is context or known.context == context):
            known = self[fact] = _Known(context, [None] * count, range(count))
        return known


class _Block:
    """Neighbouring partitions, and what is known of them."""

    __slots__ = ("facts", "partitions")

    def __init__(self, partitions: tuple[Partition, ...], facts: _Facts) -> None:
        self.partitions = partitions
        self.facts = facts

    def replace(self, changed: Mapping[int, Partition]) -> _Block:
        partitions = list(self.partitions)
        for index, partition in changed.items():
            partitions[index] = partition
        return _Block(tuple(partitions), self.facts.without(changed))

    def of_each(self, fact: Fact[Any], context: object, given: tuple[object, ...]) -> list[Any]:
        """Return a fact of each partition."""
        known = self.facts.of(fact, context, len(self.partitions))
        for index in known.missing:
            known.each[index] = fact.of_each(self.partitions[index], context, *given)
        known.missing = ()
        return known.each


class Partitions(Sequence[Partition]):
    """An immutable sequence of partitions."""

    __slots__ = ("_blocks", "_count", "_facts")

    def __init__(self, partitions: Iterable[Partition] = ()) -> None:
        every = tuple(partitions)
        self._count = len(every)
        self._blocks = [_Block(every[start : start + BLOCK], _Facts()) for start in range(0, len(every), BLOCK)]
        self._facts = _Facts()

    def replace(self, changed: Mapping[int, Partition]) -> Partitions:
        """Return the sequence with some partitions replaced, by number. Raise `IndexError` for an unknown number."""
        by_block: dict[int, dict[int, Partition]] = {}
        for number, partition in changed.items():
            if not 0 <= number < self._count:
                raise IndexError(number)
            index, within = divmod(number, BLOCK)
            by_block.setdefault(index, {})[within] = partition
        after = Partitions()
        after._count, after._blocks, after._facts = self._count, self._blocks.copy(), self._facts.without(by_block)
        for index, of_block in by_block.items():
            after._blocks[index] = self._blocks[index].replace(of_block)
        return after

    def changed_since(self, before: Partitions) -> list[int]:
        """Return the numbers of the partitions that are other objects than in `before`, which may have fewer."""
        changed: list[int] = []
        for index, block in enumerate(self._blocks):
            old = before._blocks[index] if index < len(before._blocks) else None
            if block is not old:
                known = itertools.chain(() if old is None else old.partitions, itertools.repeat(None))
                pairs = enumerate(zip(block.partitions, known, strict=False), index * BLOCK)
                changed += [number for number, (new, former) in pairs if new is not former]
        return changed

    def facts(self, fact: Fact[T], context: object = None, *given: object) -> Sequence[T]:
        """Return a fact of each block.

        It depends on the partitions and on `context`, and is found again only if these change. `given` is passed on.
        """
        known = self._facts.of(fact, context, len(self._blocks))
        for index in known.missing:
            known.each[index] = fact.combine(self._blocks[index].of_each(fact, context, given))
        known.missing = ()
        return known.each

    def fact_of_each(self, fact: Fact[Any], context: object = None, *given: object) -> tuple[Any, ...]:
        """Return a fact of each partition; see `facts`."""
        return tuple(itertools.chain.from_iterable(block.of_each(fact, context, given) for block in self._blocks))

    def where(
        self, fact: Fact[Any], is_wanted: Callable[[Any], bool] = bool, context: object = None, *given: object
    ) -> Iterator[tuple[int, Partition]]:
        """Yield number and state of the partitions of which a fact is wanted; see `facts`.

        Blocks of which it is not wanted are passed over.
        """
        for index, combined in enumerate(self.facts(fact, context, *given)):
            if is_wanted(combined):
                block = self._blocks[index]
                for within, found in enumerate(block.of_each(fact, context, given)):
                    if is_wanted(found):
                        yield index * BLOCK + within, block.partitions[within]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Partition, ...]: ...
    def __getitem__(self, index: int | slice) -> Partition | tuple[Partition, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        index, within = divmod(index % self._count, BLOCK)
        return self._blocks[index].partitions[within]

    def __iter__(self) -> Iterator[Partition]:
        return itertools.chain.from_iterable(block.partitions for block in self._blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and (self is other or tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(self._count)

    def __repr__(self) -> str:
        return f"Partitions({list(self)!r})"

    def __reduce__(self) -> tuple[type[Partitions], tuple[tuple[Partition, ...]]]:
        return Partitions, (tuple(self),)
