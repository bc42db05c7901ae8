"""Types of the numbers and names in stored structs, which msgspec checks when it decodes them.

So arithmetic on numbers does not exceed the integers of Arrow and Spark, and no index is negative. A file name becomes
a path that is read or deleted: one that pyspark_log never gives to a file is an error as soon as it is decoded, because
the bytes are damaged or forged.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pyspark_log_storage.layout import BORN_NAME, SEGMENT_NAME, UNIQUE_ID
from pyspark_log_storage.names import NAME_LENGTH_MAX

INT64_MAX = 2**63 - 1
ORDINAL_MAX = 2**62
"""The most that generations, epochs and the like may be in a stored state, so that they can still grow."""

Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""A timestamp, or a number that a user chose."""
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""An offset, a size or an ordinal number."""
Ordinal = Annotated[int, Meta(ge=0, le=ORDINAL_MAX)]
"""An offset from which others are counted."""
UInt32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""A field of four bytes in a chunk's header."""

BornName = Annotated[str, Meta(pattern=rf"\A{BORN_NAME}\Z")]
"""The name of an append file."""
SegmentName = Annotated[str, Meta(pattern=rf"\A{SEGMENT_NAME}\Z")]
"""The name of a segment, without ending."""
FileKey = Annotated[str, Meta(pattern=rf"\A(append/{BORN_NAME}|[0-9]+/{SEGMENT_NAME})\Z")]
"""The key of an append file or a segment (without ending) in the topic's folder."""
_NAME = Meta(pattern=rf"\A(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}\Z")
NodeName = Annotated[str, _NAME]
"""The id of a node, see `check_node`."""
TopicName = Annotated[str, _NAME]
"""See `check_topic`."""
MemberName = Annotated[str, _NAME]
"""The id of a group's member, see `check_member`."""
UniqueId = Annotated[str, Meta(pattern=rf"\A{UNIQUE_ID}\Z")]
"""The id of a topic, or of a group's journal."""
