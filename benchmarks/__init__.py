"""Benchmarks: the product compared with the fastest possible Python data source on the same Spark."""
