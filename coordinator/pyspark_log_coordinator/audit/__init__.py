"""Checks that every file that the journals name exists and is whole, and repairs those that are not."""
