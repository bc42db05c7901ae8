"""Maintenance deletes no file in a log's folders that the log did not create, whatever its name."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from pyspark_log_coordinator.audit import node_recovery
from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.maintenance import descriptions, follower, topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.topic_state import FileRef, PendingDeletion
from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic

NONCE = "f" * 32
BORN = layout.born_name(0, NONCE)
SEGMENT = layout.segment_name(0, 0, NONCE)
NUMBER = "0" * 20
OF_A_TOPIC = [
    "notes.txt",
    f"append/{BORN}.bak",
    f"append/.{BORN}",
    f"append/{BORN}-1",
    f"append/{SEGMENT}",
    f"append/old/{BORN}",
    f"0/{BORN}",
    f"0/{SEGMENT}",
    f"0/{SEGMENT}.log.bak",
    f"0/{SEGMENT}.csv",
    f"0/old/{SEGMENT}.log",
    f"7/{BORN}.log",
    f"backup/{SEGMENT}.log",
    f"journal/entries/{NUMBER}.bak",
    f"journal/entries.bak/{NUMBER}",
    f"journal/entries/\u00b2{NUMBER[1:]}",
    f"journal/entries/{NUMBER[1:]}",
    f"journal/inbox/{BORN}.bak",
]
OF_THE_CLUSTER = [
    "cluster/notes.txt",
    f"cluster/entries/{NUMBER}.bak",
    "cluster/entries/4913",  # an editor tries with it whether it can write there
    "cluster/journal-nodes.bak",
    f"cluster/snapshots/{SEGMENT}",
]
OF_THE_ROOT = ["notes.txt", ".tmp/notes.txt", f".tmp/{NONCE}.bak", "topics/notes.txt", "topics/t/notes.txt"]


@pytest.fixture
def topic(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    made = StoredTopic(LocalStore(str(tmp_path / "root")), **AT_ONCE)
    made.fill(4)
    made.roll(2)
    made.fill(2)
    return made


def put(topic, *keys):
    """Put foreign files into the log's folders, with old times."""
    paths = [Path(topic.store.url) / key for key in keys]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"somebody's")
        os.utime(path, (0, 0))
    return paths


def untouched(paths):
    return [path for path in paths if path.read_bytes() == b"somebody's"] == paths


def test_maintenance_deletes_only_files_of_the_log(topic):
    for key in topic.store.list(topic.folder):
        assert layout.is_of_topic(key, topic.folder), key
    orphan = f"{topic.folder}append/{layout.born_name(0, 'e' * 32)}"
    paths = put(topic, *(f"{topic.folder}{name}" for name in OF_A_TOPIC), *OF_THE_CLUSTER, *OF_THE_ROOT)
    mine = put(topic, orphan, f".tmp/{NONCE}")
    for _ in range(4):
        topic.clock.now_ms += 1
        topic.fill(1)
        topic_roll.roll_and_merge(topic.handle)
        topic_cleanup.clean_up_topic(topic.handle)
        clean_up_cluster(topic.log)
        follower.clean_up_node(topic.log, "0")
        node_recovery.remove_strays(topic.handle, "0", node_recovery.strays(topic.handle, "0"))
    assert untouched(paths)
    assert not any(path.exists() for path in mine)
    topic.check()
    topic.log.delete_topic("t")
    topic.clock.now_ms += 1
    for _ in range(3):
        clean_up_cluster(topic.log)
    assert untouched(paths)
    left = [key for key in topic.store.list(topic.folder) if layout.is_of_topic(key, topic.folder)]
    assert sorted(left) == sorted(end_keys(topic.handle.journal))


def test_a_recovery_leaves_a_copy_of_a_topics_folder_alone(topic):
    descriptions.write_on_nodes(topic.handle)
    folder = Path(topic.store.url) / topic.folder
    copied = folder.with_name("copy of it")
    shutil.copytree(folder, copied)
    [index] = copied.glob("0/*.index")
    index.unlink()
    found = node_recovery.recover(topic.store, "t", real_environment(), everything=True)
    assert {each.topic_id for each in found} == {topic.handle.topic_id}
    assert not index.exists()


def test_a_folder_has_only_the_segments_of_its_partitions(topic):
    """Neither a rebuild, nor a recovery, nor the check of a returned node takes another file for rows of the topic."""
    folder = NodeFolder(topic.store, TopicFolder("t", topic.handle.topic_id))
    before = folder.segments
    put(topic, *(f"{topic.folder}{place}/{SEGMENT}.log" for place in ("00", "\u0660", "-1", "0/old", "backup")))
    assert NodeFolder(topic.store, folder.folder).segments == before != []


PATHS = ["../../../../outside", "/etc/passwd", "", "a", "a/b", f"{BORN}\n", f"{BORN}/..", f"append/{BORN}.log"]
"""Names that no file of a log has."""


@pytest.mark.parametrize("name", [*PATHS, "journal/entries/00000000000000000001"])
def test_files_of_other_names_are_errors_where_their_names_are_read(topic, name):
    segment = topic.handle.journal.state.partitions[0].segments[0]
    files = FileRef(name, (), 0), SequencedFile(name, (), ()), msgspec.structs.replace(segment, name=name)
    check_refused(*files, PendingDeletion(name, 0))


@pytest.mark.parametrize("name", ["..", "a/b", "", "x" * 250, "a\n"])
def test_nodes_of_other_names_are_errors_where_their_names_are_read(name):
    check_refused(Node(name, "/x", "", "i"), node.Marker("c", name, "i"), JournalNode(name, "/x", "i"))


def check_refused(*named):
    for each in named:
        decoder = msgspec.msgpack.Decoder(type(each))
        with pytest.raises(CorruptObject, match="the object"):
            decoding.decode(decoder.decode, msgspec.msgpack.encode(each), "the object")
