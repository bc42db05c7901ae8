"""The page headers of a row group, read before Arrow decodes it: how much memory its rows can take.

A row group is nothing but pages, back to back: a header (Parquet's `PageHeader` in Thrift's compact protocol), then the
page. Arrow allocates what the header says that a page decompresses to, whatever the footer says. So a few bytes could
fill a reader's memory. A dictionary, which is small, may also become large when its values are repeated.
"""

from __future__ import annotations

import msgspec

_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 1, 2, 3
_NUMBER_OF_VALUES = 1
"""The first field of all headers within the header of a page."""
_DATA_PAGE, _DATA_PAGE_V2 = 5, 8
"""The fields with these headers."""
_DICTIONARY_PAGE = 2
_DEPTH_MAX = 8
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _, _STRUCT = range(13)
"""The types of Thrift's compact protocol."""
_VARINT_BYTES_MAX = 10
_LOW_BITS, _MORE = 0x0F, 0x80
_MANY = 0x0F
"""In place of a list's count: the count follows."""


class WrongPagesError(Exception):
    """The bytes are not pages. Caught in `row_group`."""


class PageSizes(msgspec.Struct, frozen=True):
    """Sizes of a row group's pages, decompressed, in bytes."""

    all: int
    largest_dictionary: int
    values: int
    """How many values all columns have, nulls among them; of dictionaries as often as they are repeated."""


def measure(data: bytes) -> PageSizes:
    """Return the sizes in the headers of the pages in `data`. Raises `WrongPagesError` if these are not all of it."""
    reader = _Reader(data)
    total = dictionary = values = 0
    try:
        while reader.position < len(data):
            fields = reader.struct()
            size, stored = fields[_UNCOMPRESSED_SIZE], fields[_COMPRESSED_SIZE]
            reader.position += stored
            count = fields.get(_DATA_PAGE, 0) + fields.get(_DATA_PAGE_V2, 0)
            if size < 0 or stored < 0 or count < 0 or reader.position > len(data):
                raise WrongPagesError(f"a page has {stored} bytes, {size} when it is decompressed, of {count} values")
            total += size
            values += count
            if fields[_TYPE] == _DICTIONARY_PAGE:
                dictionary = max(dictionary, size)
    except (IndexError, KeyError) as error:
        raise WrongPagesError("a header of a page is cut") from error
    return PageSizes(total, dictionary, values)


class _Reader:
    """Reads structs of Thrift's compact protocol, and keeps the numbers in their fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Return the integers of a struct by the ids of their fields. Everything else is skipped.

        Of a struct within it there is the integer in the first field.
        """
        if depth > _DEPTH_MAX:
            raise WrongPagesError("a header of a page is too deep")
        found: dict[int, int] = {}
        field = 0
        while (head := self._byte()) != _STOP:
            delta, kind = head >> 4, head & _LOW_BITS
            field = field + delta if delta else self._zigzag()
            if kind in {_I16, _I32, _I64}:
                found[field] = self._zigzag()
            elif kind == _STRUCT:
                found[field] = self.struct(depth + 1).get(_NUMBER_OF_VALUES, 0)
            else:
                self._skip(kind, depth)
        return found

    def _skip(self, kind: int, depth: int) -> None:
        if kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in {_LIST, _SET}:
            self._skip_list(depth)
        elif kind in {_I16, _I32, _I64}:
            self._zigzag()
        elif kind == _BINARY:
            length = self._varint()
            self.position += length
        elif kind in {_TRUE, _FALSE}:  # a boolean is in the head of its field
            pass
        elif kind in {_BYTE, _DOUBLE}:
            self.position += 1 if kind == _BYTE else 8
        else:
            raise WrongPagesError(f"a header of a page has a field of type {kind}")

    def _skip_list(self, depth: int) -> None:
        head = self._byte()
        count, kind = head >> 4, head & _LOW_BITS
        if count == _MANY:
            count = self._varint()
        if depth > _DEPTH_MAX or count > len(self._data):
            raise WrongPagesError("a header of a page has a list that does not fit into it")
        for _ in range(count):
            if kind in {_TRUE, _FALSE}:
                self.position += 1
            else:
                self._skip(kind, depth + 1)

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self._byte()
            value |= (byte & ~_MORE) << shift
            if byte < _MORE:
                return value
        raise WrongPagesError("a header of a page has a number that is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
