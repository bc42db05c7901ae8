"""Decorators of the methods that Spark calls.

They show a `LogError` by its message alone, without a Python traceback before it. They keep imported modules out of
the garbage collector: pyspark's workers collect after every task and call, which takes 40 ms with our imports. And they
let neither side of a TCP connection to Spark wait for the other (`acknowledge`).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TCP_WORKER = "PYTHON_WORKER_FACTORY_SECRET"
"""A variable that Spark sets for workers to which it talks over TCP."""

P = ParamSpec("P")
T = TypeVar("T")


def spark_entry(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        acknowledge()
        with _hidden_traceback():
            result = function(*args, **kwargs)
        freeze_imports()
        acknowledge()
        return result

    return call


def spark_iterator(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Decorate a generator that Spark drains."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        freeze_imports()
        acknowledge()
        with _hidden_traceback():
            yield from function(*args, **kwargs)

    return call


def acknowledge() -> None:
    """Acknowledge what Spark has sent to this worker, and what it sends next, without the usual delay.

    By default Spark talks to its workers over TCP, and each side sends calls, answers and rows in several pieces, of
    which the kernel holds back a small one until the last one was acknowledged. Linux delays that by 40 ms, and begins
    to do so again after a while: so this is called for each call and batch.
    """
    for each in _connections():
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@functools.lru_cache(maxsize=1)
def _connections() -> tuple[socket.socket, ...]:
    """Return this worker's TCP connections when it is first called, before stores have any: the one to Spark.

    From then on they hold nothing back. None outside of Spark's workers, and where the system cannot do this.
    """
    if TCP_WORKER not in os.environ or not hasattr(socket, "TCP_QUICKACK"):
        return ()
    found = []
    with contextlib.suppress(OSError):  # no /proc
        found = [_connection(int(each.name)) for each in Path("/proc/self/fd").iterdir()]
    return tuple(each for each in found if each is not None)


def _connection(descriptor: int) -> socket.socket | None:
    with contextlib.suppress(OSError):  # closed since it was listed
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            found = socket.socket(fileno=os.dup(descriptor))
            if found.type == socket.SOCK_STREAM and found.family in {socket.AF_INET, socket.AF_INET6}:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return found
            found.close()
    return None


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
