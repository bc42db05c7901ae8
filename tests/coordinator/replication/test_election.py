"""Elections: cases that no story covers."""

import re

import msgspec
import pytest

from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.row_loss import LostBatch, RowsLost
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import BatchMismatch
from tests.support.coordinator.topics import (
    after,
    claim,
    commit,
    decide,
    file,
    incarnation,
    pieces,
    rolled,
    started,
)

ABC = ("A", "B", "C")


def holders(*nodes):
    return tuple(Holder(node, incarnation(node)) for node in nodes)


def lost(state, node="A"):
    """Return the state with a suspicion of the node, and the suspicion."""
    state = after(state, Suspect(node, incarnation(node)))
    return state, {node: state.suspects[node]}


def elect(state, *live, gone="A", **how):
    state, suspicions = lost(state, gone)
    return decide(state, ElectLeaders(holders(*live), suspicions, **how))


def test_cut_rows_are_reported_with_their_batches_in_all_partitions():
    state = after(started(2, ABC), commit(claim(0), file({0: 2}, on=ABC)))
    state = after(state, commit(claim(1), file([(0, 2), (0, 3), (1, 4)]), acks="1"))
    state = after(state, commit(None, file({0: 1}), acks="1"))
    state, suspicions = lost(state)
    command = ElectLeaders(holders("B", "C"), suspicions)
    cut, elected, other, _ = decide(state, command)
    assert cut == RowsLost(0, 2, 8, (LostBatch("", 0, 1), LostBatch("query-1", 1, 5)))
    assert (elected.leader, elected.start) == ("B", 2)
    assert other.batches == (LostBatch("query-1", 1, 4),)
    state = after(state, command)
    assert state.producers["query-1"].rows_lost == 9
    assert (state.next_file, pieces(state)) == (3, [("chunk", 0, 2)]), "no number of a file is given again"
    state = after(state, commit(claim(2), file({0: 1}, on=("B", "C"))))
    assert state.producers["query-1"].rows_lost == 0
    assert decide(state, commit(claim(2), file({0: 1}, on=("B", "C")))) == []


@pytest.mark.parametrize(
    ("expires", "advice"),
    [
        (False, "them, and continue with a new checkpoint (and a new txnAppId); use acks=all to prevent this"),
        (True, "them; use acks=all to prevent this"),
    ],
)
def test_a_replay_of_a_batch_that_lost_rows_says_how_many_and_what_to_do(expires, advice):
    claimed = msgspec.structs.replace(claim(1), expires=expires)
    state = after(started(2, ABC), commit(claimed, file({0: 3, 1: 2}), acks="1"))
    state, suspicions = lost(after(state, commit(None, file({1: 1}, on=ABC), acks="1")))
    state = after(state, ElectLeaders(holders("B", "C"), suspicions, partitions=(0,)))
    with pytest.raises(BatchMismatch, match=rf"\(acks=1\): 3 of its 5 rows are lost.*{re.escape(advice)}$"):
        decide(state, commit(claimed, file({0: 3, 1: 2}, on=("B", "C"))))


def test_an_unclean_election_cuts_segments_too():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 5}, on=("A", "B"))))
    for _ in range(2):
        state = after(state, commit(None, file({0: 5})))
    state = rolled(rolled(state, 0, 5, on=("A", "B")), 5, 15)
    state, suspicions = lost(state)
    cut, elected = decide(state, ElectLeaders(holders("B"), suspicions, unclean=True))
    assert cut == RowsLost(0, 5, 15, ())
    assert elected.leader == "B"
    state = after(state, ElectLeaders(holders("B"), suspicions, unclean=True))
    assert pieces(state) == [("segment", 0, 5)]
    assert (state.partitions[0].high_watermark, state.partitions[0].rolled_end) == (5, 5)


def test_rows_before_the_log_start_were_not_lost_with_the_rest_of_their_chunk():
    state = after(started(replicas=("A", "B")), commit(claim(0), file({0: 5})))
    state = after(state, DeleteRecords(0, 3))
    assert state.partitions[0].log_end_offsets == {"A": 5, "B": 3}
    (cut, _) = elect(state, "B", unclean=True)
    assert cut == RowsLost(0, 3, 5, (LostBatch("query-1", 0, 2),))
