"""The high watermark, case by case."""

import pytest

from pyspark_log_coordinator.replication.high_watermark import advance, advance_by_majority


@pytest.mark.parametrize(
    ("leos", "isr", "current", "min_insync", "expected"),
    [
        ({"A": 9, "B": 7, "C": 6}, "ABC", 0, 1, 6),
        ({"A": 9, "B": 7, "C": 6}, "AB", 0, 1, 7),
        ({"A": 9, "B": 7, "C": 6}, "A", 0, 1, 9),
        ({"A": 9, "B": 7, "C": 6}, "A", 6, 2, 6),  # the ISR is below min.insync.replicas
        ({"A": 9, "B": 7, "C": 6}, "AB", 6, 2, 7),
        ({"A": 9, "B": 7, "C": 6}, "ABC", 8, 1, 8),  # never back
        ({"A": 9, "B": 7, "C": 6}, "", 4, 1, 4),
        ({"A": 9, "B": 9, "C": 9}, "ABC", 0, 3, 9),
        ({"A": 5}, "A", 0, 2, 5),  # one replica is asked for all replicas, not for two
        ({"A": 0, "B": 0}, "AB", 0, 1, 0),
    ],
)
def test_the_high_watermark_is_the_lowest_log_end_of_a_large_enough_isr(leos, isr, current, min_insync, expected):
    assert advance(leos, tuple(isr), current, len(leos), min_insync) == expected


@pytest.mark.parametrize(
    ("leos", "current", "expected"),
    [
        ({"A": 9}, 0, 9),
        ({"A": 9, "B": 4}, 0, 4),  # half of the replicas commit nothing
        ({"A": 9, "B": 7, "C": 6}, 0, 7),
        ({"A": 9, "B": 8, "C": 7, "D": 6}, 0, 7),
        ({"A": 9, "B": 3, "C": 2}, 5, 5),  # never back
    ],
)
def test_the_high_watermark_of_a_quorum_is_what_a_majority_has(leos, current, expected):
    assert advance_by_majority(leos, current) == expected
