"""Segments that are Parquet files, which any engine can read."""
