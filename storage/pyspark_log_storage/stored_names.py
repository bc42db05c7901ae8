"""Stored names: types of the names of files and nodes in stored structs. msgspec checks them while it decodes.

The name of a file becomes a path, to read or to delete. So one that the product does not make is an error where it is
read: the bytes that hold it are damaged or forged.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pyspark_log_storage.layout import BORN_NAME, SEGMENT_NAME
from pyspark_log_storage.names import NAME_LENGTH_MAX

BornName = Annotated[str, Meta(pattern=rf"\A{BORN_NAME}\Z")]
"""Of an append file or a manifest."""
SegmentName = Annotated[str, Meta(pattern=rf"\A{SEGMENT_NAME}\Z")]
"""Of a segment, without ending."""
ReleasedKey = Annotated[str, Meta(pattern=rf"\A(append/{BORN_NAME}|[0-9]+/{SEGMENT_NAME})\Z")]
"""Of an append file or a segment, below the topic's folder."""
NodeName = Annotated[str, Meta(pattern=rf"\A(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}\Z")]
"""Of a node: what `check_node` accepts."""
