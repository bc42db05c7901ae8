"""Segments, whatever their format: read, checked, and copied from node to node."""
