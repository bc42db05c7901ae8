"""The commits of a consumer, in the order in which they were requested.

A synchronous commit is repeated while a store does not answer, like Kafka's commitSync: a repetition changes nothing.
An asynchronous commit waits for the consumer's thread; those that wait for the same generation become one journal
entry. A synchronous commit first carries out those that wait. The member and the generation of a commit are fixed when
it is requested, so that the group refuses one that comes too late.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.group.offsets import OffsetCommit
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage.errors import InvalidInput, LogError, OutcomeUnknown, RebalanceInProgress, RewindPending

if TYPE_CHECKING:
    from pyspark_log.clients.records import OffsetAndMetadata, TopicPartition
    from pyspark_log_coordinator.environment import Environment

OnCommit = Callable[["Mapping[TopicPartition, OffsetAndMetadata]", LogError | None], object]

_OF_ONE_PARTITION = (InvalidInput, RewindPending)
"""A commit is refused with these for one of its partitions, however many it has."""


class _Waiting(msgspec.Struct):
    command: OffsetCommit
    done: Callable[[LogError | None], None]


class Commits:
    """The commits of one consumer, for its own thread and the program's."""

    def __init__(self, submit: Callable[[OffsetCommit], object], environment: Environment) -> None:
        """`submit` carries a commit out, or raises `LogError`."""
        self._submit = submit
        self._environment = environment
        self._waiting: deque[_Waiting] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def later(self, command: OffsetCommit, done: Callable[[LogError | None], None]) -> None:
        """Commit later. `done` is called with the error, if there is one, by the thread that calls `answer`."""
        self._waiting.append(_Waiting(command, done))

    def now(self, command: OffsetCommit, timeout_ms: int) -> None:
        """Commit what waits, and then this. Raises `LogError` for this one alone.

        For `timeout_ms` this tries again if a store does not answer. The consumer's thread can work in between.
        """
        policy = RetryPolicy(delivery_timeout_ms=timeout_ms)
        retry(self._environment, policy, lambda: self._try_now(command), is_retriable=_may_be_repeated)

    def _try_now(self, command: OffsetCommit) -> None:
        with self._lock:
            self._carry_out()
            self._submit(command)

    def carry_out(self) -> None:
        """Commit what waits. Afterwards nothing is under way either that was requested before."""
        with self._lock:
            self._carry_out()

    def answer(self) -> None:
        """Call the callbacks of the commits that are done."""
        while self._answers:
            self._answers.popleft()()

    def _carry_out(self) -> None:
        while self._waiting:
            together = [self._waiting.popleft()]
            command = together[0].command
            while self._waiting and (joined := _joined(command, self._waiting[0].command)) is not None:
                together.append(self._waiting.popleft())
                command = joined
            try:
                error = self._try(command)
                errors = [error] * len(together)
                if len(together) > 1 and isinstance(error, _OF_ONE_PARTITION):
                    errors = [self._try(each.command) for each in together]  # the others are not refused for it
            except BaseException:
                self._waiting.extendleft(reversed(together))  # a repetition changes nothing
                raise
            for each, error in zip(together, errors, strict=True):
                self._answers.append(lambda done=each.done, error=error: done(error))  # type: ignore[misc]

    def _try(self, command: OffsetCommit) -> LogError | None:
        try:
            self._submit(command)
        except LogError as error:
            return error
        return None


def _may_be_repeated(error: LogError) -> bool:
    """Return whether the same commit may succeed later. A rebalance ends only if the program polls."""
    return (error.retriable or isinstance(error, OutcomeUnknown)) and not isinstance(error, RebalanceInProgress)


def _joined(one: OffsetCommit, other: OffsetCommit) -> OffsetCommit | None:
    """Return both as one commit, if they are of one member, one generation and know the same rewinds."""
    offsets = {topic_id: dict(numbers) for topic_id, numbers in one.offsets.items()}
    for topic_id, numbers in other.offsets.items():
        offsets.setdefault(topic_id, {}).update(numbers)
    joined = msgspec.structs.replace(one, offsets=offsets)
    return joined if msgspec.structs.replace(other, offsets=offsets) == joined else None
