"""Metrics of a cluster in Prometheus' conventions: see docs/operations.md."""
