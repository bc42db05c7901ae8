"""Numbers over time from what journals did: rates, lag and ISR, with gaps where nothing is known."""

from __future__ import annotations

from types import SimpleNamespace

from pyspark_log.documents import history
from pyspark_log.documents.figures import Figures, OnNode
from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope

T, G = (Scope.TOPIC, "t"), (Scope.GROUP, "g")


def moment(ms, scope=Scope.TOPIC, name="t", lane=Lane.BATCHES, words="words", **more):
    return Moment(lane, words, time_ms=ms, scope=scope, name=name, entry=1, **more)


def journal(*moments, begin=1, begin_ms=0, problem=""):
    return SimpleNamespace(moments=list(moments), begin=begin, begin_ms=begin_ms, problem=problem)


SPAN = history.Span(0, 4000, 1000, 4000)


def test_rates_are_those_of_whole_steps():
    known = {T: journal(moment(500, rows=10, bytes=100), moment(1000, rows=10), moment(3500, rows=4))}
    assert history.rates(known, [T], SPAN, "rows", "bytes") == [[20, 0, 0, 4], [100, 0, 0, 0]]
    assert history.rates(known, [T], SPAN._replace(now=3500), "rows") == [[20, 0, 0, None]]


def test_what_is_not_known_is_a_gap():
    trimmed = {T: journal(moment(2500, rows=5), begin=7, begin_ms=1500)}
    assert history.rates(trimmed, [T], SPAN, "rows") == [[None, None, 5, 0]]
    assert history.rates({}, [T], SPAN, "rows") == [[None] * 4]
    assert history.rates({T: journal(problem="damaged")}, [T], SPAN, "rows") == [[None] * 4]
    assert history.lag(trimmed | {G: journal()}, "g", ["t"], 5, SPAN) == [None, 0, 5, 5]


def test_lag_is_that_of_now_before_what_has_changed_it_since():
    commits = journal(moment(2500, Scope.GROUP, "g", Lane.COMMITS, committed=15))
    known = {T: journal(moment(500, rows=10), moment(1500, rows=10)), G: commits}
    assert history.lag(known, "g", ["t"], 5, SPAN) == [10, 20, 5, 5]
    assert history.trend([10.0, 20.0, None, 0.0], SPAN) == -10 / 3
    assert history.trend([None, None, None, 5.0], SPAN) is None


def test_replicas_that_are_not_in_sync_are_counted_back_from_those_of_now():
    figures = {"t": Figures(nodes={"0": OnNode(replicas=3, in_sync=3), "1": OnNode(replicas=3, in_sync=1)})}
    known = {T: journal(moment(1500, lane=Lane.ISR, in_sync=-3), moment(2500, lane=Lane.ISR, in_sync=1))}
    assert history.out_of_sync(known, figures, SPAN) == [0, 3, 2, 2]


def test_the_batches_of_a_query_have_the_time_since_the_one_before():
    known = {T: journal(*(moment(at, rows=1, producer="q") for at in (0, 2000, 3000)), moment(9, rows=1))}
    [found] = history.batches(known)
    assert (found.name, found.topic, found.rows, found.typical) == ("q", "t", 3, 2.0)
    assert history.intervals(found, SPAN) == [None, 2.0, 1.0, None]


def test_a_rebalance_is_one_event_and_two_are_two():
    words = [
        "a rebalance began",
        "member a joined",
        "generation 1 began, with 1 member",
        "the work of generation 1 was assigned",
    ]
    moments = [moment(at * 10, Scope.GROUP, "g", Lane.REBALANCES, each) for at, each in enumerate(words * 2)]
    found, total = history.listed([*moments, moment(5)], 10, [Lane.REBALANCES])
    assert (total, [each.words for each in found]) == (2, ["; ".join(words)] * 2)


def test_the_rolls_of_one_entry_are_one_event_and_batches_are_events_of_their_own():
    rolls = [moment(5, lane=Lane.SEGMENTS, words=f"roll {each}") for each in range(10)]
    found, total = history.listed([*rolls, moment(5), moment(5)], 10, list(Lane))
    assert total == 3
    assert [each.words for each in found if each.lane is Lane.SEGMENTS] == [
        "roll 0; roll 1; roll 2; roll 3; roll 4; roll 5; roll 6; roll 7; and 2 more"
    ]
