"""Catching up while processes are interrupted and copies are damaged, lost or replaced."""

import itertools

import msgspec
import pytest

from pyspark_log_coordinator.cluster.machine import FenceNode, UnfenceNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.sync import catch_up as copying
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.sync.replica_file import sources
from pyspark_log_coordinator.topic.machine import DeleteRecords, Holder, Suspect
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, StoreRefused, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.coordinator.watched_topic import Watched, copy, reads
from tests.support.elsewhere import PlainStore


@pytest.fixture
def topic():
    return ReplicatedTopic(Stores(Watched))


def damage(topic, name, number=0):
    """Flip a bit of the last byte of the file of this number on a node."""
    key = topic.handle.append_file(topic.handle.journal.state.file(number).name)
    store = topic.log.node_store(name)
    data = bytearray(store.read(key))
    data[-1] ^= 1
    store.put(key, bytes(data))
    return key


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


def test_two_processes_that_copy_one_file_at_once_do_no_harm(topic):
    name = topic.append()
    _, handle = topic.open()

    def first(key):
        topic.log.node_store("0").before_read = bool
        catch_up(handle, "1")

    topic.log.node_store("0").before_read = first
    copy(topic)
    assert topic.keys("1") == [f"append/{name}"]
    assert topic.partition().log_end_offsets["1"] == 1
    assert [holder.node for holder in topic.handle.journal.state.file(0).holders] == ["0", "1"]


def test_after_its_deadline_a_catch_up_begins_no_file(topic):
    for _ in range(5):
        topic.append()
    clock = topic.log.environment
    copied = copy(topic, deadline=clock.monotonic() + 3, moved=lambda _: clock.sleep(1))
    assert copied.objects == 3
    assert topic.partition().log_end_offsets["1"] == 3
    assert copy(topic, deadline=clock.monotonic()).objects == 0


def test_a_file_rolled_and_deleted_meanwhile_is_no_failure(topic):
    for _ in range(2):
        topic.append(on=("0", "2"), acks="all")
    _, handle = topic.open()

    def meanwhile(key):
        topic.log.node_store("0").before_read = bool
        topic.roll(2)
        catch_up(handle, "2")
        for name in topic.keys("0"):
            if name.startswith("append/"):
                for each in ("0", "2"):
                    topic.log.node_store(each).delete(topic.handle.append_file(name.removeprefix("append/")))

    topic.log.node_store("0").before_read = meanwhile
    copied = copy(topic)
    assert copied.failures == ()
    assert [key.partition(".")[2] for key in topic.keys("1")] == ["index", "log"]
    assert topic.partition().log_end_offsets["1"] == 2


# Sources


def test_a_damaged_copy_is_skipped_for_another(topic):
    topic.append(on=("0", "2"), acks="all")
    damage(topic, "0")
    copied = copy(topic)
    assert (copied.objects, copied.failures) == (1, ())
    assert topic.content("1") == topic.content("2")
    assert topic.content("1") != topic.content("0")


def test_a_lost_copy_is_skipped_for_another(topic):
    name = topic.append(on=("0", "2"), acks="all")
    topic.log.node_store("0").delete(topic.handle.append_file(name))
    assert copy(topic).objects == 1
    assert topic.content("1") == topic.content("2")


def test_a_source_that_lost_a_file_holds_it_no_more_once_it_was_copied_from_another(topic):
    name = topic.append(on=("0", "2"), acks="all")
    topic.log.node_store("0").delete(topic.handle.append_file(name))
    copy(topic)
    assert [holder.node for holder in topic.handle.refresh().file(0).holders] == ["2", "1"]


def test_a_source_that_does_not_answer_is_skipped_for_another_although_the_last_probe_found_it():
    topic = ReplicatedTopic(Stores(BreakableStore), replicas=(("1", "2", "0"),))
    topic.append(on=("1", "2"), acks="all")
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    copied = copy(topic, "0")
    assert (copied.objects, copied.failures) == (1, ())


def test_a_file_without_a_whole_copy_is_reported_and_the_others_go_on(topic):
    for _ in range(3):
        topic.append()
    key = damage(topic, "0", number=1)
    told = []
    copied = copy(topic, failed=told.append)
    assert copied.objects == 2
    assert list(copied.failures) == told
    (failure,) = told
    assert isinstance(failure, CorruptObject)
    assert key in failure.message
    assert topic.partition().log_end_offsets["1"] == 1
    # Once more, nothing is left but what cannot be done.
    assert copy(topic).failures[0].message == failure.message


def test_a_damaged_copy_on_the_node_itself_is_replaced(topic):
    names = [topic.append(), topic.append()]
    for name in names:
        topic.log.node_store("1").create(topic.handle.append_file(name), b"?")
    assert (copy(topic).objects, topic.content("1")) == (2, topic.content("0"))
    assert topic.partition().log_end_offsets["1"] == 2


def test_a_whole_copy_that_another_process_put_in_place_of_a_damaged_one_stays(topic):
    key = topic.handle.append_file(topic.append())
    store = topic.log.node_store("1")
    store.create(key, b"?")
    _, handle = topic.open()
    held = []

    def first(_):
        topic.log.node_store("0").before_read = bool
        catch_up(handle, "1")

    topic.log.node_store("0").before_read = first
    store.before_delete = held.append
    copy(topic)
    assert held == [], "what the journal knows by now is never away"
    assert [each.node for each in handle.refresh().file(0).holders] == ["0", "1"]
    assert topic.content("1") == topic.content("0")


def test_a_damaged_copy_stays_if_no_other_is_whole(topic):
    key = topic.handle.append_file(topic.append())
    topic.log.node_store("1").create(key, b"?")
    damage(topic, "0")
    (failure,) = copy(topic).failures
    assert isinstance(failure, CorruptObject)
    assert topic.log.node_store("1").read(key) == b"?"
    assert topic.partition().log_end_offsets["1"] == 0


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


def test_a_file_that_another_process_copied_and_that_expired_is_no_error(topic):
    key = topic.handle.append_file(topic.append(on=("0", "2"), acks="all"))
    store = topic.log.node_store("1")
    _, handle = topic.open()

    def meanwhile(_):
        topic.log.node_store("0").before_read = bool
        assert catch_up(handle, "1").objects == 1
        handle.submit(DeleteRecords(0, 1))
        store.delete_when_taken = key

    topic.log.node_store("0").before_read = meanwhile
    copied = copy(topic)
    assert (copied.objects, copied.failures, topic.keys("1")) == (0, (), [])
    assert topic.partition().isr == ALL


def test_a_copy_made_by_another_process_counts_only_if_it_is_whole(topic):
    topic.append()
    store = topic.log.node_store("1")
    topic.log.node_store("0").before_read = lambda read: store.put(read, b"another was quicker")
    (failure,) = copy(topic).failures
    assert isinstance(failure, CorruptObject)
    assert [holder.node for holder in topic.handle.refresh().file(0).holders] == ["0"]
    assert topic.partition().log_end_offsets["1"] == 0


def test_a_node_whose_disk_was_set_back_stays_suspected(topic):
    name = topic.append()
    topic.handle.submit(Suspect("0", topic.handle.journal.state.incarnations["0"]))
    store = topic.log.node_store("0")
    newest = store.read(topic.handle.append_file(name))
    store.delete(topic.handle.append_file(name))
    copy(topic, "0")
    assert topic.handle.refresh().suspects == {"0": 1}
    store.create(topic.handle.append_file(name), newest)
    copy(topic, "0")
    assert topic.handle.refresh().suspects == {}


def test_a_file_deleted_while_lost_files_are_restored_is_no_failure(topic, monkeypatch):
    lost, going = (topic.append(on=("0", "1", "2"), acks="all") for _ in range(2))
    topic.append(on=("0", "2"), acks="all")
    for name in ALL:
        topic.log.node_store(name).delete(topic.handle.append_file(lost))
    store, looks = topic.log.node_store("1"), itertools.count()
    listed = store.list

    def look(prefix, after=""):
        if next(looks) == 2:
            store.delete(topic.handle.append_file(going))
        return listed(prefix, after)

    monkeypatch.setattr(store, "list", look)
    (failure,) = copy(topic).failures
    assert lost in failure.message


def test_a_catch_up_without_a_reachable_holder_names_the_holders(topic):
    topic.append()
    topic.log.missing_nodes = {"0": StoreUnavailable("/cluster", "node", "gone")}
    (failure,) = copy(topic).failures
    assert isinstance(failure, StoreUnavailable)
    assert "none of its holders (0) is reachable; bring one back" in failure.message


def test_a_node_that_cannot_be_written_ends_the_catch_up():
    topic = ReplicatedTopic(Stores(lambda url: TroubledStore(PlainStore(url))))
    topic.append()
    store = topic.log.node_store("1")
    store.open_write = refuse
    with pytest.raises(StoreRefused, match="the disk is full"):
        copy(topic)


def refuse(key, **_):
    raise StoreRefused("/disk/1", key, "the disk is full; free some space")


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
