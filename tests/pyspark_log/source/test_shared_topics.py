"""Queries that share a topic in one group: each row is read by one of them, also after kills and expired sessions."""

import random

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_log import opening
from pyspark_log.reading import stream_planner
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_storage.errors import FencedMember
from tests.support.pyspark_log.source.shared_queries import Clock, Queries


@pytest.fixture
def queries(root, monkeypatch):
    """No thread acts by itself, no call waits for rows, and the processes have one clock."""
    monkeypatch.setattr(opening, "real_environment", Clock().environment)
    monkeypatch.setattr(MemberThread, "start", lambda _: None)
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)
    return Queries(str(root))


def test_two_queries_share_the_partitions_and_each_row_is_processed_once(queries):
    one = queries.query("one")
    queries.append(10)
    queries.settle()
    assert one.planned == {0, 1, 2, 3, 4, 5}
    two = queries.query("two")
    queries.append(10)
    queries.settle()
    assert one.planned | two.planned == {0, 1, 2, 3, 4, 5}
    assert len(one.planned) == len(two.planned) == 3
    queries.append(10)
    queries.settle()
    assert queries.copies() == dict.fromkeys(queries.written, 1)


NAMES = ("one", "two", "three")
SCHEDULES = 12
STEPS = 60


def act_at_random(queries, dice, *, expires):
    """Let chance kill and start queries, at any moment of their batches; return the last batches of fenced ones."""
    doubtful = set()
    for _ in range(STEPS):
        query = dice.choice(queries.all)
        act = dice.choice(["append", "act", "act", "batch", "batch", "plan", "execute", "kill", "start", "expire"])
        if act == "append":
            queries.append(dice.randrange(1, 4))
        elif act == "act":
            queries.act()
        elif act == "expire":
            if expires:
                queries.expire(query)
        elif act == "start" and query.reader is None:
            query.start()
        elif query.reader is not None:
            try:
                step(query, act, ReadMaxRows(dice.randrange(1, 20)))
            except FencedMember:
                doubtful |= replaced(queries, query)
    return doubtful


def step(query, act, limit):
    has_begun = len(query.offsets) > query.commits
    if act == "kill":
        query.kill()
    elif act == "batch":
        query.batch(limit)
    elif act == "plan" and not has_begun:
        query.plan(limit)
    elif act == "execute" and has_begun:
        query.execute()


def replaced(queries, query):
    """Start a query with a new checkpoint in place of one that was fenced; return the rows of its last batch."""
    query.kill()
    queries.gone.append(query)
    queries.all.remove(query)
    queries.query(f"{query.name}-{len(queries.gone)}")
    return set(query.sink.get(max(query.sink, default=0), []))


def finish(queries):
    """Start all queries again and run them until all is read; return the last batches of those that are fenced."""
    doubtful = set()
    while True:
        for each in queries.all:
            if each.reader is None:
                each.start()
        try:
            queries.settle()
        except FencedMember:
            fenced = next(each for each in queries.all if each.is_fenced)
            doubtful |= replaced(queries, fenced)
        else:
            return doubtful


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_each_row_is_processed_once_whenever_queries_are_killed_and_started(queries, seed):
    dice = random.Random(seed)
    for name in NAMES:
        queries.query(name)
    act_at_random(queries, dice, expires=False)
    finish(queries)
    assert queries.gone == []
    assert set(queries.copies()) == set(queries.written)
    assert set(queries.copies().values()) <= {1}


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_if_sessions_expire_no_row_is_lost_and_only_fenced_queries_may_have_read_rows_again(queries, seed):
    dice = random.Random(seed)
    for name in NAMES:
        queries.query(name)
    doubtful = act_at_random(queries, dice, expires=True)
    doubtful |= finish(queries)
    copies = queries.copies()
    assert set(copies) == set(queries.written)
    assert {row for row, times in copies.items() if times > 1} <= doubtful
