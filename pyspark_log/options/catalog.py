"""Tables of Spark's catalog: `CREATE TABLE events USING pyspark_log`.

Spark passes the OPTIONS of a table neither to a read nor to a write, only those that a statement gives: `FROM events
WITH (path='...', subscribe='...')`. So a table has none. When one is created without columns, Spark asks for the schema
with the table's properties as options (`TableCatalog`'s reserved ones).
"""

from __future__ import annotations

from collections.abc import Mapping

_PROPERTIES = frozenset({"owner", "provider", "comment", "collation", "external", "is_managed_location"})


def is_table_without_options(options: Mapping[str, str]) -> bool:
    """Return whether Spark asks for the schema of a new table that has no options and no location."""
    return "owner" in options and _PROPERTIES.issuperset(options)
