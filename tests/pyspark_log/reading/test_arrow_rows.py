"""The columns of a row that is read."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.reading.arrow_rows import record_schema, shaped
from pyspark_log_storage.columns import schema
from tests.support.plain_log import record

COLUMNS = ("headers",)
HEADER = {"key": "h", "value": b"1"}
NAMELESS = {"key": "", "value": None}


def read(stored):
    found = shaped(stored, record_schema(COLUMNS), "t", 0, np.arange(stored.num_rows))
    found.validate(full=True)
    return found.column("headers")


@given(st.lists(st.none() | st.lists(st.just(HEADER), max_size=3), max_size=20), st.data())
def test_a_part_of_a_batch_has_its_own_rows_headers(written, data):
    first = data.draw(st.integers(0, len(written)))
    count = data.draw(st.integers(0, len(written) - first))
    part = record([b"v"] * len(written), headers=written).slice(first, count)
    assert read(part).to_pylist() == [each or None for each in written[first : first + count]]


def test_a_null_may_hide_headers():
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 2], pa.int32()),
        pa.array([HEADER, NAMELESS], schema.HEADERS.value_type),
        type=schema.HEADERS,
        mask=pa.array([True, False, False]),
    )
    stored = record([b"v"] * 3, headers=[None] * 3)
    stored = stored.set_column(3, schema.RECORD_WITH_HEADERS.field("headers"), hidden)
    assert read(stored).to_pylist() == [None, [NAMELESS], None]
