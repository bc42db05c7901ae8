"""Patient staging: a task's rows are staged again if the nodes were away when they were first written.

A staging takes its rows from an iterator that cannot be read twice. So the rows are kept until their file is durable,
and another staging takes the same rows into a new file. Nobody sequences the first file: no row comes twice. A task
that has more rows than may be kept cannot be staged again here: Spark repeats such a task from its own input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log.client.write.rows import Rows
    from pyspark_log.client.write.staging import StagedFile, Staging

T = TypeVar("T")

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes of rows a Spark task keeps: as many as it gathers before it writes."""


class Begin(Protocol):
    """Makes a staging."""

    def __call__(self, *, again: bool) -> Staging:
        """Return a new staging. `again`: an earlier one failed, so look at the nodes and the topic first."""


class Retry(Protocol):
    """Calls a function until it succeeds, fails for good, or patience ends."""

    def __call__(self, attempt: Callable[[], T], failed: LogError) -> T:
        """Return what `attempt` returns. `failed` is the error of the first try, which counts as one."""


class PatientStaging:
    """Stages one task's rows, again if need be."""

    def __init__(self, begin: Begin, retry: Retry, kept_bytes_max: int | None = KEPT_BYTES_MAX) -> None:
        """`kept_bytes_max` None: the caller bounds the rows."""
        self._begin = begin
        self._retry = retry
        self._kept_bytes_max = kept_bytes_max
        self._staging: Staging | None = None
        self._kept: list[Rows] = []
        self._is_whole = True
        """Whether all rows so far are kept."""
        self.bytes_added = 0

    def add(self, rows: Rows) -> None:
        """Take some rows. Raises what `Staging.add` raises, a retriable error only once patience has ended."""
        self.bytes_added += rows.record.nbytes
        if self._is_whole:
            self._kept.append(rows)
        try:
            if self._staging is None:
                self._staging = self._begin(again=False)
            self._staging.add(rows)
        except LogError as error:
            self._check_repeatable(error)
            self._retry(self._repeated, error)
        if self._kept_bytes_max is not None and self.bytes_added > self._kept_bytes_max:
            self._kept, self._is_whole = [], False

    def finish(self) -> list[StagedFile]:
        """Write what is left and name the files, as `Staging.finish` does."""
        if self._staging is None:
            return []
        try:
            return self._staging.finish()
        except LogError as error:
            self._check_repeatable(error)
            return self._retry(lambda: self._repeated().finish(), error)

    def discard(self) -> None:
        """Give up what was staged."""
        if self._staging is not None:
            self._staging.discard()
            self._staging = None

    def _check_repeatable(self, error: LogError) -> None:
        if not error.retriable or not self._is_whole:
            raise error

    def _repeated(self) -> Staging:
        """Return a new staging that has taken all rows so far."""
        self.discard()
        staging = self._staging = self._begin(again=True)
        for rows in self._kept:
            staging.add(rows)
        return staging
