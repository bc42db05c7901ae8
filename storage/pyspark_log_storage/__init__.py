"""Bytes: stores, nodes, chunks and append files. Knows nothing of Spark or of decisions."""
