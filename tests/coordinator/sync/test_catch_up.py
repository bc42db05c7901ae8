"""Catching up: a replica gets what it lacks whatever fails meanwhile, and the journal learns of it."""

import msgspec
import pytest

from pyspark_log_coordinator.cluster.nodes import FenceNode, UnfenceNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.sync import catch_up as copying
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.sync.replica_file import missing, sources
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.memory_store import MemoryStore


class Watched(MemoryStore):
    """Records reads of append files, and may call something else before the marker is read."""

    def __init__(self, url):
        super().__init__(url)
        self.reads = []
        self.before_marker = bool

    def read(self, key, start=0, length=None):
        if key == layout.MARKER:
            self.before_marker(key)
        if "/append/" in key:
            self.reads.append(key)
        return super().read(key, start, length)


def copy(topic, name="1", **how):
    return catch_up(topic.handle, name, **how)


def reads(topic, name):
    """Return which files were read from a node since the last call."""
    store = topic.log.node_store(name)
    found = sorted({key.rsplit("/", 1)[1] for key in store.reads})
    store.reads.clear()
    return found


@pytest.fixture
def topic():
    return ReplicatedTopic(Stores(Watched))


def test_a_node_gets_the_files_that_it_lacks_and_is_their_holder(topic):
    names = [topic.append() for _ in range(3)]
    assert [piece.number for piece in missing(topic.handle.state, "1")] == [0, 1, 2]
    assert topic.partition().log_end_offsets == {"0": 3, "1": 0, "2": 0}
    copied = copy(topic)
    assert (copied.objects, copied.failures) == (3, ())
    assert copied.bytes == sum(map(len, topic.content("0").values()))
    assert topic.content("1") == topic.content("0")
    assert topic.partition().log_end_offsets == {"0": 3, "1": 3, "2": 0}
    assert missing(topic.handle.state, "1") == []
    assert reads(topic, "0") == sorted(names)
    assert topic.partition().high_watermark == 0
    copy(topic, "2")
    assert topic.partition().high_watermark == 3


def test_a_disk_from_a_backup_gets_back_its_files_before_it_is_in_sync_again(topic):
    restored = topic.append(on=("0", "1", "2"), acks="all")
    key = topic.handle.append_file(restored)
    topic.append(on=("0", "2"), acks="all")
    topic.log.node_store("1").delete(key)
    assert copy(topic).objects == 2
    assert topic.content("1") == topic.content("0")
    assert topic.partition().isr == ("0", "1", "2")


def test_a_lost_file_whose_only_other_holder_is_away_keeps_the_node_out_of_sync_until_that_is_back():
    topic = ReplicatedTopic(Stores(BreakableStore), (("1", "2"), ("0", "2")))
    lost = topic.append({0: [b"a"]}, on=("1", "2"), acks="all")
    for fenced in (True, False):
        node_admin.set_fenced(topic.log, "2", fenced=fenced)
    later = topic.append({0: [b"b"]}, on=("1",))
    other = topic.append({1: [b"c"]}, on=("0",))
    topic.log.node_store("2").delete(topic.handle.append_file(lost))
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    copied = copy(topic, "2")
    assert (copied.objects, [type(each) for each in copied.failures]) == (1, [StoreUnavailable] * 2)
    assert copy(topic, "2").objects == 0
    assert topic.keys("2") == [f"append/{other}"]
    assert [topic.partition(number).isr for number in (0, 1)] == [("1",), ("0",)]
    topic.stores.at["/disk/1"].broken = None
    assert copy(topic, "2").objects == 3
    assert topic.keys("2") == sorted(f"append/{name}" for name in (lost, later, other))
    assert [topic.partition(number).isr for number in (0, 1)] == [("1", "2"), ("0", "2")]


def test_a_disk_from_a_backup_stays_out_of_sync_when_the_deadline_leaves_files_that_it_has_lost(topic):
    lost = [topic.append(on=("0", "1", "2"), acks="all") for _ in range(2)]
    for fenced in (True, False):
        node_admin.set_fenced(topic.log, "1", fenced=fenced)
    for name in lost:
        topic.log.node_store("1").delete(topic.handle.append_file(name))
    clock = topic.log.environment
    assert copy(topic, deadline=clock.monotonic() + 1, moved=lambda _: clock.sleep(1)).objects == 1
    assert topic.partition().isr == ("0", "2")
    assert copy(topic).objects == 1
    assert topic.partition().isr == ("0", "1", "2")


def test_a_lost_file_that_keeps_its_partition_in_sync_keeps_no_other_one_behind():
    topic = ReplicatedTopic(Stores(BreakableStore), (("1", "2"), ("0", "2"), ("1", "0")))
    lost = topic.append({0: [b"a"], 2: [b"a"]}, on=("1", "2"), acks="all")
    other = topic.append({1: [b"b"]}, on=("0",), acks="all")
    topic.log.node_store("2").delete(topic.handle.append_file(lost))
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    topic.handle.submit(Suspect("1", topic.handle.journal.state.incarnations["1"]))
    copied = copy(topic, "2")
    assert (copied.objects, len(copied.failures)) == (1, 1)
    assert topic.keys("2") == [f"append/{other}"]
    assert [topic.partition(number).isr for number in (0, 1)] == [("1", "2"), ("0", "2")]
    assert [each.node for each in topic.handle.journal.state.file(0).holders] == ["1", "2"]


def test_a_suspected_member_that_cannot_get_its_lost_file_back_counts_for_nothing_else_and_stays_suspected():
    topic = ReplicatedTopic(replicas=(("1", "0"), ("0", "1")))
    lost = topic.append({0: [b"a"]}, on=("1",), acks="1")
    other = topic.append({1: [b"b"]}, on=("0",), acks="1")
    topic.log.node_store("1").delete(topic.handle.append_file(lost))
    topic.handle.submit(Suspect("1", topic.handle.journal.state.incarnations["1"]))
    assert (copy(topic, "1").objects, topic.keys("1")) == (1, [f"append/{other}"])
    assert [each.node for each in topic.handle.journal.state.file(1).holders] == ["0"]
    assert set(topic.handle.refresh().suspects) == {"1"}


def test_a_node_gets_only_the_partitions_of_which_it_is_a_replica():
    topic = ReplicatedTopic(replicas=(("0", "1"), ("0", "2")))
    first = topic.append({0: [b"a"]})
    second = topic.append({1: [b"b"]})
    both = topic.append({0: [b"c"], 1: [b"d"]})
    copy(topic, "1")
    copy(topic, "2")
    assert topic.keys("1") == sorted([f"append/{first}", f"append/{both}"])
    assert topic.keys("2") == sorted([f"append/{second}", f"append/{both}"])
    assert [topic.partition(number).log_end_offsets for number in (0, 1)] == [{"0": 2, "1": 2}, {"0": 2, "2": 2}]


def test_a_process_that_has_not_read_of_a_new_disk_does_not_bring_back_the_former_one(topic):
    topic.append(on=("0", "1", "2"), acks="all")
    log, handle = topic.open()
    renewed, _ = node_admin.renew(topic.log, "1", "/disk/new")
    copy(topic)
    topic.append(on=("1",), acks="all")  # now only the new disk has every row
    handle.refresh()
    catch_up(handle, "1")
    assert log.node("1") == renewed
    assert topic.handle.refresh().incarnations["1"] == renewed.incarnation
    assert (topic.partition().leader, topic.partition().isr) == ("1", ("1",))
    assert topic.partition().log_end_offsets["1"] == 2


# Telling the journal


@pytest.mark.parametrize(
    ("bound", "seconds", "entries"),
    [("", 0, 1), ("OBJECTS", 0, 3), ("BYTES", 0, 3), ("", copying.SUBMIT_SECONDS / 2, 3)],
)
def test_files_are_submitted_in_few_entries_but_in_time(topic, monkeypatch, bound, seconds, entries):
    for _ in range(5):
        topic.append()
    (size,) = {piece.bytes for piece in missing(topic.handle.state, "1")}
    if bound:
        monkeypatch.setattr(copying, f"SUBMIT_{bound}", 2 if bound == "OBJECTS" else 2 * size)
    number = topic.handle.journal.number
    copy(topic, moved=lambda _: topic.log.environment.sleep(seconds))
    assert topic.handle.journal.number == number + entries


def test_copies_on_a_disk_that_failed_are_not_submitted(topic):
    topic.append()
    marker = topic.log.node_store("1").read(layout.MARKER)
    with pytest.raises(NodeMissing):
        copy(topic, moved=lambda _: topic.log.node_store("1").delete(layout.MARKER))
    assert topic.partition().log_end_offsets["1"] == 0
    before = topic.keys("1")
    with pytest.raises(NodeMissing):  # this time the marker is missing before anything is written
        copy(topic, "1")
    assert topic.keys("1") == before
    topic.log.node_store("1").create(layout.MARKER, marker)
    assert copy(topic).objects == 1


# Interruptions


def interrupt_after(objects):
    """Return a callback that ends the process in the object after this number of objects."""
    passed = []

    def moved(count):
        passed.append(count)
        if len(passed) > objects:
            raise KeyboardInterrupt

    return moved


def test_an_interrupted_catch_up_goes_on_where_it_stopped(topic, monkeypatch):
    monkeypatch.setattr(copying, "SUBMIT_OBJECTS", 2)
    names = [topic.append() for _ in range(5)]
    with pytest.raises(KeyboardInterrupt):
        copy(topic, moved=interrupt_after(3))
    # Two were copied and told, one was copied.
    assert topic.partition().log_end_offsets["1"] == 2
    assert topic.keys("1") == [f"append/{name}" for name in sorted(names[:3])]
    reads(topic, "0")
    assert copy(topic).objects == 3
    assert reads(topic, "0") == sorted(names[3:])
    assert topic.content("1") == topic.content("0")


# Sources


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_damaged_or_lost_copy_is_skipped_for_another_and_replaced(topic, how):
    name = topic.append(on=("0", "2"), acks="all")
    if how == "damaged":
        topic.damage("0", topic.handle.append_file(name))
    else:
        topic.log.node_store("0").delete(topic.handle.append_file(name))
    number = topic.handle.journal.number
    copied = copy(topic)
    assert (copied.objects, copied.failures) == (1, ())
    assert topic.content("1") == topic.content("2") == topic.content("0")
    topic.handle.refresh()
    assert topic.handle.journal.number == number + 1


def test_a_damaged_copy_on_the_node_itself_is_replaced(topic):
    names = [topic.append(), topic.append()]
    for name in names:
        topic.log.node_store("1").create(topic.handle.append_file(name), b"?")
    assert (copy(topic).objects, topic.content("1")) == (2, topic.content("0"))
    assert topic.partition().log_end_offsets["1"] == 2


def test_what_was_copied_while_the_disk_was_not_mounted_is_not_counted(topic):
    key = topic.handle.append_file(topic.append())
    store = topic.log.node_store("1")
    below = iter([key])

    def mount(read):
        if read == layout.MARKER and store.size(layout.MARKER) and key in store.list(""):
            for written in below:
                store.delete(written)  # what lay below the mount point is hidden by the disk

    store.before_marker = mount
    assert copy(topic).objects == 1
    assert next(below, None) is None
    assert topic.content("1") == topic.content("0")


def test_the_nearest_holder_comes_first_and_fenced_ones_last():
    stores = Stores()
    log = stores.log()
    for number, rack in ((1, "east"), (2, "west"), (3, "east"), (4, "west")):
        node_admin.join(log, f"/disk/{number}", rack=rack)
    handle = log.create_topic("t", 1, replicas=[list("01234")])
    state = handle.journal.state
    holders = tuple(Holder(name, state.incarnations[name]) for name in "42310")
    assert sources(handle, holders, "1") == ["3", "0", "2", "4"]
    assert sources(handle, holders, "2") == ["4", "0", "1", "3"]
    assert sources(handle, holders, "0") == ["1", "2", "3", "4"]
    log.cluster.submit(FenceNode("3"))
    assert sources(handle, holders, "1") == ["0", "2", "4", "3"]
    log.cluster.submit(UnfenceNode("3"))
    log.missing_nodes = {"3": StoreUnavailable("", "", "gone")}
    assert sources(handle, holders, "1") == ["0", "2", "4"]
    other = tuple(msgspec.structs.replace(each, incarnation="former") for each in holders)
    assert sources(handle, other, "1") == []
