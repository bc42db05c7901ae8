"""Garbage: keeping what stays out of the collector's sight.

pyspark's workers collect after every task and every call; with our imports each would take some 40 ms.
"""

from __future__ import annotations

import functools
import gc
import sys


def freeze_imports() -> None:
    """Freeze what there is, if a module was imported since the last time in this process."""
    _freeze(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _freeze(modules: int) -> None:
    del modules
    gc.freeze()
