"""Fixtures of the tests of members."""

import pytest

from tests.support.coordinator.members import COOPERATIVE


@pytest.fixture(params=[("range",), COOPERATIVE], ids=["eager", "cooperative"])
def strategies(request):
    return request.param
