"""Decorators of the methods that Spark calls: users see an error's message first, without a Python traceback."""

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
    """Hide the traceback of a `LogError`, and keep imports out of the garbage collector.

    pyspark's worker reads the variable when it reports the error. The process ends after that, so no other traceback is
    hidden.
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
