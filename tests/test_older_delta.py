"""What needs Delta for Spark, which exists for the oldest supported line of Spark only.

The tests are skipped, which the summary says, if its jars cannot be had. A file of its own: it runs beside the facts.
"""

import pytest

from tests.support.older_spark import check, on_the_older_spark


@pytest.mark.deep
@on_the_older_spark
def test_delta_works_on_the_oldest_supported_line_of_spark(record_property):
    check("tests/delta", record_property)
