"""The topics that a query shares with the other queries of its group: which partitions the next micro-batch reads.

A partition that the query gets begins at the group's committed offset. If it has none, the group has not read it: a
partition that was added since the group reads the topic, and one of a topic that came after the query began, begins at
its start, and others at `startingOffsets`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log.options.position import is_named
from pyspark_log.reading import source_offset
from pyspark_log.reading.query_member import Place, QueryMember, View, begun_with, is_later
from pyspark_log.reading.source_offset import Membership, Position, SourceOffset, TakenRewinds, TopicPartition
from pyspark_log.reading.tracking import Start, committed_start, new_starts
from pyspark_log_coordinator.group.state import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from pyspark_log.options import SourceOptions
    from pyspark_log.options.source import GroupMembership
    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import TopicHandle


class Share(msgspec.Struct, frozen=True):
    """The query's part of the partitions."""

    partitions: AbstractSet[TopicPartition]
    kept: SourceOffset
    """The part of the predecessor's end from which the query continues, and partitions that do not exist any more."""
    starts: Mapping[TopicPartition, Start]
    """Where the partitions begin that the query did not have, or that were rewound."""
    rewinds: TakenRewinds
    membership: Membership


class SharedTopics:
    """The topics, for the planner of one query."""

    def __init__(self, options: SourceOptions, membership: GroupMembership) -> None:
        self._options = options
        self.member = QueryMember(options.path, options.group_id, membership, options.storage_options)
        self._instance_id = membership.instance_id
        self._is_begun = False
        self._first: frozenset[str] | None = None
        """The ids of the topics with which the query began."""
        self._view: View | None = None
        self.is_waiting = True
        """Whether the query has no assignment yet, or the group is rebalancing so that it cannot commit."""

    def nothing(self) -> dict[str, Any]:
        """Return the end of a first batch without partitions, if the group has not assigned any yet."""
        taken = TakenRewinds(*self.member.group_id_and_rewinds())
        member = Membership(self._instance_id, NO_GENERATION)
        return source_offset.to_json(SourceOffset(group=taken, member=member))

    def look(self) -> None:
        """See what the query owns. Raises `FencedInstance`, `LogError`."""
        self._view = self.member.look() if self._is_begun else None

    def share(self, before: SourceOffset, now: Subscribed) -> Share | None:
        """Return what the batch after `before` reads, or None while the group is rebalancing.

        Commits `before`, which Spark has committed, and where new partitions begin; gives up what others get. Raises
        `FencedMember`, `FencedInstance`, `DataLoss`, `LogError`.
        """
        self.is_waiting = True
        self._subscribe(now, before)
        there = set(now.topic_partitions())
        same = before.only([key for key in before.ends() if key in there and _is_same(before, now, key[0])])
        if not self._is_begun:
            self.member.begin(before)
            self._is_begun = True
            return None
        view = self._view
        if view is None:
            return None
        self.member.check_settled(view, same)
        staying = view.staying & there
        read_on = {
            key: at
            for key, at in same.ends().items()
            if not view.is_rewound(same, key) and not self.member.is_elsewhere(view, same, key)
        }
        begun = functools.cache(lambda topic: self._begun(now.handles[topic], view.group))
        starts = self._starts(view, now, staying - read_on.keys(), before, begun)
        places = [Place(now.handles[topic].topic_id, number, at) for (topic, number), at in read_on.items()]
        for (topic, number), start in starts.items():
            places.append(Place(now.handles[topic].topic_id, number, start.at, begun(topic)))
        if not self.member.hand_over(view, places):
            return None
        self.is_waiting = False
        kept = before.only([key for key in before.ends() if key in staying or key not in there])
        return Share(staying, kept, starts, view.rewinds, view.membership)

    def check_owned(self, now: Subscribed, ended: SourceOffset, keys: Iterable[TopicPartition]) -> None:
        """Raise `FencedMember` unless the query owns the partitions `keys` of a batch, and may read their rows."""
        self._subscribe(now, ended)
        self.member.check_owned(ended, keys)
        self._is_begun = True

    def _subscribe(self, now: Subscribed, newest: SourceOffset) -> None:
        """Share the topics that there are. `newest` is the query's newest offset."""
        if self._first is None:
            has_begun = newest.member is not None and newest.member.generation != NO_GENERATION
            begun = newest.topics if has_begun else now.handles
            self._first = frozenset(each.topic_id for each in begun.values())
        self.member.subscribe({name: len(handle.partitions) for name, handle in now.handles.items()})

    def _starts(
        self,
        view: View,
        now: Subscribed,
        keys: AbstractSet[TopicPartition],
        before: SourceOffset,
        begun: Callable[[str], int | None],
    ) -> dict[TopicPartition, Start]:
        """Return where partitions begin that the query has not read up to here. `begun` is `_begun` by topic."""
        options, starts = self._options, dict[TopicPartition, Start]()
        unread = []
        for key in sorted(keys):
            topic_id, partition = now.handles[key[0]].topic_id, now.partition(*key)
            at = view.group.committed(topic_id, key[1])
            if at is not None:
                fail = options.fail_on_data_loss
                starts[key] = committed_start(partition, key, at, fail_on_data_loss=fail)
            elif key[0] in before.topics and not _is_same(before, now, key[0]):
                continue  # created again: it is reported, and read from its start
            elif is_later(key[1], begun(key[0])):
                starts[key] = Start(Position(partition.log_start, partition.leader_epoch), explicit=True)
            else:
                unread.append(key)
        if unread:
            first = [  # a later partition needs no offset, and may have one
                key
                for key in now.topic_partitions()
                if not is_later(key[1], begun(key[0])) or is_named(options.starting, *key)
            ]
            new = new_starts(now.only(first), options)
            starts |= {key: new[key] for key in unread}
        return starts

    def _begun(self, handle: TopicHandle, group: Group) -> int | None:
        """Return how many partitions a topic had when the group began to read it, None if that is not known.

        If the group has not read a topic that came after the query began: 0.
        """
        assert self._first is not None
        now = len(handle.partitions) if handle.topic_id in self._first else 0
        return begun_with(now, group.offsets.get(handle.topic_id, {}).values())


def _is_same(before: SourceOffset, now: Subscribed, topic: str) -> bool:
    """Return whether a topic exists and is the one that the query has read."""
    return topic in now.handles and before.topics[topic].topic_id == now.handles[topic].topic_id
