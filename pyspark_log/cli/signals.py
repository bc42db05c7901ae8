"""SIGTERM and SIGHUP end a command as Ctrl-C does: what is begun is finished or undone, and a member leaves its group.

Supervisors send SIGTERM (systemd, `docker stop`, `timeout`); a terminal that closes sends SIGHUP. Ctrl-C interrupts a
command wherever it is, and so do these, once. Only what must not be lost in between is finished first (`interrupts`).
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 128 + signal.SIGINT
_received: list[int] = []
"""Of this command. Some supervisors send a signal twice, such as `timeout`: only the first one counts."""
_allowed = [True]


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at SIGTERM and SIGHUP. A command that they ended has exit code 143 or 129.

    A signal that is ignored remains so (`nohup`).
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    handled = {each: handler for each, handler in before.items() if handler is not signal.SIG_IGN}
    for each in handled:
        signal.signal(each, _receive)
    try:
        yield
    except KeyboardInterrupt:
        _exit_if_received()
        raise
    except typer.Exit as end:
        if end.exit_code in {0, INTERRUPTED}:
            _exit_if_received()
        raise
    else:
        _exit_if_received()
    finally:
        for each, handler in handled.items():
            signal.signal(each, handler)
        _received.clear()


def _exit_if_received() -> None:
    if _received:
        raise typer.Exit(128 + _received[0])


def _receive(number: int, _: Any) -> None:
    _received.append(number)
    if len(_received) == 1 and _allowed[-1]:
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts(*, allowed: bool) -> Iterator[None]:
    """Raise `KeyboardInterrupt` at these signals, and at once if one was deferred; or defer them, unless `allowed`."""
    _allowed.append(allowed)
    try:
        if allowed and _received:
            raise KeyboardInterrupt
        yield
    finally:
        _allowed.pop()
