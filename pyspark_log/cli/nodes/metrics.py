"""`pyspark-log metrics`: the metrics of a cluster in Prometheus' format, once or at an endpoint."""

from __future__ import annotations

import re
import threading
from typing import Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.metrics import cluster_metrics, family
from pyspark_log.opening import canonical, own_log
from pyspark_log_storage.errors import LogError, NoCluster

_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])?:(?P<port>[0-9]{1,5})")
PORT_MAX = 65_535


@arguments.examples(
    "pyspark-log metrics",
    "pyspark-log metrics --listen 127.0.0.1:9308",
)
def metrics(
    path: arguments.Path,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the metrics at http://HOST:PORT/metrics until Ctrl-C, measured at each request. Needs "
            "prometheus-client.",
            show_default=False,
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Print the metrics of the cluster for Prometheus.

    They come from the journals: offsets, ISR, partitions in trouble and sizes of all topics, nodes, and the lag of
    groups. Requests to stores are those of this process. If something cannot be read, the rest is printed, and the
    exit code is 1.
    """
    if listen is not None and json:
        arguments.refuse("--json", "--listen serves Prometheus' format; omit one of the two")
    if listen is not None:
        _serve(path, *_address(listen))
        return
    log = own_log(path)
    errors: list[tuple[str, LogError]] = []
    families = cluster_metrics.measure(log, lambda what, error: errors.append((what, error)))
    for _, error in errors:
        if isinstance(error, NoCluster):
            raise error  # most likely a wrong address
    if json:
        output.print_json(*(family.document(each) for each in families if each.samples))
    else:
        typer.echo(family.text(families), nl=False)
    for what, error in errors:
        output.print_error(f"{what} could not be measured: {error.message}")
    if errors:
        raise typer.Exit(1)


def _address(text: str) -> tuple[str, int]:
    """Return host and port. End the program if it is no address."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > PORT_MAX:
        arguments.refuse("--listen", f"{text!r} is not HOST:PORT, such as 127.0.0.1:9308")
    return (found["host"] or "0.0.0.0").strip("[]"), int(found["port"])  # noqa: S104 -- as the user has typed it


def _serve(path: str, host: str, port: int) -> None:

    from pyspark_log.metrics.collector import ClusterCollector  # says which package is missing

    log = own_log(path)  # a wrong address is an error now; a cluster that does not answer may do so later
    try:
        log.open(create=False)
    except LogError as error:
        output.print_error(f"{error.message}; {cluster_metrics.PREFIX}up is 0 until the cluster can be read")
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
