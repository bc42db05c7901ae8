"""Making a backup, while writers go on, and checking it.

    1  read the groups
    2  for each topic: read its state, and copy the files that it names and the target lacks
    3  create the manifest

A file that maintenance deletes before it is copied is not in the topic's next state. So the topic is read again, and
what the newer state names is copied, until nothing is missing. Every chunk is checked while it is copied. After an
error, or a kill, the next backup copies what is missing.

Only one process may back up to a target at a time.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.backup import manifest
from pyspark_log_coordinator.backup.manifest import Backup
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, FormerNode
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.log.bootstrap import overlap
from pyspark_log_coordinator.rebuild.begin_anew import KnownGroup
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    LogError,
    StoreError,
    UnknownTopic,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, stop_unless_damaged
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.log.topic_description import Description
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile
    from pyspark_log_storage.stores.store import Store

    Bar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]
    """Shows the progress of some work, given its name and its bytes."""

OPTION = "target"


class Copied(msgspec.Struct):
    files: int = 0
    bytes: int = 0


@contextlib.contextmanager
def no_bar(_name: str, _bytes: int) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield bool


def back_up(log: Log, target: Store, bar: Bar = no_bar) -> tuple[Backup, Copied]:
    """Make the next backup of a log, which is open, in the store `target`. Return it, and what was copied for it.

    Raises `InvalidOption` if the target is not one for this log; `CorruptObject` or the error of a store if a file
    cannot be copied from any node.
    """
    log.cluster.refresh()
    number, copied = _next_number(log, target), Copied()
    made = _read(log, number, lambda handle: _topic(handle, target, bar, copied))
    if not target.create(layout.backup(number), manifest.encode(made)):
        raise InvalidOption(OPTION, f"another process made backup {number} in {target.url}; run one at a time")
    return made, copied


def _read(log: Log, number: int, save: Callable[[TopicHandle], Description]) -> Backup:
    """Return the present states of a log. `save` returns that of a topic."""
    state = log.cluster.state
    entry, at_ms = log.cluster.number, log.clock.now_ms()
    groups = [(record, *_group(log, record.group_id)) for record in state.groups.values()]
    topics = []
    for name in sorted(state.topics):
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            topics.append(save(log.topic(name)))
    ends = {each.topic.topic_id: [one.log_end for one in each.topic.partitions] for each in topics}
    return Backup(
        number=number,
        at_ms=at_ms,
        cluster=state.cluster_id,
        entry=entry,
        nodes=(*state.former_nodes, *(FormerNode(each.node_id, each.incarnation) for each in state.nodes.values())),
        topics=tuple(topics),
        groups=tuple(
            KnownGroup(entry, record, _within(group, ends)) for record, entry, group in groups if group is not None
        ),
    )


def check(store: Store, numbers: Sequence[int], bar: Bar = no_bar) -> list[tuple[LogError, list[int]]]:
    """Read every file of these backups once and check each chunk. Return what is wrong, each with the backups it is in.

    Nothing is wrong if each of them can be restored. A segment's index that is missing or damaged is written again.
    """
    wrong: list[tuple[LogError, list[int]]] = []
    files: dict[str, ReplicaFile] = {}
    within: defaultdict[str, list[int]] = defaultdict(list)
    for number in numbers:
        try:
            topics = manifest.read(store, number).topics
        except LogError as error:
            wrong.append((error, [number]))
            continue
        for each in (file for one in topics for file in replica_file.files_of(one.topic)):
            places = {*each.places, *files.get(each.key, each).places}
            files[each.key] = msgspec.structs.replace(each, places=tuple(places))
            within[each.key].append(number)
    with bar(f"check {store.url}", sum(each.bytes for each in files.values())) as moved:
        for key, each in files.items():
            try:
                replica_file.check(store, each, moved)
            except LogError as error:
                wrong.append((error, within[key]))
    return wrong


def keep(store: Store, count: int) -> tuple[list[int], int]:
    """Delete all but the newest `count` backups, at least one, and the files that only those have.

    Return the numbers of the deleted backups, and how many files were deleted. No backup may be under way. Nothing is
    deleted if a manifest that stays cannot be read.
    """
    numbers = manifest.numbers(store)
    old = numbers[:-count]
    needed = {
        key
        for number in numbers[-count:]
        for one in manifest.read(store, number).topics
        for file in replica_file.files_of(one.topic)
        for key in _keys(file)
    }
    for number in old:
        store.delete(layout.backup(number))
    unneeded = [key for key in _stored_files(store) if key not in needed]
    for key in unneeded:
        store.delete(key)
    return old, len(unneeded)


def _keys(file: ReplicaFile) -> tuple[str, ...]:
    return (file.key,) if file.segment is None else layout.segment_files(file.key)


def _stored_files(store: Store) -> Iterator[str]:
    """Yield the keys of the rows of topics in a store, and nothing else that may be there."""
    for key in store.list(layout.TOPICS):
        parts = key.split("/")
        if len(parts) > 3 and layout.is_of_topic(key, f"{'/'.join(parts[:3])}/"):  # noqa: PLR2004 -- topics/NAME/ID/
            yield key


def _next_number(log: Log, target: Store) -> int:
    """Return the number of the next backup.

    Raises `InvalidOption` if the target is not one for this log, `CorruptObject` if all backups in it are damaged.
    """
    for each in log.cluster.state.nodes.values():
        url = log.store.url if each.url == AT_THE_ROOT else each.url
        if url == target.url or overlap(url, target.url):
            raise InvalidOption(OPTION, f"{target.url} and node {each.node_id!r} at {url} overlap; give another folder")
    if node.read_marker(target) is not None:
        raise InvalidOption(OPTION, f"{target.url} is a node of a log; give another folder")
    numbers = manifest.numbers(target)
    if not numbers:
        self_test(target, log.environment.nonce(), log.environment.store_threads)
        return 1
    try:
        newest = first_readable(reversed(numbers), lambda each: manifest.read(target, each), stop_unless_damaged)
    except AllCopiesFailed as failed:
        raise next(iter(failed.errors.values())) from failed
    known = newest.cluster
    if known != log.cluster.state.cluster_id:
        raise InvalidOption(OPTION, f"{target.url} has backups of another cluster, {known}; give another folder")
    return numbers[-1] + 1


def _group(log: Log, group_id: str) -> tuple[int, Group | None]:
    """Return the newest entry of a group's journal and the state after it, None if the group does not exist now."""
    handle = log.group_handle(log.cluster.state.groups[group_id])
    state = handle.journal.refresh()
    return handle.journal.number, state if state.started and state.state is not GroupState.DEAD else None


def _within(group: Group, ends: dict[str, list[int]]) -> Group:
    """Return a group whose offsets are within the log: an unclean election may have cut it since they were read."""
    offsets = {
        topic_id: {
            number: msgspec.structs.replace(each, offset=min(each.offset, ends[topic_id][number]))
            for number, each in partitions.items()
            if number < len(ends[topic_id])
        }
        for topic_id, partitions in group.offsets.items()
        if topic_id in ends
    }
    return msgspec.structs.replace(group, offsets=offsets)


def _topic(handle: TopicHandle, target: Store, bar: Bar, copied: Copied) -> Description:
    while True:
        state, found = handle.refresh(), handle.description()
        stored = set(target.list(layout.topic_folder(handle.name, handle.topic_id)))
        lacking = [each for each in replica_file.files_of(state) if each.stored_key not in stored]
        with bar(f"back up {handle.name}", sum(each.bytes for each in lacking)) as moved:
            if all(_copy(handle, state, each, target, moved, copied) for each in lacking):
                return found


def _copy(
    handle: TopicHandle, state: Topic, file: ReplicaFile, target: Store, moved: Callable[[int], object], copied: Copied
) -> bool:
    """Copy a file from the first node that can be read. Return false if the topic's newest state does not have it."""

    def advance(count: int) -> None:
        copied.bytes += count
        moved(count)

    sources = handle.log.reachable_holders(state, handle.log.nearest_first(), file.holders)
    try:
        replica_file.copy_from_first([handle.log.node_store(each) for each in sources], target, file, advance)
    except (CorruptObject, StoreError):
        if file in replica_file.files_of(handle.refresh()):
            raise
        return False
    copied.files += 1
    return True
