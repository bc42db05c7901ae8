"""How much memory the rows of a row group take, found out before they are decoded.

Right checksums do not make a row group small: a run of a billion nulls takes a few bytes, and so does a long text that
a dictionary repeats. So what its pages say is bounded, and columns of other types than those that the topic has are
refused, since texts in the place of numbers would be decoded as a whole.

    bytes       of the pages, decompressed, at most `DECODED_BYTES`
    values      in all columns, nulls among them, at most `VALUES_MAX`: each takes up to 16 bytes, or 4 and its text
    texts       of dictionaries, as often as they are repeated, at most `DECODED_BYTES`: `check_repeated`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files.chunk import DECODED_BYTES
from pyspark_log_storage.parquet import parquet_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.parquet as pq

VALUES_MAX = 2**23
"""How many values a row group has at most, in all columns. A list has a value for each element, or one if it is empty.
"""
_FIXED_BYTES_MAX = 16
"""The longest values that have all the same length are decimals."""
_OFFSET_BYTES = 4


def values_of(columns: Iterable[pa.Array]) -> int:
    """Return how many values columns have at most, as Parquet counts them."""
    return sum(map(_values, columns))


def _values(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_struct(kind):
        return values_of(column.field(number) for number in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        parts = (column.keys, column.items) if pa.types.is_map(kind) else (column.values,)
        return len(column) * leaves_of(kind) + values_of(part.slice(begin, end - begin) for part in parts)
    return len(column)


def leaves_of(kind: pa.DataType) -> int:
    """Return how many columns of Parquet a type takes."""
    return sum(leaves_of(child.type) for child in children(kind)) or 1


def check_pages(data: bytes, rows: int, columns: int, where: str) -> bool:
    """Return whether dictionaries in the pages of `rows` rows in so many `columns` could make these too large.

    Raises `CorruptObject`, with `where`, if they are too large in any case, and `WrongPagesError`.
    """
    sizes = parquet_pages.measure(data)
    values = max(sizes.values, rows * columns)
    if sizes.all > DECODED_BYTES:
        raise CorruptObject(where, f"its rows would take {sizes.all} bytes; the maximum is {DECODED_BYTES}")
    if values > VALUES_MAX:
        raise CorruptObject(where, f"it has {values} values; the maximum is {VALUES_MAX}")
    return sizes.largest_dictionary * values > DECODED_BYTES


def check_types(file: pq.ParquetFile, wanted: pa.Schema, where: str) -> None:
    """Raise `CorruptObject`, with `where`, if columns of a file have types that the topic's cannot have been.

    Raises `KeyError` for a column that the file lacks.
    """
    stored = file.schema_arrow
    for field in wanted:
        if not _is_like(stored.field(field.name).type, field.type):
            kind = stored.field(field.name).type
            raise CorruptObject(where, f"its column {field.name!r} has type {kind}, and not {field.type}")
    longest = max(file.schema.column(number).length for number in range(len(file.schema)))
    if longest > _FIXED_BYTES_MAX:
        raise CorruptObject(where, f"a column has values of {longest} bytes each; the maximum is {_FIXED_BYTES_MAX}")


def _is_like(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type takes about as much memory as another, whatever its values are."""
    for of_kind in (pa.types.is_struct, pa.types.is_list, pa.types.is_map, _is_text):
        if of_kind(wanted) or of_kind(stored):
            break
    else:
        return _is_fixed(stored) and _is_fixed(wanted)
    if not (of_kind(stored) and of_kind(wanted)):
        return False
    if pa.types.is_struct(wanted):
        known = {field.name: field.type for field in stored}
        return all(each.name in known and _is_like(known[each.name], each.type) for each in wanted)
    return all(_is_like(one.type, other.type) for one, other in zip(children(stored), children(wanted), strict=True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal128(kind))


def texts_of(schema: pa.Schema, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the columns of texts, whose values a dictionary can repeat, and the paths in nested columns.

    `paths` are those of all columns in a file.
    """
    plain = [each.name for each in schema if _is_text(each.type)]
    nested = tuple(f"{each.name}." for each in schema if pa.types.is_nested(each.type))
    return plain, [path for path in paths if path.startswith(nested)]


def check_repeated(found: pa.Table, where: str) -> None:
    """Raise `CorruptObject` if columns that were read as dictionaries would take too much memory.

    They are decoded only after that.
    """
    size, texts = found.nbytes, 0
    for part in (part for column in found.columns for chunk in column.chunks for part in _dictionaries(chunk)):
        size += pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)).as_py() or 0
        texts += len(part)
    if size > DECODED_BYTES + texts * _OFFSET_BYTES:
        raise CorruptObject(where, f"its rows would take {size} bytes; the maximum is {DECODED_BYTES}")


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """Yield the dictionaries in a column."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield array
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _dictionaries(array.field(number))
    elif pa.types.is_map(kind):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_list(kind):
        yield from _dictionaries(array.values)
