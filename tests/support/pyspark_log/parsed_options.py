"""Options as a streaming read, a batch read and a write get them."""

import pytest

from pyspark_log.options import SinkOptions, SourceOptions, parse_sink, parse_source
from pyspark_log_storage.errors import InvalidOption

READ = {"path": "/cluster", "subscribe": "t"}
WRITE = {"path": "/cluster"}


def stream(**more: str) -> SourceOptions:
    return parse_source(READ | more, streaming=True)


def batch(**more: str) -> SourceOptions:
    return parse_source(READ | more, streaming=False)


def write(more: dict[str, str] | None = None, *, streaming: bool = True) -> SinkOptions:
    return parse_sink(WRITE | (more or {}), streaming=streaming)


def refusal(parse, *args, **options) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        parse(*args, **options)
    return caught.value
