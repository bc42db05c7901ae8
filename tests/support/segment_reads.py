"""Chunks of a segment by its index or, if that is missing or damaged, by its .log: the fallback of a reader."""

from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files import index
from pyspark_log_storage.segments import segment


def entries_between(store, key, start, end):
    return index.between(_table(store, key), start, end)


def entry_reaching(store, key, timestamp):
    return index.first_reaching(_table(store, key), timestamp)


def _table(store, key):
    try:
        return index.table(store, key)
    except (CorruptObject, ObjectMissing):
        return index.table_of(segment.scan(store, key))
