"""Prometheus' text format, as its own client reads it."""

from prometheus_client.parser import text_string_to_metric_families

from pyspark_log.metrics.family import Family, MetricKind, text


def test_what_is_written_is_what_prometheus_reads():
    lag = Family("lag", MetricKind.GAUGE, 'Rows, "behind"\nor \\ not.', ("group", "partition"))
    lag.add(7, 'a "group"\n\\', 0)
    lag.add(2**53, "b", 1)
    requests = Family("requests_total", MetricKind.COUNTER, "Requests.")
    requests.add(3)
    found = list(text_string_to_metric_families(text([lag, requests])))
    assert [(each.name, each.type, each.documentation) for each in found] == [
        ("lag", "gauge", 'Rows, "behind"\nor \\ not.'),
        ("requests", "counter", "Requests."),
    ]
    assert [(each.labels, each.value) for each in found[0].samples] == [
        ({"group": 'a "group"\n\\', "partition": "0"}, 7),
        ({"group": "b", "partition": "1"}, 2**53),
    ]
    assert [(each.name, each.labels, each.value) for each in found[1].samples] == [("requests_total", {}, 3)]


def test_a_family_without_samples_is_left_out():
    assert text([Family("lag", MetricKind.GAUGE, "Rows.", ("group",))]) == ""
