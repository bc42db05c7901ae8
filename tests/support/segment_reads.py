"""Chunks of a segment by its index or, if that is missing or damaged, by its .log: the fallback of a reader."""

from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files import index
from pyspark_log_storage.segments import segment


def entries_between(store, key, start, end):
    try:
        return index.between(store, key, start, end)
    except (CorruptObject, ObjectMissing):
        return segment.scanned_between(store, key, start, end)


def entry_reaching(store, key, timestamp):
    try:
        return index.first_reaching(store, key, timestamp)
    except (CorruptObject, ObjectMissing):
        return segment.scanned_reaching(store, key, timestamp)
