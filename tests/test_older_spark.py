"""The facts of Spark hold on its oldest supported line, too."""

import pytest

from tests.support.older_spark import check, on_the_older_spark


@pytest.mark.deep
@on_the_older_spark
def test_the_facts_hold_on_the_oldest_supported_line_of_spark(record_property):
    check("tests/spark_facts", record_property)
