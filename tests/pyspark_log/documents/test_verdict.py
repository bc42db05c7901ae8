"""The verdict on a cluster names what is wrong, and nothing that is not known is good."""

from __future__ import annotations

import pytest

from pyspark_log.documents.figures import Figures, OnNode
from pyspark_log.documents.verdict import Level, spare, unread, verdict
from pyspark_log_coordinator.log.partition_health import Trouble


def node(name, state="live", leads=0):
    return {"node": name, "state": state, "has": OnNode(leads=leads)}


def journals(*silent, of=3):
    return [{"node": str(n), "missing": "no marker" if str(n) in silent else None} for n in range(of)]


LIVE = (node("0"),)


def found(nodes=LIVE, votes=(), topics=None, groups=(), problem="", age_ms=0):
    return verdict(nodes, votes, topics or {}, groups, problem, age_ms)


def ill(kind, count):
    return {"t": (Figures(troubles={kind: count}), "")}


def test_a_cluster_without_findings_is_good_and_one_that_was_not_read_is_not_known():
    assert [each.level for each in found(votes=journals())] == [Level.GOOD]
    assert unread("").level is Level.UNKNOWN
    assert (unread("the bucket is away").level, "the bucket is away" in unread("the bucket is away").words) == (
        Level.BAD,
        True,
    )


@pytest.mark.parametrize(
    ("given", "level", "words"),
    [
        ({"nodes": [node("1", "missing", 54)]}, Level.BAD, "Node 1 does not answer, and still leads 54 partitions."),
        ({"nodes": [node("0", "full")]}, Level.BAD, "Node 0 has a full disk."),
        ({"nodes": [node("0", "fenced")]}, Level.WARN, "Node 0 is fenced"),
        ({"nodes": [node("0", "unknown")]}, Level.UNKNOWN, "nobody knows whether it answers"),
        ({"votes": journals("1")}, Level.WARN, "node 1 does not vote; one more failure stops all reads and writes"),
        ({"votes": journals("1", of=5)}, Level.WARN, "node 1 does not vote; 1 more may fail"),
        ({"votes": journals("1", "2")}, Level.BAD, "2 of 3 journal nodes do not vote (1, 2), and a majority must."),
        ({"topics": ill(Trouble.UNAVAILABLE, 3)}, Level.BAD, "3 partitions of t without a leader"),
        ({"topics": ill(Trouble.UNDER_REPLICATED, 1)}, Level.WARN, "1 partition of t under-replicated"),
        ({"topics": ill(Trouble.AT_MIN_ISR, 1)}, Level.GOOD, "all of its replicas in sync"),
        ({"topics": {"t": (Figures(), "it is damaged")}}, Level.BAD, "1 topic cannot be read: t."),
        ({"groups": ["g"]}, Level.WARN, "1 group cannot be read: g."),
        ({"problem": "2 of 3 stores failed"}, Level.BAD, "journal cannot be read: 2 of 3 stores failed"),
        ({"age_ms": 16_000}, Level.UNKNOWN, "Nothing could be read for 16 s"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(given, level, words):
    [first, *rest] = found(**given)
    assert (first.level, words in first.words, rest) == (level, True, [])


def test_the_worst_comes_first_and_many_topics_are_not_all_named():
    topics = {f"t{n}": (Figures(troubles={Trouble.UNDER_REPLICATED: 2}), "") for n in range(5)}
    levels = found(nodes=[node("0", "fenced"), node("1", "full")], topics=topics, age_ms=11_000)
    assert [each.level for each in levels] == [Level.BAD, Level.WARN, Level.WARN, Level.UNKNOWN]
    assert "10 partitions of t0, t1, t2 and 2 more" in levels[2].words
    assert spare(journals("1", "2")) == -1
