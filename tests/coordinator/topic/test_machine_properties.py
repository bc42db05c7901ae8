"""Whatever is committed, the topic's partitions are the rows of the accepted batches, one after another."""

from collections import defaultdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import BatchMismatch, NotEnoughReplicas
from tests.support.coordinator.topics import after, claim, commit, decide, file, started

PARTITIONS = 3
NODES = ("A", "B", "C")

chunks = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 4))
files = st.tuples(st.lists(chunks, max_size=4), st.lists(st.sampled_from(NODES), max_size=3, unique=True))


Row = tuple[str, int, int]
"""The name of the file, the position in it, the number of the row in the chunk there."""
Rows = defaultdict[int, list[Row]]
"""Rows by partition, in order."""


class Batch(msgspec.Struct):
    """One commit: which query, how far its batch number moves, the tasks' files, and the acks asked for."""

    query: str
    step: int
    files: list[tuple[list[tuple[int, int]], list[str]]]
    acks: str


batches = st.lists(
    st.builds(
        Batch,
        st.sampled_from(["one", "two"]),
        st.sampled_from([1, 1, 1, 0, -1]),
        st.lists(files, max_size=3),
        st.sampled_from(["all", "all", "1"]),
    ),
    max_size=12,
)


def rows_of(state, partition):
    """Return a partition's rows, and check that their offsets have neither gap nor overlap."""
    rows: list[Row] = []
    for chunk in state.partitions[partition].chunks:
        assert chunk.base_offset == len(rows)
        name = state.files[chunk.file].name
        rows += [(name, chunk.position, row) for row in range(chunk.rows)]
    return rows


def written(made):
    """Return the rows of a batch's files."""
    rows: Rows = defaultdict(list)
    for one in made:
        for chunk in one.chunks:
            rows[chunk.partition] += [(one.name, chunk.position, row) for row in range(chunk.rows)]
    return rows


@given(batches)
def test_the_log_is_the_rows_of_the_accepted_batches(commits):
    state, last = started(PARTITIONS, NODES), dict[str, tuple[int, int]]()
    expected: Rows = defaultdict(list)
    for number, batch in enumerate(commits):
        made = [file(rows, on, f"file-{number}-{i}") for i, (rows, on) in enumerate(batch.files)]
        added = written(made)
        count = sum(map(len, added.values()))
        before, batch_id = last.get(batch.query), last.get(batch.query, (0, 0))[0] + batch.step
        try:
            state = after(state, commit(claim(batch_id, query=batch.query), *made, acks=batch.acks))
        except BatchMismatch:
            assert before is not None
            assert batch_id < before[0] or (batch_id == before[0] and count != before[1])
            continue
        except NotEnoughReplicas:
            continue
        if count and (before is None or batch_id > before[0]):
            last[batch.query] = batch_id, count
            for partition, rows in added.items():
                expected[partition] += rows
    for partition in range(PARTITIONS):
        assert rows_of(state, partition) == expected[partition]
        assert state.partitions[partition].log_end == len(expected[partition])


@given(batches)
def test_the_high_watermark_never_goes_back_and_never_passes_a_member_of_the_isr(commits):
    state = started(PARTITIONS, NODES)
    for number, batch in enumerate(commits):
        made = [file(rows, on) for rows, on in batch.files]
        try:
            new = after(state, commit(claim(number), *made, acks=batch.acks))
        except NotEnoughReplicas:
            continue
        for old, partition in zip(state.partitions, new.partitions, strict=True):
            assert old.high_watermark <= partition.high_watermark <= partition.log_end
            assert partition.leader in partition.isr
            for member in partition.isr:
                assert partition.log_end_offsets[member] >= partition.high_watermark
        state = new


@given(batches, st.integers(0, 12))
def test_a_snapshot_taken_at_any_point_is_the_state_and_goes_on_as_it_does(commits, point):
    state = restored = started(PARTITIONS, NODES)
    for number, batch in enumerate(commits):
        if number == point:
            restored = topic.MACHINE.decode_state(topic.MACHINE.encode_state(state))
            assert restored == state
        command = commit(claim(number), *[file(rows, on) for rows, on in batch.files], acks=batch.acks)
        try:
            events = decide(state, command)
        except NotEnoughReplicas:
            continue
        for event in events:
            state, restored = topic.evolve(state, event), topic.evolve(restored, event)
    assert restored == state


@given(batches)
def test_what_is_stored_of_an_event_folds_as_the_event_itself(commits):
    state = restored = started(PARTITIONS, NODES)
    decoder = msgspec.msgpack.Decoder(list[topic.Event])
    for number, batch in enumerate(commits):
        command = commit(claim(number), *[file(rows, on) for rows, on in batch.files], acks=batch.acks)
        try:
            events = decide(state, command)
        except NotEnoughReplicas:
            continue
        for event, stored in zip(events, decoder.decode(msgspec.msgpack.encode(events)), strict=True):
            state, restored = topic.evolve(state, event), topic.evolve(restored, stored)
    assert restored == state
