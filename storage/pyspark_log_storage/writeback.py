"""Write-back: the kernel is told early to write a file's pages, so that the flush at the file's end waits for little.

Linux only (sync_file_range); elsewhere nothing happens. It promises nothing: the flush stays what makes a file durable.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EARLY_BYTES = 4 * 1024 * 1024
"""How much is written until write-back is begun. Files that are smaller are left to their flush."""
_SYNC_FILE_RANGE_WRITE = 2


def begin(fd: int, start: int, length: int) -> None:
    """Begin to write back `length` bytes from `start`, without waiting. Raises nothing: the flush tells of errors."""
    call = _sync_file_range()
    if call is not None:
        call(fd, start, length, _SYNC_FILE_RANGE_WRITE)


@functools.lru_cache
def _sync_file_range() -> Callable[..., Any] | None:
    import ctypes  # few files are so large that it is needed

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call
