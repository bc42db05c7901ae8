"""What keeps a client whole if a signal handler, a finalizer or Ctrl-C interrupts it in the middle of a call.

Python runs these in the thread that they interrupt, between any two of its steps. If such a code waits for what its own
thread holds, it waits forever. So the locks of a client know their owner: whoever would wait for itself is refused, or
what it asks for is done later. And what an exception may leave half done is put in order before a lock is released.

    Client       what the clients have in common
    OwnLock      a lock that knows whether this thread has it
    OwnTurn      lets one thread in at a time, and refuses what interrupts it
"""

from __future__ import annotations

import abc
import contextlib
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

T = TypeVar("T")


class Client(abc.ABC):
    """A client: `with` closes it at the end, also after an exception. It cannot be pickled."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what the client does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise InvalidInput(
            f"a {name} cannot be pickled or sent to another process: it has threads and open files; make one in each "
            "process, inside the function that runs there"
        )


class Busy(Exception):
    """Another thread has what is asked for."""


class Closed(InvalidInput):
    """A client is used after `close`."""


class OwnCondition(threading.Condition):
    """A condition that `with` enters and leaves in one step, as it does a lock: those of `threading` are functions."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class OwnLock:
    """A lock that knows its owner."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """For `with`, which the interpreter enters and leaves in one step: no interrupt can leave it locked."""
        self.is_mine: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        """Returns whether this thread has the lock: then whoever asks has interrupted the owner."""
        self._beside: tuple[OwnLock, ...] = ()

    def condition(self) -> threading.Condition:
        return OwnCondition(self.lock)

    def beside(self, other: OwnLock) -> None:
        """Refuse those who have this other lock, too: whom they would wait for needs it."""
        self._beside = (other,)

    def refuse_interrupts(self, what: str) -> None:
        """Raise `InvalidInput` if this thread would wait for itself."""
        if self.is_mine() or any(each.is_mine() for each in self._beside):
            raise InvalidInput(
                f"cannot {what} here: a signal handler or a finalizer has interrupted another call of this Producer in "
                "the same thread, and would wait for it; let the handler raise SystemExit or set a flag, and "
                f"{what} afterwards"
            )

    def call(self, act: Callable[[], T], seconds: float) -> T:
        """Return what `act` returns, called with the lock. Raises `Busy` if others have it for so long."""
        try:
            if not self.lock.acquire(timeout=seconds):
                raise Busy
            return act()
        finally:
            # Here nothing may be called before the release: interrupts come after calls.
            try:  # noqa: SIM105 -- so no `suppress`
                self.lock.release()
            except RuntimeError:  # it was not acquired
                pass


class OwnTurn(OwnLock):
    """Lets one thread in at a time. What interrupts it in its turn is refused; what it calls itself may come in."""

    def __init__(self, client: str) -> None:
        super().__init__()
        self._client = client
        self._lets_in = False
        """Whether what the owner calls may come in."""

    def take(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, called in a turn.

        Raises `Busy` if another thread has the turn, `InvalidInput` if this thread has it and did not mean to come in.
        """
        if not self.is_mine():
            return self.call(act, 0)
        if not self._lets_in:
            raise InvalidInput(
                f"this {self._client} is in the middle of a call in this thread, which a signal handler or a finalizer "
                "has interrupted; it may only close it, which is done when that call ends"
            )
        try:
            self._lets_in = False
            return act()
        finally:
            self._lets_in = True

    @contextlib.contextmanager
    def calling_out(self) -> Iterator[None]:
        """Let the program come in for a block: its listener or callback is called."""
        before = self._lets_in
        try:
            self._lets_in = True
            yield
        finally:
            self._lets_in = before
