"""The report at the end of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flights.driver import Driver
    from flights.incidents import Incidents
    from flights.progress import Unfinished
    from rich.console import Console

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.topic_state import Topic

COLUMNS_BESIDE_CHART = 46
CHART_COLUMNS_MAX = 60


def print_delays(console: Console, carriers: dict[str, list[int]]) -> None:
    """Print the carriers, the latest first, with a bar for each one's mean arrival delay."""
    means = {carrier: _means(sums) for carrier, sums in carriers.items()}
    ranked = sorted(means, key=lambda carrier: (means[carrier][1] is None, -(means[carrier][1] or 0)))
    arrivals = [arrival for _, arrival in means.values() if arrival is not None]
    low, high = min([0.0, *arrivals]), max([0.0, *arrivals])
    columns = max(10, min(CHART_COLUMNS_MAX, console.width - COLUMNS_BESIDE_CHART))
    table = Table(title="Delays by carrier, in minutes", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    table.add_column("Carrier")
    table.add_column("Flights", justify="right")
    table.add_column("Departure", justify="right")
    table.add_column("Arrival", justify="right")
    table.add_column(_axis(low, high, columns), no_wrap=True)
    for carrier in ranked:
        departure, arrival = means[carrier]
        chart = Text() if arrival is None else bar(arrival, low, high, columns)
        table.add_row(carrier, f"{carriers[carrier][0]:,}", _minutes(departure), _minutes(arrival), chart)
    console.print(table)


def bar(value: float, low: float, high: float, columns: int) -> Text:
    """Return a bar from the zero between `low` and `high` to `value`, with half a column's precision."""
    scale = columns / ((high - low) or 1)
    zero = round(-low * scale)
    halves = round(abs(value) * scale * 2)
    full, half = divmod(halves, 2)
    if value < 0:
        drawn = ("▐" if half else "") + "█" * full
        return Text(" " * (zero - len(drawn)) + drawn, style="green")
    return Text(" " * zero + "█" * full + ("▌" if half else ""), style="red")


def _axis(low: float, high: float, columns: int) -> str:
    zero = bar(0, low, high, columns).cell_len
    return f"{'early ' if zero > 5 else '':>{zero}}| late"


def print_happened(console: Console, lines: Iterable[tuple[Driver, int, Unfinished]]) -> None:
    """Print, for each program, its micro-batches, kills and replays."""
    table = Table(title="The programs", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    for column in ("", "Batches", "Killed", "Restarted", "Batch at the kill", "Replays"):
        table.add_column(column, justify="left" if column in {"", "Batch at the kill"} else "right")
    for driver, batches, unfinished in lines:
        table.add_row(
            driver.name,
            str(batches),
            f"{driver.kills} x at {unfinished.percent} %",
            f"{driver.starts - 1} x",
            _at_the_kill(unfinished),
            str(int(unfinished.is_replay)),
        )
    console.print(table)


def print_nodes(console: Console, log: Log, topic: Topic, happened: Incidents, elsewhere: int) -> None:
    """Print what happened to each node, and its state at the end.

    `elsewhere` is the number of times that the reader found the damaged file, and read from another node.
    """
    silent = log.journals.missing_nodes()
    table = Table(title="The nodes", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    for column in ("", "What happened", "What followed", "In sync", "Leads", "Journals"):
        table.add_column(column, justify="right" if column in {"In sync", "Leads"} else "left")
    for node in log.cluster.state.nodes:
        table.add_row(
            f"node {node}",
            *_incident(node, happened, elsewhere),
            f"{sum(node in each.isr for each in topic.partitions)} of {len(topic.partitions)}",
            str(sum(node == each.leader for each in topic.partitions)),
            "no" if node in silent else "yes",
        )
    console.print(table)


def _incident(node: str, happened: Incidents, elsewhere: int) -> tuple[str, str]:
    if node == happened.wiped:
        return "lost its disk", f"next batch after {happened.seconds:.1f} s"
    if node == happened.damaged:
        return "a damaged file", f"{elsewhere} x read elsewhere"
    return "", ""


def _at_the_kill(unfinished: Unfinished) -> str:
    if unfinished.planned == unfinished.committed:
        return f"{unfinished.committed} done"
    return f"{unfinished.planned} " + ("done, but not recorded" if unfinished.is_replay else "half done")


def _means(sums: list[int]) -> tuple[float | None, float | None]:
    _, departure, departed, arrival, arrived = sums
    return (departure / departed if departed else None, arrival / arrived if arrived else None)


def _minutes(mean: float | None) -> str:
    return "" if mean is None else f"{mean:+.1f}"
