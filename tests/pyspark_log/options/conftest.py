"""Fixtures of the tests of options."""

import warnings

import pytest

from pyspark_log.options import IgnoredOptionWarning


@pytest.fixture(autouse=True)
def no_warning_unless_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("error", IgnoredOptionWarning)
        yield
