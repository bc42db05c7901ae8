"""`pyspark-log dump`: print stored files of any kind."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli import arguments, output
from pyspark_log.writing import row_lines
from pyspark_log_coordinator.audit import stored_objects
from pyspark_log_coordinator.log import topic_description
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, InvalidInput
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import StagedChunk

    Document = dict[str, Any]
    Documents = Iterator[Document]

ROWS_AT_ONCE = 10_000
"""A Python row takes many times the memory of a row in a chunk."""


@arguments.examples(
    "pyspark-log dump /data/log/cluster/entries/00000000000000000001",
    "pyspark-log dump /data/log/topics/flights/*/append/* --rows",
)
def dump(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Stored files of any kind.")
    ],
    rows: Annotated[bool, typer.Option("--rows", help="Also print the rows of chunks.")] = False,
) -> None:
    """Print the contents of stored files as JSON lines.

    The first line of each file has its name and type: node marker, list of journal nodes, journal entry, register,
    snapshot, topic description, append file, segment, Parquet segment, keyed segment or index.
    """
    for file in files:
        try:
            for document in _documents(file, rows=rows):
                output.print_json(document)
        except decoding.IMPOSSIBLE as error:
            # Events and states are decoded without their types, to print even those that the product would refuse.
            raise CorruptObject(str(file), decoding.reason(error)) from error


def _documents(file: Path, *, rows: bool) -> Documents:
    store, key, name = LocalStore(str(file.resolve().parent)), file.name, str(file)
    magic = store.read(key, 0, 4)
    if magic in CHUNKED:
        kind, chunks = CHUNKED[magic]
        yield stored_objects.head(name, kind)
        for document, place, data in chunks(store, key):
            yield document
            yield from _rows(chunk.decode(data, place, _schemas(str(file.resolve())), name)) if rows else ()
    elif magic == b"PAR1":
        yield from _parquet_segment(store, key, file, rows=rows)
    elif magic == b"PLIX":
        yield from _index(store, key, name)
    elif (found := stored_objects.documents(magic, store.read(key), name)) is not None:
        yield from found
    else:
        raise InvalidInput(
            f"{file} is not a file of a log, or its first bytes are damaged; give a file from the folder of a node"
        )


def _append_file(store: LocalStore, key: str) -> Iterator[tuple[Document, Any, Any]]:
    for place, data in append_file.scan(store, key):
        yield _chunk(place), place, data


def _segment(store: LocalStore, key: str) -> Iterator[tuple[Document, Any, Any]]:
    for entry, chunk_place, data in segment.chunks(store, layout.segment_in(key) or key.removesuffix(layout.LOG)):
        place = {"base_offset": entry.base_offset, "leader_epoch": entry.leader_epoch}
        yield place | _chunk(entry), chunk_place, data


def _parquet_segment(store: LocalStore, key: str, file: Path, *, rows: bool) -> Documents:
    """Yield the row groups of a Parquet segment."""
    name = str(file)
    footer = parquet_footer.read(store, key)
    found = footer.segment
    begin = footer.entries[0].base_offset
    fields = {"base_offset": begin, "leader_epochs": found.leader_epochs, "tail": footer.tail_position}
    if found.keyed is None:
        yield stored_objects.head(name, "Parquet segment", **fields)
    else:
        fields |= {"end_offset": footer.entries[-1].end_offset, **msgspec.structs.asdict(found.keyed)}
        yield stored_objects.head(name, "keyed segment", **fields)
    for entry in footer.entries:
        place = {"base_offset": entry.base_offset, "leader_epoch": entry.leader_epoch}
        row_group.read_bytes(store, key, entry.place(), f"{name} at byte {entry.position}")
        yield place | ({"span": entry.span} if entry.span else {}) | _chunk(entry)
        if not rows:
            continue
        schemas = _schemas(str(file.resolve()))
        if found.keyed is None:
            yield from _rows(row_group.read_by(store, key, footer, entry, schemas))
        else:
            batch, offsets = row_group.keyed_rows(store, key, footer, entry, schemas)
            yield from ({"offset": offset, **row} for offset, row in zip(offsets.tolist(), _rows(batch), strict=True))


def _index(store: LocalStore, key: str, name: str) -> Documents:
    entries = index.read(store, key.removesuffix(".index"))
    offsets = {"base_offset": entries[0].base_offset, "end_offset": entries[-1].end_offset}
    yield stored_objects.head(name, "index", **offsets, entries=len(entries))
    yield from map(msgspec.structs.asdict, entries)


CHUNKED: dict[bytes, tuple[str, Callable[[LocalStore, str], Iterator[tuple[Document, Any, Any]]]]] = {
    b"PLCK": ("append file", _append_file),
    b"PLSG": ("segment", _segment),
}


def _chunk(place: StagedChunk | IndexEntry) -> Document:
    return {
        "position": place.position,
        "length": place.length,
        "rows": place.rows,
        "schema_id": place.schema_id,
        "min_timestamp_us": place.min_timestamp,
        "max_timestamp_us": place.max_timestamp,
        "crc": f"{place.crc:08x}",
    }


def _rows(batch: Any) -> Documents:
    for first in range(0, batch.num_rows, ROWS_AT_ONCE):
        yield from row_lines.objects(batch.slice(first, ROWS_AT_ONCE))


@functools.lru_cache(maxsize=1)
def _schemas(file: str) -> Any:
    """Return the schemas of a file's topic: those of the description in its folder, else those of records."""
    description = Path(file).parent.parent / topic_description.NAME
    if not description.is_file():
        return schema.RECORD_SCHEMAS
    topic = topic_description.decode(description.read_bytes(), str(description)).topic
    return schema.decode_all(topic.schemas, f"topic {topic.name!r}")
