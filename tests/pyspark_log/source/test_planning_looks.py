"""Planning a micro-batch looks once at each journal and at the nodes: on a network file system each look costs."""

import collections

import pytest

from pyspark_log_coordinator.journal import single_store
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.log.log import Log
from tests.support.direct import Stream
from tests.support.plain_log import PlainLog


@pytest.fixture
def looks(monkeypatch) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    refresh, probe = Journal.refresh, Log.probe_nodes

    def counted_refresh(journal):
        counts[journal.folder.partition("/")[0]] += 1
        return refresh(journal)

    def counted_probe(log):
        counts["nodes"] += 1
        probe(log)

    # What is known stays recent, however busy the machine is.
    monkeypatch.setattr(single_store, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(single_store, "REFRESH_SECONDS", 3600.0)
    monkeypatch.setattr(Journal, "refresh", counted_refresh)
    monkeypatch.setattr(Log, "probe_nodes", counted_probe)
    return counts


def test_a_micro_batch_is_planned_with_one_look_at_each_journal_and_at_the_nodes(tmp_path, looks):
    log = PlainLog(tmp_path)
    for topic in ("a", "b"):
        log.create(topic, 2)
    stream = Stream(tmp_path, subscribe="a,b", startingOffsets="earliest")
    stream.batch()
    log.append("a", {0: [b"1"], 1: [b"2"]})
    log.append("b", {0: [b"3"]})
    looks.clear()
    assert stream.batch() is not None
    assert looks == {"cluster": 1, "topics": 2, "nodes": 1}
