"""The alerts in examples/operations/prometheus-rules.yml: each is evaluated with what a cluster in trouble measures."""

import operator
import re
from pathlib import Path

import yaml

from pyspark_log.metrics.cluster_metrics import FAMILIES, PREFIX, measure
from pyspark_log_coordinator.log import node_admin
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable
from tests.support.coordinator.migrated_journals import cluster_of_six
from tests.support.memory_store import wipe
from tests.support.pyspark_log.three_nodes import ThreeNodes

FILE = Path(__file__).parents[3] / "examples" / "operations" / "prometheus-rules.yml"
LABELS = {PREFIX + name: set(labels) for name, _, *labels in FAMILIES}
COMPARISONS = {"==": operator.eq, ">": operator.gt}
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


def fires(expression, samples):
    """Evaluate an expression, as Prometheus does. The rules have but two kinds of them."""
    if found := re.fullmatch(r"absent\((\w+)\)", expression):
        return not [each for each in samples if each.name == found[1]]
    name, comparison, number = expression.split()
    return any(COMPARISONS[comparison](each.value, float(number)) for each in samples if each.name == name)


def alerts(log):
    """Return the alerts that fire for a cluster, without the first part of their names."""
    samples = [each for family in measure(log, lambda *_: None) for each in family.samples]
    return {rule["alert"].removeprefix("PysparkLog") for rule in RULES if fires(rule["expr"], samples)}


def test_a_cluster_that_is_well_raises_no_alert():
    assert alerts(ThreeNodes().log) == set()
    assert alerts(cluster_of_six().log()) == set()


def test_what_cannot_be_read_raises_its_alert(monkeypatch):
    def fail(error):
        def failing(*_, **__):
            raise error

        return failing

    log = ThreeNodes().log
    monkeypatch.setattr(log, "topic", fail(CorruptObject("an entry", "it is cut")))
    assert alerts(log) == {"Unreadable"}
    monkeypatch.setattr(log, "open", fail(StoreUnavailable("/log", "", "it is away")))
    assert alerts(log) == {"Down"}


def test_nodes_and_replicas_in_trouble_raise_theirs():
    nodes = ThreeNodes()
    nodes.disk("1").broken = StoreUnavailable
    assert alerts(nodes.log) == {"NodeDown", "UnderReplicatedPartitions"}, "before any row is written"
    nodes = ThreeNodes(min_insync_replicas=3)
    node_admin.set_fenced(nodes.log, "1", fenced=True)
    assert alerts(nodes.log) == {"UnderReplicatedPartitions", "UnderMinIsrPartitions"}
    nodes = ThreeNodes(replicas=[("1",), ("0",)])
    node_admin.set_fenced(nodes.log, "1", fenced=True)
    assert "OfflinePartitions" in alerts(nodes.log)


def test_a_journal_node_that_was_renewed_raises_an_alert_until_the_journals_are_migrated():
    six = cluster_of_six()
    six.log().create_topic("replicated", 1, replicas=[("0", "1")])  # placement by chance may leave the node out
    wipe(six.at["/disk/b"])
    node_admin.renew(six.log(), "1")
    assert alerts(six.log()) == {"JournalNodeDoesNotVote", "JournalsAtRisk", "UnderReplicatedPartitions"}


def test_a_rule_says_how_urgent_it_is_what_happened_and_what_to_do():
    for rule in RULES:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert re.fullmatch(r"[0-9]+[mh]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "action"}
        named = re.findall(r"pyspark_log_\w+", rule["expr"])
        assert named
        labels = {label for name in named for label in LABELS[name]}
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
