"""Maintenance: rolls and merges segments, expires rows, deletes unneeded files, keeps nodes up to date."""
