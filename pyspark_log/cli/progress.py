"""Progress bars on stderr, shown only on a terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(what: str, total_bytes: int, wait: Callable[[int], object] = bool) -> Iterator[Callable[[int], object]]:
    """Yield a function to be called with the number of bytes done since the last call; it calls `wait` with it too."""
    if not sys.stderr.isatty():
        yield wait
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)

        def advance(done: int) -> None:
            progress.advance(task, done)
            wait(done)

        yield advance


@contextlib.contextmanager
def row_bar(what: str, total_rows: int) -> Iterator[Callable[[int], object]]:
    """Yield a function to be called with the number of rows done since the last call."""
    if not sys.stderr.isatty():
        yield bool
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_rows)
        yield lambda done: progress.advance(task, done)
