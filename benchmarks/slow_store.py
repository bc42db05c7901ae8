"""A local store that takes long for each request, as one across a network does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REQUESTS = ("create", "create_unflushed", "exists", "read", "put", "delete", "open_write")


def slow_down(seconds: float) -> None:
    """Let each request of this process to a local store take `seconds` longer."""

    def slower(request: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_do(*args: Any, **options: Any) -> Any:
            time.sleep(seconds)
            return request(*args, **options)

        return wait_and_do

    for name in _REQUESTS:
        setattr(LocalStore, name, slower(getattr(LocalStore, name)))
    listed = LocalStore.list

    def slower_list(self: LocalStore, prefix: str, after: str = "") -> Iterator[str]:
        time.sleep(seconds)
        yield from listed(self, prefix, after)

    LocalStore.list = slower_list  # type: ignore[method-assign]
