"""A cluster as one process sees it: its journals, topics and nodes, and which nodes are reachable."""
