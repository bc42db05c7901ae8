"""The configuration of a topic, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES = 1_048_588

_NAMES = {
    "compression_type": "compression.type",
    "min_insync_replicas": "min.insync.replicas",
    "max_message_bytes": "max.message.bytes",
}


class TopicConfig(msgspec.Struct, frozen=True, rename=_NAMES.get, forbid_unknown_fields=True):
    """What a topic was created with. Sizes in bytes."""

    compression_type: Literal["none", "lz4", "zstd"] = "lz4"
    """Of the chunks; Kafka's default is the producer's, which here is lz4 too."""
    min_insync_replicas: int = 1
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest key, value and headers of one row together."""


def parse(settings: Mapping[str, str]) -> TopicConfig:
    """Return the configuration in `settings`, by Kafka's names. Raises `InvalidOption`."""
    known = list(_NAMES.values())
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name == "cleanup.policy":
            if text != "delete":
                raise InvalidOption(name, f"cleanup.policy={text} is not supported; leave it at 'delete'")
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise InvalidOption(name, f"unknown topic configuration {name!r}; {hint}")
        values[name] = text
    for name in ("min.insync.replicas", "max.message.bytes"):
        if name in values:
            if not str(values[name]).isdecimal() or int(values[name]) < 1:
                raise InvalidOption(
                    name, f"topic configuration {name}={values[name]!r} must be a whole number of 1 or more"
                )
            values[name] = int(values[name])
    compression = values.get("compression.type", "lz4")
    if compression not in {"none", "lz4", "zstd"}:
        raise InvalidOption(
            "compression.type", f"compression.type={compression!r} is unknown; there are none, lz4 and zstd"
        )
    return msgspec.convert(values, TopicConfig)


def show(config: TopicConfig) -> dict[str, Any]:
    """Return the configuration by Kafka's names."""
    return {kafka: getattr(config, field) for field, kafka in _NAMES.items()}
