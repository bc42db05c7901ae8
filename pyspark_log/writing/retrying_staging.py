"""Staging with retries: stages a task's rows again if nodes were unreachable when they were first written.

The rows come from an iterator that cannot be read twice, so they are kept until their file is durable, and written
again into a new file. The first file is never sequenced, so no row appears twice. A task with more rows than may be
kept fails instead, and Spark repeats it from its own input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log.writing.rows import Rows
    from pyspark_log.writing.staging import Staging
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.model.batch import StagedFile

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes of rows a Spark task keeps: as many as it gathers before it writes."""


class Begin(Protocol):
    """Makes a staging."""

    def __call__(self, *, again: bool) -> Staging:
        """Return a new staging. `again`: an earlier one failed, so probe the nodes and refresh the topic first."""


class RetryingStaging:
    """Stages one task's rows, again after a retriable error."""

    def __init__(
        self, begin: Begin, environment: Environment, policy: RetryPolicy, kept_bytes_max: int | None = KEPT_BYTES_MAX
    ) -> None:
        """`kept_bytes_max` None: the caller bounds the rows."""
        self._begin = begin
        self._environment = environment
        self._policy = policy
        self._kept_bytes_max = kept_bytes_max
        self._staging: Staging | None = None
        self._kept: list[Rows] = []
        self._is_whole = True
        """Whether all rows so far are kept."""
        self.bytes_added = 0

    def add(self, rows: Rows) -> None:
        """Take some rows. Raises what `Staging.add` raises."""
        self.bytes_added += rows.record.nbytes
        if self._is_whole:
            self._kept.append(rows)
        try:
            if self._staging is None:
                self._staging = self._begin(again=False)
            self._staging.add(rows)
        except LogError as error:
            if not self._is_whole:
                raise
            retry(self._environment, self._policy, self._repeated, failed=error)
        if self._kept_bytes_max is not None and self.bytes_added > self._kept_bytes_max:
            self._kept, self._is_whole = [], False

    @property
    def dead_letters(self) -> int:
        """How many rows so far could not be written to their topic."""
        return 0 if self._staging is None else self._staging.dead_letters

    def finish(self) -> list[StagedFile]:
        """Write what is left and name the files, as `Staging.finish` does."""
        if self._staging is None:
            return []
        try:
            return self._staging.finish()
        except LogError as error:
            if not self._is_whole:
                raise
            return retry(self._environment, self._policy, lambda: self._repeated().finish(), failed=error)

    def discard(self) -> None:
        """Discard what was staged."""
        if self._staging is not None:
            self._staging.discard()
            self._staging = None

    def _repeated(self) -> Staging:
        """Return a new staging that has taken all rows so far."""
        self.discard()
        staging = self._staging = self._begin(again=True)
        for rows in self._kept:
            staging.add(rows)
        return staging
