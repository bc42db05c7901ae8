"""Early write-back of a large file's pages, so that the flush at its end takes less time.

Linux only (sync_file_range); elsewhere nothing happens. Only the flush makes a file durable.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EARLY_BYTES = 4 * 1024 * 1024
"""Write-back begins whenever so many bytes were written, so never for smaller files."""
_SYNC_FILE_RANGE_WRITE = 2


def begin(fd: int, start: int, length: int) -> None:
    """Begin to write back `length` bytes from `start`, without waiting. Never raises: the flush reports errors."""
    call = _sync_file_range()
    if call is not None:
        call(fd, start, length, _SYNC_FILE_RANGE_WRITE)


@functools.lru_cache
def _sync_file_range() -> Callable[..., Any] | None:
    import ctypes  # needed only for large files

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call
