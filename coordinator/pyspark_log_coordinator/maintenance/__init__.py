"""Maintenance: rolls and merges segments, expires rows, deletes unneeded files."""
