"""What tests of the cluster machine have in common."""

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_storage.errors import InvalidOption

NOW = 1_700_000_000_000


def after(state, *commands):
    """Return the state after some commands."""
    for command in commands:
        for event in cluster.decide(state, command, NOW):
            state = cluster.evolve(state, event)
    return state


def refusal(state, command):
    """Return why a command is refused."""
    with pytest.raises(InvalidOption) as refused:
        cluster.decide(state, command, NOW)
    return refused.value.message
