"""A node, a leader and a journal node that do not answer are unhealthy, whoever shows them."""

from __future__ import annotations

import json

import pytest

from pyspark_log.browse.view import Watch
from pyspark_log.documents.verdict import Level
from pyspark_log.opening import own_log
from pyspark_log.ui import content, pages
from pyspark_log.ui.notebook import describe
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder


@pytest.fixture
def cli(tmp_path):
    """The journals, and topic t, are on nodes 0, 1 and 2, of which 1 leads; node 3 has nothing."""
    disks = [str(tmp_path / name) for name in "abc"]
    cli = CommandLine(",".join(disks))
    cli.run("cluster", "create", "--journal-nodes", cli.path)
    cli.run("nodes", "add", tmp_path / "d")
    cli.run("topics", "create", "t", "--replica-assignment", "1:0:2", "--config", "min.insync.replicas=3")
    return cli


def commands(cli):
    nodes = cli.documents("nodes", "list")
    journals = cli.documents("cluster", "describe")[0]["journal_nodes"]
    troubled = [cli.documents("topics", "describe", f"--under-{kind}-partitions") for kind in ("replicated", "min-isr")]
    offline = [node for [topic, *_] in filter(None, troubled) for node in topic["partitions"][0]["offline"]]
    return {
        "nodes": [each["node"] for each in nodes if each["missing"]],
        "journals": [each["node"] for each in journals if each["missing"]],
        "leaders": sorted(set(offline)),
    }


def metrics(cli):
    samples = {each["name"].removeprefix("pyspark_log_"): each["samples"] for each in cli.documents("metrics")}
    troubled = all(samples[name][0]["value"] for name in ("under_replicated_partitions", "under_min_isr_partitions"))
    return {
        "nodes": [each["labels"]["node"] for each in samples["node_up"] if not each["value"]],
        "journals": [each["labels"]["node"] for each in samples["journal_node_votes"] if not each["value"]],
        "leaders": ["1"] if troubled else [],
    }


def page(cli):
    view = Watch(own_log(cli.path), cli.path).look()
    shown = pages.render(
        "topic",
        view=view,
        settings={"allow_changes": False, "shows_rows": True},
        **content.topic(view, {"topic": "t"}),
    )
    found = {
        "nodes": [each["node"] for each in view.nodes if each["state"] == "missing"],
        "journals": [each["node"] for each in view.journals if each["missing"]],
        "leaders": ["1"] if "does not answer" in shown and "below min.insync.replicas" in shown else [],
    }
    assert (view.verdict[0].level is Level.GOOD) == (not any(found.values()))
    return found


def notebook(cli):
    cluster, topic = repr(describe(cli.path)).splitlines()
    silent = cluster.partition("do not vote in the journals: ")[2]
    return {
        "nodes": [each for each in "0123" if f"{each} (missing)" in cluster],
        "journals": silent.split(", ") if silent else [],
        "leaders": ["1"] if "under-replicated" in topic and "healthy" not in topic else [],
    }


@pytest.mark.parametrize("shown", [commands, metrics, page, notebook])
@pytest.mark.parametrize(("lost", "unhealthy"), [("", ("", "", "")), ("b", ("1", "1", "1")), ("d", ("3", "", ""))])
def test_what_does_not_answer_is_unhealthy_before_a_process_has_noticed(cli, tmp_path, shown, lost, unhealthy):
    if lost:
        lose_folder(tmp_path / lost)
    expected = dict(zip(("nodes", "journals", "leaders"), map(list, unhealthy), strict=True))
    assert shown(cli) == expected


def test_a_cluster_that_cannot_be_read_is_unhealthy(cli, tmp_path):
    watch = Watch(own_log(cli.path), cli.path)
    seen = watch.look()
    assert seen.verdict[0].level is Level.GOOD
    for name in "bc":
        lose_folder(tmp_path / name)
    for view in (watch.look(), Watch(own_log(cli.path), cli.path).look()):
        found = [each.words for each in view.verdict if each.level is Level.BAD]
        assert any("journal cannot be read" in each or "cluster cannot be read" in each for each in found)
    states = {each["node"]: each["state"] for each in watch.view.nodes}
    assert states == {"0": "live", "1": "missing", "2": "missing", "3": "live"}
    assert [each["node"] for each in watch.view.journals if each["missing"]] == ["1", "2"]
    assert any("a majority must" in each.words for each in watch.view.verdict)
    shown = pages.render("nodes", view=watch.view, **content.nodes(watch.view, {}))
    assert "Too many journal nodes do not vote" in shown
    assert "more of their stores may fail" not in shown
    samples = [json.loads(line) for line in cli.run("metrics", "--json", code=1).stdout.splitlines()]
    assert {each["name"]: each["samples"][0]["value"] for each in samples}["pyspark_log_up"] == 0
    assert "2 of 3 stores failed" in cli.error("nodes", "list")
