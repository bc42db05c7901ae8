"""Columns as users write them: Spark's DDL, parsed without Spark, or Spark's JSON.

    id BIGINT NOT NULL, name STRING COMMENT 'as in the passport', tags ARRAY<STRING>, at STRUCT<x: DOUBLE, y: DOUBLE>

Source of the grammar: colTypeList and dataType in Spark's SqlBaseParser.g4. Comments are not stored. An ARRAY's element
and a MAP's value can be null, as in Spark; only JSON says otherwise.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.columns.column_types import from_json, refused
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|'(?P<text>(?:[^'\\]|\\.)*)'"
    r"|(?P<number>[0-9]+\b)|(?P<word>\w+)|(?P<sign>[<>(),:]))"
)
_NAMES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "BYTE": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "STRING": "string",
    "BINARY": "binary",
}
_DECIMALS = {"DECIMAL", "DEC", "NUMERIC"}
_EXAMPLE = "expected columns such as 'id BIGINT NOT NULL, name STRING', or the text of df.schema.json()"


def parse(text: str) -> pa.Schema:
    """Return the columns that a text in DDL or JSON names. Raises `InvalidRecord`."""
    try:
        is_json = text.lstrip().startswith("{")
        return from_json(json.loads(text) if is_json else {"type": "struct", "fields": _Parser(text).columns()})
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"the schema is not valid JSON or DDL ({error}); {_EXAMPLE}") from error


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each token, without quotes, and at the end an empty one."""
    at = 0
    while found := _TOKEN.match(text, at):
        kind, at = found.lastgroup or "", found.end()
        yield kind, found[kind].replace("``", "`") if kind == "quoted" else found[kind]
    if text[at:].strip():
        raise InvalidRecord(f"the schema has {text[at:].strip()[:40]!r}; {_EXAMPLE}")
    yield "", ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._left = deque(_tokens(text))

    def columns(self) -> list[dict[str, Any]]:
        fields = self._fields()
        self._take("a comma or the end", "")
        return fields

    def _take(self, expected: str, *kinds: str) -> str:
        """Return the next token, which must be of one of these kinds."""
        kind, token = self._left[0]
        if kind not in kinds:
            shown = f"{token!r:.60}" if kind else "its end"
            raise InvalidRecord(f"the schema has {shown} where {expected} should be; {_EXAMPLE}")
        self._left.popleft()
        return token

    def _is(self, word: str) -> bool:
        """Take the next token, and return true, if it is this one."""
        kind, token = self._left[0]
        is_it = kind in {"word", "sign"} and token.upper() == word
        if is_it:
            self._left.popleft()
        return is_it

    def _need(self, word: str) -> None:
        if not self._is(word):
            self._take(repr(word))

    def _fields(self) -> list[dict[str, Any]]:
        fields = [self._field()]
        while self._is(","):
            fields.append(self._field())
        return fields

    def _field(self) -> dict[str, Any]:
        name = self._take("the name of a column", "word", "number", "quoted")
        self._is(":")
        kind = self._type(name)
        nullable = not self._is("NOT")
        if not nullable:
            self._need("NULL")
        if self._is("COMMENT"):
            self._take("a comment in single quotes", "text")
        return {"name": name, "type": kind, "nullable": nullable}

    def _type(self, where: str) -> Any:
        word = self._take("a type", "word").upper()
        if word in _DECIMALS:
            return self._decimal()
        if word in _NAMES:
            return _NAMES[word]
        if word not in {"ARRAY", "MAP", "STRUCT"}:
            raise refused(where, word.lower())
        self._need("<")
        kind: dict[str, Any] = {"type": word.lower()}
        if word == "ARRAY":
            kind["elementType"] = self._type(where)
        elif word == "MAP":
            kind["keyType"] = self._type(where)
            self._need(",")
            kind["valueType"] = self._type(where)
        else:
            kind["fields"] = self._fields()
        self._need(">")
        return kind

    def _decimal(self) -> str:
        precision, scale = "10", "0"  # Spark's defaults
        if self._is("("):
            precision = self._take("a number", "number")
            if self._is(","):
                scale = self._take("a number", "number")
            self._need(")")
        return f"decimal({precision},{scale})"
