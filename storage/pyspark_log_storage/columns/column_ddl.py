"""Columns as users write them: Spark's DDL, parsed without Spark, or Spark's JSON.

    id BIGINT NOT NULL, name STRING COMMENT 'as in the passport', tags ARRAY<STRING>, at STRUCT<x: DOUBLE, y: DOUBLE>

Source of the grammar: colTypeList and dataType in Spark's SqlBaseParser.g4. Comments are not stored. An ARRAY's element
and a MAP's value can be null, as in Spark; only JSON says otherwise.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.columns.column_types import DEPTH_MAX, from_json, refused
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<word>\w+)|(?P<sign>[<>(),:]))")
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
    if text.lstrip().startswith("{"):
        try:
            return from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InvalidRecord(f"the schema is not valid JSON ({error}); {_EXAMPLE}") from error
    return from_json({"type": "struct", "fields": _Parser(text).columns()})


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind, self._token = "", ""
        self._depth = 0
        self._next()

    def columns(self) -> list[dict[str, Any]]:
        fields = self._fields()
        if self._kind:
            raise self._error("a comma or the end")
        return fields

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                raise InvalidRecord(f"the schema has {self._text[self._at :].strip()[:40]!r}; {_EXAMPLE}")
            self._kind, self._token = "", ""
            return
        self._at = found.end()
        self._kind = found.lastgroup or ""
        self._token = found[self._kind]

    def _error(self, expected: str) -> InvalidRecord:
        shown = f"{self._token!r:.60}" if self._kind else "its end"
        return InvalidRecord(f"the schema has {shown} where {expected} should be; {_EXAMPLE}")

    def _is(self, *tokens: str) -> bool:
        """Take the next token, and return true, if it is one of these."""
        if self._kind in {"word", "sign"} and self._token.upper() in tokens:
            self._next()
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._is(token):
            raise self._error(repr(token))

    def _fields(self) -> list[dict[str, Any]]:
        fields = [self._field()]
        while self._is(","):
            fields.append(self._field())
        return fields

    def _field(self) -> dict[str, Any]:
        if self._kind == "quoted":
            name = self._token[1:-1].replace("``", "`")
        elif self._kind == "word":
            name = self._token
        else:
            raise self._error("the name of a column")
        self._next()
        self._is(":")
        kind = self._type(name)
        nullable = not self._is("NOT")
        if not nullable:
            self._need("NULL")
        if self._is("COMMENT"):
            if self._kind != "text":
                raise self._error("a comment in single quotes")
            self._next()
        return {"name": name, "type": kind, "nullable": nullable}

    def _type(self, where: str) -> Any:
        if self._kind != "word":
            raise self._error("a type")
        word = self._token.upper()
        self._next()
        if word in _DECIMALS:
            return self._decimal()
        if word in _NAMES:
            return _NAMES[word]
        if word not in {"ARRAY", "MAP", "STRUCT"}:
            raise refused(where, word.lower())
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidRecord(f"the schema is nested more than {DEPTH_MAX} levels deep; flatten it")
        self._need("<")
        kind: dict[str, Any]
        if word == "ARRAY":
            kind = {"type": "array", "elementType": self._type(where)}
        elif word == "MAP":
            key = self._type(where)
            self._need(",")
            kind = {"type": "map", "keyType": key, "valueType": self._type(where)}
        else:
            kind = {"type": "struct", "fields": self._fields()}
        self._need(">")
        self._depth -= 1
        return kind

    def _decimal(self) -> str:
        precision, scale = "10", "0"  # Spark's defaults
        if self._is("("):
            precision = self._number()
            if self._is(","):
                scale = self._number()
            self._need(")")
        return f"decimal({precision},{scale})"

    def _number(self) -> str:
        if not (self._kind == "word" and self._token.isdecimal() and self._token.isascii()):
            raise self._error("a number")
        number = self._token
        self._next()
        return number
