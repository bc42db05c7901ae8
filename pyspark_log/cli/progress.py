"""A bar for work that takes long: on stderr, and only where a person looks."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(what: str, total_bytes: int) -> Iterator[Callable[[int], object]]:
    """Give a function that is told how many bytes are done since it was told last."""
    if not sys.stderr.isatty():
        yield bool  # called, and nothing more
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total_bytes)

        def advance(done: int) -> None:
            progress.advance(task, done)

        yield advance
