"""The compressions of a topic, in a module that does not import pyarrow."""

from __future__ import annotations

from typing import Literal

# Equal to `chunk.COMPRESSIONS`, whose module imports pyarrow; a test compares them.
Compression = Literal["none", "lz4", "zstd"]
