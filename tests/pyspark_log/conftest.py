"""What the tests of the Python side share."""

import pytest


@pytest.fixture(autouse=True)
def tracebacks_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that reaches an entry point hides tracebacks in its process: here that is the tests' own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
