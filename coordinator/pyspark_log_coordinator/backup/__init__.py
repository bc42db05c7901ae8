"""Backups: a copy of a log, and a log from such a copy."""
