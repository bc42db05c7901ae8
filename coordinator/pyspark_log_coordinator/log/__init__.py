"""A cluster as one process sees it: opening it, its topics, its nodes, and which of these answer."""
