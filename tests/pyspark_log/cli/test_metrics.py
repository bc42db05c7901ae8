"""`pyspark-log metrics`: prints metrics, or serves them."""

import re
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyspark_log.cli.nodes import metrics
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="a\nb\n")
    return cli


def samples(text):
    return {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}


def test_metrics_are_printed_in_the_format_of_prometheus(cli):
    printed = cli.out("metrics")
    found = samples(printed)
    assert found["pyspark_log_partition_high_watermark"] == 2
    assert found["pyspark_log_offline_partitions"] == 0
    assert "# TYPE pyspark_log_topic_journal_entries_total counter\n" in printed


def test_for_machines_each_metric_is_a_document(cli):
    found = {each["name"]: each for each in cli.documents("metrics")}
    assert found["pyspark_log_partition_high_watermark"] == {
        "name": "pyspark_log_partition_high_watermark",
        "type": "gauge",
        "help": "Offset of the next row that readers will see.",
        "samples": [{"labels": {"topic": "t", "partition": "0"}, "value": 2}],
    }
    assert "omit one of the two" in cli.misuse("metrics", "--listen", "127.0.0.1:0", "--json")


def test_what_cannot_be_measured_is_an_error_after_the_rest(cli):
    cli.run("topics", "create", "u")
    for entry in (cli.path / "topics" / "u").glob("*/journal/**/*"):
        if entry.is_file():
            entry.write_bytes(b"damaged")
    from pyspark_log.opening import forget_logs

    forget_logs()
    done = cli.run("metrics", code=1)
    assert samples(done.stdout)["pyspark_log_unreadable"] == 1
    assert "topic u could not be measured: " in done.stderr


def test_an_endpoint_measures_at_each_request_until_it_is_interrupted(cli, monkeypatch):
    scraped, said = [], []

    def scrape_twice():
        (port,) = re.findall(r"http://127.0.0.1:(\d+)/metrics", said[0])
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                scraped.append(samples(answer.read().decode()))
            cli.run("produce", "t", stdin="c\n")
        raise KeyboardInterrupt

    echo = metrics.typer.echo
    monkeypatch.setattr(metrics.typer, "echo", lambda text, **how: (said.append(text), echo(text, **how)))
    monkeypatch.setattr(metrics, "_wait", scrape_twice)
    metrics._serve(str(cli.path), "127.0.0.1", 0)
    assert [each["pyspark_log_partition_high_watermark"] for each in scraped] == [2, 3]
    assert [each["pyspark_log_topic_journal_entries_total"] for each in scraped] == [2, 3]


def test_an_endpoint_starts_while_the_cluster_is_away_and_measures_it_when_it_is_back(cli, monkeypatch, capsys):
    elsewhere = cli.path.with_name("unmounted")
    cli.path.rename(elsewhere)
    scraped, said = [], []

    def scrape_before_and_after():
        (port,) = re.findall(r"http://127.0.0.1:(\d+)/metrics", said[-1])
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                scraped.append(samples(answer.read().decode()))
            if elsewhere.exists():
                elsewhere.rename(cli.path)
        raise KeyboardInterrupt

    echo = metrics.typer.echo
    monkeypatch.setattr(metrics.typer, "echo", lambda text, **how: (said.append(text), echo(text, **how)))
    monkeypatch.setattr(metrics, "_wait", scrape_before_and_after)
    metrics._serve(str(cli.path), "127.0.0.1", 0)
    assert "pyspark_log_up is 0 until the cluster can be read" in capsys.readouterr().err
    assert [each["pyspark_log_up"] for each in scraped] == [0, 1]
    assert "pyspark_log_partition_high_watermark" not in scraped[0]
    assert scraped[1]["pyspark_log_partition_high_watermark"] == 2


def test_a_cluster_that_is_away_is_measured_as_down(cli):
    (cli.path / "node").unlink()  # the marker
    done = cli.run("metrics", code=1)
    assert samples(done.stdout)["pyspark_log_up"] == 0
    assert "the cluster could not be measured: " in done.stderr


@pytest.mark.parametrize("text", ["9308", "host", "host:", "host:70000", "ho st:1", "http://host:1"])
def test_an_endpoint_needs_a_host_and_a_port(cli, text):
    assert f"'{text}' is not HOST:PORT" in cli.misuse("metrics", "--listen", text)


def test_an_endpoint_needs_its_package_and_says_which(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    monkeypatch.delitem(sys.modules, "pyspark_log.metrics.collector", raising=False)
    assert "pip install 'pyspark-log[metrics]'" in cli.error("metrics", "--listen", "127.0.0.1:0")


def test_an_address_that_is_in_use_is_an_error(cli):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen at 127.0.0.1:{port}: " in cli.error("metrics", "--listen", f"127.0.0.1:{port}")
