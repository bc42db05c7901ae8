"""What a query may do with the partitions that it shares: replays, second processes, rewinds, partitions that come."""

import pytest

from pyspark_log import opening
from pyspark_log.reading import stream_planner
from pyspark_log.reading.groups import reset
from pyspark_log.reading.stream_planner import StreamPlanner
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.replication.reassignment import AddPartitions
from pyspark_log_storage.errors import DataLoss, FencedInstance, FencedMember, InvalidOption
from tests.support.direct import source
from tests.support.pyspark_log.source.shared_queries import Clock, Queries


@pytest.fixture
def queries(root, monkeypatch):
    monkeypatch.setattr(opening, "real_environment", Clock().environment)
    monkeypatch.setattr(MemberThread, "start", lambda _: None)
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)
    return Queries(str(root))


def sharing(queries, *names):
    """Queries that have read all that there is, each its part."""
    made = [queries.query(name) for name in names]
    queries.append(10)
    queries.settle()
    return made


def begin_batch(queries, query):
    """Let a query plan a batch with rows of all its partitions, and be killed before it reads them."""
    queries.append(5)
    while not query.plan():
        queries.act()
    query.kill()


def test_a_query_replays_its_batch_after_a_kill(queries):
    one, two = sharing(queries, "one", "two")
    begin_batch(queries, two)
    two.start()
    two.batch()
    queries.settle()
    assert queries.copies() == dict.fromkeys(queries.written, 1)
    assert one.planned.isdisjoint(two.planned)


def test_a_replay_is_fenced_after_others_got_the_partitions_of_the_batch(queries):
    _, two = sharing(queries, "one", "two")
    begin_batch(queries, two)
    queries.expire(two)
    queries.all.remove(two)
    queries.settle()
    two.start()
    with pytest.raises(FencedMember, match=r"gave partitions of query 'two' to others.*t-\d \(one\)"):
        two.execute()
    queries.all.append(two)
    assert queries.copies() == dict.fromkeys(queries.written, 1)


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_rows_that_expire_while_a_batch_is_planned_are_a_loss(queries, monkeypatch):
    (one,) = sharing(queries, "one")
    queries.append(5)
    assert one.plan()
    subscribed = StreamPlanner._subscribed

    def expired_by_then(planner, *given, **more):
        queries.log.log.topic("t").delete_records(0, 15)
        return subscribed(planner, *given, **more)

    monkeypatch.setattr(StreamPlanner, "_subscribed", expired_by_then)
    with pytest.raises(DataLoss, match="partition 0: offset 10 has expired, the log begins at 15"):
        one.execute()


def test_a_query_that_returns_after_its_session_goes_on_if_all_that_it_had_processed_was_committed(queries):
    one, two = sharing(queries, "one", "two")
    queries.settle()
    two.kill()
    queries.expire(two)
    queries.append(5)
    queries.settle()
    assert one.planned == set(range(6))
    two.start()
    queries.append(5)
    queries.settle()
    assert len(two.planned) == 3
    assert queries.copies() == dict.fromkeys(queries.written, 1)


@pytest.mark.no_faults("lets a process die at a certain step")
def test_what_a_query_gave_up_as_it_was_killed_has_its_new_owner_soon(queries, monkeypatch):
    queries.log.create("u", 1)
    leader = queries.query("leader", subscribe="u")
    while leader.planned or not leader.batch():
        leader.act()
    (one,) = sharing(queries, "one")
    two = queries.query("two")
    member = one._shared.member
    monkeypatch.setattr(member, "_poll", lambda: None)  # it is killed before it joins again
    while not member._partitions.leaving:
        queries.act()
        two.batch()
    queries.append(5)
    assert one.plan()
    one.kill()
    assert one.planned == {0, 1, 2}, "it has given up the others"
    one.start()
    queries.settle()
    assert two.planned == {3, 4, 5}
    assert queries.is_once


def test_of_two_processes_with_one_instance_id_the_older_one_fails(queries):
    (one,) = sharing(queries, "one")
    older = one.reader
    one.start()
    queries.append(1)
    queries.settle()
    one.reader = older
    with pytest.raises(FencedInstance, match="one"):
        one.plan()


def test_a_query_that_keeps_its_partitions_gives_none_to_later_ones(queries):
    one = queries.query("one", **{"group.keep.partitions": "true"})
    queries.append(10)
    for _ in range(20):
        one.act()
        one.batch()
    assert one.planned == set(range(6))
    two = queries.query("two")
    queries.append(10)
    queries.settle()
    assert one.planned == set(range(6))
    assert two.planned == set()
    assert queries.copies() == dict.fromkeys(queries.written, 1)


def test_a_rewind_is_taken_up_by_the_query_that_owns_the_partition(queries):
    sharing(queries, "one", "two")
    topic_id = queries.log.log.topic("t").topic_id
    queries.log.log.group("g").submit(ResetOffsets({topic_id: {2: Offset(4)}}, running=True))
    queries.settle()
    again = {row for row, times in queries.copies().items() if times == 2}
    assert again == {(2, number) for number in range(4, 10)}
    queries.append(5)
    queries.settle()
    assert {row for row, times in queries.copies().items() if times == 2} == again


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_partitions_that_are_added_are_read_from_their_start(queries):
    one, two = sharing(queries, "one", "two")
    handle = queries.log.log.topic("t")
    incarnations = handle.journal.state.incarnations
    handle.submit(AddPartitions((tuple(incarnations),) * 2, incarnations))
    queries.append(5, range(6, 8))
    queries.settle()
    assert one.planned | two.planned == set(range(8))
    assert queries.copies() == dict.fromkeys(queries.written, 1)


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_partitions_that_are_added_are_read_from_their_start_also_if_all_others_are_rewound_first(queries):
    queries.options = {"startingOffsets": "latest"}
    one, two = queries.query("one"), queries.query("two")
    queries.settle()
    queries.append(10)
    queries.settle()
    handle = queries.log.log.topic("t")
    incarnations = handle.journal.state.incarnations
    handle.submit(AddPartitions((tuple(incarnations),) * 2, incarnations))
    queries.append(5, range(6, 8))
    reset(queries.log.log, "g", {("t", number): 10 for number in range(6)})
    queries.settle()
    assert one.planned | two.planned == set(range(8))
    assert queries.copies() == dict.fromkeys(queries.written, 1)


def test_a_limit_counts_the_rows_of_the_querys_own_partitions(queries):
    one = queries.query("one", maxOffsetsPerTrigger="6")
    two = queries.query("two")
    queries.append(10)
    queries.settle()
    assert len(one.planned) == len(two.planned) == 3
    batches = len(one.sink)
    queries.append(10)
    queries.settle()
    assert [len(one.sink[number]) for number in range(batches, len(one.sink))] == [6] * 5
    assert queries.copies() == dict.fromkeys(queries.written, 1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"group.protocol": "cooperative"}, "group.id"),
        ({"group.protocol": "cooperative", "group.id": "g"}, "group.instance.id"),
        ({"group.protocol": "eager", "group.id": "g"}, "group.protocol"),
        ({"group.id": "g", "group.instance.id": "one"}, "group.protocol"),
        ({"group.id": "g", "group.keep.partitions": "true"}, "group.protocol"),
    ],
)
def test_options_that_do_not_go_together_are_refused(queries, options, match):
    made = source(queries.log.path, subscribe="t", **options)
    with pytest.raises(InvalidOption, match=match):
        made.streamReader(made.schema()).getDefaultReadLimit()


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"group.instance.id": "other"}, "give each query its own checkpoint"),
        ({"group.id": "other"}, "another group"),
    ],
)
def test_a_checkpoint_of_another_member_is_refused(queries, changed, match):
    (one,) = sharing(queries, "one")
    one.kill()
    one.options |= changed
    one.start()
    queries.append(1)
    with pytest.raises(InvalidOption, match=match):
        one.plan()


def test_a_checkpoint_of_a_query_that_did_not_share_is_refused(queries):
    one = queries.query("one")
    one.options = {"subscribe": "t", "startingOffsets": "earliest", "group.id": "g"}
    one.start()
    queries.append(1)
    assert one.batch()
    one.options |= {"group.protocol": "cooperative", "group.instance.id": "one"}
    one.start()
    with pytest.raises(InvalidOption, match="cannot become a member"):
        one.plan()
