"""The transaction log of a Delta table: which Parquet files of a folder are the table. Source: Delta's PROTOCOL.md.

    <folder>_delta_log/<version, 20 digits>.json                a version's actions, a JSON object on each line
    <folder>_delta_log/<version, 20 digits>.checkpoint.parquet  the whole table as of a version (`delta_checkpoint`)
    <folder>_delta_log/_last_checkpoint                         JSON: the version of the newest checkpoint

A version is created once, so of two processes that publish the same one the second reads what the first has published.
The table is derived: it does not decide what is in the log, and can be published anew at any time. Versions and
checkpoints have checksums of our own, in their commitInfo and footer, and a damaged table is published anew.

A process that was suspended may write an old checkpoint late, and `_last_checkpoint` then names that. To readers this
is a hint from where to list on; the newest checkpoint that is listed counts, for other engines as here.

The protocol of the table has a writer feature that only pyspark_log has (`WRITER_FEATURE`). So every engine reads the
table, and those that follow the protocol refuse to change it: OPTIMIZE would rewrite its files, and VACUUM would delete
every other file of the folder, the topic's journal among them. Features of readers are declared only where they are
needed: `timestampNtz` for such columns.

What another program adds nevertheless is foreign: versions, checkpoints without a checksum of ours, and every object
with the number of a version that pyspark_log does not write, because other engines may read it: checkpoints in parts or
with a UUID, compacted versions, checksums of versions.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
from msgspec import structs

from pyspark_log_storage import decoding
from pyspark_log_storage.delta import delta_checkpoint
from pyspark_log_storage.delta.delta_actions import (
    Action,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Transaction,
)
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark_log_storage.stores.store import Store

WRITER_FEATURE = "pysparkLogSegments"
NTZ = "timestampNtz"
_NTZ = re.compile(r'"(type|elementType|keyType|valueType)": *"timestamp_ntz"')
"""A column of this type, in a schema in its JSON form, in which a quote in a name has a backslash before it."""
PROTOCOL = Protocol(1, 7, writer_features=("appendOnly", "invariants", WRITER_FEATURE))
"""That of a table which needs nothing of its readers."""
ENGINE = "pyspark_log"
CHECKPOINT_EVERY = 20
"""How many versions have one checkpoint."""
VERSION_MAX = 2**62
"""Larger numbers are no versions: engines count them with 64 bits."""

_NUMBERED = re.compile(r"([0-9]{20})((?:\..*)?)", re.DOTALL)
_COMMIT, _CHECKPOINT = ".json", ".checkpoint.parquet"
_READS = 4
"""How often a table is read again that others publish and tidy up meanwhile."""
_CHECKSUM = "crc32c"
"""The operation parameter that has the CRC-32C of a version's other lines."""


class DeltaTable(msgspec.Struct):
    """A table as of a version; -1 is that of a table that does not exist."""

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: dict[str, AddFile] = {}
    """By path, relative to the table's folder."""
    transactions: dict[str, int] = {}
    """The newest version that each application has noted."""
    foreign: tuple[int, ...] = ()
    """The versions since the checkpoint that another program has made, and those of other objects of its."""
    checkpoint: int = -1
    """The version of the newest checkpoint, or -1."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Make the next version of the table out of this one."""
        self.version += 1
        is_own = False
        for each in actions:
            if each.add is not None:
                self.files[each.add.path] = each.add
            elif each.remove is not None:
                self.files.pop(each.remove.path, None)
            elif each.txn is not None:
                self.transactions[each.txn.app_id] = each.txn.version
            elif each.metadata is not None:
                self.metadata = each.metadata
            elif each.protocol is not None:
                self.protocol = each.protocol
            elif each.commit_info is not None:
                is_own = each.commit_info.engine_info == ENGINE
        if not is_own:
            self.foreign += (self.version,)


def read(store: Store, folder: str) -> DeltaTable:
    """Return the table in `folder`, which ends with "/".

    Reads the newest checkpoint and what was published since. Raises `CorruptObject` if a part of it is damaged or
    missing, or was written by another program in a way that pyspark_log does not read; and `StoreError`.
    """
    for _ in range(_READS):
        with suppress(ObjectMissing):  # it was listed, and then deleted: there are newer checkpoints
            return _read(store, folder)
    return _read(store, folder)


@rereads
def _read(store: Store, folder: str) -> DeltaTable:
    log = log_of(folder)
    hint = _last_checkpoint(store, log)
    versions, checkpoints, foreign = _listed(store, log)
    newest = max(checkpoints, default=-1)
    if hint > newest:
        raise CorruptObject(f"{store.url}/{log}_last_checkpoint", f"there is no checkpoint of version {hint}")
    found = DeltaTable() if newest < 0 else _checkpointed(store, log, newest)
    for version in versions:
        if version <= newest:
            continue
        if version != found.version + 1:
            raise CorruptObject(f"{store.url}/{log}", f"it lacks version {found.version + 1}, and has {version}")
        key = commit_key(folder, version)
        found.apply(decode(store.read(key), f"{store.url}/{key}"))
    found.foreign += foreign
    return found


def newest_version(store: Store, folder: str) -> int:
    """Return the largest number of a version, a checkpoint or something foreign, or -1. Raises `StoreError`.

    Reads none of them.
    """
    numbers = (number for number, _ in _numbered(store, log_of(folder)) if number <= VERSION_MAX)
    return max(numbers, default=-1)


def publish(store: Store, folder: str, version: int, actions: Sequence[Action]) -> bool:
    """Publish a version, durably. Return whether this call did: False if the version exists. Raises `StoreError`."""
    return store.create(commit_key(folder, version), encode(actions))


def write_checkpoint(store: Store, folder: str, table: DeltaTable) -> None:
    """Write a checkpoint of the table's version, so that readers need no version before it. Raises `StoreError`."""
    assert table.protocol is not None
    assert table.metadata is not None
    actions = [
        Action(protocol=table.protocol),
        Action(metadata=table.metadata),
        *(Action(txn=Transaction(each, version)) for each, version in table.transactions.items()),
        *(Action(add=each) for each in table.files.values()),
    ]
    log = log_of(folder)
    store.put(f"{log}{table.version:020d}{_CHECKPOINT}", delta_checkpoint.encode(actions))
    store.put(f"{log}_last_checkpoint", _encoder.encode(_LastCheckpoint(table.version, len(actions))))


def delete_versions(store: Store, folder: str, before: int) -> None:
    """Delete versions and checkpoints older than a checkpoint at version `before`, the oldest first.

    Foreign objects with such numbers are deleted, too, and those whose numbers are too large for a version.
    """
    log = log_of(folder)
    for number, ending in list(_numbered(store, log)):
        if number < before or number > VERSION_MAX:
            store.delete(f"{log}{number:020d}{ending}")


def protocol_of(metadata: Metadata) -> Protocol:
    """Return what a program must be able to do to read a table of these columns, or to write it."""
    if not _NTZ.search(metadata.schema_string):
        return PROTOCOL
    return Protocol(3, 7, (NTZ,), ("appendOnly", "invariants", NTZ, WRITER_FEATURE))


def log_of(folder: str) -> str:
    return f"{folder}_delta_log/"


def commit_key(folder: str, version: int) -> str:
    return f"{log_of(folder)}{version:020d}{_COMMIT}"


def encode(actions: Sequence[Action]) -> bytes:
    """Return the stored bytes of a version; its `commit_info`, if there is one, comes first."""
    lines = b"".join(_encoder.encode(each) + b"\n" for each in actions if each.commit_info is None)
    parameters = {_CHECKSUM: _sum_of(lines)}
    infos = [structs.replace(each.commit_info, operation_parameters=parameters) for each in actions if each.commit_info]
    return b"".join(_encoder.encode(Action(commit_info=each)) + b"\n" for each in infos) + lines


def decode(data: bytes, name: str) -> list[Action]:
    """Return the actions of a version; those that say nothing about files are empty. Raises `CorruptObject`."""
    lines = [each for each in data.splitlines() if each.strip()]
    actions = [decoding.decode(_decoder.decode, each, name, CorruptObject) for each in lines]
    info = actions[0].commit_info if actions else None
    if info is None or info.engine_info != ENGINE:
        return actions
    if info.operation_parameters.get(_CHECKSUM) != _sum_of(data.partition(b"\n")[2]):
        raise CorruptObject(name, "its checksum is wrong")
    return actions


def commit_info(now: int, operation: str) -> Action:
    """Return what says who published a version, and when (ms)."""
    return Action(commit_info=CommitInfo(now, operation, ENGINE))


def removal(path: str, now: int) -> Action:
    """Return what takes a file out of the table, with its rows, at `now` (ms)."""
    return Action(remove=RemoveFile(path=path, deletion_timestamp=now, data_change=True))


class _LastCheckpoint(msgspec.Struct):
    version: int
    size: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Action)
_checkpoint_decoder = msgspec.json.Decoder(_LastCheckpoint)


def _last_checkpoint(store: Store, log: str) -> int:
    """Return the version of the checkpoint that `_last_checkpoint` names, or -1."""
    key = f"{log}_last_checkpoint"
    try:
        data = store.read(key)
    except ObjectMissing:
        return -1
    return decoding.decode(_checkpoint_decoder.decode, data, f"{store.url}/{key}", CorruptObject).version


def _checkpointed(store: Store, log: str, version: int) -> DeltaTable:
    """Return the table as of its checkpoint of a version."""
    key = f"{log}{version:020d}{_CHECKPOINT}"
    name = f"{store.url}/{key}"
    found = DeltaTable(version - 1, checkpoint=version)
    found.apply(delta_checkpoint.decode(store.read(key), name))
    found.foreign = ()
    if found.protocol is None or found.metadata is None:
        raise CorruptObject(name, "it has no protocol, or no metadata")
    return found


def _listed(store: Store, log: str) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Return the versions and the checkpoints that there are, ascending, and the numbers of what is foreign."""
    versions, checkpoints, foreign = [], [], []
    for number, ending in _numbered(store, log):
        if number > VERSION_MAX or ending not in {_COMMIT, _CHECKPOINT}:
            foreign.append(number)
        elif ending == _COMMIT:
            versions.append(number)
        else:
            checkpoints.append(number)
    return versions, checkpoints, tuple(foreign)


def _numbered(store: Store, log: str) -> Iterator[tuple[int, str]]:
    """Yield number and ending of each object of a table's log that has the number of a version, ascending."""
    for key in store.list(log):
        if found := _NUMBERED.fullmatch(key, len(log)):
            yield int(found[1]), found[2]


def _sum_of(lines: bytes) -> str:
    return f"{google_crc32c.value(lines):08x}"
