"""The configuration of a Python client: a dict with Kafka's names, keyword options, or both.

    Producer(path, {"linger.ms": 20})       Producer(path, linger_ms=20)

Values may be text, numbers and booleans. Names of Kafka's clients that are about connections are ignored with a
warning, so that a program can keep its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_log.options.foreign import KAFKA_PREFIX
from pyspark_log.options.given import Given, Ignored, UnknownOption, as_text, guess, warn
from pyspark_log.options.option import Kind, Option
from pyspark_log_storage.errors import InvalidOption

_NO_BROKER = "there is no broker to connect to"
_NO_LOGIN = "the store's own credentials decide who may read and write"
_IGNORED = {
    "bootstrap.servers": _NO_BROKER,
    "metadata.broker.list": _NO_BROKER,
    "client.id": _NO_BROKER,
    "socket.": _NO_BROKER,
    "broker.address.": _NO_BROKER,
    "api.version": _NO_BROKER,
    "security.": _NO_LOGIN,
    "sasl.": _NO_LOGIN,
    "ssl.": _NO_LOGIN,
    "statistics.interval.ms": "there are no statistics",
    "isolation.level": "only committed rows are seen",
    "check.crcs": "every checksum is checked",
}
"""By name, or by the beginning of names that ends with a dot."""


def gather(
    config: Mapping[str, object] | None, keywords: Mapping[str, object], table: Sequence[Option[Any]], kind: Kind
) -> Given:
    """Return the given options; warn of those that have no effect.

    Raise `InvalidOption` for an unknown name, and for two different values of one option.
    """
    texts: dict[str, str] = {}
    ignored = []
    words = {name.replace("_", "."): value for name, value in keywords.items()}
    for spelt, value in [*(config or {}).items(), *words.items()]:
        key = spelt.lower()
        option = _option(key, table)
        if option is None:
            ignored.append(Ignored(key, _why_ignored(key, table, kind)))
            continue
        text = as_text(value)
        if texts.setdefault(option.name, text) != text:
            raise InvalidOption(
                option.name, f"option {option.name} is given twice with different values; remove one of them"
            )
    warn(ignored, kind)
    return Given(kind, texts, ())


def _option(key: str, table: Sequence[Option[Any]]) -> Option[Any] | None:
    for option in table:
        if key in {option.name.lower(), *option.prefixed}:
            return option
    return None


def _why_ignored(key: str, table: Sequence[Option[Any]], kind: Kind) -> str:
    for name, why in _IGNORED.items():
        if key == name or (name.endswith(".") and key.startswith(name)):
            return why
    known = [option.name for option in table]
    name = key.removeprefix(KAFKA_PREFIX)
    raise UnknownOption(key, kind, guess(name, known), known)
