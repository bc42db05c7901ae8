"""The plan of a backfill: the ranges into which its frame is split. It is made once, and never changes.

    <checkpoint>/backfill    envelope b"PLBF", version 1, body: JSON

A range is one batch of the topic's journal, whose number is that of the range. So the journal tells which ranges are
written, and the plan tells which remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from pyspark_log.opening import checkpoint_store
from pyspark_log_storage import decoding
from pyspark_log_storage.errors import InvalidInput, ObjectMissing
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count
from pyspark_log_storage.stores.addresses import absolute_url

if TYPE_CHECKING:
    from pyspark_log_storage.stores.storage_options import StorageOptions
    from pyspark_log_storage.stores.store import Store

KEY = "backfill"
_MAGIC = b"PLBF"
_VERSION = 1


class BackfillSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which rows are in a range, and where they are written."""

    backfill_id: str
    topic: str
    order_by: tuple[str, ...]
    rows_per_range: Annotated[int, msgspec.Meta(ge=1)]
    columns: str
    """Names and types of the frame's columns, as Spark prints them."""
    key_column: str | None = None


class BackfillPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings with which a backfill began, the topic, and the ranges."""

    settings: BackfillSettings
    topic_id: str
    rows: Count
    """Number of the frame's rows when the plan was made."""
    bounds: tuple[str, ...]
    """The first values of all ranges but the first, as text (`ordering`)."""

    @property
    def ranges(self) -> int:
        """The number of ranges."""
        return len(self.bounds) + 1

    def check(self, settings: BackfillSettings, topic_id: str, place: str) -> None:
        """Raise `InvalidInput` unless the plan at `place` is that of a backfill with these settings."""
        for name in settings.__struct_fields__:
            mine, given = getattr(self.settings, name), getattr(settings, name)
            if mine != given:
                raise InvalidInput(
                    f"the backfill in {place} began with {name} {_shown(mine)}, and now it is {_shown(given)}; go on "
                    "with the same frame and settings, or begin another backfill with an id and a checkpoint of its own"
                )
        if self.topic_id != topic_id:
            raise InvalidInput(
                f"the backfill in {place} wrote to a topic {settings.topic!r} that was deleted; begin another one with "
                "an id and a checkpoint of its own"
            )


_decoder = msgspec.json.Decoder(BackfillPlan)


def encode(plan: BackfillPlan) -> bytes:
    """Return the stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.json.encode(plan))


def decode(data: bytes, name: str) -> BackfillPlan:
    """Return the plan in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return decoding.decode(_decoder.decode, unseal(_MAGIC, _VERSION, data, name), name)


def store_at(checkpoint: str, options: StorageOptions) -> Store:
    """Return the store of a checkpoint: a folder, or a prefix of a bucket. Raises `InvalidOption`."""
    return checkpoint_store(absolute_url(checkpoint), options)


def read(store: Store) -> BackfillPlan | None:
    """Return the plan of a checkpoint, or None if it has none. Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
    try:
        data = store.read(KEY)
    except ObjectMissing:
        return None
    return decode(data, f"{store.url}/{KEY}")


def create(store: Store, plan: BackfillPlan) -> BackfillPlan:
    """Store a plan, and return it, or the plan that another process has stored meanwhile. Raises `StoreError`."""
    if store.create(KEY, encode(plan)):
        return plan
    stored = read(store)
    assert stored is not None
    return stored


def _shown(value: object) -> str:
    return f"{value!r:.200}"
