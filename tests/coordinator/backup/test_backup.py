"""Backups of a topic with real bytes: whatever happens meanwhile, a backup is one moment of the log, and whole."""

import contextlib
import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.reading.source_offset import Position
from pyspark_log.reading.tracking import within
from pyspark_log_coordinator.backup import backup, manifest
from pyspark_log_coordinator.backup.restore import restore
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.rebuild.known_files import NUMBER_MARGIN
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, DataLoss, InvalidOption, ObjectMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.countdown import CHANGES
from tests.support.faulty_store import Fault, FaultyStore, Killed
from tests.support.memory_store import MemoryStore


class Target(MemoryStore):
    """A store that calls `meanwhile` before each large object."""

    def __init__(self, meanwhile=lambda: None):
        super().__init__("the target")
        self.meanwhile = meanwhile

    def open_write(self, key, *, durable=True, replace=False):
        if key.startswith(layout.TOPICS):
            self.meanwhile()
        return super().open_write(key, durable=durable, replace=replace)


def restored(target, number=None, *, as_new=True, to=None):
    """The log of a backup, on a new store."""
    root = to or MemoryStore("restored")
    found = manifest.read(target, number or manifest.numbers(target)[-1])
    restore(found, target, root, real_environment(), as_new=as_new)
    return opened(root)


def opened(root):
    log = Log(root, real_environment(), open_node=MemoryStore)
    log.open(create=False)
    return log


def rows_in(topic, log, partition=0):
    """The values in a partition of the restored log, from its log start."""
    was = topic.log
    topic.log = log  # the stores that `read` reads
    try:
        return topic.read(partition, handle=log.topic("t"))
    finally:
        topic.log = was


def commit(topic, offset, partition=0):
    group = topic.log.group("g", create=True)
    group.submit(OffsetCommit({topic.handle.topic_id: {partition: Offset(offset)}}))


@given(seed=st.integers(0, 2**32), setup=st.integers(1, 12))
@settings(max_examples=25)
def test_a_backup_is_a_moment_of_each_topic_whatever_writers_and_maintenance_do_meanwhile(seed, setup):
    choice = random.Random(seed)
    topic = StoredTopic(partitions=2, **AT_ONCE)

    def act():
        topic.clock.now_ms += 1000
        partition = choice.randrange(2)
        one = topic.handle.refresh().partitions[partition]
        what = choice.randrange(6)
        if what == 0 and one.chunks:
            topic.roll(choice.randint(1, len(one.chunks)), partition)
        elif what == 1 and len(one.segments) > 1:
            topic.merge(choice.randint(2, len(one.segments)), partition)
        elif what == 2:
            topic_cleanup.clean_up_topic(topic.handle)
        elif what == 3 and one.log_end:
            topic.handle.submit(DeleteRecords(partition, choice.randint(one.log_start, one.log_end)))
        elif what == 4:
            commit(topic, one.high_watermark, partition)
        else:
            topic.fill(1, choice.randint(1, 3), (partition,))

    def sometimes():
        for _ in range(choice.randint(0, 3) if next(calls) < 40 else 0):
            act()

    calls = itertools.count()
    for _ in range(setup):
        act()
    target = Target(sometimes)
    for _ in range(2):
        before = [each.log_end for each in topic.handle.refresh().partitions]
        made, _ = backup.back_up(topic.open(), target)
        ends = [each.log_end for each in made.topics[0].topic.partitions]
        assert all(map(int.__le__, before, ends))
        assert backup.check(target, manifest.numbers(target)) == []
        log = restored(target)
        for number, partition in enumerate(log.topic("t").journal.state.partitions):
            values = topic.expected[number][partition.log_start : ends[number]]
            assert rows_in(topic, log, number) == values
        for group in made.groups:
            for number, each in group.state.offsets.get(topic.handle.topic_id, {}).items():
                assert each.offset <= ends[number]


def test_a_file_that_is_lost_ends_the_backup_with_its_name_and_there_is_none():
    topic, target = StoredTopic(), Target()
    topic.fill(2)
    (lost, _) = topic.keys("append/")
    topic.store.delete(f"{topic.folder}{lost}")
    with pytest.raises(ObjectMissing, match=lost):
        backup.back_up(topic.open(), target)
    assert manifest.numbers(target) == []


@pytest.mark.parametrize("survived", range(4))
def test_a_backup_that_is_killed_is_none_and_the_next_one_continues_it(survived):
    topic = StoredTopic()
    topic.fill(4)
    left = itertools.count()

    def kill():
        if next(left) == survived:
            raise Killed

    target = Target(kill)
    with pytest.raises(Killed):
        backup.back_up(topic.open(), target)
    assert manifest.numbers(target) == []
    target.meanwhile = lambda: None
    _, copied = backup.back_up(topic.open(), target)
    assert copied.files == 4 - survived
    assert rows_in(topic, restored(target)) == topic.expected[0]


def failing(calls):
    """Return a store at which a process is killed at its n-th change, without those of the self-test's threads."""
    left = itertools.count(calls, -1)

    def at(call, key):
        is_last = call in {*CHANGES, "open"} and not key.startswith(layout.SELF_TEST) and next(left) == 1
        return Fault.KILL_BEFORE if is_last else None

    return FaultyStore(MemoryStore("restored"), at)


def test_a_restore_that_is_killed_anywhere_is_no_log_and_the_next_one_continues_it():
    topic, target = StoredTopic(), Target()
    topic.fill(2)
    commit(topic, 3)
    backup.back_up(topic.open(), target)
    for calls in itertools.count(1):
        root = failing(calls)
        is_killed = False
        try:
            restored(target, to=root)
        except Killed:
            is_killed = True
        log = opened(root) if _is_log(root) else restored(target, to=root)
        assert rows_in(topic, log) == topic.expected[0]
        assert log.group("g").journal.state.committed(topic.handle.topic_id, 0).offset == 3
        if not is_killed:
            break
    assert calls > 10


def test_an_older_backup_is_not_restored_over_what_an_interrupted_restore_of_a_newer_one_has_left():
    """The numbers of the journals of the two are different, because there were a million entries between them."""
    topic, target = StoredTopic(), Target()
    topic.fill(2)
    older, _ = backup.back_up(topic.open(), target)
    topic.fill(1)
    newer, _ = backup.back_up(topic.open(), target)
    (saved,) = newer.topics
    moved = msgspec.structs.replace(saved, number=saved.number + NUMBER_MARGIN)
    newer = msgspec.structs.replace(newer, entry=newer.entry + NUMBER_MARGIN, topics=(moved,))
    refused = 0
    for calls in itertools.count(1):
        root = failing(calls)
        try:
            restore(newer, target, root, real_environment(), as_new=True)
        except Killed:
            pass
        else:
            break
        if _is_log(root):
            continue
        with contextlib.suppress(InvalidOption):
            restore(older, target, root, real_environment(), as_new=True)
        if _is_log(root):
            log = Log(root, real_environment())
            log.open(create=False)
            assert rows_in(topic, log) == topic.expected[0][:6], f"killed at call {calls}"
        else:
            refused += 1
    assert 1 < refused < calls


def _is_log(root):
    return Log(root, real_environment()).cluster.refresh().cluster_id != ""


def test_what_is_damaged_or_lost_in_a_backup_is_noticed_and_never_restored():
    topic, target = StoredTopic(), Target()
    topic.fill(3)
    topic.roll(2)
    backup.back_up(topic.open(), target)
    files = [key for key in target.list(layout.TOPICS) if not key.endswith(".index")]
    assert len(files) == 2
    for key in files:
        data = target.read(key)
        for changed in (data[:-1], data[:40] + bytes([data[40] ^ 1]) + data[41:], b""):
            target.put(key, changed)
            assert len(backup.check(target, [1])) == 1
            with pytest.raises(CorruptObject):
                restored(target)
        target.delete(key)
        ((lost, numbers),) = backup.check(target, [1])
        assert key in lost.message
        assert numbers == [1]
        with pytest.raises(ObjectMissing):
            restored(target)
        target.put(key, data)
    assert backup.check(target, [1]) == []
    stored = bytearray(target.read(layout.backup(1)))
    stored[-1] ^= 1
    target.put(layout.backup(1), bytes(stored))
    with pytest.raises(CorruptObject):
        restored(target)


def test_who_has_read_rows_since_the_backup_is_told_that_they_are_lost_however_often_a_leader_was_elected():
    topic, target = StoredTopic(), Target()
    topic.fill(1)
    backup.back_up(topic.open(), target)
    ((node, incarnation),) = topic.handle.journal.state.incarnations.items()
    for fenced in (True, False):
        topic.handle.submit(AlterReplicaNode(node, incarnation, fenced))
    topic.fill(2)
    before = topic.handle.refresh().partitions[0]
    read = Position(before.high_watermark, before.leader_epoch)
    assert (read.offset, read.epoch) == (9, 2)
    topic.store = MemoryStore("restored")
    topic.log = restored(target, as_new=False, to=topic.store)
    topic.handle = topic.log.topic("t")
    topic.fill(3)
    now = topic.handle.refresh().partitions[0]
    assert now.high_watermark > read.offset
    with pytest.raises(DataLoss, match="offset 9 of epoch 2 was truncated, that epoch ends at 3"):
        within(now, ("t", 0), read, fail_on_data_loss=True)


def test_a_backup_is_restored_only_where_nothing_is():
    topic, target = StoredTopic(), Target()
    topic.fill(1)
    backup.back_up(topic.open(), target)
    full = MemoryStore("full")
    full.put("a file", b"")
    used = MemoryStore("used")
    restored(target, to=used).topic("t").submit(DeleteRecords(0, 1))
    is_there = "there is a log already"
    for root, why in ((full, "it is not empty"), (topic.store, is_there), (used, is_there)):
        before = {key: root.read(key) for key in root.list("")}
        with pytest.raises(InvalidOption, match=why):
            restored(target, to=root)
        assert {key: root.read(key) for key in root.list("")} == before


def test_a_target_is_of_one_log_and_no_part_of_it():
    topic, target = StoredTopic(), Target()
    backup.back_up(topic.open(), target)
    with pytest.raises(InvalidOption, match="backups of another cluster"):
        backup.back_up(StoredTopic().open(), target)
    with pytest.raises(InvalidOption, match="overlap"):
        backup.back_up(topic.open(), MemoryStore(f"{topic.store.url}/backups"))
    other = StoredTopic(MemoryStore("other"))
    with pytest.raises(InvalidOption, match="is a node of a log"):
        backup.back_up(topic.open(), other.store)


def test_of_older_backups_only_what_newer_ones_do_not_need_is_deleted():
    topic, target = StoredTopic(**AT_ONCE), Target()
    topic.fill(2)
    backup.back_up(topic.open(), target)
    topic.roll()
    topic.fill(1)
    backup.back_up(topic.open(), target)
    target.put("topics/mine", b"")
    for count in (2, 3, 4):
        assert backup.keep(target, count) == ([], 0)
    assert backup.keep(target, 1) == ([1], 2)
    assert rows_in(topic, restored(target)) == topic.expected[0]
    assert target.read("topics/mine") == b""


def test_each_backup_that_is_asked_for_is_checked_and_each_file_once():
    """Both have the first append file, of which the second one needs the rows that are in no segment."""
    topic, target = StoredTopic(), Target()
    topic.fill(2)
    backup.back_up(topic.open(), target)
    (shared, only_first) = sorted(target.list(layout.TOPICS), reverse=True)
    topic.roll(1)
    backup.back_up(topic.open(), target)
    for key, wanted in ((only_first, [[1]]), (shared, [[1, 2]])):
        data = target.read(key)
        target.put(key, data[:-1])
        assert [numbers for _, numbers in backup.check(target, [1, 2])] == wanted
        target.put(key, data)
    assert backup.check(target, [1, 2]) == []
    target.put(layout.backup(2), target.read(layout.backup(1)))
    ((error, numbers),) = backup.check(target, [1, 2])
    assert "it is backup 1" in error.message
    assert numbers == [2]


@pytest.fixture(scope="module")
def saved():
    """A backup of a topic and a group."""
    topic = StoredTopic()
    topic.fill(1)
    commit(topic, 3)
    made, _ = backup.back_up(topic.open(), Target())
    assert manifest.decode(manifest.encode(made), "x") == made
    return made


def decoded_with(saved, *, topic):
    """Decode a backup of which the topic's state has these facts."""
    [one] = saved.topics
    one = msgspec.structs.replace(one, topic=msgspec.structs.replace(one.topic, **topic))
    forged = msgspec.structs.replace(saved, topics=(one,))
    return manifest.decode(manifest.encode(forged), "the manifest")


@pytest.mark.parametrize(
    "forged",
    [
        {"topic": {"name": "../t"}},
        {"topic": {"topic_id": "../1"}},
        {"topic": {"partitions": (Partition(("0",), ("0",), "0", 0, ((0, 0),), 0, 5, 0, {"0": 5}, (), ()),)}},
    ],
    ids=["topic", "topic id", "a gap"],
)
def test_a_backup_of_what_cannot_be_is_damaged(saved, forged):
    with pytest.raises(CorruptObject, match="the manifest"):
        decoded_with(saved, **forged)


@pytest.mark.parametrize("as_new", [False, True])
def test_an_interrupted_restore_is_not_continued_as_another_log(saved, as_new):
    """As a new log after it was begun as the original, or the other way round."""
    cluster = saved.cluster if as_new else "another"
    root = MemoryStore("restored")
    root.put(layout.MARKER, node.encode(Marker(cluster, "0", "i", root=True)))
    with pytest.raises(InvalidOption, match=f"it is node '0' of cluster {cluster}"):
        restore(saved, MemoryStore("empty"), root, real_environment(), as_new=as_new)
    assert list(root.list("")) == [layout.MARKER]


def test_each_number_of_a_restored_group_is_above_those_that_any_process_knows(saved):
    [group] = saved.groups
    known = msgspec.structs.replace(group.state, generation=7, barriers=8, actions=9, rewinds=10)
    changed = msgspec.structs.replace(saved, topics=(), groups=(msgspec.structs.replace(group, state=known),))
    root = MemoryStore("restored")
    restore(changed, MemoryStore("empty"), root, real_environment(), as_new=True)
    log = Log(root, real_environment())
    log.open(create=False)
    now = log.group("g").journal.refresh()
    for what in ("generation", "barriers", "actions", "rewinds"):
        assert getattr(now, what) >= getattr(known, what) + NUMBER_MARGIN, what


def test_a_damaged_manifest_does_not_prevent_later_backups_of_the_same_log_alone():
    topic, target = StoredTopic(), Target()
    topic.fill(1)
    for _ in range(2):
        backup.back_up(topic.open(), target)
    target.put(layout.backup(2), b"damaged")
    with pytest.raises(InvalidOption, match="backups of another cluster"):
        backup.back_up(StoredTopic().open(), target)
    made, copied = backup.back_up(topic.open(), target)
    assert (made.number, copied.files) == (3, 0)
    for number in manifest.numbers(target):
        target.put(layout.backup(number), b"damaged")
    with pytest.raises(CorruptObject, match=layout.backup(3)):
        backup.back_up(topic.open(), target)
