"""Setting aside: an object that has no place any more is moved out of the way, and never removed.

    set-aside/<when, UTC>-<nonce>/<the key that it had>

It is copied first and removed then, so that it is always in one of the two places, or in both.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.transfer import RANGE_BYTES

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.store import Store

SET_ASIDE = "set-aside/"


def new_folder(environment: Environment) -> str:
    """Return a folder, which ends with "/", that nothing has been set aside in."""
    now_ms = environment.now_ms()
    try:
        when = f"{dt.datetime.fromtimestamp(now_ms / 1000, dt.timezone.utc):%Y%m%dT%H%M%S}"
    except (ValueError, OverflowError, OSError):
        when = f"{now_ms}ms"  # a clock that is wrong: Python has no year 10000
    return f"{SET_ASIDE}{when}-{environment.nonce()}/"


def set_aside(store: Store, key: str, folder: str) -> None:
    """Move an object into a folder that `new_folder` made. No error where there is none. Raises `StoreError`."""
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
