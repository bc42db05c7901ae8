"""Sequence: from staged files to rows of the log, one journal entry for each topic."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log.client.write.inline_maintenance import clean_up_when_due, roll_one_inline, roll_past_the_cap
from pyspark_log_coordinator.environment import Environment, real_environment
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.sync import commit_catch_up, isr_recovery
from pyspark_log_coordinator.sync.failure_detector import SESSION_TIMEOUT_MS, failure_detector_of
from pyspark_log_coordinator.topic.sequencing import BatchSequenced, CommitBatch
from pyspark_log_storage.errors import LogError, NotEnoughReplicas, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark_log.client.write.staging import StagedFile
    from pyspark_log_coordinator.journal.journal import Outcome
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.producers import ProducerClaim
    from pyspark_log_coordinator.segments.swap import SwapSegments
    from pyspark_log_coordinator.sync.failure_detector import FailureDetector
    from pyspark_log_coordinator.topic.machine import Topic

T = TypeVar("T")
BACKOFF_SECONDS_MAX = 1.0
"""The longest wait between two tries, as Kafka's retry.backoff.max.ms, unless retry.backoff.ms is longer."""
_logger = logging.getLogger("pyspark_log")


class Sequenced(msgspec.Struct, frozen=True):
    """Where a batch came to lie in one topic."""

    entry: int
    """The newest entry of the topic's journal after the batch."""
    offsets: dict[int, tuple[int, int]]
    """By partition the first offset and the end of the rows that were added: none for a replay."""


class Patience(msgspec.Struct, frozen=True):
    """How long retriable errors are tried again, and nodes waited for; Kafka's options of these names."""

    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    delivery_timeout_ms: int = 120_000
    session_timeout_ms: int = SESSION_TIMEOUT_MS


def sequence(  # noqa: PLR0913 -- each is a fact of its own
    log: Log,
    staged: Iterable[Sequence[StagedFile]],
    claim: ProducerClaim | None,
    acks: Acks,
    patience: Patience,
    always: str | None,
    *,
    swaps: Sequence[SwapSegments] = (),
) -> dict[str, Sequenced]:
    """Put staged files into the log, each topic in one entry, in the order of the topics' names.

    `staged` has one item for each writing task, in their order. `always` names a topic that is asked about the
    batch even where it has no row for it, so that a replay without rows is noticed; `swaps` is what the tasks rolled or
    merged of it in passing. A topic that only rows name is rolled here, a little at a time. Returns where the rows of
    each topic are. Raises what `topic.decide` raises; what was sequenced before the error stays, and a replay finds it
    there.
    """
    by_topic: dict[str, list[StagedFile]] = {} if always is None else {always: []}
    for task in staged:
        for file in task:
            by_topic.setdefault(file.topic, []).append(file)
    done = {}
    for topic in sorted(by_topic):
        files = by_topic[topic]
        handle = retrying(patience, partial(_found, log, topic), log.environment)
        for file in files:
            if file.topic_id != handle.topic_id:
                raise UnknownTopic(
                    topic, f"topic {topic!r} was deleted and created again during the write; write again"
                )
        mine = tuple(swaps) if topic == always else roll_one_inline(log, handle)
        command = CommitBatch(claim, tuple(file.file for file in files), acks, mine)
        failed = {node for file in files for node in file.failed}
        attempt = _Attempt(handle, command, failed, patience)
        done[topic] = _sequenced(command, retrying(patience, attempt, log.environment))
        clean_up_when_due(log, handle)
        isr_recovery.recover_inline(handle)
    return done


def _found(log: Log, topic: str) -> TopicHandle:
    """Return the hold on a topic that has room for a batch."""
    handle = log.topic(topic)
    roll_past_the_cap(log, handle)
    return handle


class _Attempt:
    """Commits one topic's part of a batch, as often as it is called, until it is acknowledged."""

    def __init__(
        self, handle: TopicHandle, command: CommitBatch, failed: Collection[NodeId], patience: Patience
    ) -> None:
        self._handle = handle
        self._patience = patience
        self._command = command
        self._failed = failed
        self._outcome: Outcome[Topic] | None = None
        """What the first call that was not refused came to."""

    def __call__(self) -> Outcome[Topic]:
        """Raises what `Journal.submit` raises, and `NotEnoughReplicas` as long as the promise of `acks` is not kept."""
        handle, command = self._handle, self._command
        if not commit_catch_up.has_several_nodes(handle.journal.state):
            return handle.submit(command)
        try:
            if self._outcome is None:
                self._outcome = handle.submit(commit_catch_up.complete(handle, command, self._failed))
            elif command.claim is not None:
                handle.submit(command)  # raises where an election has cut its rows meanwhile
            commit_catch_up.follow_up(handle, command)
        except NotEnoughReplicas:
            self._observer.look(handle)
            isr_recovery.recover_now(handle)
            raise
        if command.acks != "all" and commit_catch_up.has_uncommitted(handle.journal.state):
            # A member of the ISR that is gone, or gets no rows, would hide these and all that follow.
            try:
                self._observer.look_now_and_then(handle)
            except LogError as error:
                _logger.warning("the replicas of topic %r could not be looked after: %s", handle.name, error)
        return self._outcome

    @property
    def _observer(self) -> FailureDetector:
        return _observer(self._handle, self._patience)


def look_at_nodes(handle: TopicHandle, patience: Patience) -> None:
    """Find out which nodes answer, and propose what follows for the topic: if need be, the election of a leader."""
    if commit_catch_up.has_several_nodes(handle.journal.state):
        _observer(handle, patience).look(handle)


def _observer(handle: TopicHandle, patience: Patience) -> FailureDetector:
    return failure_detector_of(handle, patience.session_timeout_ms)


def _sequenced(command: CommitBatch, outcome: Outcome[Topic]) -> Sequenced:
    rows: Counter[int] = Counter()
    if any(isinstance(event, BatchSequenced) for event in outcome.events):
        for file in command.files:
            for chunk in file.chunks:
                rows[chunk.partition] += chunk.rows
    # The state is that after the batch's own entry, so its rows are the last ones.
    ends = {partition: outcome.state.partitions[partition].log_end for partition in sorted(rows)}
    return Sequenced(outcome.number, {partition: (end - rows[partition], end) for partition, end in ends.items()})


def retrying(
    patience: Patience,
    attempt: Callable[[], T],
    environment: Environment | None = None,
    *,
    failed: LogError | None = None,
) -> T:
    """Return what `attempt` returns. Call it again while it raises a retriable `LogError` and patience lasts.

    `failed` is the error of a first call that the caller made itself; it counts as one. The first retriable error is
    logged, so whoever waits knows why.
    """
    from tenacity import RetryCallState, Retrying, retry_if_exception

    clock = environment or real_environment()
    backoff, timeout = patience.retry_backoff_ms / 1000, patience.delivery_timeout_ms / 1000
    deadline = clock.monotonic() + timeout
    first = failed

    def next_attempt() -> T:
        nonlocal first
        if first is not None:
            error, first = first, None
            raise error
        return attempt()

    def pause(state: RetryCallState) -> float:
        longest = max(backoff, min(BACKOFF_SECONDS_MAX, backoff * 2 ** min(state.attempt_number, 32)))
        return min(clock.uniform(backoff, longest), max(0.0, deadline - clock.monotonic()))

    def report(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome is not None:
            _logger.warning("retrying for up to %g s: %s", timeout, state.outcome.exception())

    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, LogError) and error.retriable),
        stop=lambda state: state.attempt_number > patience.retries or clock.monotonic() >= deadline,
        wait=pause,
        sleep=clock.sleep,
        before_sleep=report,
        reraise=True,
    )(next_attempt)
