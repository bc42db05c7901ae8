"""`pyspark-log metrics`: the metrics of a cluster in Prometheus' format, once or at an endpoint."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.command import Result, command
from pyspark_log.opening import canonical, own_log
from pyspark_log_storage.errors import LogError, NoCluster

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@command(
    "pyspark-log metrics",
    "pyspark-log metrics --listen 127.0.0.1:9308",
)
def metrics(
    path: arguments.Path,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the metrics at http://HOST:PORT/metrics until Ctrl-C, measured at each request.",
        ),
    ] = None,
    json: arguments.Json = False,
) -> Result:
    """Print the metrics of the cluster for Prometheus.

    They come from the journals: offsets, ISR, partitions in trouble and sizes of all topics, nodes, and the lag of
    groups. Requests to stores are those of this process. If something cannot be read, the rest is printed, and the
    exit code is 1. It needs pip install prometheus-client.
    """
    if listen is not None and json:
        arguments.refuse("--json", "--listen serves Prometheus' format; omit one of the two")
    if listen is not None:
        host, port = arguments.host_and_port(listen)
        _serve(path, host or "0.0.0.0", port)  # noqa: S104 -- as the user has typed it
        return Result([], text="")

    from pyspark_log.metrics.cluster_metrics import measure

    errors: list[tuple[str, LogError]] = []
    families = measure(own_log(path), lambda what, error: errors.append((what, error)))
    for _, error in errors:
        if isinstance(error, NoCluster):
            raise error  # most likely a wrong address
    from prometheus_client import generate_latest

    text = generate_latest(SimpleNamespace(collect=lambda: families)).decode()
    return Result(
        [_document(each) for each in families],
        [f"{what} could not be measured: {error.message}" for what, error in errors],
        text,
    )


def _document(family: Metric) -> dict[str, Any]:
    samples = [{"labels": each.labels, "value": each.value} for each in family.samples]
    name = family.samples[0].name  # a counter's family is called without _total
    return {"name": name, "type": family.type, "help": family.documentation, "samples": samples}


def _serve(path: str, host: str, port: int) -> None:
    from pyspark_log.metrics.cluster_metrics import PREFIX
    from pyspark_log.metrics.collector import ClusterCollector

    log = own_log(path)  # a wrong address is an error now; a cluster that does not answer may do so later
    try:
        log.open(create=False)
    except LogError as error:
        output.print_error(f"{error.message}; {PREFIX}up is 0 until the cluster can be read")
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(ClusterCollector(canonical(path)))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise LogError(f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --listen") from error
    try:
        typer.echo(f"metrics of {path} are at http://{host}:{server.server_port}/metrics", err=True)
        _wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.shutdown()
        server.server_close()


def _wait() -> None:
    """Wait for an interrupt."""
    threading.Event().wait()
