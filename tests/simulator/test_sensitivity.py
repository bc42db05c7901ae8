"""Rules are taken out of the product, one at a time, and a world finds that. Without a fault no world fails."""

import itertools
from unittest import mock

import pytest

from pyspark_log_coordinator.group import offsets
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.model import producers
from pyspark_log_coordinator.replication import high_watermark, replicas, row_loss
from pyspark_log_coordinator.segments import orphans, swap
from pyspark_log_storage.errors import LogError
from tests.simulator.run import run
from tests.simulator.settings import settings_of

OPERATIONS = 2000
WORLDS = 25
"""So many worlds that have what the fault is in, beginning with seed 0, notice it."""


def nodes(settings):
    return settings.nodes.count > 1


def groups(settings):
    return settings.grouped


def everything(settings):
    return True


FAULTS = {
    "the HW is the LEO of the fastest": (
        nodes,
        (high_watermark, "advance", lambda ends, isr, *_: max(ends[each] for each in isr)),
    ),
    "who lags joins the ISR": (nodes, (replicas, "may_join_isr", lambda partition, node: node in partition.replicas)),
    "a leader that is elected cuts nothing": (nodes, (row_loss, "cut_from", lambda *_: [])),
    "a segment is swapped in that a member lacks": (nodes, (swap, "_all_hold", lambda *_: True)),
    "a file is sequenced that cleaning up may delete": (everything, (orphans, "check_born", lambda *_: None)),
    "an entry in a trimmed slot counts": (
        everything,
        (Journal, "_is_in_the_chain", lambda _, __, mine, decided: decided == mine),
    ),
    "a batch is sequenced again": (everything, (producers, "is_replay", lambda *_: False)),
    "a rewind is ignored": (groups, (offsets, "_check_rewinds", lambda *_: None)),
}


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("is_of", "fault"), FAULTS.values(), ids=FAULTS)
def test_worlds_find_that_a_rule_is_missing(is_of, fault):
    seeds = (seed for seed in itertools.count() if is_of(settings_of(seed, OPERATIONS)))
    with mock.patch.object(*fault):
        failures = (run(seed, OPERATIONS).failure for seed in itertools.islice(seeds, WORLDS))
        found = next((each for each in failures if each is not None), None)
    # An invariant, the product's own check, or an error that no fault explains.
    assert isinstance(found, AssertionError | ValueError | LogError), repr(found)
