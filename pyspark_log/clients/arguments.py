"""Partitions and offsets in the forms in which callers give them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_log.clients.records import OffsetAndMetadata, TopicPartition
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable


def partition_of(given: Iterable[object]) -> TopicPartition:
    """Return a partition that was given as a `TopicPartition` or a tuple. Raises `InvalidInput` for anything else."""
    try:
        topic, number = given
        if isinstance(topic, str):
            return TopicPartition(topic, operator.index(number))  # type: ignore[arg-type]  # TypeError if it is none
    except (TypeError, ValueError):
        pass
    raise InvalidInput(f"{given!r} is not a partition; give the topic's name and the partition's number")


def offset_of(given: int) -> int:
    """Return an offset that was given as any whole number. Raises `InvalidInput` for anything else."""
    try:
        offset = operator.index(given)
    except TypeError:
        raise InvalidInput(f"offset {given!r} is not a whole number; give the number of a row") from None
    if offset < 0:
        raise InvalidInput(f"offset {offset} is negative; use seek_to_beginning or seek_to_end")
    return offset


def committed_of(
    given: Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit, which were given as numbers or as `OffsetAndMetadata`. Raises `InvalidInput`."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{given!r} are no offsets to commit; give a dict with an offset for each partition")
    found = {}
    for key, each in given.items():
        offset, metadata, epoch = each if isinstance(each, tuple) and len(each) == 3 else (each, "", -1)  # noqa: PLR2004
        if not isinstance(metadata, str):
            raise InvalidInput(f"the metadata of a commit is {metadata!r}; give text")
        found[partition_of(key)] = OffsetAndMetadata(offset_of(offset), metadata, epoch)
    return found
