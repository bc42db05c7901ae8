"""Decoding: from stored bytes to a value, or to a `LogError` that names the object.

Stored bytes may be anything, also where their checksum is right: another version, a faulty machine or a forger wrote
them. So whatever a decoder raises about its input becomes a `LogError` here, and a decoder needs no rules of its own.

Make decoders when the module is imported. msgspec is not thread-safe while it meets a type for the first time: two
threads that build a decoder of the same type at once can crash the process.
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
"""What pure code raises when its input cannot be. `ValueError` includes Unicode errors, `LookupError` unknown keys."""


_OUT_OF_RANGE = re.compile("Expected `int` [<>]=|Expected `str` matching")


def decode(
    decoder: Callable[[bytes | msgspec.Raw], T],
    body: bytes | msgspec.Raw,
    name: str,
    mistyped: type[CorruptObject | NewerFormat] = NewerFormat,
) -> T:
    """Return what `decoder` makes of `body`, which is in the object `name`.

    Raises `mistyped` if the types are not the expected ones, and `CorruptObject` if `body` cannot be decoded at all.
    """
    try:
        return decoder(body)
    except msgspec.ValidationError as error:
        # msgspec has no class of its own for a number or a name that no version writes (`ranges`, `stored_names`).
        kind = CorruptObject if _OUT_OF_RANGE.match(str(error)) else mistyped
        raise kind(name, str(error)) from error
    except IMPOSSIBLE as error:
        raise CorruptObject(name, reason(error)) from error


def reason(error: Exception) -> str:
    """Return what an error says, with its kind if the words alone would not be understood."""
    if isinstance(error, msgspec.MsgspecError | UnicodeError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
