"""The plan of a backfill: the ranges into which its frame is split. It is made once, and never changes.

    <checkpoint>/backfill    envelope b"PLBF", version 1, body: JSON

A range is one batch of the topic's journal, whose number is that of the range. So the journal tells which ranges are
written, and the plan tells which remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from pyspark_log_storage import decoding
from pyspark_log_storage.errors import InvalidInput, ObjectMissing
from pyspark_log_storage.objects.envelope import seal, unseal

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

KEY = "backfill"
_MAGIC = b"PLBF"
_VERSION = 1


class BackfillPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which rows are in a range and where they are written, and the ranges."""

    backfill_id: str
    topic: str
    topic_id: str
    order_by: tuple[str, ...]
    rows_per_range: Annotated[int, msgspec.Meta(ge=1)]
    columns: str
    """Names and types of the frame's columns, as Spark prints them."""
    key_column: str | None = None
    bounds: tuple[str, ...] = ()
    """The first values of all ranges but the first, as text (`ordering`)."""

    def check(self, now: BackfillPlan, place: str) -> None:
        """Raise `InvalidInput` unless the plan at `place` is that of a backfill which would begin as `now`."""
        for name in self.__struct_fields__:
            mine, given = getattr(self, name), getattr(now, name)
            if mine != given and name != "bounds":
                raise InvalidInput(
                    f"the backfill in {place} began with {name} {mine!r:.200}, and now it is {given!r:.200}; continue "
                    "with the same frame, topic and settings, or begin another one with an id and a checkpoint of its "
                    "own"
                )


_decode = msgspec.json.Decoder(BackfillPlan).decode


def encode(plan: BackfillPlan) -> bytes:
    """Return the stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.json.encode(plan))


def decode(data: bytes, name: str) -> BackfillPlan:
    """Return the plan in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return decoding.decode(_decode, unseal(_MAGIC, _VERSION, data, name), name)


def read(store: Store) -> BackfillPlan | None:
    """Return the plan of a checkpoint, or None if it has none. Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
    try:
        return decode(store.read(KEY), f"{store.url}/{KEY}")
    except ObjectMissing:
        return None


def create(store: Store, plan: BackfillPlan) -> BackfillPlan:
    """Store a plan, and return it, or the plan that another process has stored meanwhile. Raises `StoreError`."""
    stored = plan if store.create(KEY, encode(plan)) else read(store)
    assert stored is not None
    return stored
