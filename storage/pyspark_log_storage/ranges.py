"""Ranges of the numbers in stored structs, which msgspec checks when it decodes them.

So arithmetic on them does not exceed the integers of Arrow and Spark, and no index is negative.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

INT64_MAX = 2**63 - 1
UINT32_MAX = 2**32 - 1

Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""A timestamp, or a number that a user chose."""
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""An offset, a size or an ordinal number."""
UInt32 = Annotated[int, Meta(ge=0, le=UINT32_MAX)]
"""A field of four bytes in a chunk's header."""
