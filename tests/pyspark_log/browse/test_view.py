"""What a look at a cluster finds, beside a plain recount, and when something is wrong with the cluster."""

from __future__ import annotations

import re
import shutil
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log.browse.view import Watch
from pyspark_log.documents.cluster import FULL_BYTES
from pyspark_log.documents.figures import figures_of
from pyspark_log.documents.text import size
from pyspark_log.documents.verdict import Level
from pyspark_log.opening import own_log
from pyspark_log.reading.groups import lags_in
from pyspark_log.ui import content, pages
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.state import CommittedOffset
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.partition_health import troubles
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync.replica_file import ids, missing
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores import reserve
from tests.support.command_line import on_three_nodes
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.counted_bucket import CountedCluster
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.compacted_log import CompactedLog

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1), st.sampled_from([("0", "1", "2"), ("0", "1"), ("1",)])),
    st.tuples(st.just("delete"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("fence"), st.sampled_from(ALL)),
    st.tuples(st.just("return"), st.sampled_from(ALL)),
    st.tuples(st.just("copy"), st.sampled_from(ALL)),
)


def step(made, what):
    match what:
        case "append", number, on:
            made.append({number: [b"row"]}, on=on)
        case "delete", number, rows:
            partition = made.partition(number)
            made.handle.submit(DeleteRecords(number, min(partition.log_start + rows, partition.high_watermark)))
        case ("fence" | "return") as kind, node:
            incarnation = made.handle.state.incarnations[node]
            made.handle.submit(AlterReplicaNode(node, incarnation, fenced=kind == "fence"))
        case "copy", node:
            state = made.handle.state
            made.handle.submit(HoldFiles(node, state.incarnations[node], *ids(missing(state, node))))


def recounted(topic):
    """Return rows, ends, bytes, troubles, and what each node has but for bytes, counted one by one."""
    rows = ends = size = 0
    kinds, nodes = Counter(), {}
    for each in topic.partitions:
        rows += each.high_watermark - each.log_start
        ends += each.high_watermark
        size += sum(piece.length for piece in (*each.segments, *each.chunks))
        kinds.update(set(troubles(each, topic.config, ())))
        for node in each.replicas:
            count = nodes.setdefault(node, [0, 0, 0, 0])
            behind = each.log_end - each.log_end_offsets.get(node, each.log_start)
            for index, more in enumerate([1, each.leader == node, node in each.isr, behind]):
                count[index] += more
    return rows, ends, size, dict(kinds), nodes


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_figures_are_those_of_a_recount(steps):
    made = ReplicatedTopic(replicas=(ALL, ("1", "2", "0")))
    for each in steps:
        try:
            step(made, each)
        except LogError:
            continue  # refused
        state = made.handle.refresh()
        found = figures_of(state, frozenset())
        nodes = {node: [has.replicas, has.leads, has.in_sync, has.behind] for node, has in found.nodes.items()}
        assert (found.rows, found.ends, found.bytes, found.troubles, nodes) == recounted(state)


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path / "log")
    for name in ("a", "b"):
        log.create(name, 2)
        log.append(name, {0: [b"x"]})
    return log


def watch_of(log):
    watch = Watch(own_log(log.path), log.path)
    watch.look()
    return watch


def test_a_look_finds_what_has_been_written_deleted_and_created_since(log):
    watch = watch_of(log)
    log.append("a", {1: [b"x", b"y"]})
    assert watch.look().topics["a"].figures.rows == 3
    log.delete("a")
    view = watch.look()
    assert (set(view.topics), view.problem) == ({"b"}, "")
    log.create("a", 1)
    assert watch.look().topics["a"].figures.rows == 0


def test_a_cluster_that_is_gone_keeps_what_was_seen_says_why_and_comes_back(log, tmp_path):
    watch = watch_of(log)
    shutil.move(tmp_path / "log", tmp_path / "away")
    view = watch.look()
    assert view.problem or all(each.problem for each in view.topics.values())
    assert view.topics["a"].figures.rows == 1
    shutil.move(tmp_path / "away", tmp_path / "log")
    view = watch.look()
    assert not view.problem
    assert not any(each.problem for each in view.topics.values())


@pytest.mark.parametrize(("left", "said"), [(FULL_BYTES - 1, "✕ full"), (FULL_BYTES, "✓ live")])
def test_a_node_whose_disk_has_no_room_left_is_full(log, monkeypatch, left, said):
    monkeypatch.setattr(reserve, "_free", lambda _: left)
    view = watch_of(log).look()
    assert [(each["state"], each["free"]) for each in view.nodes] == [(said[2:], left)]
    page = pages.render("nodes", view=view, **content.nodes(view, {}))
    assert (said in page, size(left) in page) == (True, True)
    assert (view.verdict[0].level is Level.GOOD) == (said == "✓ live")


def test_a_fenced_node_is_said_to_be_fenced():
    made = ReplicatedTopic()
    node_admin.set_fenced(made.log, "1", fenced=True)
    nodes = Watch(made.log, "/cluster").look().nodes
    assert {each["node"]: each["state"] for each in nodes} == {"0": "live", "1": "fenced", "2": "live"}


def test_offsets_of_partitions_that_a_topic_does_not_have_yet_make_no_lag(log):
    watch = watch_of(log)
    topic, group = watch.view.topics["a"], log.log.group("g", create=True)
    at = CommittedOffset(0, 0, "", 0)
    state = msgspec.structs.replace(group.state, offsets={topic.topic.topic_id: {0: at, 2: at}})
    topics = {topic.topic.topic_id: ("a", topic.topic.partitions)}
    assert [each.partition for each in lags_in(state, topics)] == [0]


def test_a_topic_whose_journal_is_damaged_says_so_beside_the_others(log, tmp_path):
    watch = watch_of(log)
    log.append("a", {0: [b"y"]})
    log.append("b", {0: [b"y"]})
    number = log.newest_entry("a").name
    for entry in (tmp_path / "log").glob(f"topics/a/*/journal/entries/{number}"):
        entry.write_bytes(b"no entry")
    view = watch.look()
    assert view.topics["a"].problem
    assert view.topics["a"].figures.rows == 1
    assert not view.topics["b"].problem
    assert view.topics["b"].figures.rows == 2
    fresh = watch_of(log).view.topics["a"]
    assert fresh.problem


def test_a_topics_page_counts_rows_and_not_offsets_and_one_without_rows_has_no_time(log, tmp_path):
    compacted = CompactedLog(tmp_path / "compacted")
    compacted.add([b"a"] * 10)
    compacted.clean()
    compacted.add([b"b"])
    shown = topic_page(watch_of(compacted).look(), "t")
    cells = re.findall(r'<td class="n">([^<]*)</td>', shown[shown.index("<tbody>") :])
    assert cells[:5] == ["0", "0", "11", "11", "2"], "epoch, log start, HW, LEO and rows"
    log.create("new", 1)
    shown = topic_page(watch_of(log).look(), "new")
    assert "From the first row to the newest, by the rows' timestamps" in shown


def test_a_bucket_that_is_gone_is_not_healthy_at_once_and_stays_so_until_it_is_back(monkeypatch):
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b"):
        cluster.log.create(name, 1)
    watch = Watch(own_log(cluster.path), cluster.path)
    assert watch.look().verdict[0].level is Level.GOOD

    def gone(*_, **__):
        raise LogError("the bucket is gone")

    with monkeypatch.context() as away:
        for call in ("read", "list", "size", "exists"):
            away.setattr(cluster.bucket, call, gone)
        levels = []
        for _ in range(90):
            cluster.now += 1
            levels.append(watch.look().verdict[0].level)
    assert Level.GOOD not in levels[1:]
    assert watch.view.is_stale
    for _ in range(30):
        cluster.now += 1
        watch.look()
    assert watch.view.verdict[0].level is Level.GOOD


def test_what_was_seen_too_long_ago_is_not_known_now(log, monkeypatch):
    watch = watch_of(log)
    seen = watch.look()
    old = msgspec.structs.replace(seen, now_ms=seen.at_ms + 16_000)
    assert (seen.status, old.status, old.verdict[0].level) == ("live", "stale", Level.UNKNOWN)
    for page in ("topics", "nodes"):
        content_of = getattr(content, page)
        shown = [pages.render(page, view=each, **content_of(each, {})) for each in (seen, old)]
        assert ["sign good" in each for each in shown] == [True, False]


def test_partitions_in_which_a_group_has_committed_nothing_count_in_its_lag(log):
    log.append("a", {1: [b"x"] * 3})
    log.log.group("g", create=True).reset_offsets({log.log.topic("a").topic_id: {0: Offset(0, 0)}})
    group = watch_of(log).view.groups["g"]
    assert (group.lag, group.lag_of("a"), group.unstarted) == (4, 4, {"a": {1: 3}})


def test_a_node_that_ceases_to_answer_and_answers_again_is_an_event(tmp_path):
    cli = on_three_nodes(tmp_path)
    watch = Watch(own_log(str(cli.path)), str(cli.path))
    watch.look()
    moved = next(each["address"] for each in watch.view.nodes if each["node"] == "1")
    shutil.move(moved, tmp_path / "away")
    watch.look()
    shutil.move(tmp_path / "away", moved)
    assert [each.words for each in watch.look().noticed] == ["node 1 does not answer", "node 1 answers again"]


def topic_page(view, name):
    settings = {"allow_changes": False, "shows_rows": True}
    return pages.render("topic", view=view, settings=settings, **content.topic(view, {"topic": name}))
