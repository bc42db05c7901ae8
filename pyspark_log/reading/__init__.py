"""Reads rows without Spark: resolves positions, plans splits, and fetches their rows from the nearest replica."""
