"""Committing what tasks have staged, one journal entry for each topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark_log_coordinator.commit.commit import Batch, commit
from pyspark_log_coordinator.retry import RetryPolicy, retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.batch import Acks, StagedFile
    from pyspark_log_coordinator.model.producers import ProducerClaim
    from pyspark_log_coordinator.segments.swap import SwapSegments


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
    without rows, so that a replay without rows is noticed, and `swaps` is what the tasks rolled or merged of it. Raises
    what `commit` raises; topics that were committed before the error stay, and a replay finds them committed.
    """
    by_topic: dict[str, list[StagedFile]] = {} if topic is None else {topic: []}
    for task in staged:
        for file in task:
            by_topic.setdefault(file.topic, []).append(file)
    done = {}
    for name in sorted(by_topic):
        handle = retry(log.environment, policy, partial(log.topic, name, recent_suffices=True))
        batch = Batch(claim, tuple(by_topic[name]), acks, tuple(swaps) if name == topic else None)
        done[name] = commit(handle, batch, policy)
    return done
