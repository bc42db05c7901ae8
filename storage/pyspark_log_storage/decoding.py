"""Decoding of stored bytes to a value, or to a `LogError` that names the object.

Stored bytes may be anything even if their checksum is right: another version, a faulty machine or a forger may have
written them. So every error of a decoder about its input becomes a `LogError` here.

Create decoders at import time. msgspec is not thread-safe when it sees a type for the first time: two threads that
create a decoder of the same type at once can crash the process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_storage.errors import CorruptObject, InvalidName, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

IMPOSSIBLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    InvalidName,
)
"""Errors of pure code for impossible input. `ValueError` includes Unicode errors, `LookupError` unknown keys."""

_OUT_OF_RANGE = re.compile("Expected `int` [<>]=|Expected `str` matching")


def decode(
    decoder: Callable[[bytes | msgspec.Raw], T],
    body: bytes | msgspec.Raw,
    name: str,
    mistyped: type[CorruptObject | NewerFormat] = NewerFormat,
) -> T:
    """Return the value that `decoder` returns for `body`, which is in the object `name`.

    Raises `mistyped` if a type is not the expected one, and `CorruptObject` if `body` cannot be decoded at all.
    """
    try:
        return decoder(body)
    except msgspec.ValidationError as error:
        # A number or name that no version writes (`stored_fields`); msgspec has no error class for these.
        kind = CorruptObject if _OUT_OF_RANGE.match(str(error)) else mistyped
        raise kind(name, str(error)) from error
    except IMPOSSIBLE as error:
        raise CorruptObject(name, reason(error)) from error


def reason(error: Exception) -> str:
    """Return the message of an error, after its class if the message alone would not be clear."""
    if isinstance(error, msgspec.MsgspecError | UnicodeError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
