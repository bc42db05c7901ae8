"""The page: the processor time until a viewer sees it in a cluster with many partitions, and what an open page costs.

Measured without a browser and its network: what the server does for a first request, and then twice a second.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.prefill import Producer
from benchmarks.report import Line, at_most, detail, information
from pyspark_log.browse.view import Watch
from pyspark_log.opening import open_log, own_log
from pyspark_log.ui import content, pages
from pyspark_log.ui.screens import Screen
from pyspark_log.ui.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_log.browse.view import ClusterView

TOPICS = 100
FIRST_PAINT_MS = 1_000
RUNS = 5
MILLI = 1_000


def measure_ui(folder: Path, partitions: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about the page of a cluster with `TOPICS` topics of so many partitions."""
    every = f"{TOPICS * partitions:,} partitions"
    log(f"the page of a cluster with {every}")
    path = str(folder / "ui")
    cluster = open_log(path, create=True)
    for number in range(TOPICS):
        Producer(cluster, f"topic-{number:03}", partitions, 1).send(2)
    first, later = [], []
    for _ in range(RUNS):
        begun = time.process_time()
        watch = Watch(own_log(path), path)
        _rendered("overview", watch.look(), content.overview)
        first.append((time.process_time() - begun) * MILLI)
        begun = time.process_time()
        _rendered("overview", watch.look(), content.overview)
        later.append((time.process_time() - begun) * MILLI)
    view = Watch(own_log(path), path).look()
    begun = time.process_time()
    _rendered("topics", view, content.topics)
    topics = (time.process_time() - begun) * MILLI
    name = f"page of the cluster, {every}, read and drawn for the first time"
    paint = statistics.median(first)
    return [
        Line(name, "ms", paint, target=at_most(FIRST_PAINT_MS, "ms")),
        information("the same once more, as twice a second while it is open", "ms", statistics.median(later)),
        detail("page of all topics, drawn", "ms", topics),
    ]


def _rendered(page: str, view: ClusterView, content_of: content.Content) -> str:
    settings = Settings(path=view.address)
    context = content_of(view, {})
    drawn = pages.render(page, view=view, settings=settings, secret="", **context)
    return pages.document_of(page, Screen(drawn, context["title"]), view)
