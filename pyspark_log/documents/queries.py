"""Queries, and applications that name themselves: what each has written to a topic last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.topic_state import Topic


def queries(name: str, topic: Topic) -> list[dict[str, Any]]:
    """Return who has written to a topic; producers that have a `born` are processes without a name of their own."""
    return [
        {
            "query": producer.query_name or query,
            "topic": name,
            "batch": producer.batch_id,
            "rows": producer.rows,
            "rows_lost": producer.rows_lost,
        }
        for query, producer in topic.producers.items()
        if producer.born is None
    ]
