"""Full disks: what frees space may use the reserves of the stores for the entries that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_log_storage.errors import OutcomeUnknown, StoreRefused
from pyspark_log_storage.stores import reserve

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log

T = TypeVar("T")


def with_reserves(log: Log, act: Callable[[], T]) -> T:
    """Return the result of `act`, which writes little and may be repeated; if it is refused, with the reserves.

    The log is open. Raises what `act` raises.
    """
    try:
        return act()
    except (StoreRefused, OutcomeUnknown):
        released = [store for store in log.stores() if reserve.release(store)]
        if not released:
            raise
    try:
        return act()
    finally:
        for store in released:
            reserve.reserve_rest(store)


def fill_reserves(log: Log) -> None:
    """Make the reserves that the stores of an open log lack, where there is room. Never raises."""
    for store in log.stores():
        reserve.fill(store)
