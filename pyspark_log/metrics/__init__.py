"""Metrics of a cluster in Prometheus' conventions: see docs/reference/metrics.md."""
