"""Producers: what makes a micro-batch exactly once.

A producer is a streaming query (its query id, which lives in its checkpoint) or an application that names
itself (`txnAppId`). The log keeps each one's last batch id; the same batch again changes nothing. What does
not look like a retry is an error that says what happened, never silence.

An application id that a query took over (`take_over`) never goes back to a query that had it before: its last
batch is forgotten, so that nobody could tell its retries from new rows. The option may thus stay set.
"""

from __future__ import annotations

import msgspec

from pyspark_log_storage.errors import BatchMismatch, ProducerFenced
from pyspark_log_storage.ranges import Count, Int64

RETIRED_MAX = 64


class ProducerClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who says to write which batch.

    `query_id` and `run_id` are Spark's, empty for batch writes; `batch_id` is Spark's batch id, or
    `txnVersion`.
    """

    producer: str
    query_id: str
    run_id: str
    batch_id: Int64
    take_over: bool = False


class Producer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A producer's last batch, and who must not write for it any more (the newest 64 of each)."""

    query_id: str
    run_id: str
    batch_id: Int64
    rows: Count
    retired_runs: tuple[str, ...] = ()
    retired_queries: tuple[str, ...] = ()
    rows_lost: Count = 0
    """How many rows of the last batch an election has cut off the log."""


def is_replay(known: Producer | None, claim: ProducerClaim, rows: int, topic: str) -> bool:
    """Return whether the claimed batch is in the log already; False means: it is new and may be appended.

    Raises `ProducerFenced` for a run that a newer one replaced and for an application id that another query
    owns or took over, `BatchMismatch` for the same batch with another number of rows and for a number that
    went backwards, and for a batch of which an election cut rows.
    """
    if known is None:
        return False
    who, batch = claim.producer, claim.batch_id
    if claim.run_id and claim.run_id in known.retired_runs:
        raise ProducerFenced(
            who,
            f"topic {topic!r}: run {claim.run_id} of producer {who!r} was replaced by a newer run, which "
            f"wrote up to batch {known.batch_id}; stop this driver, it is left over from an earlier start",
        )
    if claim.query_id in known.retired_queries:
        raise ProducerFenced(
            who,
            f"topic {topic!r}: txnAppId {who!r} was taken over from {_query(claim.query_id)} by "
            f"{_query(known.query_id)}, which wrote up to batch {known.batch_id}; it cannot go back, for "
            "what the former owner had written is forgotten. Stop this writer, or give it another txnAppId",
        )
    if claim.query_id != known.query_id:
        if claim.take_over:
            return False
        raise ProducerFenced(
            who,
            f"topic {topic!r}: txnAppId {who!r} belongs to {_query(known.query_id)}, which wrote up to batch "
            f"{known.batch_id}, and this is {_query(claim.query_id)}: its checkpoint is new or another's. "
            "Restart from the old checkpoint, choose another txnAppId, or take the id over with option "
            "txnTakeOver=true (batches that the old checkpoint had written may then be written twice)",
        )
    if batch > known.batch_id:
        return False
    if batch < known.batch_id:
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: producer {who!r} sends batch {batch} after batch {known.batch_id} is in the "
            "log: numbers went backwards, perhaps by an old copy of the checkpoint. Restore the newest "
            "checkpoint, or start with a new one; give a batch write a txnVersion that is not lower",
        )
    if rows != known.rows:
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: producer {who!r} sends batch {batch} again with {rows} rows, and {known.rows} "
            "are in the log: the source is not replayable or the query was changed. Make the query "
            "deterministic, or start it with a new checkpoint (and a new txnAppId)",
        )
    if known.rows_lost:
        raise BatchMismatch(
            who,
            batch,
            f"topic {topic!r}: batch {batch} of producer {who!r} was in the log, and the leader's node was lost before "
            f"others had copied it (acks=1): {known.rows_lost} of its {rows} rows are gone. Appending it again would "
            "write what is left twice. Write the missing rows by hand or do without them, and go on with a new "
            "checkpoint (and a new txnAppId); acks=all keeps this from happening",
        )
    return True


def move(known: Producer | None, claim: ProducerClaim, rows: int) -> Producer:
    """Return the producer after its batch was sequenced; another run, or query, retires the last one."""
    if known is None:
        return Producer(claim.query_id, claim.run_id, claim.batch_id, rows)
    runs, queries = known.retired_runs, known.retired_queries
    if known.run_id and known.run_id != claim.run_id:
        runs = (*runs, known.run_id)[-RETIRED_MAX:]
    if known.query_id != claim.query_id:
        queries = (*queries, known.query_id)[-RETIRED_MAX:]
    return Producer(claim.query_id, claim.run_id, claim.batch_id, rows, runs, queries)


def _query(query_id: str) -> str:
    return f"query {query_id}" if query_id else "a batch write"
