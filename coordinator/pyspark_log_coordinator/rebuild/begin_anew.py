"""Begins a log anew: its journals, with states that are known from elsewhere, beside files that are there.

A backup is restored, and a cluster is rebuilt from its nodes' folders, by these steps:

    1  copy the files that a node lacks, and check each chunk
    2  begin the journal of each topic and group, with one entry that is its whole state, and a snapshot
    3  begin the cluster's journal
    4  delete what is older in the folders of these journals

Until step 3 is done there is no log. So whoever is killed starts again, and nothing is deleted before. A journal begins
at a number above any that the former one can have reached. To a process that knows the former one it looks as if it was
trimmed in the meantime: it loads the snapshot (`journal`). Files that were born before cannot be sequenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster, GroupRecord, TopicRecord
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.state import Group
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.state_machine import BeginJournal
from pyspark_log_coordinator.log.topic_description import Description
from pyspark_log_coordinator.rebuild.known_files import NUMBER_MARGIN
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import OutcomeUnknown
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_coordinator.journal.state_machine import Machine


class KnownGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group as of an entry of its journal, as a backup has it, or as of the first one of a new journal."""

    number: Count
    record: GroupRecord
    state: Group


class States(msgspec.Struct, frozen=True):
    """The states with which the journals of a log begin, each with the number of its first entry."""

    number: int
    """That of the cluster's journal."""
    cluster: Cluster
    """Without topics and groups."""
    topics: tuple[Description, ...]
    groups: tuple[KnownGroup, ...] = ()

    def journals(self) -> list[tuple[str, Machine[Any, Any], int, Any]]:
        """Return folder, machine, first number and state of each journal. The cluster's comes last."""
        topics = {each.topic.name: _record(each) for each in self.topics}
        groups = {each.record.group_id: each.record for each in self.groups}
        state = msgspec.structs.replace(self.cluster, topics=topics, groups=groups)
        return [
            *(
                (layout.topic_journal(each.topic.name, each.topic.topic_id), topic.MACHINE, each.number, each.topic)
                for each in self.topics
            ),
            *(
                (layout.group_journal(each.record.journal_id), group.MACHINE, each.number, each.state)
                for each in self.groups
            ),
            (layout.CLUSTER_JOURNAL, cluster.MACHINE, self.number, state),
        ]


def _record(topic: Description) -> TopicRecord:
    state = topic.topic
    assignments = tuple(each.replicas for each in state.partitions)
    return TopicRecord(state.name, state.topic_id, topic.created_ms, state.config, assignments, state.schemas)


def begin_anew(states: States, place: JournalPlace, before_last: Callable[[], object] = lambda: None) -> None:
    """Begin the journals in a place, beside files that are there, or finish what an interrupted call has begun.

    `before_last` is called before that of the cluster begins, and may raise. Raises `OutcomeUnknown` if there is a
    journal that another call began; `StoreError`.
    """
    journals = [
        (Journal(place, folder, machine), number, BeginJournal(machine.encode_state(state)))
        for folder, machine, number, state in states.journals()
    ]
    for position, (journal, number, command) in enumerate(journals, 1):
        if position == len(journals):
            before_last()
        # An interrupted call for other states may have been killed between an entry and its snapshot.
        if journal.entries.newest_snapshot() > number or journal.entries.newest_after(number) > 0:
            raise OutcomeUnknown(f"{journal.entries.name(number)} would come after newer entries of another log")
        journal.begin_at(number, command)
    for journal, number, _ in journals:
        journal.objects.delete_before(number)


def group_anew(state: Group) -> Group:
    """Return a group without members, with its offsets, whose numbers are above those that any process can know."""
    return Group(
        group_id=state.group_id,
        config=state.config,
        offsets=state.offsets,
        generation=state.generation + NUMBER_MARGIN,
        barriers=state.barriers + NUMBER_MARGIN,
        actions=state.actions + NUMBER_MARGIN,
        rewinds=state.rewinds + NUMBER_MARGIN,
    )
