"""Where a secret must not be: texts and bytes, each with the place where it was found."""

from __future__ import annotations

import base64
import logging
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote


class Evidence:
    """What a run has left behind."""

    def __init__(self) -> None:
        self.places: dict[str, bytes] = {}

    def add(self, place: str, found: object) -> None:
        """Add bytes as they are, and anything else as its text."""
        data = found if isinstance(found, bytes) else str(found).encode(errors="replace")
        self.places[place] = self.places.get(place, b"") + data + b"\n"

    def add_records(self, records: Iterable[logging.LogRecord]) -> None:
        """Add what a log has, by logger, with the attributes of the records."""
        for each in records:
            self.add(f"records of {each.name}", f"{each.getMessage()} {vars(each)}")

    def add_repr(self, found: object) -> None:
        """Add what a debugger shows of an object."""
        self.add(f"repr of {type(found).__name__}", f"{found!r} {found} {[found]}")

    def add_error(self, operation: str, error: BaseException) -> None:
        """Add what is shown of an exception, with its traceback, its causes and those that Java has of it."""
        shown = "".join(traceback.format_exception(error))
        self.add(f"exception of {operation}", f"{shown} {error!r} {error} {error.args!r}")
        each: BaseException | None = error
        while each is not None:
            self.add(f"exception of {operation}, in its attributes", vars(each))
            if origin := getattr(each, "_origin", None):
                self.add(f"exception of {operation}, in Java", _stack_in_java(origin))
            each = each.__cause__ or each.__context__

    def add_folder(self, name: str, folder: Path) -> None:
        """Add each file below a folder."""
        for path, _, files in os.walk(folder):
            for each in files:
                file = Path(path) / each
                self.add(f"{name} {file.relative_to(folder)}", file.read_bytes())

    def check(self, *secrets: str) -> None:
        """Raise `AssertionError`, with each place where one of the secrets is."""
        assert self.places
        assert all(secrets)
        found = "\n".join(f"{secret}: {place}" for secret in secrets for place in self.places_with(secret))
        assert not found, f"there are secrets in\n{found}"

    def places_with(self, secret: str) -> list[str]:
        """Return where a secret is, as it is or encoded."""
        forms = encodings(secret)
        return [f"{place}: {name}" for place, data in self.places.items() for name in forms if forms[name] in data]


def encodings(secret: str) -> dict[str, bytes]:
    """Return how a secret may be written inside a longer text."""
    raw = secret.encode()
    found = {"as it is": raw, "in hexadecimal digits": raw.hex().encode()}
    if (quoted := quote(secret, safe="").encode()) != raw:
        found["URL-encoded"] = quoted
    for before in range(3):
        # The digits of bytes depend on how many stand before them; those at the edges also on which.
        first, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        digits = base64.b64encode(bytes(before) + raw)[first:end]
        found[f"in base64 behind {before} bytes"] = digits
        if (safe := digits.replace(b"+", b"-").replace(b"/", b"_")) != digits:
            found[f"in URL-safe base64 behind {before} bytes"] = safe
    return found


def _stack_in_java(origin: Any) -> str:
    from pyspark import SparkContext

    return str(SparkContext._jvm.org.apache.spark.util.Utils.exceptionString(origin))  # type: ignore[union-attr]
