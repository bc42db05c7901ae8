"""A collector for prometheus-client: the metrics of a cluster, measured anew for each scrape.

    from prometheus_client import REGISTRY
    from pyspark_log.metrics.collector import ClusterCollector

    REGISTRY.register(ClusterCollector("/data/log"))

So a program with a Producer or a Consumer serves them beside its own metrics, with the requests that it makes itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from pyspark_log.metrics.cluster_metrics import measure
from pyspark_log.opening import own_log
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from pyspark_log_storage.stores.storage_options import StorageOptions


class ClusterCollector(Collector):
    """Measures the cluster at an address. For any number of threads."""

    def __init__(self, path: str, options: StorageOptions | None = None) -> None:
        """Read nothing yet. `options` of the stores are those of the environment unless given.

        Raises `InvalidOption`.
        """
        self._log = own_log(path, options)
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        """What could not be measured the last time."""

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not measure."""
        return []

    def collect(self) -> list[Metric]:
        """Return the metrics as they are now. What cannot be read is logged, and left out."""
        failed: set[str] = set()

        def note(what: str, error: LogError) -> None:
            failed.add(what)
            self._log.failures.note(("measure", what), error, "%(what)s could not be measured: %(error)s", what=what)

        with self._lock:
            families = measure(self._log, note)
            for what in self._failed - failed:
                self._log.failures.end(("measure", what), "%(what)s can be measured again, or is gone", what=what)
            self._failed = failed
        return families
