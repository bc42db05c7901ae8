"""The commit of what tasks have staged: a batch for each topic, from staged files to the promise of `acks`.

    roll          a topic that is past its hard cap of unrolled chunks (`inline_maintenance`)
    submit        one journal entry gives every row its offset (`sequencing`)
    settle        copy to the replicas that the batch left behind (`settling`)
    maintain      do a little maintenance, which cannot fail the batch (`inline_maintenance`)

A batch that is refused because too few replicas are in sync, or hold it, is submitted once more after the nodes were
probed, leaders elected, and what is missing was copied. A retriable error repeats all of this, and so does an unknown
outcome of a batch with a claim, which is in the log once however often it is submitted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.commit import inline_maintenance, settling
from pyspark_log_coordinator.maintenance import isr_copies
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of, log_changes
from pyspark_log_coordinator.topic import sequencing
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    BatchMismatch,
    InvalidRecord,
    LogError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OutcomeUnknown,
    ProducerFenced,
    StaleFile,
    UnknownTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log_coordinator.journal.inbox import Inbox
    from pyspark_log_coordinator.journal.state_machine import Outcome
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.batch import Acks, StagedFile
    from pyspark_log_coordinator.model.producers import ProducerClaim
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.segments.swap import SwapSegments
    from pyspark_log_coordinator.topic.machine import Command


_CERTAIN = (
    BatchMismatch,
    InvalidRecord,
    NotEnoughReplicasAfterAppend,
    OutcomeUnknown,
    ProducerFenced,
    UnknownTopic,
)
"""Errors that are true of a batch, whichever process may have appended it."""


class Batch(msgspec.Struct, frozen=True):
    """What tasks have staged for one topic."""

    claim: ProducerClaim | None
    """None for a batch without an identity, which is never a replay."""
    files: tuple[StagedFile, ...]
    """In the order of the tasks."""
    acks: Acks = "all"
    swaps: tuple[SwapSegments, ...] | None = None
    """What the tasks rolled or merged; None if they could not know the topic: then the commit rolls."""


def commit_staged(  # noqa: PLR0913 -- each is a fact of its own
    log: Log,
    staged: Iterable[Sequence[StagedFile]],
    claim: ProducerClaim | None,
    acks: Acks,
    policy: RetryPolicy,
    topic: str | None,
    *,
    swaps: Sequence[SwapSegments] = (),
) -> dict[str, dict[int, tuple[int, int]]]:
    """Commit the files of each topic, in the order of the topics' names; return the offsets of each (see `commit`).

    `staged` has one item for each task, in their order. `topic` is the option of that name: it gets a commit even
    without rows, so that a replay without rows is noticed, and `swaps` is what the tasks rolled or merged of it. Beside
    it there may be the topic of its dead letters, which an application may share among the topics that it writes: each
    is a producer of its own there. Raises what `commit` raises; topics that were committed before the error stay, and a
    replay finds them committed.
    """
    by_topic: dict[str, list[StagedFile]] = {} if topic is None else {topic: []}
    for task in staged:
        for file in task:
            by_topic.setdefault(file.topic, []).append(file)
    done = {}
    for name in sorted(by_topic):
        handle = retry(log.environment, policy, partial(log.topic, name, recent_suffices=True))
        claimed = claim
        if claim is not None and name != topic:  # it gets those batches that have rows for it
            producer = claim.producer if topic is None else f"{claim.producer}: {topic}"
            claimed = msgspec.structs.replace(claim, producer=producer, follows=False)
        batch = Batch(claimed, tuple(by_topic[name]), acks, tuple(swaps) if name == topic else None)
        done[name] = commit(handle, batch, policy)
    return done


def commit(
    handle: TopicHandle, batch: Batch, policy: RetryPolicy, *, cleans_up: bool = True
) -> dict[int, tuple[int, int]]:
    """Append a batch to the topic in one journal entry; return once the promise of `acks` is kept.

    Return the first offset and the end of the batch's rows, by partition. For a replay these are what the log remembers
    of a producer that expires, else the rows of the same files that are not in segments yet. The handle has just been
    refreshed. Raises `UnknownTopic` if the topic was created again since the files were staged, and what
    `sequencing.decide` and `Journal.submit` raise. If an attempt may have appended the batch, other errors than those
    in `_CERTAIN` become `OutcomeUnknown`.
    """
    if any(file.topic_id != handle.topic_id for file in batch.files):
        name = handle.name
        raise UnknownTopic(name, f"topic {name!r} was deleted and created again during the write; write again")
    inbox = None if batch.claim is None else handle.inbox
    attempt = _Attempt(handle, batch, policy.session_timeout_ms, inbox)
    try:
        outcome = retry(handle.log.environment, policy, attempt, is_retriable=attempt.may_be_repeated)
    except LogError as error:
        if not attempt.may_have_appended or isinstance(error, _CERTAIN):
            raise
        raise OutcomeUnknown(
            f"topic {handle.name!r}: the batch may be in the log, or another process may still append the batch: "
            f"{_reason(error)}; send it again under the same identity, or look for its rows"
        ) from error
    finally:
        if inbox is not None:
            inbox.withdraw()
    logs.debug(
        "topic %(topic)r: batch %(batch)s of producer %(producer)r is in the log, in entry %(entry)d or before",
        topic=handle.name,
        producer=None if batch.claim is None else batch.claim.producer,
        batch=None if batch.claim is None else batch.claim.batch_id,
        entry=outcome.number,
    )
    command = attempt.command
    assert command is not None
    if outcome.answer is not None:
        return outcome.answer  # who has committed the batch knows what else is due
    first = outcome.number if outcome.events else outcome.number + 1  # a replay has no entry
    if handle.journal.state.is_replicated:
        log_changes(attempt.before, outcome.events)
        settling.settle_after(handle, attempt.before, command, attempt.failed)
        _detect_failures_of_unseen(handle, command, policy)
    if cleans_up:
        inline_maintenance.run_inline(handle, first)
    return sequencing.offsets(command, outcome)


class _Attempt:
    """Commits a batch, as often as it is called, until it is acknowledged."""

    def __init__(
        self, handle: TopicHandle, batch: Batch, session_timeout_ms: int, inbox: Inbox[Command] | None
    ) -> None:
        self._handle = handle
        self._batch = batch
        self._session_timeout_ms = session_timeout_ms
        self._inbox = inbox
        self._is_repeated = False
        self._is_unknown = False
        """Whether the outcome of an attempt has stayed unknown."""
        self.failed = {node for file in batch.files for node in file.failed}
        """The nodes that a task could not write to, unless the batch was refused since: they may be well again."""
        self.before = handle.journal.state
        """The topic before the last submission."""
        self.command: CommitBatch | None = None
        """What the topic is asked for, once it is known."""
        self._outcome: Outcome[Topic] | None = None
        """The outcome of the first submission that was not refused."""

    @property
    def may_have_appended(self) -> bool:
        """Whether the batch may be in the log although an attempt has failed."""
        return self._is_unknown or self._outcome is not None or (self._inbox is not None and self._inbox.is_used)

    def may_be_repeated(self, error: LogError) -> bool:
        """Return whether to call this again after an error."""
        return error.retriable or (isinstance(error, OutcomeUnknown) and self._batch.claim is not None)

    def __call__(self) -> Outcome[Topic]:
        """Commit the batch. Raises `OutcomeUnknown` and what `submit` raises."""
        try:
            return self._commit()
        except OutcomeUnknown:
            self._is_unknown = True
            raise

    def _commit(self) -> Outcome[Topic]:
        handle = self._handle
        handle.log.check_root()
        if self._is_repeated:
            handle.refresh()
        self._is_repeated = True
        if self.command is None:
            self.command = self._prepare()
        if not handle.journal.state.is_replicated:
            return handle.submit(self.command, self._inbox)
        try:
            return self._submit(self.command)
        except NotEnoughReplicas:
            self.failed = set()
            failure_detector_of(handle, self._session_timeout_ms).look(handle)
            settling.settle(handle, handle.log.environment.monotonic() + settling.REFUSED_SECONDS)
            if self._outcome is None:
                self.command = settling.with_copies(handle, self.command)
            return self._submit(self.command)

    def _submit(self, command: CommitBatch) -> Outcome[Topic]:
        """Submit the batch, or find that it is in the log. Raises `NotEnoughReplicas` if its promise does not hold."""
        handle = self._handle
        if self._outcome is None:
            self.before = handle.journal.state
            self._outcome = handle.submit(settling.with_real_holders(handle, command), self._inbox)
        elif command.claim is not None:
            handle.submit(command)  # raises if an election has cut its rows meanwhile
        settling.check_committed(handle, command)
        return self._outcome

    def _prepare(self) -> CommitBatch:
        handle, batch = self._handle, self._batch
        inline_maintenance.roll_past_the_cap(handle)
        swaps = batch.swaps
        if swaps is None:
            swaps = inline_maintenance.roll_one_inline(handle)
            if swaps:
                handle.refresh()  # a roll takes time
        swaps = isr_copies.with_copies(handle, swaps, self.failed) if swaps else ()
        files = tuple(each.file for each in batch.files)
        return CommitBatch(batch.claim, files, batch.acks, swaps)


def _reason(error: LogError) -> str:
    """Return why nothing is known of a batch. The advice in a `StaleFile` is for one that nobody can have appended."""
    if isinstance(error, StaleFile):
        return "its process waited longer than orphan.retention.ms, and the log has forgotten the producer since then"
    return str(error)


def detect_failures(handle: TopicHandle, policy: RetryPolicy) -> None:
    """Probe the nodes, and elect leaders in the place of unreachable ones if their time-out has passed."""
    if handle.journal.state.is_replicated:
        failure_detector_of(handle, policy.session_timeout_ms).look(handle)


def _detect_failures_of_unseen(handle: TopicHandle, command: CommitBatch, policy: RetryPolicy) -> None:
    """Detect failures if rows are not committed: an unreachable member of the ISR would hide all that follow."""
    if command.acks == "all" or all(each.high_watermark == each.log_end for each in handle.journal.state.partitions):
        return
    try:
        failure_detector_of(handle, policy.session_timeout_ms).look_now_and_then(handle)
    except LogError as error:
        message = "failure detection for topic %(topic)r failed: %(error)s"
        handle.log.failures.note(("detection", handle.topic_id), error, message, topic=handle.name)
    else:
        message = "failure detection for topic %(topic)r works again"
        handle.log.failures.end(("detection", handle.topic_id), message, topic=handle.name)
