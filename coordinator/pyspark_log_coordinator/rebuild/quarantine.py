"""Quarantine: objects that the rebuilt cluster does not use are moved here, and never deleted.

    set-aside/<UTC time>-<nonce>/<the object's former key>

An object is copied before the original is deleted, so no moment is without a copy.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.segments.transfer import RANGE_BYTES

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.stores.store import Store

SET_ASIDE = "set-aside/"


def new_folder(environment: Environment) -> str:
    """Return the name of a new quarantine folder; ends with "/"."""
    now_ms = environment.now_ms()
    try:
        when = f"{dt.datetime.fromtimestamp(now_ms / 1000, dt.timezone.utc):%Y%m%dT%H%M%S}"
    except (ValueError, OverflowError, OSError):
        when = f"{now_ms}ms"  # a clock that is wrong: Python has no year 10000
    return f"{SET_ASIDE}{when}-{environment.nonce()}/"


def set_aside(store: Store, key: str, folder: str) -> None:
    """Move an object into a folder from `new_folder`. Do nothing if it does not exist. Raises `StoreError`."""
    try:
        size = store.size(key)
    except ObjectMissing:
        return
    writer = store.open_write(f"{folder}{key}")
    try:
        for position in range(0, size, RANGE_BYTES):
            writer.write(store.read(key, position, RANGE_BYTES))
        writer.close()
    except BaseException:
        writer.discard()
        raise
    store.delete(key)
