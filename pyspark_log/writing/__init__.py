"""Writing: orders rows by partition, stages them on nodes, and commits them as one batch."""
