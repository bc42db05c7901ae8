"""What is known of a cluster, its nodes, topics, partitions, groups and queries: one document for each thing.

Commands print these, pages and notebooks show them, and metrics count them, so that all say the same. A function here
returns plain values, with the names that `--json` has, and reads nothing but what its docstring says.
"""
