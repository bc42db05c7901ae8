"""Messages of Kafka as rows. What comes from a broker is in `test_with_kafka`."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from pyspark_log.kafka.offset_headers import without
from pyspark_log.kafka.row_import import _rows
from pyspark_log_storage.errors import InvalidRecord


def message(ms, headers=None):
    values = {"headers": headers, "key": None, "value": b"v", "offset": 7, "timestamp": (1, ms)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


@pytest.mark.parametrize("ms", [-1, 0, 1_700_000_000_000, 9_223_372_036_854_774])
def test_the_time_of_a_message_is_kept(ms):
    times = _rows([message(ms)], 0, 7).record.column("timestamp")
    assert times.cast(pa.int64()).to_pylist() == [ms * 1000]


@pytest.mark.parametrize("ms", [1_700_000_000_000_000_000, -(2**63)])
def test_a_time_that_microseconds_cannot_hold_is_an_error_that_names_the_row(ms):
    with pytest.raises(InvalidRecord, match=f"the row at offset 7 has the time {ms} ms, which is too large"):
        _rows([message(ms)], 0, 7)


def test_a_row_with_a_header_of_our_name_gets_one_of_its_own_though_it_keeps_its_offset():
    given = [("kafka.offset", b"3"), ("h", b"1")]
    found = _rows([message(0, given)], 0, 7).record.column("headers").to_pylist()
    assert [(each["key"], each["value"]) for each in found[0]] == [*given, ("kafka.offset", b"7")]
    assert without([*given, ("kafka.offset", b"7")], "kafka.offset") == given, "an export has the row as it was"
    assert "headers" not in _rows([message(0)], 0, 7).record.schema.names
