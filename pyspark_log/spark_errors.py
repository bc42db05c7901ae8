"""Where Spark calls: errors reach the user by their message first, without a Python traceback before it."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark_log.garbage import freeze_imports
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

_HIDE = "SPARK_HIDE_TRACEBACK"


def spark_entry(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method that Spark calls: a `LogError` is shown by its message alone, and imports are frozen.

    pyspark's worker reads the variable when it reports the error; the process ends after that, so nobody else's
    tracebacks are hidden.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = function(*args, **kwargs)
        except LogError:
            os.environ[_HIDE] = "1"
            raise
        freeze_imports()
        return result

    return call


def spark_iterator(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Do what `spark_entry` does for a generator that Spark drains."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        freeze_imports()
        try:
            yield from function(*args, **kwargs)
        except LogError:
            os.environ[_HIDE] = "1"
            raise

    return call
