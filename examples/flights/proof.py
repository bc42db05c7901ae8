"""The proof: the topic has each flight of the input once, in order for each aircraft, on every node.

The rows are read without Spark: the journal says where each partition's chunks are, and every chunk's checksum is
checked. The flights are then compared, field by field, with those of the input file.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pyspark_log_storage.files.append_file import read_chunk

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import ChunkRef
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store


class Disproved(Exception):
    """The topic or the result differs from the input."""


def check_in_sync(topic: Topic) -> None:
    """Raise `Disproved` unless every replica of every partition is in sync, and has all of its rows."""
    for number, partition in enumerate(topic.partitions):
        if set(partition.isr) != set(partition.replicas):
            raise Disproved(f"partition {number} is on {partition.replicas}, and only {partition.isr} are in sync")
        if set(partition.log_end_offsets.values()) != {partition.high_watermark}:
            raise Disproved(f"partition {number} ends at {partition.log_end_offsets}, not at its high watermark")


def rows_on_node(handle: TopicHandle, store: Store) -> list[pa.Table]:
    """Return the keys and values of each partition, in the order of their offsets, as stored on a node.

    Raises `Disproved`, `LogError`.
    """
    empty = pa.schema([("key", pa.binary()), ("value", pa.binary())]).empty_table()
    partitions = []
    for number, partition in enumerate(handle.journal.state.partitions):
        chunks = partition.chunks_between(0, partition.high_watermark)
        offset = 0
        for chunk in chunks:
            if chunk.base_offset != offset:
                raise Disproved(f"partition {number} goes from offset {offset} to {chunk.base_offset}")
            offset = chunk.end_offset
        if offset != partition.high_watermark:
            raise Disproved(f"partition {number} ends at {offset}, its high watermark is {partition.high_watermark}")
        batches = [_rows_of_chunk(handle, store, number, chunk).select(["key", "value"]) for chunk in chunks]
        partitions.append(pa.Table.from_batches(batches) if batches else empty)
    return partitions


def _rows_of_chunk(handle: TopicHandle, store: Store, partition: int, chunk: ChunkRef) -> pa.RecordBatch:
    key = handle.append_file(handle.journal.state.file(chunk.file).name)
    name = f"{store.url}: topic {handle.name!r}, partition {partition}, offset {chunk.base_offset}"
    return read_chunk(store, key, chunk.place(partition), handle.schemas, name)


def check_topic(partitions: list[pa.Table], flights: pa.Table) -> int:
    """Return the number of aircraft in the topic. Raises `Disproved` for any difference to `flights`."""
    events = [_events(rows["value"], flights.schema) for rows in partitions]
    _check_each_once(pa.concat_tables(events), flights)
    aircraft: set[str] = set()
    for number, (rows, flown) in enumerate(zip(partitions, events, strict=True)):
        if not rows["key"].cast(pa.string()).equals(flown["tailnum"]):
            raise Disproved(f"partition {number} has keys that are not the tail numbers of their flights")
        here = set(flown["tailnum"].unique().to_pylist()) - {None}
        if here & aircraft:
            raise Disproved(f"{min(here & aircraft)} is in partition {number} and in another")
        aircraft |= here
        _check_order(flown, number)
    return len(aircraft)


def _events(values: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    if len(values) == 0:
        return schema.empty_table()
    lines = io.BytesIO(b"\n".join(values.to_pylist()))
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return pyarrow.json.read_json(lines, parse_options=options)


def _check_each_once(events: pa.Table, flights: pa.Table) -> None:
    count = np.bincount(events["number"].to_numpy(), minlength=flights.num_rows)
    if len(count) > flights.num_rows:
        raise Disproved(f"flight {len(count) - 1} was never flown: there are {flights.num_rows}")
    for wrong, what in ((count == 0, "missing"), (count > 1, "there more than once")):
        if wrong.any():
            raise Disproved(f"{np.count_nonzero(wrong)} flights are {what}, the first is {np.flatnonzero(wrong)[0]}")
    if not events.sort_by("number").equals(flights):
        raise Disproved("a flight in the topic has other fields than in the input file")


def _check_order(flown: pa.Table, partition: int) -> None:
    keyed = flown.filter(pc.is_valid(flown["tailnum"]))
    aircraft = keyed["tailnum"].combine_chunks().dictionary_encode().indices.to_numpy()
    by_aircraft = np.argsort(aircraft, kind="stable")
    same = np.diff(aircraft[by_aircraft]) == 0
    numbers = keyed["number"].to_numpy()[by_aircraft]
    late = np.flatnonzero(same & (np.diff(numbers) <= 0))
    if late.size:
        first, then = numbers[late[0]], numbers[late[0] + 1]
        raise Disproved(f"partition {partition} has flight {then} behind flight {first} of the same aircraft")
