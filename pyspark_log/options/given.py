"""Given options, matched against those that are declared, and parsed.

Names are found in any case. Values may be text, numbers and booleans. Messages never show the value of an unknown
option, which may be a misspelt password.
"""

from __future__ import annotations

import difflib
import textwrap
import warnings
from collections.abc import Mapping

from msgspec.structs import replace

from pyspark_log.options import foreign
from pyspark_log.options.option import QUERIES, SOURCE, Given, Kind, Options
from pyspark_log.options.sink import SinkOptions
from pyspark_log.options.source import SourceOptions
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import StorageOptions

STORAGE_OPTIONS = replace(SourceOptions.storage_options, also="storage.options")
"""As programs in Python have it."""


class IgnoredOptionWarning(UserWarning):
    """Some of the given options have no effect."""


class DescribeOptions(Options, kinds={Kind.DESCRIBE}):
    """The options of `describe`."""

    storage_options = STORAGE_OPTIONS


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
    warned(replace(given, ignored=(*given.ignored, *SourceOptions.shadowed(given))))
    return parsed


def check_source(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a read. Raise `InvalidOption` for those that neither a batch read nor a stream accepts.

    It is called before Spark says which of the two it will be. `parse_source` refuses the rest, such as an end of a
    stream.
    """
    return SourceOptions(gather(options, Kind.READ))


def parse_sink(options: Mapping[str, object], *, streaming: bool) -> SinkOptions:
    """Return the options of a write; warn once of options without effect. Raise `InvalidOption`."""
    given = gather(options, Kind.SINK_STREAM if streaming else Kind.SINK_BATCH)
    parsed = SinkOptions(given)
    warned(given)
    return parsed


def gather(options: Mapping[str, object], kind: Kind, keywords: Mapping[str, object] | None = None) -> Given:
    """Sort the given options; in those of a client, `_` means `.`.

    Raise `InvalidOption` for one that is unknown, refused, or given with two values.
    """
    texts: dict[str, str] = {}
    sparks: dict[str, str] = {}
    ignored = []
    for name, value in [*options.items(), *(keywords or {}).items()]:
        key = name.lower() if kind in QUERIES else name.lower().replace("_", ".")
        option = Options.OF[kind].get(key)
        if option is None:
            _refuse_unless_ignored(name, key, kind, is_set=value is not None)
        if value is None:
            continue
        text = as_text(value)
        if option is None and key in foreign.SILENT:
            sparks[key] = text
        elif option is None or (key, text.strip().lower()) in foreign.ONLY_KAFKAS:
            ignored.append(name)
        elif texts.setdefault(option.name, text).strip() != text.strip():
            message = f"option {option.name} is given twice, also as {name}, with different values; remove one of them"
            raise InvalidOption(option.name, message)
    return Given(kind, texts, tuple(ignored), sparks)


def _refuse_unless_ignored(name: str, key: str, kind: Kind, *, is_set: bool) -> None:
    """Raise `InvalidOption` for a name that is no option of a kind, and not ignored either."""
    unusable = f"option {name} cannot be used in {kind.value}"
    if (advice := foreign.refusal(key, kind)) is not None:
        if is_set:
            raise InvalidOption(name, f"{unusable}; remove it, and {advice}")
    elif not foreign.is_ignored(key, kind):
        homes = [each for each in Kind if each in QUERIES - {Kind.READ} and key in Options.OF[each]]
        if homes:
            option = Options.OF[homes[0]][key]
            if option.lenient and kind in SOURCE:
                return
            queries = " or ".join(each.value for each in homes)
            raise InvalidOption(option.name, f"option {option.name} is for {queries}, not for {kind.value}; remove it")
        own = Options.OF[kind].get(key.removeprefix(foreign.KAFKA_PREFIX))
        if own is None and (advice := foreign.advice_elsewhere(key)) is not None:
            raise InvalidOption(name, f"{unusable}: {advice}")
        raise UnknownOption(name, kind, _guess(key, kind) if own is None else own.name)


class UnknownOption(InvalidOption):
    """There is no option of this name."""

    def __init__(self, option: str, kind: Kind, guess: str | None) -> None:
        """`guess` is the option with the most similar name, if one is similar."""
        self.guess = guess
        hint = "" if guess is None else f" Did you mean {guess}?"
        listed = textwrap.wrap(f"Available options: {', '.join(names(kind))}", 100, break_on_hyphens=False)
        super().__init__(option, "\n  ".join([f"unknown option {option} for {kind.value}.{hint}", *listed]))


def _guess(key: str, kind: Kind) -> str | None:
    known = {name.lower(): name for name in [*foreign.similar(key, kind), *Options.OF[kind], *names(kind)]}
    close = [difflib.get_close_matches(each, known, 1, 0.7) for each in (key, key.removeprefix(foreign.KAFKA_PREFIX))]
    return next((known[name] for names in close for name in names), None)


def names(kind: Kind) -> list[str]:
    """Return the names of the options of a kind."""
    return list(dict.fromkeys(option.name for option in Options.OF[kind].values()))


def warned(given: Given) -> Given:
    """Return the options; warn of those without effect. Python's filter shows the same text once in a process."""
    if listed := ", ".join(given.ignored):
        message = f"ignored options of {given.kind.value}, which have no effect: {listed}"
        warnings.warn(message, IgnoredOptionWarning, stacklevel=1)
    return given
