"""A batch as a writer submits it: its acks, and its append files with their chunks."""

from __future__ import annotations

from typing import Literal

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.stored_fields import BornName


class SequencedFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An append file of a batch: its name, its holders, and its chunks in order."""

    name: BornName
    holders: tuple[Holder, ...]
    chunks: tuple[StagedChunk, ...]


class StagedFile(msgspec.Struct, frozen=True):
    """An append file that is durable and not sequenced yet."""

    topic: str
    topic_id: str
    file: SequencedFile
    failed: tuple[NodeId, ...] = ()
    """Nodes that it could not be written to."""


Acks = Literal["all", "1", "0"]
