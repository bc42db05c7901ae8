"""Ranges: the numbers that stored structs may hold. msgspec checks them while it decodes, at no cost to speak of.

Arithmetic on such numbers stays within what Arrow and Spark can hold, and no index is negative.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

INT64_MAX = 2**63 - 1
UINT32_MAX = 2**32 - 1

Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""A time, or a number that a user chose."""
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""An offset, a size, or the number of a thing."""
UInt32 = Annotated[int, Meta(ge=0, le=UINT32_MAX)]
"""What a chunk's header has four bytes for."""
