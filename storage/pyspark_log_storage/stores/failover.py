"""Failover: reading from the first of several copies that can be read, and once more from one that seems damaged.

All copies of a file have the same bytes, so any copy will do. Every reader that has a choice of nodes uses this loop.

An answer can be damaged on its way through a network, or be cut. So whatever is read from an object store and checked
is read once more before it counts as damaged (`reread`, `rereads`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_storage.stores.store import Readable

T = TypeVar("T")
C = TypeVar("C")
R = TypeVar("R", bound="Readable")
P = ParamSpec("P")


def reread(store: Readable, read: Callable[[], T]) -> T:
    """Return the result of `read`, which reads from an object store and checks: of a second call if it finds damage.

    On any other store there is one call. Raises what `read` raises.
    """
    try:
        return read()
    except CorruptObject:
        if not is_object_store(store):
            raise
    return read()


def rereads(function: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Let a function, whose first argument is the store that it reads from, do what `reread` does."""

    @functools.wraps(function)
    def read(store: R, /, *arguments: P.args, **named: P.kwargs) -> T:
        return reread(store, lambda: function(store, *arguments, **named))

    return read


class AllCopiesFailed(Exception, Generic[C]):
    """No copy could be read: `errors` has each copy's error, in the order they were tried."""

    def __init__(self, errors: dict[C, CorruptObject | StoreError]) -> None:
        super().__init__()
        self.errors = errors

    def first_or(self, no_copies: StoreError) -> CorruptObject | StoreError:
        """Return the error of the first copy that was tried, or `no_copies` if there were none."""
        return next(iter(self.errors.values()), no_copies)


def first_readable(
    copies: Iterable[C],
    read: Callable[[C], T],
    failed: Callable[[C, CorruptObject | StoreError], object] | None = None,
) -> T:
    """Return the result of `read` for the first copy that does not raise `CorruptObject` or `StoreError`.

    Call `failed` with each copy that does, and its error; it may raise to stop. Raises `AllCopiesFailed`, also if there
    are no copies.
    """
    errors: dict[C, CorruptObject | StoreError] = {}
    for copy in copies:
        try:
            return read(copy)
        except (CorruptObject, StoreError) as error:
            if failed is not None:
                failed(copy, error)
            errors[copy] = error
    raise AllCopiesFailed(errors)


def stop_unless_damaged(_copy: Any, error: CorruptObject | StoreError) -> None:
    """Raise an error that does not say that the copy itself is damaged or missing; as `failed` of `first_readable`."""
    if not isinstance(error, (CorruptObject, ObjectMissing)):
        raise error
