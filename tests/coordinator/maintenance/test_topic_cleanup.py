"""Upkeep: the same rows in other files, whoever does it, and only files go that nobody needs."""

import random
import threading

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.client.read.fetch import fetch
from pyspark_log.client.read.planning import Range, split_of
from pyspark_log_coordinator.maintenance import checkpoint_files, roll_run, topic_cleanup, topic_description, topic_roll
from pyspark_log_coordinator.segments.roll_plan import MERGE_COUNT, ROLL_CHUNKS
from pyspark_log_coordinator.topic.machine import CommitBatch, DeleteRecords, Holder, MaintainSegments, SequencedFile
from pyspark_log_storage import append_file, checkpoints, layout, schema, segment
from pyspark_log_storage.errors import CorruptObject, NodeMissing, ObjectMissing, StaleFile
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.local import LocalStore
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.stored_topic import AT_ONCE, StoredTopic, batch_of

HOUR = 3_600_000
NOW = {name.replace(".", "_"): value for name, value in AT_ONCE.items()}


@pytest.fixture
def topic():
    return StoredTopic(**NOW)


def entries(topic, number=0):
    return segment.scan(topic.store, topic.segment_key(number))


def append_with_headers(topic, values):
    """Append values in a chunk of the schema that has headers."""
    name = born_name(topic.handle.journal.number, topic.log.environment.nonce())
    writer = append_file.AppendFileWriter(topic.store.open_write(topic.handle.append_file(name), durable=True))
    rows = pa.RecordBatch.from_arrays(
        [*batch_of(values).columns, pa.nulls(len(values), schema.HEADERS)], schema=schema.RECORD_WITH_HEADERS
    )
    writer.append(0, rows, schema.RECORD_WITH_HEADERS_ID, "lz4")
    writer.close()
    holders = tuple(Holder(*each) for each in topic.handle.journal.state.incarnations.items())
    topic.handle.submit(CommitBatch(None, (SequencedFile(name, holders, tuple(writer.chunks)),)))
    topic.expected[0] += values


def damage(topic, key, position=-1):
    """Turn one bit of an object over."""
    data = bytearray(topic.store.read(key))
    data[position] ^= 1
    topic.store.put(key, bytes(data))


# What a segment holds


def test_small_chunks_become_one(topic):
    topic.fill(20)
    topic.roll()
    assert [(each.base_offset, each.rows) for each in entries(topic)] == [(0, 60)]
    topic.check()


def test_small_chunks_are_joined_up_to_a_bound(topic, monkeypatch):
    monkeypatch.setattr(roll_run, "CHUNK_BYTES", 1024 * 1024)
    dice = random.Random(1)
    for _ in range(160):
        topic.append({0: [dice.randbytes(25_000)]})
    topic.roll()
    sizes = [each.length for each in entries(topic)]
    assert len(sizes) == 4
    assert all(900_000 < size < 1_050_000 for size in sizes[:-1])
    topic.check()


def test_chunks_that_are_not_tiny_are_copied_when_rolled_and_joined_when_merged(topic):
    dice = random.Random(9)
    for _ in range(2):
        for _ in range(3):
            topic.append({0: [dice.randbytes(100_000)]})
        topic.roll()
    assert [each.rows for each in entries(topic)] == [1, 1, 1]
    topic.merge()
    assert [each.rows for each in entries(topic)] == [6]
    topic.check()


def test_large_chunks_are_copied_byte_for_byte(topic):
    dice = random.Random(2)
    for _ in range(3):
        topic.append({0: [dice.randbytes(300_000)]}, compression="zstd")
    chunks = topic.job().chunks
    before = [
        append_file.read_bytes(
            topic.store, topic.handle.append_file(topic.handle.journal.state.file(each.file).name), each.place(0), "x"
        )[1].to_pybytes()
        for each in chunks
    ]
    topic.roll()
    key = f"{topic.segment_key()}.log"
    assert [topic.store.read(key, each.position, each.length) for each in entries(topic)] == before


def test_small_chunks_around_a_large_one_stay_in_order(topic):
    topic.fill(3)
    topic.append({0: [random.Random(3).randbytes(300_000)]})
    topic.fill(3)
    topic.roll()
    assert [each.rows for each in entries(topic)] == [9, 1, 9]
    topic.check()


def test_chunks_of_two_leader_epochs_are_not_joined(topic):
    topic.fill(4)
    job = topic.job()
    later = [msgspec.structs.replace(each, leader_epoch=1) for each in job.chunks[2:]]
    job = msgspec.structs.replace(job, chunks=(*job.chunks[:2], *later), epoch_starts=((0, 0), (1, 6)))
    topic.handle.submit(MaintainSegments((topic.carry_out(job),)))
    assert [(each.leader_epoch, each.rows) for each in entries(topic)] == [(0, 6), (1, 6)]
    topic.check()


def test_chunks_of_two_schemas_are_not_joined(topic):
    topic.fill(2)
    append_with_headers(topic, [b"x", b"y"])
    topic.fill(2)
    topic.roll()
    assert [(each.schema_id, each.rows) for each in entries(topic)] == [
        (schema.RECORD_ID, 6),
        (schema.RECORD_WITH_HEADERS_ID, 2),
        (schema.RECORD_ID, 6),
    ]
    topic.check()


def test_merging_gives_the_same_rows(topic):
    for _ in range(5):
        topic.fill(3)
        topic.roll()
    topic.merge(4)
    assert [(each.base_offset, each.level) for each in topic.handle.journal.state.partitions[0].segments] == [
        (0, 2),
        (36, 1),
    ]
    topic.check()


def test_what_the_journal_says_of_a_segment_is_so(topic):
    topic.append({0: [b"a", b"b"]}, times_ms=[50, 10])
    topic.append({0: [b"c"]}, times_ms=[30])
    topic.roll()
    [ref] = topic.handle.journal.state.partitions[0].segments
    assert (ref.base_offset, ref.end_offset, ref.chunks, ref.level) == (0, 3, 1, 1)
    assert (ref.min_timestamp, ref.max_timestamp, ref.timestamp_reached) == (10_000, 50_000, 50_000)
    assert ref.log_bytes == topic.store.size(f"{topic.segment_key()}.log")


def test_rows_before_the_log_start_do_no_harm(topic):
    topic.fill(4)
    topic.handle.submit(DeleteRecords(0, 4))
    topic.roll()
    topic.fill(2)
    topic.roll()
    topic.merge()
    topic.check()
    assert topic.read()[0] == b"row 4 of 0"


# Damage


def test_a_damaged_chunk_fails_the_job_with_an_error_that_names_it_and_leaves_nothing(topic):
    topic.fill(3)
    file = topic.handle.journal.state.files[1].name
    damage(topic, topic.handle.append_file(file))
    with pytest.raises(CorruptObject, match=f"topic 't', partition 0, offset 3.*{file}"):
        topic.carry_out(topic.job())
    assert topic.keys("0/") == []


def test_a_damaged_segment_fails_a_merge_with_an_error_that_names_it_and_leaves_nothing(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    damage(topic, f"{topic.segment_key(1)}.log")
    before = topic.keys("0/")
    with pytest.raises(CorruptObject, match=topic.segment_key(1)):
        topic.carry_out(topic.merge_job())
    assert topic.keys("0/") == before


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_was_cut_between_two_chunks_fails_a_merge(topic, number):
    for _ in range(2):
        topic.fill(1)
        topic.append({0: [random.Random(4).randbytes(300_000)]})
        topic.roll()
    key = topic.segment_key(number)
    cut = segment.scan(topic.store, key)[-1].position
    topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:cut])
    with pytest.raises(CorruptObject, match=key.rsplit("/", 1)[1]):
        topic.carry_out(topic.merge_job())


def test_an_index_that_is_damaged_does_not_stop_a_merge(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    damage(topic, f"{topic.segment_key(1)}.index")
    topic.merge()
    topic.check()


def test_a_disk_that_is_not_the_one_that_was_mounted_fails_the_job(topic):
    topic.fill(3)
    job = topic.job()
    topic.store.delete(layout.KEY)
    with pytest.raises(NodeMissing):
        topic.carry_out(job)


# Maintenance by hand


def test_maintenance_goes_on_until_nothing_is_left_to_do(topic):
    for _ in range(MERGE_COUNT):
        topic.fill(ROLL_CHUNKS)
        topic_roll.roll_and_merge(topic.handle)
    [ref] = topic.handle.refresh().partitions[0].segments
    assert ref.level == 2
    topic.check()


def test_maintenance_says_what_it_did_and_tells_its_progress(topic):
    topic.fill(ROLL_CHUNKS)
    size, told = topic.job().bytes, []
    done = topic_roll.roll_and_merge(topic.handle, told.append)
    assert done == {"segments": 1, "bytes": size}
    assert told == [size]
    assert topic_roll.roll_and_merge(topic.handle) == {
        "segments": 0,
        "bytes": 0,
    }


class MeanwhileStore(MemoryStore):
    """Lets another process act before the next large object is begun."""

    def __init__(self):
        super().__init__("the url")
        self.meanwhile = None

    def open_write(self, key, *, durable=True, replace=False):
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return super().open_write(key, durable=durable, replace=replace)


def test_what_another_process_has_done_and_cleaned_up_meanwhile_is_no_error():
    store = MeanwhileStore()
    topic = StoredTopic(store, partitions=2, **NOW)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1))
    other = topic.open().topic("t")

    def act():
        topic_roll.roll_and_merge(other)
        topic_cleanup.clean_up_topic(other)

    store.meanwhile = act
    assert topic_roll.roll_and_merge(topic.handle) == {
        "segments": 0,
        "bytes": 0,
    }
    topic.check()


def test_a_file_that_is_missing_and_still_needed_is_an_error(topic):
    topic.fill(ROLL_CHUNKS)
    topic.store.delete(topic.handle.append_file(topic.handle.journal.state.files[5].name))
    with pytest.raises(ObjectMissing):
        topic_roll.roll_and_merge(topic.handle)


def test_what_cannot_be_done_is_told_and_the_other_partitions_go_on():
    topic = StoredTopic(partitions=4, **NOW)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1, 2, 3))
    topic.roll(2, partition=3)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1, 2, 3))
    file = topic.handle.append_file(topic.handle.journal.state.files[0].name)
    whole = topic.store.read(file)
    damage(topic, file, topic.handle.journal.state.partitions[0].chunks[0].position + 70)
    told = []
    done = topic_roll.roll_and_merge(topic.handle, failed=lambda *each: told.append(each))
    [(job, error)] = told
    assert (job.partition, isinstance(error, CorruptObject)) == (0, True)
    assert file in error.message
    assert done["segments"] >= 3
    state = topic.handle.refresh()
    assert [len(each.chunks) for each in state.partitions] == [2 * ROLL_CHUNKS, 0, 0, 0]
    # Nothing of what is damaged was dropped: once it is mended all is there.
    topic_cleanup.clean_up_topic(topic.handle)
    topic.store.put(file, whole)
    assert topic_roll.roll_and_merge(topic.handle)["segments"] > 0
    topic.check()


def test_without_somebody_to_tell_what_cannot_be_done_is_an_error(topic):
    topic.fill(ROLL_CHUNKS)
    damage(topic, topic.handle.append_file(topic.handle.journal.state.files[3].name))
    with pytest.raises(CorruptObject):
        topic_roll.roll_and_merge(topic.handle)


def test_a_damaged_segment_leaves_its_partition_unmerged_and_the_others_go_on():
    topic = StoredTopic(partitions=2, **NOW)
    for _ in range(MERGE_COUNT):
        topic.fill(1, partitions=(0, 1))
        for partition in (0, 1):
            topic.roll(partition=partition)
    damage(topic, f"{topic.segment_key(3, partition=0)}.log")
    told = []
    topic_roll.roll_and_merge(topic.handle, failed=lambda *each: told.append(each))
    assert [job.partition for job, _ in told] == [0]
    assert [len(each.segments) for each in topic.handle.refresh().partitions] == [MERGE_COUNT, 1]


def test_many_maintainers_and_a_writer_at_once_leave_the_same_rows(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    topic = StoredTopic(store, partitions=2, retention_ms="-1", file_delete_delay_ms="0")
    stop, errors = threading.Event(), []

    def maintain():
        log = topic.open()
        handle = log.topic("t")
        try:
            while not stop.is_set():
                topic_roll.roll_and_merge(handle)
                topic_cleanup.clean_up_topic(handle)
        except Exception as error:  # noqa: BLE001 -- told by the test
            errors.append(error)

    threads = [threading.Thread(target=maintain) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        topic.fill(250, partitions=(0, 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    topic.check()
    assert all(len(each.segments) >= 1 for each in topic.handle.refresh().partitions)
    assert StoredTopic.read(topic, 1, handle=topic.open().topic("t")) == topic.expected[1]


# What is removed


def test_released_files_stay_for_the_delay_and_then_go():
    topic = StoredTopic(retention_ms="-1", file_delete_delay_ms="1000")
    topic.fill(2)
    topic.clock.now_ms = 5000
    topic.roll()
    released = topic.keys("append/")
    topic.clock.now_ms = 5999
    assert topic_cleanup.delete_pending(topic.handle, 5999) == []
    assert topic.keys("append/") == released
    assert topic_cleanup.delete_pending(topic.handle, 6000) == [topic.folder + key for key in released]
    assert topic.keys("append/") == []
    assert len(topic.handle.journal.state.released) == 0
    topic.check()


def test_a_replaced_segment_goes_with_its_index(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    old = topic.keys("0/")
    topic.merge()
    topic_cleanup.delete_pending(topic.handle, 0)
    assert len(old) == 4
    assert set(topic.keys("0/")).isdisjoint(old)
    topic.check()


def test_a_file_that_was_released_after_one_by_a_clock_ahead_waits_for_it():
    topic = StoredTopic(retention_ms="-1", file_delete_delay_ms="1000")
    topic.fill(2)
    topic.clock.now_ms = 9000
    topic.roll(1)
    topic.clock.now_ms = 100
    topic.roll(1)
    assert topic_cleanup.delete_pending(topic.handle, 2000) == []
    assert len(topic.handle.refresh().released) == 2
    assert len(topic_cleanup.delete_pending(topic.handle, 10_000)) == 2
    assert len(topic.handle.refresh().released) == 0


def test_a_removal_cut_short_is_done_again(topic):
    topic.fill(3)
    topic.roll()
    topic.store.delete(topic.folder + topic.keys("append/")[0])
    topic_cleanup.delete_pending(topic.handle, 0)
    assert topic.keys("append/") == []
    assert len(topic.handle.journal.state.released) == 0


def test_a_clean_up_refreshes_once_before_its_entry_and_the_journal_for_its_own_clean_up(topic, monkeypatch):
    topic.fill(ROLL_CHUNKS)
    topic.roll()
    for _ in range(3):
        topic_cleanup.clean_up_topic(topic.handle)
    journal, refreshed = topic.handle.journal, []
    refresh = journal.refresh
    monkeypatch.setattr(journal, "refresh", lambda: refreshed.append(journal.number) or refresh())
    topic_cleanup.clean_up_topic(topic.handle)
    assert len(refreshed) <= 4, "at its begin, by the entry that raises the floor, by trim and by mend"


def test_cleaning_up_twice_is_cleaning_up_once(topic):
    topic.fill(ROLL_CHUNKS)
    topic.roll()
    for _ in range(3):
        topic_cleanup.clean_up_topic(topic.handle)
    before = topic.keys("append/"), topic.keys("0/")
    assert topic_cleanup.clean_up_topic(topic.handle).deleted == 0
    assert (topic.keys("append/"), topic.keys("0/")) == before
    topic.check()


def test_cleaning_up_applies_retention():
    topic = StoredTopic(retention_ms="1000", segment_ms="1000", file_delete_delay_ms="0")
    topic.append({0: [b"old"]}, times_ms=[1])
    topic.roll()
    topic.append({0: [b"new"]}, times_ms=[5000])
    topic.clock.now_ms = 5000
    done = topic_cleanup.clean_up_topic(topic.handle)
    assert [(each.partition, each.log_start, each.rows) for each in done.expired] == [(0, 1, 1)]
    assert topic.read() == [b"new"]
    assert topic.keys("0/") == ["0/leader-epoch-checkpoint"]


# Orphans


def test_a_file_of_a_dead_task_goes_when_the_floor_has_passed_it():
    topic = StoredTopic(retention_ms="-1", orphan_retention_ms=str(HOUR))
    topic.fill(1)
    topic.stage({0: [b"never sequenced"]})
    topic.fill(1)
    seen = []
    for hour in range(4):
        topic.clock.now_ms = hour * HOUR
        topic_cleanup.clean_up_topic(topic.handle)
        seen.append(len(topic.keys("append/")))
    assert seen == [3, 2, 2, 2]
    topic.check()


def test_orphans_are_neither_named_nor_released_nor_young(topic):
    topic.fill(3)
    topic.roll(2)
    lost = topic.stage({0: [b"lost"]}).name
    stale = topic.carry_out(topic.job()).segment.name
    topic.fill(1)
    assert topic_cleanup.orphans(topic.store, topic.handle) == []
    raise_floor(topic)
    young = topic.stage({0: [b"young"]})
    assert topic_cleanup.orphans(topic.store, topic.handle) == [
        f"{topic.folder}append/{lost}",
        f"{topic.folder}0/{stale}.index",
        f"{topic.folder}0/{stale}.log",
    ]
    topic.handle.submit(CommitBatch(None, (young,)))
    topic.expected[0].append(b"young")
    topic.check()


def raise_floor(topic):
    """Raise the orphan floor to the newest entry."""
    for _ in range(2):
        topic.handle.submit(topic_cleanup.RaiseOrphanFloor(topic.handle.journal.number))


def test_what_went_as_an_orphan_is_never_sequenced_afterwards(topic):
    topic.fill(1)
    late = topic.stage({0: [b"late"]})
    late_swap = topic.carry_out(topic.job())
    topic.fill(1)
    for _ in range(2):
        topic_cleanup.clean_up_topic(topic.handle)
    assert late.name not in "".join(topic.keys())
    with pytest.raises(StaleFile):
        topic.handle.submit(CommitBatch(None, (late,)))
    assert topic.handle.submit(MaintainSegments((late_swap,))).events == []
    topic.check()


@pytest.mark.parametrize("name", [".nfs0001", "notes.txt", "a-b-c", "leader-epoch-checkpoint", "0-1-2"])
def test_files_that_are_not_ours_are_left_alone(topic, name):
    topic.fill(2)
    for folder in ("append", "0", "journal/entries", "journal/manifests", "journal/snapshots"):
        topic.store.create(f"{topic.folder}{folder}/{name}", b"mine")
    raise_floor(topic)
    topic_cleanup.clean_up_topic(topic.handle)
    left = topic.keys()
    assert len([key for key in left if key.endswith(f"/{name}")]) == 5
    topic.check()


def test_in_passing_all_files_are_listed_only_when_the_floor_has_risen():
    class ListingStore(MemoryStore):
        def list(self, prefix, after=""):
            listed.append(prefix)
            return super().list(prefix, after)

    listed = []
    topic = StoredTopic(ListingStore(), retention_ms="-1", orphan_retention_ms=str(HOUR))
    topic.fill(1)
    files, seen = f"{topic.folder}append/", []
    for minutes in (0, 1, 59, 60, 61):
        topic.clock.now_ms = minutes * 60_000
        listed.clear()
        topic_cleanup.clean_up_topic(topic.handle, thorough=False)
        seen.append(files in listed)
    assert seen == [False, False, False, True, False]


# Checkpoints


def test_the_checkpoints_say_what_the_journal_says(topic):
    topic.fill(4)
    topic.roll(3)
    topic_cleanup.clean_up_topic(topic.handle)
    read = topic.store.read
    assert checkpoints.decode_offsets(read(topic.folder + checkpoints.RECOVERY_POINT), "x") == {("t", 0): 9}
    assert checkpoints.decode_offsets(read(topic.folder + checkpoints.REPLICATION), "x") == {("t", 0): 12}
    assert checkpoints.decode_epochs(read(f"{topic.folder}0/{checkpoints.LEADER_EPOCH}"), "x") == ((0, 0),)


def test_checkpoints_that_have_not_changed_are_not_written_again():
    class PuttingStore(MemoryStore):
        def put(self, key, data):
            put.append(key.rsplit("/", 1)[1])
            super().put(key, data)

    put = []
    topic = StoredTopic(PuttingStore())
    topic.fill(1)
    put.clear()
    checkpoint_files.write_on_nodes(topic.handle)
    kafkas = [checkpoints.RECOVERY_POINT, checkpoints.REPLICATION, checkpoints.LEADER_EPOCH]
    assert sorted(put) == sorted([*kafkas, topic_description.NAME])
    put.clear()
    checkpoint_files.write_on_nodes(topic.handle)
    assert put == []
    topic.fill(1)
    checkpoint_files.write_on_nodes(topic.handle)
    assert put == [checkpoints.REPLICATION, topic_description.NAME]


# Readers


def find_again(topic, asked):
    def find(offset):
        asked.append(offset)
        handle = topic.open().topic("t")
        return split_of(topic.log, handle, Range("t", 0, offset, handle.journal.state.partitions[0].high_watermark))

    return find


def test_a_reader_that_planned_before_is_served_after_the_files_went(topic):
    topic.fill(20)
    split, asked = split_of(topic.log, topic.handle, Range("t", 0, 0, 60)), []
    topic.roll()
    topic_cleanup.delete_pending(topic.handle, 0)
    batches = [each for _, each in fetch(topic.log.store_at, split, find_again(topic, asked))]
    rows = [row for each in batches for row in each["value"].to_pylist()]
    assert rows == topic.expected[0]
    assert asked == [0]


def test_a_reader_whose_files_go_while_it_reads_gets_each_row_once(topic):
    dice = random.Random(5)
    for _ in range(40):  # more than a reader joins before it gives the first away
        topic.append({0: [dice.randbytes(600_000)]})
    split, asked, rows = split_of(topic.log, topic.handle, Range("t", 0, 0, 40)), [], []
    for offset, each in fetch(topic.log.store_at, split, find_again(topic, asked)):
        assert offset == len(rows)
        rows += each["value"].to_pylist()
        if not topic.handle.journal.state.partitions[0].segments:
            topic.roll()
            topic_cleanup.delete_pending(topic.handle, 0)
    assert rows == topic.expected[0]
    assert len(asked) == 1
    assert asked[0] > 0


def test_a_reader_that_is_not_told_where_the_rows_are_now_says_which_file_is_missing(topic):
    topic.fill(3)
    split = split_of(topic.log, topic.handle, Range("t", 0, 0, 9))
    topic.roll()
    [first, *_] = topic_cleanup.delete_pending(topic.handle, 0)
    with pytest.raises(ObjectMissing, match=first):
        list(fetch(topic.log.store_at, split))


def test_a_segment_that_was_cut_between_two_chunks_and_lost_its_index_is_an_error_of_the_reader(topic):
    topic.fill(1)
    topic.append({0: [random.Random(6).randbytes(300_000)]})
    topic.roll()
    key = topic.segment_key()
    cut = segment.scan(topic.store, key)[-1].position
    topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:cut])
    topic.store.delete(f"{key}.index")
    with pytest.raises(CorruptObject, match="topic 't', partition 0, offset 3"):
        topic.read()
