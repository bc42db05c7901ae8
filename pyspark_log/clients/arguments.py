"""Partitions and offsets in the forms in which callers give them."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping

from pyspark_log.clients.records import OffsetAndMetadata, TopicPartition
from pyspark_log_storage.errors import InvalidInput


def address_of(path: object, config: object, topics: str) -> str:
    """Return the address of a log that a client was given, in front of its configuration.

    `topics` says what names the topics. Raises `InvalidInput` for the arguments of a Kafka client.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInput(
            f"the first argument is {type(path).__name__} instead of the address of a log; a client takes the address "
            'and then its configuration: ("/data/log", {"linger.ms": 20})'
        )
    if not (config is None or isinstance(config, Mapping)):
        raise InvalidInput(f"the second argument is {config!r} instead of a dict of options; {topics}")
    return os.fspath(path)


def partition_of(given: Iterable[object]) -> TopicPartition:
    """Return a partition that was given as a `TopicPartition` or a tuple. Raises `InvalidInput` for anything else."""
    try:
        topic, number = given
        if isinstance(topic, str):
            return TopicPartition(topic, operator.index(number))  # type: ignore[arg-type]  # TypeError if it is none
    except (TypeError, ValueError):
        pass
    raise InvalidInput(f"{given!r} is not a partition; give the topic's name and the partition's number")


def partitions_of(given: object) -> TopicPartition | list[TopicPartition]:
    """Return a partition, or several that were given as a list or the like. Raises `InvalidInput`."""
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        return partition_of(given)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"{given!r} is not a partition; give the topic's name and its number, or a list of these")
    return [partition_of(each) for each in given]


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
