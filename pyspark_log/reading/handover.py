"""The text that queries commit beside the offset of a partition that they share: how far each of them has read it.

    {"read":{"etl-1":120,"etl-2":180},"partitions":6}

`read` has the offset that each query, by its `group.instance.id`, has committed last. The newest committer is the last
one: a query commits what it takes over before it reads it, so this is the owner. A query that comes back can tell
whether all that it has processed was committed before others continued. `partitions` is how many partitions the topic
had when the group began to read it: later ones are read from their start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.group.state import CommittedOffset

READERS_MAX = 8
"""How many queries are remembered for a partition: those that committed last."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text, parsed."""

    read: dict[str, Count] = {}
    partitions: Count | None = None

    @property
    def owner(self) -> str | None:
        """The query that has committed last, or None if none has."""
        return next(reversed(self.read), None)

    def committed(self, instance_id: str, offset: int) -> Handover:
        """Return the text after a commit of a query."""
        read = {name: at for name, at in self.read.items() if name != instance_id} | {instance_id: offset}
        return msgspec.structs.replace(self, read=dict(list(read.items())[-READERS_MAX:]))

    def text(self) -> str:
        """Return the text to commit."""
        return msgspec.json.encode(self).decode()


_decode = msgspec.json.Decoder(Handover).decode


def handover_of(committed: CommittedOffset | None) -> Handover:
    """Return what is committed beside an offset; nothing if it was not committed by a query that shares its topic."""
    if committed is None or not committed.metadata.startswith("{"):
        return Handover()
    try:
        return _decode(committed.metadata)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Handover()


def is_later(number: int, committed: Iterable[CommittedOffset]) -> bool:
    """Return whether a partition was added after the group began to read its topic.

    `committed` are the offsets of the topic. If they do not say it, the answer is yes: no rows are left out then.
    """
    found = [handover_of(each) for each in committed]
    counts = [each.partitions for each in found if each.partitions is not None]
    return number >= min(counts) if counts else bool(found)
