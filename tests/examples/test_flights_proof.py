"""The demo's proof: it holds for what is right, and for nothing else."""

import json

import msgspec
import pyarrow as pa
import pytest

from examples.flights import dataset, proof
from pyspark_log_coordinator.model.partition import empty
from pyspark_log_coordinator.topic.machine import Topic

TAILS = ["N1", "N2", "N1", None, "N2", "N1", None]
FLIGHTS = pa.table(
    {"number": range(7), "carrier": list("AABBBAB"), "tailnum": TAILS, "dep_delay": [3, None, -1, 5, 0, 7, None]}
)


def topic(*partitions):
    """Return partitions with the flights of these numbers, in this order."""
    rows = FLIGHTS.to_pylist()
    return [
        pa.table(
            {
                "key": pa.array([(rows[n]["tailnum"] or "").encode() or None for n in numbers], pa.binary()),
                "value": pa.array([event(rows[n]) for n in numbers], pa.binary()),
            }
        )
        for numbers in partitions
    ]


def event(flight):
    return json.dumps({name: value for name, value in flight.items() if value is not None}).encode()


def test_every_flight_once_and_in_order_is_proved_whatever_the_order_between_keys():
    assert proof.check_topic(topic([1, 3, 4], [6, 0, 2, 5], []), FLIGHTS) == 2


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        (([1, 4], [6, 0, 2, 5]), "1 flights are missing, the first is 3"),
        (([1, 3, 4], [6, 0, 2, 5, 6]), "1 flights are there more than once, the first is 6"),
        (([1, 3, 4], [6, 2, 0, 5]), "partition 1 has flight 0 behind flight 2 of the same aircraft"),
        (([1, 3], [6, 0, 2, 4, 5]), "N2 is in partition 1 and in another"),
    ],
)
def test_a_flight_that_is_missing_doubled_or_misplaced_disproves(partitions, said):
    with pytest.raises(proof.Disproved, match=said):
        proof.check_topic(topic(*partitions), FLIGHTS)


def test_a_flight_with_another_field_disproves():
    partitions = topic([1, 3, 4], [6, 0, 2, 5])
    wrong = event(FLIGHTS.to_pylist()[3] | {"dep_delay": 50})
    partitions[0] = partitions[0].set_column(
        1, "value", pa.array([partitions[0]["value"][0].as_py(), wrong, partitions[0]["value"][2].as_py()])
    )
    with pytest.raises(proof.Disproved, match="other fields"):
        proof.check_topic(partitions, FLIGHTS)


def test_a_key_that_is_not_its_flights_tail_number_disproves():
    partitions = topic([1, 3, 4], [6, 0, 2, 5])
    partitions[0] = partitions[0].set_column(0, "key", pa.array([b"N2", b"N2", b"N2"]))
    with pytest.raises(proof.Disproved, match="partition 0 has keys"):
        proof.check_topic(partitions, FLIGHTS)


def test_a_replica_that_is_out_of_sync_or_short_of_rows_disproves():
    whole = empty(("0", "1", "2"), ("0", "1", "2"))
    proof.check_in_sync(Topic(partitions=(whole,)))
    without = msgspec.structs.replace(whole, isr=("0", "2"))
    with pytest.raises(proof.Disproved, match="partition 1 is on"):
        proof.check_in_sync(Topic(partitions=(whole, without)))
    behind = msgspec.structs.replace(whole, log_end=5, high_watermark=5, log_end_offsets={"0": 5, "1": 4, "2": 5})
    with pytest.raises(proof.Disproved, match="partition 0 ends at"):
        proof.check_in_sync(Topic(partitions=(behind,)))


def test_the_expected_delays_are_exact_sums_and_leave_out_what_is_not_known():
    flights = FLIGHTS.append_column("arr_delay", pa.array([1, 2, 3, None, None, None, None]))
    assert dataset.delays_by_carrier(flights) == {"A": [3, 10, 2, 3, 2], "B": [4, 4, 3, 3, 1]}
