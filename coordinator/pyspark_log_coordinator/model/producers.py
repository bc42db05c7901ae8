"""Producers: the rules that write each micro-batch exactly once.

A producer is a streaming query (its query id, which is stored in its checkpoint) or an application that names itself
(`txnAppId`). The log keeps the last batch id of each; repeating that batch changes nothing. Any other conflict is an
error that says what happened.

A producer without a name is one process (`ProducerClaim.expires`). It repeats a batch with the same files, so the log
forgets it once these are below the orphan floor: from then on a repetition is refused because of its files.

An application id that another query took over (`take_over`) never returns to its former query: its retries would look
like new rows. The option may therefore stay set.

A query is one writer whatever its name: one that gets a `txnAppId` at a restart, or loses it, repeats its last batch
under another name.

A query that writes to one topic sends it every batch, also those without rows (`follows`). If one is missing before the
next, the log has lost its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.errors import BatchMismatch, ProducerFenced
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Mapping

RETIRED_MAX = 64
BEGINS_MAX = 32
"""Of so many partitions the log remembers where the last batch of a producer begins."""
_TWO_DRIVERS = "another driver runs on this checkpoint; stop this one, which is left over from an earlier start"
_TWO_DRIVERS_OR_OLD_COPY = (
    "Another driver runs on this checkpoint, or it is an old copy. Stop the other driver and start this query again, "
    "or restore the newest copy; a new checkpoint would write all rows once more"
)
_LOWER_VERSION = "Give the batch write a txnVersion that is not lower"


class ProducerClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A writer's statement of which producer's batch it writes.

    `query_id` and `run_id` are Spark's, empty for batch writes; `batch_id` is Spark's batch id or `txnVersion`.
    """

    producer: str
    query_id: str
    run_id: str
    batch_id: Int64
    take_over: bool = False
    expires: bool = False
    """Whether the producer is one process, which repeats a batch only with the same files."""
    follows: bool = False
    """Whether the batch follows the one before it: the producer sends the topic every batch."""
    query_name: str = ""
    """Spark's `queryName`, which tells people what the query is. It decides nothing."""


class Producer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's last batch, and the newest 64 runs and queries that may no longer write for it."""

    query_id: str
    run_id: str
    batch_id: Int64
    rows: Count
    retired_runs: tuple[str, ...] = ()
    retired_queries: tuple[str, ...] = ()
    rows_lost: Count = 0
    """Number of rows of the last batch that an election has cut off the log."""
    born: Count | None = None
    """The lowest born of the last batch's files if the producer expires."""
    begins: dict[int, Count] | None = None
    """The first offset of the last batch in each of its partitions, if the producer expires and these are few."""
    follows: bool = False
    """Whether the last batch was sent as one that follows the one before it."""
    query_name: str = ""


def names_of(known: Mapping[str, Producer], claim: ProducerClaim) -> list[str]:
    """Return the claimed producer and the other names under which its query has written batches."""
    if not claim.query_id:  # most claims are of producers without a name, and there may be thousands of these
        return [claim.producer]
    others = (
        name for name, producer in known.items() if name != claim.producer and producer.query_id == claim.query_id
    )
    return [claim.producer, *others]


def is_replay(known: Mapping[str, Producer], claim: ProducerClaim, rows: int, topic: str) -> bool:
    """Return whether the claimed batch is already in the log, under any name of its query; if not, it may be appended.

    Raise `ProducerFenced` for a run that a newer one replaced and for an application id that another query owns or took
    over. Raise `BatchMismatch` for a batch id that went backwards, for the same batch with another number of rows, for
    a batch that lost rows in an election, and if batches of the query are missing before it.
    """
    _check_run(known, claim, topic)
    others = (known[name] for name in names_of(known, claim) if name != claim.producer)
    found = [known.get(claim.producer), *(each for each in others if each.batch_id >= claim.batch_id)]
    if any(each is not None and _is_last(each, claim, rows, topic) for each in found):
        return True
    _check_follows(known, claim, topic)
    return False


def _check_run(known: Mapping[str, Producer], claim: ProducerClaim, topic: str) -> None:
    """Raise `ProducerFenced` if a newer run of the query has written batches under another name."""
    own = known.get(claim.producer)
    if own is None or not claim.run_id or own.run_id != claim.run_id:
        return
    for name in names_of(known, claim):
        if known[name].batch_id > own.batch_id:
            raise ProducerFenced(
                claim.producer,
                f"topic {topic!r}: run {claim.run_id} of producer {claim.producer!r} was replaced by a newer run, "
                f"which wrote up to batch {known[name].batch_id} as {name!r}: {_TWO_DRIVERS}",
            )


def _check_follows(known: Mapping[str, Producer], claim: ProducerClaim, topic: str) -> None:
    """Raise `BatchMismatch` if batches of the query are missing before the claimed one."""
    if not claim.follows or claim.take_over:
        return
    own = [known[name] for name in names_of(known, claim) if name in known]
    last = max(own, key=lambda producer: producer.batch_id, default=None)
    if last is None or not last.follows or last.query_id != claim.query_id or claim.batch_id <= last.batch_id + 1:
        return
    raise BatchMismatch(
        claim.producer,
        claim.batch_id,
        f"topic {topic!r}: producer {claim.producer!r} sends batch {claim.batch_id} after batch {last.batch_id}: the "
        "batches between are missing. The log has lost its end (it is an old copy, or the newest entry of its journal "
        "is lost), or the query wrote to another topic meanwhile. Restore the log, or look for the rows of these "
        "batches; with the options txnAppId and txnTakeOver=true the query goes on without them",
    )


def _is_last(known: Producer, claim: ProducerClaim, rows: int, topic: str) -> bool:
    """Return whether the claimed batch is a producer's last one, False if it is newer. Raises as `is_replay` does."""
    who, batch = claim.producer, claim.batch_id
    if claim.run_id and claim.run_id in known.retired_runs:
        raise ProducerFenced(
            who,
            f"topic {topic!r}: run {claim.run_id} of producer {who!r} was replaced by a newer run, which "
            f"wrote up to batch {known.batch_id}: {_TWO_DRIVERS}",
        )
    if claim.query_id in known.retired_queries:
        raise ProducerFenced(
            who,
            f"topic {topic!r}: txnAppId {who!r} was taken over from {_query(claim.query_id)} by "
            f"{_query(known.query_id)}, which wrote up to batch {known.batch_id}; it cannot return to "
            "the former owner, whose last batch is no longer known. Stop this writer, or give it another txnAppId",
        )
    if claim.query_id != known.query_id:
        if claim.take_over:
            return False
        raise ProducerFenced(
            who,
            f"topic {topic!r}: txnAppId {who!r} belongs to {_query(known.query_id)}, which wrote up to batch "
            f"{known.batch_id}; this is {_query(claim.query_id)}, with a new or different checkpoint. "
            "Restart from the old checkpoint, choose another txnAppId, or take the id over with option "
            "txnTakeOver=true (batches that the old checkpoint had written may then be written twice)",
        )
    if batch > known.batch_id:
        return False
    if batch < known.batch_id:
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: producer {who!r} sends batch {batch} after batch {known.batch_id}: "
            f"batch ids went backwards. {_TWO_DRIVERS_OR_OLD_COPY if claim.run_id else _LOWER_VERSION}",
        )
    if rows != known.rows:
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: producer {who!r} sends batch {batch} again with {rows} rows, but {known.rows} "
            "are in the log: the source is not replayable or the query was changed. Make the query "
            "deterministic, or start it with a new checkpoint (and a new txnAppId)",
        )
    if known.rows_lost:
        go_on = "" if claim.expires else ", and continue with a new checkpoint (and a new txnAppId)"
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: batch {batch} of producer {who!r} was in the log, but the leader's node was lost before "
            f"other replicas had copied it (acks=1): {known.rows_lost} of its {rows} rows are lost. Appending it again "
            f"would write the remaining rows twice. Write the lost rows by hand or do without them{go_on}; use "
            "acks=all to prevent this",
        )
    return True


def move(known: Producer | None, claim: ProducerClaim, rows: int, born: int, begins: dict[int, int]) -> Producer:
    """Return the producer after its batch was sequenced; another run or query retires the one before.

    `born` is the lowest one of the batch's files, and `begins` are its first offsets by partition.
    """
    if claim.expires:
        kept = begins if len(begins) <= BEGINS_MAX else None
        return Producer(claim.query_id, claim.run_id, claim.batch_id, rows, born=born, begins=kept)
    if known is None:
        known = Producer(claim.query_id, claim.run_id, claim.batch_id, rows)
    runs, queries = known.retired_runs, known.retired_queries
    if known.run_id and known.run_id != claim.run_id:
        runs = (*runs, known.run_id)[-RETIRED_MAX:]
    if known.query_id != claim.query_id:
        queries = (*queries, known.query_id)[-RETIRED_MAX:]
    moved = Producer(claim.query_id, claim.run_id, claim.batch_id, rows, runs, queries, follows=claim.follows)
    return msgspec.structs.replace(moved, query_name=claim.query_name)


def _query(query_id: str) -> str:
    return f"query {query_id}" if query_id else "a batch write"
