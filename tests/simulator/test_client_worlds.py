"""Promises of Producers and Consumers are taken out of the product, and a world with clients finds that.

The worlds are those of the smallest seeds that have clients. Without a fault they all pass, see `test_simulator`.
"""

import itertools
from unittest import mock

import pytest

from pyspark_log.clients import sender
from pyspark_log.clients.accumulator import Accumulator
from pyspark_log.clients.reading import AssignedPartition
from tests.simulator.clock import Clock
from tests.simulator.run import run
from tests.simulator.settings import settings_of

OPERATIONS = 2000
WORLDS = 12


def worlds_with_clients():
    return (seed for seed in itertools.count() if settings_of(seed, OPERATIONS).clients is not None)


def a_seek_that_keeps_the_rows_of_before():
    def seek(self, offset):
        self._offset = offset
        self.moved()

    return mock.patch.object(AssignedPartition, "seek", seek)


def a_flush_that_does_not_wait():
    return mock.patch.object(Accumulator, "flush", return_value=0)


def batches_of_one_request_with_the_same_offsets():
    return mock.patch.object(sender, "share_out", lambda batches, offsets: [dict(offsets) for _ in batches])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        a_seek_that_keeps_the_rows_of_before,
        a_flush_that_does_not_wait,
        batches_of_one_request_with_the_same_offsets,
    ],
)
def test_worlds_with_clients_find(fault):
    with fault():
        failures = (run(seed, OPERATIONS).failure for seed in itertools.islice(worlds_with_clients(), WORLDS))
        found = next((each for each in failures if each is not None), None)
    assert isinstance(found, AssertionError), repr(found)  # a rule of the worlds, or the product itself


def test_threads_that_all_wait_for_each_other_are_a_finding():
    clock = Clock()
    for name in ("one", "other"):
        clock.spawn(name, lambda: clock.pause(float("inf")))
    clock.run()
    assert "['one', 'other'] wait for each other" in str(clock.failure)
