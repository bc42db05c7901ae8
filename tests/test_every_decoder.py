"""Every decoder of the product gives a value or a `LogError`, whatever the bytes are.

`decoders` lists them, and a module that decodes and is not reached by these fails a test here. Entries that
are whole and impossible are in `tests/coordinator/journal/test_forged_entries.py`.
"""

import contextlib
import random
import re
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.state import Group, GroupState, joined_members
from pyspark_log_coordinator.journal.snapshot import Snapshot
from pyspark_log_coordinator.journal.state_machine import Outcome
from pyspark_log_coordinator.log import partition_health
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_coordinator.membership.shared_partitions import PartitionSharing, QueryPartitions
from pyspark_log_coordinator.replication import file_holders, write_targets
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import CommitBatch, Topic
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject, LogError
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.envelope import seal
from tests.support import mutations
from tests.support.coordinator import every_command
from tests.support.coordinator.members import Topics
from tests.support.decoders import EVERY, FILES_OF_ROWS, FILLED, GROUP, HANDLE, in_inbox
from tests.support.hostile_bytes import attack, changed_inputs
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import NOON_MS
from tests.support.rings import deep

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "pyspark_log": ROOT / "pyspark_log",
    "pyspark_log_coordinator": ROOT / "coordinator" / "pyspark_log_coordinator",
    "pyspark_log_storage": ROOT / "storage" / "pyspark_log_storage",
}
DECODES = re.compile(
    r"\b(b64decode|csv\.reader|json\.loads?|(marshal|pickle)\.loads|msgspec\.convert|(json|msgpack)\.[dD]ecode(r|)|unseal"
    r"|np\.frombuffer|iter_unpack|unpack(_from|)|open_(file|stream)|read_(message|record_batch|schema))\("
)
"""The calls by which bytes become values. `open_file`, `open_stream` and `read_...` are Arrow's."""
OWN = {
    "pyspark_log.cli.repair.dump": "JSON that this process has made",
    "pyspark_log.clients.reading": "columns that `chunk` has decoded",
    "pyspark_log.reading.arrow_rows": "columns that `chunk` has decoded",
    "pyspark_log.ui.rows": "test_a_value_that_is_not_json_has_no_fields",
    "pyspark_log.writing.partitioner": "columns that this process has made",
    "pyspark_log.writing.row_bytes": "columns that this process has made",
    "pyspark_log_coordinator.audit.stored_objects": "test_a_changed_file_is_dumped_or_refused",
    "pyspark_log_coordinator.journal.state_machine": "it makes the decoder of a machine: `entry of a topic`",
}
"""Where something else is decoded, and why no decoder of `tests.support.decoders` leads there."""
EXAMPLES = 3 * settings.default.max_examples
"""A value in three or four is forged so well that it is read."""
MACHINES = {
    "topic": (HANDLE.journal, topic.MACHINE, every_command.of_topic),
    "cluster": (FILLED.log.cluster, cluster.MACHINE, every_command.of_cluster),
    "group": (GROUP, group.MACHINE, every_command.of_group),
}
"""Each with a journal, and with its commands in a state."""


def test_every_module_that_decodes_is_reached_by_what_the_product_writes():
    reached, decoding = set(), set()

    def note(frame, event, _):
        if event == "call":
            reached.add(frame.f_globals.get("__name__"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for valid, decode in EVERY.values():
            decode(valid)
    finally:
        sys.setprofile(before)
    for package, folder in PACKAGES.items():
        for file in folder.rglob("*.py"):
            if DECODES.search(file.read_text()):
                decoding.add(".".join((package, *file.relative_to(folder).with_suffix("").parts)))
    assert decoding - reached - set(OWN) == set(), "add it to tests/support/decoders.py"
    assert set(OWN) <= decoding, "it decodes nothing any more"


@pytest.mark.parametrize("kind", EVERY)
def test_whatever_is_given_is_a_value_or_an_error_of_the_log(kind):
    wrong, refused = attack(changed_inputs(kind, 0, 40))
    assert wrong == []
    assert refused > 0 or kind.startswith("metadata"), "what else there is, another program has written"


@pytest.mark.parametrize("times", [100, *map(deep, [10_000])])
@pytest.mark.parametrize("kind", FILES_OF_ROWS)
def test_a_changed_byte_of_a_file_of_rows_is_noticed_before_arrow_sees_it(kind, times):
    """Arrow may end the process."""
    valid, decode = FILES_OF_ROWS[kind]
    dice = random.Random(kind)
    for _ in range(times):
        data, place = bytearray(valid), dice.randrange(len(valid))
        data[place] ^= dice.randrange(1, 256)
        with pytest.raises(CorruptObject) as noticed:
            decode(bytes(data))
        assert "Arrow" not in str(noticed.value), place


class Measured(MemoryStore):
    """Has the longest answer to a read."""

    longest = 0

    def read(self, key, start=0, length=None):
        data = super().read(key, start, length)
        self.longest = max(self.longest, len(data))
        return data


def test_of_a_huge_object_where_a_small_one_is_expected_little_is_read():
    store = Measured()
    for key in (layout.MARKER, "a command"):
        store.put(key, bytes(2**24))
    with pytest.raises(CorruptObject):
        node.read_marker(store)
    assert topic_inbox("j/", real_environment())._command(store, "a command") is None
    assert store.longest <= 2**16


# Values of the right types that are impossible, in entries, snapshots and requests with right checksums


def forged(dice: random.Random, encoded: bytes) -> bytes:
    """Return what was stored with one or two of its values changed."""
    tree = msgspec.msgpack.decode(encoded)
    for _ in range(dice.choice((1, 1, 2))):
        tree = mutations.changed(tree, dice)
    try:
        return bytes(msgspec.msgpack.encode(tree))
    except OverflowError:  # msgpack has no such number
        return b"\xc1"


class Reader:
    """A process that has read a journal, and a bit more of it that is made up."""

    def __init__(self, kind: str, dice: random.Random) -> None:
        self.journal, self.machine, self._commands = MACHINES[kind]
        self.dice = dice
        self.past = self.journal.copy()
        for _ in range(dice.randrange(12)):
            with contextlib.suppress(LogError):
                self.past._fold(b"", self.carry_out(dice.choice(self.commands)))

    @property
    def commands(self):
        return self._commands(self.past.state, self.past.number)

    def carry_out(self, command):
        """Decide on a command, as a journal does before it writes an entry, and return the events."""
        events = self.machine.decide(self.past.state, command, NOON_MS)
        after = self.past._after(events)
        self.machine.decode_events(msgspec.msgpack.encode(events))
        self.machine.check_state(self.machine.decode_state(self.machine.encode_state(after)), self.past.number + 1)
        self.machine.answer(command, Outcome(self.past.number + 1, after, events))
        return events

    def read_forged_entry(self):
        self.read(self.carry_out(self.dice.choice(self.commands)))

    def read_forged_beginning(self):
        self.past = self.journal.begin()
        self.read(self.journal.begin().take_next())

    def read(self, events):
        """Read an entry with these events, of which some are changed."""
        written = forged(self.dice, msgspec.msgpack.encode(events))
        self.past._fold(b"", decoding.decode(self.machine.decode_events, written, "the entry"))

    def read_forged_snapshot(self):
        state = msgspec.Raw(forged(self.dice, self.machine.encode_state(self.past.state)))
        self.past.state = self.past.state_in(Snapshot(self.past.number, [], state))

    def look(self):
        """Find out what is due in a topic, where to write, and what nodes lack."""
        state = self.past.state
        if isinstance(state, Topic):
            for budget in (None, 2**40):
                roll_plan.plan(state, NOON_MS, budget)
            for acks in ("all", "1"):
                write_targets.write_targets(state, acks, list(state.incarnations)[:1])
            for each in state.incarnations:
                file_holders.missing(state, each), file_holders.held_alone(state, each)
            for each in state.partitions:
                partition_health.troubles(each, state.config, ())
                list(each.pieces_from(each.log_start))

    def lead(self):
        """Assign the work of a group, and take it, as its members do."""
        state = self.past.state
        if isinstance(state, Group) and state.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            sharing = PartitionSharing(Topics({"t": 2}))
            sharing.assign(state, joined_members(state))
            sharing.wants_rebalance(state, state.leader, 0)
            QueryPartitions(Topics({"t": 2}), keeps=False, is_member=lambda: True).take(state, state.leader)


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("read", [Reader.read_forged_beginning, Reader.read_forged_entry, Reader.read_forged_snapshot])
@settings(max_examples=EXAMPLES)
@given(dice=st.randoms(use_true_random=True))
def test_what_is_forged_is_an_error_of_the_log_when_it_is_read_or_used(kind, read, dice):
    reader = Reader(kind, dice)
    with contextlib.suppress(LogError):
        read(reader)
        for act in (reader.look, reader.lead, *(partial(reader.carry_out, each) for each in reader.commands)):
            with contextlib.suppress(LogError):
                act()


@settings(max_examples=EXAMPLES)
@given(dice=st.randoms(use_true_random=True))
def test_a_forged_batch_in_an_inbox_is_carried_out_or_an_error_of_the_log(dice):
    reader = Reader("topic", dice)
    batch = dice.choice([each for each in reader.commands if isinstance(each, CommitBatch)])
    with contextlib.suppress(LogError):
        reader.carry_out(in_inbox(seal(b"PLIB", 1, forged(dice, msgspec.msgpack.encode(batch))))[0])
