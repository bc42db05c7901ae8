"""Metrics of a cluster in Prometheus' conventions: see docs/reference/metrics.md."""

from pyspark_log_storage.errors import InvalidInput

try:
    import prometheus_client  # noqa: F401 -- all modules here need it
except ImportError as missing:
    raise InvalidInput(
        f"metrics need prometheus-client, and it cannot be imported ({missing}); pip install prometheus-client"
    ) from None
