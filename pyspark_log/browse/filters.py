"""What rows must have to be shown: texts in keys and values, headers, and fields of JSON or of columns.

Arrow's kernels find it. Only for values that no kernel writes as they are shown, and for JSON that may have the field,
Python objects are made. What is masked is searched neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.browse.masks import HEADERS, RECORD_COLUMNS
from pyspark_log.writing import typed_json
from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log.browse.masks import Mask

_INDEX = re.compile("[0-9]{1,9}")
_KEY, _VALUE = RECORD_COLUMNS


class Filters(msgspec.Struct, frozen=True):
    """What rows must have. Empty: any. Texts are found as they are written, case matters."""

    key: str = ""
    """The key itself."""
    key_has: str = ""
    value_has: str = ""
    header: str = ""
    """A header's name, or `name=text` that its value has."""
    field: str = ""
    """A field of a JSON value, or a column: `a.b=text` if it is that, `a.b` if it is there and not null."""

    @property
    def used(self) -> bool:
        """Whether there is any."""
        return any(getattr(self, name) for name in self.__struct_fields__)


def is_filtered(parameters: Mapping[str, str]) -> bool:
    """Return whether an address has filters."""
    return any(parameters.get(name) for name in Filters.__struct_fields__)


def matching(batch: pa.RecordBatch, filters: Filters, mask: Mask) -> Any:
    """Return which rows match, as an array of booleans."""
    if not filters.used:
        return np.ones(batch.num_rows, bool)
    if schema.is_typed(batch.schema):
        return _typed_matching(batch, filters, mask)
    found = np.ones(batch.num_rows, bool)
    key, value = batch.column(_KEY), batch.column(_VALUE)
    if filters.key:
        found &= _true(pc.equal(key, filters.key.encode()))
    if filters.key_has:
        found &= _true(pc.match_substring(key, filters.key_has))
    if filters.value_has:
        found &= _true(pc.match_substring(value, filters.value_has))
    if filters.header:
        found &= _has_header(batch, filters.header)
    if filters.field:
        # A value that has the field has its names as they are, or with an escape. Only such values are parsed.
        may = _true(pc.match_substring(value, "\\"))
        names = [each for each in filters.field.partition("=")[0].split(".") if not _INDEX.fullmatch(each)]
        found &= may | np.all([_true(pc.match_substring(value, each)) for each in names] or [~may], axis=0)
        for index in np.flatnonzero(found).tolist():
            found[index] = _has_field(json_of(value[index].as_py()), filters.field)
    return found


def _typed_matching(batch: pa.RecordBatch, filters: Filters, mask: Mask) -> Any:
    found = np.zeros(batch.num_rows, bool)
    if filters.key or filters.key_has or filters.header:
        return found  # it has none
    names = batch.schema.names[:-1]
    for name in names:
        if filters.value_has and not mask.reaches(name):
            found |= _contains(batch.column(name), filters.value_has)
    if not filters.value_has:
        found[:] = True
    if filters.field:
        path, is_equal, text = filters.field.partition("=")
        found &= _holds(batch, path.split("."), text if is_equal else None)
    return found


def _contains(column: pa.Array, text: str) -> Any:
    """Return which values have a text in them, as an array of booleans."""
    kind = column.type
    if pa.types.is_struct(kind):
        return np.any([_contains(each, text) for each in column.flatten()], axis=0)
    if pa.types.is_list(kind):
        found = np.zeros(len(column), bool)
        found[np.asarray(pc.list_parent_indices(column))[_contains(column.flatten(), text)]] = True
        return found
    return _true(pc.match_substring(_texts(column), text))


def _holds(batch: pa.RecordBatch, path: list[str], text: str | None) -> Any:
    """Return in which rows a field is there and not null, and with `text` is that."""
    found = np.zeros(batch.num_rows, bool)
    if path[0] not in batch.schema.names:
        return found
    column, rows = batch.column(path[0]), np.arange(batch.num_rows)
    for name in path[1:]:
        kind = column.type
        if pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            column = column.flatten()[kind.get_field_index(name)]
        elif pa.types.is_list(kind) and _INDEX.fullmatch(name):
            column = pc.list_slice(column, int(name), int(name) + 1)
            rows, column = rows[np.asarray(pc.list_parent_indices(column))], column.flatten()
        elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
            column = pc.map_lookup(column, name, "first")
        else:
            return found
    is_it = pc.is_valid(column) if text is None else pc.equal(_texts(column), text)
    found[rows[_true(is_it)]] = True
    return found


def _texts(column: pa.Array) -> pa.Array:
    """Return values as the texts that are shown. Those that no kernel writes in this way become objects together."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    named = pa.RecordBatch.from_arrays([column], ["value"])
    return pa.array([shown(each["value"]) for each in typed_json.objects(named)], pa.string())


def _true(found: pa.Array) -> Any:
    return np.asarray(pc.fill_null(found, False))


def _has_header(batch: pa.RecordBatch, wanted: str) -> Any:
    found = np.zeros(batch.num_rows, bool)
    if HEADERS not in batch.schema.names:
        return found
    name, _, text = wanted.partition("=")
    headers = batch.column(HEADERS)
    flat = headers.flatten()
    is_it = pc.equal(flat.field("key"), name)
    if text:
        is_it = pc.and_(is_it, pc.match_substring(flat.field("value"), text))
    found[np.asarray(pc.list_parent_indices(headers))[_true(is_it)]] = True
    return found


def json_of(value: bytes | None) -> Any:
    """Return a value that is JSON, None for any other."""
    try:
        return msgspec.json.decode(value or b"null")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _has_field(document: Any, wanted: str) -> bool:
    path, is_equal, text = wanted.partition("=")
    for name in path.split("."):
        if isinstance(document, list) and _INDEX.fullmatch(name) and int(name) < len(document):
            document = document[int(name)]
        elif isinstance(document, dict) and name in document:
            document = document[name]
        else:
            return False
    if not is_equal:
        return document is not None
    return text == (document if isinstance(document, str) else typed_json.ENCODER.encode(document).decode())


def shown(value: Any) -> str | None:
    """Return a value of a typed column as the text that is shown."""
    return value if value is None or isinstance(value, str) else typed_json.ENCODER.encode(value).decode()
