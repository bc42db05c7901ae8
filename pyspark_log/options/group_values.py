"""The names of groups, of their static members and of racks, as values of options."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.options.value import Value
from pyspark_log_storage.errors import InvalidName
from pyspark_log_storage.names import check_group, check_member, check_rack


def _read_group(text: str) -> str:
    return _checked(check_group, text)


def _read_member(text: str) -> str:
    return _checked(check_member, text)


def _read_rack(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return _checked(check_rack, text)


def _checked(check: Callable[[str], None], text: str) -> str:
    try:
        check(text)
    except InvalidName as error:
        raise ValueError(error.message) from None
    return text


GROUP = Value("1 to 255 printable characters", _read_group, verbatim=True)
MEMBER = Value("1 to 249 letters, digits, `.`, `_` and `-`", _read_member)
RACK = Value("1 to 255 printable characters", _read_rack)
