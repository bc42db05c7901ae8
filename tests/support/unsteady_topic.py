"""A topic whose store fails now and then."""

from typing import Any

from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_storage.errors import StoreUnavailable


class UnsteadyTopic:
    """A handle of which every other refresh, and every other deletion of records, fails: the first one does."""

    def __init__(self, handle: TopicHandle) -> None:
        self._handle = handle
        self._failed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._handle, name)
        if name not in {"refresh", "delete_records"}:
            return whole

        def call(*given: Any) -> Any:
            if name in self._failed:
                self._failed.remove(name)
                return whole(*given)
            self._failed.add(name)
            raise StoreUnavailable("the store", name, "it failed for a moment")

        return call
