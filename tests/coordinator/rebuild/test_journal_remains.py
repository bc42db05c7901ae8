"""What one of three journal nodes still shows of a topic's journal, after the other two were lost with their rows."""

from pathlib import Path

import msgspec
import pytest

from pyspark_log_coordinator.journal import journal_entry, registers
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_storage.layout import number as digits
from tests.support.coordinator.lost_cluster import LostCluster
from tests.support.coordinator.replicated_topic import ALL
from tests.support.plain_log import flip_bit

LEFT = "2"


@pytest.fixture
def cluster(tmp_path):
    """Topic t of two partitions with two rows each, on three journal nodes, and described."""
    cluster = LostCluster(tmp_path)
    cluster.create("t", 2, min_insync_replicas="2")
    cluster.append("t")
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild(journals=ALL)
    return cluster


def lose_two(cluster):
    """Lose the majority, when the last votes have arrived at the node that is left."""
    place = cluster.log.topic("t").journal.place
    place.members.ask(lambda _: None, cluster.log.environment, 10_000)
    for node in set(ALL) - {LEFT}:
        cluster.lose_node(node)


def rebuild(cluster):
    return cluster.rebuild((LEFT,), journals_are_lost=True)


def newest(cluster):
    """Return the number of the journal's newest entry."""
    return cluster.log.topic("t").journal.number


def votes(cluster, number):
    """Return the files of the votes for an entry on the node that is left, by ballot."""
    folder = cluster.folder(LEFT, "t") / "journal" / "entries"
    found = {registers.parse(each.name): each for each in folder.iterdir()}
    return {slot[1].ballot: path for slot, path in found.items() if slot[0] == number and not slot[1].is_claim}


def value(cluster, number):
    """Return the key and the entry in a vote for an entry."""
    for ballot, path in votes(cluster, number).items():
        key = path.relative_to(cluster.url(LEFT)).as_posix()
        content = registers.decode(Register(ballot), path.read_bytes(), key)
        if content != NIL:
            return key, content
    raise AssertionError(number)


def remove_votes(cluster, number):
    for path in votes(cluster, number).values():
        path.unlink()


def epochs(cluster, partition=0):
    """Return the leader epochs of a partition, with their first offsets."""
    return cluster.log.topic("t").state.partitions[partition].epoch_starts


def test_rows_of_the_newest_vote_begin_a_leader_epoch_as_others_may_have_been_read_there(cluster):
    cluster.append("t", 3)
    known = epochs(cluster)
    lose_two(cluster)
    assert rebuild(cluster).topics[0].undecided == 4
    *kept, undecided, new = epochs(cluster)
    assert (tuple(kept), undecided[1], new[1]) == (known, 6, 8)
    chunks = cluster.log.topic("t").state.partitions[0].chunks
    assert [each.leader_epoch == undecided[0] for each in chunks] == [False, False, False, True]


def test_a_replay_of_the_newest_batch_appends_nothing(cluster):
    cluster.append("t", 2)
    lose_two(cluster)
    rebuild(cluster)
    cluster.batches -= 1
    expected = {where: list(rows) for where, rows in cluster.expected.items()}
    cluster.append("t", on=(LEFT,))
    cluster.expected = expected
    cluster.check()


def test_rows_after_a_missing_vote_are_set_aside(cluster):
    cluster.append("t")
    number = newest(cluster)
    cluster.append("t", 2)
    lose_two(cluster)
    remove_votes(cluster, number)
    found = rebuild(cluster)
    assert [each.rows for each in found.unplaced] == [4, 4, 4]
    cluster.check(lost={("t", 0): 6, ("t", 1): 6})


def test_of_two_votes_that_may_have_been_decided_the_one_with_the_higher_ballot_counts(cluster):
    """It proposes another batch for the same entry: here the one that was written next."""
    cluster.append("t")
    number = newest(cluster)
    cluster.append("t")
    lose_two(cluster)
    key, first = value(cluster, number)
    later, second = value(cluster, number + 1)
    remove_votes(cluster, number + 1)
    journal = f"{Path(key).parents[1].as_posix()}/"
    previous = journal_entry.decode(first, key).previous
    entry = msgspec.structs.replace(journal_entry.decode(second, later), previous=previous)
    other = journal_entry.encode(entry, journal_entry.place(journal, number))
    higher = f"{journal}entries/{digits(number)}.9"
    (Path(cluster.url(LEFT)) / higher).write_bytes(registers.encode(Register(9), other, higher))
    rebuild(cluster)
    for values in cluster.expected.values():
        del values[2:4]
    cluster.check()


def test_an_undecided_batch_that_is_not_whole_is_set_aside_and_may_be_written_again(cluster):
    cluster.append("t")
    name = cluster.append("t")
    lose_two(cluster)
    flip_bit(cluster.folder(LEFT, "t") / "append" / name, 8 * 100)
    rebuild(cluster)
    cluster.check(lost={("t", 0): 2, ("t", 1): 2})
    cluster.forget("t", 2)
    cluster.batches -= 1
    cluster.append("t", on=(LEFT,))
    cluster.check()
