"""`pyspark-log metrics`: prints metrics, or serves them."""

import re
import socket
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyspark_log.cli.nodes import metrics
from pyspark_log.opening import forget_logs
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="a\nb\n")
    return cli


def samples(text):
    return {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}


def test_metrics_are_printed_for_prometheus_and_as_documents(cli):
    printed = cli.out("metrics")
    found = samples(printed)
    assert (found["pyspark_log_partition_high_watermark"], found["pyspark_log_offline_partitions"]) == (2, 0)
    assert "# TYPE pyspark_log_topic_journal_entries_total counter\n" in printed
    assert {each["name"]: each for each in cli.documents("metrics")}["pyspark_log_partition_high_watermark"] == {
        "name": "pyspark_log_partition_high_watermark",
        "type": "gauge",
        "help": "Offset of the next row that readers will see.",
        "samples": [{"labels": {"topic": "t", "partition": "0"}, "value": 2}],
    }


def test_what_cannot_be_measured_is_an_error_after_the_rest(cli):
    cli.run("topics", "create", "u")
    for entry in (cli.path / "topics" / "u").glob("*/journal/**/*"):
        if entry.is_file():
            entry.write_bytes(b"damaged")
    forget_logs()
    done = cli.run("metrics", code=1)
    assert samples(done.stdout)["pyspark_log_unreadable"] == 1
    assert "topic u could not be measured: " in done.stderr
    (cli.path / "node").unlink()  # the marker
    done = cli.run("metrics", code=1)
    assert samples(done.stdout)["pyspark_log_up"] == 0
    assert "the cluster could not be measured: " in done.stderr


def test_an_endpoint_measures_at_each_request_also_a_cluster_that_is_away_at_first(cli, monkeypatch, capsys):
    away = cli.path.with_name("unmounted")
    cli.path.rename(away)
    scraped, said = [], []

    def scrape():
        [port] = re.findall(r"http://127.0.0.1:(\d+)/metrics", said[-1])
        for number in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                scraped.append(samples(answer.read().decode()))
            if number == 0:
                away.rename(cli.path)
            else:
                cli.run("produce", "t", stdin="c\n")
        raise KeyboardInterrupt

    echo = metrics.typer.echo
    monkeypatch.setattr(metrics.typer, "echo", lambda text, **how: (said.append(text), echo(text, **how)))
    monkeypatch.setattr(metrics, "_wait", scrape)
    metrics._serve(str(cli.path), "127.0.0.1", 0)
    assert "pyspark_log_up is 0 until the cluster can be read" in capsys.readouterr().err
    assert [each["pyspark_log_up"] for each in scraped] == [0, 1, 1]
    for name in ("partition_high_watermark", "topic_journal_entries_total"):
        assert [each.get(f"pyspark_log_{name}") for each in scraped] == [None, 2, 3]


def test_an_endpoint_needs_a_host_and_a_free_port(cli):
    for text in ("9308", "host", "host:", "host:70000", "ho st:1", "http://host:1"):
        assert f"'{text}' is not HOST:PORT" in cli.misuse("metrics", "--listen", text)
    assert "omit one of the two" in cli.misuse("metrics", "--listen", "127.0.0.1:0", "--json")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen at {address}: " in cli.error("metrics", "--listen", address)


@pytest.mark.parametrize("how", [[], ["--json"], ["--listen", "127.0.0.1:0"]])
def test_metrics_need_prometheus_client(cli, monkeypatch, how):
    for name in ("pyspark_log.metrics", "pyspark_log.metrics.cluster_metrics", "pyspark_log.metrics.collector"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert "pip install prometheus-client" in cli.error("metrics", *how)
    assert "pip install prometheus-client" in cli.out("metrics", "--help")
