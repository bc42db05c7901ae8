"""Deleted topics, and what is left of them."""

from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.stored_topic import StoredTopic

DELAY_MS = 60_000
DELETED_MS = 1_000_000
LATER_MS = DELETED_MS + DELAY_MS


def filled(store=None, **settings):
    """A topic with segments, unrolled chunks, released files and a snapshot."""
    topic = StoredTopic(store, partitions=2, **settings)
    topic.fill(4, partitions=(0, 1))
    topic.roll(2, partition=0)
    topic.roll(2, partition=0)
    topic.merge(partition=0)
    topic.fill(2, partitions=(0, 1))
    return topic


def contents(store):
    return {key: store.read(key) for key in store.list("")}


def end_of(topic):
    """Return the keys of what stays of a deleted topic forever."""
    return sorted(end_keys(topic.handle.journal))


def left_of(topic):
    return list(topic.store.list(topic.folder))
