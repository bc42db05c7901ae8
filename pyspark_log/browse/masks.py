"""What viewers may not see of rows: columns, fields within columns, and headers.

A mask is `column`, `column.field.field`, or `header:NAME`; `TOPIC:` before it makes it one of that topic alone. Of a
topic of records the columns are key, value and headers, and a value that is JSON has fields. Case does not matter: a
name that is spelt otherwise hides what it means. What is masked can be searched neither, which would show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MASKED = "masked"
HEADERS, HEADER = "headers", "header:"
RECORD_COLUMNS = ("key", "value")


class Mask(msgspec.Struct, frozen=True):
    """What is masked of one topic: names in lower case."""

    names: frozenset[str] = frozenset()

    def hides(self, path: str) -> bool:
        """Return whether a column or a field is masked itself."""
        return path.lower() in self.names

    def reaches(self, path: str) -> bool:
        """Return whether a column or a field is masked, in part or with what it is a part of."""
        path = path.lower()
        return any(path == each or each.startswith(f"{path}.") or path.startswith(f"{each}.") for each in self.names)

    def hides_header(self, key: str | None) -> bool:
        """Return whether a header is masked."""
        return self.hides(f"{HEADER}{key}") or self.hides(HEADERS)

    @property
    def reaches_headers(self) -> bool:
        """Whether any header is masked."""
        return HEADERS in self.names or any(each.startswith(HEADER) for each in self.names)

    def applied(self, value: Any, path: str) -> Any:
        """Return a value as JSON has it, with what is masked replaced; `path` is its own name."""
        if value is not None and self.hides(path):
            return MASKED
        if isinstance(value, dict):
            return {name: self.applied(each, f"{path}.{name}") for name, each in value.items()}
        return [self.applied(each, path) for each in value] if isinstance(value, list) else value


def nulled(column: pa.Array, path: str, mask: Mask) -> pa.Array:
    """Return a column in which what is masked is null; `path` is its own name, and that of what is in a list."""
    column = column.cast(_nullable(column.type))
    kind = column.type
    is_named = not pa.types.is_map(kind) or pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)
    if mask.hides(path) or (mask.reaches(path) and not is_named):  # how other keys are written is not known here
        return pa.nulls(len(column), kind)
    if not mask.reaches(path) or not any(children(kind)):
        return column
    nulls = column.is_null()
    if pa.types.is_struct(kind):
        parts = [nulled(column.field(each.name), f"{path}.{each.name}", mask) for each in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    offsets = pc.subtract(column.offsets, first)
    if pa.types.is_list(kind):
        values = nulled(column.values.slice(first, last - first), path, mask)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=nulls)
    keys, items = (each.slice(first, last - first) for each in (column.keys, column.items))
    for key in keys.unique():
        items = pc.if_else(pc.equal(keys, key), nulled(items, f"{path}.{key.as_py()}", mask), items)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type in which everything may be null, but for the keys of maps."""
    fields = [each.with_type(_nullable(each.type)).with_nullable(True) for each in children(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, fields[1])
    return pa.list_(fields[0]) if fields else kind


def mask_of(names: Iterable[str], topic: str) -> Mask:
    """Return what the masks of a command line mask of a topic.

    >>> sorted(mask_of(["user.SSN", "t:value", "header:Auth", "other:key"], "t").names)
    ['header:auth', 'user.ssn', 'value']
    """
    return Mask(frozenset(path for of, path in map(_split, names) if of in {"", topic}))


def _split(name: str) -> tuple[str, str]:
    """Return topic and path of a mask, both as they are compared."""
    topic, colon, rest = name.partition(":")
    if not colon or name.lower().startswith(HEADER):
        return "", name.lower()
    return topic, rest.lower()


def check(names: Iterable[str], topics: Mapping[str, Sequence[pa.Schema]]) -> None:
    """Raise `InvalidInput` for a name that masks nothing; `topics` are their schemas."""
    for name in names:
        topic, path = _split(name)
        if topic and topic not in topics:
            raise InvalidInput(f"--mask {name!r} masks nothing: topic {topic!r} does not exist")
        chosen = [topics[topic]] if topic else topics.values()
        is_for_new = not topic and _is_of_records(path)  # topics of records may come
        if not is_for_new and not any(_has(each, path) for some in chosen for each in some):
            where = f"topic {topic!r}" if topic else "any topic"
            raise InvalidInput(
                f"--mask {name!r} masks nothing: it is no column of {where}; name a column, a field such as user.ssn, "
                "value.user.ssn for values that are JSON, or header:NAME"
            )


def _is_of_records(path: str) -> bool:
    return path == HEADERS or path.startswith(HEADER) or path.partition(".")[0] in RECORD_COLUMNS


def _has(found: pa.Schema, path: str) -> bool:
    """Return whether rows of a schema have what a mask names. In JSON and in maps it may be anything."""
    if not schema.is_typed(found):
        return _is_of_records(path)
    return any(_names(field, field.name.lower(), path) for field in found)


def _names(field: pa.Field, own: str, path: str) -> bool:
    if path == own or (pa.types.is_map(field.type) and path.startswith(f"{own}.")):
        return True
    is_list = pa.types.is_list(field.type)
    return any(_names(each, own if is_list else f"{own}.{each.name.lower()}", path) for each in children(field.type))
