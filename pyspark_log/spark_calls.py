"""Decorators of the methods that Spark calls.

They show a `LogError` by its message alone, without a Python traceback before it. And they keep imported modules out of
the garbage collector: pyspark's workers collect after every task and call, which takes 40 ms with our imports.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")


def spark_entry(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _hidden_traceback():
            result = function(*args, **kwargs)
        freeze_imports()
        return result

    return call


def spark_iterator(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Decorate a generator that Spark drains."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        freeze_imports()
        with _hidden_traceback():
            yield from function(*args, **kwargs)

    return call


def freeze_imports() -> None:
    """Exempt all present objects from garbage collection, if a module was imported since the last call."""
    _freeze(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _freeze(modules: int) -> None:
    del modules
    gc.freeze()


@contextlib.contextmanager
def _hidden_traceback() -> Iterator[None]:
    """Let pyspark's worker report a `LogError` without traceback. The worker ends after that."""
    try:
        yield
    except LogError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
