"""Given options, matched against those that are declared, and parsed.

Those of a query have names in any case, and `kafka.X` for X; foreign ones are ignored or refused. Those of a Python
client are a dict with Kafka's names, keywords, or both:

    Producer(path, {"linger.ms": 20})       Producer(path, linger_ms=20)

Values may be text, numbers and booleans. Names of Kafka's clients that are about connections are ignored with a
warning, so that a program can keep its configuration. Messages never show the value of an unknown option, which may be
a misspelt password.
"""

from __future__ import annotations

import difflib
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pyspark_log.options.foreign import CLIENTS_IGNORED, CLIENTS_REFUSED, IGNORED, KAFKA_PREFIX, REFUSED, Foreign
from pyspark_log.options.option import SOURCE, STORAGE_OPTIONS, Given, Ignored, Kind, Option, is_among, shown, table
from pyspark_log.options.sink import SinkOptions
from pyspark_log.options.source import SourceOptions
from pyspark_log_coordinator.model.topic_config import TopicConfig, broker_advice
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import StorageOptions

CLIENT_STORAGE_OPTIONS = msgspec.structs.replace(
    STORAGE_OPTIONS,
    meaning=(
        "Credentials and settings of object stores, as a dict or JSON, with s3fs's names. See"
        " [credentials](../guides/object-store-credentials.md)."
    ),
    prefixed=("storage.options",),
)


_LINE = 100
"""The width of a list of options in a message."""


class IgnoredOptionWarning(UserWarning):
    """Some of the given options have no effect."""


TABLE: tuple[Option[Any], ...] = (*table(SourceOptions)[:-2], *table(SinkOptions)[1:])
"""All options of queries; the first one and the last two are those of both sides."""


def as_text(value: object) -> str:
    """Return the value of an option as text, as Spark's `option` does: `true` for True, and JSON for a dict."""
    if isinstance(value, Mapping):
        return StorageOptions.given(value).text
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return options as text. One that is None is not set."""
    return {name: as_text(value) for name, value in (options or {}).items() if value is not None}


def parse_source(options: Mapping[str, object], *, streaming: bool) -> SourceOptions:
    """Return the options of a read; warn once of options without effect. Raise `InvalidOption`."""
    given = gather(options, Kind.SOURCE_STREAM if streaming else Kind.SOURCE_BATCH)
    parsed = SourceOptions(given)
    warn((*given.ignored, *SourceOptions.shadowed(given)), given.kind)
    return parsed


def check_source(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a read. Raise `InvalidOption` for those that neither a batch read nor a stream accepts.

    It is called before Spark says which of the two it will be. `parse_source` refuses the rest, such as an end of a
    stream.
    """
    return SourceOptions(gather(options, Kind.READ))


def of_batch_read(options: Mapping[str, str]) -> dict[str, str]:
    """Return those options of a stream that a batch read of the same rows has, too. Raise `InvalidOption`."""
    known = names(Kind.SOURCE_BATCH)
    return {name: text for name, text in gather(options, Kind.SOURCE_STREAM).texts.items() if name in known}


def parse_sink(options: Mapping[str, object], *, streaming: bool) -> SinkOptions:
    """Return the options of a write; warn once of options without effect. Raise `InvalidOption`."""
    given = gather(options, Kind.SINK_STREAM if streaming else Kind.SINK_BATCH)
    parsed = SinkOptions(given, options)
    warn(given.ignored, given.kind)
    return parsed


def gather(options: Mapping[str, object], kind: Kind) -> Given:
    """Sort the given options. Raise `InvalidOption` for one that is unknown, refused, or given with two values."""
    texts: dict[str, str] = {}
    said: dict[str, str] = {}
    ignored: list[Ignored] = []
    for name, text in as_texts(options).items():
        found = _known(name.lower(), kind)
        if isinstance(found, Option) and _is_only_kafkas(name, text, found):
            ignored.append(Ignored(name.lower(), f"only Kafka clients support {text.strip()}"))
        elif isinstance(found, Option):
            if texts.setdefault(found.name, text).strip() != text.strip():
                values = "" if found.secret else f" ({shown(texts[found.name])} and {shown(text)})"
                raise InvalidOption(
                    found.name,
                    f"options {said[found.name]} and {_spelt(name, found)} mean the same but have different values"
                    f"{values}; remove one of them",
                )
            said.setdefault(found.name, _spelt(name, found))
        elif found is not None:
            ignored.append(found)
    return Given(kind, texts, tuple(ignored))


def _is_only_kafkas(name: str, text: str, option: Option[Any]) -> bool:
    return name.lower().startswith(KAFKA_PREFIX) and text.strip().lower() in option.only_kafkas


def warn(ignored: Sequence[Ignored], kind: Kind) -> None:
    """Warn of options without effect. Python's default filter shows the same text once in a process."""
    if not ignored:
        return
    reasons = dict.fromkeys(one.why for one in ignored)
    parts = [f"{', '.join(one.name for one in ignored if one.why == why)} ({why})" for why in reasons]
    warnings.warn(f"ignored options of {kind.value}: {'; '.join(parts)}", IgnoredOptionWarning, stacklevel=1)


def names(kind: Kind) -> list[str]:
    """Return the names of the options for `kind`, in the table's order."""
    return list(dict.fromkeys(option.name for option in TABLE if is_among(kind, option.kinds)))


def _known(key: str, kind: Kind) -> Option[Any] | Ignored | None:
    """Return the row that `key` means, or why it has no effect, or None if it is ignored without a warning."""
    client = key.removeprefix(KAFKA_PREFIX) if key.startswith(KAFKA_PREFIX) else None
    for option in TABLE:
        if is_among(kind, option.kinds) and (option.name.lower() == key or client in option.prefixed):
            return option
    for refused in REFUSED:
        if is_among(kind, refused.kinds) and refused.covers(key):
            raise InvalidOption(key, f"option {_name_in(refused.names, key)} cannot be used: {refused.why}")
    for foreign in IGNORED:
        if is_among(kind, foreign.kinds) and foreign.covers(key):
            return Ignored(_name_in(foreign.names, key), foreign.why) if foreign.warns else None
    if client and (
        any(client in option.prefixed for option in TABLE) or any(refused.covers(key) for refused in REFUSED)
    ):
        return Ignored(key, f"it has no effect in {kind.value}")
    return _misplaced(key, kind)


def _misplaced(key: str, kind: Kind) -> Ignored:
    for option in TABLE:
        if option.name.lower() != key:
            continue
        if (option.kinds <= SOURCE) != is_among(kind, SOURCE):
            side = "reads" if option.kinds <= SOURCE else "writes"
            message = f"option {option.name} is for {side} and cannot be used in {kind.value}; remove it"
            raise InvalidOption(option.name, message)
        if option.ignored_elsewhere:
            return Ignored(option.name, option.not_here)
        raise InvalidOption(option.name, f"option {option.name} cannot be used in {kind.value}: {option.not_here}")
    known = names(kind)
    setting = key.removeprefix(KAFKA_PREFIX)
    if setting in TopicConfig().words() and setting not in known:
        advice = f"remove it, and set it with: pyspark-log topics alter TOPIC --config {setting}=VALUE"
        raise InvalidOption(key, f"option {key} cannot be used in {kind.value}: it is a setting of the topic; {advice}")
    if (advised := broker_advice(setting)) is not None:
        raise InvalidOption(key, f"option {key} cannot be used: {advised}")
    raise UnknownOption(key, kind, guess(key, known), known)


class UnknownOption(InvalidOption):
    """There is no option of this name."""

    def __init__(self, option: str, kind: Kind, guess: str | None, known: Iterable[str]) -> None:
        """`guess` is the option of `known` with the most similar name, if one is similar."""
        hint = "" if guess is None else f" Did you mean {guess}?"
        listed = textwrap.wrap(f"Available options: {', '.join(known)}", _LINE, break_on_hyphens=False)
        super().__init__(option, "\n  ".join([f"unknown option {option} for {kind.value}.{hint}", *listed]))
        self.guess = guess


def guess(key: str, known: Iterable[str]) -> str | None:
    """Return the option of `known` with the most similar name, or None if none is similar."""
    by_key = {name.lower(): name for name in known}
    if (own := by_key.get(key.removeprefix(KAFKA_PREFIX))) is not None:
        return own
    if key.startswith(KAFKA_PREFIX):
        ignored = (name for foreign in IGNORED for name in foreign.names if not name.endswith("*"))
        prefixed = (KAFKA_PREFIX + client for option in TABLE for client in option.prefixed)
        by_key |= {name.lower(): name for name in (*ignored, *prefixed)}
    for spelt in (key, key.removeprefix(KAFKA_PREFIX)):
        close = difflib.get_close_matches(spelt, by_key, n=1, cutoff=0.7)
        if close:
            return by_key[close[0]]
    return None


def _name_in(known: tuple[str, ...], key: str) -> str:
    return next((name for name in known if name.lower() == key), key)


def _spelt(name: str, option: Option[Any]) -> str:
    return option.name if name.lower() == option.name.lower() else name.lower()


_UNDERSCORED = {name for foreign in (*CLIENTS_REFUSED, *CLIENTS_IGNORED) for name in foreign.names if "_" in name}
"""Names of librdkafka that have no dots, such as those of callbacks."""


def gather_client(
    config: Mapping[str, object] | None, keywords: Mapping[str, object], known: Sequence[Option[Any]], kind: Kind
) -> Given:
    """Return the given options; warn of those that have no effect.

    Raise `InvalidOption` for an unknown name, and for two different values of one option.
    """
    texts: dict[str, str] = {}
    ignored: list[Ignored] = []
    words = {name if name in _UNDERSCORED else name.replace("_", "."): value for name, value in keywords.items()}
    for spelt, value in [*(config or {}).items(), *words.items()]:
        key = spelt.lower()
        option = _option(key, known)
        if option is None:
            ignored += _ignored(key, value, _foreign(key, known, kind), kind)
            continue
        if value is None:  # it is not set, as in `as_texts`
            continue
        text = as_text(value)
        if texts.setdefault(option.name, text) != text:
            raise InvalidOption(
                option.name, f"option {option.name} is given twice with different values; remove one of them"
            )
    warn(ignored, kind)
    return Given(kind, texts, ())


def _option(key: str, known: Sequence[Option[Any]]) -> Option[Any] | None:
    for option in known:
        if key in {option.name.lower(), *option.prefixed}:
            return option
    return None


def _foreign(key: str, known: Sequence[Option[Any]], kind: Kind) -> Foreign:
    """Return the option of Kafka's clients that `key` names. Raise `UnknownOption`."""
    for foreign in (*CLIENTS_REFUSED, *CLIENTS_IGNORED):
        if kind in foreign.kinds and foreign.covers(key):
            return foreign
    names = [option.name for option in known]
    raise UnknownOption(key, kind, guess(key.removeprefix(KAFKA_PREFIX), names), names)


def _ignored(key: str, value: object, foreign: Foreign, kind: Kind) -> list[Ignored]:
    if value is None:
        return []
    if foreign in CLIENTS_REFUSED:
        raise InvalidOption(key, f"option {key} cannot be used in {kind.value}: {foreign.why}")
    return [Ignored(key, foreign.why)]
