"""A scan of a Parquet segment, keyed or not: all its bytes and rows are checked, without a journal or an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.parquet.parquet_footer import MAGIC
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.stores.store import Readable


def scan(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> Iterator[IndexEntry]:
    """Yield the entry of each row group of the .parquet at `key`, after checking its bytes.

    With `schemas` a row group also counts as damaged if its rows cannot be decoded. Keeps one row group in memory.
    Raises `CorruptObject` at the first damaged one; if the footer is damaged that is before the first.
    """
    footer = parquet_footer.read(store, key)
    name = f"segment {store.url}/{key}"
    check_begin(store, key, name)
    for entry in footer.entries:
        if schemas is None:
            row_group.read_bytes(store, key, entry.place(), f"{name} at byte {entry.position}")
        else:
            row_group.read_by(store, key, footer, entry, schemas)
        yield entry


@rereads
def check_begin(store: Readable, key: str, name: str) -> None:
    """Raise `CorruptObject` unless a file begins as Parquet does."""
    if store.read(key, 0, len(MAGIC)) != MAGIC:
        raise CorruptObject(name, f"it does not begin with {MAGIC!r}")
