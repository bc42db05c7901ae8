"""The names of the compressions that a topic may have, without importing pyarrow."""

from __future__ import annotations

from typing import Literal

# As in `chunk.COMPRESSIONS` and `sequencing.Acks` (a test compares them), whose modules bring pyarrow along.
Compression = Literal["none", "lz4", "zstd"]
